// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * XDP programs: drop a packet, send it back, redirect it to another device, or
 * pass it to a process. One of these is loaded at a time.
 */
#include "packet.h"

/* The block list of sources. Its size is set by the loader. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32[4]);
	__type(value, __u8);
} sources SEC(".maps");

/* The device to redirect to. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} egress SEC(".maps");

/* AF_XDP sockets, by queue. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 64);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} sockets SEC(".maps");

static __always_inline void *begin_of(const struct xdp_md *ctx)
{
	return (void *)(long)ctx->data;
}

static __always_inline void *end_of(const struct xdp_md *ctx)
{
	return (void *)(long)ctx->data_end;
}

/* Maximum number of lookups per packet, checked by the loader. */
#define LOOKUPS_MOST 64

/* The source of a packet that matched is_ours(). */
static __always_inline int source_of(const void *data, const void *end,
				     __u32 key[4])
{
	const __u32 *from = data + ETH_BYTES + (config.family == 4 ? 12 : 8);

	key[0] = key[1] = key[2] = key[3] = 0;
	if (config.family == 4) {
		if (data + ETH_BYTES + V4_BYTES > end)
			return -1;
		key[0] = from[0];
		return 0;
	}
	if (data + ETH_BYTES + V6_BYTES > end)
		return -1;
	key[0] = from[0];
	key[1] = from[1];
	key[2] = from[2];
	key[3] = from[3];
	return 0;
}

/* Gone from the program where none are asked for: the config is known to the
 * verifier.
 */
static __always_inline void look_up_for_nothing(const void *data,
						const void *end)
{
	__u32 key[4];
	int i;

	if (!config.lookups || source_of(data, end, key))
		return;
	for (i = 0; i < LOOKUPS_MOST; i++) {
		if (i >= config.lookups)
			break;
		bpf_map_lookup_elem(&sources, key);
	}
}

SEC("xdp")
int xdp_drop(struct xdp_md *ctx)
{
	void *data = begin_of(ctx), *end = end_of(ctx);
	struct paths_counts *c = this_cpu();

	if (!is_ours(data, end)) {
		c->foreign++;
		return XDP_PASS;
	}
	look_up_for_nothing(data, end);
	count(c, data, end, end - data);
	return XDP_DROP;
}

/*
 * For the target device of redirects: some drivers only transmit XDP frames
 * while the device has a program itself (virtnet_xdp_xmit, ixgbe_xdp_xmit).
 */
SEC("xdp")
int xdp_pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

/* Packets from sources that are not listed are passed to the kernel. */
SEC("xdp")
int xdp_blocklist(struct xdp_md *ctx)
{
	void *data = begin_of(ctx), *end = end_of(ctx);
	struct paths_counts *c = this_cpu();
	__u32 key[4];

	if (!is_ours(data, end)) {
		c->foreign++;
		return XDP_PASS;
	}
	if (source_of(data, end, key))
		return XDP_PASS;
	if (!bpf_map_lookup_elem(&sources, key)) {
		c->unlisted++;
		return XDP_PASS;
	}
	c->listed++;
	count(c, data, end, end - data);
	return XDP_DROP;
}

SEC("xdp")
int xdp_tx(struct xdp_md *ctx)
{
	void *data = begin_of(ctx), *end = end_of(ctx);
	struct paths_counts *c = this_cpu();
	__u16 *mac = data;
	__u16 to[3];

	if (!is_ours(data, end)) {
		c->foreign++;
		return XDP_PASS;
	}
	count(c, data, end, end - data);
	if ((void *)(mac + 6) > end)
		return XDP_ABORTED;
	to[0] = mac[0];
	to[1] = mac[1];
	to[2] = mac[2];
	mac[0] = mac[3];
	mac[1] = mac[4];
	mac[2] = mac[5];
	mac[3] = to[0];
	mac[4] = to[1];
	mac[5] = to[2];
	return XDP_TX;
}

SEC("xdp")
int xdp_redirect(struct xdp_md *ctx)
{
	void *data = begin_of(ctx), *end = end_of(ctx);
	struct paths_counts *c = this_cpu();
	__u16 *mac = data;
	int i;

	if (!is_ours(data, end)) {
		c->foreign++;
		return XDP_PASS;
	}
	count(c, data, end, end - data);
	if ((void *)(mac + 6) > end)
		return XDP_ABORTED;
	for (i = 0; i < 3; i++) {
		mac[i] = config.next_mac[i];
		mac[3 + i] = config.own_mac[i];
	}
	/* The flags are the return value if the map has no such device. */
	return bpf_redirect_map(&egress, 0, XDP_ABORTED);
}

SEC("xdp")
int xdp_socket(struct xdp_md *ctx)
{
	void *data = begin_of(ctx), *end = end_of(ctx);
	struct paths_counts *c = this_cpu();

	if (!is_ours(data, end)) {
		c->foreign++;
		return XDP_PASS;
	}
	count(c, data, end, end - data);
	/* A queue without a socket: counted as lost. */
	return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_ABORTED);
}

char LICENSE[] SEC("license") = "GPL";
