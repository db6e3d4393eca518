/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Frames on their way, and the socket over which two QEMUs exchange them. */
#ifndef NETPLUMB_WIRE_PEER_H
#define NETPLUMB_WIRE_PEER_H

#include <stddef.h>
#include <stdint.h>

/* Some years. */
#define NEVER_NS (INT64_MAX / 4)

struct frame {
	struct frame *next;
	int64_t at_ns; /* of arrival, since the beginning */
	uint32_t bytes;
	uint8_t data[];
};

struct queue {
	struct frame *head;
	struct frame **tail;
	uint32_t frames;
	size_t bytes; /* of them all, with each one's header */
};

/* What precedes the frames of a barrier. */
struct hello {
	uint64_t step;
	uint32_t frames;
	uint32_t bytes; /* of all that follows */
	uint32_t ends;	/* whether the sender wants to disconnect */
	uint32_t reserved;
	int64_t quiet_until_ns; /* it sends nothing before, if nothing arrives */
};

struct wire_peer {
	const char *host; /* the name of this one, for errors */
	int socket;
	struct queue outgoing;
	int64_t first_outgoing_ns; /* when the first of them arrives */
};

extern struct wire_peer wire_peer;

/* End this QEMU, and by that the other one. */
void __attribute__((noreturn, format(printf, 1, 2)))
wire_fail(const char *format, ...);

struct frame *wire_new_frame(size_t bytes);
void wire_append(struct queue *queue, struct frame *frame);
struct frame *wire_take(struct queue *queue);

/* A frame is on its way to an end in another QEMU: it goes at the next barrier. */
void wire_to_peer(struct frame *frame);

/*
 * Both hosts are at the same barrier: send `own` and what is outgoing, and
 * append what comes, whose first arrives at `first_ns`. Returns the other one's hello.
 */
struct hello wire_exchange(struct hello own, struct queue *incoming,
			   int64_t *first_ns);

#endif
