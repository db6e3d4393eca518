// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Drops of frames as reported by the kernel, by namespace and device.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "kernel/net.h"
#include "kernel/skb.h"
#include "kernel/sock.h"
#include "drops.h"

const volatile struct drops_config config = {};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, DROPS_KEYS);
	__type(key, struct drops_key);
	__type(value, __u64);
} drops SEC(".maps");

/* Frames without room in the map. */
__u64 drops_lost;

static __always_inline void count(struct drops_key *key, __u64 frames)
{
	__u64 zero = 0, *n;

	n = bpf_map_lookup_elem(&drops, key);
	if (!n) {
		bpf_map_update_elem(&drops, key, &zero, BPF_NOEXIST);
		n = bpf_map_lookup_elem(&drops, key);
	}
	if (n)
		__sync_fetch_and_add(n, frames);
	else
		__sync_fetch_and_add(&drops_lost, frames);
}

static __always_inline void count_device(__u32 event, __u32 detail,
					 const struct net_device *dev,
					 __u64 frames)
{
	struct drops_key key = { .event = event, .detail = detail };

	if (dev) {
		key.namespace_inum = dev->nd_net.net->ns.inum;
		key.ifindex = dev->ifindex;
		bpf_core_read(key.device, sizeof(key.device), &dev->name);
	}
	count(&key, frames);
}

SEC("tp_btf/kfree_skb")
int drops_kfree_skb(__u64 *ctx)
{
	struct sk_buff *skb = (void *)ctx[0];
	struct drops_key key = { .event = DROPS_KFREE_SKB };
	struct net_device *dev;
	struct sock *sk;

	if (config.has_reasons) {
		key.detail = ctx[2];
		if (config.reason_consumed &&
		    key.detail == config.reason_consumed)
			return 0;
	}
	if (key.detail == config.reason_unknown)
		key.location = ctx[1];
	/*
	 * The device's field has other contents while a packet is in a socket's
	 * queue (a union in struct sk_buff): it is read like any address, and
	 * an invalid one reads as 0.
	 */
	dev = BPF_CORE_READ(skb, dev);
	key.ifindex = BPF_CORE_READ(dev, ifindex);
	key.namespace_inum = BPF_CORE_READ(dev, nd_net.net, ns.inum);
	if (key.namespace_inum) {
		bpf_core_read(key.device, sizeof(key.device), &dev->name);
	} else {
		sk = BPF_CORE_READ(skb, sk);
		key.ifindex = BPF_CORE_READ(skb, skb_iif);
		key.namespace_inum =
			BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	}
	count(&key, 1);
	return 0;
}

SEC("tp_btf/xdp_exception")
int BPF_PROG(drops_xdp_exception, struct net_device *dev, void *xdp, __u32 act)
{
	count_device(DROPS_XDP_EXCEPTION, act, dev, 1);
	return 0;
}

SEC("tp_btf/xdp_bulk_tx")
int BPF_PROG(drops_xdp_bulk_tx, struct net_device *dev, int sent, int dropped,
	     int err)
{
	if (dropped > 0)
		count_device(DROPS_XDP_BULK_TX, err < 0 ? -err : 0, dev,
			     dropped);
	return 0;
}

/* The device that refused them. */
SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(drops_xdp_devmap_xmit, struct net_device *from_dev,
	     struct net_device *to_dev, int sent, int dropped, int err)
{
	if (dropped > 0)
		count_device(DROPS_XDP_DEVMAP_XMIT, err < 0 ? -err : 0, to_dev,
			     dropped);
	return 0;
}

/* The fields after `err` differ between versions; `err` does not. */
SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(drops_xdp_redirect_err, struct net_device *dev, void *xdp,
	     void *target, int err)
{
	count_device(DROPS_XDP_REDIRECT_ERR, err < 0 ? -err : 0, dev, 1);
	return 0;
}

/*
 * Not used from 5.6 on, 1d233886dd90 ("xdp: Use bulking for non-map
 * XDP_REDIRECT and consolidate code paths"), and removed in 6.16.
 */
SEC("tp_btf/xdp_redirect_map_err")
int BPF_PROG(drops_xdp_redirect_map_err, struct net_device *dev, void *xdp,
	     void *target, int err)
{
	count_device(DROPS_XDP_REDIRECT_ERR, err < 0 ? -err : 0, dev, 1);
	return 0;
}

SEC("tp_btf/xdp_cpumap_enqueue")
int BPF_PROG(drops_xdp_cpumap_enqueue, int map_id, unsigned int processed,
	     unsigned int dropped)
{
	if (dropped)
		count_device(DROPS_XDP_CPUMAP_ENQUEUE, 0, NULL, dropped);
	return 0;
}

SEC("tp_btf/xdp_cpumap_kthread")
int BPF_PROG(drops_xdp_cpumap_kthread, int map_id, unsigned int processed,
	     unsigned int dropped)
{
	if (dropped)
		count_device(DROPS_XDP_CPUMAP_KTHREAD, 0, NULL, dropped);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
