/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Of the kernel's own types, the fields that are read here; the loader finds
 * out where they are in the kernel at hand.
 */
#ifndef NETPLUMB_STAGES_KERNEL_H
#define NETPLUMB_STAGES_KERNEL_H

#define CO_RE __attribute__((preserve_access_index))

struct ns_common {
	unsigned int inum;
} CO_RE;

struct net {
	struct ns_common ns;
} CO_RE;

typedef struct {
	struct net *net;
} CO_RE possible_net_t;

struct device {
	struct device *parent;
} CO_RE;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
	struct device dev;
} CO_RE;

struct sk_buff_head {
	__u32 qlen;
} CO_RE;

struct sock {
	struct sk_buff_head sk_receive_queue;
	__u16 sk_protocol;
} CO_RE;

struct udp_sock {
	struct sk_buff_head reader_queue;
} CO_RE;

struct sk_buff {
	struct sk_buff *next;
	struct net_device *dev;
	unsigned int len;
	unsigned int data_len;
	int skb_iif;
	__u16 protocol;
	__u16 network_header;
	unsigned int end;
	unsigned char *head;
	unsigned char *data;
} CO_RE;

typedef struct {
	int counter;
} CO_RE atomic_t;

struct skb_shared_info {
	unsigned short gso_size;
	unsigned short gso_segs;
	atomic_t dataref;
} CO_RE;

struct task_struct {
	void *stack;
	int pid;
} CO_RE;

struct pt_regs;
struct Qdisc;
struct netdev_queue;

/*
 * include/linux/sched.h, THREAD_SIZE of x86-64 and arm64. A larger one makes a
 * deep call look like a softirq.
 */
#define STACK_BYTES 16384

/*
 * Whether the program runs on its task's own stack. Softirqs and interrupts have
 * one of their own (HAVE_SOFTIRQ_ON_OWN_STACK), but for those of ksoftirqd, and
 * on PREEMPT_RT. The preempt count would tell too, but not every kernel has a
 * symbol for it (KALLSYMS_ALL), nor is it always a variable (pcpu_hot, 6.2 to
 * 6.14). A tracepoint's arguments are on the stack that it was hit on:
 * `context` is their address, as a number.
 */
static __always_inline int on_task_stack(__u64 context)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return context - (__u64)task->stack < STACK_BYTES;
}

#endif
