/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Declarations shared by the programs and user space: layout.rs is generated
 * from them.
 */
#ifndef NETPLUMB_PATHS_H
#define NETPLUMB_PATHS_H

/* Programs are not loaded on machines that may have more CPUs. */
#define PATHS_CPUS 1024
/* model::span::BUCKETS: below 16 ns one each, above 16 to an octave. */
#define PATHS_BUCKETS 512

struct paths_config {
	/* The destination address; IPv4 in the first word. Big-endian. */
	__u32 address[4];
	/* The destination port; not for ICMP. Big-endian. */
	__u16 port;
	/* The offset of the timestamp in the frame; 0 if there is none. */
	__u16 stamp_offset;
	/* 4 or 6. */
	__u8 family;
	/* The protocol number in the IP header. */
	__u8 proto;
	/* The MAC addresses of forwarded frames. */
	__u16 next_mac[3];
	__u16 own_mac[3];
	/* Additional map lookups per packet, to measure their cost. */
	__u16 lookups;
};

/* Counters of a CPU, in a cache line of their own. */
struct paths_counts {
	__u64 packets;
	__u64 bytes;
	__u64 foreign;
	/* Frames without the expected timestamp, or with one in the future. */
	__u64 unstamped;
	/* Packets whose source is on the block list, and is not. */
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

#endif
