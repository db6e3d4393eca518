/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Tasks. */
#ifndef NETPLUMB_KERNEL_TASK_H
#define NETPLUMB_KERNEL_TASK_H

#include "kernel/core.h"

struct pid_namespace {
	struct ns_common ns;
} CO_RE;

/* The number of a task in a namespace. */
struct upid {
	int nr;
	struct pid_namespace *ns;
} CO_RE;

/* In all that it is in, the first first. */
struct pid {
	unsigned int level;
	struct upid numbers[1];
} CO_RE;

struct kernfs_node {
	__u64 id;
} CO_RE;

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
} CO_RE;

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
} CO_RE;

struct css_set {
	struct cgroup *dfl_cgrp;
} CO_RE;

struct task_struct {
	void *stack;
	unsigned int flags;
	int pid;
	int tgid;
	struct task_struct *group_leader;
	struct task_struct *real_parent;
	struct pid *thread_pid;
	struct css_set *cgroups;
	char comm[16];
	/* It waits for a disk or the like. */
	unsigned int in_iowait : 1;
	/* Since Linux 5.14, commit 2f064a59a11f. */
	unsigned int __state;
	/* With CONFIG_PREEMPT_RCU only. */
	int rcu_read_lock_nesting;
} CO_RE;

/* As it was before that. */
struct task_struct___before_5_14 {
	long state;
} CO_RE;

/* What pt_regs has of a task in user mode: arch/.../include/asm/ptrace.h. */
#if defined(__TARGET_ARCH_x86)
struct pt_regs___of_task {
	unsigned long bp;
	unsigned long ip;
	unsigned long cs;
	unsigned long sp;
} CO_RE;
#else
struct pt_regs___of_task {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
	__u64 pstate;
} CO_RE;
#endif

#define PF_KTHREAD 0x00200000
#define TASK_DEAD 0x00000080

#endif
