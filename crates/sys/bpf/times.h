/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A distribution of times, as in crates/model/src/span.rs: of `stages` and
 * `spans`. Programs of `functions`, which run far more often, find the same
 * buckets by a table of logarithms (bucket_of() in functions/runtime.h).
 */
#ifndef NETPLUMB_TIMES_H
#define NETPLUMB_TIMES_H

#define TIMES_SUB_BITS 4
#define TIMES_BUCKETS 512

/* Each instrument declares the same by its own name, for Rust's bindings. */
struct times_of {
	__u64 count;
	__u64 total_ns;
	/* Undefined while `count` is 0. */
	__u64 min_ns;
	__u64 max_ns;
	__u64 buckets[TIMES_BUCKETS];
};

/* The bucket of a time. */
static __always_inline __u32 times_bucket(__u64 ns)
{
	__u32 octave = 0, b;
	__u64 v = ns;

	if (ns < 1 << TIMES_SUB_BITS)
		return ns;
	if (v >> 32) {
		v >>= 32;
		octave = 32;
	}
	if (v >> 16) {
		v >>= 16;
		octave += 16;
	}
	if (v >> 8) {
		v >>= 8;
		octave += 8;
	}
	if (v >> 4) {
		v >>= 4;
		octave += 4;
	}
	if (v >> 2) {
		v >>= 2;
		octave += 2;
	}
	if (v >> 1)
		octave += 1;
	b = (octave - TIMES_SUB_BITS + 1) << TIMES_SUB_BITS;
	b += ns >> (octave - TIMES_SUB_BITS) & ((1 << TIMES_SUB_BITS) - 1);
	return b < TIMES_BUCKETS ? b : TIMES_BUCKETS - 1;
}

static __always_inline void times_add(struct times_of *t, __u64 ns)
{
	__u32 b = times_bucket(ns);

	if (!t->count || ns < t->min_ns)
		t->min_ns = ns;
	if (ns > t->max_ns)
		t->max_ns = ns;
	t->count++;
	t->total_ns += ns;
	if (b < TIMES_BUCKETS)
		t->buckets[b]++;
}

/* Adds a time to a distribution by whichever name. */
#define ADD_TIME(to, ns)                                                 \
	({                                                               \
		_Static_assert(sizeof(*(to)) == sizeof(struct times_of), \
			       "a distribution of times");               \
		times_add((struct times_of *)(to), ns);                  \
	})

#endif
