/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the programs and the Rust half (spans.rs) share. Tasks and stacks are as
 * in samples.h.
 */
#ifndef NETPLUMB_SPANS_SPANS_H
#define NETPLUMB_SPANS_SPANS_H

/* Of a span, at most. */
#define SPANS_EVENTS 8
/* Pairs of events, one before the other, and the whole. */
#define SPANS_ROWS 29
/* What has begun and not ended, at most. */
#define SPANS_OPEN 65536
/* Calls of a function within each other that are distinguished. */
#define SPANS_DEPTH 1024
/* Stacks that are distinguished, and groups. */
#define SPANS_KEYS 16384
#define SPANS_GROUPS 256
#define SPANS_GROUP_NAME 32
#define SPANS_RING_BYTES 8388608
/* Buckets of a histogram: as in crates/model/src/span.rs. */
#define SPANS_BUCKETS 512

/* What an event is about, by which it belongs to a first one. */
enum spans_key {
	SPANS_KEY_ARGUMENT, /* The one of number `at`. */
	SPANS_KEY_FIELD, /* `bytes` at offset `at` of a tracepoint's record. */
	SPANS_KEY_RETURNED, /* What a function returns. */
	SPANS_KEY_TASK,	    /* The one that runs. */
	SPANS_KEY_CPU,
};

/* What times are broken down by. */
enum spans_by {
	SPANS_BY_NOTHING,
	SPANS_BY_STACK,
	SPANS_BY_TASK,
	SPANS_BY_CPU,
	SPANS_BY_REQUEST, /* The disk of a request, or of a bio; the device */
	SPANS_BY_BIO,	  /* of an skb. */
	SPANS_BY_SKB,
};

struct spans_event {
	__u32 key;
	__u32 at;
	__u32 bytes;
	__u32 unused;
};

/* The first fields are those that samples' programs go by. */
struct spans_config {
	/* The namespace of pids of who asks. */
	__u64 pidns_dev;
	__u64 pidns_inode;
	__u64 cgroup;
	__u32 scope;
	__u32 tgid;
	__u32 frames; /* The most of each half of a stack. */
	__u32 count;  /* Of events. */
	__u32 rows;   /* Pairs of these, and the whole. */
	__u32 by;
	/* Whether the key of the first event is the task that it is about. */
	__u32 about_task;
	/*
	 * Whether the first and last event are a task's calls of a function and
	 * its returns, which lie within each other where it calls itself.
	 */
	__u32 nests;
	struct spans_event events[SPANS_EVENTS];
};

/* What it has begun by: the key, and how many of it were open before. */
struct spans_place {
	__u64 key;
	__u64 depth;
};

/* What has begun. */
struct spans_begun {
	__u64 times_ns[SPANS_EVENTS];
	__u64 hash; /* Of the stack at the first event. */
	__u64 check;
	__u32 reached; /* A bit for each event. */
	__u32 unused;
	char group[SPANS_GROUP_NAME];
};

/* A distribution. */
struct spans_times {
	__u64 count;
	__u64 total_ns;
	__u64 min_ns;
	__u64 max_ns;
	__u64 buckets[SPANS_BUCKETS];
};

/* What times have a stack in common, by its hash. */
struct spans_known {
	__u64 check; /* A second hash of the same: else they are others. */
	__u64 count;
	__u64 ns;
	__u64 slow;
	__u64 slow_ns;
};

/* A group: the name of a task or a device, or the number of a CPU. */
struct spans_group {
	char name[SPANS_GROUP_NAME];
};

/* What a CPU has counted since the programs were loaded. */
struct spans_counts {
	__u64 seen[SPANS_EVENTS];
	__u64 begun;
	__u64 ended;
	__u64 again;	 /* Begun again before the end. */
	__u64 no_room;	 /* For what began. */
	__u64 too_deep;	 /* Calls nested too deep to be distinguished. */
	__u64 not_begun; /* Last events of what had not begun. */
	__u64 between;	 /* Events between of what had not begun. */
	__u64 out_of_order;
	__u64 no_key;	   /* The key could not be read. */
	__u64 lost_stacks; /* The stack is not known: the time is. */
	__u64 lost_groups;
	__u64 cut; /* Stacks deeper than is read. */
	__u64 processes_dropped;
	__u64 run_ns; /* Of these programs; see samples.h. */
};

/* What this process sets while the programs run. */
struct spans_turn {
	/*
	 * Whether events count. Programs are attached and detached one after the
	 * other, which takes tens of milliseconds where probes are: in between,
	 * what begins would have no end.
	 */
	__u64 open;
	__u64 half;    /* Which of two halves is written to. */
	__u64 slow_ns; /* What takes longer is slow. */
};

#endif
