/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Receive: backlog or GRO, protocol, socket, reader.
 */
#ifndef NETPLUMB_STAGES_RECEIVE_H
#define NETPLUMB_STAGES_RECEIVE_H

#include "tables.h"

/* The packet's rows; `end` is the call's return or at least the copy. */
static __always_inline void received_rows(const struct stages_task *t,
					  const struct stages_packet *p,
					  __u64 end, __u32 own)
{
	__u64 begun = p->at[STAGES_AT_FIRST];
	__u64 socket = p->at[STAGES_AT_SOCKET], copy = p->at[STAGES_AT_COPY];
	struct cursor cursor = { begun, STAGES_AT_FIRST, own };
	__u32 in = this_half();

	if (p->at[STAGES_AT_RECEIVED] != begun)
		mark_at(in,
			p->flags & STAGES_GRO ? STAGES_R_GRO : STAGES_R_BACKLOG,
			p, &cursor, STAGES_AT_RECEIVED);
	mark_at(in, STAGES_R_LOCK, p, &cursor, STAGES_AT_OWNER);
	if (socket)
		mark_at(in, STAGES_R_PROTOCOL, p, &cursor, STAGES_AT_SOCKET);
	if (t) {
		__u64 enter = t->enter_ns, out = t->out_ns, run = t->run_ns;
		int woken = socket && out <= socket && run > socket;

		if (run > copy)
			run = 0;
		/*
		 * If the kernel has the tracepoint of the socket's queue and it
		 * was not hit, the division of the time is unknown.
		 */
		if (!socket && config.has_data_ready) {
			if (enter > cursor.ns)
				mark(in, STAGES_R_UNACCOUNTED, p, &cursor,
				     enter, STAGES_AT_ENTER);
			else
				mark_at(in, STAGES_R_UNACCOUNTED, p, &cursor,
					STAGES_AT_COPY);
		}
		/*
		 * Not running when the packet arrived, so it was woken for it.
		 */
		if (woken && run)
			mark(in, STAGES_R_WAKE, p, &cursor, run, STAGES_AT_RUN);
		if (enter > cursor.ns)
			mark(in, STAGES_R_QUEUE, p, &cursor, enter,
			     STAGES_AT_ENTER);
		if (!woken && run > cursor.ns)
			mark(in, STAGES_R_QUEUE, p, &cursor, run,
			     STAGES_AT_RUN);
		mark_at(in, STAGES_R_READ, p, &cursor, STAGES_AT_COPY);
		if (end > copy)
			mark(in, STAGES_R_RETURN, p, &cursor, end,
			     STAGES_AT_RETURN);
	} else {
		/* A reader without a known system call, such as io_uring. */
		mark_at(in, STAGES_R_QUEUE, p, &cursor, STAGES_AT_COPY);
	}
	if (end > cursor.ns)
		mark(in, STAGES_R_UNACCOUNTED, p, &cursor, end, STAGES_AT_NONE);
	if (!own)
		record(in, STAGES_R_TOTAL, p, end - begun);
}

/* A reader has it; `end` is the call's return or at least the copy. */
static __always_inline void received(struct stages_task *t,
				     struct stages_packet *p, __u64 end)
{
	__u64 copy = p->at[STAGES_AT_COPY];
	struct stages_cpu *c = this_cpu();

	p->head = 0;
	if (!c)
		return;
	if (p->at[STAGES_AT_FIRST] < window.opened_ns) {
		count(c, p->proto, STAGES_P_BEFORE, p->segs);
		return;
	}
	if (p->sample) {
		if (t) {
			noted_at(p, STAGES_AT_ENTER, &t->enter);
			noted_at(p, STAGES_AT_RUN, &t->run);
		}
		if (end > copy)
			note_at(c, p, STAGES_AT_RETURN, end);
		received_rows(t, p, end, 1);
	}
	received_rows(t, p, end, 0);
	if (end > copy)
		tell(p, STAGES_SAW_RETURN, end);
	traced_out(p);
}

/* A reader took it; it belongs to the reader's call from here on. */
static __always_inline void copied(struct stages_packet *p, __u32 bytes,
				   __u64 now)
{
	struct stages_packet mine = *p;
	struct stages_task *t;
	struct stages_cpu *c;
	__u64 head = mine.head;

	c = this_cpu();
	if (!c)
		return;
	if (p->head != head) {
		c->losses[STAGES_L_TORN]++;
		return;
	}
	p->head = 0;
	t = task_of(bpf_get_current_pid_tgid());
	if (t && t->call != STAGES_RECEIVES)
		t = NULL;
	if (!t && (config.pid || config.cgroup)) {
		count(c, mine.proto, STAGES_P_RX_OTHER, mine.segs);
		return;
	}
	if (mine.sample)
		reach(c, &mine, STAGES_AT_COPY, now);
	else
		reach_first(c, &mine, STAGES_AT_COPY, now, NULL);
	tell(&mine, STAGES_SAW_COPY, now);
	count(c, mine.proto, STAGES_P_RX_USER, mine.segs);
	count(c, mine.proto, STAGES_P_USER_BYTES, bytes);
	if (!t) {
		received(NULL, &mine, now);
		return;
	}
	/* One call for several packets: the previous one ends with its copy. */
	if (t->pending.head)
		received(t, &t->pending, t->pending.at[STAGES_AT_COPY]);
	t->pending = mine;
}

/*
 * Classify the packet on transmit, if a driver on this CPU is about to pass it
 * on, as veth and lo do: only the receiving device is unknown then.
 */
static __always_inline int handed_over(struct stages_cpu *c,
				       struct sk_buff *skb, __u64 head,
				       struct what *w)
{
	__u32 depth = c->depth - 1, where;
	struct stages_packet *p;

	if (depth >= STAGES_DEPTH || c->driving[depth].head != head)
		return 0;
	where = c->driving[depth].slot;
	p = bpf_map_lookup_elem(&tx, &where);
	if (!p || p->head != head || !device_matches(skb->dev))
		return 0;
	w->proto = p->proto;
	w->family = p->family;
	w->segs = p->segs;
	w->bytes = p->bytes;
	w->data = 1;
	return 1;
}

/* A packet is received; false if it is not followed. */
static __always_inline struct stages_packet *arrive(struct stages_cpu *c,
						    struct sk_buff *skb,
						    __u64 now, int event,
						    __u32 *where)
{
	__u64 head = number(c, skb->head);
	int sent = was_passed_on(head);
	struct stages_packet *p;
	struct what w = {};

	if (!handed_over(c, skb, head, &w) &&
	    ((!sent && !admits_strangers(now)) || !classify_in(skb, &w))) {
		forget(&rx, head);
		return NULL;
	}
	if (!w.data) {
		if (event == STAGES_SAW_RECEIVE)
			count(c, w.proto, STAGES_P_RX_NO_DATA, 1);
		forget(&rx, head);
		return NULL;
	}
	p = claim(&rx, c, head, now, where);
	if (!p)
		return NULL;
	reach_first(c, p, STAGES_AT_FIRST, now, NULL);
	p->direction = STAGES_RX;
	p->proto = w.proto;
	p->family = w.family;
	p->segs = w.segs;
	p->bytes = w.bytes;
	if (event == STAGES_SAW_GRO)
		p->flags = STAGES_GRO;
	choose(p, 1, now);
	tell(p, event, now);
	count(c, w.proto, STAGES_P_RX_DRIVER, w.segs);
	return p;
}

HOOK(netif_rx, struct sk_buff *skb)
{
	__u32 where;

	arrive(c, skb, bpf_ktime_get_ns(), STAGES_SAW_NETIF_RX, &where);
}

static __always_inline void gro(struct stages_cpu *c, struct sk_buff *skb)
{
	__u32 where;

	c->gro_head = 0;
	if (arrive(c, skb, bpf_ktime_get_ns(), STAGES_SAW_GRO, &where))
		c->gro_head = number(c, skb->head);
}

HOOK(napi_gro_receive_entry, struct sk_buff *skb)
{
	gro(c, skb);
}

HOOK(napi_gro_frags_entry, struct sk_buff *skb)
{
	gro(c, skb);
}

/* enum gro_result: the first two mean that it was merged into a held one. */
#define GRO_MERGED_FREE 1

static __always_inline void gro_exit(struct stages_cpu *c, int result)
{
	struct stages_packet *p;
	__u32 where;

	if (!c->gro_head)
		return;
	if (result >= 0 && result <= GRO_MERGED_FREE) {
		p = find(&rx, c->gro_head, &where);
		if (p) {
			count(c, p->proto, STAGES_P_RX_MERGED, p->segs);
			traced_out(p);
			p->head = 0;
		}
	}
	c->gro_head = 0;
}

HOOK(napi_gro_receive_exit, int result)
{
	gro_exit(c, result);
}

HOOK(napi_gro_frags_exit, int result)
{
	gro_exit(c, result);
}

HOOK(netif_receive_skb, struct sk_buff *skb)
{
	struct stages_packet *p;
	__u64 head, now;
	__u32 where;
	struct what w = {};

	head = number(c, skb->head);
	c->current_head = 0;
	p = find(&rx, head, &where);
	now = bpf_ktime_get_ns();
	if (p && p->at[STAGES_AT_RECEIVED]) {
		/*
		 * Seen again, as through a bridge: it continues. Or another
		 * packet has its address.
		 */
		if (skb->skb_iif)
			goto current;
		p = NULL;
	}
	if (!p) {
		p = arrive(c, skb, now, STAGES_SAW_RECEIVE, &where);
		if (!p)
			return;
	} else {
		/* Packets that GRO merged into it. */
		if (p->flags & STAGES_GRO && classify_in(skb, &w)) {
			p->segs = w.segs;
			p->bytes = w.bytes;
		}
		tell(p, STAGES_SAW_RECEIVE, now);
	}
	reach(c, p, STAGES_AT_RECEIVED, now);
	count(c, p->proto, STAGES_P_RX_RECEIVE, p->segs);
	count(c, p->proto, STAGES_P_RX_BYTES, p->bytes);
current:
	c->current_head = head;
	c->current_skb = (__u64)skb;
	c->current_slot = where;
}

HOOK(tcp_probe, struct sock *sk, struct sk_buff *skb)
{
	struct stages_packet *p;
	__u32 where;

	/* In a softirq, it is the packet that is being received. */
	if (!in_task(c))
		return;
	p = find(&rx, number(c, skb->head), &where);
	if (!p || p->at[STAGES_AT_SOCKET])
		return;
	/* It waited for the owner of the socket's lock. */
	reach(c, p, STAGES_AT_OWNER, bpf_ktime_get_ns());
	tell(p, STAGES_SAW_OWNER, p->at[STAGES_AT_OWNER]);
	c->current_head = p->head;
	c->current_slot = where;
}

HOOK(skb_copy_datagram_iovec, struct sk_buff *skb, int bytes)
{
	struct stages_packet *p;
	struct stages_task *t;
	__u64 head;
	__u32 where;

	head = number(c, skb->head);
	t = task_of(bpf_get_current_pid_tgid());
	p = find(&rx, head, &where);
	if (!p) {
		/*
		 * The rest of a packet, and what was merged into it in the
		 * queue.
		 */
		if (t && t->copying == head)
			count(c, STAGES_TCP, STAGES_P_USER_BYTES, bytes);
		return;
	}
	/*
	 * Other protocols are handled when packets are freed, after the copy.
	 */
	if (p->proto != STAGES_TCP)
		return;
	if (t)
		t->copying = head;
	copied(p, bytes, bpf_ktime_get_ns());
}

#endif
