/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which calls are traced, and what registers hold at them: see values.c. */
#ifndef NETPLUMB_VALUES_H
#define NETPLUMB_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Take an option of the plugin, if it is one of these: `call=ADDRESS:TEXTS`
 * traces the kernel's function there, `user=HASH:OFFSET:TEXTS` a program's
 * in a page with this hash, and `calls=all` all calls. TEXTS has a bit for each
 * argument that points to text. Numbers are hexadecimal.
 */
void values_take_option(const char *option);

/* Whether any of them was given. */
bool values_wanted(void);

struct values_traced {
	uint64_t hash; /* of the page; 0 in the kernel */
	uint64_t at;   /* the address, or the offset in the page */
	uint32_t texts;
};

/* The traced function that begins at this address; `hash` is 0 in the kernel. */
const struct values_traced *values_find(uint64_t vaddr, uint64_t hash);

/* No traced function runs any more. */
void values_forget(void);

/* Whether a traced function runs, in any task. */
bool values_inside(void);

/* A traced function begins; the stack pointer is as at its call. */
void values_enter(uint64_t sp);

/* A function returned to where that was so. */
void values_leave(uint64_t sp);

#endif
