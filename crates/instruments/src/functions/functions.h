/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the programs in this folder and their Rust half share: layout.rs is made
 * of these structs and numbers.
 */
#ifndef NETPLUMB_FUNCTIONS_H
#define NETPLUMB_FUNCTIONS_H

/* Frames of a stack, the first one its root's. With them a stack is 1024 bytes. */
#define FUNCTIONS_FRAMES 63
/* Softirqs and interrupts that one CPU can have under way, each in the other. */
#define FUNCTIONS_LEVELS 4
/* As in model::span::Buckets. */
#define FUNCTIONS_BUCKETS 512

/*
 * Numbers that stand in the programs' templates and that the loader replaces,
 * for each function or each machine: see PATCHED_*() in runtime.h.
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

/* What FUNCTIONS_MAGIC_ABOUT says of a function: what its argument is... */
#define FUNCTIONS_TAKES_SKB 1
#define FUNCTIONS_TAKES_SOCK 2
#define FUNCTIONS_TAKES_SOCKET 3
#define FUNCTIONS_TAKES_MASK 3
/* ... and, from bit 4, what it does with a packet: a direction, or 0. */
#define FUNCTIONS_HINT_SHIFT 4

/*
 * A cookie of a function that shares its program with others: its number, what
 * FUNCTIONS_MAGIC_ABOUT says of it, and which argument that is.
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

/* A class: protocol << 3 | direction. There are so many. */
#define FUNCTIONS_CLASSES 32
/* Set in a class that has been decided. */
#define FUNCTIONS_DECIDED 0x80

/*
 * Set in a node's hint if it was first called within an RCU read section, where
 * RCU is preemptible: the ends of the probes' own sections cost less there.
 */
#define FUNCTIONS_NESTED 0x100

/* Nodes that are there from the beginning. */
#define FUNCTIONS_NODE_IGNORED 1
#define FUNCTIONS_NODE_LOST 2
#define FUNCTIONS_NODE_TASK 3
#define FUNCTIONS_NODE_OTHER_TASK 4
#define FUNCTIONS_NODE_HARDIRQ 5
#define FUNCTIONS_NODE_SOFTIRQ 6
#define FUNCTIONS_NODES_FIXED 16

/* In `children`: whether a packet may decide the class has to be looked at. */
#define FUNCTIONS_UNDECIDED 0x80000000u

/* What can be lost, by index into functions_cpu.lost. */
enum functions_loss {
	/* Calls deeper than a stack has frames. */
	FUNCTIONS_LOST_DEPTH,
	/* Calling contexts that the tree had no room for. */
	FUNCTIONS_LOST_NODES,
	/* Frames dropped since the exits of their functions were not seen. */
	FUNCTIONS_LOST_UNMATCHED,
	/* Exits without an entry. */
	FUNCTIONS_LOST_ORPHANS,
	/* Tasks that were switched out with no stack left, or no room to keep it. */
	FUNCTIONS_LOST_STACKS,
	/* Softirqs and interrupts nested deeper than FUNCTIONS_LEVELS. */
	FUNCTIONS_LOST_LEVELS,
	/* Softirqs and interrupts whose end was not seen. */
	FUNCTIONS_LOST_BOUNDARIES,
	/* Times that an interruption between two readings made negative. */
	FUNCTIONS_LOST_RACES,
	/* Steps of packets that the ring had no room for. */
	FUNCTIONS_LOST_STEPS,
	/* Questions, see lookup.h, in the midst of another. */
	FUNCTIONS_LOST_QUESTIONS,
	FUNCTIONS_LOSSES = 16,
};

struct functions_frame {
	/* When it began, less what had been stolen from its stack by then. */
	__u64 begin_ns;
	/* Its node and, in the upper half, its function. */
	__u64 where;
};

/* Calls under way, in one task or one softirq or interrupt. */
struct functions_stack {
	/* Index of the innermost. */
	__u64 depth;
	/* Time that something else had the CPU, or that the probes' slow ways took. */
	__u64 stolen_ns;
	struct functions_frame frames[FUNCTIONS_FRAMES];
};

/* A stack that was left for a softirq or an interrupt. */
struct functions_saved {
	__u64 left_ns;
	__u64 stack;
};

struct functions_cpu {
	/* The stack that is being used. */
	__u32 current;
	/* Softirqs and interrupts under way. */
	__u32 level;
	/* Of softirqs, interrupts and switches, how many. */
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
	/* From the number of functions on: a class, which is no call. */
	__u32 function;
	/* 0 while none is decided. */
	__u32 class;
	/*
	 * Direction that a class is to have if it is decided below here, and
	 * FUNCTIONS_NESTED.
	 */
	__u32 hint;
};

/* What one CPU has seen of a node. Calls are the sum of the buckets. */
struct functions_cell {
	__u64 total_ns;
	__u64 max_ns;
	/* The complement of the shortest, so that 0 is none. */
	__u64 inverse_min_ns;
	__u64 interruptions;
	__u64 unused[4];
	__u64 buckets[FUNCTIONS_BUCKETS];
};

/* Of all CPUs. */
struct functions_state {
	__u32 next_node;
	__u32 max_nodes;
	/* What of a boundary's own hooks falls outside of their two readings. */
	__u64 outside_ns;
	/* Stacks of tasks that are switched out. */
	__u64 parked;
	/* Entries and exits still to be recorded for per-packet traces. */
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

/* Which packets are looked at: 0 or empty is all. */
struct functions_filter {
	/* Whether there is any. */
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
