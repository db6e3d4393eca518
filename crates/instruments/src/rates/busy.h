/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the programs and the process agree on: busy.rs has it made into Rust.
 */
#ifndef NETPLUMB_RATES_BUSY_H
#define NETPLUMB_RATES_BUSY_H

/* A CPU; a cache line of its own, since only that CPU writes to it. */
struct busy_cpu {
	/*
	 * Time that something ran. While something does, less the moment it
	 * began: so one word tells all, and is read as it is at any time. It is
	 * negative then, as nothing ran for longer than the clock.
	 */
	__u64 acc_ns;
	__u64 last_ns;	 /* When something was seen. */
	__u64 unsure_ns; /* Time that was taken for idle and may not have been. */
	__u32 known;	 /* A switch of tasks was seen. */
	__u32 tasks;	 /* A task runs that is not the idle one. */
	__u32 depth;	 /* Interrupts and softirqs under way. */
	__u32 unused[7];
};

#endif
