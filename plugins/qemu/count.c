// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A witness for tests: counts how often each instruction of the kernel is
 * executed in windows, by its address alone. It follows no calls, and shares
 * nothing with exact.c but how markers look.
 *
 * Writes a line of `address count` for each, to the file out=FILE.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arch.h"
#include "plugin_api.h"

#define BUCKETS (1u << 20)

/* QEMU adds to `executed` for as long as it runs: never freed. */
struct counter {
	struct counter *next;
	uint64_t address;
	struct plugin_counter executed;
	uint64_t before; /* `executed` when the window opened */
	uint64_t in_windows;
};

static struct {
	const struct arch *arch;
	const char *out;
	struct counter *buckets[BUCKETS];
} state;

static struct counter *counter_of(uint64_t address)
{
	uint64_t bucket = address * 0x9e3779b97f4a7c15ull >> 44;
	struct counter *counter = state.buckets[bucket];

	while (counter && counter->address != address)
		counter = counter->next;
	if (counter)
		return counter;
	counter = calloc(1, sizeof(*counter));
	if (!counter)
		abort();
	plugin_counter_init(&counter->executed);
	counter->address = address;
	counter->next = state.buckets[bucket];
	state.buckets[bucket] = counter;
	return counter;
}

static void each(void (*what)(struct counter *counter, void *data), void *data)
{
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct counter *c = state.buckets[i]; c; c = c->next)
			what(c, data);
}

static void open_window(struct counter *counter, void *data)
{
	(void)data;
	counter->before = plugin_counter_read(&counter->executed);
}

static void close_window(struct counter *counter, void *data)
{
	(void)data;
	counter->in_windows +=
		plugin_counter_read(&counter->executed) - counter->before;
}

static void tell(struct counter *counter, void *data)
{
	if (counter->in_windows)
		fprintf(data, "%llx %llu\n",
			(unsigned long long)counter->address,
			(unsigned long long)counter->in_windows);
}

/* Whenever a window closes: QEMU may be killed. */
static void print_all(void)
{
	FILE *out = fopen(state.out, "w");

	if (!out)
		return;
	each(tell, out);
	fclose(out);
}

static void on_mark(unsigned int vcpu, void *data)
{
	(void)vcpu;
	switch ((enum exact_mark)(uintptr_t)data) {
	case EXACT_MARK_WINDOW_BEGIN:
		each(open_window, NULL);
		break;
	case EXACT_MARK_WINDOW_END:
		each(close_window, NULL);
		print_all();
		break;
	default:
		break;
	}
}

static void on_translation(struct qemu_plugin_tb *tb)
{
	bool kernel = qemu_plugin_tb_vaddr(tb) >> 63;
	uint64_t at = qemu_plugin_tb_vaddr(tb);

	for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		struct code code = plugin_code(insn);
		uint32_t mark;

		if (kernel) {
			plugin_count(insn, &counter_of(at)->executed);
		} else {
			mark = state.arch->mark_of(code.bytes, code.size);
			if (mark)
				qemu_plugin_register_vcpu_insn_exec_cb(
					insn, on_mark, QEMU_PLUGIN_CB_NO_REGS,
					(void *)(uintptr_t)mark);
		}
		at += code.size;
	}
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id,
					   const qemu_info_t *info, int argc,
					   char **argv)
{
	state.arch = arch_of_target(info->target_name);
	if (!state.arch || argc != 1 || strncmp(argv[0], "out=", 4) ||
	    !plugin_open(info))
		return -1;
	state.out = strdup(argv[0] + 4);
	plugin_on_translation(id, on_translation);
	return 0;
}
