/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Declarations shared by the programs and user space: busy.rs is generated from
 * them.
 */
#ifndef NETPLUMB_RATES_BUSY_H
#define NETPLUMB_RATES_BUSY_H

/* A CPU, in a cache line of its own, since only that CPU writes to it. */
struct busy_cpu {
	/*
	 * Busy time. While the CPU is busy, minus the start of that period: so
	 * a single word has the state, and can be read at any time. It is
	 * negative then, since the busy time is less than the clock.
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
