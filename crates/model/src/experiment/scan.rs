//! A scan: many settings, changed one at a time.

use serde::{Deserialize, Serialize};

/// Which settings are changed. Each makes an arm of its own beside every arm that
/// the experiment has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scan {
    /// Settings below /proc/sys whose names begin with one of these.
    pub sysctl: Vec<String>,
    /// But not with one of these.
    pub skip: Vec<String>,
    /// No more settings than this. Default: all.
    pub limit: Option<usize>,
}

impl Scan {
    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        if self.sysctl.is_empty() {
            return Err((
                "sysctl",
                "the scan names no settings: sysctl = [\"net.\"]".into(),
            ));
        }
        for prefix in self.sysctl.iter().chain(&self.skip) {
            let sane = prefix
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
            if !sane || prefix.starts_with('.') || prefix.is_empty() {
                return Err((
                    "sysctl",
                    format!("`{prefix}` begins the name of no setting"),
                ));
            }
        }
        // The rest of /proc/sys is about the whole machine: kernel.panic, vm.drop_caches.
        if let Some(prefix) = self.sysctl.iter().find(|p| !p.starts_with("net.")) {
            return Err((
                "sysctl",
                format!("`{prefix}`: a scan is of settings below `net.`"),
            ));
        }
        if self.limit == Some(0) {
            return Err(("limit", "limit is 0: nothing would be tried".into()));
        }
        Ok(())
    }
}
