/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Stacks, the tree of calling contexts, and its cells.
 *
 * All of them are in sections that the loader sizes for the machine, with a
 * power of two of entries. Indices are masked with a number that the loader
 * writes into the instruction, so there is no lookup, no bounds check and no
 * constant to load.
 */
#ifndef NETPLUMB_FUNCTIONS_RUNTIME_H
#define NETPLUMB_FUNCTIONS_RUNTIME_H

#include "functions.h"

/* The verifier allows adding a number to a pointer if it is masked. */
#define PATCHED_MASK_(x, magic) asm volatile("%0 &= " #magic : "+r"(x))
#define PATCHED_MASK(x, magic) PATCHED_MASK_(x, magic)
#define PATCHED_SHIFT_(x, magic) asm volatile("%0 <<= " #magic : "+r"(x))
#define PATCHED_SHIFT(x, magic) PATCHED_SHIFT_(x, magic)
#define PATCHED_NUMBER_(x, magic) asm volatile("%0 = " #magic : "=r"(x))
#define PATCHED_NUMBER(x, magic) PATCHED_NUMBER_(x, magic)
#define PATCHED_LOAD_(x, from, magic) \
	asm volatile("%0 = *(u64 *)(%1 + " #magic ")" : "=r"(x) : "r"(from))
#define PATCHED_LOAD(x, from, magic) PATCHED_LOAD_(x, from, magic)

/*
 * Hides a number's range from the compiler, which otherwise optimises more than
 * the verifier can follow.
 */
#define OPAQUE(x) asm volatile("" : "+r"(x))

struct functions_cpu cpus[1] SEC(".data.cpus");
struct functions_stack stacks[1] SEC(".data.stacks");
struct functions_node nodes[1] SEC(".data.nodes");
/* The child node by node and function. */
__u32 children[1] SEC(".data.children");
struct functions_cell cells[1] SEC(".data.cells");

struct functions_state state SEC(".data.state");

/* log2(i), and 0 for 0: for a time's upper bits, its bucket's octave. */
#define LOG4(n) n, n, n, n
#define LOG16(n) LOG4(n), LOG4(n), LOG4(n), LOG4(n)
#define LOG64(n) LOG16(n), LOG16(n), LOG16(n), LOG16(n)
static const volatile __u8 log2_of[256] = {
	0,	  0,	    1,	      1,	2,	  2,	    2, 2,
	3,	  3,	    3,	      3,	3,	  3,	    3, 3,
	LOG16(4), LOG16(5), LOG16(5), LOG64(6), LOG64(7), LOG64(7),
};

static __always_inline struct functions_cpu *cpu_at(__u64 number)
{
	PATCHED_MASK(number, FUNCTIONS_MAGIC_CPU_MASK);
	return &cpus[number];
}

static __always_inline struct functions_stack *stack_at(__u64 number)
{
	PATCHED_MASK(number, FUNCTIONS_MAGIC_STACK_MASK);
	return &stacks[number];
}

static __always_inline struct functions_node *node_at(__u64 number)
{
	PATCHED_MASK(number, FUNCTIONS_MAGIC_NODE_MASK);
	return &nodes[number];
}

static __always_inline __u32 *child_of(__u64 parent, __u64 function)
{
	PATCHED_SHIFT(parent, FUNCTIONS_MAGIC_ROW_SHIFT);
	parent += function;
	PATCHED_MASK(parent, FUNCTIONS_MAGIC_CHILD_MASK);
	return &children[parent];
}

static __always_inline struct functions_cell *cell_at(__u64 cpu, __u64 node)
{
	PATCHED_SHIFT(cpu, FUNCTIONS_MAGIC_CELL_SHIFT);
	cpu += node;
	PATCHED_MASK(cpu, FUNCTIONS_MAGIC_CELL_MASK);
	return &cells[cpu];
}

static __always_inline void lost(struct functions_cpu *cpu,
				 enum functions_loss what, __u64 count)
{
	cpu->lost[what] += count;
}

/*
 * The bucket of a time: below 32 ns, the time itself. Above, with the upper 5
 * bits of the time in t >> shift, it is shift * 16 + (t >> shift).
 */
static __always_inline __u64 bucket_of(__u64 t)
{
	__u64 shift, bucket;

	if (t < 1 << 12)
		shift = log2_of[t >> 4];
	else if (t < 1 << 20)
		shift = log2_of[t >> 12] + 8;
	else if (t < 1 << 28)
		shift = log2_of[t >> 20] + 16;
	else if (t < 1ULL << 35)
		shift = log2_of[(t >> 28) & 0xff] + 24;
	else
		return FUNCTIONS_BUCKETS - 1;
	bucket = (shift << 4) + (t >> shift);
	return bucket;
}

#endif
