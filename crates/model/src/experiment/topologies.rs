//! Topologies of an experiment: one table `[topology]`, or several `[[topology]]`.

use std::fmt;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

use super::error::Mistake;
use super::nft::has_include;
use super::{Experiment, Flows, Kind, MAX_RULESET_BYTES, Qdisc};
use crate::topology::TopologySpec;

/// The name of a topology without one.
const OWN: &str = "own";

/// Reads one table, or a list of them.
pub(super) fn one_or_several<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<TopologySpec>, D::Error> {
    struct OneOrSeveral;
    impl<'de> Visitor<'de> for OneOrSeveral {
        type Value = Vec<TopologySpec>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a table [topology], or several [[topology]]")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            Ok(vec![TopologySpec::deserialize(MapAccessDeserializer::new(map))?])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(list))
        }
    }
    let mut all = deserializer.deserialize_any(OneOrSeveral)?;
    for spec in all.iter_mut().filter(|spec| spec.name.is_empty()) {
        spec.name = OWN.into();
    }
    Ok(all)
}

impl Experiment {
    pub(super) fn check_topologies(&self) -> Result<(), Mistake> {
        let wrong = |why: String| Mistake::from(("topology", why));
        if !self.topologies.is_empty()
            && !matches!(self.workload.kind, Kind::Packets | Kind::Stream | Kind::Command)
        {
            let kind = self.workload.kind;
            return Err(wrong(format!("[topology] is not supported by workloads of kind {kind}")));
        }
        for (n, spec) in self.topologies.iter().enumerate() {
            let of = |what: String| wrong(format!("topology {}: {what}", spec.name));
            spec.check().map_err(|mistake| of(mistake.to_string()))?;
            for namespace in &spec.namespaces {
                let of = |what| of(format!("namespace `{}`: its rules {what}", namespace.name));
                if namespace.nft.len() as u64 > MAX_RULESET_BYTES {
                    return Err(of("are too long"));
                }
                if has_include(&namespace.nft) {
                    return Err(of("include another file; write them here"));
                }
            }
            for device in &spec.devices {
                let checked = Qdisc::from_words(&device.qdisc).map_or(Ok(()), |q| q.check());
                checked.map_err(|why| of(format!("device `{}`: {why}", device.name)))?;
            }
            let is_taken = self.topologies[..n].iter().any(|other| other.name == spec.name);
            if is_taken {
                return Err(wrong(format!(
                    "topology {}: another topology has this name; set `name`",
                    spec.name
                )));
            }
        }
        Ok(())
    }

    /// With what is written outside of `[knobs]` as knobs of all arms: topologies that no arm names, and the workload's
    /// flows.
    pub(super) fn with_own_knobs(mut self) -> Experiment {
        if self.workload.flows == Some(Flows::New) && self.knobs.get("new_flows").is_none() {
            // INVARIANT: it is a switch.
            let _ = self.knobs.set("new_flows", "on");
        }
        let first = self.topologies.first().map(|spec| spec.name.clone());
        if let Some(name) = first.filter(|_| self.topology_levels_mut().next().is_none()) {
            // INVARIANT: the knob takes any name; one that is wrong is refused later.
            let _ = self.knobs.set("topology", &name);
        }
        self
    }
}
