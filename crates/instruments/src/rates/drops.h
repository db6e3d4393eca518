/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the programs and the Rust half (drops.rs) share.
 */
#ifndef NETPLUMB_RATES_DROPS_H
#define NETPLUMB_RATES_DROPS_H

#define CO_RE __attribute__((preserve_access_index))

#define DROPS_NAME 16 /* IFNAMSIZ */
#define DROPS_KEYS 4096

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
	char name[DROPS_NAME];
	int ifindex;
	possible_net_t nd_net;
} CO_RE;

struct sock_common {
	possible_net_t skc_net;
} CO_RE;

struct sock {
	struct sock_common __sk_common;
} CO_RE;

struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	int skb_iif;
	__u16 protocol;
} CO_RE;

/* What is counted. */
enum drops_event {
	DROPS_KFREE_SKB = 1,	/* detail: enum skb_drop_reason */
	DROPS_XDP_EXCEPTION,	/* detail: what the program returned */
	DROPS_XDP_BULK_TX,	/* detail: errno */
	DROPS_XDP_DEVMAP_XMIT,	/* detail: errno */
	DROPS_XDP_REDIRECT_ERR, /* detail: errno */
	DROPS_XDP_CPUMAP_ENQUEUE,
	DROPS_XDP_CPUMAP_KTHREAD,
};

struct drops_key {
	__u32 event;
	__u32 detail;
	__u32 namespace_inum;
	__u32 ifindex;
	char device[DROPS_NAME];
	__u64 location; /* Of kfree_skb without a reason: who called it. */
};

#endif
