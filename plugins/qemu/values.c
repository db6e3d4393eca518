// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reads the guest's registers at calls and returns, by functions that QEMU
 * exports for its modules. The plugin interface of version 1 has none of its
 * own.
 *
 * They are read only while a traced function runs, so that everything else costs
 * nothing. A traced function runs until the return address that its call stored
 * is read; it is known by where that lies. That a function runs longer than it
 * does is harmless: what is read in vain, the reader drops.
 */
#define _GNU_SOURCE
#include "values.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TRACED 4096
/* More than are open at a time: then all calls are read. */
#define MAX_OPEN 256

/* Opaque, as in QEMU. */
struct CPUState;

/* The public part of GLib's, which QEMU is linked with. */
struct byte_array {
	uint8_t *data;
	unsigned int len;
};

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
};

static struct {
	/* include/hw/core/cpu.h */
	struct CPUState *(*qemu_get_cpu)(int index);
	/* target/i386/cpu.h, since 5.0 with a GByteArray */
	int (*read_register)(struct CPUState *cpu, struct byte_array *to,
			     int number);
	/* include/exec/cpu-common.h; without it, there are no texts */
	int (*rw_memory)(struct CPUState *cpu, uint64_t addr, void *ptr,
			 size_t len, bool is_write);
	struct byte_array *(*new_array)(void);
	struct byte_array *(*set_size)(struct byte_array *array,
				       unsigned int size);
	struct byte_array *array;
	struct CPUState *cpu;
} qemu;

static struct {
	bool all;
	size_t n_traced;
	struct values_traced traced[MAX_TRACED];
	size_t n_open;
	uint64_t open[MAX_OPEN];
	bool too_many;
} state;

/* The next of the numbers of an option, which colons separate. */
static uint64_t next_number(const char **at)
{
	char *end;
	uint64_t number = strtoull(*at, &end, 16);

	*at = *end == ':' ? end + 1 : end;
	return number;
}

static void add(uint64_t hash, const char *rest)
{
	uint64_t at = next_number(&rest);
	uint32_t texts = (uint32_t)next_number(&rest);

	if (state.n_traced == MAX_TRACED)
		state.all = true;
	else
		state.traced[state.n_traced++] =
			(struct values_traced){ hash, at, texts };
}

void values_take_option(const char *option)
{
	if (!strcmp(option, "calls=all")) {
		state.all = true;
	} else if (!strncmp(option, "call=", 5)) {
		add(0, option + 5);
	} else if (!strncmp(option, "user=", 5)) {
		const char *rest = option + 5;
		uint64_t hash = next_number(&rest);

		add(hash, rest);
	}
}

bool values_wanted(void)
{
	return state.all || state.n_traced;
}

bool values_can_read(void)
{
	*(void **)&qemu.qemu_get_cpu = dlsym(RTLD_DEFAULT, "qemu_get_cpu");
	*(void **)&qemu.read_register =
		dlsym(RTLD_DEFAULT, "x86_cpu_gdb_read_register");
	*(void **)&qemu.rw_memory = dlsym(RTLD_DEFAULT, "cpu_memory_rw_debug");
	*(void **)&qemu.new_array = dlsym(RTLD_DEFAULT, "g_byte_array_new");
	*(void **)&qemu.set_size = dlsym(RTLD_DEFAULT, "g_byte_array_set_size");
	if (!qemu.qemu_get_cpu || !qemu.read_register || !qemu.new_array ||
	    !qemu.set_size)
		return false;
	qemu.array = qemu.new_array();
	return qemu.array != NULL;
}

const struct values_traced *values_find(uint64_t vaddr, uint64_t hash)
{
	uint64_t at = hash ? vaddr & 0xfff : vaddr;

	for (size_t i = 0; i < state.n_traced; i++)
		if (state.traced[i].hash == hash && state.traced[i].at == at)
			return &state.traced[i];
	return NULL;
}

/* The NOP that the kernel puts where ftrace may call (`nopl 0(%rax,%rax,1)`). */
bool values_may_begin(const struct qemu_plugin_tb *tb)
{
	static const uint8_t nop[] = { 0x0f, 0x1f, 0x44, 0x00, 0x00 };
	static const uint8_t endbr[] = { 0xf3, 0x0f, 0x1e, 0xfa };
	size_t n = qemu_plugin_tb_n_insns(tb);
	const struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, 0);

	if (qemu_plugin_insn_size(insn) == sizeof(endbr) &&
	    !memcmp(qemu_plugin_insn_data(insn), endbr, sizeof(endbr))) {
		if (n < 2)
			return true;
		insn = qemu_plugin_tb_get_insn(tb, 1);
	}
	return qemu_plugin_insn_size(insn) == sizeof(nop) &&
	       !memcmp(qemu_plugin_insn_data(insn), nop, sizeof(nop));
}

void values_forget(void)
{
	state.n_open = 0;
	state.too_many = false;
}

bool values_inside(void)
{
	return state.n_open || state.all || state.too_many;
}

void values_enter(uint64_t rsp)
{
	for (size_t i = 0; i < state.n_open; i++)
		if (state.open[i] == rsp)
			return;
	if (state.n_open == MAX_OPEN)
		state.too_many = true;
	else
		state.open[state.n_open++] = rsp;
}

void values_leave(uint64_t rsp)
{
	for (size_t i = 0; i < state.n_open; i++) {
		if (state.open[i] == rsp) {
			state.open[i] = state.open[--state.n_open];
			return;
		}
	}
}

static uint64_t read_register(int number)
{
	uint64_t value = 0;

	/* QEMU makes the CPU after it has loaded the plugin. */
	if (!qemu.cpu)
		qemu.cpu = qemu.qemu_get_cpu(0);
	if (!qemu.cpu)
		return 0;
	qemu.set_size(qemu.array, 0);
	qemu.read_register(qemu.cpu, qemu.array, number);
	if (qemu.array->len >= sizeof(value))
		memcpy(&value, qemu.array->data, sizeof(value));
	return value;
}

uint64_t values_rsp(void)
{
	return read_register(GDB_RSP);
}

uint64_t values_rax(void)
{
	return read_register(GDB_RAX);
}

void values_arguments(uint64_t registers[VALUES_ARGUMENTS])
{
	static const int numbers[VALUES_ARGUMENTS] = {
		GDB_RDI, GDB_RSI, GDB_RDX, GDB_RCX, GDB_R8, GDB_R9,
	};

	for (size_t i = 0; i < VALUES_ARGUMENTS; i++)
		registers[i] = read_register(numbers[i]);
}

bool values_text(uint64_t vaddr, char *text, size_t size, size_t *length)
{
	size_t have = 0;

	if (!qemu.rw_memory || !qemu.cpu)
		return false;
	/* A page at a time: the next one may not be in memory. */
	while (have < size) {
		size_t n = 0x1000 - ((vaddr + have) & 0xfff);
		const char *end;

		if (n > size - have)
			n = size - have;
		if (qemu.rw_memory(qemu.cpu, vaddr + have, text + have, n,
				   false))
			break;
		end = memchr(text + have, 0, n);
		if (end) {
			*length = (size_t)(end - text);
			return true;
		}
		have += n;
	}
	*length = have;
	return have > 0;
}
