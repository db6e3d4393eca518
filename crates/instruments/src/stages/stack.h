/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Determines the stack on which a program runs, and the kind of its task. */
#ifndef NETPLUMB_STAGES_STACK_H
#define NETPLUMB_STAGES_STACK_H

#include "kernel/task.h"

/*
 * include/linux/sched.h, THREAD_SIZE of x86-64 and arm64. A larger one makes a
 * deep call look like a softirq.
 */
#define STACK_BYTES 16384

/*
 * Whether the program runs on its task's stack. Softirqs and interrupts have
 * stacks of their own (HAVE_SOFTIRQ_ON_OWN_STACK), except in ksoftirqd, on
 * PREEMPT_RT, and on x86-64 where they interrupted user mode
 * (call_on_irqstack_cond). The preempt count would show it too, but not every
 * kernel has a symbol for it (KALLSYMS_ALL), nor is it always a variable
 * (pcpu_hot, 6.2 to 6.14). A tracepoint's arguments are on the stack on which
 * it was hit: `context` is their address, as a number.
 */
static __always_inline int on_task_stack(__u64 context)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return context - (__u64)task->stack < STACK_BYTES;
}

static __always_inline int in_kernel_thread(void)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return (task->flags & PF_KTHREAD) != 0;
}

#endif
