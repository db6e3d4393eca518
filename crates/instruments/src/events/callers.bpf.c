// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Events, each counted by the stack of who caused it. A stack goes to the ring
 * once for each window; then it is only counted.
 */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "kernel/task.h"
#include "../samples/samples.h"
#include "callers.h"

const volatile struct callers_config config = {};

#include "../samples/whose.h"
#include "../samples/stack.h"

/* arch/x86/include/asm/ptrace.h: the privilege of a code segment. */
#define USER_RPL 3

/* One half is read and emptied while the other is written to. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2 * CALLERS_EVENTS);
	__type(key, __u32);
	__type(value, struct callers_count);
} counts SEC(".maps");

struct known {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, CALLERS_STACKS);
	__type(key, struct callers_key);
	__type(value, struct callers_known);
};

struct known known_even SEC(".maps");
struct known known_odd SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, CALLERS_RING_BYTES);
} ring SEC(".maps");

/* Whether a program of another kind has the CPU's scratch. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} taken SEC(".maps");

struct callers_turn turn SEC(".data");

static __always_inline struct callers_known *lookup(struct callers_key *key,
						    __u32 half)
{
	if (half)
		return bpf_map_lookup_elem(&known_odd, key);
	return bpf_map_lookup_elem(&known_even, key);
}

/* Returns whether the stack is not known. */
static __always_inline _Bool charge(void *ctx, __u32 event, __u32 half,
				    const struct bpf_pidns_info *ids,
				    _Bool in_user, __u64 now,
				    struct callers_count *c)
{
	struct callers_known new = {}, *known;
	struct callers_key key = {};
	__u32 first = 0, bytes;
	struct scratch *to = bpf_map_lookup_elem(&scratches, &first);

	if (!to)
		return 1;
	bytes = fill(ctx, to, ids, in_user, config.frames, 1, &new.check);
	to->stack.time_ns = now;
	if (to->stack.kernel >= config.frames ||
	    to->stack.user >= config.frames)
		c->cut++;
	if (bytes > sizeof(*to))
		return 1;
	key.hash = to->stack.hash;
	key.event = event;
	known = lookup(&key, half);
	if (!known) {
		if (bpf_ringbuf_output(&ring, to, bytes, BPF_RB_NO_WAKEUP))
			return 1;
		/* Another CPU may be first. */
		if (half)
			bpf_map_update_elem(&known_odd, &key, &new,
					    BPF_NOEXIST);
		else
			bpf_map_update_elem(&known_even, &key, &new,
					    BPF_NOEXIST);
		known = lookup(&key, half);
	}
	if (!known || known->check != new.check)
		return 1;
	__sync_fetch_and_add(&known->count, 1);
	return 0;
}

static __always_inline int count(void *ctx, __u32 event, _Bool in_user)
{
	__u32 half = turn.half & 1, at = half * CALLERS_EVENTS + event;
	struct bpf_pidns_info ids = {};
	__u32 first = 0, *busy;
	struct callers_count *c;
	__u64 now;

	if (!turn.on)
		return 0;
	now = bpf_ktime_get_ns();
	name_task(&ids);
	if (!is_asked(&ids))
		return 0;
	c = bpf_map_lookup_elem(&counts, &at);
	busy = bpf_map_lookup_elem(&taken, &first);
	if (!c || !busy)
		return 0;
	c->count++;
	if (*busy) {
		c->lost++;
		return 0;
	}
	*busy = 1;
	barrier();
	if (charge(ctx, event, half, &ids, in_user, now, c))
		c->lost++;
	barrier();
	*busy = 0;
	c->run_ns += bpf_ktime_get_ns() - now;
	return 0;
}

#define EVENT(n)                                                             \
	SEC("perf_event")                                                    \
	int callers_counter_##n(struct bpf_perf_event_data *ctx)             \
	{                                                                    \
		return count(ctx, n, (ctx->regs.cs & USER_RPL) == USER_RPL); \
	}                                                                    \
	SEC("tp")                                                            \
	int callers_tracepoint_##n(void *ctx)                                \
	{                                                                    \
		return count(ctx, n, 0);                                     \
	}                                                                    \
	SEC("kprobe")                                                        \
	int callers_probe_##n(void *ctx)                                     \
	{                                                                    \
		return count(ctx, n, 0);                                     \
	}                                                                    \
	SEC("fentry")                                                        \
	int callers_entry_##n(void *ctx)                                     \
	{                                                                    \
		return count(ctx, n, 0);                                     \
	}                                                                    \
	SEC("fexit")                                                         \
	int callers_exit_##n(void *ctx)                                      \
	{                                                                    \
		return count(ctx, n, 0);                                     \
	}

EVENT(0)
EVENT(1)
EVENT(2)
EVENT(3)
EVENT(4)
EVENT(5)
EVENT(6)
EVENT(7)
EVENT(8)
EVENT(9)
EVENT(10)
EVENT(11)
EVENT(12)
EVENT(13)
EVENT(14)
EVENT(15)

SEC("raw_tp/sched_process_fork")
int callers_fork(struct bpf_raw_tracepoint_args *ctx)
{
	follow_fork((void *)ctx->args[1]);
	return 0;
}

SEC("raw_tp/sched_process_exec")
int callers_exec(struct bpf_raw_tracepoint_args *ctx)
{
	follow_exec();
	return 0;
}

SEC("raw_tp/sched_process_exit")
int callers_exit(struct bpf_raw_tracepoint_args *ctx)
{
	follow_exit((void *)ctx->args[0]);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
