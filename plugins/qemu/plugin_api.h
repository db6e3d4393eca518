/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The part of QEMU's TCG plugin interface that the plugins here call, of all
 * versions from 1 (QEMU 4.2 to 8.2) on. Distributions ship QEMU without
 * qemu-plugin.h, so the prototypes are declared here, after
 * include/qemu/qemu-plugin.h of QEMU 7.2, 10.0 and 11.1.
 *
 * Version 2 (QEMU 9.0, commit 0bcebaba45) changed the inline operations to
 * per-vCPU scoreboards, version 3 (9.1) how code is read, and version 7 (11.1)
 * what callbacks are passed: see the end.
 */
#ifndef NETPLUMB_PLUGIN_API_H
#define NETPLUMB_PLUGIN_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QEMU_PLUGIN_EXPORT __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;

typedef struct {
	const char *target_name;
	struct {
		int min;
		int cur;
	} version;
	bool system_emulation;
	struct {
		int smp_vcpus;
		int max_vcpus;
	} system;
} qemu_info_t;

struct qemu_plugin_tb;
struct qemu_plugin_insn;

enum qemu_plugin_cb_flags {
	QEMU_PLUGIN_CB_NO_REGS,
	QEMU_PLUGIN_CB_R_REGS,
	QEMU_PLUGIN_CB_RW_REGS,
};

enum qemu_plugin_mem_rw {
	QEMU_PLUGIN_MEM_R = 1,
	QEMU_PLUGIN_MEM_W,
	QEMU_PLUGIN_MEM_RW,
};

enum qemu_plugin_op {
	QEMU_PLUGIN_INLINE_ADD_U64,
};

typedef void (*qemu_plugin_vcpu_udata_cb_t)(unsigned int vcpu, void *userdata);
typedef void (*qemu_plugin_vcpu_mem_cb_t)(unsigned int vcpu,
					  qemu_plugin_meminfo_t info,
					  uint64_t vaddr, void *userdata);

void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb,
					  qemu_plugin_vcpu_udata_cb_t cb,
					  enum qemu_plugin_cb_flags flags,
					  void *userdata);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn,
					    qemu_plugin_vcpu_udata_cb_t cb,
					    enum qemu_plugin_cb_flags flags,
					    void *userdata);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn,
				      qemu_plugin_vcpu_mem_cb_t cb,
				      enum qemu_plugin_cb_flags flags,
				      enum qemu_plugin_mem_rw rw,
				      void *userdata);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *
qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t idx);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
/* Where the instruction lies in our own memory; NULL if in none of the guest's. */
void *qemu_plugin_insn_haddr(const struct qemu_plugin_insn *insn);

/* What differs between versions: plugin_api.c. */

/* Find it in this QEMU; false, with an error printed, if it is not there. */
bool plugin_open(const qemu_info_t *info);

/* Call it when a block is translated, instead of what was to be called before. */
void plugin_on_translation(qemu_plugin_id_t id,
			   void (*translated)(struct qemu_plugin_tb *tb));

/* Call it when a vCPU is there. */
void plugin_on_vcpu(qemu_plugin_id_t id, void (*made)(void));

/* Call it when QEMU ends. */
void plugin_on_exit(qemu_plugin_id_t id, void (*ended)(void));

/* Discard all blocks and callbacks, and call it then: not before this returns. */
void plugin_reset(qemu_plugin_id_t id, void (*discarded)(void));

/* A number that QEMU adds to, of the one vCPU. */
struct plugin_counter {
	uint64_t *value; /* where it is, if that is known */
	struct qemu_plugin_scoreboard *score; /* version 2 and later */
};

void plugin_counter_init(struct plugin_counter *counter);

/* Only where the vCPU is there: QEMU makes it after it has loaded the plugin. */
uint64_t plugin_counter_find(struct plugin_counter *counter);

static inline uint64_t plugin_counter_read(struct plugin_counter *counter)
{
	return counter->value ? *counter->value : plugin_counter_find(counter);
}

/* Add one whenever an instruction is executed. */
void plugin_count(struct qemu_plugin_insn *insn,
		  struct plugin_counter *counter);

/* The code of an instruction: 15 bytes at most on x86-64. */
struct code {
	uint8_t bytes[16];
	size_t size;
};

struct code plugin_code(const struct qemu_plugin_insn *insn);

#endif
