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
 * Take an option of the plugin, if it is one of these: `call=ADDRESS:TEXTS`
 * traces the kernel's function there, `user=HASH:OFFSET:TEXTS` that of a program
 * in a page with this hash, and `calls=all` all calls. TEXTS has a bit for each
 * argument that points to text. Numbers are hexadecimal.
 */
void values_take_option(const char *option);

/* Whether any of them was given. */
bool values_wanted(void);

/* Whether QEMU exports what is necessary to read registers. */
bool values_can_read(void);

struct values_traced {
	uint64_t hash; /* of the page; 0 in the kernel */
	uint64_t at;   /* the address, or the offset in the page */
	uint32_t texts;
};

/* The traced function that begins at this address; `hash` is 0 in the kernel. */
const struct values_traced *values_find(uint64_t vaddr, uint64_t hash);

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

/* The text at an address, as far as it is in memory; of `size` bytes at most. */
bool values_text(uint64_t vaddr, char *text, size_t size, size_t *length);

#endif
