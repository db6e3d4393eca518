/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The fields of kernel types that programs read, declared in this directory
 * once for all programs. The loader relocates them for the running kernel
 * (CO-RE), so structures are incomplete and have no offsets.
 */
#ifndef NETPLUMB_KERNEL_CORE_H
#define NETPLUMB_KERNEL_CORE_H

#include <linux/types.h>

#define CO_RE __attribute__((preserve_access_index))

/* What namespaces of all kinds have. */
struct ns_common {
	unsigned int inum;
} CO_RE;

#endif
