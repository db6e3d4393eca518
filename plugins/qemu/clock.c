// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Closes a race in QEMU's clock of instructions (-icount).
 *
 * While the CPU is halted, QEMU's main loop moves the clock on to the next
 * timer (icount_start_warp_timer() of softmmu/icount.c). It may find the CPU
 * halted before the CPU's own thread has added the instructions of its last
 * slice to the clock (icount_process_data() of accel/tcg/tcg-accel-ops-icount.c,
 * after cpu_exec()). The distance to the timer is then too large by these
 * instructions, and so is the time at which the guest goes on: the kernel
 * measures other round trips and run times, and takes other branches. The main
 * loop is seldom awake in that moment, so one run of some forty differs.
 *
 * Here the instructions are added before the CPU halts. What QEMU adds
 * afterwards is nothing.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

#include "clock.h"

/* Opaque, as in QEMU, which exports these for its modules. */
struct CPUState;

static struct {
	/* include/sysemu/cpu-timers.h, since 5.2 */
	void (*icount_update)(struct CPUState *cpu);
	/* include/hw/core/cpu.h */
	struct CPUState *(*qemu_get_cpu)(int index);
	/* 0 without -icount; also of include/sysemu/cpu-timers.h */
	const int *use_icount;
} qemu;

bool clock_can_settle(void)
{
	*(void **)&qemu.icount_update = dlsym(RTLD_DEFAULT, "icount_update");
	*(void **)&qemu.qemu_get_cpu = dlsym(RTLD_DEFAULT, "qemu_get_cpu");
	qemu.use_icount = dlsym(RTLD_DEFAULT, "use_icount");
	return qemu.icount_update && qemu.qemu_get_cpu && qemu.use_icount;
}

static void on_halt(unsigned int vcpu, void *data)
{
	struct CPUState *cpu;

	(void)data;
	if (!*qemu.use_icount)
		return;
	cpu = qemu.qemu_get_cpu((int)vcpu);
	if (cpu)
		qemu.icount_update(cpu);
}

void clock_settle_before_halt(const struct arch *arch,
			      const struct qemu_plugin_tb *tb)
{
	struct qemu_plugin_insn *last =
		qemu_plugin_tb_get_insn(tb, qemu_plugin_tb_n_insns(tb) - 1);
	struct code code = plugin_code(last);

	if (arch->halts(code.bytes, code.size))
		qemu_plugin_register_vcpu_insn_exec_cb(
			last, on_halt, QEMU_PLUGIN_CB_NO_REGS, NULL);
}
