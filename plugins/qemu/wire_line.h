/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A direction of the wire: when what is put on it arrives. */
#ifndef NETPLUMB_WIRE_LINE_H
#define NETPLUMB_WIRE_LINE_H

#include <stdint.h>

/* Shorter frames are padded by a NIC (IEEE 802.3: 64 with FCS). */
#define MIN_FRAME 60

#define PS_PER_NS 1000

struct wire_line {
	uint64_t bits_per_s;
	int64_t delay_ns;
	int64_t jitter_ns;
	uint64_t loss_ppb; /* of a billion frames */
	uint32_t overhead_bytes;
	uint32_t max_bytes; /* of a frame; 0 for any */
	uint64_t random;
	int log;

	int64_t busy_until_ps;
	int64_t last_arrival_ns;
};

extern struct wire_line wire_line;

/* Nothing is on it yet. */
void wire_line_clear(void);

/* How long so many bytes, and what a wire adds to them, occupy it. */
int64_t wire_occupied_ps(uint32_t bytes);

/*
 * A frame is put on it: when does it arrive? -1 if it never does. Counted in
 * `values`, as enum wire_value has them.
 */
int64_t wire_cross(int64_t now_ns, uint32_t bytes, uint64_t *values);

/* Say in the log that the hosts go on, though they may send nothing. */
void wire_log_time(void);

#endif
