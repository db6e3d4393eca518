// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Busy time of each CPU: a task other than the idle task, or an interrupt or a
 * softirq on top of it.
 *
 * Independent of ticks: time is added up between events, read from
 * bpf_ktime_get_ns().
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

static __always_inline struct busy_cpu *here(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&cpus, &cpu);
}

/*
 * Interruptions happen between two of these lines, and restore the state, so
 * only `acc_ns` has to be updated in one step.
 */
static __always_inline void turn(struct busy_cpu *c, __u32 tasks, __u32 depth)
{
	__u32 was = c->tasks || c->depth, is = tasks || depth;
	__u64 now = bpf_ktime_get_ns();

	c->tasks = tasks;
	c->depth = depth;
	c->last_ns = now;
	if (is && !was)
		__sync_fetch_and_add(&c->acc_ns, -now);
	else if (!is && was)
		__sync_fetch_and_add(&c->acc_ns, now);
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
	c->unsure_ns += bpf_ktime_get_ns() - c->last_ns;
}

static __always_inline int enter(void)
{
	struct busy_cpu *c = here();

	if (!c || !c->known)
		return 0;
	notice(c, !bpf_get_current_task_btf()->pid);
	turn(c, c->tasks, c->depth + 1);
	return 0;
}

static __always_inline int leave(void)
{
	struct busy_cpu *c = here();

	if (c && c->known && c->depth)
		turn(c, c->tasks, c->depth - 1);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(busy_sched_switch, _Bool preempt, struct task_struct *prev,
	     struct task_struct *next)
{
	struct busy_cpu *c = here();

	if (!c)
		return 0;
	if (c->known)
		notice(c, !prev->pid);
	/*
	 * There is no interrupt at a task switch, and with PREEMPT_RT softirqs
	 * run in tasks.
	 */
	turn(c, next->pid != 0, 0);
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
