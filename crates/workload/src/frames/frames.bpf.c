// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The frame generator in the kernel.
 *
 * bpf(2) runs `frames_generate` on its own pages and transmits redirected
 * frames (BPF_F_TEST_XDP_LIVE_FRAMES; net/bpf/test_run.c). Pages return as the
 * receivers of frames left them, so the headers are written again each time.
 * Only tracepoints show whether the device accepted a frame.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

#include "kernel/net.h"
#include "stamp.h"
#include "frames.h"

struct bpf_prog;

const volatile struct frames_config config;

/* One for each CPU, by its number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct frames_slot);
} slots SEC(".maps");

static __always_inline struct frames_slot *this_cpu(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&slots, &cpu);
}

/* When the next frame is due: after half of the mean gap to one and a half. */
static __always_inline void draw_next(struct frames_slot *s)
{
	__u64 random = s->random;
	__u64 part;

	/* xorshift64, Marsaglia 2003. */
	random ^= random << 13;
	random ^= random >> 7;
	random ^= random << 17;
	s->random = random;
	part = s->due_part + (s->gap >> 1) + (s->gap * (random >> 48) >> 16);
	s->due_ns += part >> 16;
	s->due_part = part & 0xffff;
}

static __always_inline int is_due(struct frames_slot *s)
{
	__u64 now;

	/* Already due at the last reading of the clock: don't read it again. */
	if (s->due_ns && s->due_ns <= s->now_ns)
		return 1;
	now = bpf_ktime_get_ns();
	s->now_ns = now;
	if (!s->due_ns) {
		s->due_ns = now;
		draw_next(s);
	}
	if (s->due_ns > now)
		return 0;
	if (now - s->due_ns > FRAMES_BEHIND_NS) {
		s->behind += s->gap ? ((now - s->due_ns) << 16) / s->gap : 0;
		s->due_ns = now;
	}
	return 1;
}

/*
 * Sums of 16-bit words; since 2^16 is equivalent to 1, a few 32-bit words may
 * be added as well.
 */
static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	/* Sufficient for two 16-bit words. */
	if (config.many_addresses || config.stamped) {
		sum = (sum & 0xffff) + (sum >> 16);
		sum = (sum & 0xffff) + (sum >> 16);
	}
	return ~sum;
}

static __always_inline void next_flow(struct frames_slot *s)
{
	__u32 step = s->port_step + 1;

	if (config.many_addresses) {
		if (step == config.ports) {
			step = 0;
			s->address_step++;
		}
		s->port_step = step;
		if (++s->flow < s->flows)
			return;
		s->flow = 0;
		s->address_step = s->first_address_step;
	} else {
		s->port_step = step;
		if (step - s->first_port_step < s->flows)
			return;
	}
	s->port_step = s->first_port_step;
	/* In the next round each flow gets the next size. */
	if (config.many_sizes) {
		s->first_turn =
			s->first_turn + 1 < FRAMES_MIX ? s->first_turn + 1 : 0;
		s->turn = s->first_turn;
	}
}

static __always_inline void
restore(void *data, const volatile struct frames_template *t, __u32 header)
{
#pragma unroll
	for (__u32 i = 0; i < FRAMES_WORDS; i++)
		if (i < FRAMES_WORDS_LEAST || (i + 1) * 8 <= header)
			((__u64 *)data)[i] = t->words[i];
	*(__u64 *)(data + header - 8) = t->tail;
}

/* The contribution of the address to the protocol's checksum. */
static __always_inline __u32
vary_address(void *data, const struct frames_slot *s,
	     const volatile struct frames_template *t)
{
	__u32 address = bpf_htonl(config.first_address + s->address_step);

	*(__u32 *)(data + config.address_at) = address;
	if (config.ip_check_at)
		*(__u16 *)(data + config.ip_check_at) =
			fold((__u64)t->ip_sum + address);
	return config.address_in_l4_check ? address : 0;
}

/* Write the fields that vary between frames, and the checksums. */
static __always_inline void vary(void *data, struct frames_slot *s,
				 const volatile struct frames_template *t,
				 __u64 due_ns)
{
	__u64 l4_sum = t->l4_sum;
	__u16 check;

	if (config.many_flows) {
		__u16 port = bpf_htons(config.first_port + s->port_step);

		*(__u16 *)(data + config.port_at) = port;
		l4_sum += port;
		if (config.many_addresses)
			l4_sum += vary_address(data, s, t);
		next_flow(s);
	}
	if (config.stamped) {
		struct stamp *stamp = data + config.header_bytes;
		__u32 sequence = s->frames;

		stamp->magic = bpf_htonl(STAMP_MAGIC);
		stamp->sequence = sequence;
		stamp->due_ns = due_ns;
		l4_sum += sequence;
		l4_sum += due_ns & 0xffffffff;
		l4_sum += due_ns >> 32;
	}
	check = fold(l4_sum);
	/* 0 means no checksum (RFC 768). */
	if (config.is_udp && !check)
		check = 0xffff;
	*(__u16 *)(data + config.l4_check_at) = check;
}

static __always_inline void refuse(struct frames_slot *s, int error,
				   __u32 frames)
{
	__u64 i = (__u32)-error;

	/*
	 * Older verifiers (6.1) lose the upper half's value after a negation.
	 */
	asm volatile("" : "+r"(i));
	if (i >= FRAMES_ERRORS)
		i = FRAMES_ERRORS - 1;
	s->refused[i] += frames;
}

/* The frame is invalid, which no run causes. */
static __always_inline int give_up(struct frames_slot *s)
{
	s->frames++;
	refuse(s, -14 /* EFAULT */, 1);
	return XDP_ABORTED;
}

SEC("xdp")
int frames_generate(struct xdp_md *ctx)
{
	const volatile struct frames_template *t = &config.templates[0];
	struct frames_slot *s = this_cpu();
	__u64 due_ns = 0;
	void *data;

	/* Nothing to send, or not yet. */
	if (!s || !s->flows)
		return XDP_DROP;
	if (config.mode == FRAMES_REDIRECT) {
		s->frames++;
		return bpf_redirect(config.device, 0);
	}
	if (config.paced) {
		if (!is_due(s)) {
			s->idle++;
			return XDP_DROP;
		}
		due_ns = s->due_ns;
		draw_next(s);
	} else if (config.stamped) {
		due_ns = bpf_ktime_get_ns();
	}
	if (config.many_sizes) {
		__u32 turn = s->turn;

		if (turn >= FRAMES_MIX)
			return give_up(s);
		s->turn = turn + 1 < FRAMES_MIX ? turn + 1 : 0;
		turn = config.mix[turn];
		if (turn >= FRAMES_SIZES)
			return give_up(s);
		t = &config.templates[turn];
		/* Every run begins with the longest frame. */
		if (t->size_bytes < config.size_bytes &&
		    bpf_xdp_adjust_tail(ctx, (int)t->size_bytes -
						     (int)config.size_bytes))
			return give_up(s);
		s->bytes += t->size_bytes;
	}
	data = (void *)(long)ctx->data;
	if (data + config.written_bytes > (void *)(long)ctx->data_end)
		return give_up(s);
	restore(data, t, config.header_bytes);
	if (config.varying)
		vary(data, s, t, due_ns);
	s->frames++;
	if (config.mode == FRAMES_LOOP)
		return XDP_DROP;
	return bpf_redirect(config.device, 0);
}

static __always_inline int is_ours(const struct net_device *from,
				   const struct net_device *to)
{
	/*
	 * Test runs use the loopback device of the namespace, its first device.
	 */
	return to->ifindex == (int)config.device &&
	       to->nd_net.net->ns.inum == config.net && from->ifindex == 1;
}

/* Frames passed to the device; include/trace/events/xdp.h, since Linux 5.6. */
SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(frames_xdp_devmap_xmit, const struct net_device *from,
	     const struct net_device *to, int sent, int drops, int err)
{
	struct frames_slot *s;

	if (!is_ours(from, to))
		return 0;
	s = this_cpu();
	if (!s)
		return 0;
	s->batches++;
	s->sent += sent;
	if (drops > 0)
		refuse(s, err, drops);
	return 0;
}

/*
 * Frames refused before: the device is down, its MTU is too small, or it
 * accepts no XDP frames.
 */
SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(frames_xdp_redirect_err, const struct net_device *from,
	     const struct bpf_prog *xdp, const void *target, int err,
	     int map_type, __u32 map_id, __u32 index)
{
	struct frames_slot *s;

	if (index != config.device || from->ifindex != 1 ||
	    from->nd_net.net->ns.inum != config.net)
		return 0;
	s = this_cpu();
	if (s)
		refuse(s, err, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
