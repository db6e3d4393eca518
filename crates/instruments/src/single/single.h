/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Declarations shared by single.bpf.c and user space: single.rs is generated
 * from them.
 */
#ifndef NETPLUMB_SINGLE_H
#define NETPLUMB_SINGLE_H

/* Maximum number of tasks seen in the function. */
#define SINGLE_MAX_TASKS 4096
/*
 * Maximum nesting of calls in a task: a softirq that interrupts the function
 * and calls it again, and so on, or a little recursion.
 */
#define SINGLE_MAX_DEPTH 8

/* The open calls of a task. */
struct single_pending {
	__u64 depth;
	__u64 entered_ns[SINGLE_MAX_DEPTH];
};

/* The times of the function on a CPU. */
struct single_times {
	/* Calls that returned and were timed. */
	__u64 calls;
	__u64 total_ns;
	/* Undefined while `calls` is 0. */
	__u64 min_ns;
	/* Timed calls within an RCU read-side critical section. */
	__u64 in_rcu;
	/* Calls that returned but whose entry had not been seen or kept. */
	__u64 untimed;
};

#endif
