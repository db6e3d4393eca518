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
	/* Time of tasks that are others' (see is_others()), as `acc_ns`. */
	__u64 others_acc_ns;
	__u32 known;  /* A switch of tasks was seen. */
	__u32 tasks;  /* A task runs that is not the idle one. */
	__u32 depth;  /* Interrupts and softirqs under way. */
	__u32 others; /* It is others'. */
	__u32 unused[4];
};

/* Who asks, as its own namespace of pids calls it. */
struct busy_config {
	__u64 pidns_dev;
	__u64 pidns_inode;
	__u32 tgid;
	__u32 unused;
};

#endif
