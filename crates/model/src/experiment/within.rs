//! Where in a topology rules and qdiscs are attached.

use crate::class::words;
use crate::recording::Arm;

words! {
    /// The hosts whose rules or egress qdisc are set.
    Within, "place",
    /// The host that sends.
    Tx = "tx",
    /// The host that receives.
    Rx = "rx",
    /// Sender and receiver.
    Both = "both",
    /// The router between them.
    Router = "router",
    /// The bridge between them.
    Bridge = "bridge",
}

impl Within {
    /// Check that an arm has the place that the knob `key` names.
    pub(super) fn check(self, key: &str, arm: &Arm) -> Result<(), String> {
        let (needs, has) = match self {
            Within::Router => ("forward", arm.forward),
            Within::Bridge => ("bridge", arm.is_on("bridge")),
            Within::Tx | Within::Rx | Within::Both => return Ok(()),
        };
        match has {
            true => Ok(()),
            false => Err(format!("{key} = \"{self}\" needs {needs} = \"on\"")),
        }
    }
}
