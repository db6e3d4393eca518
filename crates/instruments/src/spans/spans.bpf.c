// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Time from one event to the next, of whatever the events are about.
 *
 * A table has what has begun, by a key: the pointer to a request or a packet,
 * a task, or a number. At the last event the time from each event to the next
 * one that was reached is added to a histogram of these two, so that the parts
 * add up to the whole, to the nanosecond, whichever events were passed over.
 */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "arch.h"
#include "kernel/block.h"
#include "kernel/net.h"
#include "kernel/skb.h"
#include "kernel/task.h"
#include "times.h"
#include "../samples/samples.h"
#include "spans.h"

/* include/uapi/asm-generic/errno-base.h */
#define EEXIST 17
/* As often another CPU may be first with the same key. */
#define BEGIN_TRIES 16

const volatile struct spans_config config = {};

#include "../samples/whose.h"
#include "../samples/stack.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SPANS_OPEN);
	__type(key, struct spans_place);
	__type(value, struct spans_begun);
} under_way SEC(".maps");

/* How many calls of a key are open. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SPANS_OPEN);
	__type(key, __u64);
	__type(value, __u64);
} depths SEC(".maps");

/* One half is read and emptied while the other is written to. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2 * SPANS_ROWS);
	__type(key, __u32);
	__type(value, struct spans_times);
} times SEC(".maps");

struct known {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SPANS_KEYS);
	__type(key, __u64);
	__type(value, struct spans_known);
};

struct known known_even SEC(".maps");
struct known known_odd SEC(".maps");

struct groups {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, SPANS_GROUPS);
	__type(key, struct spans_group);
	__type(value, struct spans_times);
};

struct groups groups_even SEC(".maps");
struct groups groups_odd SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, SPANS_RING_BYTES);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct spans_counts);
} counts SEC(".maps");

/* A new group begins as this: a distribution is too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct spans_times);
} nothing SEC(".maps");

struct spans_turn turn SEC(".data");

static __noinline int add(__u32 row, __u64 ns)
{
	struct spans_times *t = bpf_map_lookup_elem(&times, &row);

	if (t)
		ADD_TIME(t, ns);
	return 0;
}

static __noinline int add_group(const struct spans_group *name, __u32 half,
				__u64 ns)
{
	struct spans_times *t, *empty;
	__u32 first = 0;

	if (!name)
		return 0;
	t = half ? bpf_map_lookup_elem(&groups_odd, name)
		 : bpf_map_lookup_elem(&groups_even, name);
	if (!t) {
		empty = bpf_map_lookup_elem(&nothing, &first);
		if (!empty)
			return 0;
		if (half) {
			bpf_map_update_elem(&groups_odd, name, empty,
					    BPF_NOEXIST);
			t = bpf_map_lookup_elem(&groups_odd, name);
		} else {
			bpf_map_update_elem(&groups_even, name, empty,
					    BPF_NOEXIST);
			t = bpf_map_lookup_elem(&groups_even, name);
		}
		if (!t)
			return 1;
	}
	ADD_TIME(t, ns);
	return 0;
}

static __always_inline struct spans_known *lookup(__u64 *hash, __u32 half)
{
	if (half)
		return bpf_map_lookup_elem(&known_odd, hash);
	return bpf_map_lookup_elem(&known_even, hash);
}

static __always_inline int insert(__u64 *hash, __u32 half,
				  struct spans_known *new)
{
	if (half)
		return bpf_map_update_elem(&known_odd, hash, new, BPF_NOEXIST);
	return bpf_map_update_elem(&known_even, hash, new, BPF_NOEXIST);
}

/* The stack of who causes the first event, which goes to the ring once. */
static __always_inline void take_stack(void *ctx, struct spans_begun *new,
				       const struct bpf_pidns_info *ids,
				       __u64 now, struct spans_counts *c)
{
	struct spans_known empty = {};
	__u32 half = turn.half & 1, first = 0, bytes;
	struct scratch *to = bpf_map_lookup_elem(&scratches, &first);

	if (!to)
		return;
	bytes = fill(ctx, to, ids, 0, config.frames, 1, &new->check);
	to->stack.time_ns = now;
	if (to->stack.kernel >= config.frames ||
	    to->stack.user >= config.frames)
		c->cut++;
	if (bytes > sizeof(*to))
		return;
	new->hash = to->stack.hash;
	if (lookup(&new->hash, half))
		return;
	if (bpf_ringbuf_output(&ring, to, bytes, BPF_RB_NO_WAKEUP)) {
		c->lost_stacks++;
		new->hash = 0;
		return;
	}
	empty.check = new->check;
	/* Another CPU may be first; where there is no room, times are lost. */
	insert(&new->hash, half, &empty);
}

static __always_inline void add_stack(const struct spans_begun *was, __u32 half,
				      __u64 ns, struct spans_counts *c)
{
	struct spans_known new = {}, *known;
	__u64 hash = was->hash;

	if (!hash)
		return;
	known = lookup(&hash, half);
	if (!known) {
		/* It began before this half was written to. */
		new.check = was->check;
		insert(&hash, half, &new);
		known = lookup(&hash, half);
	}
	if (!known || known->check != was->check) {
		c->lost_stacks++;
		return;
	}
	__sync_fetch_and_add(&known->count, 1);
	__sync_fetch_and_add(&known->ns, ns);
	if (ns > turn.slow_ns) {
		__sync_fetch_and_add(&known->slow, 1);
		__sync_fetch_and_add(&known->slow_ns, ns);
	}
}

/* What times are broken down by, at the first event. */
static __always_inline void name_group(struct spans_begun *new, __u64 key)
{
	const char *name = NULL;

	switch (config.by) {
	case SPANS_BY_TASK:
		if (config.about_task)
			name = (void *)key +
			       bpf_core_field_offset(struct task_struct, comm);
		else if (bpf_get_current_pid_tgid())
			bpf_get_current_comm(new->group, SAMPLES_NAME);
		break;
	case SPANS_BY_CPU:
		*(__u32 *)new->group = bpf_get_smp_processor_id();
		return;
	case SPANS_BY_REQUEST: {
		struct request *rq = (void *)key;
		struct gendisk *disk = BPF_CORE_READ(rq, q, disk);

		if (disk)
			name = (void *)disk +
			       bpf_core_field_offset(disk->disk_name);
		break;
	}
	case SPANS_BY_BIO: {
		struct bio *bio = (void *)key;
		struct gendisk *disk = BPF_CORE_READ(bio, bi_bdev, bd_disk);

		if (disk)
			name = (void *)disk +
			       bpf_core_field_offset(disk->disk_name);
		break;
	}
	case SPANS_BY_SKB: {
		struct sk_buff *skb = (void *)key;
		struct net_device *dev = BPF_CORE_READ(skb, dev);

		if (dev)
			name = (void *)dev + bpf_core_field_offset(dev->name);
		break;
	}
	}
	if (name)
		bpf_probe_read_kernel_str(new->group, sizeof(new->group), name);
}

/* A call begins. Returns whether there is no room for how deep it is. */
static __always_inline _Bool enter(struct spans_place *at)
{
	__u64 *open = bpf_map_lookup_elem(&depths, &at->key), one = 1;

	if (!open)
		return bpf_map_update_elem(&depths, &at->key, &one, BPF_ANY);
	at->depth = (*open)++;
	return 0;
}

/* Where the innermost call that is open is. Returns whether there is one. */
static __always_inline _Bool innermost(struct spans_place *at)
{
	__u64 *open = bpf_map_lookup_elem(&depths, &at->key);

	if (!open)
		return 0;
	at->depth = *open - 1;
	return 1;
}

/* The innermost call ends. Returns whether there is one. */
static __always_inline _Bool leave(struct spans_place *at)
{
	__u64 *open = bpf_map_lookup_elem(&depths, &at->key);

	if (!open)
		return 0;
	at->depth = --*open;
	if (!at->depth)
		bpf_map_delete_elem(&depths, &at->key);
	return 1;
}

static __always_inline void begin(void *ctx, __u64 key, __u64 now,
				  struct spans_counts *c)
{
	struct spans_place at = { .key = key };
	struct spans_begun new = {};
	struct bpf_pidns_info ids = {};
	int full = 0, i;

	if (config.scope != SAMPLES_SCOPE_ALL || config.by == SPANS_BY_STACK)
		name_task(&ids);
	if (config.about_task ? !is_asked_of((void *)key) : !is_asked(&ids))
		return;
	c->begun++;
	if (config.nests) {
		if (enter(&at)) {
			c->no_room++;
			return;
		}
		if (at.depth >= SPANS_DEPTH) {
			c->too_deep++;
			return;
		}
	}
	new.times_ns[0] = now;
	new.reached = 1;
	if (config.by == SPANS_BY_STACK)
		take_stack(ctx, &new, &ids, now, c);
	else if (config.by)
		name_group(&new, key);
	/*
	 * Another CPU may begin or end the same key meanwhile: who deletes what had
	 * begun before counts it.
	 */
	for (i = 0; i < BEGIN_TRIES; i++) {
		full = bpf_map_update_elem(&under_way, &at, &new, BPF_NOEXIST);
		if (full != -EEXIST)
			break;
		if (!bpf_map_delete_elem(&under_way, &at))
			c->again++;
	}
	if (full)
		c->no_room++;
}

static __always_inline void pass(__u32 event, __u64 key, __u64 now,
				 struct spans_counts *c)
{
	struct spans_place at = { .key = key };
	struct spans_begun *was = NULL;

	if (!config.nests || innermost(&at))
		was = bpf_map_lookup_elem(&under_way, &at);
	if (!was) {
		c->between++;
		return;
	}
	if (was->reached >> event) {
		c->out_of_order++;
		return;
	}
	was->times_ns[event] = now;
	was->reached |= 1 << event;
}

static __always_inline void end(__u64 key, __u64 now, struct spans_counts *c)
{
	struct spans_place place = { .key = key };
	struct spans_begun *found = NULL, was;
	__u32 half = turn.half & 1, rows, last = 0, i;
	__u64 before, at;

	if (!config.nests || leave(&place))
		found = bpf_map_lookup_elem(&under_way, &place);
	/* Its begin was counted as too deep. */
	if (!found && place.depth >= SPANS_DEPTH)
		return;
	if (!found) {
		c->not_begun++;
		return;
	}
	was = *found;
	/* Who deletes it has it. */
	if (bpf_map_delete_elem(&under_way, &place)) {
		c->not_begun++;
		return;
	}
	c->ended++;
	rows = half * config.rows;
	before = was.times_ns[0];
	for (i = 1; i < SPANS_EVENTS; i++) {
		if (i >= config.count)
			break;
		if (i + 1 == config.count)
			at = now;
		else if (was.reached & 1 << i)
			at = was.times_ns[i];
		else
			continue;
		/* Another CPU may have been a little ahead. */
		if (at < before)
			at = before;
		add(rows + i * (i - 1) / 2 + last, at - before);
		before = at;
		last = i;
	}
	at = before - was.times_ns[0];
	add(rows + config.rows - 1, at);
	if (config.by == SPANS_BY_STACK)
		add_stack(&was, half, at, c);
	else if (config.by &&
		 add_group((struct spans_group *)was.group, half, at))
		c->lost_groups++;
}

static __always_inline int reach(void *ctx, __u32 event, _Bool has_key,
				 __u64 key)
{
	struct spans_counts *c;
	__u32 first = 0;
	__u64 now;

	if (!turn.open)
		return 0;
	now = bpf_ktime_get_ns();
	c = bpf_map_lookup_elem(&counts, &first);
	if (!c || event >= SPANS_EVENTS)
		return 0;
	c->seen[event]++;
	if (!has_key)
		c->no_key++;
	else if (!event)
		begin(ctx, key, now, c);
	else if (event + 1 == config.count)
		end(key, now, c);
	else
		pass(event, key, now, c);
	c->run_ns += bpf_ktime_get_ns() - now;
	return 0;
}

/* A key that an event of any kind has. */
static __always_inline _Bool common(__u32 event, __u64 *key)
{
	switch (config.events[event].key) {
	case SPANS_KEY_TASK:
		*key = bpf_get_current_task();
		return 1;
	case SPANS_KEY_CPU:
		*key = bpf_get_smp_processor_id();
		return 1;
	}
	return 0;
}

/* As wide as it is: what is above may be anything. */
static __always_inline __u64 cut(__u64 value, __u32 bytes)
{
	switch (bytes) {
	case 1:
		return (__u8)value;
	case 2:
		return (__u16)value;
	case 4:
		return (__u32)value;
	}
	return value;
}

/*
 * A word of the context. Only one at a constant offset may be read, and a
 * compiler would make all cases one with an offset that it computes.
 */
#define READ(offset)                          \
	asm volatile("%0 = *(u64 *)(%1 + %2)" \
		     : "=r"(value)            \
		     : "r"(ctx), "i"(offset))
#define WORD(n, offset)       \
	case n:               \
		READ(offset); \
		break

/*
 * At a tracepoint, or at a function that has a trampoline, the arguments as the
 * kernel has them; where it returns, what that is comes after them.
 */
static __always_inline int at_raw(struct bpf_raw_tracepoint_args *ctx,
				  __u32 event)
{
	__u64 key = 0, value = 0;
	_Bool has_key = common(event, &key);

	if (!has_key) {
		/* Only the one that is asked for: there may be no more. */
		switch (config.events[event].at) {
			WORD(0, 0);
			WORD(1, 8);
			WORD(2, 16);
			WORD(3, 24);
			WORD(4, 32);
			WORD(5, 40);
			WORD(6, 48);
			WORD(7, 56);
			WORD(8, 64);
			WORD(9, 72);
			WORD(10, 80);
			WORD(11, 88);
		}
		key = cut(value, config.events[event].bytes);
		has_key = 1;
	}
	return reach(ctx, event, has_key, key);
}

/* At a tracepoint, a field of its record. */
static __always_inline int at_record(void *ctx, __u32 event)
{
	__u64 key = 0, value = 0;
	_Bool has_key = common(event, &key);
	__u32 bytes = config.events[event].bytes;

	if (!has_key && bytes <= sizeof(value)) {
		has_key = !bpf_probe_read_kernel(&value, bytes,
						 ctx + config.events[event].at);
		key = value;
	}
	reach(ctx, event, has_key, key);
	return GO_ON;
}

/*
 * At a function, of the kernel or of a program: what is in registers, which are
 * in struct pt_regs.
 */
static __always_inline int at_function(void *ctx, __u32 event)
{
	__u64 key = 0, value = 0;
	_Bool has_key = common(event, &key);

	if (!has_key && config.events[event].key == SPANS_KEY_RETURNED) {
		READ(AT_RETURNED);
	} else if (!has_key) {
		switch (config.events[event].at) {
			WORD(0, AT_ARGUMENT_0);
			WORD(1, AT_ARGUMENT_1);
			WORD(2, AT_ARGUMENT_2);
			WORD(3, AT_ARGUMENT_3);
			WORD(4, AT_ARGUMENT_4);
			WORD(5, AT_ARGUMENT_5);
		}
	}
	if (!has_key)
		key = cut(value, config.events[event].bytes);
	return reach(ctx, event, 1, key);
}

#define EVENT(n)                                                 \
	SEC("raw_tp")                                            \
	int spans_raw_##n(struct bpf_raw_tracepoint_args *ctx)   \
	{                                                        \
		return at_raw(ctx, n);                           \
	}                                                        \
	SEC("fentry")                                            \
	int spans_entry_##n(struct bpf_raw_tracepoint_args *ctx) \
	{                                                        \
		return at_raw(ctx, n);                           \
	}                                                        \
	SEC("fexit")                                             \
	int spans_exit_##n(struct bpf_raw_tracepoint_args *ctx)  \
	{                                                        \
		return at_raw(ctx, n);                           \
	}                                                        \
	SEC("tp")                                                \
	int spans_record_##n(void *ctx)                          \
	{                                                        \
		return at_record(ctx, n);                        \
	}                                                        \
	SEC("kprobe")                                            \
	int spans_function_##n(void *ctx)                        \
	{                                                        \
		return at_function(ctx, n);                      \
	}

EVENT(0)
EVENT(1)
EVENT(2)
EVENT(3)
EVENT(4)
EVENT(5)
EVENT(6)
EVENT(7)

static __always_inline void not_followed(void)
{
	__u32 first = 0;
	struct spans_counts *c = bpf_map_lookup_elem(&counts, &first);

	if (c)
		c->processes_dropped++;
}

FOLLOW(spans, not_followed())

char LICENSE[] SEC("license") = "GPL";
