/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which tasks are asked for, by the scope that `config` has, and what they are
 * called. Of a process or a command, its children are followed.
 */
#ifndef NETPLUMB_SAMPLES_WHOSE_H
#define NETPLUMB_SAMPLES_WHOSE_H

/* Processes that are sampled, by their number in the first namespace. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SAMPLES_PROCESSES);
	__type(key, __u32);
	__type(value, __u32);
} processes SEC(".maps");

/*
 * What a program at a tracepoint returns: with 0, no other user of perf has the
 * event (perf_trace_run_bpf_submit() in kernel/events/core.c). A probe is ours
 * alone: with 0, it costs less.
 */
#define GO_ON 1

/* Namespaces of pids in each other that are looked at: the kernel has 32. */
#define PIDNS_LEVELS 8

/* The number of a task in our namespace, 0 if it has none there. */
static __always_inline __u32 number_of(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	__u32 last = BPF_CORE_READ(pid, level), level;
	struct pid_namespace *ns;
	const void *each =
		(const void *)pid + bpf_core_field_offset(struct pid, numbers);
	struct upid *at;

	for (level = 0; level < PIDNS_LEVELS && level <= last; level++) {
		at = (void *)each + level * bpf_core_type_size(struct upid);
		ns = BPF_CORE_READ(at, ns);
		if (BPF_CORE_READ(ns, ns.inum) == config.pidns_inode)
			return BPF_CORE_READ(at, nr);
	}
	return 0;
}

/* What the current task is called by those who ask. */
static __always_inline void name_task(struct bpf_pidns_info *ids)
{
	__u64 own = bpf_get_current_pid_tgid();
	struct task_struct *task;

	ids->tgid = SAMPLES_IDLE;
	ids->pid = 0;
	/* The helper knows tasks of our namespace, not of others in it. */
	if (own &&
	    bpf_get_ns_current_pid_tgid(config.pidns_dev, config.pidns_inode,
					ids, sizeof(*ids))) {
		task = (void *)bpf_get_current_task();
		ids->pid = number_of(task);
		ids->tgid = number_of(BPF_CORE_READ(task, group_leader));
		if (!ids->tgid) {
			ids->tgid = SAMPLES_FOREIGN;
			ids->pid = own;
		}
	}
}

static __always_inline _Bool is_in_cgroup(void)
{
	__u64 id;
	int level;

	for (level = 0; level < SAMPLES_CGROUPS; level++) {
		id = bpf_get_current_ancestor_cgroup_id(level);
		if (id == config.cgroup)
			return 1;
		if (!id)
			break;
	}
	return 0;
}

/* The same of any task. */
static __always_inline _Bool has_cgroup(struct task_struct *task)
{
	struct cgroup *at = BPF_CORE_READ(task, cgroups, dfl_cgrp);
	int level;

	for (level = 0; at && level < SAMPLES_CGROUPS; level++) {
		if (BPF_CORE_READ(at, kn, id) == config.cgroup)
			return 1;
		at = BPF_CORE_READ(at, self.parent, cgroup);
	}
	return 0;
}

/*
 * Whether a process is one of those that are asked for, by its number in the
 * first namespace and in ours.
 */
static __always_inline _Bool is_process(__u32 tgid, __u32 own)
{
	__u32 sampled = SAMPLES_STATE_SAMPLED, *state;

	if (config.scope == SAMPLES_SCOPE_PROCESS && own == config.tgid) {
		/* Its children are known by its other number. */
		if (!bpf_map_lookup_elem(&processes, &tgid))
			bpf_map_update_elem(&processes, &tgid, &sampled,
					    BPF_ANY);
		return 1;
	}
	state = bpf_map_lookup_elem(&processes, &tgid);
	return state && *state == SAMPLES_STATE_SAMPLED;
}

/* Whether the current task is to be sampled. */
static __always_inline _Bool is_asked(const struct bpf_pidns_info *ids)
{
	switch (config.scope) {
	case SAMPLES_SCOPE_ALL:
		return 1;
	case SAMPLES_SCOPE_CGROUP:
		return is_in_cgroup();
	}
	return is_process(bpf_get_current_pid_tgid() >> 32, ids->tgid);
}

/* Whether another task is. */
static __always_inline _Bool is_asked_of(struct task_struct *task)
{
	switch (config.scope) {
	case SAMPLES_SCOPE_ALL:
		return 1;
	case SAMPLES_SCOPE_CGROUP:
		return has_cgroup(task);
	}
	return is_process(BPF_CORE_READ(task, tgid),
			  number_of(BPF_CORE_READ(task, group_leader)));
}

/*
 * A child belongs to those who made it. Returns whether there is no room for
 * it.
 */
static __always_inline _Bool follow_fork(struct task_struct *child)
{
	__u32 tgid, state = SAMPLES_STATE_SAMPLED;
	struct bpf_pidns_info ids = {};

	name_task(&ids);
	if (!is_asked(&ids)) {
		if (config.scope != SAMPLES_SCOPE_CHILDREN ||
		    ids.tgid != config.tgid)
			return 0;
		state = SAMPLES_STATE_BEFORE_EXEC;
	}
	tgid = BPF_CORE_READ(child, tgid);
	/* A thread of who asks. */
	if (tgid == bpf_get_current_pid_tgid() >> 32)
		return 0;
	return bpf_map_update_elem(&processes, &tgid, &state, BPF_ANY) != 0;
}

static __always_inline void follow_exec(void)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	__u32 *state = bpf_map_lookup_elem(&processes, &tgid);

	if (state)
		*state = SAMPLES_STATE_SAMPLED;
}

/*
 * The number of a process that is gone may become another's. Not when it exits:
 * it closes its files after that. Its leader is freed last.
 */
static __always_inline void follow_free(struct task_struct *task)
{
	__u32 tgid = BPF_CORE_READ(task, tgid);

	if ((__u32)BPF_CORE_READ(task, pid) == tgid)
		bpf_map_delete_elem(&processes, &tgid);
}

/*
 * The programs that follow processes, `name`_fork and so on; `no_room` counts a
 * child that there is no room for. Children belong to those who made them, as
 * in perf.
 */
#define FOLLOW(name, no_room)                                \
	SEC("raw_tp/sched_process_fork")                     \
	int name##_fork(struct bpf_raw_tracepoint_args *ctx) \
	{                                                    \
		if (follow_fork((void *)ctx->args[1]))       \
			no_room;                             \
		return 0;                                    \
	}                                                    \
	SEC("raw_tp/sched_process_exec")                     \
	int name##_exec(struct bpf_raw_tracepoint_args *ctx) \
	{                                                    \
		follow_exec();                               \
		return 0;                                    \
	}                                                    \
	SEC("raw_tp/sched_process_free")                     \
	int name##_free(struct bpf_raw_tracepoint_args *ctx) \
	{                                                    \
		follow_free((void *)ctx->args[0]);           \
		return 0;                                    \
	}

#endif
