/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Stacks, and a hash of them that is wide enough to stand for them. */
#ifndef NETPLUMB_SAMPLES_STACK_H
#define NETPLUMB_SAMPLES_STACK_H

/* Frames hashed at a time: the verifier follows every round. */
#define AT_ONCE 4

struct scratch {
	struct samples_stack stack;
	/* With room for what the last round has too much. */
	__u64 frames[2 * SAMPLES_FRAMES + AT_ONCE];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	/* Programs on top of each other: a clock's on a switch's. */
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

static __always_inline void mix(__u64 *hash, __u64 *check, __u64 word)
{
	*hash = (*hash ^ word) * 0x9e3779b97f4a7c15;
	*hash ^= *hash >> 29;
	*check = ((*check << 7 | *check >> 57) + word) * 0xbf58476d1ce4e5b9;
}

static __always_inline void mix_name(__u64 *hash, __u64 *check,
				     const char *name)
{
	const __u64 *words = (const __u64 *)name;

	mix(hash, check, words[0]);
	mix(hash, check, words[1]);
}

/*
 * Fill in the stack of the current task, and what it hashes to. Returns how
 * long it is, with what is before it.
 */
static __always_inline __u32 fill(void *ctx, struct scratch *to,
				  const struct bpf_pidns_info *ids,
				  _Bool in_user, __u32 frames, _Bool user,
				  __u64 *check)
{
	struct samples_stack *s = &to->stack;
	__u64 hash = 0x8e99d71a3d5f1c2b;
	__u32 most = frames * sizeof(__u64), n, i;
	int got = 0;

	if (most > SAMPLES_FRAMES * sizeof(__u64))
		most = SAMPLES_FRAMES * sizeof(__u64);
	s->kind = SAMPLES_KIND_STACK;
	s->tgid = ids->tgid;
	s->tid = ids->pid;
	s->in_user = in_user;
	s->unused = 0;
	__builtin_memset(s->name, 0, sizeof(s->name));
	/* Tasks that are not distinguished have neither number. */
	if (bpf_get_current_pid_tgid() &&
	    (ids->pid || ids->tgid != SAMPLES_FOREIGN))
		bpf_get_current_comm(s->name, sizeof(s->name));
	if (!in_user)
		got = bpf_get_stack(ctx, to->frames, most, 0);
	n = got > 0 ? (__u32)got / sizeof(__u64) : 0;
	n &= 0x7f;
	s->kernel = n;
	got = 0;
	if (user && ids->tgid != SAMPLES_IDLE)
		got = bpf_get_stack(ctx, to->frames + n, most,
				    BPF_F_USER_STACK);
	got = got > 0 ? ((__u32)got / sizeof(__u64)) & 0x7f : 0;
	s->user = got;
	/* As the verifier knows it: both are below 128. */
	n += got;
	*check = 0x5851f42d4c957f2d;
	mix(&hash, check,
	    (__u64)s->tgid << 32 | s->kernel << 16 | s->user << 1 | in_user);
	mix_name(&hash, check, s->name);
	/* Not what an earlier stack has left there. */
	to->frames[n] = 0;
	to->frames[n + 1] = 0;
	to->frames[n + 2] = 0;
	for (i = 0; i < 2 * SAMPLES_FRAMES; i += AT_ONCE) {
		if (i >= n)
			break;
		mix(&hash, check, to->frames[i]);
		mix(&hash, check, to->frames[i + 1]);
		mix(&hash, check, to->frames[i + 2]);
		mix(&hash, check, to->frames[i + 3]);
	}
	s->hash = hash;
	return sizeof(*s) + n * sizeof(__u64);
}

#endif
