/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Block devices. */
#ifndef NETPLUMB_KERNEL_BLOCK_H
#define NETPLUMB_KERNEL_BLOCK_H

#include "kernel/core.h"

#define DISK_NAME_LEN 32

struct gendisk {
	char disk_name[DISK_NAME_LEN];
} CO_RE;

struct request_queue {
	/* Since Linux 5.15, commit d152c682f03c. */
	struct gendisk *disk;
} CO_RE;

struct request {
	struct request_queue *q;
} CO_RE;

struct block_device {
	struct gendisk *bd_disk;
} CO_RE;

struct bio {
	struct block_device *bi_bdev;
} CO_RE;

#endif
