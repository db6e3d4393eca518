//! Settings of NICs: those of ethtool, of sysfs, and options of their drivers' modules.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::class::words;
use crate::hosts::{Side, time_of};
use crate::recording::Arm;

words! {
    /// When a NIC raises an interrupt, as in `ethtool -C`.
    Coalescing, "coalescing setting",
    /// Microseconds from a received packet to the interrupt.
    RxUsecs = "rx-usecs",
    /// Received packets before the interrupt.
    RxFrames = "rx-frames",
    /// Microseconds from a sent packet to the interrupt.
    TxUsecs = "tx-usecs",
    /// Sent packets before the interrupt.
    TxFrames = "tx-frames",
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

    /// Those of a knob of an arm: all, if nothing is said.
    pub fn of(arm: &Arm, knob: &str) -> Ends {
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
    /// How they are polled.
    pub polling: Polling,
}

impl NicSettings {
    /// Those of an end of an arm.
    pub fn of(arm: &Arm, side: Side) -> NicSettings {
        let is_there = |knob: &str| Ends::of(arm, knob).has(side);
        let mut settings = NicSettings::default();
        // Levels have been checked.
        if is_there("feature_in") {
            let all = arm.table("feature");
            settings.features = all.map(|(name, on)| (name.into(), on == "on")).collect();
        }
        if is_there("coalesce_in") {
            let all = arm.table("coalesce");
            settings.coalesce = all
                .filter_map(|(name, n)| Some((name.parse().ok()?, n.parse().ok()?)))
                .collect();
        }
        if is_there("rings_in") {
            let all = arm.table("rings");
            settings.rings = all
                .filter_map(|(name, n)| Some((name.parse().ok()?, n.parse().ok()?)))
                .collect();
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

/// The options of modules of a guest, by module: of one host if there are two.
pub fn module_options(arm: &Arm, host: Option<Side>) -> BTreeMap<String, String> {
    let ends = Ends::of(arm, "module_options_in");
    match host.is_none_or(|side| ends.has(side)) {
        true => (arm.table("module_options"))
            .map(|(module, options)| (module.to_string(), options.to_string()))
            .collect(),
        false => BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    /// Check that settings are of the ends that a knob names, and of both where it names none.
    #[test]
    fn ends() {
        let text = "name = \"x\"\nhosts = 2\n[workload]\nkind = \"stream\"\n[knobs]\n\
                    coalesce = { rx-usecs = 100 }\ncoalesce_in = \"rx\"\nrings = { tx = 512 }\n\
                    gro_flush_timeout = \"25us\"\nnapi_defer_hard_irqs = 1\nthreaded = true\n\
                    feature.rx-gro-list = \"on\"\nfeature_in = \"tx\"\n\
                    module_options.e1000 = \"TxIntDelay=0\"\n";
        let arm = Experiment::parse(text).unwrap().arms().remove(0);
        let [tx, rx] = [Side::Tx, Side::Rx].map(|side| NicSettings::of(&arm, side));
        assert_eq!(tx.coalesce, BTreeMap::new());
        assert_eq!(rx.coalesce, [(Coalescing::RxUsecs, 100)].into());
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
