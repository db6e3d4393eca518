/* SPDX-License-Identifier: GPL-2.0-or-later */
/* An end of a wire: a NIC of this guest, what it sends, and what comes to it. */
#ifndef NETPLUMB_WIRE_END_H
#define NETPLUMB_WIRE_END_H

#include "wire.h"
#include "wire_line.h"
#include "wire_peer.h"
#include "wire_qemu.h"

/* A router between two wires has two of them. */
#define WIRE_ENDS 4

struct wire_end {
	const char *nic;	/* the hub port of its NIC */
	struct wire_line line;	/* what it sends goes over */
	struct wire_end *other; /* if that is in this guest, too */
	bool connected;

	struct net_client *nc;
	struct net_client_info info;
	union qemu_timer arrivals;
	struct queue incoming;
	int64_t last_sent_ns;
	uint64_t values[WIRE_VALUES];
};

extern struct wire_end wire_ends[WIRE_ENDS];

/* Time since the beginning. */
int64_t wire_now_ns(void);
void wire_begin_now(void);

void wire_set_timer(union qemu_timer *timer, int64_t at_ns);

/* To be called before a timer is set from a timer's callback. */
void wire_keep_clock(void);

/* Take what its NIC sends from the port of its hub; returns why not, or NULL. */
const char *wire_take_over(struct wire_end *end);

#endif
