/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The socket's queue. From 6.18 on, no tracepoint shows which packet a UDP
 * reader took: it is assumed to be the next in order.
 */
#ifndef NETPLUMB_STAGES_SOCKET_H
#define NETPLUMB_STAGES_SOCKET_H

#include "receive.h"
#include "tables.h"

#define MSG_PEEK 2

static __always_inline struct stages_socket *place_of(__u64 sock)
{
	__u32 i = (sock >> 6) * 0x9e3779b97f4a7c15ULL >> 54;

	i &= STAGES_SOCKETS - 1;
	return bpf_map_lookup_elem(&sockets, &i);
}

/* The socket, if a packet of it was seen in this window. */
static __always_inline struct stages_socket *known(__u64 sock)
{
	struct stages_socket *s = place_of(sock);

	return s && s->sock == sock && s->opened_ns == window.opened_ns ? s
									: NULL;
}

static __always_inline struct stages_socket *socket_of(__u64 sock)
{
	struct stages_socket *s = place_of(sock);

	if (s && (s->sock != sock || s->opened_ns != window.opened_ns)) {
		s->sock = sock;
		s->opened_ns = window.opened_ns;
		s->read = 0;
		s->next = 0;
		s->end = 0;
	}
	return s;
}

static __always_inline struct stages_queued *entry_of(__u64 sock, __u64 place)
{
	__u32 i = slot_of(sock + (place << 6));

	return bpf_map_lookup_elem(&queue, &i);
}

/* Number of packets in the socket's two queues, possibly slightly outdated. */
static __always_inline __u32 length_of(struct sock *sk)
{
	__u32 length = 0;

	bpf_core_read(&length, sizeof(length),
		      &((struct udp_sock *)sk)->reader_queue.qlen);
	return length + sk->sk_receive_queue.qlen;
}

/*
 * The packet is the last of the socket's queue. Its index follows the
 * previous one's; packets that were queued before the first one are known from
 * the queue's length. If several CPUs fill the queue, one may report for all,
 * so the count is corrected when the queue is empty. At other times the length
 * is not reliable: it is counted twice for a moment by a reader that takes over
 * the queue.
 */
static __always_inline void enlist(struct stages_cpu *c, struct sock *sk,
				   struct stages_packet *p)
{
	__u64 sock = number(c, sk), place, read;
	struct stages_socket *s = socket_of(sock);
	struct stages_queued *q;
	__u32 length;

	if (!s)
		return;
	place = s->next;
	if (!place) {
		length = length_of(sk);
		place = length ? length - 1 : 0;
		s->first = place;
	} else if (place > s->read + 1 && length_of(sk) <= 1) {
		/*
		 * Read after the length: packets that a reader took were read
		 * by now.
		 */
		read = *(volatile __u64 *)&s->read;
		if (place > read + 1)
			place = read;
	}
	s->next = place + 1;
	s->end = place + 1;
	/*
	 * A reader on another CPU was faster, and is counted as unidentified.
	 */
	if (place < s->read)
		return;
	q = entry_of(sock, place);
	if (!q)
		return;
	q->sock = sock;
	q->place = place;
	q->packet = *p;
}

HOOK(sock_recv_length, struct sock *sk, int bytes, int flags)
{
	struct stages_packet *p;
	struct stages_socket *s;
	struct stages_queued *q;
	__u64 sock, place;
	__u32 where;

	if (udp_frees_seen || bytes < 0 || flags & MSG_PEEK ||
	    sk->sk_protocol != 17)
		return;
	sock = number(c, sk);
	s = known(sock);
	if (!s)
		return;
	place = s->read++;
	if (!s->next || place < s->first)
		return;
	/* After the followed packets. */
	if (!window.admits && place >= s->end)
		return;
	if (s->next <= place)
		s->next = place + 1;
	q = entry_of(sock, place);
	if (!q || q->sock != sock || q->place != place || !q->packet.head) {
		count(c, STAGES_UDP, STAGES_P_RX_USER, 1);
		c->losses[STAGES_L_UNMATCHED]++;
		return;
	}
	/* Already freed, so another packet may have its address. */
	p = find(&rx, q->packet.head, &where);
	if (p && p->at[STAGES_AT_FIRST] == q->packet.at[STAGES_AT_FIRST])
		p->head = 0;
	copied(&q->packet, 0, bpf_ktime_get_ns());
}

/* The packet that this CPU is processing was added to its socket's queue. */
static __always_inline void queued(struct stages_cpu *c, struct sock *sk)
{
	struct stages_packet *p;
	__u32 where;

	where = c->current_slot;
	p = bpf_map_lookup_elem(&rx, &where);
	if (!p || p->head != c->current_head || p->at[STAGES_AT_SOCKET])
		return;
	reach(c, p, STAGES_AT_SOCKET, bpf_ktime_get_ns());
	tell(p, STAGES_SAW_SOCKET, p->at[STAGES_AT_SOCKET]);
	count(c, p->proto, STAGES_P_RX_SOCKET, p->segs);
	if (sk && p->proto == STAGES_UDP && !udp_frees_seen)
		enlist(c, sk, p);
	c->current_head = 0;
}

/* A packet that is not followed was added to the queue of a followed socket. */
static __always_inline void pass_over(struct stages_cpu *c, struct sock *sk)
{
	struct stages_socket *s = known(number(c, sk));

	if (s && s->next)
		s->next++;
}

HOOK(sk_data_ready, struct sock *sk)
{
	__u16 protocol;

	protocol = sk->sk_protocol;
	if (!c->current_head) {
		if (protocol == 17 && !udp_frees_seen)
			pass_over(c, sk);
		return;
	}
	/* Not another kind of socket that is notified meanwhile. */
	if (protocol != 1 && protocol != 6 && protocol != 17 &&
	    protocol != 58 && protocol != 255)
		return;
	queued(c, sk);
}

/* Without sk_data_ready: the wake-up that it triggers. */
HOOK(sched_waking, struct task_struct *task)
{
	if (!c->current_head || !task_of(task->pid))
		return;
	queued(c, NULL);
}

/*
 * Also without it: the packets of a poll are complete. Otherwise a packet that
 * woke no reader would be matched with the reader's next wake-up, such as by a
 * timer.
 */
HOOK(napi_poll, void *napi, int work, int budget)
{
	c->current_head = 0;
}

#endif
