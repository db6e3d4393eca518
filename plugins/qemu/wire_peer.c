// SPDX-License-Identifier: GPL-2.0-or-later
/* Exchanges frames between two QEMUs at their barriers. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire_peer.h"

/* A frame's header: what goes before its bytes. */
#define ABOUT_BYTES (sizeof(int64_t) + sizeof(uint32_t))

struct wire_peer wire_peer = { .host = "?", .socket = -1 };

void wire_fail(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "netplumb: wire of host %s: ", wire_peer.host);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	_exit(3);
}

struct frame *wire_new_frame(size_t bytes)
{
	struct frame *frame = malloc(sizeof(*frame) + bytes);

	if (!frame)
		wire_fail("out of memory");
	frame->next = NULL;
	frame->bytes = (uint32_t)bytes;
	return frame;
}

void wire_append(struct queue *queue, struct frame *frame)
{
	if (!queue->head)
		queue->tail = &queue->head;
	*queue->tail = frame;
	queue->tail = &frame->next;
	queue->frames++;
	queue->bytes += ABOUT_BYTES + frame->bytes;
}

struct frame *wire_take(struct queue *queue)
{
	struct frame *frame = queue->head;

	if (!frame)
		return NULL;
	queue->head = frame->next;
	queue->frames--;
	queue->bytes -= ABOUT_BYTES + frame->bytes;
	return frame;
}

/*
 * Receive all that is wanted, and meanwhile send what is left; at the end, all of
 * it. Neither side may wait for room in the socket while the other one does, so
 * before the end nothing is sent once there is nothing more to receive. Sending
 * comes first, as the other one may be waiting for it.
 */
static void exchange(const uint8_t **out, size_t *left, uint8_t *in,
		     size_t wanted, bool is_end)
{
	while (wanted || (is_end && *left)) {
		struct pollfd pollfd = { .fd = wire_peer.socket };
		ssize_t n;

		if (*left) {
			n = send(wire_peer.socket, *out, *left,
				 MSG_DONTWAIT | MSG_NOSIGNAL);
			if (n > 0) {
				*out += n;
				*left -= (size_t)n;
				continue;
			}
			if (errno != EAGAIN && errno != EINTR)
				wire_fail("the other host has ended: %s",
					  strerror(errno));
			pollfd.events |= POLLOUT;
		}
		if (wanted) {
			n = recv(wire_peer.socket, in, wanted, MSG_DONTWAIT);
			if (!n)
				wire_fail("the other host has ended");
			if (n > 0) {
				in += n;
				wanted -= (size_t)n;
				continue;
			}
			if (errno != EAGAIN && errno != EINTR)
				wire_fail("the other host has ended: %s",
					  strerror(errno));
			pollfd.events |= POLLIN;
		}
		/*
		 * However long that takes: plumb ends hosts that don't go on,
		 * and each ends with the other.
		 */
		poll(&pollfd, 1, -1);
	}
}

static void pack(struct queue *queue, uint8_t *at)
{
	struct frame *frame;

	while ((frame = wire_take(queue))) {
		memcpy(at, &frame->at_ns, sizeof(frame->at_ns));
		at += sizeof(frame->at_ns);
		memcpy(at, &frame->bytes, sizeof(frame->bytes));
		at += sizeof(frame->bytes);
		memcpy(at, frame->data, frame->bytes);
		at += frame->bytes;
		free(frame);
	}
}

/* Returns when the first of them arrives. */
static int64_t unpack(struct queue *queue, const uint8_t *at, uint32_t frames)
{
	int64_t first_ns = NEVER_NS;

	for (uint32_t i = 0; i < frames; i++) {
		int64_t at_ns;
		uint32_t bytes;
		struct frame *frame;

		memcpy(&at_ns, at, sizeof(at_ns));
		at += sizeof(at_ns);
		memcpy(&bytes, at, sizeof(bytes));
		at += sizeof(bytes);
		frame = wire_new_frame(bytes);
		frame->at_ns = at_ns;
		memcpy(frame->data, at, bytes);
		at += bytes;
		wire_append(queue, frame);
		if (at_ns < first_ns)
			first_ns = at_ns;
	}
	return first_ns;
}

static uint8_t *room(size_t bytes)
{
	uint8_t *room = malloc(bytes + 1);

	if (!room)
		wire_fail("out of memory");
	return room;
}

void wire_to_peer(struct frame *frame)
{
	wire_append(&wire_peer.outgoing, frame);
	if (frame->at_ns < wire_peer.first_outgoing_ns)
		wire_peer.first_outgoing_ns = frame->at_ns;
}

struct hello wire_exchange(struct hello own, struct queue *incoming,
			   int64_t *first_ns)
{
	struct queue *outgoing = &wire_peer.outgoing;
	size_t left = sizeof(own) + outgoing->bytes;
	uint8_t *out = room(left);
	const uint8_t *at = out;
	struct hello other;
	uint8_t *in;

	own.frames = outgoing->frames;
	own.bytes = (uint32_t)outgoing->bytes;
	memcpy(out, &own, sizeof(own));
	pack(outgoing, out + sizeof(own));
	wire_peer.first_outgoing_ns = NEVER_NS;
	exchange(&at, &left, (uint8_t *)&other, sizeof(other), false);
	if (other.step != own.step)
		wire_fail("the other host is at barrier %llu, this one at %llu",
			  (unsigned long long)other.step,
			  (unsigned long long)own.step);
	in = room(other.bytes);
	exchange(&at, &left, in, other.bytes, true);
	*first_ns = unpack(incoming, in, other.frames);
	free(in);
	free(out);
	return other;
}
