/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Packets. */
#ifndef NETPLUMB_KERNEL_SKB_H
#define NETPLUMB_KERNEL_SKB_H

#include "kernel/core.h"

struct net_device;
struct sock;

struct sk_buff {
	struct sk_buff *next;
	struct sock *sk;
	struct net_device *dev;
	unsigned int len;
	unsigned int data_len;
	int skb_iif;
	__be16 protocol;
	__u16 network_header;
	unsigned int end;
	unsigned char *head;
	unsigned char *data;
} CO_RE;

struct sk_buff_head {
	__u32 qlen;
} CO_RE;

typedef struct {
	int counter;
} CO_RE atomic_t;

struct skb_shared_info {
	unsigned short gso_size;
	unsigned short gso_segs;
	atomic_t dataref;
} CO_RE;

#endif
