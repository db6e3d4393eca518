// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The path of packets, from tracepoints alone.
 *
 * A packet is identified by the address of its data (skb->head): clones share
 * it, and it stays the same when the peer of a veth receives the packet. On
 * transmit it is in `tx`, on receive in `rx`: on loopback it is in both for a
 * moment. Timestamps are taken by bpf_ktime_get_ns() and kept with the packet;
 * at the end of its path, the stages in between are added to the histograms.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "kernel/sock.h"
#include "kernel/task.h"
#include "packet.h"
#include "stages.h"
#include "tables.h"
#include "transmit.h"
#include "receive.h"
#include "socket.h"

static __always_inline int bit(const volatile __u64 *bits, __u64 nr)
{
	if (nr >= STAGES_CALLS)
		return 0;
	return bits[nr >> 6] >> (nr & 63) & 1;
}

HOOK(sys_enter, struct pt_regs *regs, long nr)
{
	struct stages_task *t;
	__u32 call, i;
	__u64 id;

	if (bit(config.sends, nr))
		call = STAGES_SENDS;
	else if (bit(config.receives, nr))
		call = STAGES_RECEIVES;
	else
		return;
	id = bpf_get_current_pid_tgid();
	if (config.pid && id >> 32 != config.pid)
		return;
	if (config.cgroup && bpf_get_current_cgroup_id() != config.cgroup)
		return;
	i = id & (STAGES_TASKS - 1);
	t = bpf_map_lookup_elem(&tasks, &i);
	if (!t)
		return;
	if (t->tid != (__u32)id) {
		__builtin_memset(t, 0, sizeof(*t));
		t->tid = id;
	}
	t->pending.head = 0;
	t->call = call;
	t->enter_ns = bpf_ktime_get_ns();
	t->since_ns = t->enter_ns;
	note(c, &t->enter, t->enter_ns);
	t->since = t->enter;
}

HOOK(sys_exit, struct pt_regs *regs, long ret)
{
	struct stages_task *t;

	t = task_of(bpf_get_current_pid_tgid());
	if (!t)
		return;
	t->call = 0;
	if (t->pending.head)
		received(t, &t->pending, bpf_ktime_get_ns());
}

HOOK(sched_switch, _Bool preempt, struct task_struct *prev,
     struct task_struct *next)
{
	struct stages_task *out, *in;
	__u64 now;

	out = task_of(prev->pid);
	in = task_of(next->pid);
	if (!out && !in)
		return;
	now = bpf_ktime_get_ns();
	if (out)
		out->out_ns = now;
	if (in) {
		in->run_ns = now;
		note(c, &in->run, now);
	}
}

HOOK(kfree_skb, struct sk_buff *skb, void *location, __u32 reason)
{
	__u64 head, now, one, key;
	struct stages_packet *p;
	struct what w = {};
	__u32 where, place, segs, proto;
	__u64 *n;

	head = number(c, skb->head);
	p = find(&rx, head, &where);
	if (p) {
		if (shared(skb))
			return;
		place = STAGES_P_RX_DROP;
	} else {
		p = find(&tx, head, &where);
		if (p && p->flags & STAGES_IN_HARDWARE) {
			completed(p, bpf_ktime_get_ns());
			return;
		}
		place = p && p->direction == STAGES_FORWARD
				? STAGES_P_FORWARD_DROP
				: STAGES_P_TX_DROP;
	}
	if (p) {
		segs = p->segs;
		proto = p->proto;
		now = bpf_ktime_get_ns();
		tell(p, STAGES_SAW_DROP, now);
		traced_out(p);
		p->head = 0;
	} else {
		/*
		 * Before its device's queue: it belongs to a system call, or is
		 * not followed.
		 */
		struct stages_task *t;

		t = task_of(bpf_get_current_pid_tgid());
		if (!window.admits || !t || t->call != STAGES_SENDS ||
		    t->since_ns < window.opened_ns || !in_task(c) ||
		    skb->skb_iif || !classify_out(skb, &w) || !w.data ||
		    shared(skb))
			return;
		segs = w.segs;
		proto = w.proto;
		place = STAGES_P_TX_DROP_EARLY;
	}
	count(c, proto, place, segs);
	if (window.aside)
		return;
	key = (__u64)proto << 32 | reason;
	n = bpf_map_lookup_elem(&drops, &key);
	if (n) {
		__sync_fetch_and_add(n, segs);
	} else {
		one = segs;
		bpf_map_update_elem(&drops, &key, &one, BPF_NOEXIST);
	}
}

HOOK(consume_skb, struct sk_buff *skb)
{
	struct stages_packet *p;
	__u32 where;
	__u64 head;

	head = number(c, skb->head);
	p = find(&rx, head, &where);
	if (p) {
		if (p->proto == STAGES_TCP)
			return;
		/* Threaded NAPI frees what readers have deferred. */
		if (in_task(c) && !in_kernel_thread()) {
			/*
			 * UDP copies without a tracepoint, and then frees:
			 * until 6.18, which defers freeing (6471658dc66c "udp:
			 * use skb_attempt_defer_free()").
			 */
			if (p->proto == STAGES_UDP)
				udp_frees_seen = 1;
			copied(p, 0, bpf_ktime_get_ns());
			return;
		}
		/*
		 * Raw sockets get clones; without any, it was for the kernel.
		 */
		if (p->proto == STAGES_RAW && !shared(skb)) {
			count(c, STAGES_RAW, STAGES_P_RX_KERNEL, 1);
			traced_out(p);
			p->head = 0;
		}
		return;
	}
	if (!hardware_seen)
		return;
	p = find(&tx, head, &where);
	if (p && p->flags & STAGES_IN_HARDWARE)
		completed(p, bpf_ktime_get_ns());
}

/* The softirq of a CPU, for per-packet traces and in_task(). */
HOOK(softirq_entry, __u32 vector)
{
	c->softirq = vector;
	c->softirq_over = bpf_get_current_task();
}

HOOK(softirq_exit)
{
	c->softirq_over = 0;
}

/* Does nothing: it measures what the kernel takes to run a program. */
HOOK(bpf_test_finish, int *error)
{
}

char LICENSE[] SEC("license") = "GPL";
