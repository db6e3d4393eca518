/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the programs and the Rust half (calls.rs) share. Tasks are as in
 * samples.h.
 */
#ifndef NETPLUMB_EVENTS_CALLS_H
#define NETPLUMB_EVENTS_CALLS_H

/* Entries or exits that are counted at once. */
#define CALLS_FUNCTIONS 16

/* The fields are those that samples' programs go by. */
struct calls_config {
	/* The namespace of pids of who asks. */
	__u64 pidns_dev;
	__u64 pidns_inode;
	__u64 cgroup;
	__u32 scope;
	__u32 tgid;
};

/* What this process sets while the programs run. */
struct calls_turn {
	__u64 on; /* Whether calls are counted. */
};

/* What a CPU has counted of a function. */
struct calls_count {
	__u64 count;
	/* Processes that there was no room for; of the first one, whichever. */
	__u64 not_followed;
};

#endif
