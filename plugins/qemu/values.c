// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Decides at which calls and returns registers are read.
 *
 * They are read only while a traced function runs, so that everything else costs
 * nothing. A traced function runs until the return address that its call stored
 * is read; it is known by where that lies. That a function runs longer than it
 * does is harmless: what is read in vain, the reader drops.
 */
#include "values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TRACED 4096
/* More than are open at a time: then all calls are read. */
#define MAX_OPEN 256

static struct {
	bool all;
	size_t n_traced;
	struct values_traced traced[MAX_TRACED];
	size_t n_open;
	uint64_t open[MAX_OPEN];
	bool too_many;
} state;

/* The next of the numbers of an option, which colons separate. */
static uint64_t next_number(const char **at)
{
	char *end;
	uint64_t number = strtoull(*at, &end, 16);

	*at = *end == ':' ? end + 1 : end;
	return number;
}

static void add(uint64_t hash, const char *rest)
{
	uint64_t at = next_number(&rest);
	uint32_t texts = (uint32_t)next_number(&rest);

	if (state.n_traced == MAX_TRACED)
		state.all = true;
	else
		state.traced[state.n_traced++] =
			(struct values_traced){ hash, at, texts };
}

void values_take_option(const char *option)
{
	if (!strcmp(option, "calls=all")) {
		state.all = true;
	} else if (!strncmp(option, "call=", 5)) {
		add(0, option + 5);
	} else if (!strncmp(option, "user=", 5)) {
		const char *rest = option + 5;
		uint64_t hash = next_number(&rest);

		add(hash, rest);
	}
}

bool values_wanted(void)
{
	return state.all || state.n_traced;
}

const struct values_traced *values_find(uint64_t vaddr, uint64_t hash)
{
	uint64_t at = hash ? vaddr & 0xfff : vaddr;

	for (size_t i = 0; i < state.n_traced; i++)
		if (state.traced[i].hash == hash && state.traced[i].at == at)
			return &state.traced[i];
	return NULL;
}

void values_forget(void)
{
	state.n_open = 0;
	state.too_many = false;
}

bool values_inside(void)
{
	return state.n_open || state.all || state.too_many;
}

void values_enter(uint64_t sp)
{
	for (size_t i = 0; i < state.n_open; i++)
		if (state.open[i] == sp)
			return;
	if (state.n_open == MAX_OPEN)
		state.too_many = true;
	else
		state.open[state.n_open++] = sp;
}

void values_leave(uint64_t sp)
{
	for (size_t i = 0; i < state.n_open; i++) {
		if (state.open[i] == sp) {
			state.open[i] = state.open[--state.n_open];
			return;
		}
	}
}
