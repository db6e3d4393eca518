/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the programs and the Rust half (callers.rs) share. Tasks and stacks are
 * as in samples.h.
 */
#ifndef NETPLUMB_EVENTS_CALLERS_H
#define NETPLUMB_EVENTS_CALLERS_H

/* Events that are counted at once. */
#define CALLERS_EVENTS 64
/* Stacks of events that are distinguished. */
#define CALLERS_STACKS 16384
#define CALLERS_RING_BYTES 8388608

/* The first fields are those that samples' programs go by. */
struct callers_config {
	/* The namespace of pids of who asks. */
	__u64 pidns_dev;
	__u64 pidns_inode;
	__u64 cgroup;
	__u32 scope;
	__u32 tgid;
	__u32 frames; /* The most of each half of a stack. */
	/* Stacks of programs, and their names; else events of all are alike. */
	__u32 user;
};

/* A stack at an event. */
struct callers_key {
	__u64 hash;
	__u32 event;
	__u32 unused;
};

struct callers_known {
	__u64 check; /* A second hash of the same: else they are others. */
	__u64 count;
};

/* What a CPU has counted of an event. */
struct callers_count {
	__u64 count;
	__u64 lost; /* Of these, without a stack. */
	__u64 cut;  /* With one that is deeper than is read. */
	__u64 run_ns;
	/* Processes that there was no room for; of the first event, whichever. */
	__u64 not_followed;
};

/* What this process sets while the programs run. */
struct callers_turn {
	__u64 on;
	__u64 half; /* Which of two halves is written to. */
};

#endif
