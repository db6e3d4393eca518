/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What we read of the kernel's structures; the loader finds out where it is. */
#ifndef NETPLUMB_FUNCTIONS_KERNEL_H
#define NETPLUMB_FUNCTIONS_KERNEL_H

#define READABLE __attribute__((preserve_access_index))

struct ns_common {
	unsigned int inum;
} READABLE;

struct net {
	struct ns_common ns;
} READABLE;

typedef struct {
	struct net *net;
} possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
} READABLE;

struct in6_addr {
	__u8 bytes[16];
};

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	int skc_bound_dev_if;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
} READABLE;

struct sock {
	struct sock_common __sk_common;
	/* A field of its own since Linux 5.6, commit bf9765145b85. */
	__u16 sk_protocol;
} READABLE;

struct socket {
	struct sock *sk;
} READABLE;

struct sk_buff {
	struct sock *sk;
	struct net_device *dev;
	__be16 protocol;
	__u16 network_header;
	unsigned char *head;
	unsigned char *data;
} READABLE;

struct task_struct {
	unsigned int flags;
	int pid;
	/* Since Linux 5.14, commit 2f064a59a11f. */
	unsigned int __state;
	/* With CONFIG_PREEMPT_RCU only. */
	int rcu_read_lock_nesting;
} READABLE;

/* As it was before that. */
struct task_struct___before_5_14 {
	long state;
} READABLE;

#define PF_KTHREAD 0x00200000
#define TASK_DEAD 0x00000080

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_ICMP 1
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define IPPROTO_ICMPV6 58
#define IPPROTO_UDPLITE 136
#define IPPROTO_RAW 255

#endif
