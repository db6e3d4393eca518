//! A scan: many sysctls, changed one at a time.

use serde::{Deserialize, Serialize};

/// Which sysctls are changed. Each is an additional arm for every arm of the experiment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scan {
    /// Sysctls whose names begin with one of these.
    pub sysctl: Vec<String>,
    /// Except those that begin with one of these.
    pub skip: Vec<String>,
    /// Maximum number of sysctls; by default all.
    pub limit: Option<usize>,
}

impl Scan {
    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        if self.sysctl.is_empty() {
            return Err((
                "sysctl",
                "scan has no sysctls; expected like sysctl = [\"net.\"]".into(),
            ));
        }
        for prefix in self.sysctl.iter().chain(&self.skip) {
            let sane = prefix.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
            if !sane || prefix.starts_with('.') || prefix.is_empty() {
                return Err((
                    "sysctl",
                    format!("invalid prefix `{prefix}`; expected like net.ipv4.tcp_"),
                ));
            }
        }
        // The rest of /proc/sys is about the whole machine: kernel.panic, vm.drop_caches.
        if let Some(prefix) = self.sysctl.iter().find(|p| !p.starts_with("net.")) {
            return Err((
                "sysctl",
                format!("invalid prefix `{prefix}`; only sysctls below `net.` are supported"),
            ));
        }
        if self.limit == Some(0) {
            return Err(("limit", "invalid limit `0`; expected 1 or more".into()));
        }
        Ok(())
    }
}
