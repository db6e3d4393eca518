/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the program and the Rust half (sampler.rs) share.
 */
#ifndef NETPLUMB_SAMPLES_SAMPLES_H
#define NETPLUMB_SAMPLES_SAMPLES_H

#define SAMPLES_NAME 16 /* TASK_COMM_LEN */
#define SAMPLES_KEYS 16384
#define SAMPLES_STACKS 16384
#define SAMPLES_MORE_STACKS 1024
#define SAMPLES_FRAMES 64 /* Below kernel.perf_event_max_stack, which is 127. */

/* tgid: the idle task's, and that of a task of another namespace of pids. */
#define SAMPLES_IDLE 0
#define SAMPLES_FOREIGN 0xffffffff

struct samples_key {
	/*
	 * In `stacks`; from SAMPLES_STACKS on, in `stacks_spilt`. Negative: an
	 * errno, the stack is not known.
	 */
	__s32 stack;
	__u32 tgid;
	__u32 user; /* Whether it was user code. */
	char name[SAMPLES_NAME];
};

#endif
