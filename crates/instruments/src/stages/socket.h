/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The socket's queue. From 6.18 on, nothing tells which packet a reader of UDP
 * has taken: it is then the one whose turn it was.
 */
#ifndef NETPLUMB_STAGES_SOCKET_H
#define NETPLUMB_STAGES_SOCKET_H

#include "receive.h"
#include "tables.h"

#define MSG_PEEK 2

static __always_inline struct stages_socket *socket_of(__u64 sock)
{
	__u32 i = (sock >> 6) * 0x9e3779b97f4a7c15ULL >> 54;
	struct stages_socket *s;

	i &= STAGES_SOCKETS - 1;
	s = bpf_map_lookup_elem(&sockets, &i);
	if (s && (s->sock != sock || s->opened_ns != window.opened_ns)) {
		s->sock = sock;
		s->opened_ns = window.opened_ns;
		s->read = 0;
		s->next = 0;
	}
	return s;
}

static __always_inline struct stages_queued *entry_of(__u64 sock, __u64 place)
{
	__u32 i = slot_of(sock + (place << 6));

	return bpf_map_lookup_elem(&queue, &i);
}

/*
 * The packet is the last of the socket's queue. Its place shows from how many are
 * in it, so packets that were there before, or that are none of ours, do no harm;
 * but a reader takes a packet out a moment before it is seen to have read it, so
 * the place after the last one's holds too. The readers' own queue is looked at
 * first: packets move there from the other, and none is counted twice.
 */
static __always_inline void enlist(struct stages_cpu *c, struct sock *sk,
				   struct stages_packet *p)
{
	__u64 sock = number(c, sk), place;
	struct stages_socket *s = socket_of(sock);
	struct stages_queued *q;
	__u32 length = 0;

	bpf_core_read(&length, sizeof(length),
		      &((struct udp_sock *)sk)->reader_queue.qlen);
	length += sk->sk_receive_queue.qlen;
	if (!s)
		return;
	place = s->next;
	if (s->read + length > place + 1)
		place = s->read + length - 1;
	s->next = place + 1;
	if (place < s->read) {
		/* A reader on another CPU was faster than this. */
		c->losses[STAGES_L_UNMATCHED]++;
		count(c, p->proto, STAGES_P_RX_USER, p->segs);
		p->head = 0;
		return;
	}
	q = entry_of(sock, place);
	if (!q)
		return;
	q->sock = sock;
	q->place = place;
	q->head = p->head;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(stages_sock_recv_length, struct sock *sk, int bytes, int flags)
{
	struct stages_packet *p;
	struct stages_socket *s;
	struct stages_queued *q;
	struct stages_cpu *c;
	__u64 sock, place;
	__u32 where;

	c = begin(ctx);
	if (!c || udp_frees_seen || bytes < 0 || flags & MSG_PEEK ||
	    sk->sk_protocol != 17)
		return 0;
	sock = number(c, sk);
	s = socket_of(sock);
	if (!s)
		return 0;
	place = s->read++;
	if (s->next <= place)
		s->next = place + 1;
	q = entry_of(sock, place);
	if (!q || q->sock != sock || q->place != place || !q->head)
		return 0;
	p = find(&rx, q->head, &where);
	q->head = 0;
	if (p && p->proto == STAGES_UDP && p->at[STAGES_AT_SOCKET])
		copied(p, 0, bpf_ktime_get_ns());
	return 0;
}

/* The packet that this CPU has in hand is in its socket's queue. */
static __always_inline int queued(struct stages_cpu *c, struct sock *sk)
{
	struct stages_packet *p;
	__u32 where;

	where = c->current_slot;
	p = bpf_map_lookup_elem(&rx, &where);
	if (!p || p->head != c->current_head || p->at[STAGES_AT_SOCKET])
		return 0;
	p->at[STAGES_AT_SOCKET] = bpf_ktime_get_ns();
	tell(p, STAGES_SAW_SOCKET, p->at[STAGES_AT_SOCKET]);
	count(c, p->proto, STAGES_P_RX_SOCKET, p->segs);
	if (sk && p->proto == STAGES_UDP && !udp_frees_seen)
		enlist(c, sk, p);
	c->current_head = 0;
	return 0;
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(stages_sk_data_ready, struct sock *sk)
{
	struct stages_cpu *c;
	__u16 protocol;

	c = begin(ctx);
	if (!c || !c->current_head)
		return 0;
	protocol = sk->sk_protocol;
	/* Not another kind of socket that hears of something meanwhile. */
	if (protocol != 1 && protocol != 6 && protocol != 17 &&
	    protocol != 58 && protocol != 255)
		return 0;
	return queued(c, sk);
}

/* Where there is no sk_data_ready: the wake-up that it makes. */
SEC("tp_btf/sched_waking")
int BPF_PROG(stages_sched_waking, struct task_struct *task)
{
	struct stages_cpu *c;

	c = begin(ctx);
	if (!c || !c->current_head || !task_of(task->pid))
		return 0;
	return queued(c, NULL);
}

#endif
