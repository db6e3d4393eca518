/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What errors.bpf.c and the process agree on: layout.rs is made of it.
 */
#ifndef NETPLUMB_ERRORS_H
#define NETPLUMB_ERRORS_H

/* Error numbers end at 133; what is above is counted as the last one. */
#define ERRORS_NUMBERS 256
/* As many as the counts have (paths.h). */
#define ERRORS_CPUS 1024

/* The device that packets come in by, and the namespace that it is in. */
struct errors_config {
	__u32 ingress_index;
	__u32 namespace_inum;
};

/* Frames lost, by the number of the error, and all of them by CPU. */
struct errors_lost {
	__u64 transmit[ERRORS_NUMBERS];
	__u64 redirect[ERRORS_NUMBERS];
	__u64 cpus[ERRORS_CPUS];
};

#endif
