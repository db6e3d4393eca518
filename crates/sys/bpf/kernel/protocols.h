/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Protocol numbers; the headers for user space also declare types. */
#ifndef NETPLUMB_KERNEL_PROTOCOLS_H
#define NETPLUMB_KERNEL_PROTOCOLS_H

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
/* As in a packet header. */
#define ETH_P_IP_BE 0x0008
#define ETH_P_IPV6_BE 0xdd86

#define AF_INET 2
#define AF_INET6 10

#define IPPROTO_ICMP 1
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define IPPROTO_ICMPV6 58
#define IPPROTO_UDPLITE 136
#define IPPROTO_RAW 255

#endif
