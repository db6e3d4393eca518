/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The guest's registers and memory: see registers.c. */
#ifndef NETPLUMB_REGISTERS_H
#define NETPLUMB_REGISTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch.h"

/* Whether QEMU exports what is necessary to read registers. */
bool registers_can_read(const struct arch *of);

uint64_t registers_stack_pointer(void);
uint64_t registers_goroutine(void);
uint64_t registers_result(void);
void registers_arguments(uint64_t registers[ARCH_ARGUMENTS]);

/* Whether interrupts are masked, where the architecture has no better way. */
bool registers_masked(void);

/* The number of the page frame that an address is in; 0 if it is not known. */
uint32_t registers_frame(uint64_t vaddr);

/* The text at an address, as far as it is in memory; of `size` bytes at most. */
bool registers_text(uint64_t vaddr, char *text, size_t size, size_t *length);

#endif
