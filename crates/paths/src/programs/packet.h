/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which packets are ours, and what is counted of them. Rust's half of it is in
 * src/layout.rs.
 */
#ifndef NETPLUMB_PATHS_PACKET_H
#define NETPLUMB_PATHS_PACKET_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "kernel/protocols.h"

/* More CPUs than this, and the loader refuses. */
#define PATHS_CPUS 1024
/* model::timing::BUCKETS: below 16 ns one each, above 16 to an octave. */
#define PATHS_BUCKETS 512
#define PATHS_MOST_NS ((1ULL << 35) - 1)
/* As the generator has it: crates/workload/src/frames/stamp.h. */
#define PATHS_STAMP_MAGIC 0x504c4d42

struct paths_stamp {
	__be32 magic;
	__u32 sequence;
	__u64 due_ns;
} __attribute__((packed));

#define ETH_BYTES 14
#define V4_BYTES 20
#define V6_BYTES 40
#define PROTO_UDP 17
#define PROTO_TCP 6
#define ICMP_ECHO 8
#define ICMPV6_ECHO_REQUEST 128

struct paths_config {
	/* Of the destination; IPv4 has the first word. Big-endian. */
	__u32 address[4];
	/* Of the destination; not for ICMP. Big-endian. */
	__u16 port;
	/* From the beginning of the frame to the stamp; 0 where there is none. */
	__u16 stamp_offset;
	/* 4 or 6. */
	__u8 family;
	/* The number in the IP header. */
	__u8 proto;
	/* Of the frames that are sent on. */
	__u16 next_mac[3];
	__u16 own_mac[3];
	/* In a map, for each packet, for nothing: what one costs. */
	__u16 lookups;
};

/* Of one CPU; a cache line of its own. */
struct paths_counts {
	__u64 packets;
	__u64 bytes;
	__u64 foreign;
	/* Stamped frames whose stamp was not there, or in the future. */
	__u64 unstamped;
	/* Sources that the list has, and those that it hasn't. */
	__u64 listed;
	__u64 unlisted;
	__u64 pad[2];
} __attribute__((aligned(64)));

struct paths_times {
	__u64 count;
	__u64 total_ns;
	__u64 min_ns;
	__u64 max_ns;
	__u64 buckets[PATHS_BUCKETS];
};

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

/* The destination's address and port are those that are asked for. */
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
		/* Without options, and no later fragment. */
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

/* model::timing::Buckets. */
static __always_inline __u32 bucket(__u64 ns)
{
	__u32 high = 4;

	if (ns < 16)
		return ns;
	if (ns > PATHS_MOST_NS)
		return PATHS_BUCKETS - 1;
	/* The place of the highest bit, from 4 to 34. */
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

/* From when the frame was to be sent to now. */
static __always_inline void time_it(struct paths_counts *c, const void *data,
				    const void *data_end)
{
	const struct paths_stamp *stamp = data + config.stamp_offset;
	struct paths_times *t;
	__u64 due_ns, now_ns;
	__u32 zero = 0, b;

	if ((const void *)(stamp + 1) > data_end)
		goto none;
	if (stamp->magic != __builtin_bswap32(PATHS_STAMP_MAGIC))
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
