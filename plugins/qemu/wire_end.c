// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Takes what a NIC sends, and hands it what comes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire_end.h"

/*
 * A timer is as late as an instruction takes, 64 ns on the slowest CPU, and a
 * bit more.
 */
#define LATENESS_NS 128

struct wire_end wire_ends[WIRE_ENDS] = {
	{ .nic = "nic0", .line.log = -1 },
	{ .line.log = -1 },
	{ .line.log = -1 },
	{ .line.log = -1 },
};

static int64_t epoch_ns;

int64_t wire_now_ns(void)
{
	return qemu.clock_get_ns(QEMU_CLOCK_VIRTUAL) - epoch_ns;
}

void wire_begin_now(void)
{
	epoch_ns = qemu.clock_get_ns(QEMU_CLOCK_VIRTUAL);
}

void wire_set_timer(union qemu_timer *timer, int64_t at_ns)
{
	qemu.timer_mod_ns(timer, epoch_ns + at_ns);
}

static void nothing(struct cpu_state *cpu, union run_on_cpu_data data)
{
	(void)cpu;
	(void)data;
}

/*
 * While a CPU is idle, QEMU moves its clock on to the next timer whenever one
 * is changed, also from a timer's own callback, in which others are not yet set.
 * A CPU with work is not idle.
 */
void wire_keep_clock(void)
{
	union run_on_cpu_data none = { 0 };

	if (qemu.all_cpu_threads_idle())
		qemu.async_run_on_cpu(qemu.get_cpu(0), nothing, none);
}

/* The next frames have arrived: hand them to the NIC. */
static void on_arrivals(void *opaque)
{
	struct wire_end *end = opaque;
	int64_t now = wire_now_ns();

	wire_keep_clock();
	while (end->incoming.head && end->incoming.head->at_ns <= now) {
		struct frame *frame = wire_take(&end->incoming);

		if (now - frame->at_ns > LATENESS_NS)
			end->values[WIRE_LATE]++;
		end->values[WIRE_ARRIVED]++;
		end->values[WIRE_UNDER_WAY]--;
		if (end->other)
			wire_log_arrival(&end->other->line, now);
		/* 0 if the NIC has no room: QEMU keeps it for the NIC. */
		if (!qemu.send_packet(end->nc, frame->data, (int)frame->bytes))
			end->values[WIRE_HELD]++;
		free(frame);
	}
	if (end->incoming.head)
		wire_set_timer(&end->arrivals, end->incoming.head->at_ns);
}

static struct wire_end *end_of(const struct net_client *nc)
{
	for (size_t i = 0; i < WIRE_ENDS; i++)
		if (wire_ends[i].nc == nc)
			return &wire_ends[i];
	wire_fail("a NIC sends that has no wire");
}

static void to_other(struct wire_end *other, struct frame *frame)
{
	bool expected = other->incoming.head;

	wire_append(&other->incoming, frame);
	other->values[WIRE_UNDER_WAY]++;
	if (expected)
		return;
	/* virtio-net sends from a timer. */
	wire_keep_clock();
	wire_set_timer(&other->arrivals, frame->at_ns);
}

/* The NIC sends: in place of the hub port's own. */
static ssize_t on_send_iov(struct net_client *nc, const struct iovec *iov,
			   int count)
{
	struct wire_end *end = end_of(nc);
	size_t bytes = qemu.iov_size(iov, (unsigned)count);
	size_t padded = bytes < MIN_FRAME ? MIN_FRAME : bytes;
	struct frame *frame;
	int64_t at_ns;

	if (!end->connected) {
		end->values[WIRE_UNCONNECTED]++;
		return (ssize_t)bytes;
	}
	end->last_sent_ns = wire_now_ns();
	at_ns = wire_cross(&end->line, end->last_sent_ns, (uint32_t)padded,
			   end->values);
	if (at_ns < 0)
		return (ssize_t)bytes;
	frame = wire_new_frame(padded);
	frame->at_ns = at_ns;
	qemu.iov_to_buf_full(iov, (unsigned)count, 0, frame->data, bytes);
	memset(frame->data + bytes, 0, padded - bytes);
	if (end->other)
		to_other(end->other, frame);
	else
		wire_to_peer(frame);
	return (ssize_t)bytes;
}

static ssize_t on_send(struct net_client *nc, const uint8_t *data, size_t bytes)
{
	struct iovec iov = { .iov_base = (void *)data, .iov_len = bytes };

	return on_send_iov(nc, &iov, 1);
}

/* The wire takes frames also while nobody is at its other end. */
static bool on_can_send(struct net_client *nc)
{
	(void)nc;
	return true;
}

const char *wire_take_over(struct wire_end *end)
{
	static char why[64];

	end->nc = qemu.find_netdev(end->nic);
	if (!end->nc) {
		snprintf(why, sizeof(why), "this guest has no NIC %s",
			 end->nic);
		return why;
	}
	if (!wire_qemu_is_hub_port(end->nc))
		return "this QEMU's network devices are laid out otherwise than those of QEMU 7.2 and 10.0";
	end->info = *end->nc->info;
	wire_qemu_replace(&end->info, on_send, on_send_iov, on_can_send);
	end->nc->info = &end->info;
	qemu.timer_init_full(&end->arrivals, NULL, QEMU_CLOCK_VIRTUAL, 1, 0,
			     on_arrivals, end);
	return NULL;
}
