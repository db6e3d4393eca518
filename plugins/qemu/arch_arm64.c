// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * AArch64: see Arm's ARM (DDI 0487), part C. A call puts its return address into
 * x30, and touches no stack.
 */
#include "arch.h"

#include <string.h>

/* Numbers of registers for GDB (target/arm/gdbstub64.c). */
enum {
	GDB_X0 = 0,
	GDB_X28 = 28,
	GDB_SP = 31,
	GDB_CPSR = 33,
};

/* PSTATE.I, in the form of SPSR_EL1. */
#define PSTATE_I (1u << 7)

static uint32_t word_of(const uint8_t *code, size_t size)
{
	uint32_t word = 0;

	if (size == sizeof(word))
		memcpy(&word, code, sizeof(word));
	return word;
}

static enum exact_kind kind_of(const uint8_t *code, size_t size)
{
	static const struct {
		uint32_t mask, bits;
		enum exact_kind kind;
	} known[] = {
		{ 0xfc000000, 0x94000000, EXACT_KIND_CALL }, /* bl */
		{ 0xfffffc1f, 0xd63f0000, EXACT_KIND_CALL }, /* blr */
		{ 0xfffff800, 0xd73f0800, EXACT_KIND_CALL }, /* blraa, blrab */
		{ 0xfffff81f, 0xd63f081f, EXACT_KIND_CALL }, /* blraaz */
		{ 0xfffffc1f, 0xd65f0000, EXACT_KIND_RET },  /* ret */
		{ 0xfffffbff, 0xd65f0bff, EXACT_KIND_RET },  /* retaa, retab */
		{ 0xffffffff, 0xd69f03e0, EXACT_KIND_IRET }, /* eret */
		{ 0xfffffbff, 0xd69f0bff, EXACT_KIND_IRET }, /* eretaa */
	};
	uint32_t word = word_of(code, size);

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if ((word & known[i].mask) == known[i].bits)
			return known[i].kind;
	return EXACT_KIND_OTHER;
}

/*
 * `movz xzr, #imm16, lsl #48`, which writes nothing. A hint has seven bits, of
 * which new architectures take more and more.
 */
static uint32_t mark_of(const uint8_t *code, size_t size)
{
	uint32_t word = word_of(code, size);

	if ((word & 0xffe0001f) != 0xd2e0001f)
		return 0;
	word = word >> 5 & 0xffff;
	if ((word & 0xff00) != EXACT_MARK_ARM64)
		return 0;
	return word & 0xff;
}

/* wfi */
static bool halts(const uint8_t *code, size_t size)
{
	return word_of(code, size) == 0xd503207f;
}

/* msr daifset, #imm; msr daifclr, #imm; msr daif, xN */
static bool masks(const uint8_t *code, size_t size)
{
	uint32_t word = word_of(code, size);

	return (word & 0xfffff0df) == 0xd50340df ||
	       (word & 0xffffffe0) == 0xd51b4220;
}

#define SP 31

static int32_t signed_bits(uint32_t word, unsigned int low, unsigned int bits)
{
	return (int32_t)(word << (32 - low - bits)) >> (32 - bits);
}

/*
 * Data processing that writes sp: with an immediate it may be known, and with a
 * register it is not.
 */
static int32_t change_by_arithmetic(uint32_t word)
{
	bool subtracts = word >> 30 & 1;
	int32_t by;

	if ((word & SP) != SP)
		return 0;
	/* add, sub (immediate) */
	if ((word & 0xbf800000) == 0x91000000) {
		if ((word >> 5 & 31) != SP)
			return STACK_UNKNOWN;
		by = (int32_t)(word >> 10 & 0xfff) << (word >> 22 & 1 ? 12 : 0);
		return subtracts ? -by : by;
	}
	/* add, sub (extended register); and, orr, eor (immediate) */
	if ((word & 0xbfe00000) == 0x8b200000 ||
	    ((word & 0x9f800000) == 0x92000000 && (word >> 29 & 3) != 3))
		return STACK_UNKNOWN;
	return 0;
}

/* Loads and stores at sp that write it back. */
static int32_t change_by_access(uint32_t word)
{
	unsigned int scale;

	if ((word >> 5 & 31) != SP)
		return 0;
	/* ldp, stp (pre-index and post-index) */
	if ((word & 0x3a800000) == 0x28800000) {
		if (word >> 26 & 1)
			scale = 2 + (word >> 30);
		else
			scale = word >> 31 ? 3 : 2;
		return signed_bits(word, 15, 7) * (1 << scale);
	}
	/* ldr, str (the same) */
	if ((word & 0x3b200400) == 0x38000400)
		return signed_bits(word, 12, 9);
	/* ld1 to ld4, st1 to st4 (post-index) */
	if ((word & 0xbe800000) == 0x0c800000)
		return STACK_UNKNOWN;
	return 0;
}

static int32_t stack_change(const uint8_t *code, size_t size)
{
	uint32_t word = word_of(code, size);
	int32_t change = change_by_arithmetic(word);

	return change ? change : change_by_access(word);
}

/* mov sp, xN, but from x29 */
static bool loads_stack(const uint8_t *code, size_t size)
{
	uint32_t word = word_of(code, size);

	return (word & 0xfffffc1f) == 0x9100001f && (word >> 5 & 31) < 29;
}

/*
 * Where ftrace may call there are two NOPs; the first became `mov x9,
 * x30` when the kernel booted; `bti c` or `paciasp` before it.
 */
static bool may_begin(const struct qemu_plugin_tb *tb)
{
	size_t n = qemu_plugin_tb_n_insns(tb);
	uint32_t word = 0;

	for (size_t i = 0; i < n && i < 2; i++) {
		struct code code = plugin_code(qemu_plugin_tb_get_insn(tb, i));

		word = word_of(code.bytes, code.size);
		if (word != 0xd503245f && word != 0xd503233f)
			break;
		if (n == 1)
			return true;
	}
	return word == 0xaa1e03e9;
}

const struct arch arch_arm64 = {
	.target = "aarch64",
	.number = EXACT_ARCH_ARM64,
	.calls_store = false,
	.has_ports = false,
	.read_register = "aarch64_cpu_gdb_read_register",
	.stack_pointer = GDB_SP,
	.goroutine = GDB_X28,
	.result = GDB_X0,
	.arguments = { GDB_X0, GDB_X0 + 1, GDB_X0 + 2, GDB_X0 + 3, GDB_X0 + 4,
		       GDB_X0 + 5, GDB_X0 + 6, GDB_X0 + 7 },
	.flags = GDB_CPSR,
	.masked = PSTATE_I,
	.kind_of = kind_of,
	.mark_of = mark_of,
	.halts = halts,
	.masks = masks,
	.stack_change = stack_change,
	.loads_stack = loads_stack,
	.may_begin = may_begin,
};
