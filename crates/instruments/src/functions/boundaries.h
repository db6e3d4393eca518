/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Boundaries of stacks: softirqs, interrupts, task switches.
 *
 * On entry the clock is read first and on exit last, so that as little as
 * possible of the cost of these hooks is attributed to the interrupted
 * function; the rest, `outside_ns`, is measured and subtracted.
 */
#ifndef NETPLUMB_FUNCTIONS_BOUNDARIES_H
#define NETPLUMB_FUNCTIONS_BOUNDARIES_H

#include "functions.h"
#include "kernel/task.h"
#include "runtime.h"

/* include/linux/interrupt.h. */
#define SOFTIRQ_TIMER 1
#define SOFTIRQ_NET_TX 2
#define SOFTIRQ_NET_RX 3
#define SOFTIRQS 10

/* Free stacks. */
struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, 1);
	__uint(value_size, sizeof(__u32));
} spare SEC(".maps");

/* Stacks of tasks that were switched out during calls. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct functions_parked);
} parked SEC(".maps");

/* An interruption begins on this CPU, below the node `root`. */
static __always_inline void go_in(__u64 now, __u32 root)
{
	__u64 number = bpf_get_smp_processor_id();
	struct functions_cpu *cpu = cpu_at(number);
	struct functions_stack *s;
	__u64 level = cpu->level;
	__u64 index;

	cpu->boundaries++;
	cpu->level = level + 1;
	if (level >= FUNCTIONS_LEVELS) {
		lost(cpu, FUNCTIONS_LOST_LEVELS, 1);
		return;
	}
	cpu->saved[level].left_ns = now;
	cpu->saved[level].stack = cpu->current;
	index = number * FUNCTIONS_LEVELS + level;
	s = stack_at(index);
	if (s->depth) {
		lost(cpu, FUNCTIONS_LOST_UNMATCHED, s->depth);
		s->depth = 0;
	}
	s->frames[0].where = root;
	cpu->current = index;
}

/* Exclude time from a stack. */
static __always_inline void give_back(struct functions_stack *s, __u64 number,
				      __u64 left_ns)
{
	__u64 depth = s->depth;

	/* Without a call it is counted for the root. */
	if (depth < FUNCTIONS_FRAMES)
		cell_at(number, (__u32)s->frames[depth].where)->interruptions++;
	s->stolen_ns += bpf_ktime_get_ns() - left_ns + state.outside_ns;
}

/* The interruption ends. */
static __always_inline void go_out(void)
{
	__u64 number = bpf_get_smp_processor_id();
	struct functions_cpu *cpu = cpu_at(number);
	__u64 level = cpu->level;
	__u64 stack, left_ns;

	/* It began before the hooks were attached. */
	if (!level)
		return;
	level--;
	if (level >= FUNCTIONS_LEVELS) {
		cpu->level = level;
		return;
	}
	/*
	 * At the tracepoint, a softirq ends with interrupts enabled: an
	 * interrupt now must not overwrite what is read here.
	 */
	stack = cpu->saved[level].stack;
	left_ns = *(volatile __u64 *)&cpu->saved[level].left_ns;
	*(volatile __u32 *)&cpu->current = stack;
	*(volatile __u32 *)&cpu->level = level;
	give_back(stack_at(stack), number, left_ns);
}

/* All pending softirqs: __do_softirq(), from 6.10 handle_softirqs(). */
SEC("fentry")
int softirqs_begin(void *ctx)
{
	go_in(bpf_ktime_get_ns(), FUNCTIONS_NODE_SOFTIRQ + SOFTIRQ_TIMER);
	return 0;
}

SEC("fexit")
int softirqs_end(void *ctx)
{
	go_out();
	return 0;
}

/* An interrupt: irq_enter_rcu() to irq_exit_rcu(). */
SEC("fentry")
int interrupt_begin(void *ctx)
{
	go_in(bpf_ktime_get_ns(), FUNCTIONS_NODE_HARDIRQ);
	return 0;
}

SEC("fexit")
int interrupt_end(void *ctx)
{
	go_out();
	return 0;
}

/* A single softirq: softirqs_begin() has already set the stack. */
SEC("tp_btf/softirq_entry")
int softirq_vector(__u64 *ctx)
{
	struct functions_cpu *cpu = cpu_at(bpf_get_smp_processor_id());
	__u64 vector = ctx[0];

	if (cpu->level && vector < SOFTIRQS)
		stack_at(cpu->current)->frames[0].where =
			FUNCTIONS_NODE_SOFTIRQ + vector;
	return 0;
}

/* If these functions can't be attached to: by tracepoints alone. */
SEC("tp_btf/softirq_entry")
int softirq_begin(__u64 *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	__u64 vector = ctx[0];

	go_in(now, FUNCTIONS_NODE_SOFTIRQ +
			   (vector < SOFTIRQS ? vector : SOFTIRQ_TIMER));
	return 0;
}

SEC("tp_btf/softirq_exit")
int softirq_end(void *ctx)
{
	go_out();
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int handler_begin(void *ctx)
{
	go_in(bpf_ktime_get_ns(), FUNCTIONS_NODE_HARDIRQ);
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int handler_end(void *ctx)
{
	go_out();
	return 0;
}

static __always_inline __u64 task_key(__u32 pid, __u64 number)
{
	/* Every CPU's idle task is number 0. */
	return pid ? pid : 1ULL << 32 | number;
}

SEC("tp_btf/sched_switch")
int task_switch(__u64 *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	__u64 number = bpf_get_smp_processor_id();
	struct functions_cpu *cpu = cpu_at(number);
	__u64 preempted = ctx[0] & 1;
	struct task_struct *before = (void *)ctx[1];
	struct task_struct *after = (void *)ctx[2];
	struct functions_parked *found = 0;
	struct functions_stack *s;
	__u32 index, other;
	__u64 key;

	cpu->boundaries++;
	/* Tasks are not switched within a softirq or an interrupt. */
	if (cpu->level) {
		lost(cpu, FUNCTIONS_LOST_BOUNDARIES, 1);
		cpu->current = cpu->saved[0].stack;
		cpu->level = 0;
	}
	index = cpu->current;
	s = stack_at(index);
	if (s->depth) {
		unsigned int dead;

		if (bpf_core_field_exists(before->__state))
			dead = BPF_CORE_READ(before, __state) & TASK_DEAD;
		else
			dead = BPF_CORE_READ(
				       (struct task_struct___before_5_14 *)
					       before,
				       state) &
			       TASK_DEAD;
		if (dead)
			s->depth = 0;
	}
	if (state.parked) {
		key = task_key(BPF_CORE_READ(after, pid), number);
		found = bpf_map_lookup_elem(&parked, &key);
	}
	/* A preempted task may be about to add a frame. */
	if (s->depth || preempted) {
		struct functions_parked p = { .left_ns = now, .stack = index };
		__u64 own = task_key(BPF_CORE_READ(before, pid), number);

		if (!found && bpf_map_pop_elem(&spare, &other)) {
			lost(cpu, FUNCTIONS_LOST_STACKS, 1);
			s->depth = 0;
			goto in_place;
		}
		if (bpf_map_update_elem(&parked, &own, &p, BPF_ANY)) {
			lost(cpu, FUNCTIONS_LOST_STACKS, 1);
			s->depth = 0;
			if (!found) {
				bpf_map_push_elem(&spare, &other, 0);
				goto in_place;
			}
			bpf_map_push_elem(&spare, &index, 0);
		} else {
			__sync_fetch_and_add(&state.parked, 1);
		}
		if (!found) {
			cpu->current = other;
			s = stack_at(other);
			s->depth = 0;
			goto in_place;
		}
	} else if (found) {
		bpf_map_push_elem(&spare, &index, 0);
	}
	if (found) {
		__u64 left_ns = found->left_ns;

		index = found->stack;
		bpf_map_delete_elem(&parked, &key);
		__sync_fetch_and_add(&state.parked, -1);
		cpu->current = index;
		give_back(stack_at(index), number, left_ns);
		return 0;
	}
in_place:
	if (BPF_CORE_READ(after, flags) & PF_KTHREAD)
		s->frames[0].where = FUNCTIONS_NODE_OTHER_TASK;
	else
		s->frames[0].where = FUNCTIONS_NODE_TASK;
	return 0;
}

#endif
