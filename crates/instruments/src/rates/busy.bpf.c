// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Busy time of each CPU: a task other than the idle task, or an interrupt or a
 * softirq on top of it.
 *
 * Independent of ticks: time is added up between events, read from
 * bpf_ktime_get_ns().
 *
 * Of that, the time of other programs: tasks with memory of their own that are
 * neither of the process that asks nor of one that it started. Interrupts and
 * softirqs on top of them are not theirs.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "kernel/task.h"
#include "busy.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* As many as there may be CPUs: set at load. */
	__type(key, __u32);
	__type(value, struct busy_cpu);
} cpus SEC(".maps");

/* Parents of a task that are looked at. */
#define PARENTS 6

const volatile struct busy_config config = {};

/* The process that asks, in the first namespace; 0 until it was seen. */
int own;

static __always_inline struct busy_cpu *here(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&cpus, &cpu);
}

static __always_inline void add_up(__u64 *acc_ns, _Bool was, _Bool is,
				   __u64 now)
{
	if (is && !was)
		__sync_fetch_and_add(acc_ns, -now);
	else if (!is && was)
		__sync_fetch_and_add(acc_ns, now);
}

/*
 * Interruptions happen between two of these lines, and restore the state, so
 * only sums have to be updated in one step.
 */
static __always_inline void turn(struct busy_cpu *c, __u32 tasks, __u32 others,
				 __u32 depth)
{
	_Bool was = c->tasks || c->depth, is = tasks || depth;
	_Bool was_others = c->others && !c->depth, is_others = others && !depth;
	__u64 now = bpf_ktime_get_ns();

	c->tasks = tasks;
	c->others = others;
	c->depth = depth;
	c->last_ns = now;
	add_up(&c->acc_ns, was, is, now);
	add_up(&c->others_acc_ns, was_others, is_others, now);
}

/* Learn who asks, from the first of its tasks that is switched out. */
static __always_inline void find_own(void)
{
	struct bpf_pidns_info ids = {};

	if (own ||
	    bpf_get_ns_current_pid_tgid(config.pidns_dev, config.pidns_inode,
					&ids, sizeof(ids)))
		return;
	if (ids.tgid == config.tgid)
		own = bpf_get_current_pid_tgid() >> 32;
}

static __always_inline _Bool is_others(struct task_struct *task)
{
	int i;

	if (!own || !task->pid || task->flags & PF_KTHREAD)
		return 0;
	for (i = 0; i < PARENTS && task; i++) {
		if (task->tgid == own)
			return 0;
		task = task->real_parent;
	}
	return 1;
}

/*
 * If the kernel runs no programs in some tasks, the switch from such a task to
 * the idle task is not seen. The next event shows it: the time since the last
 * event then counts as idle, and as uncertain.
 */
static __always_inline void notice(struct busy_cpu *c, __u32 idle)
{
	if (!c->tasks || c->depth || !idle)
		return;
	c->tasks = 0;
	__sync_fetch_and_add(&c->acc_ns, c->last_ns);
	if (c->others)
		__sync_fetch_and_add(&c->others_acc_ns, c->last_ns);
	c->others = 0;
	c->unsure_ns += bpf_ktime_get_ns() - c->last_ns;
}

static __always_inline int enter(void)
{
	struct busy_cpu *c = here();

	if (!c || !c->known)
		return 0;
	notice(c, !bpf_get_current_task_btf()->pid);
	turn(c, c->tasks, c->others, c->depth + 1);
	return 0;
}

static __always_inline int leave(void)
{
	struct busy_cpu *c = here();

	if (c && c->known && c->depth)
		turn(c, c->tasks, c->others, c->depth - 1);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(busy_sched_switch, _Bool preempt, struct task_struct *prev,
	     struct task_struct *next)
{
	struct busy_cpu *c = here();

	if (!c)
		return 0;
	find_own();
	if (c->known)
		notice(c, !prev->pid);
	/*
	 * There is no interrupt at a task switch, and with PREEMPT_RT softirqs
	 * run in tasks.
	 */
	turn(c, next->pid != 0, is_others(next), 0);
	c->known = 1;
	return 0;
}

#define ENTRY_AND_EXIT(what)               \
	SEC("tp_btf/" #what "_entry")      \
	int busy_##what##_entry(void *ctx) \
	{                                  \
		return enter();            \
	}                                  \
	SEC("tp_btf/" #what "_exit")       \
	int busy_##what##_exit(void *ctx)  \
	{                                  \
		return leave();            \
	}

ENTRY_AND_EXIT(irq_handler)
ENTRY_AND_EXIT(softirq)
/*
 * x86 vectors without irq_handler events:
 * arch/x86/include/asm/trace/irq_vectors.h.
 */
ENTRY_AND_EXIT(local_timer)
ENTRY_AND_EXIT(reschedule)
ENTRY_AND_EXIT(call_function)
ENTRY_AND_EXIT(call_function_single)
ENTRY_AND_EXIT(irq_work)

char LICENSE[] SEC("license") = "GPL";
