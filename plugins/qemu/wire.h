/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What wire.c, the guest's agent (crates/lab/src/vm/wire.rs) and the reader of
 * the log agree on.
 */
#ifndef NETPLUMB_WIRE_H
#define NETPLUMB_WIRE_H

#include <stdint.h>

/* I/O ports, each of 32 bits. */
#define WIRE_PORT 0x570
/* Without I/O ports: in a gap of QEMU's machine `virt` (hw/arm/virt.c). */
#define WIRE_ADDRESS 0x0b000000
#define WIRE_PORTS 16

/* Read: WIRE_MAGIC. Write: a command. */
#define WIRE_COMMAND 0
/* Read: a state. Write: the number of a value, plus 256 times a latch's. */
#define WIRE_STATE 4
/* Read: the value as it was at WIRE_LATCH, low and high half. */
#define WIRE_LOW 8
#define WIRE_HIGH 12

#define WIRE_MAGIC 0x4e505731u /* "NPW1" */

/* Latches are numbered from 0. */
#define WIRE_LATCHES 4

enum wire_command {
	WIRE_BEGIN = 1, /* connect: from now on both hosts have one clock */
	WIRE_END = 2,	/* disconnect, as soon as the other host wants to too */
	WIRE_LATCH = 3, /* take all values at once; plus 256 times its number */
};

enum wire_state {
	WIRE_APART = 0,
	WIRE_TOGETHER = 1,
	WIRE_OVER = 2,
};

enum wire_value {
	WIRE_CLOCK_NS,	  /* since WIRE_BEGIN */
	WIRE_INSNS,	  /* executed by this host, ever */
	WIRE_FRAMES,	  /* put on the wire by this host */
	WIRE_BYTES,	  /* theirs, with what a wire adds to each */
	WIRE_BUSY_NS,	  /* how long they occupied the wire */
	WIRE_LOST,	  /* lost by the wire */
	WIRE_TOO_LONG,	  /* longer than the wire's MTU: lost, too */
	WIRE_ARRIVED,	  /* handed to this host's NIC */
	WIRE_HELD,	  /* of these, had to wait in the NIC for the driver */
	WIRE_UNCONNECTED, /* sent while there was no wire: they went nowhere */
	WIRE_UNDER_WAY,	  /* still on the way to this host */
	WIRE_LONGEST_NS,  /* that a frame waited for the wire to be free */
	WIRE_LATE,	  /* arrived after their time: always 0 */
	WIRE_BARRIERS,	  /* at which both hosts waited for each other */
	WIRE_VALUES,
};

/*
 * An entry of the log: a frame that was put on the wire; or, with 0 bytes, that
 * the hosts go on, or, if both ends are in this guest, that the next frame has
 * arrived.
 */
struct wire_entry {
	int64_t begin_ps;   /* its first bit leaves, since WIRE_BEGIN */
	int64_t arrival_ns; /* it has been received; -1 if it is lost */
	uint32_t bytes;	    /* with its header, without FCS */
	uint32_t arrived;
};

#endif
