/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Classifies packets by their headers, and applies the filter.
 */
#ifndef NETPLUMB_STAGES_PACKET_H
#define NETPLUMB_STAGES_PACKET_H

#include "kernel/net.h"
#include "kernel/protocols.h"
#include "kernel/skb.h"
#include "kernel/sock.h"
#include "stack.h"
#include "stages.h"

struct pt_regs;
struct Qdisc;
struct netdev_queue;

#define V4_SIZE 20
#define V6_SIZE 40
/* The larger IP header, and TCP's up to its data offset. */
#define HEADERS 56

const volatile struct stages_config config = {};

struct what {
	__u8 proto;
	/* 0 for IPv4, 1 for IPv6. */
	__u8 family;
	/* Whether it has payload; TCP segments without are only counted. */
	__u8 data;
	__u16 segs;
	__u32 bytes;
};

static __always_inline __u16 be16(const __u8 *bytes)
{
	return (__u16)bytes[0] << 8 | bytes[1];
}

/* Number of segments of a GSO packet. */
static __always_inline __u16 segments(struct sk_buff *skb)
{
	/* Two neighbours: gso_size, gso_segs. */
	unsigned short gso[2] = {};
	const char *info = (const char *)skb->head + skb->end;

	bpf_probe_read_kernel(
		gso, sizeof(gso),
		info + bpf_core_field_offset(struct skb_shared_info, gso_size));
	return gso[0] && gso[1] ? gso[1] : 1;
}

/* Whether a clone shares the packet's data, and still exists. */
static __always_inline int shared(struct sk_buff *skb)
{
	const char *info = (const char *)skb->head + skb->end;
	int dataref = 0;

	bpf_probe_read_kernel(
		&dataref, sizeof(dataref),
		info + bpf_core_field_offset(struct skb_shared_info, dataref));
	/* The upper half counts payload-only references of TCP. */
	return (dataref & 0xffff) > 1;
}

static __always_inline int device_matches(struct net_device *dev)
{
	__u32 inum;
	int i;

	if (!config.interface && !config.namespaces)
		return 1;
	if (!dev)
		return 0;
	if (config.interface && dev->ifindex != (int)config.interface)
		return 0;
	if (!config.namespaces)
		return 1;
	inum = dev->nd_net.net->ns.inum;
	for (i = 0; i < STAGES_NAMESPACES; i++)
		if (i < (int)config.namespaces &&
		    config.namespace_inum[i] == inum)
			return 1;
	return 0;
}

static __always_inline int address_matches(const __u32 *h, int v6)
{
	if (!config.has_address)
		return 1;
	if (config.has_address == 4)
		return !v6 &&
		       (h[3] == config.address[0] || h[4] == config.address[0]);
	return v6 &&
	       ((h[2] == config.address[0] && h[3] == config.address[1] &&
		 h[4] == config.address[2] && h[5] == config.address[3]) ||
		(h[6] == config.address[0] && h[7] == config.address[1] &&
		 h[8] == config.address[2] && h[9] == config.address[3]));
}

/*
 * Read the headers at `at`. False if the packet has no class or does not match
 * the filter. `ip_bytes` is the length from `at` on; short frames are padded,
 * so the length in the header takes precedence, except for packets too long for
 * it.
 */
static __always_inline int classify(struct sk_buff *skb, const void *at,
				    __u32 ip_bytes, struct what *w)
{
	union {
		__u8 b[HEADERS];
		__u32 w[HEADERS / 4];
	} h;
	__u16 protocol = skb->protocol;
	const __u8 *l4;
	__u32 length;
	__u8 next;
	int v6;

	if (protocol == ETH_P_IP_BE)
		v6 = 0;
	else if (protocol == ETH_P_IPV6_BE)
		v6 = 1;
	else
		return 0;
	if (config.family && config.family != (v6 ? 6 : 4))
		return 0;
	if (!device_matches(skb->dev))
		return 0;
	if (bpf_probe_read_kernel(&h, sizeof(h), at))
		return 0;
	if (v6) {
		if (h.b[0] >> 4 != 6)
			return 0;
		next = h.b[6];
		l4 = h.b + V6_SIZE;
		length = be16(h.b + 4);
		ip_bytes = length ? length : ip_bytes - V6_SIZE;
	} else {
		/* Options are rare, and later fragments have no ports. */
		if (h.b[0] != 0x45 || (be16(h.b + 6) & 0x1fff))
			return 0;
		next = h.b[9];
		l4 = h.b + V4_SIZE;
		length = be16(h.b + 2);
		ip_bytes = (length ? length : ip_bytes) - V4_SIZE;
	}
	w->family = v6;
	w->data = 1;
	if (next == 17) {
		w->proto = STAGES_UDP;
		w->bytes = ip_bytes - 8;
	} else if (next == 6) {
		w->proto = STAGES_TCP;
		w->bytes = ip_bytes - (l4[12] >> 4) * 4;
		w->data = (int)w->bytes > 0;
	} else if ((next == 1 && !v6 && (l4[0] == 8 || l4[0] == 0)) ||
		   (next == 58 && v6 && (l4[0] == 128 || l4[0] == 129))) {
		w->proto = STAGES_RAW;
		w->bytes = ip_bytes - 8;
	} else {
		return 0;
	}
	if (config.protos && !(config.protos & 1 << w->proto))
		return 0;
	if (config.port &&
	    (w->proto == STAGES_RAW ||
	     (be16(l4) != config.port && be16(l4 + 2) != config.port)))
		return 0;
	if (!address_matches(h.w, v6))
		return 0;
	w->segs = segments(skb);
	return 1;
}

/* On transmit: the link header precedes the network header. */
static __always_inline int classify_out(struct sk_buff *skb, struct what *w)
{
	unsigned char *head = skb->head;
	unsigned char *at = head + skb->network_header;

	return classify(skb, at, skb->len - (__u32)(at - skb->data), w);
}

/* On receive: the link header was pulled. */
static __always_inline int classify_in(struct sk_buff *skb, struct what *w)
{
	/* If the headers are not in the linear part, classify it later. */
	if (skb->len - skb->data_len < V4_SIZE)
		return 0;
	return classify(skb, skb->data, skb->len, w);
}

#endif
