/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * State: packets under way, tasks, histograms, counters.
 *
 * Packets and tasks are in arrays with our own hashing, with two slots for
 * each: a lookup takes a few instructions, while a hash map needs a call.
 * Displaced entries are counted.
 */
#ifndef NETPLUMB_STAGES_TABLES_H
#define NETPLUMB_STAGES_TABLES_H

#include "kernel/sock.h"
#include "kernel/task.h"
#include "own.h"
#include "packet.h"
#include "stages.h"
#include "times.h"

#define SECOND_NS 1000000000ULL

struct stages_window window SEC(".data.window") = {};
/*
 * The half of `times` that is written to: the other one is read meanwhile, so
 * no packet is lost between two windows. Written only by user space.
 */
__u64 half SEC(".data.half") = 0;
/* Set after a packet was passed to a device that frees it later. */
int hardware_seen = 0;
/* Set after a UDP reader was seen to free a packet. */
int udp_frees_seen = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STAGES_SLOTS);
	__type(key, __u32);
	__type(value, struct stages_packet);
} tx SEC(".maps"), rx SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STAGES_TASKS);
	__type(key, __u32);
	__type(value, struct stages_task);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stages_cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2 * STAGES_KEYS);
	__type(key, __u32);
	__type(value, struct stages_times);
} times SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STAGES_SOCKETS);
	__type(key, __u32);
	__type(value, struct stages_socket);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STAGES_SLOTS);
	__type(key, __u32);
	__type(value, struct stages_queued);
} queue SEC(".maps");

/* Addresses of packets that a virtual device passed on. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STAGES_SLOTS);
	__type(key, __u32);
	__type(value, __u64);
} passed_on SEC(".maps");

/* Drop reasons by protocol. */
#define STAGES_DROPS (STAGES_REASONS * STAGES_PROTOS)

/*
 * By protocol, in the upper half, and reason, in the lower half, since losses
 * of protocols are separate.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, STAGES_DROPS);
	__type(key, __u64);
	__type(value, __u64);
} drops SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stages_traced);
} traced SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, STAGES_RING);
} ring SEC(".maps");

static __always_inline struct stages_cpu *this_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&cpus, &zero);
}

/* Called at the start of every program; NULL while no window is open. */
static __always_inline struct stages_cpu *begin(void *ctx)
{
	struct stages_cpu *c;

	if (!window.active)
		return NULL;
	c = this_cpu();
	if (!c)
		return NULL;
	*(volatile __u64 *)&c->context = (__u64)ctx;
	own_begin(c);
	if (c->stretch != window.stretch) {
		/* State from before the pause is invalid. */
		c->stretch = window.stretch;
		c->current_head = 0;
		c->gro_head = 0;
		c->segments_left = 0;
		c->softirq_over = 0;
		c->depth = 0;
		c->driving[0].skb = 0;
	}
	return c;
}

/*
 * A program on a tracepoint: HOOK(tracepoint, arguments...) { ... }, with `c`,
 * the state of the CPU. It is not run while no window is open.
 */
#define HOOK(name, args...)                                                    \
	static __always_inline void on_##name(                                 \
		struct stages_cpu *c, unsigned long long *ctx, ##args);        \
	SEC("tp_btf/" #name)                                                   \
	int stages_##name(unsigned long long *ctx)                             \
	{                                                                      \
		struct stages_cpu *c = begin(ctx);                             \
		__u64 hits;                                                    \
                                                                               \
		if (!c)                                                        \
			return 0;                                              \
		hits = c->hits;                                                \
		_Pragma("GCC diagnostic push")                                 \
			_Pragma("GCC diagnostic ignored \"-Wint-conversion\"") \
				on_##name(c, ___bpf_ctx_cast(args));           \
		_Pragma("GCC diagnostic pop") own_end(c, hits);                \
		return 0;                                                      \
	}                                                                      \
	static __always_inline void on_##name(struct stages_cpu *c,            \
					      unsigned long long *ctx, ##args)

/*
 * A kernel pointer as a number. The verifier follows pointers through
 * arithmetic, from 6.18 on those to bytes too, but not through a map.
 */
static __always_inline __u64 number(struct stages_cpu *c, const void *pointer)
{
	*(volatile __u64 *)&c->number = (__u64)pointer;
	return *(volatile __u64 *)&c->number;
}

/*
 * Whether it is the task itself, and no softirq or interrupt. A softirq that
 * interrupted user mode is on the task's stack, which was empty.
 */
static __always_inline int in_task(struct stages_cpu *c)
{
	if (c->softirq_over && c->softirq_over == bpf_get_current_task())
		return 0;
	return on_task_stack(*(volatile __u64 *)&c->context);
}

static __always_inline void count(struct stages_cpu *c, __u32 proto,
				  __u32 place, __u64 n)
{
	if (window.aside)
		proto = STAGES_ASIDE;
	/* Masks, not comparisons, keep old compilers from moving them away. */
	c->places[proto & 3][place & 31] += n;
}

static __always_inline __u32 slot_of(__u64 head)
{
	return (head >> 6) * 0x9e3779b97f4a7c15ULL >> (64 - STAGES_SLOTS_BITS);
}

/* It was seen before a pause. */
static __always_inline int is_old(const struct stages_packet *p)
{
	return p->stretch != (__u16)window.stretch;
}

/* Find the packet's slot; `where` is set to its index. */
static __always_inline struct stages_packet *find(void *table, __u64 head,
						  __u32 *where)
{
	__u32 i = slot_of(head);
	struct stages_packet *p = bpf_map_lookup_elem(table, &i);

	if (p && p->head == head && !is_old(p)) {
		*where = i;
		return p;
	}
	i ^= 1;
	p = bpf_map_lookup_elem(table, &i);
	if (p && p->head == head && !is_old(p)) {
		*where = i;
		return p;
	}
	return NULL;
}

/* A cleared slot for the packet, reusing one if necessary. */
static __always_inline struct stages_packet *
claim(void *table, struct stages_cpu *c, __u64 head, __u64 now, __u32 *where)
{
	__u32 i = slot_of(head), other = i ^ 1;
	struct stages_packet *p, *q;

	p = bpf_map_lookup_elem(table, &i);
	q = bpf_map_lookup_elem(table, &other);
	if (!p || !q)
		return NULL;
	*where = i;
	if (p->head != head && p->head) {
		if (q->head == head || !q->head) {
			*where = other;
			p = q;
		} else if (!is_old(p) &&
			   now - p->at[STAGES_AT_FIRST] < SECOND_NS) {
			c->losses[STAGES_L_DISPLACED]++;
		}
	} else if (q->head == head) {
		q->head = 0;
	}
	__builtin_memset(p, 0, sizeof(*p));
	p->head = head;
	p->stretch = window.stretch;
	return p;
}

/* The packet was sent, and will be received by another device. */
static __always_inline void pass_on(__u64 head)
{
	__u32 i = slot_of(head);
	__u64 *slot;

	slot = bpf_map_lookup_elem(&passed_on, &i);
	if (slot)
		*slot = head;
}

/* Whether it was sent this way. */
static __always_inline int was_passed_on(__u64 head)
{
	__u32 i = slot_of(head);
	__u64 *slot;

	if (!config.has_pauses)
		return 0;
	slot = bpf_map_lookup_elem(&passed_on, &i);
	if (!slot || *slot != head)
		return 0;
	*slot = 0;
	return 1;
}

/* Whether to follow a packet that was not seen before. */
static __always_inline int admits_strangers(__u64 now)
{
	return window.admits && now >= window.settled_ns;
}

/* A packet that is not followed reuses the address of one that was. */
static __always_inline void forget(void *table, __u64 head)
{
	struct stages_packet *p;
	__u32 where;

	p = find(table, head, &where);
	if (p)
		p->head = 0;
}

static __always_inline struct stages_task *task_of(__u32 tid)
{
	__u32 i = tid & (STAGES_TASKS - 1);
	struct stages_task *t = bpf_map_lookup_elem(&tasks, &i);

	return t && t->tid == tid ? t : NULL;
}

/* The first key of the half; read once for all rows of a packet. */
static __always_inline __u32 this_half(void)
{
	return (half & 1) * STAGES_KEYS;
}

/* Where the last row ended: when, and at which point. */
struct cursor {
	__u64 ns;
	__u32 at;
	/* What is taken of rows: own time, or times. */
	__u32 own;
};

static __always_inline void record(__u32 in, __u32 row,
				   const struct stages_packet *p, __u64 ns)
{
	__u32 class = window.aside ? STAGES_ASIDE : p->proto;
	__u32 key = in + (row * STAGES_CLASSES + class) * 2 + p->family;
	struct stages_times *t = bpf_map_lookup_elem(&times, &key);

	if (t)
		ADD_TIME(t, ns);
}

/*
 * The packet reached `point` at `at`: the time since `*cursor` belongs to the
 * row. So rows add up to the total, whichever of them a packet passes.
 */
static __always_inline void mark(__u32 in, __u32 row,
				 const struct stages_packet *p,
				 struct cursor *cursor, __u64 at, __u32 point)
{
	if (!at || at < cursor->ns)
		return;
	if (!cursor->own)
		record(in, row, p, at - cursor->ns);
	else if (!window.aside)
		owe(p->sample,
		    (row * STAGES_CLASSES + p->proto) * 2 + p->family,
		    cursor->at, point);
	cursor->ns = at;
	cursor->at = point;
}

/* The same of a point whose time is kept with the packet. */
static __always_inline void mark_at(__u32 in, __u32 row,
				    const struct stages_packet *p,
				    struct cursor *cursor, __u32 point)
{
	mark(in, row, p, cursor, p->at[point], point);
}

static __always_inline void step(__u32 id, __u32 event, __u64 now)
{
	struct stages_cpu *c = this_cpu();
	struct stages_step *s;

	if (!c)
		return;
	s = bpf_ringbuf_reserve(&ring, sizeof(*s), 0);
	if (!s) {
		c->losses[STAGES_L_RING]++;
		return;
	}
	s->at_ns = now;
	s->packet = id;
	s->event = event;
	s->cpu = bpf_get_smp_processor_id();
	s->tid = bpf_get_current_pid_tgid();
	s->in_task = in_task(c);
	s->softirq = c->softirq;
	bpf_get_current_comm(s->command, sizeof(s->command));
	bpf_ringbuf_submit(s, 0);
}

/* Record a step of the packet, if it is traced. */
static __always_inline void tell(const struct stages_packet *p, __u32 event,
				 __u64 now)
{
	if (config.one_packet && p->traced)
		step(p->traced, event, now);
}

/*
 * Whether to trace a new packet. One that was just sent, and is received now,
 * continues with its number.
 */
static __always_inline void choose(struct stages_packet *p, int received,
				   __u64 now)
{
	struct stages_traced *t;
	__u32 zero = 0;

	if (!config.one_packet)
		return;
	t = bpf_map_lookup_elem(&traced, &zero);
	if (!t)
		return;
	if (received && t->head == p->head && now - t->begun_ns < SECOND_NS) {
		p->traced = t->id;
		return;
	}
	/* One at a time; another one after some time. */
	if (t->next >= config.one_packet ||
	    (t->head && now - t->begun_ns < SECOND_NS / 10))
		return;
	t->head = p->head;
	t->begun_ns = now;
	t->id = ++t->next;
	p->traced = t->id;
}

/* The packet's path has ended: the next one may be traced. */
static __always_inline void traced_out(const struct stages_packet *p)
{
	struct stages_traced *t;
	__u32 zero = 0;

	if (!config.one_packet || !p->traced)
		return;
	t = bpf_map_lookup_elem(&traced, &zero);
	if (t && t->id == p->traced)
		t->head = 0;
}

#endif
