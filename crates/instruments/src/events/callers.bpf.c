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

#include "arch.h"
#include "kernel/task.h"
#include "../samples/samples.h"
#include "callers.h"

const volatile struct callers_config config = {};

#include "../samples/whose.h"
#include "../samples/stack.h"

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

static __always_inline void forget(struct callers_key *key, __u32 half)
{
	if (half)
		bpf_map_delete_elem(&known_odd, key);
	else
		bpf_map_delete_elem(&known_even, key);
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
	bytes = fill(ctx, to, ids, in_user, config.frames, config.user,
		     &new.check);
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
		/* Another CPU may be first. */
		if (half)
			bpf_map_update_elem(&known_odd, &key, &new,
					    BPF_NOEXIST);
		else
			bpf_map_update_elem(&known_even, &key, &new,
					    BPF_NOEXIST);
		known = lookup(&key, half);
		/* What has no room is not reported, however often it comes. */
		if (!known)
			return 1;
		if (bpf_ringbuf_output(&ring, to, bytes, BPF_RB_NO_WAKEUP)) {
			forget(&key, half);
			return 1;
		}
	}
	if (known->check != new.check)
		return 1;
	__sync_fetch_and_add(&known->count, 1);
	return 0;
}

/* Once for all programs: they are many. */
static __noinline int count(void *ctx, __u32 event, _Bool in_user)
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
	if (!config.user) {
		ids.tgid = SAMPLES_FOREIGN;
		ids.pid = 0;
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

#define EVENT(n)                                                 \
	SEC("perf_event")                                        \
	int callers_counter_##n(struct bpf_perf_event_data *ctx) \
	{                                                        \
		return count(ctx, n, IN_USER(&ctx->regs));       \
	}                                                        \
	SEC("tp")                                                \
	int callers_tracepoint_##n(void *ctx)                    \
	{                                                        \
		count(ctx, n, 0);                                \
		return GO_ON;                                    \
	}                                                        \
	SEC("kprobe")                                            \
	int callers_probe_##n(void *ctx)                         \
	{                                                        \
		return count(ctx, n, 0);                         \
	}                                                        \
	SEC("fentry")                                            \
	int callers_entry_##n(void *ctx)                         \
	{                                                        \
		return count(ctx, n, 0);                         \
	}                                                        \
	SEC("fexit")                                             \
	int callers_exit_##n(void *ctx)                          \
	{                                                        \
		return count(ctx, n, 0);                         \
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
EVENT(16)
EVENT(17)
EVENT(18)
EVENT(19)
EVENT(20)
EVENT(21)
EVENT(22)
EVENT(23)
EVENT(24)
EVENT(25)
EVENT(26)
EVENT(27)
EVENT(28)
EVENT(29)
EVENT(30)
EVENT(31)
EVENT(32)
EVENT(33)
EVENT(34)
EVENT(35)
EVENT(36)
EVENT(37)
EVENT(38)
EVENT(39)
EVENT(40)
EVENT(41)
EVENT(42)
EVENT(43)
EVENT(44)
EVENT(45)
EVENT(46)
EVENT(47)
EVENT(48)
EVENT(49)
EVENT(50)
EVENT(51)
EVENT(52)
EVENT(53)
EVENT(54)
EVENT(55)
EVENT(56)
EVENT(57)
EVENT(58)
EVENT(59)
EVENT(60)
EVENT(61)
EVENT(62)
EVENT(63)

static __always_inline void not_followed(void)
{
	__u32 at = (turn.half & 1) * CALLERS_EVENTS;
	struct callers_count *c = bpf_map_lookup_elem(&counts, &at);

	if (c)
		c->not_followed++;
}

FOLLOW(callers, not_followed())

char LICENSE[] SEC("license") = "GPL";
