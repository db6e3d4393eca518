/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A direction of the wire: when what is put on it arrives. */
#ifndef NETPLUMB_WIRE_LINE_H
#define NETPLUMB_WIRE_LINE_H

#include <stdint.h>

/* Shorter frames are padded by a NIC (IEEE 802.3: 64 with FCS). */
#define MIN_FRAME 60

#define PS_PER_NS 1000

/* What both directions of all wires have. */
struct wire_kind {
	uint64_t bits_per_s;
	int64_t delay_ns;
	int64_t jitter_ns;
	uint64_t loss_ppb; /* of a billion frames */
	uint32_t overhead_bytes;
	uint32_t max_bytes; /* of a frame; 0 for any */
};

extern struct wire_kind wire_kind;

struct wire_line {
	uint64_t random;
	int log;

	int64_t busy_until_ps;
	int64_t last_arrival_ns;
};

/* Nothing is on it yet. */
void wire_line_clear(struct wire_line *line);

/* How long these bytes, and what a wire adds to them, occupy it. */
int64_t wire_occupied_ps(uint32_t bytes);

/*
 * A frame is put on it: when does it arrive? -1 if it never does. Counted in
 * `values`, as enum wire_value has them.
 */
int64_t wire_cross(struct wire_line *line, int64_t now_ns, uint32_t bytes,
		   uint64_t *values);

/* Log that the hosts go on, though they may send nothing. */
void wire_log_time(const struct wire_line *line);

/* Log that the next frame has arrived. */
void wire_log_arrival(const struct wire_line *line, int64_t now_ns);

#endif
