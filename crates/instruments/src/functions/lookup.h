/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Slow paths, which need much code: calling contexts seen for the first time or
 * whose packet has to be classified, and exits that don't match.
 *
 * The verifier checks every program separately, and each function has two of
 * its own, so exits don't include the code for rare cases. They request it:
 * they leave the request in their stack, and call a helper that does next to
 * nothing, to which a program for the lookup is attached. There are two, since
 * a program can't interrupt itself: one for tasks, and one for what interrupts
 * them. The request is in the stack and not in the CPU's state: interruptions
 * have stacks of their own. If no program can be attached to a helper, exits
 * include all of the code.
 *
 * Entries classify a packet for each one that passes: a request would cost some
 * 250 instructions each time.
 */
#ifndef NETPLUMB_FUNCTIONS_LOOKUP_H
#define NETPLUMB_FUNCTIONS_LOOKUP_H

#include "functions.h"
#include "kernel/task.h"
#include "runtime.h"
#include "classify.h"
#include "boundaries.h"

/* Whether the function is called within an RCU read-side critical section. */
static __always_inline __u32 nested(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	if (!bpf_core_field_exists(task->rcu_read_lock_nesting))
		return 0;
	/* One level is the probe's own. */
	return BPF_CORE_READ(task, rcu_read_lock_nesting) > 1 ? FUNCTIONS_NESTED
							      : 0;
}

/* The node below `parent`, created if necessary. */
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
	/*
	 * Another CPU may have created it: then ours is unused, without calls.
	 */
	seen = __sync_val_compare_and_swap(slot, 0, id | flag);
	return (seen ?: id) & ~FUNCTIONS_UNDECIDED;
}

/* The direction, if only the context shows it. */
static __always_inline __u32 direction_of(__u32 root)
{
	if (root == FUNCTIONS_NODE_SOFTIRQ + SOFTIRQ_NET_RX)
		return FUNCTIONS_RX;
	if (root == FUNCTIONS_NODE_SOFTIRQ + SOFTIRQ_NET_TX)
		return FUNCTIONS_TX;
	return FUNCTIONS_OTHER;
}

/*
 * The node, if `children` does not have it: the first time, or if a packet has
 * to be classified.
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
		/* A received packet that is forwarded, or answered. */
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
	/* Check this function again the next time. */
	parent = child(cpu, parent, base + (class & 31), class, hint, 0);
	return child(cpu, parent, function, class, hint, 0);
}

/*
 * An exit that does not match the top frame: find its frame, and drop those
 * above it. Returns its depth, or 0.
 */
static __noinline __u64 find_frame(__u64 function)
{
	struct functions_cpu *cpu = cpu_at(bpf_get_smp_processor_id());
	struct functions_stack *s = stack_at(cpu->current);
	__u64 depth = s->depth;
	__u64 at;
	int i;

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

/*
 * Find a function's frame: its number is stored in frames[0].begin_ns, which
 * has no time; 0 means no request. The result is the stack's depth.
 */
static __always_inline void ask(struct functions_cpu *cpu,
				struct functions_stack *s, __u64 function)
{
	volatile __u64 *asked = &s->frames[0].begin_ns;

	*asked = function;
	if (cpu->level)
		bpf_ktime_get_boot_ns();
	else
		bpf_get_numa_node_id();
	if (*asked) {
		/* The program is processing another request. */
		*asked = 0;
		lost(cpu, FUNCTIONS_LOST_QUESTIONS, 1);
	}
}

static __always_inline int answer(void)
{
	struct functions_cpu *cpu = cpu_at(bpf_get_smp_processor_id());
	struct functions_stack *s = stack_at(cpu->current);
	__u64 function = s->frames[0].begin_ns;
	__u64 depth;

	/* Another program's call of the helper. */
	if (!function)
		return 0;
	s->frames[0].begin_ns = 0;
	depth = find_frame(function);
	if (depth)
		s->depth = depth;
	return 0;
}

/* On bpf_get_numa_node_id(). */
SEC("fentry")
int answer_tasks(void *ctx)
{
	return answer();
}

/* On bpf_ktime_get_boot_ns(). */
SEC("fentry")
int answer_interrupts(void *ctx)
{
	return answer();
}

#endif
