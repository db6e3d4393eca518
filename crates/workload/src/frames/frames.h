/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the programs and the process agree on: layout.rs is made of it.
 */
#ifndef NETPLUMB_FRAMES_H
#define NETPLUMB_FRAMES_H

/* Whole words of the longest headers: Ethernet, IPv6 and TCP, 74 bytes. */
#define FRAMES_WORDS 9
/* And of the shortest: Ethernet, IPv4 and UDP, 42 bytes. */
#define FRAMES_WORDS_LEAST 5
/* Sizes that a mix has (IMIX), and how many frames they are in. */
#define FRAMES_SIZES 3
#define FRAMES_MIX 12
/* Errors that are told apart, the last one for all above; 0 is a full ring. */
#define FRAMES_ERRORS 136
/* What is owed for longer than this is forgotten. */
#define FRAMES_BEHIND_NS 10000000ULL

enum frames_mode {
	/* All of it. */
	FRAMES_FULL,
	/* Frames are made and dropped. */
	FRAMES_LOOP,
	/* Frames are sent as they lie there. */
	FRAMES_REDIRECT,
};

/* A frame of one size. What differs from frame to frame is zeros in its sums. */
struct frames_template {
	__u64 words[FRAMES_WORDS];
	/* The last eight bytes of the headers. */
	__u64 tail;
	/* Sums (RFC 1071) of what the IP header's checksum covers, and the other. */
	__u32 ip_sum;
	__u32 l4_sum;
	__u32 size_bytes;
	__u32 reserved;
};

struct frames_config {
	struct frames_template templates[FRAMES_SIZES];
	/* Which template is whose turn. */
	__u8 mix[FRAMES_MIX];
	__u32 mode;
	/* Where frames leave: the device's index, and its namespace's inode. */
	__u32 device;
	__u32 net;
	__u32 header_bytes;
	/* The headers and the stamp. */
	__u32 written_bytes;
	/* The longest of the templates. */
	__u32 size_bytes;
	/* Where in a frame: the lower half of the source's address, and so on. */
	__u32 address_at;
	__u32 port_at;
	/* 0 where there is none. */
	__u32 ip_check_at;
	__u32 l4_check_at;
	__u32 address_in_l4_check;
	__u32 is_udp;
	/* Of the first flow, in the machine's byte order. */
	__u32 first_address;
	__u32 first_port;
	/* How many ports an address has. */
	__u32 ports;
	/* Whether frames differ but for their size: by flow or stamp. */
	__u32 varying;
	__u32 many_flows;
	__u32 many_addresses;
	__u32 many_sizes;
	__u32 paced;
	__u32 stamped;
};

/* What a CPU has for itself. */
struct frames_slot {
	__u64 frames;
	__u64 bytes;
	__u64 idle;
	/* Frames that were due and are forgotten. */
	__u64 behind;
	/* When the next one is due, in ns and 1/65536 ns. */
	__u64 due_ns;
	__u64 due_part;
	/* The last look at the clock. */
	__u64 now_ns;
	/* The mean time between two frames, in 1/65536 ns. */
	__u64 gap;
	__u64 random;
	/*
	 * This CPU's share of the flows: how many, and where it begins. With none
	 * it sends nothing.
	 */
	__u32 flows;
	__u32 first_port_step;
	__u32 first_address_step;
	/* The next one. */
	__u32 flow;
	__u32 port_step;
	__u32 address_step;
	/* Whose turn it is in the mix, and whose it was when the flows began. */
	__u32 turn;
	__u32 first_turn;
	/* What the device did. */
	__u64 sent;
	__u64 batches;
	__u64 refused[FRAMES_ERRORS];
} __attribute__((aligned(64)));

#endif
