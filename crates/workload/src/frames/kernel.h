/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Of the kernel's own types, the fields that are read here; the loader finds
 * out where they are in the kernel at hand.
 */
#ifndef NETPLUMB_FRAMES_KERNEL_H
#define NETPLUMB_FRAMES_KERNEL_H

#define CO_RE __attribute__((preserve_access_index))

struct ns_common {
	unsigned int inum;
} CO_RE;

struct net {
	struct ns_common ns;
} CO_RE;

typedef struct {
	struct net *net;
} CO_RE possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
} CO_RE;

struct bpf_prog;

#endif
