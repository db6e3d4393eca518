/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Matches the generator's packets, and counts them.
 */
#ifndef NETPLUMB_PATHS_PACKET_H
#define NETPLUMB_PATHS_PACKET_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "kernel/protocols.h"
#include "paths.h"
#include "stamp.h"

#define PATHS_MOST_NS ((1ULL << 35) - 1)

#define ETH_BYTES 14
#define V4_BYTES 20
#define V6_BYTES 40
#define PROTO_UDP 17
#define PROTO_TCP 6
#define ICMP_ECHO 8
#define ICMPV6_ECHO_REQUEST 128

const volatile struct paths_config config = {};

struct paths_counts counts[PATHS_CPUS] SEC(".bss.counts") = {};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct paths_times);
} latency SEC(".maps");

static __always_inline struct paths_counts *this_cpu(void)
{
	return &counts[bpf_get_smp_processor_id() & (PATHS_CPUS - 1)];
}

static __always_inline int l4_is_ours(const __u8 *l4, __u8 echo)
{
	if (config.proto == PROTO_UDP || config.proto == PROTO_TCP)
		return *(const __u16 *)(l4 + 2) == config.port;
	return l4[0] == echo;
}

/* Whether the destination address and port match. */
static __always_inline int is_ours(const void *data, const void *data_end)
{
	const __u8 *at = data;
	const __u32 *to;

	if (config.family == 4) {
		if (data + ETH_BYTES + V4_BYTES + 4 > data_end)
			return 0;
		if (*(const __u16 *)(at + 12) != ETH_P_IP_BE)
			return 0;
		at += ETH_BYTES;
		/* Without options, and not a later fragment. */
		if (at[0] != 0x45 || at[9] != config.proto ||
		    (*(const __u16 *)(at + 6) & 0xff1f))
			return 0;
		to = (const __u32 *)(at + 16);
		return to[0] == config.address[0] &&
		       l4_is_ours(at + V4_BYTES, ICMP_ECHO);
	}
	if (data + ETH_BYTES + V6_BYTES + 4 > data_end)
		return 0;
	if (*(const __u16 *)(at + 12) != ETH_P_IPV6_BE)
		return 0;
	at += ETH_BYTES;
	if (at[6] != config.proto)
		return 0;
	to = (const __u32 *)(at + 24);
	return to[0] == config.address[0] && to[1] == config.address[1] &&
	       to[2] == config.address[2] && to[3] == config.address[3] &&
	       l4_is_ours(at + V6_BYTES, ICMPV6_ECHO_REQUEST);
}

/* model::span::Buckets. */
static __always_inline __u32 bucket(__u64 ns)
{
	__u32 high = 4;

	if (ns < 16)
		return ns;
	if (ns > PATHS_MOST_NS)
		return PATHS_BUCKETS - 1;
	/* The index of the highest bit, from 4 to 34. */
	if (ns >> 20)
		high += 16;
	if (ns >> (high + 8))
		high += 8;
	if (ns >> (high + 4))
		high += 4;
	if (ns >> (high + 2))
		high += 2;
	if (ns >> (high + 1))
		high += 1;
	return (high - 3) * 16 + ((ns >> (high - 4)) & 15);
}

/* The latency since the frame's scheduled send time. */
static __always_inline void time_it(struct paths_counts *c, const void *data,
				    const void *data_end)
{
	const struct stamp *stamp = data + config.stamp_offset;
	struct paths_times *t;
	__u64 due_ns, now_ns;
	__u32 zero = 0, b;

	if ((const void *)(stamp + 1) > data_end)
		goto none;
	if (stamp->magic != __builtin_bswap32(STAMP_MAGIC))
		goto none;
	due_ns = stamp->due_ns;
	now_ns = bpf_ktime_get_ns();
	t = bpf_map_lookup_elem(&latency, &zero);
	if (!t || due_ns > now_ns)
		goto none;
	now_ns -= due_ns;
	if (!t->count || now_ns < t->min_ns)
		t->min_ns = now_ns;
	if (now_ns > t->max_ns)
		t->max_ns = now_ns;
	t->count++;
	t->total_ns += now_ns;
	b = bucket(now_ns);
	if (b < PATHS_BUCKETS)
		t->buckets[b]++;
	return;
none:
	c->unstamped++;
}

static __always_inline void count(struct paths_counts *c, const void *data,
				  const void *data_end, __u64 bytes)
{
	c->packets++;
	c->bytes += bytes;
	if (config.stamp_offset)
		time_it(c, data, data_end);
}

#endif
