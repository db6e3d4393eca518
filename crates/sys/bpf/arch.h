/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What differs by architecture in programs that see registers. bpfc defines
 * __TARGET_ARCH_*, by the machine that the program is built for.
 */
#ifndef NETPLUMB_ARCH_H
#define NETPLUMB_ARCH_H

#if defined(__TARGET_ARCH_x86)
/* arch/x86/include/asm/ptrace.h: the privilege of a code segment. */
#define USER_RPL 3
#define IS_USER(cs) (((cs)&USER_RPL) == USER_RPL)
#define IN_USER(regs) IS_USER((regs)->cs)
/* Where in struct pt_regs the first arguments are, and what is returned. */
#define AT_ARGUMENT_0 112
#define AT_ARGUMENT_1 104
#define AT_ARGUMENT_2 96
#define AT_ARGUMENT_3 88
#define AT_ARGUMENT_4 72
#define AT_ARGUMENT_5 64
#define AT_RETURNED 80
#elif defined(__TARGET_ARCH_arm64)
/* arch/arm64/include/uapi/asm/ptrace.h: the mode, which is 0 for EL0. */
#define PSR_MODE 0xf
#define IS_USER(pstate) (((pstate)&PSR_MODE) == 0)
#define IN_USER(regs) IS_USER((regs)->pstate)
/* x0 to x5, of struct user_pt_regs. */
#define AT_ARGUMENT_0 0
#define AT_ARGUMENT_1 8
#define AT_ARGUMENT_2 16
#define AT_ARGUMENT_3 24
#define AT_ARGUMENT_4 32
#define AT_ARGUMENT_5 40
#define AT_RETURNED 0
#else
#error "no registers of this architecture are known: add them to arch.h"
#endif

#endif
