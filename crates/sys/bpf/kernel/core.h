/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Of the kernel's own types, the fields that programs read: in this folder once
 * for all of them. The loader finds out where a field is in the kernel at hand,
 * so a structure has neither all of them nor their places.
 */
#ifndef NETPLUMB_KERNEL_CORE_H
#define NETPLUMB_KERNEL_CORE_H

#include <linux/types.h>

#define CO_RE __attribute__((preserve_access_index))

#endif
