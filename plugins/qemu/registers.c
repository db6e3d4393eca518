// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reads the guest's registers and memory, by functions that QEMU exports for its
 * modules. The plugin interface of version 1 has none of its own.
 *
 * Registers are current where a block starts, and in the callbacks of accesses
 * to memory: QEMU keeps them in its own between.
 */
#define _GNU_SOURCE
#include "registers.h"

#include <dlfcn.h>
#include <string.h>

/* Opaque, as in QEMU. */
struct CPUState;

/* The public part of GLib's, which QEMU is linked with. */
struct byte_array {
	uint8_t *data;
	unsigned int len;
};

static const struct arch *arch;

static struct {
	/* include/hw/core/cpu.h */
	struct CPUState *(*qemu_get_cpu)(int index);
	/* target/ARCH/cpu.h, since 5.0 with a GByteArray */
	int (*read_register)(struct CPUState *cpu, struct byte_array *to,
			     int number);
	/* include/exec/cpu-common.h; without it, there are no texts */
	int (*rw_memory)(struct CPUState *cpu, uint64_t addr, void *ptr,
			 size_t len, bool is_write);
	/*
	 * include/hw/core/cpu.h until 11.0, then of the plugin interface since
	 * version 5; without either, frames are not known
	 */
	uint64_t (*phys_page)(struct CPUState *cpu, uint64_t addr);
	bool (*translate)(uint64_t vaddr, uint64_t *paddr);
	struct byte_array *(*new_array)(void);
	struct byte_array *(*set_size)(struct byte_array *array,
				       unsigned int size);
	struct byte_array *array;
	struct CPUState *cpu;
} qemu;

bool registers_can_read(const struct arch *of)
{
	arch = of;
	*(void **)&qemu.qemu_get_cpu = dlsym(RTLD_DEFAULT, "qemu_get_cpu");
	*(void **)&qemu.read_register =
		dlsym(RTLD_DEFAULT, arch->read_register);
	*(void **)&qemu.rw_memory = dlsym(RTLD_DEFAULT, "cpu_memory_rw_debug");
	*(void **)&qemu.phys_page =
		dlsym(RTLD_DEFAULT, "cpu_get_phys_page_debug");
	*(void **)&qemu.translate =
		dlsym(RTLD_DEFAULT, "qemu_plugin_translate_vaddr");
	*(void **)&qemu.new_array = dlsym(RTLD_DEFAULT, "g_byte_array_new");
	*(void **)&qemu.set_size = dlsym(RTLD_DEFAULT, "g_byte_array_set_size");
	if (!qemu.qemu_get_cpu || !qemu.read_register || !qemu.new_array ||
	    !qemu.set_size)
		return false;
	qemu.array = qemu.new_array();
	return qemu.array != NULL;
}

/* QEMU makes the CPU after it has loaded the plugin. */
static bool has_cpu(void)
{
	if (!qemu.cpu && qemu.qemu_get_cpu)
		qemu.cpu = qemu.qemu_get_cpu(0);
	return qemu.cpu;
}

static uint64_t read_register(int number)
{
	uint64_t value = 0;
	size_t size;

	if (!has_cpu())
		return 0;
	qemu.set_size(qemu.array, 0);
	qemu.read_register(qemu.cpu, qemu.array, number);
	size = qemu.array->len;
	if (size > sizeof(value))
		size = sizeof(value);
	memcpy(&value, qemu.array->data, size);
	return value;
}

uint64_t registers_stack_pointer(void)
{
	return read_register(arch->stack_pointer);
}

uint64_t registers_goroutine(void)
{
	return read_register(arch->goroutine);
}

uint64_t registers_result(void)
{
	return read_register(arch->result);
}

bool registers_masked(void)
{
	return read_register(arch->flags) & arch->masked;
}

void registers_arguments(uint64_t registers[ARCH_ARGUMENTS])
{
	for (size_t i = 0; i < ARCH_ARGUMENTS; i++)
		registers[i] = arch->arguments[i] < 0
				       ? 0
				       : read_register(arch->arguments[i]);
}

uint32_t registers_frame(uint64_t vaddr)
{
	uint64_t page = UINT64_MAX;

	vaddr &= ~0xfffull;
	if (!has_cpu())
		return 0;
	if (qemu.phys_page)
		page = qemu.phys_page(qemu.cpu, vaddr);
	else if (!qemu.translate || !qemu.translate(vaddr, &page))
		return 0;
	return page == UINT64_MAX ? 0 : (uint32_t)(page >> 12);
}

bool registers_text(uint64_t vaddr, char *text, size_t size, size_t *length)
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
