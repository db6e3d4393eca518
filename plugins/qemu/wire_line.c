// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Works out when frames arrive, and logs it: who reads the log checks it by an
 * arithmetic of its own.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "wire.h"
#include "wire_line.h"
#include "wire_peer.h"

struct wire_kind wire_kind = {
	.bits_per_s = 1000000000,
	.delay_ns = 1000,
	.overhead_bytes = 24,
};

void wire_line_clear(struct wire_line *line)
{
	line->busy_until_ps = 0;
	line->last_arrival_ns = 0;
}

/* splitmix64 */
static uint64_t draw(struct wire_line *line)
{
	uint64_t z = line->random += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* How long these bytes, and what a wire adds to them, occupy the wire. */
int64_t wire_occupied_ps(uint32_t bytes)
{
	uint64_t bits = 8 * ((uint64_t)bytes + wire_kind.overhead_bytes);

	return (int64_t)((unsigned __int128)bits * 1000000000000u /
			 wire_kind.bits_per_s);
}

static int64_t ceil_ns(int64_t ps)
{
	return (ps + PS_PER_NS - 1) / PS_PER_NS;
}

static void log_entry(const struct wire_line *line, struct wire_entry entry)
{
	if (line->log >= 0 &&
	    write(line->log, &entry, sizeof(entry)) != sizeof(entry))
		wire_fail("can't write the log: %s", strerror(errno));
}

int64_t wire_cross(struct wire_line *line, int64_t now_ns, uint32_t bytes,
		   uint64_t *values)
{
	int64_t now_ps = now_ns * PS_PER_NS;
	int64_t begin_ps = line->busy_until_ps > now_ps ? line->busy_until_ps
							: now_ps;
	int64_t occupied = wire_occupied_ps(bytes);
	int64_t waited_ns = (begin_ps - now_ps) / PS_PER_NS;
	int64_t arrival_ns;

	line->busy_until_ps = begin_ps + occupied;
	arrival_ns = ceil_ns(line->busy_until_ps) + wire_kind.delay_ns;
	if (wire_kind.jitter_ns)
		arrival_ns += (int64_t)(draw(line) %
					((uint64_t)wire_kind.jitter_ns + 1));
	/* A wire keeps the order of frames. */
	if (arrival_ns < line->last_arrival_ns)
		arrival_ns = line->last_arrival_ns;
	values[WIRE_FRAMES]++;
	values[WIRE_BYTES] += bytes + wire_kind.overhead_bytes;
	values[WIRE_BUSY_NS] = (uint64_t)((values[WIRE_BYTES] *
					   (unsigned __int128)8000000000u) /
					  wire_kind.bits_per_s);
	if (waited_ns > (int64_t)values[WIRE_LONGEST_NS])
		values[WIRE_LONGEST_NS] = (uint64_t)waited_ns;
	if (wire_kind.max_bytes && bytes > wire_kind.max_bytes) {
		values[WIRE_TOO_LONG]++;
		arrival_ns = -1;
	} else if (wire_kind.loss_ppb &&
		   draw(line) % 1000000000u < wire_kind.loss_ppb) {
		values[WIRE_LOST]++;
		arrival_ns = -1;
	} else {
		line->last_arrival_ns = arrival_ns;
	}
	log_entry(line, (struct wire_entry){
				.begin_ps = begin_ps,
				.arrival_ns = arrival_ns,
				.bytes = bytes,
			});
	return arrival_ns;
}

void wire_log_time(const struct wire_line *line)
{
	log_entry(line, (struct wire_entry){ 0 });
}

void wire_log_arrival(const struct wire_line *line, int64_t now_ns)
{
	log_entry(line, (struct wire_entry){
				.arrival_ns = now_ns,
				.arrived = 1,
			});
}
