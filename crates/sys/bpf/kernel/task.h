/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Tasks. */
#ifndef NETPLUMB_KERNEL_TASK_H
#define NETPLUMB_KERNEL_TASK_H

#include "kernel/core.h"

struct task_struct {
	void *stack;
	unsigned int flags;
	int pid;
	/* Since Linux 5.14, commit 2f064a59a11f. */
	unsigned int __state;
	/* With CONFIG_PREEMPT_RCU only. */
	int rcu_read_lock_nesting;
} CO_RE;

/* As it was before that. */
struct task_struct___before_5_14 {
	long state;
} CO_RE;

#define PF_KTHREAD 0x00200000
#define TASK_DEAD 0x00000080

#endif
