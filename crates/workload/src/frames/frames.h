/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Declarations shared by the programs and user space: layout.rs is generated
 * from them.
 */
#ifndef NETPLUMB_FRAMES_H
#define NETPLUMB_FRAMES_H

/* Whole words of the longest headers: Ethernet, IPv6 and TCP, 74 bytes. */
#define FRAMES_WORDS 9
/* And of the shortest: Ethernet, IPv4 and UDP, 42 bytes. */
#define FRAMES_WORDS_LEAST 5
/* Number of sizes in a mix (IMIX), and of frames in its cycle. */
#define FRAMES_SIZES 3
#define FRAMES_MIX 12
/*
 * Errors counted separately, the last one for all higher ones; 0 is a full
 * ring.
 */
#define FRAMES_ERRORS 136
/* Frames overdue by more than this are dropped from the schedule. */
#define FRAMES_BEHIND_NS 10000000ULL

enum frames_mode {
	/* All of it. */
	FRAMES_FULL,
	/* Frames are made and dropped. */
	FRAMES_LOOP,
	/* Frames are sent without being made again. */
	FRAMES_REDIRECT,
};

/*
 * The template of a frame of one size. Fields that vary count as zeros in its
 * sums.
 */
struct frames_template {
	__u64 words[FRAMES_WORDS];
	/* The last eight bytes of the headers. */
	__u64 tail;
	/* Sums (RFC 1071) for the IP header's checksum, and the other one. */
	__u32 ip_sum;
	__u32 l4_sum;
	__u32 size_bytes;
	__u32 reserved;
};

struct frames_config {
	struct frames_template templates[FRAMES_SIZES];
	/* The order of templates. */
	__u8 mix[FRAMES_MIX];
	__u32 mode;
	/* The sending device: its index, and its namespace's inode. */
	__u32 device;
	__u32 net;
	__u32 header_bytes;
	/* Length of the headers and the timestamp. */
	__u32 written_bytes;
	/* The longest template. */
	__u32 size_bytes;
	/*
	 * Offsets in a frame: of the lower half of the source address, and so
	 * on.
	 */
	__u32 address_at;
	__u32 port_at;
	/* 0 if there is none. */
	__u32 ip_check_at;
	__u32 l4_check_at;
	__u32 address_in_l4_check;
	__u32 is_udp;
	/* Of the first flow, in the machine's byte order. */
	__u32 first_address;
	__u32 first_port;
	/* Number of ports per address. */
	__u32 ports;
	/*
	 * Whether frames differ in more than their size: by flow or timestamp.
	 */
	__u32 varying;
	__u32 many_flows;
	__u32 many_addresses;
	__u32 many_sizes;
	__u32 paced;
	__u32 stamped;
};

/* The state of a CPU. */
struct frames_slot {
	__u64 frames;
	__u64 bytes;
	__u64 idle;
	/* Overdue frames that were dropped from the schedule. */
	__u64 behind;
	/* When the next one is due, in ns and 1/65536 ns. */
	__u64 due_ns;
	__u64 due_part;
	/* The last reading of the clock. */
	__u64 now_ns;
	/* The mean time between two frames, in 1/65536 ns. */
	__u64 gap;
	__u64 random;
	/*
	 * This CPU's share of the flows: number and first one. Without any it
	 * sends nothing.
	 */
	__u32 flows;
	__u32 first_port_step;
	__u32 first_address_step;
	/* The next one. */
	__u32 flow;
	__u32 port_step;
	__u32 address_step;
	/*
	 * The current position in the mix, and that at the start of the round
	 * of flows.
	 */
	__u32 turn;
	__u32 first_turn;
	/* Counters of the device. */
	__u64 sent;
	__u64 batches;
	__u64 refused[FRAMES_ERRORS];
} __attribute__((aligned(64)));

#endif
