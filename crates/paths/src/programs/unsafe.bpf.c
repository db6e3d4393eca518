// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A program that reads what may not be there: a frame can end before its IP header.
 * No kernel accepts it: `plumb bench verify` shows how it is refused.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp")
int xdp_unsafe(struct xdp_md *ctx)
{
	const __u8 *data = (const __u8 *)(long)ctx->data;
	__u8 protocol = data[23];

	return protocol == 17 ? XDP_DROP : XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
