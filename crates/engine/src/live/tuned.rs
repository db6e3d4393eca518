//! Runs of a command with settings of an interface of this machine, and its traffic over that interface.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use netplumb_agent::BlockError;
use netplumb_instruments::rates::cpu::{self, CpuClock};
use netplumb_knobs::Nic;
use netplumb_lab::cancel::Cancel;
use netplumb_lab::vm::process::VmError;
use netplumb_model::hosts::{BUSY, CLOCKED, THROUGHPUT, TURN, clocked};
use netplumb_model::message::Exit;
use netplumb_model::quantity::{Figure, FigureKey, Subject};
use netplumb_model::recording::{Arm, Block, Ledger, Recording, env};
use netplumb_model::tune::Figures;
use netplumb_sys::netns::Namespace;
use netplumb_workload::echo::Echoes;

use super::child::{Output, Running};
use super::machine::{Change, Machine, bytes_of};
use crate::error::EngineError;
use crate::schedule::interleaved;

/// How often to see whether the run was cancelled.
const NAP: Duration = Duration::from_millis(50);
/// Runs of a command until an echo is answered while it runs.
const TRIES: u32 = 5;
/// Between two echoes.
const BETWEEN_ECHOES: Duration = Duration::from_millis(5);

/// Runs of a command with settings of an interface.
#[derive(Debug, Clone)]
pub struct NicRuns {
    /// The interface whose settings change.
    pub nic: Nic,
    /// The machine whose echoes are the latency; without it, that is how long the command runs.
    pub peer: Option<IpAddr>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Settings of each arm.
    pub arms: Vec<Vec<Change>>,
    /// Runs of each arm.
    pub blocks: u32,
    /// Seed of the order of blocks.
    pub seed: u64,
}

/// A run of the command.
#[derive(Debug, Clone, Copy)]
pub struct NicBlock {
    /// The figures to compare.
    pub figures: Figures,
    /// Bytes that the interface counted, in both directions.
    pub bytes: u64,
    /// How long it took.
    pub took: Duration,
}

/// Keep runs in a recording, a block for each, with the arms of the runs.
pub fn record_nic(
    recording: &mut Recording,
    runs: &NicRuns,
    clock: &CpuClock,
    arms: Vec<Arm>,
    measured: &[Vec<NicBlock>],
) {
    let by = match clock.without_second() {
        None => "tracepoints",
        Some(_) => "/proc/stat",
    };
    let facts = &mut recording.environment;
    facts.extend(netplumb_agent::facts::machine());
    facts.extend(cpu::facts());
    let peer = runs.peer.map(|peer| (env::TUNED_PEER, peer.to_string()));
    for (key, value) in [
        (env::LAB, "host".to_string()),
        (env::CLOCK, CLOCKED.to_string()),
        (env::UNIT, "bytes".to_string()),
        (env::HOSTS_CPU_USE, by.to_string()),
        (env::TUNED_NIC, runs.nic.name.clone()),
        (env::TUNED_COMMAND, runs.command.join(" ")),
    ]
    .into_iter()
    .chain(peer)
    {
        facts.insert(key.into(), value);
    }
    recording.arms = arms;
    for (arm, blocks) in measured.iter().enumerate() {
        for (index, ran) in blocks.iter().enumerate() {
            recording.blocks.push(Block {
                arm: arm as u32,
                instrument: CLOCKED.into(),
                index: index as u32,
                ledger: Ledger { offered: ran.bytes, delivered: ran.bytes, ..Ledger::default() },
                totals: Vec::new(),
                entered: 0,
                returned: 0,
                duration_ns: ran.took.as_nanos() as u64,
            });
            let block = Subject::Block(recording.blocks.len() as u32 - 1);
            let latency = if runs.peer.is_some() { "median" } else { "mean" };
            for (quantity, item, value) in [
                (&THROUGHPUT, FigureKey::ONLY, ran.figures.throughput_bps),
                (&TURN, FigureKey::label(latency), ran.figures.latency_ns),
                (&BUSY, FigureKey::ONLY, ran.figures.busy[0]),
            ] {
                recording.add_figure(block, Figure::new(&clocked(quantity), value).with_key(item));
            }
        }
    }
    recording.complete = true;
}

/// Run the command with each arm's settings, in turns, which are restored after each run. The figures are by
/// arm, and by block.
///
/// # Errors
/// A setting is refused, the command fails, or it moves nothing over the interface.
pub fn run_with_nic(
    runs: &NicRuns,
    clock: &CpuClock,
    cancel: &Cancel,
    over: &mut dyn FnMut(u32),
) -> Result<Vec<Vec<NicBlock>>, EngineError> {
    let changes: Vec<&[Change]> = runs.arms.iter().map(Vec::as_slice).collect();
    let machine = Machine::begin(&changes)?;
    let mut all = vec![Vec::new(); runs.arms.len()];
    let mut done = 0;
    let mut measure = || -> Result<(), EngineError> {
        for turn in interleaved(runs.arms.len(), 1, 0..runs.blocks, runs.seed) {
            if cancel.load(Ordering::Relaxed) {
                return Err(VmError::Interrupted.into());
            }
            let applied = machine.set(&runs.arms[turn.arm], cancel)?;
            let figures = one(runs, applied.namespace(), clock, cancel);
            drop(applied);
            all[turn.arm].push(figures?);
            done += 1;
            over(done);
        }
        Ok(())
    };
    let measured = measure();
    let ended = machine.end();
    measured?;
    ended?;
    Ok(all)
}

/// Whether each of some changes is accepted: none, or why not. All are restored.
///
/// # Errors
/// A setting can't be restored, or another run has the interface.
pub fn try_changes(changes: &[Vec<Change>]) -> Result<Vec<Option<String>>, EngineError> {
    let each = changes.iter().map(|arm| {
        match Machine::begin(&[arm]) {
            Ok(machine) => machine.end().map(|()| None).map_err(EngineError::from),
            Err(error @ EngineError::Block(BlockError::Path(_))) => Ok(Some(error.to_string())),
            // The other changes would fail the same way.
            Err(error) => Err(error),
        }
    });
    each.collect()
}

/// Make changes to stay: not in a journal, and not restored. If one is refused, those before it are
/// restored.
///
/// # Errors
/// The first that is refused.
pub fn keep(changes: &[Change]) -> Result<(), EngineError> {
    let own = Namespace::current().map_err(EngineError::host("find this network namespace"))?;
    let mut made: Vec<(&Change, String)> = Vec::new();
    for change in changes {
        let set = || {
            let before = change.setting.read(&own)?;
            change.setting.write(&own, &change.before)?;
            Ok::<String, netplumb_knobs::KnobError>(before)
        };
        match set() {
            Ok(before) => made.push((change, before)),
            Err(error) => {
                for (change, before) in made.iter().rev() {
                    // The first error is the one to report.
                    let _ = change.setting.write(&own, before);
                }
                return Err(error.into());
            }
        }
    }
    Ok(())
}

/// One run of the command: again, if it ends before any echo was answered.
fn one(
    runs: &NicRuns,
    namespace: &Namespace,
    clock: &CpuClock,
    cancel: &Cancel,
) -> Result<NicBlock, EngineError> {
    for _ in 0..TRIES {
        if let Some(ran) = once(runs, namespace, clock, cancel)? {
            return Ok(ran);
        }
    }
    let peer = runs.peer.map(|peer| peer.to_string()).unwrap_or_default();
    Err(EngineError::Tuning(format!(
        "{peer} answered no echo in any of {TRIES} runs of the command: try `ping {peer}`, have the command run for longer, \
         or leave out --peer, and the latency is how long the command runs"
    )))
}

/// One run of the command; none if no echo was answered meanwhile.
fn once(
    runs: &NicRuns,
    namespace: &Namespace,
    clock: &CpuClock,
    cancel: &Cancel,
) -> Result<Option<NicBlock>, EngineError> {
    let host = |doing: &'static str| EngineError::host(doing);
    let name = &runs.nic.state(namespace)?.name;
    let moved = || bytes_of(name, namespace);
    let mut echoes = match runs.peer {
        Some(peer) => Some(Echoes::connect(peer).map_err(host("send echoes to the peer"))?),
        None => None,
    };
    if let Some(echoes) = &mut echoes {
        // The first one resolves the peer's address.
        echoes.one().map_err(host("send echoes to the peer"))?;
    }
    let end = AtomicBool::new(false);
    let (figures, times) = thread::scope(|scope| {
        let times =
            echoes.as_mut().map(|echoes| scope.spawn(|| echoes.until(BETWEEN_ECHOES, &end)));
        let figures = command(runs, &moved, clock, cancel);
        end.store(true, Ordering::Relaxed);
        let times = times
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        (figures, times)
    });
    let mut ran = figures?;
    if let Some(times) = times {
        let mut times = times.map_err(host("send echoes to the peer"))?;
        times.sort_unstable();
        let Some(median) = times.get(times.len() / 2) else {
            return Ok(None);
        };
        ran.figures.latency_ns = *median as f64;
    }
    Ok(Some(ran))
}

/// Run the command, and measure its traffic and duration.
fn command(
    runs: &NicRuns,
    moved: &dyn Fn() -> Result<u64, EngineError>,
    clock: &CpuClock,
    cancel: &Cancel,
) -> Result<NicBlock, EngineError> {
    let name = || runs.command.join(" ");
    let (before, bytes) = (clock.read(), moved()?);
    let begun = Instant::now();
    let started = Running::start(&runs.command, None, &[], Output::Nowhere, None);
    let mut command =
        started.map_err(|source| EngineError::Command { name: runs.command[0].clone(), source })?;
    let ended = loop {
        let ended = command.wait(NAP);
        if let Some(ended) = ended.map_err(EngineError::host("wait for the command"))? {
            break ended;
        }
        if cancel.load(Ordering::Relaxed) {
            return Err(VmError::Interrupted.into());
        }
    };
    let took = begun.elapsed();
    let (after, bytes) = (clock.read(), moved()?.saturating_sub(bytes));
    match ended {
        Exit::Code(0) => {}
        other => {
            let how = match other {
                Exit::Code(code) => format!("exited with {code}"),
                Exit::Signal(signal) => format!("was killed by signal {signal}"),
            };
            return Err(EngineError::Tuning(format!(
                "`{}` {how}: it has to succeed each time; run it by itself to see why",
                name()
            )));
        }
    }
    if bytes == 0 {
        return Err(EngineError::Tuning(format!(
            "`{}` moved nothing over {}: does it use another interface? `ip route get ADDRESS` shows which",
            name(),
            runs.nic.name
        )));
    }
    let read = EngineError::host("read the CPU time");
    let (before, after) = match (before, after) {
        (Ok(before), Ok(after)) => (before, after),
        (Err(error), _) | (_, Err(error)) => return Err(read(error)),
    };
    let uses = cpu::since(&before, &after);
    let cpus = uses.len().max(1) as f64;
    let busy: f64 = uses.iter().map(|one| one.second.unwrap_or(one.busy)).sum();
    Ok(NicBlock {
        figures: Figures {
            throughput_bps: bytes as f64 * 8.0 / took.as_secs_f64(),
            latency_ns: took.as_nanos() as f64,
            busy: [busy / cpus, 0.0],
            cpus,
        },
        bytes,
        took,
    })
}
