//! Instruments that read a clock on the running kernel: what they have in common.

use std::fmt;

use netplumb_model::timing::{Attached, Clock, TimingSpec, Window};
use netplumb_sys::bpf::BpfError;

use crate::functions::Functions;

/// Why an instrument can't measure, or no longer.
#[derive(Debug)]
pub enum LiveError {
    /// Not on this machine, or not as this user: why, and what would help.
    CannotRun {
        /// What is missing, in a sentence.
        reason: String,
        /// What to try.
        remedy: String,
    },
    /// Not what was asked for: no function by that name, no such filter here.
    Asked(String),
    /// The system refused something on the way.
    System {
        /// What was being done.
        doing: String,
        /// The system's reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl fmt::Display for LiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LiveError::CannotRun { reason, remedy } => write!(f, "{reason}: {remedy}"),
            LiveError::Asked(what) => f.write_str(what),
            LiveError::System { doing, source } => write!(f, "can't {doing}: {source}"),
        }
    }
}

impl LiveError {
    /// For programs of an instrument that are not in the kernel, or whose maps can't be had.
    pub(crate) fn programs(of: &'static str) -> impl FnOnce(BpfError) -> LiveError {
        move |error| match error {
            BpfError::NoTypes(_) => LiveError::CannotRun {
                reason: error.to_string(),
                remedy: "use a kernel with CONFIG_DEBUG_INFO_BTF=y, as distributions have it"
                    .into(),
            },
            BpfError::NotPermitted(_) => LiveError::CannotRun {
                reason: error.to_string(),
                remedy: "be root, or have CAP_BPF and CAP_PERFMON (`plumb doctor` says more)"
                    .into(),
            },
            other => LiveError::System {
                doing: format!("load the programs of `{of}`"),
                source: Box::new(other),
            },
        }
    }
}

impl std::error::Error for LiveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LiveError::System { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}

/// An instrument that is attached. Dropped, it leaves nothing in the kernel.
pub trait Live: fmt::Debug {
    /// What it watches, and at what cost.
    fn attached(&self) -> &Attached;

    /// Open a window: what was seen before belongs to none.
    ///
    /// # Errors
    /// The kernel's maps can't be read.
    fn open(&mut self) -> Result<(), LiveError>;

    /// Close the window and open the next one. An instrument that can misses nothing
    /// between the two.
    ///
    /// # Errors
    /// The kernel's maps can't be read.
    fn turn(&mut self) -> Result<Window, LiveError> {
        let window = self.close()?;
        self.open()?;
        Ok(window)
    }

    /// Close the window, and tell what was seen in it.
    ///
    /// # Errors
    /// The kernel's maps can't be read.
    fn close(&mut self) -> Result<Window, LiveError>;
}

/// Attach the instrument that is asked for. `layer` gives a function its layer, by
/// its name and module.
///
/// # Errors
/// It can't be attached here, or not as asked.
pub fn attach(
    spec: &TimingSpec,
    layer: &dyn Fn(&str, Option<&str>) -> Option<String>,
) -> Result<Box<dyn Live>, LiveError> {
    match spec.clock {
        Clock::Exact => Err(LiveError::Asked(
            "`exact` is no clock of the running kernel: it counts in the vm lab".into(),
        )),
        Clock::Rates => Err(LiveError::Asked(
            "`rates` are measured by `plumb bench`, which has windows of its own".into(),
        )),
        Clock::Functions => Ok(Box::new(Functions::attach(spec, layer)?)),
        Clock::Stages => Ok(Box::new(crate::stages::Stages::attach(spec)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that who asks for a clock that is no live instrument's is told about that one.
    #[test]
    fn other_clocks_are_told_by_their_names() {
        for clock in [Clock::Exact, Clock::Rates] {
            let spec = TimingSpec {
                clock,
                filter: Default::default(),
                selection: Default::default(),
                mechanism: None,
                one_packet: 0,
            };
            let told = attach(&spec, &|_, _| None).unwrap_err().to_string();
            assert!(told.starts_with(&format!("`{clock}` ")), "{told}");
        }
    }
}
