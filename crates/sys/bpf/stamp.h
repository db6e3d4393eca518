/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a stamped frame carries right after the header of its protocol (UDP, TCP,
 * ICMP): from byte 42 on for UDP and ICMP over IPv4, 54 for TCP over IPv4, 62 for
 * UDP and ICMP over IPv6, 74 for TCP over IPv6, the link header's first byte being
 * byte 0. What makes frames and what receives them include this file; `Stamp` of
 * the model is the same in Rust. A frame with no stamp has zeros there.
 */
#ifndef NETPLUMB_STAMP_H
#define NETPLUMB_STAMP_H

/* "PLMB", in network byte order: the first byte on the wire is 'P'. */
#define STAMP_MAGIC 0x504c4d42

struct stamp {
	__be32 magic;
	/*
	 * Frames that this CPU gave to the device before this one, those that it
	 * refused among them; the lower 32 bits, in the machine's byte order.
	 */
	__u32 sequence;
	/*
	 * When it was to be sent, by CLOCK_MONOTONIC: before it was, where the
	 * generator is late. When it was made, where no rate is asked for. In the
	 * machine's byte order.
	 */
	__u64 due_ns;
} __attribute__((packed));

#endif
