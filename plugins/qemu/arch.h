/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the plugins have to know about a guest's architecture; each is declared
 * in a file of its own, arch_*.c.
 */
#ifndef NETPLUMB_ARCH_H
#define NETPLUMB_ARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "exact.h"
#include "plugin_api.h"

#define STACK_UNKNOWN INT32_MIN

/* Registers of arguments that are read, at most. */
#define ARCH_ARGUMENTS 8

struct arch {
	const char *target; /* QEMU's name of it */
	enum exact_arch number;
	/*
	 * Whether a call stores its return address on the stack. Where it does
	 * not, the stack pointer is read when the block after it starts: no call
	 * or return changes it.
	 */
	bool calls_store;
	bool has_ports; /* for I/O */

	/* QEMU's function that reads a register for GDB, and its numbers. */
	const char *read_register;
	int stack_pointer;
	int goroutine; /* where Go keeps the address of the current one */
	int result;
	int arguments[ARCH_ARGUMENTS]; /* -1 beyond the last */
	/* The register with the flag that masks interrupts, and its bit. */
	int flags;
	uint32_t masked;

	/* How an instruction leaves its block. */
	enum exact_kind (*kind_of)(const uint8_t *code, size_t size);
	/* The mark of a marker, or 0. */
	uint32_t (*mark_of)(const uint8_t *code, size_t size);
	/* Whether an instruction halts the CPU until an interrupt. */
	bool (*halts)(const uint8_t *code, size_t size);
	/*
	 * Whether an instruction may change whether interrupts come in a way
	 * that the reader can't see; it is the last one of its block.
	 */
	bool (*masks)(const uint8_t *code, size_t size);
	/*
	 * What an instruction adds to the stack pointer, or STACK_UNKNOWN. Only
	 * where calls do not store.
	 */
	int32_t (*stack_change)(const uint8_t *code, size_t size);
	/*
	 * Whether an instruction loads the stack pointer with what need not be
	 * on the same stack: not from the frame pointer.
	 */
	bool (*loads_stack)(const uint8_t *code, size_t size);
	/* Whether the kernel has what ftrace needs at the start of a block. */
	bool (*may_begin)(const struct qemu_plugin_tb *tb);
};

extern const struct arch arch_x86_64;
extern const struct arch arch_arm64;

/* The architecture that QEMU calls so; NULL if it is none of ours. */
const struct arch *arch_of_target(const char *target);

#endif
