// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What CPUs do, every so often, and where tasks wait: samples by stack and
 * task.
 *
 * Stacks are counted in a map by a hash of our own: bpf_get_stackid() has a
 * place for each hash of 32 bits, and mixes up those that share it. A stack
 * that is new goes to the ring once; after that, only its count changes.
 */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "arch.h"
#include "kernel/task.h"
#include "samples.h"

const volatile struct samples_config config = {};

#include "whose.h"
#include "stack.h"

struct known {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SAMPLES_KEYS);
	__type(key, __u64);
	__type(value, struct samples_known);
};

/* One is read and emptied while the other is written to. */
struct known known_even SEC(".maps");
struct known known_odd SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, SAMPLES_RING_BYTES);
} ring SEC(".maps");

/* A user stack that is copied. */
struct copy {
	struct samples_user_stack head;
	__u8 bytes[SAMPLES_STACK_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	/* As of `scratches`. */
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct copy);
} copies SEC(".maps");

/*
 * How many bytes of a stack are to be copied, by hash, as whoever unwinds them
 * has found: none where frame pointers hold.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SAMPLES_SETTLED);
	__type(key, __u64);
	__type(value, __u32);
} settled SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SAMPLES_ASLEEP);
	__type(key, __u32);
	__type(value, struct samples_asleep);
} asleep SEC(".maps");

/*
 * Time of these programs. The kernel can take it, too (BPF_ENABLE_STATS), but
 * only for all programs of the machine, which slows them down.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} run_ns SEC(".maps");

struct samples_counts counts;
struct samples_turn turn SEC(".data");

#define ONE_MORE(what) __sync_fetch_and_add(&counts.what, 1)

static __always_inline void ran_since(__u64 begin)
{
	__u32 first = 0;
	__u64 *sum = bpf_map_lookup_elem(&run_ns, &first);

	if (sum)
		*sum += bpf_ktime_get_ns() - begin;
}

static __always_inline struct samples_known *lookup(__u64 *hash)
{
	if (turn.map & 1)
		return bpf_map_lookup_elem(&known_odd, hash);
	return bpf_map_lookup_elem(&known_even, hash);
}

static __always_inline int insert(__u64 *hash, struct samples_known *new)
{
	if (turn.map & 1)
		return bpf_map_update_elem(&known_odd, hash, new, BPF_NOEXIST);
	return bpf_map_update_elem(&known_even, hash, new, BPF_NOEXIST);
}

/*
 * Count, and report what `hash` stands for if nobody knows yet: `bytes` at
 * `what`. Returns whether it was counted.
 */
static __always_inline _Bool count(__u64 hash, __u64 check, __u64 times,
				   __u64 ns, const void *what, __u32 bytes)
{
	struct samples_known new = {}, *known = lookup(&hash);

	if (!known) {
		new.check = check;
		new.count = times;
		new.ns = ns;
		/* What it stands for first: a known one has been reported. */
		if (bpf_ringbuf_output(&ring, (void *)what, bytes,
				       BPF_RB_NO_WAKEUP)) {
			ONE_MORE(lost_ring);
			return 0;
		}
		if (!insert(&hash, &new))
			return 1;
		/* Another CPU may have been first. */
		known = lookup(&hash);
		if (!known) {
			ONE_MORE(lost_map);
			return 0;
		}
	}
	if (known->check != check) {
		ONE_MORE(collided);
		return 0;
	}
	__sync_fetch_and_add(&known->count, times);
	if (ns)
		__sync_fetch_and_add(&known->ns, ns);
	return 1;
}

static __always_inline void tell_time(__u64 hash, __u64 now, __u32 tid)
{
	struct samples_time time = {
		.kind = SAMPLES_KIND_TIME,
		.hash = hash,
		.time_ns = now,
		.tid = tid,
		.cpu = bpf_get_smp_processor_id(),
	};

	if (bpf_ringbuf_output(&ring, &time, sizeof(time), BPF_RB_NO_WAKEUP))
		ONE_MORE(without_time);
}

/*
 * The registers that unwinding a stack begins with. Returns whether they are
 * user mode's.
 */
static __always_inline _Bool read_user(struct samples_user_stack *to,
				       struct pt_regs___of_task *regs)
{
#if defined(__TARGET_ARCH_x86)
	__u64 mode = BPF_CORE_READ(regs, cs);

	to->ip = BPF_CORE_READ(regs, ip);
	to->sp = BPF_CORE_READ(regs, sp);
	to->fp = BPF_CORE_READ(regs, bp);
	to->lr = 0;
#else
	__u64 mode = BPF_CORE_READ(regs, pstate);

	to->ip = BPF_CORE_READ(regs, pc);
	to->sp = BPF_CORE_READ(regs, sp);
	to->fp = BPF_CORE_READ(regs, regs[29]);
	to->lr = BPF_CORE_READ(regs, regs[30]);
#endif
	return IS_USER(mode);
}

/*
 * Copy the user stack of the current task, which is to be unwound, for a
 * sample or a wait. Returns whether that is reported.
 */
static __always_inline _Bool copy_stack(__u32 which, __u32 kind, __u64 hash,
					__u64 now)
{
	struct task_struct *task;
	struct pt_regs___of_task *regs;
	struct copy *copy;
	__u64 at, bytes = 0;
	__u32 i, *known, most = config.stack_bytes;

	if (config.user != SAMPLES_USER_COPY || !bpf_get_current_pid_tgid())
		return 0;
	/*
	 * Before 5.15 (dd6e10fbd9fb, "bpf: Add bpf_task_pt_regs() helper")
	 * frame pointers are all that there is.
	 */
	if (!bpf_core_enum_value_exists(enum bpf_func_id,
					BPF_FUNC_task_pt_regs))
		return 0;
	known = bpf_map_lookup_elem(&settled, &hash);
	if (known)
		most = *known;
	if (!most)
		return 0;
	/* Room for what can't be done without. */
	if (bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) >
	    bpf_ringbuf_query(&ring, BPF_RB_RING_SIZE) / 2) {
		ONE_MORE(copies_lost);
		return 0;
	}
	copy = bpf_map_lookup_elem(&copies, &which);
	if (!copy)
		return 0;
	task = bpf_get_current_task_btf();
	if (task->flags & PF_KTHREAD)
		return 0;
	/* Where it left user mode, or was interrupted there. */
	regs = (void *)bpf_task_pt_regs(task);
	if (!read_user(&copy->head, regs))
		return 0;
	copy->head.kind = kind;
	copy->head.tid = bpf_get_current_pid_tgid();
	copy->head.hash = hash;
	copy->head.time_ns = now;
	/* In pieces: the stack may end before all of it is read. */
	at = copy->head.sp & ~(SAMPLES_PIECE_BYTES - 1ULL);
	copy->head.from = at;
	for (i = 0; i < SAMPLES_STACK_BYTES / SAMPLES_PIECE_BYTES; i++) {
		if (bytes >= most)
			break;
		if (bpf_probe_read_user(copy->bytes + i * SAMPLES_PIECE_BYTES,
					SAMPLES_PIECE_BYTES,
					(void *)(at + bytes)))
			break;
		bytes += SAMPLES_PIECE_BYTES;
	}
	copy->head.bytes = bytes;
	if (bytes > SAMPLES_STACK_BYTES)
		return 0;
	if (!bpf_ringbuf_output(&ring, copy, sizeof(copy->head) + bytes,
				BPF_RB_NO_WAKEUP))
		return 1;
	ONE_MORE(copies_lost);
	return 0;
}

/* A sample of the current task. */
static __always_inline void take(struct bpf_perf_event_data *ctx, __u64 now)
{
	struct bpf_pidns_info ids = {};
	_Bool in_user = IN_USER(&ctx->regs);
	__u32 bytes, first = 0;
	struct scratch *to;
	__u64 check;

	ONE_MORE(ticks);
	name_task(&ids);
	if (!is_asked(&ids))
		return;
	ONE_MORE(taken);
	to = bpf_map_lookup_elem(&scratches, &first);
	if (!to)
		return;
	bytes = fill(ctx, to, &ids, in_user, config.frames, config.user,
		     &check);
	if (to->stack.kernel >= config.frames ||
	    to->stack.user >= config.frames)
		ONE_MORE(cut);
	to->stack.time_ns = now;
	if (bytes > sizeof(*to))
		return;
	if (!count(to->stack.hash, check, 1, ctx->sample_period, to, bytes))
		return;
	if (config.times)
		tell_time(to->stack.hash, now, ids.pid);
	copy_stack(0, SAMPLES_KIND_COPY, to->stack.hash, now);
}

SEC("perf_event")
int samples_take(struct bpf_perf_event_data *ctx)
{
	__u64 now = bpf_ktime_get_ns();

	take(ctx, now);
	ran_since(now);
	return 0;
}

#define TASK_INTERRUPTIBLE 0x1
#define TASK_UNINTERRUPTIBLE 0x2
#define TASK_NOLOAD 0x400
#define TASK_DEAD_OR_EXITING (0x10 | 0x20 | TASK_DEAD)

/* Why a task goes off the CPU; 0 if it does not come back. */
static __always_inline __u32 reason_of(struct task_struct *task, _Bool preempt)
{
	struct task_struct___before_5_14 *old = (void *)task;
	__u64 state;

	if (bpf_core_field_exists(task->__state))
		state = BPF_CORE_READ(task, __state);
	else
		state = BPF_CORE_READ(old, state);
	if (state & TASK_DEAD_OR_EXITING)
		return 0;
	if (preempt || !state)
		return SAMPLES_REASON_PREEMPTED;
	if (!(state & TASK_UNINTERRUPTIBLE) || state & TASK_NOLOAD)
		return SAMPLES_REASON_SLEEP;
	if (BPF_CORE_READ_BITFIELD_PROBED(task, in_iowait))
		return SAMPLES_REASON_IO;
	return SAMPLES_REASON_BLOCKED;
}

static __always_inline void switch_out(void *ctx, struct task_struct *task,
				       _Bool preempt, __u64 now)
{
	struct samples_asleep new = {};
	struct bpf_pidns_info ids = {};
	__u32 bytes, second = 1, tid;
	struct scratch *to;

	name_task(&ids);
	if (ids.tgid == SAMPLES_IDLE || !is_asked(&ids))
		return;
	new.reason = reason_of(task, preempt);
	if (!new.reason)
		return;
	to = bpf_map_lookup_elem(&scratches, &second);
	if (!to)
		return;
	bytes = fill(ctx, to, &ids, 0, config.frames, config.user, &new.check);
	to->stack.time_ns = now;
	if (bytes > sizeof(*to))
		return;
	new.begin_ns = now;
	new.hash = to->stack.hash;
	tid = bpf_get_current_pid_tgid();
	if (!count(new.hash, new.check, 0, 0, to, bytes)) {
		ONE_MORE(waits_dropped);
		return;
	}
	new.copied = copy_stack(1, SAMPLES_KIND_COPY_OF_WAIT, new.hash, now);
	if (bpf_map_update_elem(&asleep, &tid, &new, BPF_ANY)) {
		ONE_MORE(waits_dropped);
		return;
	}
	ONE_MORE(waits_begun);
}

/* Before it is no more in the map. */
static __always_inline void cross(const struct samples_asleep *was, __u32 tid,
				  __u64 window_ns)
{
	struct samples_crossed crossed = {
		.kind = SAMPLES_KIND_CROSSED,
		.reason = was->reason,
		.stack = was->hash,
		.waker = was->waker,
		.begin_ns = was->begin_ns,
		.window_ns = window_ns,
		.tid = tid,
	};

	if (bpf_ringbuf_output(&ring, &crossed, sizeof(crossed),
			       BPF_RB_NO_WAKEUP))
		ONE_MORE(waits_dropped);
}

/* One whose stack is its own. Returns whether it was reported. */
static __always_inline _Bool tell_wait(const struct samples_asleep *was,
				       __u32 tid, __u64 ns)
{
	struct samples_waited waited = {
		.kind = SAMPLES_KIND_WAITED,
		.reason = was->reason,
		.stack = was->hash,
		.waker = was->waker,
		.begin_ns = was->begin_ns,
		.ns = ns,
		.turn = turn.map,
		.tid = tid,
	};

	return !bpf_ringbuf_output(&ring, &waited, sizeof(waited),
				   BPF_RB_NO_WAKEUP);
}

static __always_inline void switch_in(struct task_struct *task, __u64 now)
{
	__u32 tid = BPF_CORE_READ(task, pid);
	struct samples_asleep *was = bpf_map_lookup_elem(&asleep, &tid);
	struct samples_wait wait = {};
	__u64 hash, check, begin, ns;

	if (!was)
		return;
	hash = was->hash;
	check = was->check;
	mix(&hash, &check, was->reason);
	mix(&hash, &check, was->waker);
	wait.kind = SAMPLES_KIND_WAIT;
	wait.reason = was->reason;
	wait.hash = hash;
	wait.stack = was->hash;
	wait.waker = was->waker;
	/* What was before belongs to the window before. */
	begin = turn.window_ns;
	if (was->begin_ns >= begin)
		begin = was->begin_ns;
	else
		cross(was, tid, begin);
	ns = now > begin ? now - begin : 0;
	/* With others of its kind, if there is no room for it alone. */
	if (!was->copied || !tell_wait(was, tid, ns))
		count(hash, check, 1, ns, &wait, sizeof(wait));
	bpf_map_delete_elem(&asleep, &tid);
	ONE_MORE(waits_ended);
}

SEC("raw_tp/sched_switch")
int samples_switch(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 now = bpf_ktime_get_ns();

	switch_out(ctx, (void *)ctx->args[1], ctx->args[0], now);
	switch_in((void *)ctx->args[2], now);
	ran_since(now);
	return 0;
}

/* Who wakes a task, and where it is. */
static __always_inline void wake(struct bpf_raw_tracepoint_args *ctx,
				 struct task_struct *task, __u64 now)
{
	__u32 tid = BPF_CORE_READ(task, pid), second = 1, bytes;
	struct samples_asleep *was = bpf_map_lookup_elem(&asleep, &tid);
	struct bpf_pidns_info ids = {};
	struct scratch *to;
	__u64 check;

	if (!was || was->reason == SAMPLES_REASON_PREEMPTED)
		return;
	to = bpf_map_lookup_elem(&scratches, &second);
	if (!to)
		return;
	name_task(&ids);
	bytes = fill(ctx, to, &ids, 0, SAMPLES_WAKER_FRAMES, 0, &check);
	to->stack.time_ns = now;
	if (bytes > sizeof(*to))
		return;
	if (count(to->stack.hash, check, 0, 0, to, bytes))
		was->waker = to->stack.hash;
}

SEC("raw_tp/sched_waking")
int samples_waking(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 now = bpf_ktime_get_ns();

	wake(ctx, (void *)ctx->args[0], now);
	ran_since(now);
	return 0;
}

FOLLOW(samples, ONE_MORE(processes_dropped))

char LICENSE[] SEC("license") = "GPL";
