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

SEC("tp_btf/sys_enter")
int BPF_PROG(stages_sys_enter, struct pt_regs *regs, long nr)
{
	struct stages_task *t;
	__u32 call, i;
	__u64 id;

	if (!begin(ctx))
		return 0;
	if (bit(config.sends, nr))
		call = STAGES_SENDS;
	else if (bit(config.receives, nr))
		call = STAGES_RECEIVES;
	else
		return 0;
	id = bpf_get_current_pid_tgid();
	if (config.pid && id >> 32 != config.pid)
		return 0;
	if (config.cgroup && bpf_get_current_cgroup_id() != config.cgroup)
		return 0;
	i = id & (STAGES_TASKS - 1);
	t = bpf_map_lookup_elem(&tasks, &i);
	if (!t)
		return 0;
	if (t->tid != (__u32)id) {
		__builtin_memset(t, 0, sizeof(*t));
		t->tid = id;
	}
	t->pending.head = 0;
	t->call = call;
	t->enter_ns = bpf_ktime_get_ns();
	t->since_ns = t->enter_ns;
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(stages_sys_exit, struct pt_regs *regs, long ret)
{
	struct stages_task *t;

	if (!begin(ctx))
		return 0;
	t = task_of(bpf_get_current_pid_tgid());
	if (!t)
		return 0;
	t->call = 0;
	if (t->pending.head)
		received(t, &t->pending, bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(stages_sched_switch, _Bool preempt, struct task_struct *prev,
	     struct task_struct *next)
{
	struct stages_task *out, *in;
	__u64 now;

	if (!begin(ctx))
		return 0;
	out = task_of(prev->pid);
	in = task_of(next->pid);
	if (!out && !in)
		return 0;
	now = bpf_ktime_get_ns();
	if (out)
		out->out_ns = now;
	if (in)
		in->run_ns = now;
	return 0;
}

SEC("tp_btf/kfree_skb")
int BPF_PROG(stages_kfree_skb, struct sk_buff *skb, void *location,
	     __u32 reason)
{
	__u64 head, now, one, key;
	struct stages_packet *p;
	struct stages_cpu *c;
	struct what w = {};
	__u32 where, place, segs, proto;
	__u64 *n;

	c = begin(ctx);
	if (!c)
		return 0;
	head = number(c, skb->head);
	p = find(&rx, head, &where);
	if (p) {
		if (shared(skb))
			return 0;
		place = STAGES_P_RX_DROP;
	} else {
		p = find(&tx, head, &where);
		if (p && p->flags & STAGES_IN_HARDWARE) {
			completed(p, bpf_ktime_get_ns());
			return 0;
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
		told_out(p);
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
			return 0;
		segs = w.segs;
		proto = w.proto;
		place = STAGES_P_TX_DROP_EARLY;
	}
	count(c, proto, place, segs);
	if (window.aside)
		return 0;
	key = (__u64)proto << 32 | reason;
	n = bpf_map_lookup_elem(&drops, &key);
	if (n) {
		__sync_fetch_and_add(n, segs);
	} else {
		one = segs;
		bpf_map_update_elem(&drops, &key, &one, BPF_NOEXIST);
	}
	return 0;
}

SEC("tp_btf/consume_skb")
int BPF_PROG(stages_consume_skb, struct sk_buff *skb)
{
	struct stages_packet *p;
	struct stages_cpu *c;
	__u32 where;
	__u64 head;

	c = begin(ctx);
	if (!c)
		return 0;
	head = number(c, skb->head);
	p = find(&rx, head, &where);
	if (p) {
		if (p->proto == STAGES_TCP)
			return 0;
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
			return 0;
		}
		/*
		 * Raw sockets get clones; without any, it was for the kernel.
		 */
		if (p->proto == STAGES_RAW && !shared(skb)) {
			count(c, STAGES_RAW, STAGES_P_RX_KERNEL, 1);
			told_out(p);
			p->head = 0;
		}
		return 0;
	}
	if (!hardware_seen)
		return 0;
	p = find(&tx, head, &where);
	if (p && p->flags & STAGES_IN_HARDWARE)
		completed(p, bpf_ktime_get_ns());
	return 0;
}

/* The softirq of a CPU, for per-packet traces and in_task(). */
SEC("tp_btf/softirq_entry")
int BPF_PROG(stages_softirq_entry, __u32 vector)
{
	struct stages_cpu *c;

	c = begin(ctx);
	if (!c)
		return 0;
	c->softirq = vector;
	c->softirq_over = bpf_get_current_task();
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(stages_softirq_exit)
{
	struct stages_cpu *c;

	c = begin(ctx);
	if (c)
		c->softirq_over = 0;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
