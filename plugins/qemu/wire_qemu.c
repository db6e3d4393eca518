// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Finds what wire.c takes of QEMU, by version and layout.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "wire_qemu.h"

struct wire_qemu qemu;

/* include/sysemu/cpu-timers.h: 0 without -icount, 2 if it adapts to the host */
#define ICOUNT_PRECISE 1
static const int *use_icount;

/* qapi/misc.json: VersionInfo */
struct version_info {
	struct {
		int64_t major;
		int64_t minor;
		int64_t micro;
	} * qemu;
	char *package;
};

/* qapi/net.json of QEMU 7.2: NetClientDriver */
#define HUB_PORT 10

static const struct {
	const char *name;
	void **function;
} needed[] = {
	{ "qemu_clock_get_ns", (void **)&qemu.clock_get_ns },
	{ "timer_init_full", (void **)&qemu.timer_init_full },
	{ "qemu_clock_deadline_ns_all", (void **)&qemu.clock_deadline_ns_all },
	{ "all_cpu_threads_idle", (void **)&qemu.all_cpu_threads_idle },
	{ "timer_mod_ns", (void **)&qemu.timer_mod_ns },
	{ "qemu_find_netdev", (void **)&qemu.find_netdev },
	{ "qemu_send_packet", (void **)&qemu.send_packet },
	{ "iov_size", (void **)&qemu.iov_size },
	{ "iov_to_buf_full", (void **)&qemu.iov_to_buf_full },
	{ "qemu_get_cpu", (void **)&qemu.get_cpu },
	{ "async_run_on_cpu", (void **)&qemu.async_run_on_cpu },
	{ "icount_get_raw", (void **)&qemu.icount_get_raw },
	{ "memory_region_init_io", (void **)&qemu.memory_region_init_io },
	{ "memory_region_add_subregion",
	  (void **)&qemu.memory_region_add_subregion },
	{ "get_system_io", (void **)&qemu.get_system_io },
	{ "get_system_memory", (void **)&qemu.get_system_memory },
};

const char *wire_qemu_open(void)
{
	static char why[256];
	struct version_info *(*version)(void **error);
	struct version_info *found;

	*(void **)&version = dlsym(RTLD_DEFAULT, "qmp_query_version");
	if (!version)
		return "this QEMU does not export its functions";
	found = version(NULL);
	if (found->qemu->major != 7 || found->qemu->minor != 2) {
		snprintf(why, sizeof(why), "it needs QEMU 7.2; this is %d.%d",
			 (int)found->qemu->major, (int)found->qemu->minor);
		return why;
	}
	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		*needed[i].function = dlsym(RTLD_DEFAULT, needed[i].name);
		if (*needed[i].function)
			continue;
		snprintf(why, sizeof(why), "this QEMU does not export %s",
			 needed[i].name);
		return why;
	}
	use_icount = dlsym(RTLD_DEFAULT, "use_icount");
	if (!use_icount)
		return "this QEMU does not export use_icount";
	return NULL;
}

bool wire_qemu_counts(void)
{
	return *use_icount == ICOUNT_PRECISE;
}

/* Whether a pointer is to a function of QEMU's own program. */
static bool is_qemus(void *function)
{
	Dl_info there, known;

	return function && dladdr(function, &there) &&
	       dladdr((void *)qemu.find_netdev, &known) &&
	       there.dli_fbase == known.dli_fbase;
}

bool wire_qemu_is_hub_port(const struct net_client *nc)
{
	const struct net_client_info *info = nc->info;

	return info && info->type == HUB_PORT &&
	       info->size >= sizeof(struct net_client) && info->size < 4096 &&
	       is_qemus((void *)info->receive) &&
	       is_qemus((void *)info->receive_iov) &&
	       is_qemus((void *)info->can_receive);
}
