//! What to take out of recordings.

use std::collections::BTreeSet;

use clap::Args;
use clap::builder::PossibleValuesParser;
use netplumb_model::recording::{Redaction, Secret};

/// Names of machines and users that identify nobody.
const NOBODY: [&str; 4] = ["root", "localhost", "nobody", ""];

/// What stays, of what is taken out.
#[derive(Debug, Args)]
pub(crate) struct KeepArgs {
    /// Keep these: comma-separated list
    #[arg(long, value_name = "KIND", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(Secret::ALL.map(Secret::as_str)))]
    keep: Vec<String>,
}

impl KeepArgs {
    /// Whether anything is to stay.
    pub(crate) fn is_given(&self) -> bool {
        !self.keep.is_empty()
    }

    /// What to take out: also the name of this machine, and of whoever runs this.
    pub(crate) fn redaction(&self) -> Redaction {
        let kept = |secret: &Secret| self.keep.iter().any(|kind| kind == secret.as_str());
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let users = ["USER", "LOGNAME", "SUDO_USER"].map(|key| std::env::var(key).ok());
        let named = |names: Vec<String>| -> BTreeSet<String> {
            names.into_iter().filter(|name| !NOBODY.contains(&name.as_str())).collect()
        };
        Redaction {
            keep: Secret::ALL.into_iter().filter(kept).collect(),
            hosts: named(vec![host]),
            users: named(users.into_iter().flatten().collect()),
        }
    }
}
