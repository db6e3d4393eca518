//! Settings of NICs: by ethtool, by sysfs, and by options of their drivers' modules.
//!
//! `netplumb_lab`'s `netns/nic.rs` makes them in guests and namespaces, by `ethnl`, `ethtool` and `napi` of
//! `netplumb_sys`; `acting.rs` here lists what has no effect on emulated NICs.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::class::words;
use crate::hosts::{Side, time_of};
use crate::recording::Arm;

words! {
    /// When a NIC raises an interrupt, as in `ethtool -C`. What adapts comes first, since drivers refuse or ignore
    /// the rest while they adapt it themselves.
    Coalescing, "coalescing setting",
    /// Whether the driver adapts the delay of received packets to their rate.
    AdaptiveRx = "adaptive-rx",
    /// The same for sent packets.
    AdaptiveTx = "adaptive-tx",
    /// Microseconds from a received packet to the interrupt.
    RxUsecs = "rx-usecs",
    /// Received packets before the interrupt.
    RxFrames = "rx-frames",
    /// Microseconds from a sent packet to the interrupt.
    TxUsecs = "tx-usecs",
    /// Sent packets before the interrupt.
    TxFrames = "tx-frames",
}

impl Coalescing {
    /// Those that are `on` or `off`.
    pub const SWITCHES: &'static [&'static str] = &["adaptive-rx", "adaptive-tx"];

    /// Whether it is `on` or `off`, and no number.
    pub fn is_switch(self) -> bool {
        Coalescing::SWITCHES.contains(&self.as_str())
    }

    /// A level as in `ethtool -C`: `on` or `off`, or a number.
    pub fn level(self, number: u32) -> String {
        match (self.is_switch(), number) {
            (true, 0) => "off".into(),
            (true, _) => "on".into(),
            (false, number) => number.to_string(),
        }
    }
}

words! {
    /// A ring of a NIC, as in `ethtool -G`.
    Ring, "ring",
    /// Of received packets.
    Rx = "rx",
    /// Of packets to send.
    Tx = "tx",
}

words! {
    /// Queues of a NIC that are in use, as in `ethtool -L`.
    Channel, "channel",
    /// Queues that receive.
    Rx = "rx",
    /// Queues that send.
    Tx = "tx",
    /// Queues that do both.
    Combined = "combined",
}

words! {
    /// Which CPUs work for a queue: a file of /sys/class/net/DEV/queues/QUEUE.
    Steering, "setting of queues",
    /// Those that go on with packets that a queue received (receive packet steering).
    Rps = "rps_cpus",
    /// Those that send by a queue (transmit packet steering).
    Xps = "xps_cpus",
}

impl Steering {
    /// The prefix of its queues' names.
    pub fn queues(self) -> &'static str {
        match self {
            Steering::Rps => "rx-",
            Steering::Xps => "tx-",
        }
    }
}

words! {
    /// The ends whose NICs have a setting.
    Ends, "host",
    /// The sender's.
    Tx = "tx",
    /// The receiver's.
    Rx = "rx",
    /// All of them.
    Both = "both",
}

impl Ends {
    /// Whether this end is one of them.
    pub fn has(self, side: Side) -> bool {
        match self {
            Ends::Tx => side == Side::Tx,
            Ends::Rx => side == Side::Rx,
            Ends::Both => true,
        }
    }

    /// The ends that a knob of an arm applies to: all by default.
    pub fn from_arm(arm: &Arm, knob: &str) -> Ends {
        arm.read(knob).unwrap_or(Ends::Both)
    }
}

/// How a NIC is polled: the files of /sys/class/net/DEV.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Polling {
    /// `gro_flush_timeout`.
    pub gro_flush_timeout_ns: Option<u64>,
    /// `napi_defer_hard_irqs`.
    pub napi_defer_hard_irqs: Option<u32>,
    /// `threaded`.
    pub threaded: Option<bool>,
}

/// Settings of NICs that a running system can change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicSettings {
    /// Features by the kernel's names, as in `ethtool -K`.
    pub features: BTreeMap<String, bool>,
    /// Coalescing.
    pub coalesce: BTreeMap<Coalescing, u32>,
    /// Entries of rings.
    pub rings: BTreeMap<Ring, u32>,
    /// How many queues are in use.
    pub channels: BTreeMap<Channel, u32>,
    /// The CPUs of all queues of a kind, as a list.
    pub steering: BTreeMap<Steering, String>,
    /// How they are polled.
    pub polling: Polling,
}

impl NicSettings {
    /// The settings of one end of an arm.
    pub fn from_arm(arm: &Arm, side: Side) -> NicSettings {
        let is_there = |knob: &str| Ends::from_arm(arm, knob).has(side);
        let mut settings = NicSettings::default();
        // Levels have been checked.
        if is_there("feature_in") {
            let all = arm.table("feature");
            settings.features = all.map(|(name, on)| (name.into(), on == "on")).collect();
        }
        if is_there("coalesce_in") {
            let all = arm.table("coalesce");
            settings.coalesce =
                all.filter_map(|(name, n)| Some((name.parse().ok()?, number_of(n)?))).collect();
        }
        if is_there("rings_in") {
            let all = arm.table("rings");
            settings.rings =
                all.filter_map(|(name, n)| Some((name.parse().ok()?, n.parse().ok()?))).collect();
        }
        if is_there("steering_in") {
            let all = arm.table("channels");
            settings.channels =
                all.filter_map(|(name, n)| Some((name.parse().ok()?, n.parse().ok()?))).collect();
            let set = |which: &Steering| Some((*which, arm.knobs.get(which.as_str())?.clone()));
            settings.steering = Steering::ALL.iter().filter_map(set).collect();
        }
        if is_there("napi_in") {
            let set = |knob: &str| arm.knobs.get(knob);
            settings.polling = Polling {
                gro_flush_timeout_ns: set("gro_flush_timeout").and_then(|time| time_of(time).ok()),
                napi_defer_hard_irqs: set("napi_defer_hard_irqs").and_then(|n| n.parse().ok()),
                threaded: set("threaded").map(|level| level == "on"),
            };
        }
        settings
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == NicSettings::default()
    }
}

/// A level of coalescing: a number, or a switch, which the kernel has as 1 or 0.
fn number_of(level: &str) -> Option<u32> {
    match level {
        "on" => Some(1),
        "off" => Some(0),
        number => number.parse().ok(),
    }
}

/// The most CPUs of a list; no kernel supports as many.
const CPUS_MOST: u32 = 1 << 16;

/// A list of CPUs in its normal form, as in `/proc/irq/N/smp_affinity_list`: `0-2,5`. `none` for no CPU.
///
/// # Errors
/// The text is not such a list.
pub fn cpu_list(text: &str) -> Result<String, String> {
    let why = || {
        let shown: String = text.chars().filter(|c| !c.is_control()).take(40).collect();
        format!("invalid list of CPUs `{shown}`; expected like 0-3,6, or none")
    };
    if text.trim() == NO_CPUS {
        return Ok(NO_CPUS.into());
    }
    let mut cpus = BTreeSet::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|cpu| *cpu < CPUS_MOST);
        let (first, last) = number(first).zip(number(last)).ok_or_else(why)?;
        if first > last {
            return Err(why());
        }
        cpus.extend(first..=last);
    }
    Ok(listed(&cpus))
}

/// No CPU, as a list.
pub const NO_CPUS: &str = "none";

/// CPUs as the kernel lists them.
pub fn listed(cpus: &BTreeSet<u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => ranges.push((*cpu, *cpu)),
        }
    }
    let words = ranges.into_iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    match cpus.is_empty() {
        true => NO_CPUS.into(),
        false => words.collect::<Vec<_>>().join(","),
    }
}

/// The options of modules of a guest, by module: of one host if there are two.
pub fn module_options(arm: &Arm, host: Option<Side>) -> BTreeMap<String, String> {
    let ends = Ends::from_arm(arm, "module_options_in");
    match host.is_none_or(|side| ends.has(side)) {
        true => (arm.table("module_options"))
            .map(|(module, options)| (module.to_string(), options.to_string()))
            .collect(),
        false => BTreeMap::new(),
    }
}

/// Names of offloads in `ethtool -K`, in short or as `ethtool -k` prints them, that are not names of features: with
/// their names here.
const OFFLOADS: [(&str, &str); 11] = [
    ("gro", "gro"),
    ("gso", "gso"),
    ("tso", "tso"),
    ("sg", "sg"),
    ("tx-checksum", "tx-checksum"),
    ("generic-receive-offload", "gro"),
    ("generic-segmentation-offload", "gso"),
    ("tcp-segmentation-offload", "tso"),
    ("scatter-gather", "sg"),
    ("rx-checksumming", "rx-checksum"),
    ("tx-checksumming", "tx-checksum"),
];

/// Check that a feature is not an offload, which stands for several.
///
/// # Errors
/// It is one: how it is set.
pub(super) fn check_feature(name: &str, level: &str) -> Result<(), String> {
    match OFFLOADS.iter().find(|(known, _)| *known == name) {
        None => Ok(()),
        Some((_, offload)) => Err(format!(
            "`{name}` is an offload, not a feature: use `--offload {offload}={level}`, in a file offload = {{ {offload} = \
             \"{level}\" }}; `ethtool -k` lists features, like rx-gro-list"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    /// Check that lists of CPUs have one normal form, and which texts are invalid.
    #[test]
    fn lists_of_cpus() {
        for (text, normal) in
            [("0", "0"), ("1,0", "0-1"), (" 0-2,5,6 ", "0-2,5-6"), ("3-3", "3"), ("none", "none")]
        {
            assert_eq!(cpu_list(text).as_deref(), Ok(normal), "{text}");
        }
        for text in ["", "2-1", "a", "0,", "-1", "0-99999", "1;2"] {
            assert!(cpu_list(text).is_err(), "{text}");
        }
    }

    /// Check that what adapts is a switch, and first.
    #[test]
    fn what_adapts() {
        let switches: Vec<&str> = Coalescing::ALL
            .iter()
            .filter(|which| which.is_switch())
            .map(|which| which.as_str())
            .collect();
        assert_eq!(switches, Coalescing::SWITCHES);
        assert_eq!(switches, Coalescing::WORDS[..2]);
    }

    /// Check that an offload among features is refused with how it is set, and every feature is taken.
    #[test]
    fn offloads_are_no_features() {
        let of = |name: &str| {
            let text = format!("name = \"x\"\n[knobs]\nfeature.{name} = \"on\"\n");
            Experiment::parse(&text).map_err(|error| error.to_string())
        };
        for (name, offload) in [("gro", "gro"), ("tcp-segmentation-offload", "tso")] {
            let error = of(name).unwrap_err();
            assert!(error.contains(&format!("`--offload {offload}=on`")), "{error}");
        }
        for name in ["rx-gro", "rx-checksum", "tx-tcp-segmentation", "rx-gro-list"] {
            assert!(of(name).is_ok(), "{name}");
        }
        let offloads =
            OFFLOADS.iter().map(|(_, offload)| offload.parse::<crate::experiment::Offload>());
        assert!(offloads.into_iter().all(|offload| offload.is_ok()));
    }

    /// Check that settings are of the ends that a knob names, and of both where it names none.
    #[test]
    fn ends() {
        let text = "name = \"x\"\nhosts = 2\n[workload]\nkind = \"stream\"\n[knobs]\n\
                    coalesce = { rx-usecs = 100, adaptive-rx = false }\nchannels = { rx = 2 }\nxps_cpus = \"1,0\"\nsteering_in = \"tx\"\n\
                    coalesce_in = \"rx\"\nrings = { tx = 512 }\n\
                    gro_flush_timeout = \"25us\"\nnapi_defer_hard_irqs = 1\nthreaded = true\n\
                    feature.rx-gro-list = \"on\"\nfeature_in = \"tx\"\n\
                    module_options.e1000 = \"TxIntDelay=0\"\n";
        let arm = Experiment::parse(text).unwrap().arms().remove(0);
        let [tx, rx] = [Side::Tx, Side::Rx].map(|side| NicSettings::from_arm(&arm, side));
        assert_eq!(tx.coalesce, BTreeMap::new());
        let set = [(Coalescing::AdaptiveRx, 0), (Coalescing::RxUsecs, 100)];
        assert_eq!(rx.coalesce, set.into());
        assert_eq!(tx.channels, [(Channel::Rx, 2)].into());
        assert_eq!(tx.steering, [(Steering::Xps, "0-1".to_string())].into());
        assert!(rx.channels.is_empty() && rx.steering.is_empty());
        assert_eq!(tx.features, [("rx-gro-list".to_string(), true)].into());
        assert_eq!(rx.features, BTreeMap::new());
        assert_eq!(tx.rings, [(Ring::Tx, 512)].into());
        assert_eq!(tx.rings, rx.rings);
        let polling = Polling {
            gro_flush_timeout_ns: Some(25_000),
            napi_defer_hard_irqs: Some(1),
            threaded: Some(true),
        };
        assert_eq!((tx.polling, rx.polling), (polling.clone(), polling));
        let options = module_options(&arm, Some(Side::Rx));
        assert_eq!(options["e1000"], "TxIntDelay=0");
    }
}
