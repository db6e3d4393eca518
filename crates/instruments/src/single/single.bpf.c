// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Times one function from entry to exit; the function is set before loading.
 *
 * The clock is read last in `enter` and first in `leave`: between the two
 * readings there are, besides the function, the store below, the two programs'
 * share of the trampoline and of bpf_ktime_get_ns() itself. That is the probe's
 * cost in its figures: see single.rs.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "kernel/task.h"
#include "single.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SINGLE_MAX_TASKS);
	__type(key, __u64);
	__type(value, struct single_pending);
} pending SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct single_times);
} times SEC(".maps");

/*
 * The thread's id. Idle tasks of all CPUs have id 0, but never leave their CPU.
 */
static __always_inline __u64 task_key(void)
{
	__u32 tid = bpf_get_current_pid_tgid();

	return tid ? tid : 1ULL << 32 | bpf_get_smp_processor_id();
}

/*
 * Whether the function is called within an RCU read-side critical section, so
 * that the programs' own are not the outermost. Always false if the kernel
 * does not count them.
 */
static __always_inline int in_rcu(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	if (!bpf_core_field_exists(task->rcu_read_lock_nesting))
		return 0;
	/* One level is the probe's own. */
	return BPF_CORE_READ(task, rcu_read_lock_nesting) > 1;
}

SEC("fentry")
int enter(void *ctx)
{
	struct single_pending none = {};
	struct single_pending *p;
	__u64 key = task_key();
	__u64 depth;

	p = bpf_map_lookup_elem(&pending, &key);
	if (!p) {
		/* If there is no room, `leave` will not find it either. */
		bpf_map_update_elem(&pending, &key, &none, BPF_NOEXIST);
		p = bpf_map_lookup_elem(&pending, &key);
		if (!p)
			return 0;
	}
	depth = p->depth;
	p->depth = depth + 1;
	if (depth < SINGLE_MAX_DEPTH)
		p->entered_ns[depth] = bpf_ktime_get_ns();
	return 0;
}

SEC("fexit")
int leave(void *ctx)
{
	__u64 now_ns = bpf_ktime_get_ns();
	struct single_pending *p;
	struct single_times *t;
	__u64 key = task_key();
	__u32 zero = 0;
	__u64 depth, ns;

	t = bpf_map_lookup_elem(&times, &zero);
	if (!t)
		return 0;
	p = bpf_map_lookup_elem(&pending, &key);
	/* Without an entry, it was entered before `enter` was attached. */
	if (!p || !p->depth) {
		t->untimed++;
		return 0;
	}
	depth = p->depth - 1;
	p->depth = depth;
	if (depth >= SINGLE_MAX_DEPTH) {
		t->untimed++;
		return 0;
	}
	ns = now_ns - p->entered_ns[depth];
	if (!t->calls || ns < t->min_ns)
		t->min_ns = ns;
	t->calls++;
	t->total_ns += ns;
	t->in_rcu += in_rcu();
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
