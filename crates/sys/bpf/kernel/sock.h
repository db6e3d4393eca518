/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Sockets. */
#ifndef NETPLUMB_KERNEL_SOCK_H
#define NETPLUMB_KERNEL_SOCK_H

#include "kernel/core.h"
#include "kernel/net.h"
#include "kernel/skb.h"

/* Read as a whole only. */
struct in6_addr {
	__u8 bytes[16];
};

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	int skc_bound_dev_if;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
} CO_RE;

struct sock {
	struct sock_common __sk_common;
	struct sk_buff_head sk_receive_queue;
	/* A field of its own since Linux 5.6, commit bf9765145b85. */
	__u16 sk_protocol;
} CO_RE;

struct udp_sock {
	struct sk_buff_head reader_queue;
} CO_RE;

struct socket {
	struct sock *sk;
} CO_RE;

#endif
