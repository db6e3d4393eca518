// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Events that are counted on CPUs, by the tasks that ran there.
 *
 * Whatever a CPU's counters have gone on by when it switches tasks, they have in
 * the task that it switches from, interrupts on top of that included. So any
 * event can be counted by task that can be counted on a CPU, and no counter
 * has to be opened for a task, which may be gone before that.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "tasks.h"

const volatile struct tasks_config config = {};

/* Of each event one for each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1); /* Set at load. */
	__type(key, __u32);
	__type(value, __u32);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TASKS_EVENTS);
	__type(key, __u32);
	__type(value, struct tasks_event);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TASKS_SUMS);
	__type(key, struct tasks_key);
	__type(value, __u64);
} sums SEC(".maps");

/* Charge the current task. Interrupts are off: nothing else does on this CPU. */
static __always_inline void charge(void)
{
	struct tasks_key key = {};
	__u32 cpu = bpf_get_smp_processor_id();

	key.tgid = bpf_get_current_pid_tgid() >> 32;
	bpf_get_current_comm(key.name, sizeof(key.name));
	for (__u32 i = 0; i < TASKS_EVENTS; i++) {
		struct bpf_perf_event_value now = {};
		struct tasks_event *event;
		__u64 more, *sum;
		__u32 at = i;

		if (i >= config.events)
			break;
		if (bpf_perf_event_read_value(&counters, i * config.cpus + cpu,
					      &now, sizeof(now)))
			continue;
		event = bpf_map_lookup_elem(&events, &at);
		if (!event || now.counter <= event->before)
			continue;
		more = now.counter - event->before;
		event->before = now.counter;
		key.event = i;
		sum = bpf_map_lookup_elem(&sums, &key);
		if (!sum) {
			__u64 none = 0;

			bpf_map_update_elem(&sums, &key, &none, BPF_NOEXIST);
			sum = bpf_map_lookup_elem(&sums, &key);
		}
		if (sum)
			__sync_fetch_and_add(sum, more);
		else
			event->lost += more;
	}
}

SEC("raw_tp/sched_switch")
int tasks_switch(void *ctx)
{
	charge();
	return 0;
}

/* Run on a CPU as a window ends, for the task that goes on. */
SEC("raw_tp/sched_switch")
int tasks_flush(void *ctx)
{
	charge();
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
