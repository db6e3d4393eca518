/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Declarations shared by the programs and user space: layout.rs is generated
 * from them.
 */
#ifndef NETPLUMB_STAGES_H
#define NETPLUMB_STAGES_H

/* Maximum number of packets under way, by direction. A power of two. */
#define STAGES_SLOTS_BITS 15
#define STAGES_SLOTS (1 << STAGES_SLOTS_BITS)
/* Maximum number of tasks whose last system call is kept. A power of two. */
#define STAGES_TASKS 16384
/* As in crates/model/src/span.rs. */
#define STAGES_BUCKETS 512
/* Maximum number of sockets whose queues are followed. A power of two. */
#define STAGES_SOCKETS 1024
/* Maximum number of namespaces in a filter. */
#define STAGES_NAMESPACES 8
/* Maximum depth of stacked devices, on one CPU. */
#define STAGES_DEPTH 4
/* System call numbers that are checked. */
#define STAGES_CALLS 512
/* Maximum number of packets of a bulk dequeue that are followed. */
#define STAGES_BULK 16
/* Drop reasons that are counted separately. */
#define STAGES_REASONS 256
/*
 * Runs of programs on a CPU; the first ones are timed. A power of two.
 */
#define STAGES_OWN_EVERY 512
#define STAGES_OWN_BLOCK 32
/* No run takes so long, unless it is interrupted. */
#define STAGES_OWN_MOST_NS 10000
/* Packets whose own time is taken: 32 of each of 64 CPUs. */
#define STAGES_SAMPLES 2048
/* Bytes of the ring for per-packet traces. */
#define STAGES_RING (1 << 18)

enum stages_proto {
	STAGES_RAW,
	STAGES_UDP,
	STAGES_TCP,
	STAGES_PROTOS,
	/* Packets that are only processed to measure the cost. */
	STAGES_ASIDE = STAGES_PROTOS,
	STAGES_CLASSES,
};

enum stages_direction {
	STAGES_TX,
	STAGES_RX,
	STAGES_FORWARD,
	STAGES_DIRECTIONS,
};

/* Rows of the table of stages, for all directions. */
enum stages_stage {
	STAGES_T_CALL,
	STAGES_T_ENQUEUE,
	STAGES_T_QDISC,
	STAGES_T_DEVICE,
	STAGES_T_DRIVER,
	STAGES_T_UNACCOUNTED,
	STAGES_T_TOTAL,
	STAGES_T_COMPLETION,

	STAGES_R_BACKLOG,
	STAGES_R_GRO,
	STAGES_R_PROTOCOL,
	STAGES_R_LOCK,
	STAGES_R_WAKE,
	STAGES_R_QUEUE,
	STAGES_R_READ,
	STAGES_R_RETURN,
	STAGES_R_UNACCOUNTED,
	STAGES_R_TOTAL,

	STAGES_F_BACKLOG,
	STAGES_F_GRO,
	STAGES_F_FORWARD,
	STAGES_F_ENQUEUE,
	STAGES_F_QDISC,
	STAGES_F_DEVICE,
	STAGES_F_DRIVER,
	STAGES_F_UNACCOUNTED,
	STAGES_F_TOTAL,
	STAGES_F_COMPLETION,

	STAGES_ROWS,
};

/* Entries of the table of stages. */
#define STAGES_KEYS (STAGES_ROWS * STAGES_CLASSES * 2)

/* Timestamps of a packet: indices of `at`. */
enum stages_point {
	/* Both directions. */
	STAGES_AT_FIRST = 0,
	/* Transmit, and the second half of forwarding. */
	STAGES_AT_RECEIVED = 1,
	STAGES_AT_QUEUE = 2,
	STAGES_AT_ENQUEUED = 3,
	STAGES_AT_DEQUEUED = 4,
	STAGES_AT_START = 5,
	STAGES_AT_SENT = 6,
	/* Receive. */
	STAGES_AT_OWNER = 2,
	STAGES_AT_SOCKET = 3,
	STAGES_AT_COPY = 4,
	STAGES_POINTS = 7,
	/* Of the reader, which are not kept with the packet. */
	STAGES_AT_ENTER = 8,
	STAGES_AT_RUN = 9,
	STAGES_AT_RETURN = 10,
	/* Any other. */
	STAGES_AT_NONE = 15,
	STAGES_NOTES = 16,
};

/* The event at the start or end of a step of a per-packet trace. */
enum stages_event {
	STAGES_SAW_CALL,
	STAGES_SAW_QUEUE,
	STAGES_SAW_ENQUEUED,
	STAGES_SAW_DEQUEUED,
	STAGES_SAW_START,
	STAGES_SAW_SENT,
	STAGES_SAW_FREED,
	STAGES_SAW_NETIF_RX,
	STAGES_SAW_GRO,
	STAGES_SAW_RECEIVE,
	STAGES_SAW_OWNER,
	STAGES_SAW_SOCKET,
	STAGES_SAW_COPY,
	STAGES_SAW_RETURN,
	STAGES_SAW_DROP,
	STAGES_EVENTS,
};

/* Where packets are counted. */
enum stages_place {
	STAGES_P_TX_QUEUE,
	STAGES_P_TX_START,
	STAGES_P_TX_SENT,
	STAGES_P_TX_DROP,
	STAGES_P_TX_DROP_EARLY,
	STAGES_P_TX_KERNEL,
	STAGES_P_TX_NO_DATA,
	STAGES_P_RX_DRIVER,
	STAGES_P_RX_MERGED,
	STAGES_P_RX_RECEIVE,
	STAGES_P_RX_NO_DATA,
	STAGES_P_RX_SOCKET,
	STAGES_P_RX_USER,
	STAGES_P_RX_DROP,
	STAGES_P_RX_KERNEL,
	STAGES_P_RX_OTHER,
	STAGES_P_FORWARD_QUEUE,
	STAGES_P_FORWARD_START,
	STAGES_P_FORWARD_SENT,
	STAGES_P_FORWARD_DROP,
	STAGES_P_TX_BYTES,
	STAGES_P_RX_BYTES,
	STAGES_P_USER_BYTES,
	STAGES_P_BEFORE,
	STAGES_PLACES,
};

/* Kinds of losses. */
enum stages_loss {
	/* A slot was reused from a packet that may have been under way. */
	STAGES_L_DISPLACED,
	/* A slot changed while it was being read. */
	STAGES_L_TORN,
	/* A packet was read and could not be identified. */
	STAGES_L_UNMATCHED,
	/* Devices nested too deep. */
	STAGES_L_NESTED,
	/* The ring had no room for a step. */
	STAGES_L_RING,
	STAGES_LOSSES,
};

/* Settings, fixed when the programs are loaded. */
struct stages_config {
	/* Whether there is a filter. */
	__u32 protos;	   /* bit by enum stages_proto; 0 is all */
	__u32 family;	   /* 0, 4 or 6 */
	__u32 port;	   /* host order; 0 is all */
	__u32 interface;   /* 0 is all */
	__u32 pid;	   /* 0 is all */
	__u32 namespaces;  /* how many of the array are set */
	__u64 cgroup;	   /* 0 is all */
	__u32 has_address; /* 0, 4 or 6 */
	__u32 address[4];  /* network order */
	__u32 one_packet;
	/* Whether the kernel has sk_data_ready. */
	__u32 has_data_ready;
	__u32 namespace_inum[STAGES_NAMESPACES];
	/* Whether there are pauses, without attached programs. */
	__u32 has_pauses;
	/* A bit set by system call number. */
	__u64 sends[STAGES_CALLS / 64];
	__u64 receives[STAGES_CALLS / 64];
};

/* Written only by user space. */
struct stages_window {
	/* The start of the current interval of following packets. */
	__u64 opened_ns;
	__u64 active;
	/* Whether new packets are followed, or only those under way. */
	__u64 admits;
	/*
	 * The time from which received packets are followed that were not seen
	 * on transmit: earlier ones may have been sent in a pause.
	 */
	__u64 settled_ns;
	/*
	 * Count packets separately: they are only processed to measure the
	 * cost.
	 */
	__u64 aside;
	/* The interval's number, incremented after each pause; never 0. */
	__u64 stretch;
};

/* What is the programs' own of a CPU's time, at a moment. */
struct stages_note {
	/* The CPU and the block; 0 if it is not known. */
	__u32 where;
	__u32 own_ns;
	__u32 hits;
	__u32 unused;
};

/* A packet whose own time is taken. */
struct stages_sample {
	/* As it is in the packet. */
	__u32 id;
	__u32 unused;
	/* By enum stages_point. */
	struct stages_note at[STAGES_NOTES];
};

/* The programs' own time in a stage, since they were loaded. */
struct stages_own {
	/* Packets that it was taken of. */
	__u64 count;
	__u64 own_ns;
	/* Runs of programs. */
	__u64 hits;
};

/* A packet under way. */
struct stages_packet {
	/* Address of its data (skb->head); 0 if the slot is free. */
	__u64 head;
	__u64 at[STAGES_POINTS];
	__u32 traced;
	__u32 bytes;
	__u16 segs;
	__u8 proto;
	__u8 family;
	__u8 direction;
	__u8 flags;
	/* The interval in which it was seen. */
	__u16 stretch;
	/* Its sample; 0 for most. */
	__u32 sample;
	__u32 unused;
};

/* Flag: the first timestamp was taken at GRO, not at the backlog. */
#define STAGES_GRO 1
/* Flag: the hardware has it, and it will be freed. */
#define STAGES_IN_HARDWARE 2

/* A task in a system call, or after one. */
struct stages_task {
	__u32 tid;
	/* 0, or enum stages_call. */
	__u32 call;
	__u64 enter_ns;
	/* Start of the work on a packet: after the previous one was sent. */
	__u64 since_ns;
	/* When it was last switched out, and in. */
	__u64 out_ns;
	__u64 run_ns;
	/* What was the programs' own by these times. */
	struct stages_note enter;
	struct stages_note since;
	struct stages_note run;
	/* Address of the TCP packet that it copies from. */
	__u64 copying;
	/* Copied, but the call has not returned yet. */
	struct stages_packet pending;
};

enum stages_call {
	STAGES_SENDS = 1,
	STAGES_RECEIVES = 2,
};

/* A packet being transmitted by a driver. */
struct stages_driving {
	__u64 skb;
	__u64 head;
	__u32 slot;
	__u32 unused;
};

/* A socket whose readers free packets later, which is not seen. */
struct stages_socket {
	__u64 sock;
	/* The window in which it was seen. */
	__u64 opened_ns;
	/* Packets read. */
	__u64 read;
	/* The index of the next packet, counted like those read. */
	__u64 next;
	/*
	 * The index of the first followed packet, and the one after the last.
	 */
	__u64 first;
	__u64 end;
};

/* A packet in such a socket's queue. */
struct stages_queued {
	__u64 sock;
	__u64 place;
	/* A copy: its address may be reused when its reader is seen. */
	struct stages_packet packet;
};

/* State of a CPU. */
struct stages_cpu {
	/* The packet being received. */
	__u64 current_head;
	__u64 current_skb;
	__u32 current_slot;
	__u32 depth;
	/* The packet being processed by GRO. */
	__u64 gro_head;
	struct stages_driving driving[STAGES_DEPTH];
	/* A packet being segmented, and the number of remaining segments. */
	__u32 segments_left;
	/* The current or last softirq. */
	__u32 softirq;
	/* The task that a softirq has interrupted. */
	__u64 softirq_over;
	struct stages_packet parent;
	/* For on_task_stack(), and for number(). */
	__u64 context;
	__u64 number;
	/* Number of program runs that began, and that ended. */
	__u64 hits;
	__u64 ended;
	/* Of those that were timed: the last one's start, their sum, number. */
	__u64 begun_ns;
	__u64 own_ns;
	__u64 timed;
	/* Since when what is done is no other packet's, and a reading's cost. */
	__u64 apart_ns;
	__u64 clock_ns;
	/* The CPU and the block, while runs are timed; otherwise 0. */
	__u32 timing;
	__u32 block;
	/* Number of samples. */
	__u32 samples;
	__u32 unused;
	/* The interval of the above. */
	__u64 stretch;
	/* Counters, by enum stages_proto and enum stages_place. */
	__u64 places[4][32];
	__u64 losses[STAGES_LOSSES];
};

/* Like Times of the model. */
struct stages_times {
	__u64 count;
	__u64 total_ns;
	/* Undefined while `count` is 0. */
	__u64 min_ns;
	__u64 max_ns;
	__u64 buckets[STAGES_BUCKETS];
};

/* Which packets are traced. */
struct stages_traced {
	__u64 head;
	__u64 begun_ns;
	__u32 id;
	__u32 next;
};

/* A step of a per-packet trace. */
struct stages_step {
	__u64 at_ns;
	__u32 packet;
	__u32 event;
	__u32 cpu;
	__u32 tid;
	/* Whether it was in task context; otherwise in this softirq. */
	__u32 in_task;
	__u32 softirq;
	char command[16];
};

#endif
