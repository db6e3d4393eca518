//! Where in a topology rules and qdiscs are attached.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The namespaces whose rules or egress qdisc are set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Within {
    /// The one that sends.
    Tx,
    /// The one that receives.
    Rx,
    /// Sender and receiver.
    Both,
    /// One of the topology's namespaces, or one of its devices, by name.
    Named(String),
}

impl Within {
    /// The spelling of its default.
    pub(super) const DEFAULT: &str = "tx";
}

impl fmt::Display for Within {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Within::Tx => Self::DEFAULT,
            Within::Rx => "rx",
            Within::Both => "both",
            Within::Named(name) => name,
        })
    }
}

impl FromStr for Within {
    type Err = Infallible;

    fn from_str(name: &str) -> Result<Within, Infallible> {
        Ok(match name {
            Self::DEFAULT => Within::Tx,
            "rx" => Within::Rx,
            "both" => Within::Both,
            name => Within::Named(name.into()),
        })
    }
}
