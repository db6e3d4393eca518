/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The timestamp of a frame, right after the header of its protocol (UDP, TCP,
 * ICMP): from byte 42 on for UDP and ICMP over IPv4, 54 for TCP over IPv4, 62
 * for UDP and ICMP over IPv6, 74 for TCP over IPv6, where byte 0 is the first
 * byte of the link header. Included by senders and receivers of frames; `Stamp`
 * of the model is the same in Rust. A frame without timestamp has zeros there.
 */
#ifndef NETPLUMB_STAMP_H
#define NETPLUMB_STAMP_H

/* "PLMB", in network byte order: the first byte on the wire is 'P'. */
#define STAMP_MAGIC 0x504c4d42

struct stamp {
	__be32 magic;
	/*
	 * Number of frames that this CPU passed to the device before this one,
	 * including refused ones; the lower 32 bits, in the machine's byte
	 * order.
	 */
	__u32 sequence;
	/*
	 * The scheduled send time, by CLOCK_MONOTONIC, which is earlier than
	 * the actual one if the generator is late; without a given rate, the
	 * time when the frame was made. In the machine's byte order.
	 */
	__u64 due_ns;
} __attribute__((packed));

#endif
