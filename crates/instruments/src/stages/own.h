/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The time that the programs themselves take of a stage.
 *
 * In one block of runs of 16, by CPU, each run is timed, and a packet that is
 * met there has a sample: how much of that CPU's time was the programs' own
 * when it reached each point. What was added between two points, on one CPU
 * and in one block, is in the stage between them. It costs two readings of the
 * clock a run, so that timing all of them would add what it is to find.
 */
#ifndef NETPLUMB_STAGES_OWN_H
#define NETPLUMB_STAGES_OWN_H

#include "stages.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STAGES_SAMPLES);
	__type(key, __u32);
	__type(value, struct stages_sample);
} samples SEC(".maps");

/* By row, class and family, as in a half of `times`. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, STAGES_KEYS);
	__type(key, __u32);
	__type(value, struct stages_own);
} own SEC(".maps");

/* The bits of a CPU's number, above the count's. */
#define STAGES_OWN_CPU 20
#define STAGES_OWN_COUNTED ((1 << STAGES_OWN_CPU) - 1)

static __always_inline __u32 numbered(__u32 n)
{
	return (bpf_get_smp_processor_id() + 1) << STAGES_OWN_CPU |
	       (n & STAGES_OWN_COUNTED);
}

/* What was noted before is not comparable with what comes. */
static __always_inline void renew(struct stages_cpu *c)
{
	c->timing = numbered(++c->block);
}

/* A run of a program begins. */
static __always_inline void own_begin(struct stages_cpu *c)
{
	__u32 at = c->hits++ & (STAGES_OWN_EVERY - 1);
	__u64 reading_ns;

	if (at >= STAGES_OWN_BLOCK) {
		c->timing = 0;
		return;
	}
	if (!at) {
		renew(c);
		c->apart_ns = bpf_ktime_get_ns();
		reading_ns = bpf_ktime_get_ns() - c->apart_ns;
		/* The least of late ones: others were interrupted. */
		if (c->clock_ns && c->clock_ns < reading_ns)
			c->clock_ns++;
		else
			c->clock_ns = reading_ns;
	}
	c->begun_ns = bpf_ktime_get_ns();
}

/*
 * What a sampled packet costs more than others is left out: it begins here, and
 * what is noted until it ends is as of before.
 */
static __always_inline void apart_begin(struct stages_cpu *c)
{
	if (c->timing)
		c->apart_ns = bpf_ktime_get_ns();
}

static __always_inline void apart_end(struct stages_cpu *c)
{
	/* With this reading and that one, half of each is between them. */
	if (c->timing)
		c->begun_ns += bpf_ktime_get_ns() - c->apart_ns + c->clock_ns;
}

/* It ends; `hits` is what it made of the number. */
static __always_inline void own_end(struct stages_cpu *c, __u64 hits)
{
	__u64 took_ns;

	c->ended++;
	if (!c->timing)
		return;
	took_ns = bpf_ktime_get_ns() - c->begun_ns;
	if (c->hits != hits || took_ns > STAGES_OWN_MOST_NS) {
		/* An interrupt was within it, or the CPU was away. */
		renew(c);
		return;
	}
	c->own_ns += took_ns;
	c->timed++;
}

static __always_inline void note(const struct stages_cpu *c,
				 struct stages_note *n, __u64 now)
{
	n->where = c->timing;
	if (!c->timing)
		return;
	n->own_ns = c->own_ns + (now - c->begun_ns);
	n->hits = c->hits;
}

/* The slot of a sample, whichever has it now. */
static __always_inline struct stages_sample *slot_of_sample(__u32 id)
{
	__u32 i = (id >> STAGES_OWN_CPU & 63) << 5 | (id & 31);

	return bpf_map_lookup_elem(&samples, &i);
}

static __always_inline struct stages_sample *sample_of(__u32 id)
{
	struct stages_sample *s = slot_of_sample(id);

	return s && s->id == id ? s : NULL;
}

/* A sample for a packet that has none, if this run is timed. */
static __always_inline void sample(struct stages_cpu *c,
				   struct stages_packet *p)
{
	struct stages_sample *s;
	__u32 id;

	if (!c->timing)
		return;
	id = numbered(++c->samples);
	s = slot_of_sample(id);
	if (!s)
		return;
	__builtin_memset(s, 0, sizeof(*s));
	s->id = id;
	p->sample = id;
}

/* Note what is the programs' own at a point of a packet's path. */
static __always_inline void note_at(const struct stages_cpu *c,
				    const struct stages_packet *p, __u32 point,
				    __u64 now)
{
	struct stages_sample *s;

	if (!p->sample)
		return;
	s = sample_of(p->sample);
	if (s)
		note(c, &s->at[point & (STAGES_NOTES - 1)], now);
}

/* The same of what was noted with a task. */
static __always_inline void noted_at(const struct stages_packet *p, __u32 point,
				     const struct stages_note *n)
{
	struct stages_sample *s;

	if (!p->sample)
		return;
	s = sample_of(p->sample);
	if (s)
		s->at[point & (STAGES_NOTES - 1)] = *n;
}

/* The packet is at a point of its path. */
static __always_inline void reach(struct stages_cpu *c, struct stages_packet *p,
				  __u32 point, __u64 now)
{
	p->at[point] = now;
	if (!p->sample)
		return;
	apart_begin(c);
	note_at(c, p, point, now);
	apart_end(c);
}

/* The same of the first point that is noted; `before`, of an earlier one. */
static __always_inline void reach_first(struct stages_cpu *c,
					struct stages_packet *p, __u32 point,
					__u64 now,
					const struct stages_note *before)
{
	p->at[point] = now;
	if (!c->timing)
		return;
	apart_begin(c);
	sample(c, p);
	if (before)
		noted_at(p, STAGES_AT_FIRST, before);
	note_at(c, p, point, now);
	apart_end(c);
}

/*
 * Add what is the programs' own from one point to another to its row. Not
 * static: the verifier looks at it once, and not at every call.
 */
__noinline int owe(__u32 id, __u32 key, __u32 from, __u32 to)
{
	const struct stages_sample *s = sample_of(id);
	const struct stages_note *a, *b;
	struct stages_own *o;
	__s32 own_ns;

	if (!s)
		return 0;
	a = &s->at[from & (STAGES_NOTES - 1)];
	b = &s->at[to & (STAGES_NOTES - 1)];
	if (!a->where || a->where != b->where)
		return 0;
	o = bpf_map_lookup_elem(&own, &key);
	if (!o)
		return 0;
	/* Within one run, what is apart may be more than the rest. */
	own_ns = b->own_ns - a->own_ns;
	o->count++;
	if (own_ns > 0)
		o->own_ns += own_ns;
	o->hits += (__u32)(b->hits - a->hits);
	return 0;
}

#endif
