/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The stream that the plugin writes, little-endian 32-bit words. Its reader is
 * crates/instruments/src/exact/stream.rs; a change here is a change there, and
 * a new EXACT_STREAM_VERSION.
 *
 *   0iii iiii ...        block `i` starts executing
 *   1ttt tttt pppp ...   a record of type `t` (7 bits) with 24 bits `p`,
 *                        followed by the words that its type asks for
 */
#ifndef NETPLUMB_EXACT_H
#define NETPLUMB_EXACT_H

#define EXACT_STREAM_VERSION 6

enum exact_record {
	/*
	 * p: EXACT_STREAM_VERSION | enum exact_arch << 16. First word of the
	 * stream.
	 */
	EXACT_HELLO = 1,
	/*
	 * Code of a block, before its first execution. p: number of words that
	 * follow: id, address low, address high, kind of the last instruction
	 * (enum exact_kind) << 16 | number of instructions n, then n bytes of
	 * instruction sizes and the code itself, padded to a word.
	 */
	EXACT_BLOCK = 2,
	/* p: instructions that the previous block executed, if not all. */
	EXACT_PARTIAL = 3,
	/*
	 * The block that was started last ended in a call; where that stored
	 * its return address or, if calls store none, the stack pointer. p:
	 * address bits 32-47, and EXACT_USER_HALF if it is below the kernel's
	 * half; word: bits 0-31.
	 */
	EXACT_CALL = 4,
	/* It ended in a return, which read its address from there; as above. */
	EXACT_RET = 5,
	/* User mode is running; not used if its blocks are recorded. */
	EXACT_USER = 6,
	/*
	 * p: enum exact_mark; two words: user instructions so far, low, high.
	 * If blocks of user mode are recorded, the rest of the block around the
	 * marker is recorded as if it started again, and was interrupted.
	 */
	EXACT_MARK = 7,
	/* p: enum exact_loss; word: how many so far. */
	EXACT_LOSS = 8,
	/*
	 * Code of a block of user mode, like EXACT_BLOCK, but with three words
	 * about its page before the sizes: two of a hash, and the number of its
	 * page frame. The hash is of the 4 KiB page of the first instruction,
	 * 512 little-endian words w: h = (h ^ w) * EXACT_HASH_FACTOR, h ^= h >>
	 * 32, from 0. Zero: the page could not be read, or its frame is not
	 * known.
	 */
	EXACT_USER_BLOCK = 9,
	/* Watched code stored to this address, encoded as in EXACT_CALL. */
	EXACT_STORE = 10,
	/*
	 * Registers when the block that was started last began, where calls are
	 * traced: the first eight arguments', two words each, low and
	 * high, 0 where there are fewer. p: 1 if a call led there, and the stack pointer was as at
	 * EXACT_CALL, or else 0.
	 */
	EXACT_ARGUMENTS = 11,
	/* What the ret returns that ends the block that was started last. */
	EXACT_RESULT = 12,
	/*
	 * After EXACT_ARGUMENTS: the text that one of these points to. p: its
	 * number << 16 | bytes, at most EXACT_TEXT_BYTES and without the NUL;
	 * the bytes, padded to a word.
	 */
	EXACT_TEXT = 13,
	/*
	 * p: 1 if interrupts are masked behind the block that was started last,
	 * which may have changed that, or else 0. Where the code does not show
	 * it.
	 */
	EXACT_MASKED = 14,
	/*
	 * The stack pointer when the block of user mode that was started last
	 * began, where the kernel or an instruction that loads it may have
	 * moved it. p: address bits 32-47; three words: bits 0-31, and the
	 * register in which Go keeps its goroutine, low and high.
	 */
	EXACT_STACK = 15,
};

enum exact_arch {
	EXACT_ARCH_X86_64 = 0,
	EXACT_ARCH_ARM64 = 1,
};

#define EXACT_TEXT_BYTES 64
#define EXACT_USER_HALF 0x10000u
#define EXACT_HASH_FACTOR 0x9e3779b97f4a7c15ull

enum exact_kind {
	EXACT_KIND_OTHER = 0,
	EXACT_KIND_CALL = 1,
	EXACT_KIND_RET = 2,
	EXACT_KIND_IRET = 3,
	EXACT_KIND_SYSRET = 4,
};

enum exact_loss {
	/* An address of a call or ret was not in the kernel's half. */
	EXACT_LOSS_ADDRESS = 1,
	/* QEMU does not export what is necessary to read registers. */
	EXACT_LOSS_REGISTERS = 2,
};

/*
 * Markers, executed in user mode; crates/workload/src/mark.rs has the twin. On
 * x86-64 `nopl imm32(%rax)`, bytes 0f 1f 80 imm32, with imm32 = EXACT_MARK_MAGIC |
 * mark; on arm64 `movz xzr, #imm16, lsl #48` with imm16 = EXACT_MARK_ARM64 | mark.
 */
#define EXACT_MARK_MAGIC 0x4e500000u
#define EXACT_MARK_MASK 0xffff0000u
#define EXACT_MARK_ARM64 0x4e00u

enum exact_mark {
	/* Start counting the kernel. */
	EXACT_MARK_ARM = 1,
	EXACT_MARK_WINDOW_BEGIN = 2,
	EXACT_MARK_WINDOW_END = 3,
	EXACT_MARK_TX_BEGIN = 4,
	EXACT_MARK_TX_END = 5,
	EXACT_MARK_RX_BEGIN = 6,
	EXACT_MARK_RX_END = 7,
	/* The window of a command opens, and this task is its first. */
	EXACT_MARK_RUN_BEGIN = 8,
	/*
	 * The following are not written to the stream. USER: record blocks of
	 * user mode. BIT_0, BIT_1: shift a bit into a 64-bit register.
	 * WATCH_BEGIN and WATCH_END: the register is the start or end of a
	 * range of addresses whose stores by the kernel are recorded.
	 */
	EXACT_MARK_USER = 9,
	EXACT_MARK_BIT_0 = 10,
	EXACT_MARK_BIT_1 = 11,
	EXACT_MARK_WATCH_BEGIN = 12,
	EXACT_MARK_WATCH_END = 13,
	/* Stop counting, until ARM. Not written to the stream either. */
	EXACT_MARK_DISARM = 14,
	/* What packets are a part of, from here on; packets of their own again. */
	EXACT_MARK_CONNECT = 15,
	EXACT_MARK_ACCEPT = 16,
	EXACT_MARK_CLOSE = 17,
	EXACT_MARK_REPLY = 18,
	EXACT_MARK_PACKETS = 19,
};

#endif
