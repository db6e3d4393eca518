// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Times many functions at once, from entry to exit, by calling context.
 *
 * enter() and leave_at() are templates: the loader copies their instructions,
 * writes a function's number and its argument into them, and loads a copy for
 * each function. Slow paths are in lookup.h.
 *
 * The clock is read last in enter() and first in leave_at(); the remaining cost
 * of both is measured on an empty function, and subtracted from the times
 * afterwards, by the tree of calling contexts (correct.rs).
 *
 * Interruptions of a function have stacks of their own (boundaries.h). Their
 * duration is added to `stolen_ns` of the interrupted stack, and frames use a
 * clock without stolen time, so nothing has to be done for open frames.
 */
#include <linux/bpf.h>
#include <linux/types.h>
typedef __u64 u64;
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#include "functions.h"
#include "arch.h"
#include "kernel/protocols.h"
#include "kernel/sock.h"
#include "kernel/task.h"
#include "runtime.h"
#include "classify.h"
#include "boundaries.h"
#include "lookup.h"

/* Where enter() and leave_at() get the function from. */
enum {
	/* From the number that the loader wrote. */
	HOW_WRITTEN,
	/* From the cookie of a program shared by many functions. */
	HOW_SESSION,
	/* Flag: calls are recorded for per-packet traces. */
	HOW_STEPS,
	/* Flag: exits request slow paths, see lookup.h. */
	HOW_ASKING = 4,
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} steps SEC(".maps");

/* Readings of the clock with the stolen time: interrupts may follow one another. */
#define MOST_READINGS 3

/*
 * The time, and the stolen time of the stack; read again if interrupted between
 * the two.
 */
static __always_inline __u64 now_apart(struct functions_stack *s, __u64 *stolen)
{
	__u64 now = 0;
	int i;

#pragma unroll
	for (i = 0; i < MOST_READINGS; i++) {
		*stolen = *(volatile __u64 *)&s->stolen_ns;
		now = bpf_ktime_get_ns();
		if (*stolen == *(volatile __u64 *)&s->stolen_ns)
			break;
	}
	return now;
}

/*
 * Exclude time of the probe itself from a stack: `since` is its start, by the
 * stack's clock. Interruptions add to `stolen_ns` themselves, so this has to be
 * one instruction: reading the sum and writing it back later would lose an
 * interruption in between.
 */
static __always_inline __u64 leave_out(struct functions_stack *s, __u64 since)
{
	__u64 stolen, now;

	now = now_apart(s, &stolen);
	__sync_fetch_and_add(&s->stolen_ns, now - stolen - since);
	return now;
}

/*
 * Record an entry or exit of a call that belongs to a packet, at `now`, which
 * is `apart` by the stack's clock. The time that this takes is excluded.
 */
static __noinline int tell(__u64 now, __u64 apart, __u64 where, __u64 depth,
			   __u64 is_exit)
{
	__u64 number = bpf_get_smp_processor_id();
	struct functions_cpu *cpu = cpu_at(number);
	struct functions_stack *s = stack_at(cpu->current);
	struct functions_step *step;

	if (!node_at((__u32)where)->class)
		return 0;
	state.telling--;
	step = bpf_ringbuf_reserve(&steps, sizeof(*step), 0);
	if (step) {
		step->at_ns = now;
		step->stack = cpu->current;
		step->depth = depth;
		step->node = where;
		step->cpu = number;
		step->thread = bpf_get_current_pid_tgid();
		step->is_exit = is_exit;
		bpf_get_current_comm(step->command, sizeof(step->command));
		bpf_ringbuf_submit(step, BPF_RB_NO_WAKEUP);
	} else {
		lost(cpu, FUNCTIONS_LOST_STEPS, 1);
	}
	leave_out(s, apart);
	return 0;
}

/*
 * An argument in a register, by number, from struct pt_regs. The
 * verifier requires a constant offset, so the compiler must not merge the loads
 * into one.
 */
#define REGISTER(x, ctx, at) \
	asm volatile("%0 = *(u64 *)(%1 + %2)" : "=r"(x) : "r"(ctx), "i"(at))
static __always_inline void *argument_of(void *ctx, __u64 number)
{
	void *what = 0;

	switch (number) {
	case 0:
		REGISTER(what, ctx, AT_ARGUMENT_0);
		break;
	case 1:
		REGISTER(what, ctx, AT_ARGUMENT_1);
		break;
	case 2:
		REGISTER(what, ctx, AT_ARGUMENT_2);
		break;
	case 3:
		REGISTER(what, ctx, AT_ARGUMENT_3);
		break;
	case 4:
		REGISTER(what, ctx, AT_ARGUMENT_4);
		break;
	case 5:
		REGISTER(what, ctx, AT_ARGUMENT_5);
		break;
	}
	return what;
}

static __always_inline int enter(void *ctx, int how, __u64 cookie)
{
	__u64 number = bpf_get_smp_processor_id();
	struct functions_cpu *cpu = cpu_at(number);
	struct functions_stack *s = stack_at(cpu->current);
	struct functions_frame *parent, *frame;
	__u64 depth = s->depth;
	__u64 stolen, function, now;
	__s32 node;

	if (depth >= FUNCTIONS_FRAMES - 1) {
		lost(cpu, FUNCTIONS_LOST_DEPTH, 1);
		s->depth = depth + 1;
		return 0;
	}
	parent = &s->frames[depth];
	if (how & HOW_SESSION)
		function = cookie & FUNCTIONS_COOKIE_FUNCTION;
	else
		PATCHED_NUMBER(function, FUNCTIONS_MAGIC_FUNCTION);
	node = *child_of((__u32)parent->where, function);
	if (node <= 0) {
		__u64 about = 0, apart;
		void *what = 0;

		now = now_apart(s, &stolen);
		apart = now - stolen;
		if (how & HOW_SESSION) {
			about = cookie >> FUNCTIONS_COOKIE_ABOUT_SHIFT & 0xff;
			if (about & FUNCTIONS_TAKES_MASK)
				what = argument_of(
					ctx,
					cookie >>
						FUNCTIONS_COOKIE_ARGUMENT_SHIFT);
		} else {
			PATCHED_NUMBER(about, FUNCTIONS_MAGIC_ABOUT);
			/* Otherwise the verifier rejects a missing argument. */
			if (about & FUNCTIONS_TAKES_MASK)
				PATCHED_LOAD(what, ctx,
					     FUNCTIONS_MAGIC_ARGUMENT);
		}
		frame = parent + 1;
		frame->where = (__u32)parent->where | function << 32;
		node = find_node(frame->where, about, what);
		frame->where = (__u32)node | function << 32;
		s->depth = depth + 1;
		frame->begin_ns = apart;
		/* The lookup is excluded from the callers' time. */
		now = leave_out(s, apart);
		if (how & HOW_STEPS && (__s64)state.telling > 0)
			tell(now, apart, frame->where, depth + 1, 0);
		return 0;
	}
	frame = parent + 1;
	frame->where = (__u32)node | function << 32;
	s->depth = depth + 1;
	now = now_apart(s, &stolen);
	frame->begin_ns = now - stolen;
	if (how & HOW_STEPS && (__s64)state.telling > 0)
		tell(now, now - stolen, frame->where, depth + 1, 0);
	return 0;
}

static __always_inline int leave_at(__u64 now, int how, __u64 cookie)
{
	__u64 number = bpf_get_smp_processor_id();
	struct functions_cpu *cpu = cpu_at(number);
	struct functions_stack *s = stack_at(cpu->current);
	struct functions_frame *frame;
	struct functions_cell *cell;
	__u64 depth = s->depth;
	__u64 stolen, function, where, t, bucket, inverse;

	if (how & HOW_SESSION)
		function = cookie & FUNCTIONS_COOKIE_FUNCTION;
	else
		PATCHED_NUMBER(function, FUNCTIONS_MAGIC_FUNCTION);
	if (depth >= FUNCTIONS_FRAMES) {
		s->depth = depth - 1;
		return 0;
	}
	frame = &s->frames[depth];
	where = frame->where;
	if (where >> 32 != function) {
		if (how & HOW_ASKING) {
			ask(cpu, s, function);
			depth = s->depth;
		} else {
			depth = find_frame(function);
		}
		/* Keeps the compiler from merging the two comparisons. */
		OPAQUE(depth);
		if (!depth || depth >= FUNCTIONS_FRAMES)
			return 0;
		frame = &s->frames[depth];
		where = frame->where;
		if (where >> 32 != function)
			return 0;
	}
	s->depth = depth - 1;
	stolen = *(volatile __u64 *)&s->stolen_ns;
	t = now - stolen - frame->begin_ns;
	if ((__s64)t < 0) {
		/* Interrupted since the clock was read: read it again. */
		now = now_apart(s, &stolen);
		t = now - stolen - frame->begin_ns;
		if ((__s64)t < 0) {
			lost(cpu, FUNCTIONS_LOST_RACES, 1);
			t = 0;
		}
	}
	cell = cell_at(number, (__u32)where);
	cell->total_ns += t;
	if (t > cell->max_ns)
		cell->max_ns = t;
	inverse = ~t;
	if (inverse > cell->inverse_min_ns)
		cell->inverse_min_ns = inverse;
	bucket = bucket_of(t);
	OPAQUE(bucket);
	cell->buckets[bucket & (FUNCTIONS_BUCKETS - 1)]++;
	if (how & HOW_STEPS && (__s64)state.telling > 0)
		tell(now, now - stolen, where, depth, 1);
	return 0;
}

/*
 * The templates of entries and exits, with slow paths of exits (whole_*) or
 * without (asking_*), and those that record single calls. There is one entry
 * for functions with and without a packet: otherwise its cost would differ from
 * that on the empty function.
 */
#define ENTER(name, how)                     \
	SEC("fentry") int name(void *ctx)    \
	{                                    \
		return enter(ctx, (how), 0); \
	}
#define LEAVE(name, how)                                       \
	SEC("fexit") int name(void *ctx)                       \
	{                                                      \
		return leave_at(bpf_ktime_get_ns(), (how), 0); \
	}
ENTER(enter_copy, HOW_WRITTEN)
ENTER(enter_copy_steps, HOW_STEPS)
LEAVE(asking_leave, HOW_ASKING)
LEAVE(asking_leave_steps, HOW_ASKING | HOW_STEPS)
LEAVE(whole_leave, HOW_WRITTEN)
LEAVE(whole_leave_steps, HOW_STEPS)

/* Calls an empty function in an RCU read-side critical section. */
SEC("raw_tp")
int call_in_rcu(void *ctx)
{
	return bpf_get_current_uid_gid() & 0;
}

/* Since Linux 6.10, commit 535a3692ba72; with another prototype from 7.0 on. */
extern _Bool bpf_session_is_return(void) __weak __ksym;

static __always_inline int both(void *ctx, int how)
{
	__u64 now = bpf_ktime_get_ns();
	__u64 cookie = bpf_get_attach_cookie(ctx);

	if (bpf_session_is_return())
		return leave_at(now, how, cookie);
	return enter(ctx, how, cookie);
}

/* Entry and return of all functions attached with cookies. */
SEC("kprobe.session")
int session(void *ctx)
{
	return both(ctx, HOW_SESSION);
}

SEC("kprobe.session")
int session_steps(void *ctx)
{
	return both(ctx, HOW_SESSION | HOW_STEPS);
}

char LICENSE[] SEC("license") = "GPL";
