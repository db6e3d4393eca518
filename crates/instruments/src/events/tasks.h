/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the programs and the Rust half (tasks.rs) share.
 */
#ifndef NETPLUMB_EVENTS_TASKS_H
#define NETPLUMB_EVENTS_TASKS_H

#define TASKS_NAME 16 /* TASK_COMM_LEN */
#define TASKS_EVENTS 64
#define TASKS_SUMS 32768

struct tasks_config {
	__u32 events;
	__u32 cpus;
};

/* An event in the threads of a process that have one name. */
struct tasks_key {
	__u32 tgid;
	__u32 event;
	__u8 name[TASKS_NAME];
};

/* An event, on a CPU. */
struct tasks_event {
	__u64 before; /* Its counter, as it was charged last. */
	__u64 lost;   /* What there was no room for. */
};

#endif
