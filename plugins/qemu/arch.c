// SPDX-License-Identifier: GPL-2.0-or-later
#include "arch.h"

#include <string.h>

const struct arch *arch_of_target(const char *target)
{
	static const struct arch *const all[] = { &arch_x86_64, &arch_arm64 };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (!strcmp(all[i]->target, target))
			return all[i];
	return NULL;
}
