/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the programs and the process agree on: layout.rs is made of it.
 */
#ifndef NETPLUMB_PATHS_H
#define NETPLUMB_PATHS_H

/* On a machine that may have more CPUs than this, nothing is loaded. */
#define PATHS_CPUS 1024
/* model::span::BUCKETS: below 16 ns one each, above 16 to an octave. */
#define PATHS_BUCKETS 512

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

#endif
