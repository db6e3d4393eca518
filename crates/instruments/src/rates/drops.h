/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Declarations shared by the programs and user space: drops.rs is generated
 * from them.
 */
#ifndef NETPLUMB_RATES_DROPS_H
#define NETPLUMB_RATES_DROPS_H

#include "kernel/net.h"

#define DROPS_KEYS 4096

/* Counted events. */
enum drops_event {
	DROPS_KFREE_SKB = 1,	/* detail: enum skb_drop_reason */
	DROPS_XDP_EXCEPTION,	/* detail: what the program returned */
	DROPS_XDP_BULK_TX,	/* detail: errno */
	DROPS_XDP_DEVMAP_XMIT,	/* detail: errno */
	DROPS_XDP_REDIRECT_ERR, /* detail: errno */
	DROPS_XDP_CPUMAP_ENQUEUE,
	DROPS_XDP_CPUMAP_KTHREAD,
};

struct drops_config {
	/*
	 * Whether kfree_skb has a reason: c504e5c2f964 ("net: skb: introduce
	 * kfree_skb_reason()", 5.17).
	 */
	__u32 has_reasons;
	/* SKB_CONSUMED, which is no drop; 0 where the kernel does not have it. */
	__u32 reason_consumed;
	/* SKB_DROP_REASON_NOT_SPECIFIED. */
	__u32 reason_unknown;
};

struct drops_key {
	__u32 event;
	__u32 detail;
	__u32 namespace_inum;
	__u32 ifindex;
	char device[IFNAMSIZ];
	__u64 location; /* Of kfree_skb without a reason: who called it. */
};

#endif
