//! The far end: counts the packets that arrive.

use std::collections::BTreeMap;

use netplumb_model::bench::{DataPath, Handled};
use netplumb_sys::plain::Plain;

use crate::bpf::{Attached, Load, Mode, Program};
use crate::changes::Changes;
use crate::error::PathError;
use crate::layout::Config;
use crate::{Site, xdp};

static IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sink.bpf.o"));

/// Counts and drops frames of a device: an XDP program, which also makes the end of a veth accept
/// frames by XDP.
#[derive(Debug)]
pub struct Sink {
    // Dropped in this order.
    _link: Attached,
    program: Program,
    changes: Changes,
    mode: Mode,
    fallback: Option<String>,
    stamped: bool,
}

impl Sink {
    /// Count packets of `site` that its ingress device receives; `stamped`: with their latencies.
    ///
    /// # Errors
    /// It can't be attached: why. Nothing is left behind.
    pub fn set_up(site: &Site, stamped: bool) -> Result<Sink, PathError> {
        let config = Config::new(site, stamped);
        let load = |multi_buffer| {
            let load = Load {
                image: IMAGE,
                program: "sink",
                constants: config.bytes(),
                multi_buffer,
                ..Load::default()
            };
            load.program()
        };
        let mut program = load(false)?;
        let mut changes = Changes::at(site)?;
        let mut fallback = None;
        let mut mode = Mode::Native;
        let link = match xdp::attach(&program, &changes, &site.ingress, mode) {
            Err(PathError::CannotRun { reason, .. }) if reason.contains("driver") => {
                mode = Mode::Skb;
                fallback = Some(reason);
                changes.gro(&site.ingress)?;
                xdp::attach(&program, &changes, &site.ingress, mode)?
            }
            // It counts packets, whatever their number of buffers.
            Err(PathError::CannotRun { reason, .. }) if reason.contains("MTU") => {
                program = load(true)?;
                xdp::attach(&program, &changes, &site.ingress, mode)?
            }
            other => other?,
        };
        Ok(Sink { _link: link, program, changes, mode, fallback, stamped })
    }

    /// The packets that arrived since it was set up.
    ///
    /// # Errors
    /// The counters can't be read.
    pub fn handled(&mut self) -> Result<Handled, PathError> {
        self.program.handled()
    }

    /// How it is attached, by dotted key.
    pub fn facts(&self) -> BTreeMap<String, String> {
        let mut facts: BTreeMap<String, String> = (self.changes.facts.iter())
            .map(|(key, value)| (key.replacen("path.", "sink.", 1), value.clone()))
            .collect();
        let mut attached = format!("xdp, {}", self.mode.word());
        if let Some(why) = &self.fallback {
            attached = format!("{attached}: {why}");
        }
        facts.insert("sink.attached".into(), attached);
        if self.stamped {
            let unstamped = self.program.unstamped();
            facts.insert("sink.unstamped".into(), unstamped.to_string());
        }
        facts
    }

    /// Whether packets arrive at the generator's end.
    pub fn is_at_generator(path: DataPath) -> bool {
        path == DataPath::XdpTx
    }
}
