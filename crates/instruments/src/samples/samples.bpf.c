// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What a CPU does, every so often: samples by stack and task.
 */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <bpf/bpf_helpers.h>

#include "samples.h"

/* The namespace of pids of who asks. */
const volatile __u64 pidns_dev = 0;
const volatile __u64 pidns_inode = 0;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SAMPLES_KEYS);
	__type(key, struct samples_key);
	__type(value, __u64);
} samples SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, SAMPLES_STACKS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, SAMPLES_FRAMES * sizeof(__u64));
} stacks SEC(".maps");

/*
 * For those whose place in `stacks` another stack has: in a table of another
 * size they rarely meet again.
 */
struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, SAMPLES_MORE_STACKS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, SAMPLES_FRAMES * sizeof(__u64));
} stacks_spilt SEC(".maps");

/* Samples that the map had no room for. */
__u64 samples_lost;

/* The lowest bits of %cs: the privilege. */
#define USER_RPL 3

SEC("perf_event")
int samples_take(struct bpf_perf_event_data *ctx)
{
	struct samples_key key = {};
	struct bpf_pidns_info ids = {};
	__u64 one = 1, *n;

	key.stack = -1;
	key.tgid = SAMPLES_IDLE;
	key.user = (ctx->regs.cs & USER_RPL) == USER_RPL;
	if (!key.user) {
		key.stack = bpf_get_stackid(ctx, &stacks, 0);
		if (key.stack < 0) {
			key.stack = bpf_get_stackid(ctx, &stacks_spilt, 0);
			if (key.stack >= 0)
				key.stack += SAMPLES_STACKS;
		}
	}
	if (bpf_get_current_pid_tgid()) {
		key.tgid = SAMPLES_FOREIGN;
		if (!bpf_get_ns_current_pid_tgid(pidns_dev, pidns_inode, &ids,
						 sizeof(ids)))
			key.tgid = ids.tgid;
		bpf_get_current_comm(key.name, sizeof(key.name));
	}
	n = bpf_map_lookup_elem(&samples, &key);
	if (n)
		__sync_fetch_and_add(n, 1);
	else if (bpf_map_update_elem(&samples, &key, &one, BPF_NOEXIST)) {
		/* Another CPU may have been first. */
		n = bpf_map_lookup_elem(&samples, &key);
		__sync_fetch_and_add(n ? n : &samples_lost, 1);
	}
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
