/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Classifies packets: once, in the first function on the stack that has the
 * packet; its callees inherit the class.
 */
#ifndef NETPLUMB_FUNCTIONS_CLASSIFY_H
#define NETPLUMB_FUNCTIONS_CLASSIFY_H

#include "functions.h"
#include "kernel/net.h"
#include "kernel/protocols.h"
#include "kernel/skb.h"
#include "kernel/sock.h"

/* In a section of its own, for the loader. */
const volatile struct functions_filter filter SEC(".rodata.filter");

/* Properties of a packet or a socket. */
struct packet {
	__u32 protocol;
	/* 4 or 6; 0 if unknown. */
	__u32 family;
	__u16 source_port;
	__u16 dest_port;
	__u32 interface;
	__u32 namespace;
	__u8 source[16];
	__u8 dest[16];
};

static __always_inline void see_net(struct packet *p, struct net *net)
{
	if (net)
		p->namespace = BPF_CORE_READ(net, ns.inum);
}

static __always_inline void see_sock(struct packet *p, struct sock *sk)
{
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	if (family != AF_INET && family != AF_INET6)
		return;
	p->family = family == AF_INET ? 4 : 6;
	p->protocol = BPF_CORE_READ(sk, sk_protocol);
	if (!filter.active)
		return;
	p->source_port = BPF_CORE_READ(sk, __sk_common.skc_num);
	p->dest_port = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	if (!p->interface)
		p->interface = BPF_CORE_READ(sk, __sk_common.skc_bound_dev_if);
	if (!p->namespace)
		see_net(p, BPF_CORE_READ(sk, __sk_common.skc_net.net));
	if (family == AF_INET) {
		BPF_CORE_READ_INTO((__u32 *)p->source, sk,
				   __sk_common.skc_rcv_saddr);
		BPF_CORE_READ_INTO((__u32 *)p->dest, sk, __sk_common.skc_daddr);
	} else {
		BPF_CORE_READ_INTO((struct in6_addr *)p->source, sk,
				   __sk_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO((struct in6_addr *)p->dest, sk,
				   __sk_common.skc_v6_daddr);
	}
}

/* The IP header at `at`, if there is one. */
static __always_inline int see_header(struct packet *p, unsigned char *at,
				      __u16 protocol)
{
	__u8 bytes[40];
	__u32 length;
	__u8 ports[4];

	if (protocol == ETH_P_IP) {
		if (bpf_probe_read_kernel(bytes, 20, at) || bytes[0] >> 4 != 4)
			return 0;
		p->family = 4;
		p->protocol = bytes[9];
		length = (bytes[0] & 15) * 4;
		if (filter.active) {
			__builtin_memcpy(p->source, bytes + 12, 4);
			__builtin_memcpy(p->dest, bytes + 16, 4);
		}
	} else {
		if (bpf_probe_read_kernel(bytes, 40, at) || bytes[0] >> 4 != 6)
			return 0;
		p->family = 6;
		p->protocol = bytes[6];
		length = 40;
		if (filter.active) {
			__builtin_memcpy(p->source, bytes + 8, 16);
			__builtin_memcpy(p->dest, bytes + 24, 16);
		}
	}
	if (filter.active &&
	    (p->protocol == IPPROTO_UDP || p->protocol == IPPROTO_TCP) &&
	    !bpf_probe_read_kernel(ports, 4, at + length)) {
		p->source_port = ports[0] << 8 | ports[1];
		p->dest_port = ports[2] << 8 | ports[3];
	}
	return 1;
}

static __always_inline void see_skb(struct packet *p, struct sk_buff *skb)
{
	__u16 protocol = bpf_ntohs(BPF_CORE_READ(skb, protocol));
	struct net_device *dev;
	struct sock *sk;

	if (filter.active) {
		dev = BPF_CORE_READ(skb, dev);
		if (dev) {
			p->interface = BPF_CORE_READ(dev, ifindex);
			see_net(p, BPF_CORE_READ(dev, nd_net.net));
		}
	}
	if (protocol == ETH_P_IP || protocol == ETH_P_IPV6) {
		unsigned char *head = BPF_CORE_READ(skb, head);
		__u16 offset = BPF_CORE_READ(skb, network_header);

		if (offset && see_header(p, head + offset, protocol))
			return;
		/* A driver has just passed it on. */
		if (see_header(p, BPF_CORE_READ(skb, data), protocol))
			return;
	}
	/* It is being built. */
	sk = BPF_CORE_READ(skb, sk);
	if (sk)
		see_sock(p, sk);
}

static __always_inline int same_address(const __u8 *address)
{
	int length = filter.address_family == 4 ? 4 : 16;
	int i;

	for (i = 0; i < 16; i++) {
		if (i < length && address[i] != filter.address[i])
			return 0;
	}
	return 1;
}

static __always_inline int wanted_namespace(__u32 inode)
{
	__u32 i;

	for (i = 0; i < 8; i++) {
		if (i < filter.namespaces &&
		    filter.namespace_inodes[i] == inode)
			return 1;
	}
	return 0;
}

/* Whether it matches the filter. */
static __always_inline int wanted(const struct packet *p, __u32 proto,
				  int in_task)
{
	if (!filter.active)
		return 1;
	if (filter.protos && !(filter.protos & 1 << proto))
		return 0;
	if (filter.family && filter.family != p->family)
		return 0;
	if (filter.port && filter.port != p->source_port &&
	    filter.port != p->dest_port)
		return 0;
	if (filter.address_family &&
	    (filter.address_family != p->family ||
	     (!same_address(p->source) && !same_address(p->dest))))
		return 0;
	if (filter.interface && filter.interface != p->interface)
		return 0;
	if (filter.namespaces && !wanted_namespace(p->namespace))
		return 0;
	/* The calling task; not for softirqs, which interrupt any task. */
	if (filter.pid &&
	    (!in_task || filter.pid != bpf_get_current_pid_tgid() >> 32))
		return 0;
	if (filter.cgroup &&
	    (!in_task || filter.cgroup != bpf_get_current_cgroup_id()))
		return 0;
	return 1;
}

/* Results of classify() if unknown, and if not to be timed. */
#define CLASS_UNKNOWN -1
#define CLASS_UNWANTED -2

/* The protocol of the packet or socket at `what`. */
static __always_inline int classify(void *what, __u32 kind, int in_task)
{
	struct packet packet = {};
	__u32 proto = FUNCTIONS_NO_PROTO;

	if (!what)
		return CLASS_UNKNOWN;
	if (kind == FUNCTIONS_TAKES_SKB) {
		see_skb(&packet, what);
	} else {
		if (kind == FUNCTIONS_TAKES_SOCKET)
			what = BPF_CORE_READ((struct socket *)what, sk);
		if (!what)
			return CLASS_UNKNOWN;
		see_sock(&packet, what);
	}
	if (!packet.family)
		return CLASS_UNKNOWN;
	switch (packet.protocol) {
	case IPPROTO_UDP:
	case IPPROTO_UDPLITE:
		proto = FUNCTIONS_UDP;
		break;
	case IPPROTO_TCP:
		proto = FUNCTIONS_TCP;
		break;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
	case IPPROTO_RAW:
		proto = FUNCTIONS_RAW;
		break;
	}
	return wanted(&packet, proto, in_task) ? (int)proto : CLASS_UNWANTED;
}

#endif
