// SPDX-License-Identifier: GPL-2.0-or-later
/* x86-64: see Intel's SDM, volume 2. */
#include "arch.h"

#include <string.h>

/* Numbers of registers for GDB (target/i386/gdbstub.c, gpr_map). */
enum {
	GDB_RAX = 0,
	GDB_RCX = 2,
	GDB_RDX = 3,
	GDB_RSI = 4,
	GDB_RDI = 5,
	GDB_RSP = 7,
	GDB_R8 = 8,
	GDB_R9 = 9,
	GDB_R14 = 14,
};

/* The stack pointer's number in an instruction. */
#define RSP 4

static enum exact_kind kind_of(const uint8_t *code, size_t size)
{
	size_t i = 0;

	while (i < size &&
	       (code[i] == 0x66 || code[i] == 0xf2 || code[i] == 0xf3 ||
		code[i] == 0x2e || code[i] == 0x3e || code[i] == 0x65 ||
		code[i] == 0x64))
		i++;
	if (i < size && (code[i] & 0xf0) == 0x40)
		i++; /* REX */
	if (i >= size)
		return EXACT_KIND_OTHER;
	switch (code[i]) {
	case 0xe8:
		return EXACT_KIND_CALL;
	case 0xff:
		if (i + 1 < size && ((code[i + 1] >> 3) & 7) == 2)
			return EXACT_KIND_CALL;
		return EXACT_KIND_OTHER;
	case 0xc2:
	case 0xc3:
		return EXACT_KIND_RET;
	case 0xcf:
		return EXACT_KIND_IRET;
	case 0x0f:
		if (i + 1 < size && code[i + 1] == 0x07)
			return EXACT_KIND_SYSRET;
		return EXACT_KIND_OTHER;
	default:
		return EXACT_KIND_OTHER;
	}
}

/* `nopl imm32(%rax)` */
static uint32_t mark_of(const uint8_t *code, size_t size)
{
	uint32_t imm;

	if (size != 7 || code[0] != 0x0f || code[1] != 0x1f || code[2] != 0x80)
		return 0;
	memcpy(&imm, code + 3, sizeof(imm));
	if ((imm & EXACT_MARK_MASK) != EXACT_MARK_MAGIC)
		return 0;
	return imm & ~EXACT_MARK_MASK;
}

/* hlt, or mwait, which is as good as one where there is one CPU. */
static bool halts(const uint8_t *code, size_t size)
{
	switch (size) {
	case 1:
		return code[0] == 0xf4;
	case 3:
		return code[0] == 0x0f && code[1] == 0x01 && code[2] == 0xc9;
	default:
		return false;
	}
}

/* The reader knows `cli`, `sti` and `popf` by their code. */
static bool masks(const uint8_t *code, size_t size)
{
	(void)code;
	(void)size;
	return false;
}

/* mov to rsp, but from rbp; xchg with rsp; pop rsp */
static bool loads_stack(const uint8_t *code, size_t size)
{
	uint8_t rex = 0;
	size_t i = 0;

	if (size && (code[0] & 0xf0) == 0x40)
		rex = code[i++];
	if (i >= size)
		return false;
	if (code[i] == 0x5c)
		return !(rex & 1);
	if (!(rex & 8))
		return false;
	if (code[i] == 0x94)
		return !(rex & 1);
	if (i + 1 >= size)
		return false;
	switch (code[i]) {
	case 0x8b: /* mov r64, r/m64 */
		return !(rex & 4) && (code[i + 1] >> 3 & 7) == RSP &&
		       (code[i + 1] != 0xe5 || rex & 1);
	case 0x89: /* mov r/m64, r64 */
		return !(rex & 1) && (code[i + 1] & 0xc7) == 0xc4 &&
		       (code[i + 1] != 0xec || rex & 4);
	case 0x87: /* xchg r/m64, r64 */
		return (!(rex & 1) && (code[i + 1] & 0xc7) == 0xc4) ||
		       (!(rex & 4) && (code[i + 1] >> 3 & 7) == RSP);
	default:
		return false;
	}
}

/* The NOP that the kernel puts where ftrace may call (`nopl 0(%rax,%rax,1)`). */
static bool may_begin(const struct qemu_plugin_tb *tb)
{
	static const uint8_t nop[] = { 0x0f, 0x1f, 0x44, 0x00, 0x00 };
	static const uint8_t endbr[] = { 0xf3, 0x0f, 0x1e, 0xfa };
	size_t n = qemu_plugin_tb_n_insns(tb);
	struct code code = plugin_code(qemu_plugin_tb_get_insn(tb, 0));

	if (code.size == sizeof(endbr) &&
	    !memcmp(code.bytes, endbr, sizeof(endbr))) {
		if (n < 2)
			return true;
		code = plugin_code(qemu_plugin_tb_get_insn(tb, 1));
	}
	return code.size == sizeof(nop) &&
	       !memcmp(code.bytes, nop, sizeof(nop));
}

const struct arch arch_x86_64 = {
	.target = "x86_64",
	.number = EXACT_ARCH_X86_64,
	.calls_store = true,
	.has_ports = true,
	.read_register = "x86_cpu_gdb_read_register",
	.stack_pointer = GDB_RSP,
	.goroutine = GDB_R14,
	.result = GDB_RAX,
	.arguments = { GDB_RDI, GDB_RSI, GDB_RDX, GDB_RCX, GDB_R8, GDB_R9, -1,
		       -1 },
	.kind_of = kind_of,
	.mark_of = mark_of,
	.halts = halts,
	.masks = masks,
	.loads_stack = loads_stack,
	.may_begin = may_begin,
};
