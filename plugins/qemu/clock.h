/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Keeps the guest's clock the same in every run: see clock.c. */
#ifndef NETPLUMB_CLOCK_H
#define NETPLUMB_CLOCK_H

#include <stdbool.h>

#include "arch.h"
#include "plugin_api.h"

/* Whether QEMU exports what is necessary. */
bool clock_can_settle(void);

/* Have the clock settled before this block halts the CPU, if it does. */
void clock_settle_before_halt(const struct arch *arch,
			      const struct qemu_plugin_tb *tb);

#endif
