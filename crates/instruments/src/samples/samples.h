/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the programs and the Rust half (sampler.rs) share.
 */
#ifndef NETPLUMB_SAMPLES_SAMPLES_H
#define NETPLUMB_SAMPLES_SAMPLES_H

#define SAMPLES_NAME 16 /* TASK_COMM_LEN */
#define SAMPLES_KEYS 16384
#define SAMPLES_RING_BYTES 16777216
#define SAMPLES_PROCESSES 16384
#define SAMPLES_ASLEEP 32768
/* Below each other, at most. */
#define SAMPLES_CGROUPS 32
/* Of each half of a stack: the default of kernel.perf_event_max_stack. */
#define SAMPLES_FRAMES 127
/* Stacks whose part that has to be copied is known. */
#define SAMPLES_SETTLED 65536
/* The most of a user stack that is copied to be unwound. */
#define SAMPLES_STACK_BYTES 16384
#define SAMPLES_PIECE_BYTES 1024
/* Of the stack of who wakes a task: where it is, not how it got there. */
#define SAMPLES_WAKER_FRAMES 24

/* tgid: the idle task's, and any task's of another namespace of pids. */
#define SAMPLES_IDLE 0
#define SAMPLES_FOREIGN 0xffffffff

/* Whose user stacks are taken, and how. */
enum samples_user {
	SAMPLES_USER_NONE,
	SAMPLES_USER_FRAME_POINTERS,
	/* By frame pointers, and copied unless these are known to hold. */
	SAMPLES_USER_COPY,
};

/* Whose samples are taken. */
enum samples_scope {
	SAMPLES_SCOPE_ALL,
	SAMPLES_SCOPE_PROCESS,	/* With those that it makes. */
	SAMPLES_SCOPE_CHILDREN, /* Of the process, not itself, from exec on. */
	SAMPLES_SCOPE_CGROUP,
};

struct samples_config {
	/* The namespace of pids of who asks. */
	__u64 pidns_dev;
	__u64 pidns_inode;
	__u64 cgroup;
	__u32 scope;
	__u32 tgid;
	__u32 user;
	__u32 times;	   /* Whether each sample is reported with its time. */
	__u32 frames;	   /* The most of each half of a stack. */
	__u32 stack_bytes; /* The most of a user stack that is copied. */
};

/* What is in the ring. */
enum samples_kind {
	SAMPLES_KIND_STACK = 1,
	SAMPLES_KIND_TIME,
	SAMPLES_KIND_COPY,
	SAMPLES_KIND_WAIT,
	SAMPLES_KIND_CROSSED,
	SAMPLES_KIND_COPY_OF_WAIT,
	SAMPLES_KIND_WAITED,
};

/* Why a task was off the CPU. */
enum samples_reason {
	SAMPLES_REASON_PREEMPTED = 1,
	SAMPLES_REASON_SLEEP,
	SAMPLES_REASON_IO,
	SAMPLES_REASON_BLOCKED, /* Uninterruptible, and not for I/O. */
};

/*
 * Who was on the CPU and where: what samples with the same hash share. The
 * frames follow, `kernel` of them and `user` of them.
 */
struct samples_stack {
	__u32 kind;
	__u32 tgid;
	__u64 hash;
	__u64 time_ns;
	__u32 tid;
	__u16 kernel;
	__u16 user;
	__u32 in_user; /* Whether it was user code that was interrupted. */
	__u32 unused;
	char name[SAMPLES_NAME];
};

/* A copy of the user stack of a sample, or of a wait; its bytes follow. */
struct samples_user_stack {
	__u32 kind;
	__u32 tid;
	__u64 hash; /* Of its sample, or of the stack that waits. */
	__u64 time_ns;
	__u64 ip;
	__u64 sp;
	__u64 fp;   /* The frame pointer. */
	__u64 lr;   /* The register that calls leave the return address in. */
	__u64 from; /* The address of the first byte. */
	__u64 bytes;
};

/* A single sample. */
struct samples_time {
	__u32 kind;
	__u32 tid;
	__u64 hash;
	__u64 time_ns;
	__u32 cpu;
	__u32 unused;
};

/* Of a process in the map of those that are sampled. */
enum samples_state {
	SAMPLES_STATE_SAMPLED = 1,
	SAMPLES_STATE_BEFORE_EXEC,
};

/* Why and for whom tasks waited that were off the CPU at the same stack. */
struct samples_wait {
	__u32 kind;
	__u32 reason;
	__u64 hash;  /* Of this. */
	__u64 stack; /* The stack's hash. */
	__u64 waker; /* The waker's; 0 if nobody woke it. */
};

/*
 * A wait from before the beginning of a window until after it. Who reads may
 * have seen it in the map of those asleep, or come too late for that.
 */
struct samples_crossed {
	__u32 kind;
	__u32 reason;
	__u64 stack;
	__u64 waker;
	__u64 begin_ns;
	__u64 window_ns;
	__u32 tid;
	__u32 unused;
};

/* A wait whose stack was copied: it is not counted with others. */
struct samples_waited {
	__u32 kind;
	__u32 reason;
	__u64 stack;
	__u64 waker;
	__u64 begin_ns;
	__u64 ns;   /* Of the window that it ended in. */
	__u64 turn; /* In which it ended. */
	__u32 tid;
	__u32 unused;
};

/* How often, by hash. */
struct samples_known {
	__u64 check; /* A second hash of the same: else they are others. */
	__u64 count;
	__u64 ns; /* Of time off the CPU. */
};

/* A task that is off the CPU. */
struct samples_asleep {
	__u64 begin_ns;
	__u64 hash;
	__u64 check;
	__u64 waker;
	__u32 reason;
	__u32 copied; /* Whether its user stack was. */
};

/* What the programs count, since they were loaded. */
struct samples_counts {
	__u64 ticks; /* Of the clock, whatever ran. */
	__u64 taken;
	__u64 lost_map;
	__u64 lost_ring;
	__u64 collided;
	__u64 without_time;
	__u64 cut; /* Stacks deeper than is read. */
	__u64 waits_begun;
	__u64 waits_ended;
	__u64 waits_dropped; /* That there was no room for. */
	__u64 copies_lost;
	__u64 processes_dropped;
};

/* What this process sets while the programs run. */
struct samples_turn {
	__u64 map;	 /* Which of the two maps is written to. */
	__u64 window_ns; /* When the window began. */
};

#endif
