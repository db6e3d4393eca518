// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Finds what wire.c takes of QEMU, by name and layout.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "wire_qemu.h"

struct wire_qemu qemu;

/* include/sysemu/cpu-timers.h: 0 without -icount, 2 if it adapts to the host */
#define ICOUNT_PRECISE 1
static const int *use_icount;

/* qapi/qapi-types-net.h: QEnumLookup, the names of NetClientDriver by number */
static const struct {
	const char *const *names;
	const unsigned char *special_features;
	int size;
} * drivers;

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
	{ "use_icount", (void **)&use_icount },
	{ "NetClientDriver_lookup", (void **)&drivers },
};

const char *wire_qemu_open(void)
{
	static char why[256];

	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		*needed[i].function = dlsym(RTLD_DEFAULT, needed[i].name);
		if (*needed[i].function)
			continue;
		snprintf(why, sizeof(why), "this QEMU does not export %s",
			 needed[i].name);
		return why;
	}
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

static bool is_named_hub_port(int type)
{
	return type >= 0 && type < drivers->size &&
	       !strcmp(drivers->names[type], "hubport");
}

/*
 * Where receive_iov is. QEMU 9.0 took away receive_raw before it, which a hub
 * port does not have.
 */
static size_t of_iov(const struct net_client_info *info)
{
	return info->functions[1] ? 1 : 2;
}

bool wire_qemu_is_hub_port(const struct net_client *nc)
{
	const struct net_client_info *info = nc->info;

	return info && is_named_hub_port(info->type) &&
	       info->size >= sizeof(struct net_client) && info->size < 4096 &&
	       is_qemus(info->functions[0]) &&
	       is_qemus(info->functions[of_iov(info)]) &&
	       is_qemus(info->functions[of_iov(info) + 1]);
}

void wire_qemu_replace(struct net_client_info *info,
		       ssize_t (*receive)(struct net_client *nc,
					  const uint8_t *data, size_t bytes),
		       ssize_t (*receive_iov)(struct net_client *nc,
					      const struct iovec *iov,
					      int count),
		       bool (*can_receive)(struct net_client *nc))
{
	size_t iov = of_iov(info);

	info->functions[0] = (void *)receive;
	info->functions[iov] = (void *)receive_iov;
	info->functions[iov + 1] = (void *)can_receive;
}
