//! Explaining rates: the instructions of each packet along the same paths, counted in guests. Each
//! path has a guest of its own, from one saved state.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::thread;

use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_model::bench::BenchArm;
use netplumb_model::class::Link;
use netplumb_model::message::{CountPlan, Reply, Request};
use netplumb_model::recording::{Arm, Ledger, Recording, env};
use netplumb_model::timing::INSTRUCTIONS;

use super::guest::{GuestLab, in_guest};
use crate::collect::{Executed, Translation};
use crate::error::EngineError;
use crate::index::Index;
use crate::measure::{PluginOutput, follow, spool, tap};
use crate::origin::Origin;
use crate::receive;
use crate::run::{Options, Progress, Save, add_losses};
use crate::schedule::Turn;
use crate::site::{self, Alone, Ended, Keeper, OneAtATime};
use crate::traces::Traced;

/// Prefix of environment keys with facts of the guests in which instructions were counted.
const FACTS: &str = "counted";
/// Facts of a guest that affect its counts.
const TOLD: &[&str] = &[env::KERNEL, env::KERNEL_HASH, env::QEMU, env::MITIGATIONS, env::CMDLINE];

/// How much to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExplainPlan {
    /// Batches of frames per block, and in the warm-up.
    pub batches: u32,
    /// Blocks of each path.
    pub blocks: u32,
}

/// The counts of an arm.
#[derive(Default)]
struct ExplainedCounts {
    output: PluginOutput,
    ledgers: Vec<Ledger>,
    symbols: OnceLock<SymbolTable>,
    facts: BTreeMap<String, String>,
    /// Why a guest does not support the path, if so.
    cannot: Option<String>,
}

/// Count the instructions per frame along the path of each arm, and add them to the recording of
/// rates. Arms that differ only in settings without effect on the count share an arm, which is
/// added if it is not among them.
///
/// # Errors
/// See [`EngineError`]. Earlier counts are in the recording.
pub fn explain(
    arms: &[BenchArm],
    plan: ExplainPlan,
    lab: &GuestLab<'_>,
    recording: &mut Recording,
    save: Save<'_>,
) -> Result<(), EngineError> {
    recording.complete = false;
    let mut paths: Vec<BenchArm> = Vec::new();
    for arm in arms {
        if !paths.contains(&arm.counted()) {
            paths.push(arm.counted());
        }
    }
    let (origin, options) = lab.origin(lab.options.quick, Link::Veth, false)?;
    let mut facts = |key: &str, value: String| {
        let key = format!("{FACTS}.{key}");
        recording.environment.insert(key, value);
    };
    facts("quick", if options.quick { "yes" } else { "no" }.into());
    facts("batches", plan.batches.to_string());
    for key in TOLD {
        if let Some(value) = origin.facts.get(*key) {
            facts(key, value.clone());
        }
    }
    let numbered = numbered(&paths, &recording.arms);
    let turns: Vec<Turn> = (numbered.keys())
        .map(|arm| Turn { arm: *arm as usize, by: 0, blocks: 0..plan.blocks })
        .collect();
    let all = paths.len() as u32 * plan.blocks;
    let mut index = Index::from_recording(recording);
    let mut keeper = Keeper::new(recording, save, &options.cancel);
    let mut site = OneAtATime::new(Counting {
        paths: numbered,
        plan,
        lab,
        origin: &origin,
        options: &options,
        index: &mut index,
    });
    let names = [INSTRUCTIONS.instrument];
    site::run(&mut site, turns, &names, &mut keeper, &mut |_, over| {
        (lab.tell)(Progress::Blocks(over, all));
    })?;
    keeper.recording.complete = true;
    keeper.keep()
}

/// Paths by the numbers that their arms have in a recording, or get when it is their turn. A
/// new arm never has the name of another one.
fn numbered(paths: &[BenchArm], recorded: &[Arm]) -> BTreeMap<u32, (BenchArm, Arm)> {
    let mut new = recorded.len() as u32;
    let mut numbered: BTreeMap<u32, (BenchArm, Arm)> = BTreeMap::new();
    for path in paths {
        let mut arm = path.arm(paths);
        let known = recorded.iter().position(|a| a.knobs == arm.knobs);
        let number = known.map_or(new, |at| at as u32);
        new += u32::from(known.is_none());
        let is_taken = |name: &str| {
            let added = numbered.values().map(|(_, arm)| arm);
            recorded.iter().chain(added).any(|a| a.name == name)
        };
        while known.is_none() && is_taken(&arm.name) {
            arm.name.push_str(" (explained)");
        }
        numbered.insert(number, (*path, arm));
    }
    numbered
}

/// Guests that count the instructions of frames, a path each.
struct Counting<'a> {
    /// By the indices of their arms; new arms are added in this order.
    paths: BTreeMap<u32, (BenchArm, Arm)>,
    plan: ExplainPlan,
    lab: &'a GuestLab<'a>,
    origin: &'a Origin,
    options: &'a Options,
    index: &'a mut Index,
}

impl Alone for Counting<'_> {
    fn turn(&mut self, turn: &Turn, keeper: &mut Keeper<'_>) -> Result<Ended, EngineError> {
        let recording = &mut *keeper.recording;
        let arm = turn.arm as u32;
        let Some((path, new)) = self.paths.get(&arm) else {
            return Ok(Ended::Measured);
        };
        if recording.arms.len() == turn.arm {
            recording.arms.push(new.clone());
        }
        (self.lab.tell)(Progress::Arm(recording.arms[turn.arm].name.clone()));
        let request = CountPlan {
            arm: *path,
            frames: self.plan.batches * path.batch,
            warmup_frames: self.plan.batches * path.batch,
            blocks: self.plan.blocks,
        };
        let counted = count(self.origin, request, self.options)?;
        for (key, value) in &counted.facts {
            // They have the path's name as a prefix already.
            let key = format!("{FACTS}.{key}");
            recording.environment.insert(key, value.clone());
        }
        if let Some(symbols) = counted.symbols.get() {
            let executed = Executed { symbols, user: &[], nodes: &counted.output.nodes };
            let (windows, layers) = (&counted.output.windows, &self.options.layers);
            let translation = Translation::add(recording, self.index, &executed, layers, windows);
            let blocks = windows.iter().zip(counted.ledgers);
            for (block, (window, ledger)) in turn.blocks.clone().zip(blocks) {
                translation.add_block(recording, arm, block, window, ledger);
            }
        }
        add_losses(recording, INSTRUCTIONS.instrument, &counted.output.losses);
        Ok(match counted.cannot {
            Some(why) => Ended::CannotHere(in_guest(&why)),
            None => Ended::Measured,
        })
    }
}

/// Run one guest; returns its counts.
fn count(
    origin: &Origin,
    plan: CountPlan,
    options: &Options,
) -> Result<ExplainedCounts, EngineError> {
    let mut requests = vec![Request::BenchCount(plan)];
    if origin.symbols.is_none() {
        requests.push(Request::ReadFile("/proc/kallsyms".into()));
    }
    let (stream, extra) = tap(&[])?;
    let guest = origin.start(&requests, extra, options)?;
    let mut counted = ExplainedCounts::default();
    let symbols = OnceLock::new();
    // As in `measure`: when the scope is left, for whatever reason, the guest is killed, its end of
    // the pipe is closed, and the reader ends.
    let (outcome, output) = thread::scope(|scope| {
        let mut guest = guest;
        let (ready, symbols_ready) = channel::<()>();
        let late = &symbols;
        let reader = scope.spawn(move || {
            let spooled = spool(stream);
            match (symbols_ready.recv(), late.get()) {
                (Ok(()), Some(symbols)) => {
                    follow(spooled, symbols, Traced::default(), None, &|| {})
                }
                _ => PluginOutput::default(),
            }
        });
        let outcome = (|| -> Result<(), EngineError> {
            guest.go_on()?;
            let mut text = Vec::new();
            guest.answers(options.timeout, |reply| {
                match reply {
                    Reply::BlockDone { ledger, .. } => counted.ledgers.push(ledger),
                    Reply::Chunk(lines) => text.extend_from_slice(&lines),
                    Reply::Facts(facts) => counted.facts.extend(facts),
                    Reply::BenchCannot(why) => counted.cannot = Some(why),
                    _ => {}
                }
                Ok(())
            })?;
            if counted.cannot.is_some() {
                return Ok(());
            }
            let table = match origin.table() {
                Some(symbols) => symbols.with(&text)?,
                None => {
                    let all = guest.bytes(options.timeout)?;
                    receive::symbols(&all, origin.release())?.with(&text)?
                }
            };
            let _ = symbols.set(table);
            let _ = ready.send(());
            Ok(())
        })();
        drop((guest, ready));
        let output = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (outcome, output)
    });
    outcome?;
    let (got, wanted) = (output.windows.len(), counted.ledgers.len());
    counted.symbols = symbols;
    counted.output = output;
    if got < wanted {
        return Err(match counted.output.error.take() {
            Some(stream) => stream.into(),
            None => EngineError::WindowsMissing { got, wanted },
        });
    }
    Ok(counted)
}

#[cfg(test)]
mod tests {
    use netplumb_model::bench::{Bench, DataPath};

    use super::*;

    /// Check that paths share the arms that are there, and that one which is added does not
    /// get a name that another arm of a file has.
    #[test]
    fn names_of_new_arms() {
        let path = |path| BenchArm::plain(Bench::Drop, path).counted();
        let paths = [path(DataPath::Xdp), path(DataPath::Tc), path(DataPath::Route)];
        let mut fast = paths[0];
        fast.cores = 2;
        let mut recorded = vec![fast.arm(&paths), paths[1].arm(&paths)];
        recorded[0].name = "xdp".into();
        let names = |recorded: &[Arm]| -> Vec<(u32, String)> {
            let all = numbered(&paths, recorded).into_iter();
            all.map(|(number, (_, arm))| (number, arm.name)).collect()
        };
        let (tc, route) = ((1, "tc".to_string()), (3, "route".to_string()));
        let xdp = (2, "xdp (explained)".to_string());
        assert_eq!(names(&recorded), [tc.clone(), xdp, route.clone()]);
        recorded[0].name = "two CPUs".into();
        assert_eq!(names(&recorded), [tc, (2, "xdp".to_string()), route]);
    }
}
