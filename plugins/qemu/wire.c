// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A wire between the NICs of two QEMUs, in virtual time.
 *
 * Each QEMU has this plugin, a NIC on a hub port, and one end of a socket. What
 * the NIC sends is taken from the hub port (its receive functions are replaced),
 * gets the time at which a real wire would have delivered it, and is handed to
 * the other QEMU's NIC at that time of its clock. Both clocks count instructions
 * (-icount); they are kept together by barriers, at which each waits for the
 * other. Between two barriers passes less time than a frame takes at least, so a
 * frame is always known before it arrives, and all times are exact and the same
 * in every run, however fast the two QEMUs are executed.
 *
 * QEMU has no interface for that: its own functions are called, which
 * distributions export for QEMU's modules. A QEMU that is not known, or lacks
 * something, is refused.
 *
 * The guest controls the wire by I/O ports (wire.h), because an access to a port
 * is the only moment between timers at which a guest's clock can be read.
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
#include "wire.h"
#include "wire_line.h"
#include "wire_peer.h"
#include "wire_qemu.h"

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

/* Barriers are this much closer together than they had to be. */
#define SLACK_NS 64
/*
 * A timer is as late as an instruction takes, 64 ns on the slowest CPU, and a
 * bit more.
 */
#define LATENESS_NS 128
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
/* As often it is said that the hosts go on: at every so many barriers. */
#define LOGGED_BARRIERS 4096
/* TCP tries again after 120 s at the latest: hosts that send nothing for longer hang. */
#define LONGEST_SILENCE_NS 300000000000ll

static struct {
	const struct arch *arch;
	const char *nic; /* the hub port of its NIC */

	struct net_client *nc;
	struct net_client_info info;
	union qemu_timer arrivals;
	union qemu_timer barrier;
	union memory_region ports;

	enum wire_state state;
	bool wants_end;
	int64_t epoch_ns;
	int64_t step_ns;
	uint64_t step;
	int64_t barrier_ns;    /* time of the next */
	int64_t last_frame_ns; /* that was sent, or came */
	struct queue outgoing;
	int64_t first_outgoing_ns; /* when the first of them arrives */
	struct queue incoming;

	uint64_t values[WIRE_VALUES];
	uint64_t latched[WIRE_LATCHES][WIRE_VALUES];
	uint64_t selected;
} state = { .nic = "nic0" };

/* What a plan needs of QEMU is not there: said with a remedy by who reads it. */
#define refuse(...)                                                 \
	do {                                                        \
		fprintf(stderr, "netplumb: no wire: " __VA_ARGS__); \
		fputc('\n', stderr);                                \
		_exit(3);                                           \
	} while (0)

static int64_t now_ns(void)
{
	return qemu.clock_get_ns(QEMU_CLOCK_VIRTUAL) - state.epoch_ns;
}

/*
 * While a CPU is idle, QEMU moves its clock on to the next timer whenever one
 * is changed, also from a timer's own callback, in which others are not yet set.
 * A CPU with work is not idle.
 */
static void nothing(struct cpu_state *cpu, union run_on_cpu_data data)
{
	(void)cpu;
	(void)data;
}

static void keep_clock(void)
{
	union run_on_cpu_data none = { 0 };

	if (qemu.all_cpu_threads_idle())
		qemu.async_run_on_cpu(qemu.get_cpu(0), nothing, none);
}

static void set_timer(union qemu_timer *timer, int64_t at_ns)
{
	qemu.timer_mod_ns(timer, state.epoch_ns + at_ns);
}

/* The next frames have arrived: hand them to the NIC. */
static void on_arrivals(void *opaque)
{
	int64_t now = now_ns();

	(void)opaque;
	keep_clock();
	while (state.incoming.head && state.incoming.head->at_ns <= now) {
		struct frame *frame = wire_take(&state.incoming);

		if (now - frame->at_ns > LATENESS_NS)
			state.values[WIRE_LATE]++;
		state.values[WIRE_ARRIVED]++;
		state.values[WIRE_UNDER_WAY]--;
		/* 0 if the NIC has no room: QEMU keeps it for the NIC. */
		if (!qemu.send_packet(state.nc, frame->data, (int)frame->bytes))
			state.values[WIRE_HELD]++;
		free(frame);
	}
	if (state.incoming.head)
		set_timer(&state.arrivals, state.incoming.head->at_ns);
}

/*
 * When this host may send next, if nothing arrives: now if its CPU is executing,
 * else at its next timer.
 */
static int64_t quiet_until_ns(void)
{
	int64_t next_ns;

	if (!qemu.all_cpu_threads_idle())
		return now_ns();
	next_ns = qemu.clock_deadline_ns_all(QEMU_CLOCK_VIRTUAL,
					     QEMU_TIMER_ATTR_ALL);
	return next_ns < 0 ? NEVER_NS : now_ns() + next_ns;
}

static int64_t least(int64_t one, int64_t other)
{
	return one < other ? one : other;
}

/*
 * Both hosts have come to the same time: exchange the frames since the last. No
 * frame sent from now on arrives before the next barrier, which both work out
 * alike: when the first of them may send, and the least time that a frame takes.
 */
static void on_barrier(void *opaque)
{
	int64_t here_ns = quiet_until_ns();
	int64_t there_ns = state.first_outgoing_ns;
	bool expected = state.incoming.head;
	uint32_t known = state.incoming.frames;
	struct hello own = {
		.step = state.step,
		.ends = state.wants_end,
		.quiet_until_ns = here_ns,
	};
	struct hello other;
	int64_t first_ns;

	(void)opaque;
	other = wire_exchange(own, &state.outgoing, &state.incoming, &first_ns);
	there_ns = least(there_ns, other.quiet_until_ns);
	here_ns = least(here_ns, first_ns);
	if (state.incoming.frames > known) {
		state.values[WIRE_UNDER_WAY] += state.incoming.frames - known;
		state.last_frame_ns = now_ns();
	}
	state.first_outgoing_ns = NEVER_NS;
	state.step++;
	state.values[WIRE_BARRIERS]++;
	if (!(state.step % LOGGED_BARRIERS))
		wire_log_time();
	if (now_ns() - state.last_frame_ns > LONGEST_SILENCE_NS)
		wire_fail(
			"no frame for %lld s of virtual time: is the wire too slow, does it lose too much, or does a host hang?",
			LONGEST_SILENCE_NS / 1000000000);
	if (state.wants_end && other.ends) {
		state.state = WIRE_OVER;
		if (!expected && state.incoming.head)
			set_timer(&state.arrivals, state.incoming.head->at_ns);
		return;
	}
	state.barrier_ns += state.step_ns;
	if (least(here_ns, there_ns) + state.step_ns > state.barrier_ns)
		state.barrier_ns =
			least(least(here_ns, there_ns) + state.step_ns,
			      state.barrier_ns + LONGEST_STEP_NS);
	expected |= !state.incoming.head;
	/* The sooner one first: an idle CPU's clock moves on to it at once. */
	if (!expected && state.incoming.head->at_ns < state.barrier_ns)
		set_timer(&state.arrivals, state.incoming.head->at_ns);
	set_timer(&state.barrier, state.barrier_ns);
	if (!expected && state.incoming.head->at_ns >= state.barrier_ns)
		set_timer(&state.arrivals, state.incoming.head->at_ns);
}

/* The NIC sends: in place of the hub port's own. */
static ssize_t on_send_iov(struct net_client *nc, const struct iovec *iov,
			   int count)
{
	size_t bytes = qemu.iov_size(iov, (unsigned)count);
	size_t padded = bytes < MIN_FRAME ? MIN_FRAME : bytes;
	struct frame *frame;
	int64_t at_ns;

	(void)nc;
	if (state.state != WIRE_TOGETHER) {
		state.values[WIRE_UNCONNECTED]++;
		return (ssize_t)bytes;
	}
	state.last_frame_ns = now_ns();
	at_ns = wire_cross(now_ns(), (uint32_t)padded, state.values);
	if (at_ns < 0)
		return (ssize_t)bytes;
	frame = wire_new_frame(padded);
	frame->at_ns = at_ns;
	qemu.iov_to_buf_full(iov, (unsigned)count, 0, frame->data, bytes);
	memset(frame->data + bytes, 0, padded - bytes);
	wire_append(&state.outgoing, frame);
	state.first_outgoing_ns = least(state.first_outgoing_ns, at_ns);
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

static void latch(uint64_t number)
{
	uint64_t *latched = state.latched[number % WIRE_LATCHES];

	memcpy(latched, state.values, sizeof(state.values));
	latched[WIRE_CLOCK_NS] = (uint64_t)now_ns();
	latched[WIRE_INSNS] = (uint64_t)qemu.icount_get_raw();
}

static void begin(void)
{
	if (state.state == WIRE_TOGETHER)
		return;
	memset(state.values, 0, sizeof(state.values));
	wire_line_clear();
	state.last_frame_ns = 0;
	state.wants_end = false;
	state.epoch_ns = qemu.clock_get_ns(QEMU_CLOCK_VIRTUAL);
	state.state = WIRE_TOGETHER;
	state.step = 1;
	state.barrier_ns = state.step_ns;
	state.first_outgoing_ns = NEVER_NS;
	set_timer(&state.barrier, state.barrier_ns);
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

/* Take what the NIC sends from the port of its hub. */
static void take_over(void)
{
	state.nc = qemu.find_netdev(state.nic);
	if (!state.nc)
		refuse("this guest has no NIC %s", state.nic);
	if (!wire_qemu_is_hub_port(state.nc))
		refuse("this QEMU's network devices are laid out otherwise than those "
		       "of QEMU 7.2");
	state.info = *state.nc->info;
	state.info.receive = on_send;
	state.info.receive_iov = on_send_iov;
	state.info.can_receive = on_can_send;
	state.nc->info = &state.info;
}

static void on_vcpu(qemu_plugin_id_t id, unsigned int vcpu)
{
	(void)id;
	if (vcpu)
		return;
	if (!wire_qemu_counts())
		refuse("QEMU's clock does not count instructions (-icount shift=N)");
	take_over();
	qemu.timer_init_full(&state.arrivals, NULL, QEMU_CLOCK_VIRTUAL, 1, 0,
			     on_arrivals, NULL);
	qemu.timer_init_full(&state.barrier, NULL, QEMU_CLOCK_VIRTUAL, 1, 0,
			     on_barrier, NULL);
	qemu.memory_region_init_io(&state.ports, NULL, &port_ops, NULL,
				   "netplumb-wire", WIRE_PORTS);
	if (state.arch->has_ports)
		qemu.memory_region_add_subregion(qemu.get_system_io(),
						 WIRE_PORT, &state.ports);
	else
		qemu.memory_region_add_subregion(qemu.get_system_memory(),
						 WIRE_ADDRESS, &state.ports);
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	(void)id;
	if (qemu_plugin_tb_vaddr(tb) >> 63)
		clock_settle_before_halt(state.arch, tb);
}

static void take_option(const char *option)
{
	const char *value = strchr(option, '=');
	size_t length;
	unsigned long long number;

	if (!value)
		return;
	length = (size_t)(value - option);
	number = strtoull(++value, NULL, 10);
#define IS(name) (length == strlen(name) && !memcmp(option, name, length))
	if (IS("host"))
		wire_peer.host = strdup(value);
	else if (IS("nic"))
		state.nic = strdup(value);
	else if (IS("peer"))
		wire_peer.socket = (int)number;
	else if (IS("log"))
		wire_line.log = (int)number;
	else if (IS("rate"))
		wire_line.bits_per_s = number;
	else if (IS("delay"))
		wire_line.delay_ns = (int64_t)number;
	else if (IS("jitter"))
		wire_line.jitter_ns = (int64_t)number;
	else if (IS("loss"))
		wire_line.loss_ppb = number;
	else if (IS("overhead"))
		wire_line.overhead_bytes = (uint32_t)number;
	else if (IS("longest"))
		wire_line.max_bytes = (uint32_t)number;
	else if (IS("random"))
		wire_line.random = number;
#undef IS
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
	why = wire_qemu_open();
	if (why) {
		fprintf(stderr, "netplumb: no wire: %s\n", why);
		return -1;
	}
	if (!clock_can_settle()) {
		fputs("netplumb: no wire: QEMU lacks icount_update\n", stderr);
		return -1;
	}
	if (!wire_line.bits_per_s || wire_peer.socket < 0) {
		fputs("netplumb: no wire: it has no rate, or no other end\n",
		      stderr);
		return -1;
	}
	/* The shortest frame of the other host arrives after the next barrier. */
	state.step_ns = wire_line.delay_ns +
			wire_occupied_ps(MIN_FRAME) / PS_PER_NS - SLACK_NS;
	if (state.step_ns < LEAST_STEP_NS) {
		fprintf(stderr,
			"netplumb: no wire: its delay is too short for its rate: at "
			"least %lld ns\n",
			(long long)(wire_line.delay_ns + LEAST_STEP_NS -
				    state.step_ns));
		return -1;
	}
	state.step_ns = least(state.step_ns, MOST_STEP_NS);
	qemu_plugin_register_vcpu_init_cb(id, on_vcpu);
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	return 0;
}
