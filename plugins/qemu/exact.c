// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Records the execution of the guest's kernel, block by block, as a stream.
 *
 * The plugin only records; crates/instruments/src/exact/ derives functions,
 * calls, contexts and costs. Until the guest executes the marker ARM, nothing
 * is added to kernel code, so the boot is not slowed down; then every
 * translated block is discarded and translated again with:
 *
 * - an inline +1 on every kernel instruction, so that a block interrupted by a
 *   fault or an interrupt counts exactly what it executed;
 * - a callback at the start of every kernel block;
 * - a memory callback on `call` and `ret`, whose address is the stack pointer.
 *
 * If a command is measured (marker USER), user code is treated the same, and
 * each of its blocks has a hash of its page, by which the reader identifies the
 * file.
 *
 * If calls are traced with their arguments, registers are recorded at calls and
 * returns while a traced function runs: see values.c.
 *
 * One vCPU only: the stream has one order.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "exact.h"
#include "plugin_api.h"
#include "values.h"

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

/* QEMU ends a block at 512 instructions (TCG_MAX_INSNS). */
#define BLOCK_MAX_INSNS 512

struct block {
	uint32_t id;
	uint32_t n_insns;
	uint32_t half; /* of the address space: 0, or EXACT_USER_HALF */
	const struct values_traced *traced; /* a function that begins here */
	bool may_begin;			    /* a function may begin here */
};

static struct {
	qemu_plugin_id_t plugin;
	int fd;
	bool armed;
	bool tell_user; /* user mode's blocks too */
	bool settle_clock;
	bool values;   /* registers at calls and returns */
	uint64_t bits; /* what markers have shifted in */
	uint64_t watch_begin;
	uint64_t watch_end;

	uint64_t kernel_insns; /* executed, by inline add */
	uint64_t user_insns;
	uint64_t counted; /* told() at the start of the block before */
	const struct block *before;
	uint32_t next_id;
	uint32_t bad_addresses;

	/* Where calls stored return addresses whose functions have not begun. */
	uint64_t called_kernel;
	uint64_t called_user;

	size_t used;
	uint32_t words[1 << 15];
} state = { .fd = -1 };

static void flush(void)
{
	const char *at = (const char *)state.words;
	size_t left = state.used * sizeof(state.words[0]);

	state.used = 0;
	while (left && state.fd >= 0) {
		ssize_t n = write(state.fd, at, left);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			/* The reader has exited: stop. */
			state.fd = -1;
			return;
		}
		at += n;
		left -= (size_t)n;
	}
}

static void put(uint32_t word)
{
	if (state.used == sizeof(state.words) / sizeof(state.words[0]))
		flush();
	state.words[state.used++] = word;
}

static void put_record(enum exact_record type, uint32_t payload)
{
	put(0x80000000u | (uint32_t)type << 24 | (payload & 0xffffffu));
}

static void put_number(uint64_t number)
{
	put((uint32_t)number);
	put((uint32_t)(number >> 32));
}

/* Instructions executed so far in recorded code. */
static uint64_t told(void)
{
	return state.tell_user ? state.kernel_insns + state.user_insns
			       : state.kernel_insns;
}

/* Finish the previous block: record its count if it was interrupted. */
static void settle(void)
{
	uint64_t ran = told() - state.counted;

	if (state.before && ran != state.before->n_insns)
		put_record(EXACT_PARTIAL, (uint32_t)ran);
	state.counted = told();
	state.before = NULL;
}

static void on_block(unsigned int vcpu, void *data)
{
	const struct block *block = data;

	(void)vcpu;
	settle();
	state.before = block;
	put(block->id);
}

static void put_text(uint32_t argument, uint64_t vaddr)
{
	char text[EXACT_TEXT_BYTES] = { 0 };
	size_t length;

	if (!values_text(vaddr, text, sizeof(text), &length))
		return;
	put_record(EXACT_TEXT, argument << 16 | (uint32_t)length);
	for (size_t i = 0; i < length; i += 4) {
		uint32_t word;

		memcpy(&word, text + i, 4);
		put(word);
	}
}

/* The same where calls are traced with their arguments. */
static void on_block_with_values(unsigned int vcpu, void *data)
{
	const struct block *block = data;
	uint64_t *called = block->half ? &state.called_user
				       : &state.called_kernel;
	uint64_t registers[VALUES_ARGUMENTS];
	uint64_t rsp;
	bool is_call;

	on_block(vcpu, data);
	if (!block->traced && !values_inside())
		return;
	if (!block->traced && !block->may_begin && !*called)
		return;
	rsp = values_rsp();
	is_call = *called == rsp;
	/*
	 * Between a call and its function the kernel may run: to read a page
	 * of the program from its file, for example.
	 */
	if (is_call || !block->half)
		*called = 0;
	if (block->traced)
		values_enter(rsp);
	if (!is_call && !block->traced && !block->may_begin)
		return;
	values_arguments(registers);
	put_record(EXACT_ARGUMENTS, is_call);
	for (size_t i = 0; i < VALUES_ARGUMENTS; i++)
		put_number(registers[i]);
	for (size_t i = 0; block->traced && i < VALUES_ARGUMENTS; i++)
		if (block->traced->texts >> i & 1)
			put_text((uint32_t)i, registers[i]);
}

static void on_user_block(unsigned int vcpu, void *data)
{
	(void)vcpu;
	(void)data;
	if (!state.before)
		return;
	settle();
	put_record(EXACT_USER, 0);
}

static void put_address(enum exact_record type, uint64_t vaddr, uint32_t half)
{
	/*
	 * When a user instruction faults, the CPU writes to the kernel's stack:
	 * that is no call or return, and the instruction is retried. And QEMU
	 * 7.2 does not end a callback when an exception leaves the block:
	 * accesses in the other half of the address space do not belong to the
	 * instruction. Nor do those of the kernel to memory of a program: what
	 * its calls store is on its own stacks. Were one not to be seen, the
	 * call would be counted as one without an address.
	 */
	if (vaddr >> 48 == (half ? 0xffff : 0))
		return;
	if (state.before && state.before->half != half)
		return;
	if (vaddr >> 48 != (half ? 0 : 0xffff)) {
		state.bad_addresses++;
		put_record(EXACT_LOSS, EXACT_LOSS_ADDRESS);
		put(state.bad_addresses);
		return;
	}
	put_record(type, half | ((uint32_t)(vaddr >> 32) & 0xffffu));
	put((uint32_t)vaddr);
}

/*
 * `call *(mem)` also loads its target: only the store is the return address.
 * The data of these callbacks is the half of the address space: 0, or
 * EXACT_USER_HALF.
 */
static void on_call_access(unsigned int vcpu, qemu_plugin_meminfo_t info,
			   uint64_t vaddr, void *data)
{
	(void)vcpu;
	if (!qemu_plugin_mem_is_store(info))
		return;
	put_address(EXACT_CALL, vaddr, (uint32_t)(uintptr_t)data);
	if (vaddr >> 48)
		state.called_kernel = vaddr;
	else
		state.called_user = vaddr;
}

static void on_ret_access(unsigned int vcpu, qemu_plugin_meminfo_t info,
			  uint64_t vaddr, void *data)
{
	(void)vcpu;
	(void)info;
	put_address(EXACT_RET, vaddr, (uint32_t)(uintptr_t)data);
}

/* The same where calls are traced with their arguments. */
static void on_ret_access_with_values(unsigned int vcpu,
				      qemu_plugin_meminfo_t info,
				      uint64_t vaddr, void *data)
{
	on_ret_access(vcpu, info, vaddr, data);
	if (!values_inside())
		return;
	put_record(EXACT_RESULT, 0);
	put_number(values_rax());
	values_leave(vaddr);
}

static void on_watched_access(unsigned int vcpu, qemu_plugin_meminfo_t info,
			      uint64_t vaddr, void *data)
{
	(void)vcpu;
	(void)data;
	if (qemu_plugin_mem_is_store(info) && vaddr >> 48 == 0xffff)
		put_address(EXACT_STORE, vaddr, 0);
}

static void on_armed_translation(qemu_plugin_id_t id,
				 struct qemu_plugin_tb *tb);

static void on_reset(qemu_plugin_id_t id)
{
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_armed_translation);
}

static void on_mark(unsigned int vcpu, void *data)
{
	enum exact_mark mark = (enum exact_mark)(uintptr_t)data;

	(void)vcpu;
	switch (mark) {
	case EXACT_MARK_ARM:
		if (state.armed)
			return;
		state.armed = true;
		qemu_plugin_reset(state.plugin, on_reset);
		break;
	case EXACT_MARK_USER:
		/* Too late after ARM: blocks are already translated. */
		if (!state.armed)
			state.tell_user = true;
		return;
	case EXACT_MARK_BIT_0:
	case EXACT_MARK_BIT_1:
		state.bits = state.bits << 1 | (mark == EXACT_MARK_BIT_1);
		return;
	case EXACT_MARK_WATCH_BEGIN:
		state.watch_begin = state.bits;
		return;
	case EXACT_MARK_WATCH_END:
		state.watch_end = state.bits;
		return;
	default:
		break;
	}
	if (state.values &&
	    (mark == EXACT_MARK_WINDOW_BEGIN || mark == EXACT_MARK_RUN_BEGIN))
		values_forget();
	/* A window opens or closes here, not at the start of a block. */
	if (state.tell_user && state.before) {
		put_record(EXACT_PARTIAL, (uint32_t)(told() - state.counted));
		state.counted = told();
	}
	put_record(EXACT_MARK, mark);
	put_number(state.user_insns);
	if (state.tell_user && state.before)
		put(state.before->id);
	if (mark <= EXACT_MARK_WINDOW_END || mark == EXACT_MARK_RUN_BEGIN)
		flush();
}

static enum exact_kind kind_of(const uint8_t *code, size_t size)
{
	size_t i = 0;

	while (i < size &&
	       (code[i] == 0x66 || code[i] == 0xf2 || code[i] == 0xf3 ||
		code[i] == 0x2e || code[i] == 0x3e || code[i] == 0x65 ||
		code[i] == 0x64))
		i++;
	if (i < size && (code[i] & 0xf0) == 0x40)
		i++; /* REX */
	if (i >= size)
		return EXACT_KIND_OTHER;
	switch (code[i]) {
	case 0xe8:
		return EXACT_KIND_CALL;
	case 0xff:
		if (i + 1 < size && ((code[i + 1] >> 3) & 7) == 2)
			return EXACT_KIND_CALL;
		return EXACT_KIND_OTHER;
	case 0xc2:
	case 0xc3:
		return EXACT_KIND_RET;
	case 0xcf:
		return EXACT_KIND_IRET;
	case 0x0f:
		if (i + 1 < size && code[i + 1] == 0x07)
			return EXACT_KIND_SYSRET;
		return EXACT_KIND_OTHER;
	default:
		return EXACT_KIND_OTHER;
	}
}

static void look_for_mark(struct qemu_plugin_insn *insn)
{
	const uint8_t *code = qemu_plugin_insn_data(insn);
	uint32_t imm;

	if (qemu_plugin_insn_size(insn) != 7 || code[0] != 0x0f ||
	    code[1] != 0x1f || code[2] != 0x80)
		return;
	memcpy(&imm, code + 3, sizeof(imm));
	if ((imm & EXACT_MARK_MASK) != EXACT_MARK_MAGIC)
		return;
	qemu_plugin_register_vcpu_insn_exec_cb(
		insn, on_mark, QEMU_PLUGIN_CB_NO_REGS,
		(void *)(uintptr_t)(imm & ~EXACT_MARK_MASK));
}

static bool is_kernel(const struct qemu_plugin_tb *tb)
{
	return qemu_plugin_tb_vaddr(tb) >> 63;
}

/* Before ARM: look for markers in user code, and where the kernel halts. */
static void on_idle_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t n = qemu_plugin_tb_n_insns(tb);

	(void)id;
	if (is_kernel(tb)) {
		if (state.settle_clock)
			clock_settle_before_halt(tb);
		return;
	}
	for (size_t i = 0; i < n; i++)
		look_for_mark(qemu_plugin_tb_get_insn(tb, i));
}

/* A hash of an instruction's page: see EXACT_USER_BLOCK. */
static uint64_t page_hash(const struct qemu_plugin_insn *insn)
{
	uintptr_t at = (uintptr_t)qemu_plugin_insn_haddr(insn);
	uint64_t hash = 0;

	if (!at)
		return 0;
	at &= ~(uintptr_t)0xfff;
	for (size_t i = 0; i < 512; i++) {
		uint64_t word;

		memcpy(&word, (const void *)(at + i * 8), sizeof(word));
		hash = (hash ^ word) * EXACT_HASH_FACTOR;
		hash ^= hash >> 32;
	}
	return hash;
}

static void put_block(struct block *block, const struct qemu_plugin_tb *tb,
		      enum exact_kind kind, bool user)
{
	uint64_t hash = 0;
	uint64_t vaddr = qemu_plugin_tb_vaddr(tb);
	uint8_t bytes[BLOCK_MAX_INSNS * 16];
	size_t n = block->n_insns;
	size_t len = n;

	for (size_t i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		size_t size = qemu_plugin_insn_size(insn);

		bytes[i] = (uint8_t)size;
		memcpy(bytes + len, qemu_plugin_insn_data(insn), size);
		len += size;
	}
	while (len % 4)
		bytes[len++] = 0;

	put_record(user ? EXACT_USER_BLOCK : EXACT_BLOCK,
		   (uint32_t)((user ? 6 : 4) + len / 4));
	put(block->id);
	put_number(vaddr);
	put((uint32_t)kind << 16 | (uint32_t)n);
	if (user) {
		hash = page_hash(qemu_plugin_tb_get_insn(tb, 0));
		put_number(hash);
	}
	if (state.values && (!user || hash)) {
		block->traced = values_find(vaddr, hash);
		block->may_begin = !user && values_may_begin(tb);
	}
	for (size_t i = 0; i < len; i += 4) {
		uint32_t word;

		memcpy(&word, bytes + i, 4);
		put(word);
	}
}

static void watch(const struct qemu_plugin_tb *tb)
{
	uint64_t at = qemu_plugin_tb_vaddr(tb);

	for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

		if (at >= state.watch_begin && at < state.watch_end)
			qemu_plugin_register_vcpu_mem_cb(
				insn, on_watched_access, QEMU_PLUGIN_CB_NO_REGS,
				QEMU_PLUGIN_MEM_W, NULL);
		at += qemu_plugin_insn_size(insn);
	}
}

static void on_armed_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t n = qemu_plugin_tb_n_insns(tb);
	struct qemu_plugin_insn *last = qemu_plugin_tb_get_insn(tb, n - 1);
	bool user = !is_kernel(tb);
	void *half = (void *)(uintptr_t)(user ? EXACT_USER_HALF : 0);
	enum exact_kind kind;
	struct block *block;

	(void)id;
	if (user) {
		if (!state.tell_user)
			qemu_plugin_register_vcpu_tb_exec_cb(
				tb, on_user_block, QEMU_PLUGIN_CB_NO_REGS,
				NULL);
		for (size_t i = 0; i < n; i++) {
			struct qemu_plugin_insn *insn =
				qemu_plugin_tb_get_insn(tb, i);

			qemu_plugin_register_vcpu_insn_exec_inline(
				insn, QEMU_PLUGIN_INLINE_ADD_U64,
				&state.user_insns, 1);
			look_for_mark(insn);
		}
		if (!state.tell_user)
			return;
	}

	/* Never freed: QEMU keeps the pointer until it drops the block. */
	block = calloc(1, sizeof(*block));
	if (!block) {
		fputs("netplumb: out of memory in the plugin\n", stderr);
		abort();
	}
	block->id = state.next_id++;
	block->n_insns = (uint32_t)n;
	block->half = user ? EXACT_USER_HALF : 0;
	kind = kind_of(qemu_plugin_insn_data(last),
		       qemu_plugin_insn_size(last));
	put_block(block, tb, kind, user);

	if (state.values)
		qemu_plugin_register_vcpu_tb_exec_cb(
			tb, on_block_with_values, QEMU_PLUGIN_CB_R_REGS, block);
	else
		qemu_plugin_register_vcpu_tb_exec_cb(
			tb, on_block, QEMU_PLUGIN_CB_NO_REGS, block);
	if (!user) {
		for (size_t i = 0; i < n; i++)
			qemu_plugin_register_vcpu_insn_exec_inline(
				qemu_plugin_tb_get_insn(tb, i),
				QEMU_PLUGIN_INLINE_ADD_U64, &state.kernel_insns,
				1);
		watch(tb);
		if (state.settle_clock)
			clock_settle_before_halt(tb);
	}
	/*
	 * Reads and writes for both: with reads alone, QEMU 7.2 omits most of
	 * the accesses of `ret`.
	 */
	if (kind == EXACT_KIND_CALL)
		qemu_plugin_register_vcpu_mem_cb(last, on_call_access,
						 QEMU_PLUGIN_CB_NO_REGS,
						 QEMU_PLUGIN_MEM_RW, half);
	else if (kind == EXACT_KIND_RET && state.values)
		qemu_plugin_register_vcpu_mem_cb(last,
						 on_ret_access_with_values,
						 QEMU_PLUGIN_CB_R_REGS,
						 QEMU_PLUGIN_MEM_RW, half);
	else if (kind == EXACT_KIND_RET)
		qemu_plugin_register_vcpu_mem_cb(last, on_ret_access,
						 QEMU_PLUGIN_CB_NO_REGS,
						 QEMU_PLUGIN_MEM_RW, half);
}

static void on_atexit(qemu_plugin_id_t id, void *data)
{
	(void)id;
	(void)data;
	flush();
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id,
					   const qemu_info_t *info, int argc,
					   char **argv)
{
	for (int i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "fd=", 3))
			state.fd = atoi(argv[i] + 3);
		else
			values_take_option(argv[i]);
	}
	if (strcmp(info->target_name, "x86_64") || !info->system_emulation) {
		fputs("netplumb: the plugin counts x86_64 system guests only\n",
		      stderr);
		return -1;
	}
	if (info->system.max_vcpus > 1) {
		fputs("netplumb: the plugin counts one vCPU, start with -smp 1\n",
		      stderr);
		return -1;
	}
	state.plugin = id;
	state.settle_clock = clock_can_settle();
	put_record(EXACT_HELLO, EXACT_STREAM_VERSION);
	if (values_wanted()) {
		state.values = values_can_read();
		if (!state.values) {
			put_record(EXACT_LOSS, EXACT_LOSS_REGISTERS);
			put(1);
		}
	}
	flush();
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_idle_translation);
	qemu_plugin_register_atexit_cb(id, on_atexit, NULL);
	return 0;
}
