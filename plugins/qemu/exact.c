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
 * - a memory callback on `call` and `ret`, whose address is the stack pointer;
 *   where calls touch no memory, the stack pointer is read when the next block
 *   starts.
 *
 * After DISARM nothing more is recorded, and added to no more code.
 *
 * If a command is measured (marker USER), user code is treated the same, and
 * each of its blocks has a hash of its page and the number of its frame, by which
 * the reader identifies the file.
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

#include "arch.h"
#include "clock.h"
#include "exact.h"
#include "plugin_api.h"
#include "registers.h"
#include "values.h"

/* QEMU ends a block at 512 instructions (TCG_MAX_INSNS). */
#define BLOCK_MAX_INSNS 512

struct block {
	uint32_t id;
	uint32_t n_insns;
	uint32_t half;	      /* of the address space: 0, or EXACT_USER_HALF */
	enum exact_kind kind; /* of its last instruction */
	bool masks;	      /* it may change whether interrupts come */
	uint64_t vaddr;
	uint64_t end;	      /* the address behind it */
	int32_t stack_change; /* what it adds to sp, or STACK_UNKNOWN */
	const struct values_traced *traced; /* a function that begins here */
	bool may_begin;			    /* a function may begin here */
	bool loads_stack; /* the stack pointer, of user mode */
};

static struct {
	qemu_plugin_id_t plugin;
	const struct arch *arch;
	int fd;
	bool armed;	 /* blocks are recorded */
	bool count_user; /* user mode's blocks too */
	bool settle_clock;
	bool values;   /* registers at calls and returns */
	bool readable; /* registers can be read at all */
	bool moved;    /* the stack pointer of user mode, by code */
	uint64_t bits; /* what markers have shifted in */
	uint64_t watch_begin;
	uint64_t watch_end;

	struct plugin_counter kernel_insns; /* executed */
	struct plugin_counter user_insns;
	uint64_t counted; /* insns_so_far() at the start of the block before */
	const struct block *before;
	uint32_t next_id;
	uint32_t bad_addresses;

	/* Where calls stored return addresses whose functions have not begun. */
	uint64_t called_kernel;
	uint64_t called_user;
	/* Where calls store nothing: when the last block of user mode began. */
	uint64_t user_sp;

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
static uint64_t insns_so_far(void)
{
	uint64_t kernel = plugin_counter_read(&state.kernel_insns);

	return state.count_user
		       ? kernel + plugin_counter_read(&state.user_insns)
		       : kernel;
}

/* Finish the previous block: record its count if it was interrupted. */
static void settle(void)
{
	uint64_t ran = insns_so_far() - state.counted;

	if (state.before && ran != state.before->n_insns)
		put_record(EXACT_PARTIAL, (uint32_t)ran);
	state.counted = insns_so_far();
	state.before = NULL;
}

static void put_address(enum exact_record type, uint64_t vaddr, uint32_t half);
static void put_result(uint64_t sp);

/*
 * Where calls and returns touch no memory: record what the end of the previous
 * block did, by registers at the start of the next one. An exception in between
 * leaves the kernel's as they are, but not the stack pointer of user mode.
 */
static void put_end_of_block(const struct block *next)
{
	const struct block *block = state.before;
	uint64_t sp;

	if (!block || insns_so_far() - state.counted != block->n_insns)
		return;
	/* Where an interrupt came between the two, they do come. */
	if (block->masks)
		put_record(EXACT_MASKED,
			   next->vaddr == block->end && registers_masked());
	if (block->kind != EXACT_KIND_CALL && block->kind != EXACT_KIND_RET)
		return;
	if (block->half == next->half)
		sp = registers_stack_pointer();
	else if (block->half && block->stack_change != STACK_UNKNOWN)
		sp = state.user_sp + (uint64_t)(int64_t)block->stack_change;
	else
		return;
	if (block->kind == EXACT_KIND_CALL) {
		put_address(EXACT_CALL, sp, block->half);
		if (block->half)
			state.called_user = sp;
		else
			state.called_kernel = sp;
	} else {
		put_address(EXACT_RET, sp, block->half);
		if (state.values)
			put_result(sp);
	}
}

/*
 * Where user mode's stack pointer may be on another stack than before: behind
 * the kernel, and where code has loaded it and then jumped.
 */
static void put_stack(const struct block *block, const struct block *before)
{
	bool jumped = before && block->vaddr != before->end;
	bool tell = !before || !before->half;
	uint64_t sp;

	if (before && before->loads_stack)
		state.moved = true;
	if (state.moved && jumped) {
		state.moved = false;
		tell = true;
	}
	if (!tell)
		return;
	sp = registers_stack_pointer();
	put_record(EXACT_STACK, (uint32_t)(sp >> 32) & 0xffffu);
	put((uint32_t)sp);
	put_number(registers_goroutine());
}

static void on_block(unsigned int vcpu, void *data)
{
	const struct block *block = data;
	const struct block *before = state.before;

	(void)vcpu;
	if (!state.armed)
		return;
	if (!state.arch->calls_store)
		put_end_of_block(block);
	settle();
	state.before = block;
	put(block->id);
	if (block->half && state.readable)
		put_stack(block, before);
	if (block->half && !state.arch->calls_store &&
	    block->kind != EXACT_KIND_OTHER)
		state.user_sp = registers_stack_pointer();
}

static void put_text(uint32_t argument, uint64_t vaddr)
{
	char text[EXACT_TEXT_BYTES] = { 0 };
	size_t length;

	if (!registers_text(vaddr, text, sizeof(text), &length))
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
	uint64_t registers[ARCH_ARGUMENTS];
	uint64_t sp;
	bool is_call;

	on_block(vcpu, data);
	if (!state.armed || (!block->traced && !values_inside()))
		return;
	if (!block->traced && !block->may_begin && !*called)
		return;
	sp = registers_stack_pointer();
	is_call = *called == sp;
	/*
	 * Between a call and its function the kernel may run: to read a page
	 * of the program from its file, for example.
	 */
	if (is_call || !block->half)
		*called = 0;
	if (block->traced)
		values_enter(sp);
	if (!is_call && !block->traced && !block->may_begin)
		return;
	registers_arguments(registers);
	put_record(EXACT_ARGUMENTS, is_call);
	for (size_t i = 0; i < ARCH_ARGUMENTS; i++)
		put_number(registers[i]);
	for (size_t i = 0; block->traced && i < ARCH_ARGUMENTS; i++)
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
	if (!state.armed)
		return;
	/*
	 * When a user instruction faults, the CPU writes to the kernel's stack:
	 * that is no call or return, and the instruction is retried. And QEMU
	 * 7.2 does not end a callback when an exception leaves the block:
	 * accesses in the other half of the address space do not belong to the
	 * instruction. Nor do the kernel's to memory of a program: what
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

/* What a function returns to where the stack pointer is `sp`. */
static void put_result(uint64_t sp)
{
	if (!state.armed || !values_inside())
		return;
	put_record(EXACT_RESULT, 0);
	put_number(registers_result());
	values_leave(sp);
}

/* The same where calls are traced with their arguments. */
static void on_ret_access_with_values(unsigned int vcpu,
				      qemu_plugin_meminfo_t info,
				      uint64_t vaddr, void *data)
{
	on_ret_access(vcpu, info, vaddr, data);
	put_result(vaddr);
}

static void on_watched_access(unsigned int vcpu, qemu_plugin_meminfo_t info,
			      uint64_t vaddr, void *data)
{
	(void)vcpu;
	(void)data;
	if (qemu_plugin_mem_is_store(info) && vaddr >> 48 == 0xffff)
		put_address(EXACT_STORE, vaddr, 0);
}

static void on_translation(struct qemu_plugin_tb *tb);

static void on_discarded(void)
{
	state.armed = true;
	plugin_on_translation(state.plugin, on_translation);
}

/*
 * Blocks stay as they are, and report nothing; blocks that are translated from now
 * on are as before ARM. To discard the former, too, would leave QEMU 7.2 with
 * callbacks of theirs: it does not end them when an exception leaves the block.
 */
static void disarm(void)
{
	settle();
	flush();
	state.armed = false;
}

static void on_mark(unsigned int vcpu, void *data)
{
	enum exact_mark mark = (enum exact_mark)(uintptr_t)data;

	(void)vcpu;
	switch (mark) {
	case EXACT_MARK_ARM:
		if (state.armed)
			return;
		plugin_reset(state.plugin, on_discarded);
		break;
	case EXACT_MARK_DISARM:
		if (state.armed)
			disarm();
		return;
	case EXACT_MARK_USER:
		/* Too late after ARM: blocks are already translated. */
		if (!state.armed)
			state.count_user = true;
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
	if (state.count_user && state.before) {
		put_record(EXACT_PARTIAL,
			   (uint32_t)(insns_so_far() - state.counted));
		state.counted = insns_so_far();
	}
	put_record(EXACT_MARK, mark);
	put_number(plugin_counter_read(&state.user_insns));
	if (state.count_user && state.before)
		put(state.before->id);
	if (mark <= EXACT_MARK_WINDOW_END || mark == EXACT_MARK_RUN_BEGIN)
		flush();
}

static void look_for_mark(struct qemu_plugin_insn *insn)
{
	struct code code = plugin_code(insn);
	uint32_t mark = state.arch->mark_of(code.bytes, code.size);

	if (mark)
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_mark,
						       QEMU_PLUGIN_CB_NO_REGS,
						       (void *)(uintptr_t)mark);
}

static bool is_kernel(const struct qemu_plugin_tb *tb)
{
	return qemu_plugin_tb_vaddr(tb) >> 63;
}

/* While not armed: look for markers in user code, and where the kernel halts. */
static void translate_idle(struct qemu_plugin_tb *tb)
{
	size_t n = qemu_plugin_tb_n_insns(tb);

	if (is_kernel(tb)) {
		if (state.settle_clock)
			clock_settle_before_halt(state.arch, tb);
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
		      bool user)
{
	uint64_t hash = 0;
	uint64_t vaddr = qemu_plugin_tb_vaddr(tb);
	uint8_t bytes[BLOCK_MAX_INSNS * 16];
	size_t n = block->n_insns;
	size_t len = n;

	for (size_t i = 0; i < n; i++) {
		struct code code = plugin_code(qemu_plugin_tb_get_insn(tb, i));

		bytes[i] = (uint8_t)code.size;
		memcpy(bytes + len, code.bytes, code.size);
		len += code.size;
	}
	block->vaddr = vaddr;
	block->end = vaddr + len - n;
	while (len % 4)
		bytes[len++] = 0;

	put_record(user ? EXACT_USER_BLOCK : EXACT_BLOCK,
		   (uint32_t)((user ? 7 : 4) + len / 4));
	put(block->id);
	put_number(vaddr);
	put((uint32_t)block->kind << 16 | (uint32_t)n);
	if (user) {
		hash = page_hash(qemu_plugin_tb_get_insn(tb, 0));
		put_number(hash);
		put(registers_frame(vaddr));
	}
	if (state.values && (!user || hash)) {
		block->traced = values_find(vaddr, hash);
		block->may_begin = !user && state.arch->may_begin(tb);
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

/* What a block adds to the stack pointer. */
static int32_t stack_change_of(const struct qemu_plugin_tb *tb)
{
	int32_t sum = 0;

	for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
		struct code code = plugin_code(qemu_plugin_tb_get_insn(tb, i));
		int32_t change =
			state.arch->stack_change(code.bytes, code.size);

		if (change == STACK_UNKNOWN)
			return STACK_UNKNOWN;
		sum += change;
	}
	return sum;
}

static void translate_armed(struct qemu_plugin_tb *tb)
{
	size_t n = qemu_plugin_tb_n_insns(tb);
	struct qemu_plugin_insn *last = qemu_plugin_tb_get_insn(tb, n - 1);
	bool user = !is_kernel(tb);
	void *half = (void *)(uintptr_t)(user ? EXACT_USER_HALF : 0);
	struct code code = plugin_code(last);
	struct block *block;

	if (user) {
		if (!state.count_user)
			qemu_plugin_register_vcpu_tb_exec_cb(
				tb, on_user_block, QEMU_PLUGIN_CB_NO_REGS,
				NULL);
		for (size_t i = 0; i < n; i++) {
			struct qemu_plugin_insn *insn =
				qemu_plugin_tb_get_insn(tb, i);

			plugin_count(insn, &state.user_insns);
			look_for_mark(insn);
		}
		if (!state.count_user)
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
	block->kind = state.arch->kind_of(code.bytes, code.size);
	block->masks = !user && state.arch->masks(code.bytes, code.size);
	if (user && !state.arch->calls_store)
		block->stack_change = stack_change_of(tb);
	for (size_t i = 0; user && i < n; i++) {
		code = plugin_code(qemu_plugin_tb_get_insn(tb, i));
		block->loads_stack |=
			state.arch->loads_stack(code.bytes, code.size);
	}
	put_block(block, tb, user);

	if (state.values)
		qemu_plugin_register_vcpu_tb_exec_cb(
			tb, on_block_with_values, QEMU_PLUGIN_CB_R_REGS, block);
	else
		qemu_plugin_register_vcpu_tb_exec_cb(
			tb, on_block, QEMU_PLUGIN_CB_NO_REGS, block);
	if (!user) {
		for (size_t i = 0; i < n; i++)
			plugin_count(qemu_plugin_tb_get_insn(tb, i),
				     &state.kernel_insns);
		watch(tb);
		if (state.settle_clock)
			clock_settle_before_halt(state.arch, tb);
	}
	if (!state.arch->calls_store)
		return;
	/*
	 * Reads and writes for both: with reads alone, QEMU 7.2 omits most of
	 * the accesses of `ret`.
	 */
	if (block->kind == EXACT_KIND_CALL)
		qemu_plugin_register_vcpu_mem_cb(last, on_call_access,
						 QEMU_PLUGIN_CB_NO_REGS,
						 QEMU_PLUGIN_MEM_RW, half);
	else if (block->kind == EXACT_KIND_RET && state.values)
		qemu_plugin_register_vcpu_mem_cb(last,
						 on_ret_access_with_values,
						 QEMU_PLUGIN_CB_R_REGS,
						 QEMU_PLUGIN_MEM_RW, half);
	else if (block->kind == EXACT_KIND_RET)
		qemu_plugin_register_vcpu_mem_cb(last, on_ret_access,
						 QEMU_PLUGIN_CB_NO_REGS,
						 QEMU_PLUGIN_MEM_RW, half);
}

static void on_translation(struct qemu_plugin_tb *tb)
{
	if (state.armed)
		translate_armed(tb);
	else
		translate_idle(tb);
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
	state.arch = arch_of_target(info->target_name);
	if (!state.arch || !info->system_emulation) {
		fprintf(stderr,
			"netplumb: the plugin counts guests of x86_64 and aarch64, not of %s\n",
			info->target_name);
		return -1;
	}
	if (info->system.max_vcpus > 1) {
		fputs("netplumb: the plugin counts one vCPU, start with -smp 1\n",
		      stderr);
		return -1;
	}
	if (!plugin_open(info))
		return -1;
	plugin_counter_init(&state.kernel_insns);
	plugin_counter_init(&state.user_insns);
	state.plugin = id;
	state.settle_clock = clock_can_settle();
	state.readable = registers_can_read(state.arch);
	if (!state.arch->calls_store && !state.readable) {
		fprintf(stderr,
			"netplumb: this QEMU does not export %s, by which calls are followed\n",
			state.arch->read_register);
		return -1;
	}
	put_record(EXACT_HELLO,
		   EXACT_STREAM_VERSION | (uint32_t)state.arch->number << 16);
	state.values = values_wanted() && state.readable;
	if (values_wanted() && !state.readable) {
		put_record(EXACT_LOSS, EXACT_LOSS_REGISTERS);
		put(1);
	}
	flush();
	plugin_on_translation(id, on_translation);
	plugin_on_exit(id, flush);
	return 0;
}
