/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Declarations shared by the programs in this directory and user space:
 * layout.rs is generated from them.
 */
#ifndef NETPLUMB_FUNCTIONS_H
#define NETPLUMB_FUNCTIONS_H

/* Frames of a stack, the first one its root's. With them a stack is 1024 bytes. */
#define FUNCTIONS_FRAMES 63
/* Maximum nesting of softirqs and interrupts on a CPU. */
#define FUNCTIONS_LEVELS 4
/* As in model::span::Buckets. */
#define FUNCTIONS_BUCKETS 512

/*
 * Placeholders in the program templates that the loader replaces, for each
 * function or each machine: see PATCHED_*() in runtime.h.
 */
#define FUNCTIONS_MAGIC_FUNCTION 0x5eed0001
#define FUNCTIONS_MAGIC_ABOUT 0x5eed0002
#define FUNCTIONS_MAGIC_CPU_MASK 0x5eed0003
#define FUNCTIONS_MAGIC_STACK_MASK 0x5eed0004
#define FUNCTIONS_MAGIC_ROW_SHIFT 0x5eed0005
#define FUNCTIONS_MAGIC_CHILD_MASK 0x5eed0006
#define FUNCTIONS_MAGIC_CELL_SHIFT 0x5eed0007
#define FUNCTIONS_MAGIC_CELL_MASK 0x5eed0008
#define FUNCTIONS_MAGIC_NODE_MASK 0x5eed0009
#define FUNCTIONS_MAGIC_CLASSES_FROM 0x5eed000a
/* The offset of an argument in the program's context, a multiple of 8. */
#define FUNCTIONS_MAGIC_ARGUMENT 0x7a0

/* FUNCTIONS_MAGIC_ABOUT of a function: the type of its argument... */
#define FUNCTIONS_TAKES_SKB 1
#define FUNCTIONS_TAKES_SOCK 2
#define FUNCTIONS_TAKES_SOCKET 3
#define FUNCTIONS_TAKES_MASK 3
/* ... and, from bit 4, what it does with a packet: a direction, or 0. */
#define FUNCTIONS_HINT_SHIFT 4

/*
 * The cookie of a function in a shared program: its number, its
 * FUNCTIONS_MAGIC_ABOUT, and the number of the argument.
 */
#define FUNCTIONS_COOKIE_FUNCTION 0xffff
#define FUNCTIONS_COOKIE_ABOUT_SHIFT 16
#define FUNCTIONS_COOKIE_ARGUMENT_SHIFT 24

/* Directions. */
#define FUNCTIONS_OTHER 0
#define FUNCTIONS_TX 1
#define FUNCTIONS_RX 2
#define FUNCTIONS_FORWARD 3
#define FUNCTIONS_ECHO 4

/* Protocols. */
#define FUNCTIONS_NO_PROTO 0
#define FUNCTIONS_RAW 1
#define FUNCTIONS_UDP 2
#define FUNCTIONS_TCP 3

/* A class: protocol << 3 | direction. The number of classes. */
#define FUNCTIONS_CLASSES 32
/* Set in a class that was determined. */
#define FUNCTIONS_DECIDED 0x80

/*
 * Set in a node's hint if it was first called within an RCU read-side critical
 * section, if RCU is preemptible: leaving the probes' own sections costs less
 * there.
 */
#define FUNCTIONS_NESTED 0x100

/* Predefined nodes. */
#define FUNCTIONS_NODE_IGNORED 1
#define FUNCTIONS_NODE_LOST 2
#define FUNCTIONS_NODE_TASK 3
#define FUNCTIONS_NODE_OTHER_TASK 4
#define FUNCTIONS_NODE_HARDIRQ 5
#define FUNCTIONS_NODE_SOFTIRQ 6
#define FUNCTIONS_NODES_FIXED 16

/* In `children`: whether a packet may determine the class. */
#define FUNCTIONS_UNDECIDED 0x80000000u

/* Kinds of losses: indices of functions_cpu.lost. */
enum functions_loss {
	/* Calls nested deeper than the frames of a stack. */
	FUNCTIONS_LOST_DEPTH,
	/* Calling contexts beyond the size of the tree. */
	FUNCTIONS_LOST_NODES,
	/* Frames dropped because the exits of their functions were not seen. */
	FUNCTIONS_LOST_UNMATCHED,
	/* Exits without an entry. */
	FUNCTIONS_LOST_ORPHANS,
	/*
	 * Tasks switched out without a free stack, or without room to keep it.
	 */
	FUNCTIONS_LOST_STACKS,
	/* Softirqs and interrupts nested deeper than FUNCTIONS_LEVELS. */
	FUNCTIONS_LOST_LEVELS,
	/* Softirqs and interrupts whose end was not seen. */
	FUNCTIONS_LOST_BOUNDARIES,
	/*
	 * Times that were negative because of an interruption between two
	 * readings.
	 */
	FUNCTIONS_LOST_RACES,
	/* Steps of per-packet traces without room in the ring. */
	FUNCTIONS_LOST_STEPS,
	/* Nested lookups of exits, see lookup.h. */
	FUNCTIONS_LOST_QUESTIONS,
	FUNCTIONS_LOSSES = 16,
};

struct functions_frame {
	/* Start time, minus the stolen time of its stack at that time. */
	__u64 begin_ns;
	/* Its node and, in the upper half, its function. */
	__u64 where;
};

/* The stack of calls of a task, a softirq or an interrupt. */
struct functions_stack {
	/* Index of the innermost frame. */
	__u64 depth;
	/* Stolen time: interruptions, and the slow paths of probes. */
	__u64 stolen_ns;
	struct functions_frame frames[FUNCTIONS_FRAMES];
};

/* A stack interrupted by a softirq or an interrupt. */
struct functions_saved {
	__u64 left_ns;
	__u64 stack;
};

struct functions_cpu {
	/* The current stack. */
	__u32 current;
	/* Current nesting of softirqs and interrupts. */
	__u32 level;
	/* Number of softirqs, interrupts and task switches. */
	__u64 boundaries;
	struct functions_saved saved[FUNCTIONS_LEVELS];
	__u64 lost[FUNCTIONS_LOSSES];
	__u64 unused[6];
};

/* A task's stack, while it is switched out. */
struct functions_parked {
	__u64 left_ns;
	__u64 stack;
};

/* A function in one calling context. */
struct functions_node {
	__u32 parent;
	/* From the number of functions on: a class, not a call. */
	__u32 function;
	/* 0 if not determined. */
	__u32 class;
	/*
	 * The direction of a class that is determined below here, and
	 * FUNCTIONS_NESTED.
	 */
	__u32 hint;
};

/* Times of a node on a CPU. The number of calls is the sum of the buckets. */
struct functions_cell {
	__u64 total_ns;
	__u64 max_ns;
	/* The complement of the minimum, so that 0 means none. */
	__u64 inverse_min_ns;
	__u64 interruptions;
	__u64 unused[4];
	__u64 buckets[FUNCTIONS_BUCKETS];
};

/* Shared by all CPUs. */
struct functions_state {
	__u32 next_node;
	__u32 max_nodes;
	/* The cost of a boundary's hooks outside of their two readings. */
	__u64 outside_ns;
	/* Stacks of tasks that are switched out. */
	__u64 parked;
	/* Number of entries and exits left to record for per-packet traces. */
	__u64 telling;
};

/* One entry or exit of a per-packet trace. */
struct functions_step {
	__u64 at_ns;
	__u32 stack;
	__u32 depth;
	__u32 node;
	__u32 cpu;
	__u32 thread;
	/* 0 for an entry. */
	__u32 is_exit;
	char command[16];
};

/* The filter: 0 or empty fields match all. */
struct functions_filter {
	/* Whether there is a filter. */
	__u32 active;
	/* Bits, by FUNCTIONS_RAW and so on. */
	__u32 protos;
	/* 4 or 6. */
	__u32 family;
	__u32 port;
	/* 4, 6, or 0 for none. */
	__u32 address_family;
	__u8 address[16];
	__u32 interface;
	__u32 namespaces;
	__u32 namespace_inodes[8];
	__u32 pid;
	__u64 cgroup;
};

#endif
