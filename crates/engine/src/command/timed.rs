//! A command with an instrument that measures on the running kernel: packets seen while it runs, or its own work. No
//! plugin.

use std::time::Duration;

use netplumb_model::message::{Reply, Request};
use netplumb_model::timing::TimingSpec;

use super::{Base, CommandReplies, OneArm, add_command_losses, add_figures, facts, runs};
use crate::error::EngineError;
use crate::guests::CommandWindows;
use crate::kinds::is_of_packets;
use crate::run::{Options, Progress, note_clock};
use crate::site::Keeper;

/// Minimum timeout for attaching the instrument in the guest: a hundred functions take half a
/// minute, and a short --timeout is meant for the command.
const ATTACH_PATIENCE: Duration = Duration::from_secs(120);

/// The agent. The task that reads a file is a copy of it.
const AGENT: u32 = 1;

impl OneArm<'_> {
    /// The settings of an instrument for its command.
    fn spec(self, spec: &TimingSpec) -> TimingSpec {
        let mut spec = spec.clone();
        // No program that begins with its exec.
        if self.command().reads.is_some() && !is_of_packets(&spec.instrument) {
            spec.filter.pid = Some(AGENT);
            if let Some(spans) = &mut spec.spans {
                spans.children = false;
            }
            if let Some(calls) = &mut spec.calls {
                (calls.children, calls.own) = (false, true);
            }
        }
        spec
    }
}

/// Measure a command, with a window for each run.
pub(super) fn measure(
    one: OneArm<'_>,
    spec: &TimingSpec,
    options: &Options,
    keeper: &mut Keeper<'_>,
    progress: &dyn Fn(Progress),
    said: &mut CommandReplies<'_>,
) -> Result<(), EngineError> {
    let (run, arm) = (one.run, &one.command().arm);
    let ends_before = said.ends.len();
    let recording = &mut *keeper.recording;
    note_clock(recording, arm.link, options);
    let Base { origin, links, modules, shipped, archive } = one.base(options, keeper, progress)?;
    let recording = &mut *keeper.recording;
    let mut requests = vec![Request::Unpack { modules }];
    if origin.symbols.is_none() {
        requests.push(Request::Describe);
    }
    requests.push(Request::Attach { spec: one.spec(spec), links: links.clone() });
    requests.push(one.request(links, None, shipped));
    let extra = one.extra(archive)?;
    let mut guest = origin.start(&requests, extra, options)?;
    progress(Progress::Arm(arm.name.clone()));
    let own = (!run.is_of_packets()).then_some(one.at as u32);
    let mut windows = CommandWindows::new(arm, own, spec, recording);
    let outcome = (|| -> Result<(), EngineError> {
        guest.go_on()?;
        guest.answers(options.timeout, |_| Ok(()))?;
        if origin.symbols.is_none() {
            facts(&mut guest, options, recording)?;
        }
        guest.answers(options.timeout.max(ATTACH_PATIENCE), |reply| {
            windows.take(recording, &options.layers, &reply);
            Ok(())
        })?;
        runs(&mut guest, options, &mut |reply| {
            windows.take(recording, &options.layers, &reply);
            let ended = matches!(reply, Reply::Ended(_));
            said.take(reply);
            if ended {
                let done = (said.ends.len() - ends_before) as u32;
                progress(Progress::Blocks(done, run.blocks));
            }
        })
    })();
    let ends = &said.ends[ends_before..];
    if own.is_some() {
        add_figures(recording, one.at, &spec.instrument, ends);
    }
    add_command_losses(recording, &spec.instrument, 0, ends);
    match (outcome, ends.last()) {
        (Ok(()), Some(end)) if recording.blocks.is_empty() => {
            Err(EngineError::NothingSeen { command: Some(end.exit) })
        }
        (outcome, _) => outcome,
    }
}
