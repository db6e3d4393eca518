/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Transmit: system call, device queue, qdisc, driver, completion.
 */
#ifndef NETPLUMB_STAGES_TRANSMIT_H
#define NETPLUMB_STAGES_TRANSMIT_H

#include "tables.h"

/* The packet's rows, up to the driver's return. */
static __always_inline void
transmitted_rows(__u32 in, const struct stages_packet *p, struct cursor cursor)
{
	__u64 end = p->at[STAGES_AT_SENT];

	if (p->direction == STAGES_FORWARD) {
		if (p->at[STAGES_AT_FIRST] != p->at[STAGES_AT_RECEIVED])
			mark_at(in,
				p->flags & STAGES_GRO ? STAGES_F_GRO
						      : STAGES_F_BACKLOG,
				p, &cursor, STAGES_AT_RECEIVED);
		mark_at(in, STAGES_F_FORWARD, p, &cursor, STAGES_AT_QUEUE);
		mark_at(in, STAGES_F_ENQUEUE, p, &cursor, STAGES_AT_ENQUEUED);
		mark_at(in, STAGES_F_QDISC, p, &cursor, STAGES_AT_DEQUEUED);
		mark_at(in, STAGES_F_DEVICE, p, &cursor, STAGES_AT_START);
		mark_at(in, STAGES_F_DRIVER, p, &cursor, STAGES_AT_SENT);
		if (end > cursor.ns)
			mark_at(in, STAGES_F_UNACCOUNTED, p, &cursor,
				STAGES_AT_SENT);
		return;
	}
	if (p->at[STAGES_AT_FIRST])
		mark_at(in, STAGES_T_CALL, p, &cursor, STAGES_AT_QUEUE);
	mark_at(in, STAGES_T_ENQUEUE, p, &cursor, STAGES_AT_ENQUEUED);
	mark_at(in, STAGES_T_QDISC, p, &cursor, STAGES_AT_DEQUEUED);
	mark_at(in, STAGES_T_DEVICE, p, &cursor, STAGES_AT_START);
	mark_at(in, STAGES_T_DRIVER, p, &cursor, STAGES_AT_SENT);
	if (end > cursor.ns)
		mark_at(in, STAGES_T_UNACCOUNTED, p, &cursor, STAGES_AT_SENT);
}

/* The driver has returned just now. */
static __always_inline void transmitted(struct stages_cpu *c,
					const struct stages_packet *p)
{
	struct cursor cursor = { p->at[STAGES_AT_FIRST], STAGES_AT_FIRST, 0 };
	__u64 end = p->at[STAGES_AT_SENT];
	__u32 in = this_half();

	if (!cursor.ns) {
		cursor.ns = p->at[STAGES_AT_QUEUE];
		cursor.at = STAGES_AT_QUEUE;
	}
	if (cursor.ns < window.opened_ns) {
		count(c, p->proto, STAGES_P_BEFORE, p->segs);
		return;
	}
	if (p->sample) {
		apart_begin(c);
		note_at(c, p, STAGES_AT_SENT, end);
		cursor.own = 1;
		transmitted_rows(in, p, cursor);
		cursor.own = 0;
		apart_end(c);
	}
	transmitted_rows(in, p, cursor);
	record(in,
	       p->direction == STAGES_FORWARD ? STAGES_F_TOTAL : STAGES_T_TOTAL,
	       p, end - cursor.ns);
}

/* The hardware has completed it. */
static __always_inline void completed(struct stages_packet *p, __u64 now)
{
	__u64 sent = p->at[STAGES_AT_SENT];
	__u32 in = this_half();

	if (sent && sent >= window.opened_ns)
		record(in,
		       p->direction == STAGES_FORWARD ? STAGES_F_COMPLETION
						      : STAGES_T_COMPLETION,
		       p, now - sent);
	tell(p, STAGES_SAW_FREED, now);
	traced_out(p);
	p->head = 0;
}

/* The packet may be segmented on this CPU. */
static __always_inline void may_be_cut(struct stages_cpu *c,
				       const struct stages_packet *p)
{
	if (p->segs > 1) {
		c->parent = *p;
		c->segments_left = p->segs;
	}
}

HOOK(net_dev_queue, struct sk_buff *skb)
{
	struct stages_packet *p, *from = NULL, begun = {};
	struct stages_task *t = NULL;
	__u32 where, depth;
	struct what w = {};
	__u64 head, now;

	head = number(c, skb->head);
	/* A device on top of another: it is already being transmitted. */
	depth = c->depth - 1;
	if (depth < STAGES_DEPTH && c->driving[depth].skb == (__u64)skb) {
		c->driving[depth].head = 0;
		return;
	}
	if (skb->skb_iif) {
		from = find(&rx, head, &where);
		if (!from && c->current_skb == (__u64)skb) {
			/* Its head was reallocated for headroom. */
			from = find(&rx, c->current_head, &where);
		}
		if (from)
			begun = *from;
	}
	if (!from && !window.admits) {
		forget(&tx, head);
		return;
	}
	if (!classify_out(skb, &w)) {
		/* A filter by device may have matched it before. */
		if (!from) {
			forget(&tx, head);
			return;
		}
		w.segs = begun.segs;
		w.bytes = begun.bytes;
		w.proto = begun.proto;
		w.family = begun.family;
		w.data = 1;
	}
	if (!w.data) {
		count(c, w.proto, STAGES_P_TX_NO_DATA, 1);
		forget(&tx, head);
		return;
	}
	if (from) {
		from->head = 0;
	} else if (in_task(c)) {
		t = task_of(bpf_get_current_pid_tgid());
		if (t && t->call != STAGES_SENDS)
			t = NULL;
	}
	now = bpf_ktime_get_ns();
	/* Its call may have begun in a pause. */
	if (!from && now < window.settled_ns &&
	    (!t || t->since_ns < window.opened_ns)) {
		forget(&tx, head);
		return;
	}
	if (!from && !t &&
	    (w.proto != STAGES_TCP || config.pid || config.cgroup)) {
		/* A reply by the kernel, or a call that is not followed. */
		count(c, w.proto, STAGES_P_TX_KERNEL, w.segs);
		forget(&tx, head);
		return;
	}
	p = claim(&tx, c, head, now, &where);
	if (!p)
		return;
	if (from) {
		p->direction = STAGES_FORWARD;
		p->at[STAGES_AT_FIRST] = begun.at[STAGES_AT_FIRST];
		p->at[STAGES_AT_RECEIVED] = begun.at[STAGES_AT_RECEIVED];
		p->flags = begun.flags;
		p->traced = begun.traced;
		p->sample = begun.sample;
	} else {
		p->direction = STAGES_TX;
		if (t)
			p->at[STAGES_AT_FIRST] = t->since_ns;
		choose(p, 0, now);
		if (t)
			tell(p, STAGES_SAW_CALL, t->since_ns);
	}
	if (from)
		reach(c, p, STAGES_AT_QUEUE, now);
	else
		reach_first(c, p, STAGES_AT_QUEUE, now, t ? &t->since : NULL);
	p->proto = w.proto;
	p->family = w.family;
	p->segs = w.segs;
	p->bytes = w.bytes;
	tell(p, STAGES_SAW_QUEUE, now);
	if (from) {
		count(c, w.proto, STAGES_P_FORWARD_QUEUE, w.segs);
	} else {
		count(c, w.proto, STAGES_P_TX_QUEUE, w.segs);
		count(c, w.proto, STAGES_P_TX_BYTES, w.bytes);
	}
	c->segments_left = 0;
	may_be_cut(c, p);
}

HOOK(qdisc_enqueue, struct Qdisc *qdisc, const struct netdev_queue *txq,
     struct sk_buff *skb)
{
	struct stages_packet *p;
	__u32 where;

	if (!skb)
		return;
	p = find(&tx, number(c, skb->head), &where);
	/* Another CPU may have dequeued it already. */
	if (!p || p->at[STAGES_AT_DEQUEUED] || p->at[STAGES_AT_START])
		return;
	reach(c, p, STAGES_AT_ENQUEUED, bpf_ktime_get_ns());
	tell(p, STAGES_SAW_ENQUEUED, p->at[STAGES_AT_ENQUEUED]);
}

HOOK(qdisc_dequeue, struct Qdisc *qdisc, const struct netdev_queue *txq,
     int packets, struct sk_buff *skb)
{
	struct stages_packet *p;
	__u32 where;
	__u64 now;
	int i;

	if (!skb)
		return;
	now = bpf_ktime_get_ns();
	for (i = 0; i < STAGES_BULK; i++) {
		if (!skb || i >= packets)
			break;
		p = find(&tx, number(c, skb->head), &where);
		if (p && !p->at[STAGES_AT_DEQUEUED]) {
			reach(c, p, STAGES_AT_DEQUEUED, now);
			tell(p, STAGES_SAW_DEQUEUED, now);
			may_be_cut(c, p);
		}
		skb = skb->next;
	}
}

/* A segment of the packet that was last enqueued or dequeued here. */
static __always_inline struct stages_packet *
segment(struct stages_cpu *c, struct sk_buff *skb, __u64 now, __u32 *where)
{
	struct stages_packet *p;
	struct what w = {};
	__u64 head = number(c, skb->head);

	if (!c->segments_left || !classify_out(skb, &w) ||
	    w.proto != c->parent.proto || w.family != c->parent.family)
		return NULL;
	/* The original packet no longer exists. */
	forget(&tx, c->parent.head);
	p = claim(&tx, c, head, now, where);
	if (!p)
		return NULL;
	*p = c->parent;
	p->head = head;
	/* One sample is not for several packets. */
	p->sample = 0;
	p->segs = w.segs;
	p->bytes = w.bytes;
	c->segments_left -= w.segs < c->segments_left ? w.segs
						      : c->segments_left;
	return p;
}

HOOK(net_dev_start_xmit, struct sk_buff *skb, struct net_device *dev)
{
	struct stages_packet *p;
	__u32 where = 0, depth;
	__u64 head, now;

	head = number(c, skb->head);
	p = find(&tx, head, &where);
	if (!p && !c->segments_left)
		return;
	now = bpf_ktime_get_ns();
	if (!p) {
		p = segment(c, skb, now, &where);
		if (!p)
			return;
	} else {
		c->segments_left = 0;
	}
	/* The hardware has it already: another packet at the same address. */
	if (p->flags & STAGES_IN_HARDWARE) {
		p->head = 0;
		return;
	}
	depth = c->depth;
	if (depth >= STAGES_DEPTH) {
		c->losses[STAGES_L_NESTED]++;
		p->head = 0;
		return;
	}
	reach(c, p, STAGES_AT_START, now);
	tell(p, STAGES_SAW_START, now);
	count(c, p->proto,
	      p->direction == STAGES_FORWARD ? STAGES_P_FORWARD_START
					     : STAGES_P_TX_START,
	      p->segs);
	c->driving[depth].skb = (__u64)skb;
	c->driving[depth].head = head;
	c->driving[depth].slot = where;
	c->depth = depth + 1;
	if (config.has_pauses && !dev->dev.parent)
		pass_on(head);
}

HOOK(net_dev_xmit, struct sk_buff *skb, int rc, struct net_device *dev)
{
	struct stages_packet *p;
	struct stages_task *t;
	__u32 where, depth;
	__u64 head, now;

	/* The packet itself may be freed: it is not read. */
	depth = c->depth - 1;
	if (depth >= STAGES_DEPTH || c->driving[depth].skb != (__u64)skb)
		return;
	c->depth = depth;
	c->driving[depth].skb = 0;
	head = c->driving[depth].head;
	where = c->driving[depth].slot;
	if (!head)
		return;
	p = bpf_map_lookup_elem(&tx, &where);
	/* Dropped by the driver, so kfree_skb reports it. */
	if (!p || p->head != head)
		return;
	if (rc) {
		/* Busy: it will be retried. */
		p->at[STAGES_AT_START] = 0;
		return;
	}
	now = bpf_ktime_get_ns();
	p->at[STAGES_AT_SENT] = now;
	transmitted(c, p);
	tell(p, STAGES_SAW_SENT, now);
	if (p->direction == STAGES_FORWARD) {
		count(c, p->proto, STAGES_P_FORWARD_SENT, p->segs);
	} else {
		count(c, p->proto, STAGES_P_TX_SENT, p->segs);
		if (in_task(c)) {
			t = task_of(bpf_get_current_pid_tgid());
			if (t && t->call == STAGES_SENDS) {
				t->since_ns = now;
				note(c, &t->since, now);
			}
		}
	}
	/*
	 * Hardware devices have a parent device, and free packets later.
	 * Virtual devices passed the packet to another device, or freed it.
	 */
	if (dev->dev.parent) {
		p->flags |= STAGES_IN_HARDWARE;
		hardware_seen = 1;
	} else {
		p->head = 0;
	}
}

#endif
