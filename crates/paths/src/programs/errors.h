/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Declarations shared by errors.bpf.c and user space: layout.rs is generated
 * from them.
 */
#ifndef NETPLUMB_ERRORS_H
#define NETPLUMB_ERRORS_H

/* Error numbers end at 133; higher ones are counted as the last one. */
#define ERRORS_NUMBERS 256
/* The number of CPUs of the counters (paths.h). */
#define ERRORS_CPUS 1024

/* The receiving device, and its namespace. */
struct errors_config {
	__u32 ingress_index;
	__u32 namespace_inum;
};

/* Lost frames by error number, and all of them by CPU. */
struct errors_lost {
	__u64 transmit[ERRORS_NUMBERS];
	__u64 redirect[ERRORS_NUMBERS];
	__u64 cpus[ERRORS_CPUS];
};

#endif
