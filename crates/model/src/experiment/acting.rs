//! Which settings can have an effect: for every knob, the lab, link and load under which it can change how a packet is
//! processed. If a setting could not have an effect, a measurement without a difference is no evidence about it.
//!
//! Evidence from the kernel takes precedence: a function of [`proof`] that packets entered
//! proves that a setting had an effect.

use std::collections::{BTreeMap, BTreeSet};

use super::chains;
use super::hosts::link_of;
use super::knobs::Offload;
use super::nft::{Hook, Nft, Ruleset};
use super::nic::{Coalescing, Ends};
use super::qdisc::Qdisc;
use super::within::Within;
use crate::class::{Family, Link, Proto, words};
use crate::hosts::{Side, time_of};
use crate::recording::Arm;
use crate::topology::TopologySpec;

words! {
    /// How the packets of a block are sent.
    Load, "load",
    /// Each is sent when the previous one has arrived.
    OneAtATime = "one at a time",
    /// Without waiting.
    Stream = "stream",
}

/// An arm, and the conditions that its packets are sent under.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// The arm whose settings are checked.
    pub arm: &'a Arm,
    /// How its packets are sent.
    pub load: Load,
    /// CPUs of the machine.
    pub cpus: usize,
}

/// A setting without effect.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Idle {
    /// Its name: "gro", "mtu", "net.ipv4.tcp_sack".
    pub knob: String,
    /// Why it could not act, in words for the user.
    pub why: String,
}

impl std::fmt::Display for Idle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} could not act: {}", self.knob, self.why)
    }
}

/// Whether a setting can have an effect, or why not.
type Can = Result<(), String>;
/// For settings with a common prefix, the rest of the key is given, too.
type Rule = fn(&Scene<'_>, &str) -> Can;

/// By the key in an arm; a key that ends in a dot is a prefix. All others change the path itself
/// (kernel, module, mitigations, bridge).
const RULES: &[(&str, Rule)] = &[
    ("channels.", |scene, _| among_cpus(scene)),
    ("coalesce.", coalesce),
    ("gro_flush_timeout", |scene, _| polled(scene)),
    ("mtu_bytes", |scene, _| mtu(scene)),
    ("napi_defer_hard_irqs", |scene, _| deferral(scene)),
    ("nft", |scene, _| nft(scene)),
    ("offload.", offload),
    ("qdisc", |scene, _| qdisc(scene)),
    ("queues", |scene, _| queues(scene)),
    ("rings.", |scene, _| match scene.alone() {
        true => Err(format!("{ONE}, any ring has room")),
        false => Ok(()),
    }),
    ("sysctl.", sysctl),
    ("xps_cpus", |scene, _| among_cpus(scene)),
];

/// The rules that need only the arm and its machine. They also apply to a command, whose packets are unknown.
const OF_ANY_LOAD: &[&str] = &["channels.", "coalesce.", "napi_defer_hard_irqs", "xps_cpus"];

/// Kernel functions that are called only if a setting has an effect.
const PROOFS: &[(&str, &[&str])] = &[
    ("mtu_bytes", &["ip_do_fragment", "ip6_fragment"]),
    ("nft", &["nft_do_chain"]),
    ("offload.gro", &["skb_gro_receive", "skb_gro_receive_list"]),
    ("offload.tx-checksum", &["skb_checksum_help"]),
];

/// The settings of an arm, each by one key, without the keys for the place of nftables rules
/// and qdiscs.
pub fn settings(arm: &Arm) -> BTreeSet<String> {
    let keys = arm.knobs.keys().map(|key| setting(key));
    keys.filter(|key| RULES.iter().any(|rule| covers(rule.0, key))).map(String::from).collect()
}

/// The setting that a key of an arm belongs to.
pub fn setting(key: &str) -> &str {
    match key {
        "nft_in" => "nft",
        "qdisc_in" => "qdisc",
        _ if key.starts_with("nft.") => "nft",
        _ => key,
    }
}

/// The name of a setting in a sentence.
pub fn called(key: &str) -> &str {
    match key {
        "mtu_bytes" => "mtu",
        _ => (key.strip_prefix("offload."))
            .or_else(|| key.strip_prefix("sysctl."))
            .or_else(|| key.strip_prefix("coalesce."))
            .unwrap_or(key),
    }
}

fn covers(rule: &str, key: &str) -> bool {
    match rule.ends_with('.') {
        true => key.starts_with(rule),
        false => key == rule,
    }
}

/// Whether a setting of an arm can have an effect.
///
/// # Errors
/// It can't: the reason, as part of a sentence.
pub fn can_act(key: &str, scene: &Scene<'_>) -> Result<(), String> {
    let is_known = !matches!(scene.arm.proto, Proto::Command | Proto::Work);
    if !is_known && !OF_ANY_LOAD.iter().any(|rule| covers(rule, key)) {
        return Ok(());
    }
    let rule = RULES.iter().find(|rule| covers(rule.0, key));
    rule.map_or(Ok(()), |(prefix, rule)| rule(scene, key.strip_prefix(prefix).unwrap_or_default()))
}

/// Kernel functions that packets enter only if a setting has an effect.
pub fn proof(key: &str) -> &'static [&'static str] {
    let found = PROOFS.iter().find(|(setting, _)| *setting == key);
    found.map_or(&[], |(_, functions)| functions)
}

/// The settings of an arm without effect, each with the reason. `entered` are all functions
/// that its packets entered; without it, only what is known beforehand.
pub fn idle(scene: &Scene<'_>, entered: Option<&BTreeSet<&str>>) -> BTreeMap<String, String> {
    let mut idle = BTreeMap::new();
    for key in settings(scene.arm) {
        let acted = entered.map(|all| proof(&key).iter().any(|function| all.contains(function)));
        let why = match (can_act(&key, scene), acted) {
            (_, Some(true)) => continue,
            (Err(why), _) => why,
            // Rules that filter are in one function, which no packet entered.
            (Ok(()), Some(false)) if key == "nft" && filters_only(scene) => {
                "no packet reached its chains".into()
            }
            (Ok(()), _) => continue,
        };
        idle.insert(key, why);
    }
    if !idle.contains_key("nft") {
        idle.extend(of_rules(scene, entered));
    }
    idle
}

/// The parts of an arm's rules that evaluated no packet while others did.
fn of_rules(scene: &Scene<'_>, entered: Option<&BTreeSet<&str>>) -> BTreeMap<String, String> {
    match Ruleset::from_arm(scene.arm) {
        Some(Ruleset { nft: Nft::Text { rules, .. }, within }) => {
            of_text(scene, &rules, &within, entered)
        }
        _ => BTreeMap::new(),
    }
}

/// The same of the rules of an arm's topology, each with its namespace.
pub fn idle_in_topology(
    scene: &Scene<'_>,
    topology: &TopologySpec,
    entered: Option<&BTreeSet<&str>>,
) -> BTreeMap<String, String> {
    let with_rules = topology.namespaces.iter().filter(|namespace| !namespace.nft.is_empty());
    with_rules
        .flat_map(|namespace| {
            let within = Within::Named(namespace.name.clone());
            let idle = of_text(scene, &namespace.nft, &within, entered).into_iter();
            idle.map(|(what, why)| (format!("{what} in {}", namespace.name), why))
        })
        .collect()
}

/// The parts of some rules that evaluated no packet: chains, and states of connections.
fn of_text(
    scene: &Scene<'_>,
    rules: &str,
    within: &Within,
    entered: Option<&BTreeSet<&str>>,
) -> BTreeMap<String, String> {
    let mut idle = BTreeMap::new();
    if matches!(scene.arm.proto, Proto::Command | Proto::Work) {
        return idle;
    }
    let was_entered =
        |functions: &[&str]| entered.map(|all| functions.iter().any(|f| all.contains(f)));
    let passed = passed(scene, within);
    for chain in chains::base_chains(rules) {
        let hook = chain.hook.parse::<Hook>().ok();
        let functions = chain.functions();
        let why = match was_entered(functions) {
            // One function serves all hooks.
            Some(true) | None if hook.is_some_and(|hook| !passed.contains(&hook)) => {
                format!("no packet passes {}", chain.hook)
            }
            Some(true) => continue,
            _ if chain.kind == "nat" && !scene.arm.is_on("new_flows") => {
                "NAT rules are evaluated for a flow's first packet, which was sent before \
                                         the measurement; all packets are translated as they say"
                    .into()
            }
            Some(false) if !functions.is_empty() => "no packet reached it".into(),
            _ => continue,
        };
        idle.insert(format!("nft chain {}", chain.name), why);
    }
    // The kernel calls a flow established if it saw packets in both directions (nf_conntrack_in).
    if !scene.has_answers() && chains::has_word(rules, "established") {
        let why = "nothing answers UDP here, so the state of all its packets is new; use --replies (replies), tcp, or raw (ping)";
        idle.insert("nft ct state established".into(), why.into());
    }
    idle
}

const ONE: &str = "one packet at a time";

impl Scene<'_> {
    fn level(&self, key: &str) -> Option<&str> {
        self.arm.knobs.get(key).map(String::as_str)
    }

    fn alone(&self) -> bool {
        self.load == Load::OneAtATime
    }

    /// Whether both ends have such a NIC.
    fn receives_by(&self, link: Link) -> bool {
        [Side::Tx, Side::Rx].iter().all(|side| link_of(self.arm, *side) == link)
    }

    /// Headers below the payload: 20 or 40 bytes of IP, 8 of UDP or ICMP, 32 of TCP with
    /// its timestamps.
    fn headers(&self) -> u32 {
        let ip = match self.arm.family {
            Family::V4 => 20,
            Family::V6 => 40,
        };
        let above = match self.arm.proto {
            Proto::Tcp => 32,
            Proto::Raw | Proto::Udp | Proto::Command | Proto::Work => 8,
        };
        ip + above
    }

    /// The size of the packet without segmentation.
    fn packet_bytes(&self) -> u32 {
        self.arm.size_bytes + self.headers()
    }

    /// The default MTU of the device.
    fn own_mtu(&self) -> u32 {
        match self.arm.link {
            Link::Lo => 65_536,
            _ => 1_500,
        }
    }

    fn mtu(&self) -> u32 {
        let set = self.level("mtu_bytes").and_then(|mtu| mtu.parse().ok());
        set.unwrap_or(self.own_mtu())
    }

    /// Whether TCP has more to send at once than one segment holds. Small sends of a stream
    /// are coalesced.
    fn has_segments(&self) -> bool {
        self.arm.proto == Proto::Tcp && (!self.alone() || self.packet_bytes() > self.mtu())
    }

    fn in_one_segment(&self) -> String {
        let bytes = self.arm.size_bytes;
        format!("{bytes} bytes fit in one segment")
    }

    /// Whether the sender's end receives, or the receiver's sends: answers to echoes, and
    /// acknowledgements.
    fn has_answers(&self) -> bool {
        self.arm.proto != Proto::Udp || self.arm.is_on("replies")
    }
}

fn offload(scene: &Scene<'_>, name: &str) -> Can {
    let Ok(offload) = name.parse::<Offload>() else {
        return Ok(());
    };
    let proto = scene.arm.proto;
    let virtual_link = !scene.arm.link.has_nics();
    match offload {
        Offload::Gro => match proto {
            _ if scene.arm.link == Link::Lo => Err("lo doesn't use GRO".into()),
            Proto::Raw => Err("GRO doesn't merge ICMP".into()),
            Proto::Tcp if scene.has_segments() => Ok(()),
            _ if scene.alone() => Err(format!("{ONE}, nothing to merge")),
            Proto::Udp => Err("UDP GRO needs the socket option UDP_GRO, which is not set".into()),
            _ => Ok(()),
        },
        Offload::Tso | Offload::Gso => match proto {
            Proto::Tcp if scene.has_segments() => Ok(()),
            Proto::Tcp => Err(scene.in_one_segment()),
            _ if offload == Offload::Tso => Err(format!("only for TCP, and {proto} is sent")),
            Proto::Udp => {
                Err("UDP GSO needs the socket option UDP_SEGMENT, which is not set".into())
            }
            _ => Err(format!("GSO doesn't segment {proto}")),
        },
        // ip_append_data takes one piece of memory up to about four pages
        // (SKB_MAX_ALLOC, include/linux/skbuff.h), and TCP always takes several.
        Offload::Sg if proto != Proto::Tcp && scene.packet_bytes().min(scene.mtu()) < 4_096 => {
            Err("each packet is in one piece of memory".into())
        }
        Offload::TxChecksum if proto == Proto::Raw => {
            Err("the sender of an ICMP echo computes its checksum itself".into())
        }
        Offload::RxChecksum if proto == Proto::Raw => {
            Err("devices verify only UDP and TCP, and ICMP is sent".into())
        }
        // e1000_receive_iov (hw/net/e1000.c) sets no bit of a checksum in the descriptor.
        Offload::RxChecksum if scene.receives_by(Link::E1000) => {
            Err("QEMU's e1000 verifies no checksums, UDP and TCP do".into())
        }
        Offload::RxChecksum if virtual_link => Err(match scene.level("offload.tx-checksum") {
            // No device checks it: udp_rcv and tcp_v4_rcv do, however it is set.
            Some("off") => format!("{} verifies no checksums, UDP and TCP do", scene.arm.link),
            _ => format!(
                "packets over {} arrive with CHECKSUM_PARTIAL and are not verified",
                scene.arm.link
            ),
        }),
        Offload::Sg | Offload::TxChecksum | Offload::RxChecksum => Ok(()),
    }
}

/// QEMU's e1000 and e1000e let at least so much time pass between interrupts (set_interrupt_cause in
/// hw/net/e1000.c, E1000E_MIN_XITR in hw/net/e1000e_core.c: 500 units of 256 ns).
const LEAST_USECS: u32 = 128;

fn coalesce(scene: &Scene<'_>, setting: &str) -> Can {
    let Some(usecs) = scene.level(&format!("coalesce.{setting}")) else {
        return Ok(());
    };
    let (true, Ok(usecs)) = (setting == Coalescing::RxUsecs.as_str(), usecs.parse::<u32>()) else {
        return Ok(());
    };
    let ends = Ends::from_arm(scene.arm, "coalesce_in");
    let sides = [Side::Tx, Side::Rx].into_iter().filter(|side| ends.has(*side));
    let links: Vec<Link> = sides.map(|side| link_of(scene.arm, side)).collect();
    let emulated = |link: &Link| [Link::E1000, Link::E1000e].contains(link);
    if !links.iter().all(emulated) {
        return Ok(());
    }
    if scene.level("throttle") == Some("off") {
        return Err("with throttle off QEMU's e1000 delays no interrupt".into());
    }
    // With MSI-X, e1000_intr_msix_rx() in drivers/net/ethernet/intel/e1000e/netdev.c overwrites the interval of receive
    // interrupts with the last target of its dynamic mode; the other interrupts keep their setting.
    let modes = scene.level("module_options.e1000e").unwrap_or_default();
    let is_msix = !["IntMode=0", "IntMode=1"].iter().any(|mode| modes.contains(mode));
    if links.contains(&Link::E1000e) && is_msix {
        return Ok(());
    }
    // e1000_set_coalesce() in drivers/net/ethernet/intel/e1000/e1000_ethtool.c: modes of the driver, no times.
    if [1, 3, 4].contains(&usecs) {
        return Ok(());
    }
    if usecs < LEAST_USECS {
        return Err(format!(
            "QEMU's NIC lets {LEAST_USECS} us pass between interrupts, so {usecs} is as good as {LEAST_USECS}; for \
             less use throttle = \"off\" (e1000) and gro_flush_timeout with napi_defer_hard_irqs = 1"
        ));
    }
    // e1000's driver sets TADV of TxAbsIntDelay, which is 32 us by default, and QEMU takes the least
    // delay that anything asks for (mit_update_delay): then its minimum.
    let options = scene.level("module_options.e1000").unwrap_or_default();
    let of_sender = |option: &str| options.split_whitespace().any(|word| word == option);
    let is_free = of_sender("TxIntDelay=0") || of_sender("TxAbsIntDelay=0");
    let all_free = is_free && {
        let with_options = Ends::from_arm(scene.arm, "module_options_in");
        [Side::Tx, Side::Rx].into_iter().all(|side| !ends.has(side) || with_options.has(side))
    };
    match usecs > LEAST_USECS && links.contains(&Link::E1000) && !all_free {
        true => Err(format!(
            "interrupts that come with packets it sent, like a receiver's acknowledgements, don't wait so long: QEMU's \
             e1000 takes the least of all delays, and its driver sets 32 us for those, so {usecs} is as good as \
             {LEAST_USECS} there without module_options = {{ e1000 = \"TxIntDelay=0 TxAbsIntDelay=0\" }}"
        )),
        false => Ok(()),
    }
}

/// The note on a veth without GRO: it has NAPI with it (veth_set_features, drivers/net/veth.c), and no GRO by default.
pub const NO_NAPI: &str = "has no NAPI without GRO; turn offload gro on";

fn polled(scene: &Scene<'_>) -> Can {
    match scene.arm.link == Link::Veth && scene.level("offload.gro") != Some("on") {
        true => Err(format!("{} {NO_NAPI}", scene.arm.link)),
        false => Ok(()),
    }
}

fn deferral(scene: &Scene<'_>) -> Can {
    polled(scene)?;
    let polls = scene.level("napi_defer_hard_irqs").unwrap_or("0");
    let timeout = scene.level("gro_flush_timeout").unwrap_or("0");
    match polls != "0" && time_of(timeout) == Ok(0) {
        // napi_complete_done (net/core/dev.c) defers an interrupt by that time.
        true => Err("it defers interrupts by gro_flush_timeout, which is 0".into()),
        false => Ok(()),
    }
}

fn mtu(scene: &Scene<'_>) -> Can {
    // Drivers of NICs choose by it how to receive, as in e1000_change_mtu.
    if scene.arm.link.has_nics() {
        return Ok(());
    }
    let streams = scene.arm.proto == Proto::Tcp && !scene.alone();
    let (bytes, least) = (scene.packet_bytes(), scene.mtu().min(scene.own_mtu()));
    match streams || bytes > least {
        true => Ok(()),
        false => Err(format!("packets of {bytes} bytes with headers are not fragmented")),
    }
}

/// Settings that share the work of a device among CPUs.
fn among_cpus(scene: &Scene<'_>) -> Can {
    match scene.cpus {
        1 => Err("there is only one CPU to do the work".into()),
        _ => Ok(()),
    }
}

fn queues(scene: &Scene<'_>) -> Can {
    match scene.cpus {
        1 => Err("veth selects the queue by CPU, and there is only one CPU".into()),
        _ => Ok(()),
    }
}

/// Qdiscs that only reorder a queue, or drop from it.
const ORDER_A_QUEUE: &[&str] = &[
    "bfifo",
    "cake",
    "choke",
    "codel",
    "drr",
    "fq",
    "fq_codel",
    "fq_pie",
    "mq",
    "multiq",
    "noqueue",
    "pfifo",
    "pfifo_fast",
    "pfifo_head_drop",
    "pie",
    "prio",
    "red",
    "sfb",
    "sfq",
];
/// Options with which such a qdisc delays packets nevertheless.
const HOLD_BACK: &[&str] = &["bandwidth", "maxrate", "rate"];

fn qdisc(scene: &Scene<'_>) -> Can {
    let Some(qdisc) = Qdisc::from_arm(scene.arm) else {
        return Ok(());
    };
    let (kind, two_ends) = (qdisc.kind(), scene.arm.link != Link::Lo);
    if qdisc.within == Within::Rx && two_ends && !scene.has_answers() {
        return Err("the receiver of UDP sends no packets".into());
    }
    let holds = qdisc.words().iter().any(|w| HOLD_BACK.contains(&w.as_str()));
    match scene.alone() && ORDER_A_QUEUE.contains(&kind) && !holds {
        true => Err(format!("{ONE}, no queue for {kind} to schedule")),
        false => Ok(()),
    }
}

fn nft(scene: &Scene<'_>) -> Can {
    let Some(ruleset) = Ruleset::from_arm(scene.arm) else {
        return Ok(());
    };
    let hooks = match &ruleset.nft {
        Nft::NeverMatching(never) => vec![never.hook],
        Nft::File(_) => return Ok(()),
        Nft::Text { rules, .. } => match hooks(rules) {
            Some(hooks) => hooks,
            None => return Ok(()),
        },
    };
    if hooks.is_empty() {
        return Err("it has no base chain, so no packet reaches it".into());
    }
    let passed = passed(scene, &ruleset.within);
    if hooks.iter().any(|hook| passed.contains(hook)) {
        return Ok(());
    }
    let names: Vec<&str> = hooks.iter().map(|hook| hook.as_str()).collect();
    let whose = match &ruleset.within {
        Within::Tx => "at the sender".into(),
        Within::Rx => "at the receiver".into(),
        Within::Both => "at either end".into(),
        Within::Named(name) => format!("in the {name}"),
    };
    Err(format!("no packet passes {} {whose}", names.join(" or ")))
}

/// Whether each packet that passes a hook of the rules reaches them. NAT chains see only the
/// first packet of a flow; flow tables likewise.
fn filters_only(scene: &Scene<'_>) -> bool {
    match Ruleset::from_arm(scene.arm).map(|ruleset| ruleset.nft) {
        Some(Nft::NeverMatching(_)) => true,
        Some(Nft::Text { rules, .. }) => {
            let mut words = rules.split(|c: char| !c.is_alphanumeric());
            !words.any(|word| ["nat", "flowtable", "synproxy"].contains(&word))
        }
        Some(Nft::File(_)) | None => false,
    }
}

/// The hooks that packets of an arm pass somewhere.
fn passed(scene: &Scene<'_>, within: &Within) -> BTreeSet<Hook> {
    const OUT: [Hook; 2] = [Hook::Output, Hook::Postrouting];
    const IN: [Hook; 2] = [Hook::Prerouting, Hook::Input];
    let both_ways = scene.has_answers() || scene.arm.link == Link::Lo;
    let hooks: &[&[Hook]] = match within {
        // A namespace of a topology of the user's may be any part of the path.
        Within::Named(name) if !["router", "bridge"].contains(&name.as_str()) => &[Hook::ALL],
        Within::Named(_) => &[&[Hook::Prerouting, Hook::Forward, Hook::Postrouting]],
        Within::Tx if !both_ways => &[&OUT],
        Within::Rx if !both_ways => &[&IN],
        Within::Tx | Within::Rx | Within::Both => &[&OUT, &IN],
    };
    hooks.iter().flat_map(|hooks| hooks.iter().copied()).collect()
}

/// The hooks of the base chains in a ruleset; none if some are unknown: a device hook.
fn hooks(rules: &str) -> Option<Vec<Hook>> {
    let lines = rules.lines().filter(|l| !l.trim_start().starts_with('#'));
    let all: Vec<&str> = lines
        .flat_map(|l| l.split(|c: char| c.is_whitespace() || "{};".contains(c)))
        .filter(|word| !word.is_empty())
        .collect();
    let named = all.windows(2).filter(|pair| pair[0] == "hook");
    named.map(|pair| pair[1].parse().ok()).collect()
}

/// Sysctls by prefix, and what each needs to have an effect. The kernel describes them in
/// Documentation/networking/ip-sysctl.rst.
const SYSCTLS: &[(&str, Needs)] = &[
    ("net.core.netdev_max_backlog", Needs::Queue),
    ("net.core.somaxconn", Needs::Connecting),
    ("net.ipv4.icmp_", Needs::Protocol(Proto::Raw)),
    ("net.ipv4.ip_local_port_range", Needs::Connecting),
    ("net.ipv4.ipfrag_", Needs::Fragments),
    ("net.ipv4.tcp_abort_on_overflow", Needs::Connecting),
    ("net.ipv4.tcp_dsack", Needs::Loss),
    ("net.ipv4.tcp_fastopen", Needs::Connecting),
    ("net.ipv4.tcp_fin_timeout", Needs::Connecting),
    ("net.ipv4.tcp_frto", Needs::Loss),
    ("net.ipv4.tcp_max_orphans", Needs::Connecting),
    ("net.ipv4.tcp_max_reordering", Needs::Loss),
    ("net.ipv4.tcp_max_syn_backlog", Needs::Connecting),
    ("net.ipv4.tcp_max_tw_buckets", Needs::Connecting),
    ("net.ipv4.tcp_orphan_retries", Needs::Connecting),
    ("net.ipv4.tcp_recovery", Needs::Loss),
    ("net.ipv4.tcp_reordering", Needs::Loss),
    ("net.ipv4.tcp_retrans_collapse", Needs::Loss),
    ("net.ipv4.tcp_retries", Needs::Loss),
    ("net.ipv4.tcp_syn_retries", Needs::Connecting),
    ("net.ipv4.tcp_synack_retries", Needs::Connecting),
    ("net.ipv4.tcp_syncookies", Needs::Connecting),
    ("net.ipv4.tcp_tw_reuse", Needs::Connecting),
    ("net.ipv4.tcp_", Needs::Protocol(Proto::Tcp)),
    ("net.ipv4.udp_", Needs::Protocol(Proto::Udp)),
    ("net.ipv6.ip6frag_", Needs::Fragments),
    ("net.ipv6.", Needs::V6),
];

#[derive(Debug, Clone, Copy)]
enum Needs {
    /// More than one packet at a time.
    Queue,
    /// Packet loss.
    Loss,
    /// A connection that is opened or closed during the measurement.
    Connecting,
    /// A packet that is larger than the MTU.
    Fragments,
    /// Packets of this protocol.
    Protocol(Proto),
    /// IPv6.
    V6,
}

fn sysctl(scene: &Scene<'_>, key: &str) -> Can {
    let fitting = SYSCTLS.iter().filter(|(name, _)| key.starts_with(name));
    let needs: Vec<Needs> = fitting.map(|(_, needs)| *needs).collect();
    // Another protocol is the first reason, whatever else it needs.
    let of_protocol = |needs: &&Needs| matches!(needs, Needs::Protocol(_) | Needs::V6);
    let first = needs.iter().filter(of_protocol);
    let rest = needs.iter().filter(|needs| !of_protocol(needs));
    for needs in first.chain(rest) {
        unless(scene, *needs)?;
    }
    Ok(())
}

fn unless(scene: &Scene<'_>, needs: Needs) -> Can {
    let proto = scene.arm.proto;
    // A command's packets are its own.
    if proto == Proto::Command {
        return Ok(());
    }
    // A qdisc or nftables rules may lose packets.
    let lossless = scene.alone() && scene.level("qdisc").is_none() && scene.level("nft").is_none();
    let (idle, why) = match needs {
        Needs::Queue => (scene.alone(), format!("{ONE}, no queue")),
        Needs::Loss => (lossless, "no packets are lost".to_string()),
        Needs::Connecting => (true, "connections are established before the measurement".into()),
        Needs::Fragments => (
            scene.packet_bytes() <= scene.mtu() || proto == Proto::Tcp,
            "no packets are fragmented".into(),
        ),
        Needs::Protocol(wanted) if wanted == Proto::Raw => {
            (proto != wanted, format!("only for ICMP, and {proto} is sent"))
        }
        Needs::Protocol(wanted) => (
            proto != wanted,
            format!("only for {}, and {proto} is sent", wanted.as_str().to_uppercase()),
        ),
        Needs::V6 => (
            scene.arm.family != Family::V6,
            format!("only for IPv6, and {} is sent", scene.arm.family),
        ),
    };
    match idle {
        true => Err(why),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
