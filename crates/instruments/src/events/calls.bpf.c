// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Calls of functions, or returns from them, by trampolines: of the tasks that
 * are asked for, which a probe of perf's can't tell apart.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "kernel/task.h"
#include "../samples/samples.h"
#include "calls.h"

const volatile struct calls_config config = {};

#include "../samples/whose.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CALLS_FUNCTIONS);
	__type(key, __u32);
	__type(value, struct calls_count);
} counts SEC(".maps");

struct calls_turn turn SEC(".data");

static __always_inline int count(__u32 function)
{
	struct calls_count *c;
	struct bpf_pidns_info ids = {};

	if (!turn.on)
		return 0;
	if (config.scope != SAMPLES_SCOPE_ALL)
		name_task(&ids);
	if (!is_asked(&ids))
		return 0;
	c = bpf_map_lookup_elem(&counts, &function);
	if (c)
		c->count++;
	return 0;
}

#define FUNCTION(n)                  \
	SEC("fentry")                \
	int calls_entry_##n(void *x) \
	{                            \
		return count(n);     \
	}                            \
	SEC("fexit")                 \
	int calls_exit_##n(void *x)  \
	{                            \
		return count(n);     \
	}

FUNCTION(0)
FUNCTION(1)
FUNCTION(2)
FUNCTION(3)
FUNCTION(4)
FUNCTION(5)
FUNCTION(6)
FUNCTION(7)
FUNCTION(8)
FUNCTION(9)
FUNCTION(10)
FUNCTION(11)
FUNCTION(12)
FUNCTION(13)
FUNCTION(14)
FUNCTION(15)

static __always_inline void not_followed(void)
{
	__u32 first = 0;
	struct calls_count *c = bpf_map_lookup_elem(&counts, &first);

	if (c)
		c->not_followed++;
}

FOLLOW(calls, not_followed())

char LICENSE[] SEC("license") = "GPL";
