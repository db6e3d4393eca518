// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Counts frames that a device refused after an XDP program redirected them,
 * which only tracepoints report.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "kernel/net.h"
#include "errors.h"

const volatile struct errors_config config = {};

struct errors_lost lost SEC(".bss.lost") = {};

static __always_inline int is_ours(const struct net_device *dev)
{
	return dev && dev->ifindex == (int)config.ingress_index &&
	       dev->nd_net.net->ns.inum == config.namespace_inum;
}

static __always_inline void add(__u64 *numbers, int err, __u64 frames)
{
	__u64 number = (__u32)(err < 0 ? -err : err);

	/*
	 * Older verifiers (6.1) lose the upper half's value after a negation.
	 */
	asm volatile("" : "+r"(number));
	if (number >= ERRORS_NUMBERS)
		number = ERRORS_NUMBERS - 1;
	__sync_fetch_and_add(&numbers[number], frames);
	lost.cpus[bpf_get_smp_processor_id() & (ERRORS_CPUS - 1)] += frames;
}

/* bq_xmit_all() in kernel/bpf/devmap.c: a bulk was passed to a device. */
SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(xdp_devmap_xmit, const struct net_device *from,
	     const struct net_device *to, int sent, int drops, int err)
{
	if (drops > 0 && is_ours(from))
		add(lost.transmit, err, drops);
	return 0;
}

/* veth_xdp_flush_bq() in drivers/net/veth.c: a bulk was sent back. */
SEC("tp_btf/xdp_bulk_tx")
int BPF_PROG(xdp_bulk_tx, const struct net_device *dev, int sent, int drops,
	     int err)
{
	if (drops > 0 && is_ours(dev))
		add(lost.transmit, err, drops);
	return 0;
}

/* xdp_do_redirect() in net/core/filter.c: a frame was not added to a bulk. */
SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(xdp_redirect_err, const struct net_device *dev, const void *xdp,
	     const void *target, int err)
{
	if (is_ours(dev))
		add(lost.redirect, err, 1);
	return 0;
}

/*
 * The same for targets in maps; since commit 1d233886dd90 ("xdp: Use bulking for
 * non-map XDP_REDIRECT and consolidate code paths") the kernel reports these to the
 * one above.
 */
SEC("tp_btf/xdp_redirect_map_err")
int BPF_PROG(xdp_redirect_map_err, const struct net_device *dev,
	     const void *xdp, const void *target, int err)
{
	if (is_ours(dev))
		add(lost.redirect, err, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
