// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Drops packets at tc ingress: by tcx, or without it by a clsact filter. Both
 * accept the same return values: TCX_NEXT is TC_ACT_UNSPEC (commit e420bed02507
 * "bpf: Add fd-based tcx multi-prog infra with link support").
 */
#include "packet.h"

#define TC_ACT_UNSPEC (-1)
#define TC_ACT_SHOT 2

SEC("tc")
int tc_drop(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data;
	void *end = (void *)(long)skb->data_end;
	struct paths_counts *c = this_cpu();

	if (!is_ours(data, end)) {
		c->foreign++;
		return TC_ACT_UNSPEC;
	}
	count(c, data, end, skb->len);
	return TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "GPL";
