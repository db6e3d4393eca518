/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Network namespaces and devices. */
#ifndef NETPLUMB_KERNEL_NET_H
#define NETPLUMB_KERNEL_NET_H

#include "kernel/core.h"

#define IFNAMSIZ 16

struct net {
	struct ns_common ns;
} CO_RE;

typedef struct {
	struct net *net;
} CO_RE possible_net_t;

struct device {
	struct device *parent;
} CO_RE;

struct net_device {
	char name[IFNAMSIZ];
	int ifindex;
	possible_net_t nd_net;
	struct device dev;
} CO_RE;

#endif
