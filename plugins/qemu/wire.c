// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A wire between NICs, in virtual time: of two QEMUs, or of one.
 *
 * Each NIC is on a hub port. What it sends is taken from there (wire_end.c: the
 * port's receive functions are replaced), gets the time at which a real wire
 * would have delivered it, and is handed to the other NIC at that time.
 *
 * Of two QEMUs each has this plugin, and one end of a socket. Both clocks count
 * instructions (-icount); they are kept together by barriers, at which each waits
 * for the other. Between two barriers passes less time than a frame takes at
 * least, so a frame is always known before it arrives, and all times are exact
 * and the same in every run, however fast the two QEMUs are executed. Two NICs of
 * one QEMU need none of that, and are connected all the time.
 *
 * QEMU has no interface for that: its own functions are called, which
 * distributions export for QEMU's modules. A QEMU that is not known, or lacks
 * something, is refused.
 *
 * A guest controls the wire to another one by I/O ports (wire.h), because an
 * access to a port is the only moment between timers at which a guest's clock can
 * be read.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "clock.h"
#include "plugin_api.h"
#include "wire_end.h"

/* Barriers are this much closer together than they had to be. */
#define SLACK_NS 64
/* Closer together, they would cost more than everything else. */
#define LEAST_STEP_NS 200
/*
 * Further apart, a NIC's own timers pass between them: e1000's sets itself again
 * in its callback before it raises the interrupt (set_interrupt_cause() in
 * hw/net/e1000.c), and an idle CPU's clock moves on to the next timer at once.
 */
#define MOST_STEP_NS 20000
/* Further apart, an end would be noticed late. */
#define LONGEST_STEP_NS 1000000
/* Barriers between two lines in the log that the hosts go on. */
#define LOGGED_BARRIERS 4096
/* TCP tries again after 120 s at the latest: hosts that send nothing for longer hang. */
#define LONGEST_SILENCE_NS 300000000000ll

static struct {
	const struct arch *arch;
	union qemu_timer barrier;
	union memory_region ports;

	enum wire_state state;
	bool wants_end;
	int64_t step_ns;
	uint64_t step;
	int64_t barrier_ns;   /* time of the next */
	int64_t last_came_ns; /* of a frame from the other host */

	uint64_t latched[WIRE_LATCHES][WIRE_VALUES];
	uint64_t selected;
} state;

/* The end of a host. */
static struct wire_end *const own_end = &wire_ends[0];

/* What a plan needs of QEMU is not there: its reader reports that with a remedy. */
#define refuse(...)                                                 \
	do {                                                        \
		fprintf(stderr, "netplumb: no wire: " __VA_ARGS__); \
		fputc('\n', stderr);                                \
		_exit(3);                                           \
	} while (0)

/*
 * When this host may send next, if nothing arrives: now if its CPU is executing,
 * else at its next timer.
 */
static int64_t quiet_until_ns(void)
{
	int64_t next_ns;

	if (!qemu.all_cpu_threads_idle())
		return wire_now_ns();
	next_ns = qemu.clock_deadline_ns_all(QEMU_CLOCK_VIRTUAL,
					     QEMU_TIMER_ATTR_ALL);
	return next_ns < 0 ? NEVER_NS : wire_now_ns() + next_ns;
}

static int64_t least(int64_t one, int64_t other)
{
	return one < other ? one : other;
}

static int64_t most(int64_t one, int64_t other)
{
	return one > other ? one : other;
}

/*
 * Both hosts have come to the same time: exchange the frames since the last. No
 * frame sent from now on arrives before the next barrier, which both work out
 * alike: when the first of them may send, and the least time that a frame takes.
 */
static void on_barrier(void *opaque)
{
	int64_t here_ns = quiet_until_ns();
	int64_t there_ns = wire_peer.first_outgoing_ns;
	bool expected = own_end->incoming.head;
	uint32_t known = own_end->incoming.frames;
	struct hello own = {
		.step = state.step,
		.ends = state.wants_end,
		.quiet_until_ns = here_ns,
	};
	struct hello other;
	int64_t first_ns;

	(void)opaque;
	other = wire_exchange(own, &own_end->incoming, &first_ns);
	there_ns = least(there_ns, other.quiet_until_ns);
	here_ns = least(here_ns, first_ns);
	if (own_end->incoming.frames > known) {
		own_end->values[WIRE_UNDER_WAY] +=
			own_end->incoming.frames - known;
		state.last_came_ns = wire_now_ns();
	}
	state.step++;
	own_end->values[WIRE_BARRIERS]++;
	if (!(state.step % LOGGED_BARRIERS))
		wire_log_time(&own_end->line);
	if (wire_now_ns() - most(state.last_came_ns, own_end->last_sent_ns) >
	    LONGEST_SILENCE_NS)
		wire_fail(
			"no frame for %lld s of virtual time: is the wire too slow, does it lose too much, or does a host hang?",
			LONGEST_SILENCE_NS / 1000000000);
	if (state.wants_end && other.ends) {
		state.state = WIRE_OVER;
		own_end->connected = false;
		if (!expected && own_end->incoming.head)
			wire_set_timer(&own_end->arrivals,
				       own_end->incoming.head->at_ns);
		return;
	}
	state.barrier_ns += state.step_ns;
	if (least(here_ns, there_ns) + state.step_ns > state.barrier_ns)
		state.barrier_ns =
			least(least(here_ns, there_ns) + state.step_ns,
			      state.barrier_ns + LONGEST_STEP_NS);
	expected |= !own_end->incoming.head;
	/* The sooner one first: an idle CPU's clock moves on to it at once. */
	if (!expected && own_end->incoming.head->at_ns < state.barrier_ns)
		wire_set_timer(&own_end->arrivals,
			       own_end->incoming.head->at_ns);
	wire_set_timer(&state.barrier, state.barrier_ns);
	if (!expected && own_end->incoming.head->at_ns >= state.barrier_ns)
		wire_set_timer(&own_end->arrivals,
			       own_end->incoming.head->at_ns);
}

static void latch(uint64_t number)
{
	uint64_t *latched = state.latched[number % WIRE_LATCHES];

	memcpy(latched, own_end->values, sizeof(own_end->values));
	latched[WIRE_CLOCK_NS] = (uint64_t)wire_now_ns();
	latched[WIRE_INSNS] = (uint64_t)qemu.icount_get_raw();
}

static void begin(void)
{
	if (state.state == WIRE_TOGETHER)
		return;
	memset(own_end->values, 0, sizeof(own_end->values));
	wire_line_clear(&own_end->line);
	state.last_came_ns = 0;
	own_end->last_sent_ns = 0;
	state.wants_end = false;
	wire_begin_now();
	own_end->connected = true;
	state.state = WIRE_TOGETHER;
	state.step = 1;
	state.barrier_ns = state.step_ns;
	wire_peer.first_outgoing_ns = NEVER_NS;
	wire_set_timer(&state.barrier, state.barrier_ns);
}

static void on_port_write(void *opaque, uint64_t port, uint64_t data,
			  unsigned size)
{
	(void)opaque;
	(void)size;
	if (port == WIRE_STATE) {
		state.selected = data;
		return;
	}
	if (port != WIRE_COMMAND)
		return;
	switch (data & 0xff) {
	case WIRE_BEGIN:
		begin();
		break;
	case WIRE_END:
		state.wants_end = true;
		break;
	case WIRE_LATCH:
		latch(data >> 8);
		break;
	default:
		break;
	}
}

static uint64_t on_port_read(void *opaque, uint64_t port, unsigned size)
{
	const uint64_t *latched =
		state.latched[(state.selected >> 8) % WIRE_LATCHES];
	uint64_t value = latched[(state.selected & 0xff) % WIRE_VALUES];

	(void)opaque;
	(void)size;
	switch (port) {
	case WIRE_COMMAND:
		return WIRE_MAGIC;
	case WIRE_STATE:
		return state.state;
	case WIRE_LOW:
		return (uint32_t)value;
	case WIRE_HIGH:
		return value >> 32;
	default:
		return 0;
	}
}

static const struct memory_region_ops port_ops = {
	.read = on_port_read,
	.write = on_port_write,
	.endianness = DEVICE_LITTLE_ENDIAN,
	.valid = { .min_access_size = 4, .max_access_size = 4 },
	.impl = { .min_access_size = 4, .max_access_size = 4 },
};

/* Whether the other end is in another QEMU. */
static bool has_peer(void)
{
	return wire_peer.socket >= 0;
}

static void add_ports(void)
{
	qemu.memory_region_init_io(&state.ports, NULL, &port_ops, NULL,
				   "netplumb-wire", WIRE_PORTS);
	if (state.arch->has_ports)
		qemu.memory_region_add_subregion(qemu.get_system_io(),
						 WIRE_PORT, &state.ports);
	else
		qemu.memory_region_add_subregion(qemu.get_system_memory(),
						 WIRE_ADDRESS, &state.ports);
}

static void on_vcpu(void)
{
	if (!wire_qemu_counts())
		refuse("QEMU's clock does not count instructions (-icount shift=N)");
	for (size_t i = 0; i < WIRE_ENDS && wire_ends[i].nic; i++) {
		const char *why = wire_take_over(&wire_ends[i]);

		if (why)
			refuse("%s", why);
		if (has_peer())
			continue;
		/* They are given in pairs. */
		wire_ends[i].other = &wire_ends[i ^ 1];
		wire_ends[i].connected = true;
	}
	if (!has_peer())
		return;
	qemu.timer_init_full(&state.barrier, NULL, QEMU_CLOCK_VIRTUAL, 1, 0,
			     on_barrier, NULL);
	add_ports();
}

static void on_translation(struct qemu_plugin_tb *tb)
{
	if (qemu_plugin_tb_vaddr(tb) >> 63)
		clock_settle_before_halt(state.arch, tb);
}

/* Of an option with the number of an end; returns whether it is one. */
static bool take_of_end(const char *name, size_t length, const char *value)
{
	unsigned number = (unsigned)name[length - 1] - '0';
	struct wire_end *end = &wire_ends[number % WIRE_ENDS];

	if (number >= WIRE_ENDS)
		return false;
#define IS(of) (length == sizeof(of) && !memcmp(name, of, length - 1))
	if (IS("nic"))
		end->nic = strdup(value);
	else if (IS("log"))
		end->line.log = atoi(value);
	else if (IS("random"))
		end->line.random = strtoull(value, NULL, 10);
	else
		return false;
#undef IS
	return true;
}

static void take_option(const char *option)
{
	const char *value = strchr(option, '=');
	size_t length;
	unsigned long long number;

	if (!value || value == option)
		return;
	length = (size_t)(value - option);
	number = strtoull(++value, NULL, 10);
	if (take_of_end(option, length, value))
		return;
#define IS(name) (length == strlen(name) && !memcmp(option, name, length))
	if (IS("host"))
		wire_peer.host = strdup(value);
	else if (IS("peer"))
		wire_peer.socket = (int)number;
	else if (IS("rate"))
		wire_kind.bits_per_s = number;
	else if (IS("delay"))
		wire_kind.delay_ns = (int64_t)number;
	else if (IS("jitter"))
		wire_kind.jitter_ns = (int64_t)number;
	else if (IS("loss"))
		wire_kind.loss_ppb = number;
	else if (IS("overhead"))
		wire_kind.overhead_bytes = (uint32_t)number;
	else if (IS("longest"))
		wire_kind.max_bytes = (uint32_t)number;
#undef IS
}

/* The shortest frame of the other host arrives after the next barrier. */
static bool plan_barriers(void)
{
	state.step_ns = wire_kind.delay_ns +
			wire_occupied_ps(MIN_FRAME) / PS_PER_NS - SLACK_NS;
	if (state.step_ns < LEAST_STEP_NS) {
		fprintf(stderr,
			"netplumb: no wire: its delay is too short for its rate: at "
			"least %lld ns\n",
			(long long)(wire_kind.delay_ns + LEAST_STEP_NS -
				    state.step_ns));
		return false;
	}
	state.step_ns = least(state.step_ns, MOST_STEP_NS);
	return true;
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id,
					   const qemu_info_t *info, int argc,
					   char **argv)
{
	const char *why;

	for (int i = 0; i < argc; i++)
		take_option(argv[i]);
	state.arch = arch_of_target(info->target_name);
	if (!state.arch || !info->system_emulation ||
	    info->system.max_vcpus > 1) {
		fputs("netplumb: no wire: it is for guests with one vCPU\n",
		      stderr);
		return -1;
	}
	if (!plugin_open(info))
		return -1;
	why = wire_qemu_open();
	if (why) {
		fprintf(stderr, "netplumb: no wire: %s\n", why);
		return -1;
	}
	if (!clock_can_settle()) {
		fputs("netplumb: no wire: QEMU lacks icount_update\n", stderr);
		return -1;
	}
	if (!wire_kind.bits_per_s || (!has_peer() && !wire_ends[1].nic)) {
		fputs("netplumb: no wire: it has no rate, or no other end\n",
		      stderr);
		return -1;
	}
	if (has_peer() && !plan_barriers())
		return -1;
	plugin_on_vcpu(id, on_vcpu);
	plugin_on_translation(id, on_translation);
	return 0;
}
