// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The far end: counts arriving packets, and drops them.
 */
#include "packet.h"

SEC("xdp")
int sink(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct paths_counts *c = this_cpu();

	if (!is_ours(data, end)) {
		c->foreign++;
		return XDP_PASS;
	}
	count(c, data, end, end - data);
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "GPL";
