/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What single.bpf.c and the process agree on: single.rs has it made into Rust.
 */
#ifndef NETPLUMB_SINGLE_H
#define NETPLUMB_SINGLE_H

/* Tasks that can have been seen in the function. */
#define SINGLE_MAX_TASKS 4096
/*
 * Calls of one task that can be under way at once: a softirq that interrupts
 * the function and calls it again, and so on, or a little recursion.
 */
#define SINGLE_MAX_DEPTH 8

/* Calls of one task that are under way. */
struct single_pending {
	__u64 depth;
	__u64 entered_ns[SINGLE_MAX_DEPTH];
};

/* What one CPU has seen of the function. */
struct single_times {
	/* Calls that returned and were timed. */
	__u64 calls;
	__u64 total_ns;
	/* Means nothing while `calls` is 0. */
	__u64 min_ns;
	/* Of the calls timed, those made within an RCU read section. */
	__u64 in_rcu;
	/* Calls that returned but whose entry had not been seen or kept. */
	__u64 untimed;
};

#endif
