/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What wire.c takes of QEMU itself: functions that it exports for its modules,
 * and the beginnings of two structures. After the headers of QEMU 7.2, which are
 * named beside each, and compared with QEMU 10.0's.
 */
#ifndef NETPLUMB_WIRE_QEMU_H
#define NETPLUMB_WIRE_QEMU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct cpu_state;
struct net_client;

/* include/qemu/timer.h */
#define QEMU_CLOCK_VIRTUAL 1
#define QEMU_TIMER_ATTR_ALL (~0)

/* include/exec/cpu-common.h */
enum device_endian {
	DEVICE_LITTLE_ENDIAN = 2
};

/* include/hw/core/cpu.h: run_on_cpu_data */
union run_on_cpu_data {
	int host_int;
	unsigned long host_ulong;
	void *host_ptr;
	uint64_t target_ptr;
};

/* include/net/net.h: NetClientInfo, as far as it is used; the rest is copied. */
struct net_client_info {
	int type;
	size_t size;
	/* receive, receive_raw (until 8.2), receive_iov, can_receive, others */
	void *functions[28];
};

/* NetClientState begins with this. */
struct net_client {
	struct net_client_info *info;
};

/* include/exec/memory.h: MemoryRegionOps */
struct memory_region_ops {
	uint64_t (*read)(void *opaque, uint64_t at, unsigned size);
	void (*write)(void *opaque, uint64_t at, uint64_t data, unsigned size);
	void *read_with_attrs;
	void *write_with_attrs;
	enum device_endian endianness;
	struct {
		unsigned min_access_size;
		unsigned max_access_size;
		bool unaligned;
		void *accepts;
	} valid;
	struct {
		unsigned min_access_size;
		unsigned max_access_size;
		bool unaligned;
	} impl;
};

/* Room for QEMUTimer (48 bytes) and MemoryRegion (272), which QEMU fills in. */
union qemu_timer {
	uint8_t bytes[256];
	uint64_t align;
};

union memory_region {
	uint8_t bytes[2048];
	/* It has an Int128, which QEMU loads as aligned. */
	__int128 align;
};

struct wire_qemu {
	/* include/qemu/timer.h */
	int64_t (*clock_get_ns)(int clock);
	void (*timer_init_full)(union qemu_timer *timer, void *group, int clock,
				int scale, int attributes, void (*cb)(void *),
				void *opaque);
	int64_t (*clock_deadline_ns_all)(int clock, int attributes);
	void (*timer_mod_ns)(union qemu_timer *timer, int64_t at_ns);
	/* include/net/net.h */
	struct net_client *(*find_netdev)(const char *id);
	ssize_t (*send_packet)(struct net_client *nc, const uint8_t *data,
			       int bytes);
	/* include/qemu/iov.h */
	size_t (*iov_size)(const struct iovec *iov, unsigned count);
	size_t (*iov_to_buf_full)(const struct iovec *iov, unsigned count,
				  size_t offset, void *to, size_t bytes);
	/* include/hw/core/cpu.h */
	struct cpu_state *(*get_cpu)(int index);
	void (*async_run_on_cpu)(struct cpu_state *cpu,
				 void (*what)(struct cpu_state *cpu,
					      union run_on_cpu_data data),
				 union run_on_cpu_data data);
	/* include/sysemu/cpus.h */
	bool (*all_cpu_threads_idle)(void);
	/* include/sysemu/cpu-timers.h */
	int64_t (*icount_get_raw)(void);
	/* include/exec/memory.h, include/exec/address-spaces.h */
	void (*memory_region_init_io)(union memory_region *region, void *owner,
				      const struct memory_region_ops *ops,
				      void *opaque, const char *name,
				      uint64_t size);
	void (*memory_region_add_subregion)(void *container, uint64_t at,
					    union memory_region *region);
	void *(*get_system_io)(void);
	void *(*get_system_memory)(void);
};

extern struct wire_qemu qemu;

/* Find all of it in this QEMU; returns why not, or NULL. */
const char *wire_qemu_open(void);

/*
 * Whether a clock counts instructions, each as long as any other. Not known before
 * the CPU is there.
 */
bool wire_qemu_counts(void);

/* Whether a network device is the port of a hub, and laid out as above. */
bool wire_qemu_is_hub_port(const struct net_client *nc);

/* Have such a one call these in place of its own. */
void wire_qemu_replace(struct net_client_info *info,
		       ssize_t (*receive)(struct net_client *nc,
					  const uint8_t *data, size_t bytes),
		       ssize_t (*receive_iov)(struct net_client *nc,
					      const struct iovec *iov,
					      int count),
		       bool (*can_receive)(struct net_client *nc));

#endif
