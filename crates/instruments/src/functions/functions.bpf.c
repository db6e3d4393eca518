// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Times many functions at once, from entry to exit, by calling context.
 *
 * enter* and leave are templates: the loader takes their instructions, writes a
 * function's number and its argument into them, and loads a copy for each
 * function. The clock is the last thing that enter does and the first that leave
 * does; what else either costs is measured on an empty function, and taken off
 * the times afterwards, by the tree of calling contexts (correct.rs).
 *
 * What interrupts a function has a stack of its own (boundaries.h). How long it
 * took is added to `stolen_ns` of the stack that it interrupted, and a frame's
 * time is told on a clock without what was stolen: so nothing has to be done for
 * the frames that are open meanwhile.
 */
#include <linux/bpf.h>
#include <linux/types.h>
typedef __u64 u64;
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#include "functions.h"
#include "kernel.h"
#include "runtime.h"
#include "classify.h"
#include "boundaries.h"

/* Whether the function is called within an RCU read section. */
static __always_inline __u32 nested(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	if (!bpf_core_field_exists(task->rcu_read_lock_nesting))
		return 0;
	/* One is our own. */
	return BPF_CORE_READ(task, rcu_read_lock_nesting) > 1 ? FUNCTIONS_NESTED
							      : 0;
}

/* The node below `parent`; made if it was not there yet. */
static __always_inline __u32 child(struct functions_cpu *cpu, __u32 parent,
				   __u32 function, __u32 class, __u32 hint,
				   __u32 flag)
{
	__u32 *slot = child_of(parent, function);
	struct functions_node *node;
	__u32 seen = *slot;
	__u32 id;

	if (seen)
		return seen & ~FUNCTIONS_UNDECIDED;
	id = FUNCTIONS_NODE_LOST;
	if (state.next_node < state.max_nodes)
		id = __sync_fetch_and_add(&state.next_node, 1);
	if (id >= state.max_nodes)
		id = FUNCTIONS_NODE_LOST;
	if (id == FUNCTIONS_NODE_LOST) {
		lost(cpu, FUNCTIONS_LOST_NODES, 1);
		flag = 0;
	} else {
		node = node_at(id);
		node->parent = parent;
		node->function = function;
		node->class = class;
		node->hint = hint | nested();
	}
	/* Another CPU may have been here: then ours is left over, without calls. */
	seen = __sync_val_compare_and_swap(slot, 0, id | flag);
	return (seen ?: id) & ~FUNCTIONS_UNDECIDED;
}

/* The direction, where only the context can tell. */
static __always_inline __u32 direction_of(__u32 root)
{
	if (root == FUNCTIONS_NODE_SOFTIRQ + SOFTIRQ_NET_RX)
		return FUNCTIONS_RX;
	if (root == FUNCTIONS_NODE_SOFTIRQ + SOFTIRQ_NET_TX)
		return FUNCTIONS_TX;
	return FUNCTIONS_OTHER;
}

/*
 * The node, where `children` does not simply tell it: for the first time, or
 * since a packet has to be looked at.
 */
static __noinline __u32 find_node(__u64 where, __u32 about, void *what)
{
	struct functions_cpu *cpu = cpu_at(bpf_get_smp_processor_id());
	struct functions_stack *s = stack_at(cpu->current);
	__u32 root = s->frames[0].where;
	__u32 parent = where, function = where >> 32;
	struct functions_node *above = node_at(parent);
	__u32 kind = about & FUNCTIONS_TAKES_MASK;
	__u32 own_hint = about >> FUNCTIONS_HINT_SHIFT;
	__u32 hint = own_hint ?: above->hint & ~FUNCTIONS_NESTED;
	__u32 class = above->class;
	__u32 base;
	int proto;

	PATCHED_NUMBER(base, FUNCTIONS_MAGIC_CLASSES_FROM);
	if (class) {
		/* A packet that was received, and is passed on, or answered. */
		if (own_hint >= FUNCTIONS_FORWARD &&
		    (class & 7) == FUNCTIONS_RX) {
			class = (class & ~7) | own_hint;
			parent = child(cpu, parent, base + (class & 31), class,
				       hint, 0);
		}
		return child(cpu, parent, function, class, hint, 0);
	}
	if (!kind)
		return child(cpu, parent, function, 0, hint, 0);
	proto = classify(what, kind,
			 root == FUNCTIONS_NODE_TASK ||
				 root == FUNCTIONS_NODE_OTHER_TASK);
	if (proto == CLASS_UNWANTED)
		return FUNCTIONS_NODE_IGNORED;
	if (proto == CLASS_UNKNOWN)
		return child(cpu, parent, function, 0, hint,
			     FUNCTIONS_UNDECIDED);
	class = FUNCTIONS_DECIDED | proto << 3 | (hint ?: direction_of(root));
	/* So that this function is looked at again the next time. */
	parent = child(cpu, parent, base + (class & 31), class, hint, 0);
	return child(cpu, parent, function, class, hint, 0);
}

/* Where enter() and leave_at() have it from which function it is. */
enum {
	/* From what the loader wrote; no argument is looked at. */
	HOW_PLAIN,
	/* The same, and one is. */
	HOW_PACKET,
	/* From the cookie of a program that many functions have in common. */
	HOW_SESSION,
	HOW_MASK = 3,
	/* Added to one of these: calls are told one by one, if there are any to be. */
	HOW_TELLING,
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} steps SEC(".maps");

/*
 * Tell of an entry or exit, in a call that belongs to a packet. Nobody pays for
 * the time it takes.
 */
static __noinline int tell(__u64 now, __u64 where, __u64 depth, __u64 is_exit)
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
	s->stolen_ns += bpf_ktime_get_ns() - now;
	return 0;
}

/*
 * An argument in a register, by its number: of struct pt_regs on x86-64. The
 * verifier wants the offset to be a number, so the compiler must not make it one
 * load of all.
 */
#define REGISTER(x, ctx, at) \
	asm volatile("%0 = *(u64 *)(%1 + " #at ")" : "=r"(x) : "r"(ctx))
static __always_inline void *argument_of(void *ctx, __u64 number)
{
	void *what = 0;

	switch (number) {
	case 0:
		REGISTER(what, ctx, 112);
		break;
	case 1:
		REGISTER(what, ctx, 104);
		break;
	case 2:
		REGISTER(what, ctx, 96);
		break;
	case 3:
		REGISTER(what, ctx, 88);
		break;
	case 4:
		REGISTER(what, ctx, 72);
		break;
	case 5:
		REGISTER(what, ctx, 64);
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
	if ((how & HOW_MASK) == HOW_SESSION)
		function = cookie & FUNCTIONS_COOKIE_FUNCTION;
	else
		PATCHED_NUMBER(function, FUNCTIONS_MAGIC_FUNCTION);
	node = *child_of((__u32)parent->where, function);
	if (node <= 0) {
		__u64 begin = bpf_ktime_get_ns();
		__u64 about = 0;
		void *what = 0;

		if ((how & HOW_MASK) == HOW_SESSION) {
			about = cookie >> FUNCTIONS_COOKIE_ABOUT_SHIFT & 0xff;
			if (about & FUNCTIONS_TAKES_MASK)
				what = argument_of(
					ctx,
					cookie >>
						FUNCTIONS_COOKIE_ARGUMENT_SHIFT);
		} else if ((how & HOW_MASK) == HOW_PACKET) {
			PATCHED_NUMBER(about, FUNCTIONS_MAGIC_ABOUT);
			PATCHED_LOAD(what, ctx, FUNCTIONS_MAGIC_ARGUMENT);
		}
		node = find_node((__u32)parent->where | function << 32, about,
				 what);
		frame = parent + 1;
		frame->where = (__u32)node | function << 32;
		s->depth = depth + 1;
		/* The callers don't pay for it. */
		now = bpf_ktime_get_ns();
		s->stolen_ns += now - begin;
		frame->begin_ns = now - s->stolen_ns;
		if (how & HOW_TELLING && (__s64)state.telling > 0)
			tell(now, frame->where, depth + 1, 0);
		return 0;
	}
	frame = parent + 1;
	frame->where = (__u32)node | function << 32;
	s->depth = depth + 1;
	stolen = *(volatile __u64 *)&s->stolen_ns;
	now = bpf_ktime_get_ns();
	/* Interrupted just there: it is not to be taken off twice. */
	if (stolen != *(volatile __u64 *)&s->stolen_ns) {
		stolen = s->stolen_ns;
		now = bpf_ktime_get_ns();
	}
	frame->begin_ns = now - stolen;
	if (how & HOW_TELLING && (__s64)state.telling > 0)
		tell(now, frame->where, depth + 1, 0);
	return 0;
}

/*
 * An exit that does not belong to the top frame: look for the frame that it
 * belongs to, and give up those above it. Returns its depth, or 0.
 */
static __noinline __u64 find_frame(__u64 function)
{
	struct functions_cpu *cpu = cpu_at(bpf_get_smp_processor_id());
	struct functions_stack *s = stack_at(cpu->current);
	__u64 depth = s->depth;
	__u64 at;
	int i;

	if (depth >= FUNCTIONS_FRAMES) {
		s->depth = depth - 1;
		return 0;
	}
	for (i = 0; i < 16; i++) {
		at = depth - i;
		/* The root's frame has no function; beyond it, the number wraps. */
		if (at >= FUNCTIONS_FRAMES)
			break;
		if (s->frames[at].where >> 32 == function) {
			lost(cpu, FUNCTIONS_LOST_UNMATCHED, i);
			return at;
		}
	}
	lost(cpu, FUNCTIONS_LOST_ORPHANS, 1);
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
	__u64 function, where, t, bucket, inverse;

	if ((how & HOW_MASK) == HOW_SESSION)
		function = cookie & FUNCTIONS_COOKIE_FUNCTION;
	else
		PATCHED_NUMBER(function, FUNCTIONS_MAGIC_FUNCTION);
	if (depth >= FUNCTIONS_FRAMES)
		goto search;
	frame = &s->frames[depth];
	where = frame->where;
	if (where >> 32 != function) {
	search:
		depth = find_frame(function);
		if (!depth)
			return 0;
		/* The compiler would make one comparison of the two. */
		OPAQUE(depth);
		if (depth >= FUNCTIONS_FRAMES)
			return 0;
		frame = &s->frames[depth];
		where = frame->where;
	}
	s->depth = depth - 1;
	t = now - s->stolen_ns - frame->begin_ns;
	if ((__s64)t < 0) {
		lost(cpu, FUNCTIONS_LOST_RACES, 1);
		t = 0;
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
	if (how & HOW_TELLING && (__s64)state.telling > 0)
		tell(now, where, depth, 1);
	return 0;
}

SEC("fentry")
int enter_packet(void *ctx)
{
	return enter(ctx, HOW_PACKET, 0);
}

SEC("fentry")
int enter_plain(void *ctx)
{
	return enter(ctx, HOW_PLAIN, 0);
}

SEC("fentry")
int enter_packet_told(void *ctx)
{
	return enter(ctx, HOW_PACKET | HOW_TELLING, 0);
}

SEC("fentry")
int enter_plain_told(void *ctx)
{
	return enter(ctx, HOW_PLAIN | HOW_TELLING, 0);
}

/* Calls a function that does next to nothing, in an RCU read section. */
SEC("raw_tp")
int call_in_rcu(void *ctx)
{
	return bpf_get_numa_node_id() & 0;
}

SEC("fexit")
int leave(void *ctx)
{
	return leave_at(bpf_ktime_get_ns(), HOW_PLAIN, 0);
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

/* Entry and return of all functions that are attached with cookies. */
SEC("kprobe.session")
int session(void *ctx)
{
	return both(ctx, HOW_SESSION);
}

SEC("kprobe.session")
int session_told(void *ctx)
{
	return both(ctx, HOW_SESSION | HOW_TELLING);
}

SEC("fexit")
int leave_told(void *ctx)
{
	return leave_at(bpf_ktime_get_ns(), HOW_PLAIN | HOW_TELLING, 0);
}

char LICENSE[] SEC("license") = "GPL";
