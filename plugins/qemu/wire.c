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
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "clock.h"
#include "plugin_api.h"
#include "wire.h"
#include "wire_qemu.h"

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

/* Shorter frames are padded by a NIC (IEEE 802.3: 64 with FCS). */
#define MIN_FRAME 60
/* Barriers are this much closer together than they had to be. */
#define SLACK_NS 64
/*
 * A timer is as late as an instruction takes, 64 ns on the slowest CPU, and a
 * bit more.
 */
#define LATENESS_NS 128
/* Closer together, they would cost more than everything else. */
#define LEAST_STEP_NS 200
/* Further apart, an end would be noticed late. */
#define LONGEST_STEP_NS 1000000
#define PS_PER_NS 1000
/* Some years. */
#define NEVER_NS (INT64_MAX / 4)

struct frame {
	struct frame *next;
	int64_t at_ns; /* of arrival, since the beginning */
	uint32_t bytes;
	uint8_t data[];
};

struct queue {
	struct frame *head;
	struct frame **tail;
};

/* What precedes the frames of a barrier. */
struct hello {
	uint64_t step;
	uint32_t frames;
	uint32_t bytes; /* of all that follows */
	uint32_t ends;	/* whether the sender wants to disconnect */
	uint32_t reserved;
	int64_t quiet_until_ns; /* it sends nothing before, if nothing arrives */
};

static struct {
	const char *host;
	const char *nic; /* the hub port of its NIC */
	int peer;
	int log;
	uint64_t bits_per_s;
	int64_t delay_ns;
	int64_t jitter_ns;
	uint64_t loss_ppb; /* of a billion frames */
	uint32_t overhead_bytes;
	uint32_t max_bytes; /* of a frame; 0 for any */
	uint64_t random;
	int patience_s;

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
	int64_t barrier_ns; /* time of the next */
	int64_t busy_until_ps;
	int64_t last_arrival_ns;
	struct queue outgoing;
	uint32_t n_outgoing;
	size_t outgoing_bytes;
	int64_t first_outgoing_ns; /* when the first of them arrives */
	struct queue incoming;

	uint64_t values[WIRE_VALUES];
	uint64_t latched[WIRE_LATCHES][WIRE_VALUES];
	uint64_t selected;
} state = { .host = "?",
	    .nic = "nic0",
	    .peer = -1,
	    .log = -1,
	    .bits_per_s = 1000000000,
	    .delay_ns = 1000,
	    .overhead_bytes = 24,
	    .patience_s = 60 };

static void __attribute__((noreturn, format(printf, 1, 2)))
fail(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "netplumb: wire of host %s: ", state.host);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	_exit(3);
}

/* What a plan needs of QEMU is not there: said with a remedy by who reads it. */
#define refuse(...)                                                 \
	do {                                                        \
		fprintf(stderr, "netplumb: no wire: " __VA_ARGS__); \
		fputc('\n', stderr);                                \
		_exit(3);                                           \
	} while (0)

static struct frame *new_frame(size_t bytes)
{
	struct frame *frame = malloc(sizeof(*frame) + bytes);

	if (!frame)
		fail("out of memory");
	frame->next = NULL;
	frame->bytes = (uint32_t)bytes;
	return frame;
}

static void append(struct queue *queue, struct frame *frame)
{
	if (!queue->head)
		queue->tail = &queue->head;
	*queue->tail = frame;
	queue->tail = &frame->next;
}

static struct frame *take(struct queue *queue)
{
	struct frame *frame = queue->head;

	if (frame)
		queue->head = frame->next;
	return frame;
}

static int64_t now_ns(void)
{
	return qemu.clock_get_ns(QEMU_CLOCK_VIRTUAL) - state.epoch_ns;
}

/* splitmix64 */
static uint64_t draw(void)
{
	uint64_t z = state.random += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* How long so many bytes, and what a wire adds to them, occupy the wire. */
static int64_t occupied_ps(uint32_t bytes)
{
	uint64_t bits = 8 * ((uint64_t)bytes + state.overhead_bytes);

	return (int64_t)((unsigned __int128)bits * 1000000000000u /
			 state.bits_per_s);
}

static int64_t ceil_ns(int64_t ps)
{
	return (ps + PS_PER_NS - 1) / PS_PER_NS;
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
		struct frame *frame = take(&state.incoming);

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
 * Send and receive at once: neither side may wait for room in the socket while
 * the other one does. So both know before how much there is to receive.
 */
static void exchange(const uint8_t *out, size_t left, uint8_t *in,
		     size_t wanted)
{
	while (left || wanted) {
		struct pollfd pollfd = { .fd = state.peer };
		ssize_t n;

		if (wanted) {
			n = recv(state.peer, in, wanted, MSG_DONTWAIT);
			if (!n)
				fail("the other host has ended");
			if (n > 0) {
				in += n;
				wanted -= (size_t)n;
				continue;
			}
			if (errno != EAGAIN && errno != EINTR)
				fail("the other host has ended: %s",
				     strerror(errno));
			pollfd.events |= POLLIN;
		}
		if (left) {
			n = send(state.peer, out, left,
				 MSG_DONTWAIT | MSG_NOSIGNAL);
			if (n > 0) {
				out += n;
				left -= (size_t)n;
				continue;
			}
			if (errno != EAGAIN && errno != EINTR)
				fail("the other host has ended: %s",
				     strerror(errno));
			pollfd.events |= POLLOUT;
		}
		n = poll(&pollfd, 1, state.patience_s * 1000);
		if (!n)
			fail("no answer from the other host within %d s",
			     state.patience_s);
	}
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

/* The frames to send, after what is said of them. */
static uint8_t *pack(struct hello *hello, int64_t quiet_until_ns)
{
	uint8_t *buffer = malloc(state.outgoing_bytes + 1);
	uint8_t *at = buffer;
	struct frame *frame;

	*hello = (struct hello){
		.step = state.step,
		.frames = state.n_outgoing,
		.bytes = (uint32_t)state.outgoing_bytes,
		.ends = state.wants_end,
		.quiet_until_ns = quiet_until_ns,
	};
	if (!buffer)
		fail("out of memory");
	while ((frame = take(&state.outgoing))) {
		memcpy(at, &frame->at_ns, sizeof(frame->at_ns));
		at += sizeof(frame->at_ns);
		memcpy(at, &frame->bytes, sizeof(frame->bytes));
		at += sizeof(frame->bytes);
		memcpy(at, frame->data, frame->bytes);
		at += frame->bytes;
		free(frame);
	}
	state.n_outgoing = 0;
	state.outgoing_bytes = 0;
	return buffer;
}

/* Returns when the first of them arrives. */
static int64_t unpack(const uint8_t *at, uint32_t frames)
{
	int64_t first_ns = NEVER_NS;

	for (uint32_t i = 0; i < frames; i++) {
		int64_t at_ns;
		uint32_t bytes;
		struct frame *frame;

		memcpy(&at_ns, at, sizeof(at_ns));
		at += sizeof(at_ns);
		memcpy(&bytes, at, sizeof(bytes));
		at += sizeof(bytes);
		frame = new_frame(bytes);
		frame->at_ns = at_ns;
		memcpy(frame->data, at, bytes);
		at += bytes;
		state.values[WIRE_UNDER_WAY]++;
		append(&state.incoming, frame);
		if (at_ns < first_ns)
			first_ns = at_ns;
	}
	return first_ns;
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
	struct hello own, other;
	uint8_t *out, *in;

	(void)opaque;
	out = pack(&own, here_ns);
	exchange((uint8_t *)&own, sizeof(own), (uint8_t *)&other,
		 sizeof(other));
	if (other.step != state.step)
		fail("the other host is at barrier %llu, this one at %llu",
		     (unsigned long long)other.step,
		     (unsigned long long)state.step);
	there_ns = least(there_ns, other.quiet_until_ns);
	in = malloc(other.bytes + 1);
	if (!in)
		fail("out of memory");
	exchange(out, own.bytes, in, other.bytes);
	here_ns = least(here_ns, unpack(in, other.frames));
	free(in);
	free(out);
	state.first_outgoing_ns = NEVER_NS;
	state.step++;
	state.values[WIRE_BARRIERS]++;
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

static void log_frame(int64_t begin_ps, int64_t arrival_ns, uint32_t bytes)
{
	struct wire_entry entry = {
		.begin_ps = begin_ps,
		.arrival_ns = arrival_ns,
		.bytes = bytes,
	};

	if (state.log >= 0 &&
	    write(state.log, &entry, sizeof(entry)) != sizeof(entry))
		fail("can't write the log: %s", strerror(errno));
}

/* A frame leaves the NIC: when does it arrive? -1 if it never does. */
static int64_t cross(uint32_t bytes)
{
	int64_t now_ps = now_ns() * PS_PER_NS;
	int64_t begin_ps = state.busy_until_ps > now_ps ? state.busy_until_ps
							: now_ps;
	int64_t occupied = occupied_ps(bytes);
	int64_t waited_ns = (begin_ps - now_ps) / PS_PER_NS;
	int64_t arrival_ns;

	state.busy_until_ps = begin_ps + occupied;
	arrival_ns = ceil_ns(state.busy_until_ps) + state.delay_ns;
	if (state.jitter_ns)
		arrival_ns +=
			(int64_t)(draw() % ((uint64_t)state.jitter_ns + 1));
	/* A wire keeps the order of frames. */
	if (arrival_ns < state.last_arrival_ns)
		arrival_ns = state.last_arrival_ns;
	state.values[WIRE_FRAMES]++;
	state.values[WIRE_BYTES] += bytes + state.overhead_bytes;
	state.values[WIRE_BUSY_NS] =
		(uint64_t)((state.values[WIRE_BYTES] *
			    (unsigned __int128)8000000000u) /
			   state.bits_per_s);
	if (waited_ns > (int64_t)state.values[WIRE_LONGEST_NS])
		state.values[WIRE_LONGEST_NS] = (uint64_t)waited_ns;
	if (state.max_bytes && bytes > state.max_bytes) {
		state.values[WIRE_TOO_LONG]++;
		arrival_ns = -1;
	} else if (state.loss_ppb && draw() % 1000000000u < state.loss_ppb) {
		state.values[WIRE_LOST]++;
		arrival_ns = -1;
	} else {
		state.last_arrival_ns = arrival_ns;
	}
	log_frame(begin_ps, arrival_ns, bytes);
	return arrival_ns;
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
	at_ns = cross((uint32_t)padded);
	if (at_ns < 0)
		return (ssize_t)bytes;
	frame = new_frame(padded);
	frame->at_ns = at_ns;
	qemu.iov_to_buf_full(iov, (unsigned)count, 0, frame->data, bytes);
	memset(frame->data + bytes, 0, padded - bytes);
	append(&state.outgoing, frame);
	state.first_outgoing_ns = least(state.first_outgoing_ns, at_ns);
	state.n_outgoing++;
	state.outgoing_bytes +=
		sizeof(frame->at_ns) + sizeof(frame->bytes) + padded;
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
	state.busy_until_ps = 0;
	state.last_arrival_ns = 0;
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
	take_over();
	qemu.timer_init_full(&state.arrivals, NULL, QEMU_CLOCK_VIRTUAL, 1, 0,
			     on_arrivals, NULL);
	qemu.timer_init_full(&state.barrier, NULL, QEMU_CLOCK_VIRTUAL, 1, 0,
			     on_barrier, NULL);
	qemu.memory_region_init_io(&state.ports, NULL, &port_ops, NULL,
				   "netplumb-wire", WIRE_PORTS);
	qemu.memory_region_add_subregion(qemu.get_system_io(), WIRE_PORT,
					 &state.ports);
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	(void)id;
	if (qemu_plugin_tb_vaddr(tb) >> 63)
		clock_settle_before_halt(tb);
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
		state.host = strdup(value);
	else if (IS("nic"))
		state.nic = strdup(value);
	else if (IS("peer"))
		state.peer = (int)number;
	else if (IS("log"))
		state.log = (int)number;
	else if (IS("rate"))
		state.bits_per_s = number;
	else if (IS("delay"))
		state.delay_ns = (int64_t)number;
	else if (IS("jitter"))
		state.jitter_ns = (int64_t)number;
	else if (IS("loss"))
		state.loss_ppb = number;
	else if (IS("overhead"))
		state.overhead_bytes = (uint32_t)number;
	else if (IS("longest"))
		state.max_bytes = (uint32_t)number;
	else if (IS("random"))
		state.random = number;
	else if (IS("patience"))
		state.patience_s = (int)number;
#undef IS
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id,
					   const qemu_info_t *info, int argc,
					   char **argv)
{
	const char *why;

	for (int i = 0; i < argc; i++)
		take_option(argv[i]);
	if (!info->system_emulation || info->system.max_vcpus > 1) {
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
	if (!state.bits_per_s || state.peer < 0) {
		fputs("netplumb: no wire: it has no rate, or no other end\n",
		      stderr);
		return -1;
	}
	/* The shortest frame of the other host arrives after the next barrier. */
	state.step_ns =
		state.delay_ns + occupied_ps(MIN_FRAME) / PS_PER_NS - SLACK_NS;
	if (state.step_ns < LEAST_STEP_NS) {
		fprintf(stderr,
			"netplumb: no wire: its delay is too short for its rate: at "
			"least %lld ns\n",
			(long long)(state.delay_ns + LEAST_STEP_NS -
				    state.step_ns));
		return -1;
	}
	qemu_plugin_register_vcpu_init_cb(id, on_vcpu);
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	return 0;
}
