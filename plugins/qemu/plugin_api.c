// SPDX-License-Identifier: GPL-2.0-or-later
#define _GNU_SOURCE
#include "plugin_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Opaque, as in QEMU. */
struct qemu_plugin_scoreboard;

/* qemu_plugin_u64 */
struct plugin_u64 {
	struct qemu_plugin_scoreboard *score;
	size_t offset;
};

typedef void callback(void);
typedef void callback_adder(qemu_plugin_id_t id, callback *call, void *data);

/* Alternatives: a version of the interface has only one, by name. */
static struct {
	/* version 1 */
	void (*inline_add)(struct qemu_plugin_insn *insn,
			   enum qemu_plugin_op op, void *ptr, uint64_t imm);
	/* since version 2 */
	void (*inline_add_per_vcpu)(struct qemu_plugin_insn *insn,
				    enum qemu_plugin_op op,
				    struct plugin_u64 entry, uint64_t imm);
	struct qemu_plugin_scoreboard *(*scoreboard_new)(size_t size);
	void *(*scoreboard_find)(struct qemu_plugin_scoreboard *score,
				 unsigned int vcpu);
	/* until version 2, and since version 3 */
	const void *(*data)(const struct qemu_plugin_insn *insn);
	size_t (*copy_data)(const struct qemu_plugin_insn *insn, void *to,
			    size_t size);
	/*
	 * Before version 7 three of these have no user data: the argument is
	 * not looked at.
	 */
	callback_adder *on_translation;
	callback_adder *on_vcpu;
	callback_adder *on_exit;
	callback_adder *reset;
	bool has_user_data; /* version 7 and later */
} qemu;

/* What to call when a block is translated. */
static void (*on_translation)(struct qemu_plugin_tb *tb);

QEMU_PLUGIN_EXPORT int qemu_plugin_version = 1;

/*
 * QEMU reads qemu_plugin_version when it has loaded the plugin: this runs
 * before. QEMU takes every version between its oldest and its newest (from 7
 * on in 11.1), so the newest of those that we tell apart will do.
 */
static void __attribute__((constructor)) choose_version(void)
{
	static const struct {
		const char *since;
		int version;
	} known[] = {
		{ "qemu_plugin_scoreboard_new", 2 },	   /* 9.0 */
		{ "qemu_plugin_request_time_control", 3 }, /* 9.1 */
		{ "qemu_plugin_set_pc", 6 },		   /* 11.0 */
		/* 7 has no function more; this came in the same release. */
		{ "cpu_translate_for_debug", 7 }, /* 11.1 */
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (dlsym(RTLD_DEFAULT, known[i].since))
			qemu_plugin_version = known[i].version;
}

bool plugin_open(const qemu_info_t *info)
{
	void *data = dlsym(RTLD_DEFAULT, "qemu_plugin_insn_data");

	*(void **)&qemu.inline_add = dlsym(
		RTLD_DEFAULT, "qemu_plugin_register_vcpu_insn_exec_inline");
	*(void **)&qemu.inline_add_per_vcpu =
		dlsym(RTLD_DEFAULT,
		      "qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu");
	*(void **)&qemu.scoreboard_new =
		dlsym(RTLD_DEFAULT, "qemu_plugin_scoreboard_new");
	*(void **)&qemu.scoreboard_find =
		dlsym(RTLD_DEFAULT, "qemu_plugin_scoreboard_find");
	/* The interface's own version, whichever was asked for. */
	if (info->version.cur >= 3)
		*(void **)&qemu.copy_data = data;
	else
		*(void **)&qemu.data = data;
	qemu.has_user_data = info->version.cur >= 7;
	*(void **)&qemu.on_translation =
		dlsym(RTLD_DEFAULT, "qemu_plugin_register_vcpu_tb_trans_cb");
	*(void **)&qemu.on_vcpu =
		dlsym(RTLD_DEFAULT, "qemu_plugin_register_vcpu_init_cb");
	*(void **)&qemu.on_exit =
		dlsym(RTLD_DEFAULT, "qemu_plugin_register_atexit_cb");
	*(void **)&qemu.reset = dlsym(RTLD_DEFAULT, "qemu_plugin_reset");
	if (data && qemu.on_translation && qemu.on_vcpu && qemu.on_exit &&
	    qemu.reset &&
	    (qemu.inline_add || (qemu.inline_add_per_vcpu &&
				 qemu.scoreboard_new && qemu.scoreboard_find)))
		return true;
	fprintf(stderr,
		"netplumb: version %d of QEMU's plugin interface lacks what the plugin needs\n",
		info->version.cur);
	return false;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	(void)id;
	on_translation(tb);
}

static void translated_with_data(struct qemu_plugin_tb *tb, void *data)
{
	(void)data;
	on_translation(tb);
}

void plugin_on_translation(qemu_plugin_id_t id,
			   void (*call)(struct qemu_plugin_tb *tb))
{
	on_translation = call;
	qemu.on_translation(id,
			    qemu.has_user_data
				    ? (callback *)translated_with_data
				    : (callback *)translated,
			    NULL);
}

/* What the others are passed differs, too, and is of no use: they take nothing. */
void plugin_on_vcpu(qemu_plugin_id_t id, void (*made)(void))
{
	qemu.on_vcpu(id, made, NULL);
}

void plugin_on_exit(qemu_plugin_id_t id, void (*ended)(void))
{
	qemu.on_exit(id, ended, NULL);
}

void plugin_reset(qemu_plugin_id_t id, void (*discarded)(void))
{
	qemu.reset(id, discarded, NULL);
}

static void *allocated(void *memory)
{
	if (memory)
		return memory;
	fputs("netplumb: out of memory in the plugin\n", stderr);
	abort();
}

void plugin_counter_init(struct plugin_counter *counter)
{
	if (qemu.inline_add)
		counter->value = allocated(calloc(1, sizeof(uint64_t)));
	else
		counter->score =
			allocated(qemu.scoreboard_new(sizeof(uint64_t)));
}

/* QEMU moves a scoreboard only when it makes more vCPUs than there is room for. */
uint64_t plugin_counter_find(struct plugin_counter *counter)
{
	counter->value = qemu.scoreboard_find(counter->score, 0);
	return *counter->value;
}

void plugin_count(struct qemu_plugin_insn *insn, struct plugin_counter *counter)
{
	if (qemu.inline_add)
		qemu.inline_add(insn, QEMU_PLUGIN_INLINE_ADD_U64,
				counter->value, 1);
	else
		qemu.inline_add_per_vcpu(
			insn, QEMU_PLUGIN_INLINE_ADD_U64,
			(struct plugin_u64){ counter->score, 0 }, 1);
}

struct code plugin_code(const struct qemu_plugin_insn *insn)
{
	struct code code = { .size = qemu_plugin_insn_size(insn) };

	if (code.size > sizeof(code.bytes))
		code.size = sizeof(code.bytes);
	if (qemu.copy_data)
		qemu.copy_data(insn, code.bytes, code.size);
	else
		memcpy(code.bytes, qemu.data(insn), code.size);
	return code;
}
