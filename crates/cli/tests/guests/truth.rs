//! The `functions` instrument against the truth: in a guest whose nanoseconds are instructions, its
//! figure for a function must equal what the `exact` instrument counted.
//!
//! The same traffic runs twice, in two boots: once with the plugin and without a probe, once with
//! probes on all functions at once. The instrument's own cost is its own measurement; nothing here
//! is fitted.

// Also in what is no test itself.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use netplumb_engine::second_opinion::{SecondOpinion, spec_of, time_by};
use netplumb_engine::{GuestRun, Options, Plan, run_in_guests};
use netplumb_instruments::functions::correct::correct;
use netplumb_kernel::layers::LayerRules;
use netplumb_lab::vm::kernels::{KernelSource, KernelStore};
use netplumb_lab::vm::{agent, trial};
use netplumb_model::arch::Arch;
use netplumb_model::class::{Context, Softirq};
use netplumb_model::experiment::Experiment;
use netplumb_model::recording::{NodeId, Recording};
use netplumb_model::timing::{Filter, Mechanism, Step, TimingSpec};
use netplumb_sys::clock::ARM64_COUNTER;

/// How far a function may be off, instructions per call on average...
const BOUND_INSNS: f64 = 10.0;
/// ... or as a share of its time, whichever is more.
const BOUND_SHARE: f64 = 0.03;
/// The cost of kprobes differs between functions: calls in the place of a return have one
/// trampoline in common, and a cookie is found sooner or later. This share of the subtracted cost
/// may be wrong.
const BOUND_KPROBES: f64 = 0.1;
/// What a reading of arm64's counter may be off by: it ticks at 62.5 MHz in QEMU 7.2, once in as many
/// instructions, and always at the same place of calls that are the same.
const TICK_INSNS: f64 = 16.0;
/// The cost subtracted by that counter may be wrong by this much more: pairs of probes below net_rx_action take some
/// four instructions of 652 more than on the empty functions, and the calibration's doubt is 0.8, here twice.
const TICK_COST: f64 = (4.0 + 2.0 * 0.8) / 652.0;
/// Fewer functions in agreement prove too little, over both protocols.
const MIN_FUNCTIONS: usize = 50;

/// Functions that a packet meets over IPv4 and loopback.
const COMMON: &[&str] = &[
    "__x64_sys_sendto",
    "__arm64_sys_sendto",
    "__sys_sendto",
    "sock_sendmsg",
    "inet_sendmsg",
    "security_socket_sendmsg",
    "ip_output",
    "ip_finish_output2",
    "__dev_queue_xmit",
    "dev_hard_start_xmit",
    "loopback_xmit",
    "eth_type_trans",
    "netif_rx",
    "__netif_rx",
    "netif_skb_features",
    "validate_xmit_skb",
    "net_rx_action",
    "process_backlog",
    "__napi_poll",
    "__netif_receive_skb_one_core",
    "ip_rcv",
    "ip_local_deliver",
    "ip_protocol_deliver_rcu",
    "ip_local_deliver_finish",
    "ip_rcv_core",
    "ip_rcv_finish_core",
    "sock_def_readable",
    "__x64_sys_recvfrom",
    "__arm64_sys_recvfrom",
    "__sys_recvfrom",
    "inet_recvmsg",
    "sock_recvmsg",
    "sock_poll",
    "__alloc_skb",
    "kmem_cache_alloc_node",
    "kfree_skbmem",
    "__kfree_skb",
    "skb_release_data",
    "skb_release_head_state",
];
/// ... of UDP.
const UDP: &[&str] = &[
    "udp_sendmsg",
    "udp_send_skb",
    "ip_make_skb",
    "__ip_append_data",
    "__ip_make_skb",
    "sock_alloc_send_pskb",
    "alloc_skb_with_frags",
    "ip_generic_getfrag",
    "sk_dst_check",
    "ip_send_skb",
    "udp_rcv",
    "__udp4_lib_rcv",
    "udp_unicast_rcv_skb",
    "udp_queue_rcv_one_skb",
    "__udp_enqueue_schedule_skb",
    "udp_recvmsg",
    "__skb_recv_udp",
    "skb_consume_udp",
    "__skb_try_recv_from_queue",
    "udp_poll",
    "sock_wfree",
    "ipv4_pktinfo_prepare",
];
/// ... of TCP.
const TCP: &[&str] = &[
    "tcp_sendmsg",
    "tcp_sendmsg_locked",
    "tcp_stream_alloc_skb",
    "tcp_push",
    "__tcp_push_pending_frames",
    "tcp_write_xmit",
    "__tcp_transmit_skb",
    "__ip_queue_xmit",
    "ip_queue_xmit",
    "ip_local_out",
    "__ip_local_out",
    "tcp_v4_rcv",
    "tcp_v4_do_rcv",
    "tcp_rcv_established",
    "tcp_data_queue",
    "tcp_ack",
    "tcp_clean_rtx_queue",
    "tcp_recvmsg",
    "tcp_recvmsg_locked",
    "tcp_cleanup_rbuf",
    "tcp_rcv_space_adjust",
    "tcp_poll",
    "tcp_event_data_recv",
    "tcp_send_mss",
    "tcp_current_mss",
    "__tcp_select_window",
    "tcp_rearm_rto",
    "tcp_v4_send_check",
    "tcp_queue_rcv",
    "tcp_data_ready",
    "tcp_schedule_loss_probe",
    "release_sock",
    "lock_sock_nested",
    "tcp_release_cb",
    "tcp_rbtree_insert",
];

/// Check that corrected times of UDP's functions are the instructions they take.
#[test]
fn udp_times_are_instructions() {
    agree("udp", UDP, None);
}

/// Check that corrected times of TCP's functions are the instructions they take.
#[test]
fn tcp_times_are_instructions() {
    agree("tcp", TCP, None);
}

/// Check the same of arm64, whose counter ticks once in sixteen instructions there: by `fentry`, which
/// Debian's 6.12 has.
#[test]
fn arm64_times_are_instructions() {
    const KERNEL: &str = "debian:6.12:arm64";
    if let Err(why) = has_arm64(KERNEL) {
        return netplumb_testkit::skip(&why);
    }
    agree_on("udp", UDP, None, KERNEL);
}

/// Check that the cost of kprobe+kretprobe is known, too.
#[test]
fn times_by_kprobes_are_instructions() {
    agree("udp", UDP, Some(Mechanism::Kretprobe));
}

/// Check the same of kprobe.session, where the kernel has it.
#[test]
fn times_by_sessions_are_instructions() {
    agree("udp", UDP, Some(Mechanism::KprobeSession));
}

/// What a kernel without kprobe.session (before Linux 6.10) ends with.
const NO_SESSION: &str = "none of the given functions can be timed on this kernel";

fn agree(proto: &str, own: &[&str], mechanism: Option<Mechanism>) {
    agree_on(proto, own, mechanism, "debian");
}

fn agree_on(proto: &str, own: &[&str], mechanism: Option<Mechanism>, kernel: &str) {
    let Some((plan, options)) = setup_with(proto, kernel) else {
        return;
    };
    let mut recording = Recording::default();
    let run = GuestRun::exact(plan.clone());
    run_in_guests(&run, &options, &mut recording, &mut |_| Ok(()), &|_| ()).unwrap();
    let names: Vec<&str> = COMMON.iter().chain(own).copied().collect();
    let spec = TimingSpec { mechanism, ..spec_of(&names) };
    let opinion = match time_by(&plan, &options, spec) {
        // Debian's 6.1 is older than it. That, and no other error: the same functions are
        // timed by the other mechanisms.
        Err(error) if mechanism == Some(Mechanism::KprobeSession) => {
            let said = error.to_string();
            assert!(said.contains(NO_SESSION), "{said}");
            netplumb_testkit::tell(&format!("kprobe.session: {said}"));
            return;
        }
        opinion => opinion.unwrap(),
    };
    assert_counts_instructions(&opinion);
    for (name, why) in &opinion.attached.refused {
        println!("not timed: {name}: {why}");
    }
    for c in &opinion.attached.calibration {
        println!("{c:?}");
    }
    println!("nested: {} ns less", opinion.attached.nested_saving_ns);
    println!("{:?} attached in {} ns", opinion.attached.facts, opinion.attached.attach_ns);
    for window in &opinion.windows {
        println!("losses: {:?} ledger: {:?}", window.losses, window.ledger);
    }
    contexts_are_separate(&opinion);
    let rows = compare(&recording, &opinion);
    let by_kprobes = mechanism.is_some();
    let is_by_ticks = opinion.clock_source == ARM64_COUNTER;
    println!(
        "{:<30} {:>6} {:>6} {:>10} {:>10} {:>8} {:>10} {:>8} {:>7}",
        "function", "calls", "timed", "exact", "raw", "off by", "corrected", "off by", "%"
    );
    for row in &rows {
        println!(
            "{:<30} {:>6} {:>6} {:>10.2} {:>10.2} {:>8.2} {:>10.2} {:>8.2} {:>6.1}%{}",
            row.name,
            row.calls,
            row.timed_calls,
            row.exact,
            row.raw,
            row.raw - row.exact,
            row.corrected,
            row.corrected - row.exact,
            100.0 * (row.corrected - row.exact) / row.exact,
            if row.agrees(is_by_ticks, by_kprobes) { "" } else { "  !" },
        );
    }
    let agreed = rows.iter().filter(|r| r.agrees(is_by_ticks, by_kprobes)).count();
    println!("{agreed} of {} agree", rows.len());
    assert!(agreed >= MIN_FUNCTIONS, "only {agreed} functions agree");
    let apart: Vec<_> =
        rows.iter().filter(|r| !r.agrees(is_by_ticks, by_kprobes)).map(|r| r.name).collect();
    assert!(apart.is_empty(), "{apart:?} do not agree");
}

/// How often a function was called, in all contexts.
fn calls(opinion: &SecondOpinion, name: &str) -> u64 {
    let mut sum = 0;
    for window in &opinion.windows {
        for times in &window.functions {
            let node = &window.nodes[times.node as usize];
            if opinion.attached.functions[node.function as usize].name == name {
                sum += times.times.count;
            }
        }
    }
    sum
}

/// Check that filters select what they name, and nothing else: ports and addresses of both ends,
/// and the process, to which calls in softirqs don't belong.
#[test]
fn filters_keep_what_they_name() {
    let Some((plan, options)) = setup("udp") else {
        return;
    };
    let all = u64::from(plan.packets * plan.blocks);
    let address =
        |text: &str| Filter { address: Some(text.parse().unwrap()), ..Default::default() };
    let port = |port| Filter { port: Some(port), ..Default::default() };
    // The agent is the guest's first process.
    let pid = |pid| Filter { pid: Some(pid), ..Default::default() };
    // The filter, and how often udp_sendmsg() and udp_rcv() are to be seen.
    for (filter, sent, received) in [
        (port(40_002), all, all),
        (port(40_003), 0, 0),
        (address("127.0.0.1"), all, all),
        (address("127.0.0.9"), 0, 0),
        (pid(1), all, 0),
        (pid(2), 0, 0),
    ] {
        let spec = TimingSpec { filter: filter.clone(), ..spec_of(&["udp_sendmsg", "udp_rcv"]) };
        let opinion = time_by(&plan, &options, spec).unwrap();
        let seen = (calls(&opinion, "udp_sendmsg"), calls(&opinion, "udp_rcv"));
        assert_eq!(seen, (sent, received), "{filter:?}");
    }
}

/// Check that packets are traced one by one: as many as requested, each from the call that first
/// sees it, with the softirq that receives it on top, calls within their callers.
#[test]
fn packets_are_traced() {
    let Some((plan, options)) = setup("udp") else {
        return;
    };
    let names = ["udp_sendmsg", "ip_output", "ip_rcv", "udp_rcv"];
    let spec = TimingSpec {
        one_packet: 2,
        profile: None,
        events: None,
        spans: None,
        calls: None,
        ..spec_of(&names)
    };
    let opinion = time_by(&plan, &options, spec).unwrap();
    let steps: Vec<_> = opinion.windows.iter().flat_map(|w| &w.steps).collect();
    for step in &steps {
        println!("{step:?}");
    }
    for packet in 0..2 {
        let of: Vec<_> = steps.iter().filter(|s| s.packet == packet).collect();
        let step_names: Vec<_> = of.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(step_names, names);
        for pair in of.windows(2) {
            assert!(pair[0].begin_ns <= pair[1].begin_ns);
        }
        for inner in &of[1..] {
            let end = |s: &Step| s.begin_ns + s.duration_ns;
            assert!(end(inner) <= end(of[0]), "{inner:?}");
        }
        assert_eq!(of[0].context, Context::Task);
        assert_eq!(of[3].context, Context::Softirq(Softirq::NetRx));
        assert_eq!(of[0].thread, of[3].thread);
    }
    assert!(steps.iter().all(|s| s.packet < 2));
    assert!(opinion.windows.iter().all(|w| w.losses.is_empty()));
}

/// Over loopback the receiving softirq runs on top of the sender's system call. It is not one of
/// the sender's calls.
fn contexts_are_separate(opinion: &SecondOpinion) {
    let softirq = Context::Softirq(Softirq::NetRx);
    let mut seen = 0;
    for window in &opinion.windows {
        for times in &window.functions {
            let node = &window.nodes[times.node as usize];
            let name = &opinion.attached.functions[node.function as usize].name;
            if !["net_rx_action", "process_backlog", "ip_rcv"].contains(&name.as_str()) {
                continue;
            }
            seen += times.times.count;
            assert_eq!(node.context, softirq, "{name}");
            let mut above = node.parent;
            while let Some(id) = above {
                let parent = &window.nodes[id as usize];
                assert_eq!(parent.context, softirq, "above {name}");
                above = parent.parent;
            }
        }
    }
    assert!(seen > 0, "no packet was received");
}

/// One function, as both have it; costs are instructions per call.
struct ComparedFunction<'a> {
    name: &'a str,
    calls: u64,
    timed_calls: u64,
    exact: f64,
    raw: f64,
    corrected: f64,
}

impl ComparedFunction<'_> {
    /// Whether they agree, as well as that clock and mechanism allow.
    fn agrees(&self, is_by_ticks: bool, by_kprobes: bool) -> bool {
        let cost = (self.raw - self.corrected).abs();
        let bound = match (is_by_ticks, by_kprobes) {
            (true, false) => TICK_INSNS + cost * TICK_COST,
            (true, true) => TICK_INSNS.max(cost * BOUND_KPROBES),
            (false, true) => BOUND_INSNS.max(cost * BOUND_KPROBES),
            (false, false) => BOUND_INSNS.max(self.exact * BOUND_SHARE),
        };
        (self.corrected - self.exact).abs() <= bound
    }
}

/// A function as one of both has it.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    calls: u64,
    total: f64,
    corrected: f64,
}

/// The functions that both have, by size.
fn compare<'a>(recording: &'a Recording, opinion: &'a SecondOpinion) -> Vec<ComparedFunction<'a>> {
    let exact = inclusive(recording);
    let mut timed: BTreeMap<&str, Sum> = BTreeMap::new();
    for window in &opinion.windows {
        let corrected = correct(&opinion.attached, window);
        for (times, corrected) in window.functions.iter().zip(corrected) {
            let node = &window.nodes[times.node as usize];
            let name = &opinion.attached.functions[node.function as usize].name;
            let sum = timed.entry(name).or_default();
            sum.calls += times.times.count;
            // The time of a recursive call is part of the function's time already.
            let mut above = node.parent;
            let mut outermost = true;
            while let Some(id) = above {
                let parent = &window.nodes[id as usize];
                outermost &= parent.function != node.function;
                above = parent.parent;
            }
            if outermost {
                sum.total += times.times.total_ns as f64;
                sum.corrected += corrected.corrected_ns;
            }
        }
    }
    let mut rows: Vec<ComparedFunction> = timed
        .into_iter()
        .filter_map(|(name, timed)| {
            let exact = exact.get(name).filter(|c| c.calls > 0)?;
            let scale = opinion.insns_per_ns() / timed.calls as f64;
            Some(ComparedFunction {
                name,
                calls: exact.calls,
                timed_calls: timed.calls,
                exact: exact.total / exact.calls as f64,
                raw: timed.total * scale,
                corrected: timed.corrected * scale,
            })
        })
        .collect();
    rows.sort_by(|a, b| a.exact.total_cmp(&b.exact));
    rows
}

/// Calls of each function and the self cost of all that lies below them in the same
/// context: what interrupts it is not its own.
fn inclusive(recording: &Recording) -> BTreeMap<&str, Sum> {
    let mut functions: BTreeMap<&str, Sum> = BTreeMap::new();
    let function = |id: NodeId| recording.nodes[id as usize].function;
    let name = |id: NodeId| recording.functions[function(id) as usize].name.as_str();
    for cost in &recording.costs {
        functions.entry(name(cost.node)).or_default().calls += cost.calls;
        // Its cost is part of every function's that it lies under, once.
        let mut seen = HashSet::new();
        let mut at = Some(cost.node);
        while let Some(id) = at {
            if seen.insert(function(id)) {
                functions.entry(name(id)).or_default().total += cost.own as f64;
            }
            at = recording.nodes[id as usize].parent;
        }
    }
    functions
}

fn assert_counts_instructions(opinion: &SecondOpinion) {
    // "tsc-early" is the same counter, before the kernel has measured it at length.
    let source = &opinion.clock_source;
    assert!(
        source.starts_with("tsc") || source == ARM64_COUNTER,
        "{source} does not count instructions"
    );
    let clock = opinion.insns_per_ns();
    assert!((clock - 1.0).abs() < 0.01, "a nanosecond is {clock} instructions");
}

/// The packets to send, and how; none if it can't run here.
fn setup(proto: &str) -> Option<(Plan, Options)> {
    setup_with(proto, "debian")
}

fn setup_with(proto: &str, kernel: &str) -> Option<(Plan, Options)> {
    let cache = cache();
    if let Some(why) = cannot_run(&cache, kernel) {
        netplumb_testkit::skip(&why);
        return None;
    }
    let experiment = Experiment::parse(&format!(
        "name = \"truth\"\n\
         [knobs]\nproto = \"{proto}\"\nlink = \"lo\"\nkernel = \"{kernel}\"\nfamily = \"ipv4\"\nsize_bytes = 10\n"
    ))
    .unwrap();
    let plan = Plan {
        arms: experiment.arms(),
        packets: 200,
        warmup_packets: 200,
        blocks: 2,
        ..Plan::default()
    };
    let options = Options {
        cache,
        cache_bytes: netplumb_lab::vm::saved::MAX_BYTES,
        agent: Some(built(Arch::OWN)),
        quick: false,
        cold: false,
        jobs: 1,
        timeout: Duration::from_secs(120),
        layers: LayerRules::built_in(),
        cancel: Default::default(),
    };
    Some((plan, options))
}

/// Whether there are guests of this kernel of arm64, with the program for them beside this one, where it is
/// looked for.
fn has_arm64(kernel: &str) -> Result<(), String> {
    trial::find_qemu(Arch::Arm64).map_err(|e| e.to_string())?;
    let built = built(Arch::Arm64);
    if !built.is_file() {
        return Err(format!("no {}: make arm64", built.display()));
    }
    let beside = std::env::current_exe().unwrap().with_file_name(agent::file_name(Arch::Arm64));
    if !beside.exists() {
        std::os::unix::fs::symlink(&built, beside).unwrap();
    }
    let cache = cache();
    let store = KernelStore::new(&cache);
    if store.find(kernel).is_ok() {
        return Ok(());
    }
    let version = kernel.strip_prefix("debian:").map(str::to_owned);
    let added = store.add(&KernelSource::Debian(version), &mut |_| ());
    added.map(drop).map_err(|e| e.to_string())
}

fn cannot_run(cache: &Path, kernel: &str) -> Option<String> {
    if trial::find_qemu(Arch::OWN).is_err() {
        return Some("qemu-system-x86_64 is not installed".into());
    }
    KernelStore::new(cache).find(kernel).err().map(|e| e.to_string())
}

/// The program for guests of an architecture, which is beside the one under test.
fn built(arch: Arch) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_plumb")).with_file_name(agent::file_name(arch))
}

/// Where the kernels are, as the command has it.
fn cache() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    variable("PLUMB_CACHE")
        .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("netplumb")))
        .or_else(|| Some(variable("HOME")?.join(".cache/netplumb")))
        .unwrap_or_default()
}
