//! The `exact` instrument against another witness: fentry and fexit in a guest
//! whose nanoseconds are instructions.
//!
//! The same traffic runs twice, in two boots: once with the plugin and without a
//! probe, once the other way round. For each function the time from entry to exit
//! must be the inclusive instructions of the calling-context tree, plus the
//! probe's own cost between its two readings of the clock. That cost is one
//! unknown for all functions, whether they take 30 instructions or 1,400; see
//! netplumb_instruments::single for what it is made of.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use netplumb_engine::second_opinion::{SecondOpinion, time_functions};
use netplumb_engine::{GuestRun, Options, Plan, run_in_guests};
use netplumb_instruments::single::RCU_INSNS;
use netplumb_kernel::layers::LayerRules;
use netplumb_lab::vm::kernels::KernelStore;
use netplumb_lab::vm::{agent, trial};
use netplumb_model::arch::Arch;
use netplumb_model::experiment::Experiment;
use netplumb_model::recording::{NodeId, Recording, env};

/// How far a function may be off, instructions per call on average: a mean of 400 calls, a few of
/// them perhaps on a slower path in one of the two boots, by a clock that rounds to whole
/// nanoseconds.
const BOUND_INSNS: f64 = 0.5;
/// Fewer agreeing functions prove too little.
const MIN_FUNCTIONS: usize = 10;

/// Functions that a UDP packet meets over IPv4 and loopback, and the number of
/// their arguments: each is a register that the trampoline restores, with an
/// instruction of its own, between the readings. None of them lets softirqs run
/// while one is pending: the tree gives those to another context, a clock can't.
/// And nothing but packets makes the kernel call them: the timer also runs while
/// no window is open.
const FUNCTIONS: &[(&str, u32)] = &[
    // Sending, in the sender's system call.
    ("security_socket_sendmsg", 3),
    ("sk_dst_check", 2),
    ("sock_alloc_send_pskb", 6),
    ("alloc_skb_with_frags", 5),
    ("__alloc_skb", 4),
    ("ip_generic_getfrag", 6),
    ("__ip_make_skb", 4),
    ("dev_hard_start_xmit", 4),
    ("loopback_xmit", 2),
    ("eth_type_trans", 2),
    ("netif_skb_features", 1),
    // Receiving, in NET_RX.
    ("process_backlog", 2),
    ("__netif_receive_skb_one_core", 2),
    ("ip_rcv", 4),
    ("ip_local_deliver", 1),
    ("ip_protocol_deliver_rcu", 3),
    ("udp_rcv", 1),
    ("__udp4_lib_rcv", 3),
    ("udp_queue_rcv_one_skb", 2),
    ("__udp_enqueue_schedule_skb", 2),
    ("sock_def_readable", 1),
    // Receiving, in the receiver's system call.
    ("__x64_sys_recvfrom", 1),
    ("__sys_recvfrom", 6),
    ("inet_recvmsg", 4),
    ("udp_recvmsg", 5),
    ("__skb_recv_udp", 4),
    ("skb_consume_udp", 3),
    ("sock_poll", 2),
];

/// Those of them that only direct calls reach. In kernels with CONFIG_X86_KERNEL_IBT all others begin with ENDBR64, an
/// instruction that the trampoline passes over when it calls them (is_endbr() in arch/x86/net/bpf_jit_comp.c).
const NOT_BY_POINTER: [&str; 2] = ["udp_queue_rcv_one_skb", "__netif_receive_skb_one_core"];

/// A function as the tree has it, over all blocks.
#[derive(Debug, Clone, Copy, Default)]
struct Inclusive {
    calls: u64,
    insns: u64,
}

/// Check that fentry and fexit agree with the plugin.
#[test]
fn fexit_agrees_on_inclusive_cost() {
    let cache = cache();
    if let Some(why) = cannot_run(&cache) {
        netplumb_testkit::skip(&why);
        return;
    }
    let experiment = Experiment::parse(
        "name = \"second-opinion\"\n\
         [knobs]\nproto = \"udp\"\nlink = \"lo\"\nfamily = \"ipv4\"\nsize_bytes = 10\n",
    )
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

    let mut recording = Recording::default();
    let run = GuestRun::exact(plan.clone());
    run_in_guests(&run, &options, &mut recording, &mut |_| Ok(()), &|_| ()).unwrap();
    let names: Vec<&str> = FUNCTIONS.iter().map(|(name, _)| *name).collect();
    let opinion = time_functions(&plan, &options, &names).unwrap();
    // "tsc-early" is the same counter, before the kernel has measured it at length.
    let source = &opinion.clock_source;
    assert!(source.starts_with("tsc"), "{source} does not count instructions");
    let clock = opinion.insns_per_ns();
    assert!((clock - 1.0).abs() < 0.01, "a nanosecond is {clock} instructions");

    println!("clock: {clock:.6} instructions a nanosecond");
    for timed in &opinion.functions {
        if let Some(why) = &timed.error {
            println!("{}: not timed: {why}", timed.name);
        }
    }
    let rows = compare(&recording, &opinion);
    let mut left: Vec<f64> = rows.iter().map(|r| r.raw - r.known - r.exact).collect();
    left.sort_by(f64::total_cmp);
    assert!(left.len() >= MIN_FUNCTIONS, "only {} functions to compare", left.len());
    let probe = left[left.len() / 2];
    println!(
        "probe's own cost: {probe:.2} instructions, and one for each argument, and {RCU_INSNS} \
         less within an RCU read section"
    );
    println!(
        "{:<30} {:>6} {:>10} {:>10} {:>9} {:>6} {:>10} {:>8}",
        "function", "calls", "exact", "raw ns", "shortest", "probe", "corrected", "off by"
    );
    for row in &rows {
        println!(
            "{:<30} {:>6} {:>10.2} {:>10.2} {:>9} {:>6.0} {:>10.2} {:>8.2}",
            row.name,
            row.calls,
            row.exact,
            row.raw_ns,
            row.min_ns,
            row.known + probe,
            row.raw - row.known - probe,
            row.off_by(probe),
        );
    }
    for row in &rows {
        assert_eq!(row.calls, row.timed_calls, "calls of {}", row.name);
        let off_by = row.off_by(probe);
        assert!(off_by.abs() <= BOUND_INSNS, "{} is off by {off_by:.2}", row.name);
    }
}

/// One function, as both have it; costs are instructions per call.
struct TimedFunctionRow<'a> {
    name: &'a str,
    calls: u64,
    timed_calls: u64,
    exact: f64,
    raw_ns: f64,
    min_ns: u64,
    /// The time, as instructions.
    raw: f64,
    /// The probe's expected cost, relative to the others'.
    known: f64,
}

impl TimedFunctionRow<'_> {
    /// How far the clock and the tree are apart, after `probe`.
    fn off_by(&self, probe: f64) -> f64 {
        self.raw - self.known - probe - self.exact
    }
}

/// The functions that both have, by size.
fn compare<'a>(recording: &Recording, opinion: &'a SecondOpinion) -> Vec<TimedFunctionRow<'a>> {
    let exact = inclusive(recording);
    // Debian's 6.1 is built without it.
    let has_endbr = !recording.environment[env::KERNEL].starts_with("6.1.");
    let mut rows: Vec<TimedFunctionRow> = opinion
        .functions
        .iter()
        .zip(FUNCTIONS)
        .filter_map(|(timed, (_, arguments))| {
            let cost = exact.get(timed.name.as_str()).filter(|c| c.calls > 0)?;
            if timed.error.is_some() || timed.calls == 0 {
                return None;
            }
            let not_passed_over = has_endbr && NOT_BY_POINTER.contains(&timed.name.as_str());
            let in_rcu = timed.in_rcu as f64 / timed.calls as f64;
            let raw_ns = timed.total_ns as f64 / timed.calls as f64;
            Some(TimedFunctionRow {
                name: &timed.name,
                calls: cost.calls,
                timed_calls: timed.calls,
                exact: cost.insns as f64 / cost.calls as f64,
                raw_ns,
                min_ns: timed.min_ns,
                raw: raw_ns * opinion.insns_per_ns(),
                known: f64::from(*arguments) + f64::from(u8::from(not_passed_over))
                    - f64::from(RCU_INSNS) * in_rcu,
            })
        })
        .collect();
    rows.sort_by(|a, b| a.exact.total_cmp(&b.exact));
    rows
}

/// Calls of each function and the self cost of all that lies below them, whatever
/// the context and direction.
fn inclusive(recording: &Recording) -> BTreeMap<&str, Inclusive> {
    let mut own = vec![Inclusive::default(); recording.nodes.len()];
    for cost in &recording.costs {
        let node = &mut own[cost.node as usize];
        node.calls += cost.calls;
        node.insns += cost.own;
    }
    let mut functions: BTreeMap<&str, Inclusive> = BTreeMap::new();
    for (id, node) in own.iter().enumerate() {
        let function = |id: NodeId| recording.nodes[id as usize].function;
        let name = |id: NodeId| recording.functions[function(id) as usize].name.as_str();
        functions.entry(name(id as NodeId)).or_default().calls += node.calls;
        // Its cost is part of every function's that it lies under, once.
        let mut seen = HashSet::new();
        let mut at = Some(id as NodeId);
        while let Some(id) = at {
            if seen.insert(function(id)) {
                functions.entry(name(id)).or_default().insns += node.insns;
            }
            at = recording.nodes[id as usize].parent;
        }
    }
    functions
}

fn cannot_run(cache: &Path) -> Option<String> {
    if trial::find_qemu(Arch::OWN).is_err() {
        return Some("qemu-system-x86_64 is not installed".into());
    }
    KernelStore::new(cache).find("debian").err().map(|e| e.to_string())
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
