//! The events that plumb knows by name: this table is the source of names, help, the reference and `plumb doctor
//! --events`. All other tracepoints of the kernel can be counted, too.

use super::Focus;

/// What counts an event: its number in include/uapi/linux/perf_event.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The kernel: `enum perf_sw_ids`.
    Software(u64),
    /// A counter of the CPU: `enum perf_hw_id`.
    Hardware(u64),
    /// The same, of its caches: cache, operation and result, a byte each.
    Cache(u64),
    /// The kernel, at a tracepoint, whose number differs from kernel to kernel.
    Tracepoint,
}

/// Numbers of software events that are times.
const CLOCKS: [u64; 2] = [0, 1];

impl Source {
    /// Whether it is a tracepoint.
    pub fn is_tracepoint(self) -> bool {
        self == Source::Tracepoint
    }

    /// Whether the CPU counts it.
    pub fn is_hardware(self) -> bool {
        matches!(self, Source::Hardware(_) | Source::Cache(_))
    }

    /// Whether it is a time, in nanoseconds.
    pub fn is_time(self) -> bool {
        matches!(self, Source::Software(number) if CLOCKS.contains(&number))
    }
}

/// An event that plumb has a name for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The first of its names.
    pub name: &'static str,
    /// Its other names.
    pub also: &'static [&'static str],
    /// What counts it.
    pub source: Source,
    /// The subsystem that it is of.
    pub focus: Focus,
    /// A description in a few words.
    pub about: &'static str,
    /// Whether it is counted if nothing is named.
    pub default: bool,
}

impl Event {
    const fn new(name: &'static str, source: Source, focus: Focus, about: &'static str) -> Event {
        Event { name, also: &[], source, focus, about, default: false }
    }

    const fn tracepoint(name: &'static str, focus: Focus, about: &'static str) -> Event {
        Event::new(name, Source::Tracepoint, focus, about)
    }

    const fn also(mut self, names: &'static [&'static str]) -> Event {
        self.also = names;
        self
    }

    const fn by_default(mut self) -> Event {
        self.default = true;
        self
    }
}

/// Tracepoints whose count in perf is the nanoseconds that they report, not the number of hits (`__perf_count` in
/// include/trace/events/sched.h).
const OF_TIME: [&str; 5] = [
    "sched:sched_stat_runtime",
    "sched:sched_stat_wait",
    "sched:sched_stat_sleep",
    "sched:sched_stat_iowait",
    "sched:sched_stat_blocked",
];

/// Whether what the kernel counts of an event is a time, in nanoseconds.
pub fn is_time(name: &str) -> bool {
    OF_TIME.contains(&name) || find(name).is_some_and(|event| event.source.is_time())
}

/// The event of a name.
pub fn find(name: &str) -> Option<&'static Event> {
    EVENTS.iter().find(|event| event.name == name || event.also.contains(&name))
}

/// All events, by focus.
pub static EVENTS: &[Event] = &[
    Event::new("task-clock", Source::Software(1), Focus::Process, "CPU time of tasks").by_default(),
    Event::new(
        "context-switches",
        Source::Software(3),
        Focus::Process,
        "switches from one task to another",
    )
    .also(&["cs"])
    .by_default(),
    Event::new(
        "cpu-migrations",
        Source::Software(4),
        Focus::Process,
        "tasks that went to another CPU",
    )
    .also(&["migrations"])
    .by_default(),
    Event::tracepoint("sched:sched_process_fork", Focus::Process, "tasks made"),
    Event::tracepoint("sched:sched_process_exec", Focus::Process, "programs started"),
    Event::tracepoint("sched:sched_process_exit", Focus::Process, "tasks ended"),
    Event::tracepoint("sched:sched_switch", Focus::Process, "switches of tasks"),
    Event::tracepoint("sched:sched_wakeup", Focus::Process, "tasks woken up"),
    Event::tracepoint(
        "sched:sched_wakeup_new",
        Focus::Process,
        "new tasks woken up for the first time",
    ),
    Event::tracepoint("sched:sched_waking", Focus::Process, "calls to wake up a task"),
    Event::tracepoint("sched:sched_migrate_task", Focus::Process, "tasks moved to another CPU"),
    Event::tracepoint(
        "sched:sched_stat_runtime",
        Focus::Process,
        "time that tasks ran, where the scheduler notes it",
    ),
    Event::tracepoint("signal:signal_generate", Focus::Process, "signals sent"),
    Event::tracepoint("signal:signal_deliver", Focus::Process, "signals delivered"),
    Event::tracepoint("raw_syscalls:sys_enter", Focus::Process, "system calls begun"),
    Event::tracepoint("raw_syscalls:sys_exit", Focus::Process, "system calls ended"),
    Event::tracepoint("task:task_newtask", Focus::Process, "tasks made, by clone"),
    Event::new("cpu-clock", Source::Software(0), Focus::Cpu, "time of CPUs that are counted on"),
    Event::new("cycles", Source::Hardware(0), Focus::Cpu, "cycles of CPUs that are not halted")
        .also(&["cpu-cycles"])
        .by_default(),
    Event::new("instructions", Source::Hardware(1), Focus::Cpu, "instructions executed")
        .by_default(),
    Event::new("branches", Source::Hardware(4), Focus::Cpu, "branches executed")
        .also(&["branch-instructions"])
        .by_default(),
    Event::new("branch-misses", Source::Hardware(5), Focus::Cpu, "branches predicted wrongly")
        .by_default(),
    Event::new("bus-cycles", Source::Hardware(6), Focus::Cpu, "cycles of the bus"),
    Event::new(
        "stalled-cycles-frontend",
        Source::Hardware(7),
        Focus::Cpu,
        "cycles in which no instruction arrived",
    )
    .also(&["idle-cycles-frontend"]),
    Event::new(
        "stalled-cycles-backend",
        Source::Hardware(8),
        Focus::Cpu,
        "cycles in which no instruction could be executed",
    )
    .also(&["idle-cycles-backend"]),
    Event::new(
        "ref-cycles",
        Source::Hardware(9),
        Focus::Cpu,
        "cycles at a rate that does not vary",
    ),
    Event::tracepoint("power:cpu_idle", Focus::Cpu, "changes of how deeply a CPU idles"),
    Event::tracepoint("power:cpu_frequency", Focus::Cpu, "changes of the frequency"),
    Event::new("page-faults", Source::Software(2), Focus::Memory, "page faults")
        .also(&["faults"])
        .by_default(),
    Event::new("minor-faults", Source::Software(5), Focus::Memory, "page faults without input"),
    Event::new(
        "major-faults",
        Source::Software(6),
        Focus::Memory,
        "page faults that waited for input",
    ),
    Event::new(
        "alignment-faults",
        Source::Software(7),
        Focus::Memory,
        "unaligned accesses that the kernel had to correct",
    ),
    Event::new(
        "emulation-faults",
        Source::Software(8),
        Focus::Memory,
        "instructions that the kernel had to emulate",
    ),
    Event::tracepoint("exceptions:page_fault_user", Focus::Memory, "page faults of programs"),
    Event::tracepoint("exceptions:page_fault_kernel", Focus::Memory, "page faults in the kernel"),
    Event::tracepoint("kmem:kmalloc", Focus::Memory, "allocations by kmalloc"),
    Event::tracepoint("kmem:kfree", Focus::Memory, "memory freed by kfree"),
    Event::tracepoint("kmem:kmem_cache_alloc", Focus::Memory, "allocations of slab objects"),
    Event::tracepoint("kmem:kmem_cache_free", Focus::Memory, "slab objects freed"),
    Event::tracepoint("kmem:mm_page_alloc", Focus::Memory, "pages allocated"),
    Event::tracepoint("kmem:mm_page_free", Focus::Memory, "pages freed"),
    Event::tracepoint(
        "kmem:mm_page_alloc_extfrag",
        Focus::Memory,
        "page allocations that break up larger blocks",
    ),
    Event::tracepoint(
        "vmscan:mm_vmscan_direct_reclaim_begin",
        Focus::Memory,
        "tasks that had to reclaim memory themselves",
    ),
    Event::tracepoint(
        "vmscan:mm_vmscan_kswapd_wake",
        Focus::Memory,
        "kswapd woken up to reclaim memory",
    ),
    Event::tracepoint(
        "compaction:mm_compaction_begin",
        Focus::Memory,
        "compactions of memory begun",
    ),
    Event::tracepoint("migrate:mm_migrate_pages", Focus::Memory, "pages moved"),
    Event::tracepoint("oom:mark_victim", Focus::Memory, "processes killed for lack of memory"),
    Event::tracepoint("tlb:tlb_flush", Focus::Memory, "flushes of the TLB"),
    Event::new(
        "cache-references",
        Source::Hardware(2),
        Focus::Memory,
        "accesses of the last cache",
    ),
    Event::new(
        "cache-misses",
        Source::Hardware(3),
        Focus::Memory,
        "accesses of the last cache that it did not have",
    ),
    Event::new(
        "L1-dcache-loads",
        Source::Cache(0x0),
        Focus::Memory,
        "loads from the first data cache",
    ),
    Event::new(
        "L1-dcache-load-misses",
        Source::Cache(0x10000),
        Focus::Memory,
        "loads that the first data cache did not have",
    ),
    Event::new(
        "L1-dcache-stores",
        Source::Cache(0x100),
        Focus::Memory,
        "stores to the first data cache",
    ),
    Event::new(
        "L1-icache-load-misses",
        Source::Cache(0x10001),
        Focus::Memory,
        "instructions that the first cache did not have",
    ),
    Event::new("LLC-loads", Source::Cache(0x2), Focus::Memory, "loads from the last cache"),
    Event::new(
        "LLC-load-misses",
        Source::Cache(0x10002),
        Focus::Memory,
        "loads that the last cache did not have",
    ),
    Event::new("LLC-stores", Source::Cache(0x102), Focus::Memory, "stores to the last cache"),
    Event::new("dTLB-loads", Source::Cache(0x3), Focus::Memory, "addresses of data looked up"),
    Event::new(
        "dTLB-load-misses",
        Source::Cache(0x10003),
        Focus::Memory,
        "addresses of data that the TLB did not have",
    ),
    Event::new(
        "iTLB-load-misses",
        Source::Cache(0x10004),
        Focus::Memory,
        "addresses of code that the TLB did not have",
    ),
    Event::tracepoint("block:block_bio_queue", Focus::Block, "bios queued"),
    Event::tracepoint(
        "block:block_bio_backmerge",
        Focus::Block,
        "bios merged at the end of a request",
    ),
    Event::tracepoint(
        "block:block_bio_frontmerge",
        Focus::Block,
        "bios merged at the beginning of a request",
    ),
    Event::tracepoint("block:block_bio_complete", Focus::Block, "bios completed"),
    Event::tracepoint("block:block_bio_remap", Focus::Block, "bios mapped to another device"),
    Event::tracepoint("block:block_split", Focus::Block, "bios split"),
    Event::tracepoint("block:block_getrq", Focus::Block, "requests allocated"),
    Event::tracepoint("block:block_rq_insert", Focus::Block, "requests inserted into a queue"),
    Event::tracepoint("block:block_rq_issue", Focus::Block, "requests issued to a driver"),
    Event::tracepoint("block:block_rq_complete", Focus::Block, "requests completed"),
    Event::tracepoint("block:block_rq_requeue", Focus::Block, "requests requeued"),
    Event::tracepoint("block:block_rq_merge", Focus::Block, "requests merged"),
    Event::tracepoint("block:block_rq_error", Focus::Block, "requests that failed"),
    Event::tracepoint("block:block_plug", Focus::Block, "queues plugged"),
    Event::tracepoint("block:block_unplug", Focus::Block, "queues unplugged"),
    Event::tracepoint("block:block_touch_buffer", Focus::Block, "buffers touched"),
    Event::tracepoint("block:block_dirty_buffer", Focus::Block, "buffers made dirty"),
    Event::tracepoint("filemap:mm_filemap_fault", Focus::Filesystem, "page faults of mapped files"),
    Event::tracepoint(
        "filemap:mm_filemap_map_pages",
        Focus::Filesystem,
        "mappings of pages around a fault",
    ),
    Event::tracepoint(
        "filemap:mm_filemap_get_pages",
        Focus::Filesystem,
        "reads from the page cache",
    ),
    Event::tracepoint(
        "filemap:mm_filemap_add_to_page_cache",
        Focus::Filesystem,
        "pages added to the page cache",
    ),
    Event::tracepoint(
        "filemap:mm_filemap_delete_from_page_cache",
        Focus::Filesystem,
        "pages removed from the page cache",
    ),
    Event::tracepoint(
        "readahead:page_cache_ra_unbounded",
        Focus::Filesystem,
        "readaheads without a limit",
    ),
    Event::tracepoint(
        "readahead:page_cache_ra_order",
        Focus::Filesystem,
        "readaheads of large folios",
    ),
    Event::tracepoint(
        "readahead:page_cache_sync_ra",
        Focus::Filesystem,
        "readaheads that a reader waits for",
    ),
    Event::tracepoint(
        "readahead:page_cache_async_ra",
        Focus::Filesystem,
        "readaheads ahead of the reader",
    ),
    Event::tracepoint("writeback:writeback_dirty_folio", Focus::Filesystem, "folios made dirty"),
    Event::tracepoint("writeback:writeback_dirty_inode", Focus::Filesystem, "inodes made dirty"),
    Event::tracepoint("writeback:writeback_start", Focus::Filesystem, "writebacks started"),
    Event::tracepoint("writeback:writeback_written", Focus::Filesystem, "writebacks done"),
    Event::tracepoint(
        "writeback:balance_dirty_pages",
        Focus::Filesystem,
        "writers held back for dirty pages",
    ),
    Event::tracepoint(
        "ext4:ext4_da_write_begin",
        Focus::Filesystem,
        "writes to ext4, allocated later",
    ),
    Event::tracepoint("ext4:ext4_writepages", Focus::Filesystem, "writebacks of ext4"),
    Event::tracepoint("ext4:ext4_sync_file_enter", Focus::Filesystem, "fsyncs of ext4"),
    Event::tracepoint(
        "jbd2:jbd2_start_commit",
        Focus::Filesystem,
        "commits of the journal of ext4",
    ),
    Event::tracepoint("xfs:xfs_file_buffered_read", Focus::Filesystem, "reads of xfs"),
    Event::tracepoint("xfs:xfs_file_buffered_write", Focus::Filesystem, "writes of xfs"),
    Event::tracepoint("xfs:xfs_file_fsync", Focus::Filesystem, "fsyncs of xfs"),
    Event::tracepoint("syscalls:sys_enter_openat", Focus::Filesystem, "calls of openat"),
    Event::tracepoint("syscalls:sys_enter_read", Focus::Filesystem, "calls of read"),
    Event::tracepoint("syscalls:sys_enter_write", Focus::Filesystem, "calls of write"),
    Event::tracepoint("syscalls:sys_enter_fsync", Focus::Filesystem, "calls of fsync"),
    Event::tracepoint("net:net_dev_queue", Focus::Network, "packets queued to a device"),
    Event::tracepoint("net:net_dev_start_xmit", Focus::Network, "packets handed to a driver"),
    Event::tracepoint(
        "net:net_dev_xmit",
        Focus::Network,
        "packets that a driver has taken, or not",
    ),
    Event::tracepoint("net:netif_rx", Focus::Network, "packets received by backlog"),
    Event::tracepoint("net:netif_receive_skb", Focus::Network, "packets received"),
    Event::tracepoint("net:napi_gro_receive_entry", Focus::Network, "packets received by NAPI"),
    Event::tracepoint("napi:napi_poll", Focus::Network, "polls of drivers"),
    Event::tracepoint("qdisc:qdisc_enqueue", Focus::Network, "packets put into a qdisc"),
    Event::tracepoint("qdisc:qdisc_dequeue", Focus::Network, "packets taken from a qdisc"),
    Event::tracepoint("skb:kfree_skb", Focus::Network, "packets dropped, or freed"),
    Event::tracepoint("skb:consume_skb", Focus::Network, "packets freed that were delivered"),
    Event::tracepoint("skb:skb_copy_datagram_iovec", Focus::Network, "packets copied to a program"),
    Event::tracepoint(
        "sock:inet_sock_set_state",
        Focus::Network,
        "changes of state of TCP sockets",
    ),
    Event::tracepoint(
        "sock:sock_rcvqueue_full",
        Focus::Network,
        "packets dropped at a full socket",
    ),
    Event::tracepoint("tcp:tcp_retransmit_skb", Focus::Network, "TCP segments sent again"),
    Event::tracepoint("tcp:tcp_send_reset", Focus::Network, "TCP resets sent"),
    Event::tracepoint("tcp:tcp_receive_reset", Focus::Network, "TCP resets received"),
    Event::tracepoint(
        "tcp:tcp_rcv_space_adjust",
        Focus::Network,
        "adjustments of TCP receive buffers",
    ),
    Event::tracepoint(
        "udp:udp_fail_queue_rcv_skb",
        Focus::Network,
        "datagrams dropped at a full socket",
    ),
    Event::tracepoint("fib:fib_table_lookup", Focus::Network, "lookups of IPv4 routes"),
    Event::tracepoint("neigh:neigh_update", Focus::Network, "changes of neighbours"),
    Event::tracepoint("xdp:xdp_exception", Focus::Network, "errors of XDP programs"),
    Event::tracepoint("xdp:xdp_redirect", Focus::Network, "packets redirected by XDP programs"),
    Event::tracepoint("syscalls:sys_enter_sendto", Focus::Network, "calls of sendto"),
    Event::tracepoint("syscalls:sys_enter_recvfrom", Focus::Network, "calls of recvfrom"),
    Event::tracepoint("syscalls:sys_enter_sendmsg", Focus::Network, "calls of sendmsg"),
    Event::tracepoint("syscalls:sys_enter_recvmsg", Focus::Network, "calls of recvmsg"),
    Event::tracepoint("irq:irq_handler_entry", Focus::Interrupt, "interrupts of devices"),
    Event::tracepoint("irq:softirq_raise", Focus::Interrupt, "softirqs raised"),
    Event::tracepoint("irq:softirq_entry", Focus::Interrupt, "softirqs begun"),
    Event::tracepoint("irq:softirq_exit", Focus::Interrupt, "softirqs ended"),
    Event::tracepoint(
        "irq_vectors:local_timer_entry",
        Focus::Interrupt,
        "interrupts of the timer of a CPU",
    ),
    Event::tracepoint(
        "irq_vectors:reschedule_entry",
        Focus::Interrupt,
        "interrupts to switch tasks",
    ),
    Event::tracepoint(
        "irq_vectors:call_function_entry",
        Focus::Interrupt,
        "calls of functions on other CPUs",
    ),
    Event::tracepoint("timer:timer_expire_entry", Focus::Interrupt, "timers expired"),
    Event::tracepoint(
        "timer:hrtimer_expire_entry",
        Focus::Interrupt,
        "high-resolution timers expired",
    ),
    Event::tracepoint("timer:hrtimer_start", Focus::Interrupt, "high-resolution timers started"),
    Event::tracepoint("workqueue:workqueue_execute_start", Focus::Interrupt, "work items begun"),
];
