/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which calls are traced, and what registers hold at them: see values.c. */
#ifndef NETPLUMB_VALUES_H
#define NETPLUMB_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plugin_api.h"

/* Registers of arguments: rdi, rsi, rdx, rcx, r8, r9. */
#define VALUES_ARGUMENTS 6

/*
 * Take an option of the plugin, if it is one of these: `call=ADDRESS` traces the
 * kernel's function there, `user=HASH:OFFSET` that of a program in a page with
 * this hash, and `calls=all` all calls. Numbers are hexadecimal.
 */
void values_take_option(const char *option);

/* Whether any of them was given. */
bool values_wanted(void);

/* Whether QEMU exports what is necessary to read registers. */
bool values_can_read(void);

/* Whether a traced function begins at this address; `hash` is 0 in the kernel. */
bool values_is_traced(uint64_t vaddr, uint64_t hash);

/* Whether a function of the kernel may begin with this block. */
bool values_may_begin(const struct qemu_plugin_tb *tb);

/* No traced function runs any more. */
void values_forget(void);

/* Whether a traced function runs, in any task. */
bool values_inside(void);

/* A traced function begins; its return address lies at `rsp`. */
void values_enter(uint64_t rsp);

/* A return address was read from there. */
void values_leave(uint64_t rsp);

uint64_t values_rsp(void);
uint64_t values_rax(void);
void values_arguments(uint64_t registers[VALUES_ARGUMENTS]);

#endif
