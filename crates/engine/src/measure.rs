//! Measures an arm in a guest of its own.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;

use netplumb_instruments::exact::{
    self, Accountant, Images, Losses, RanInsn, Sampling, StreamError, StreamReader, Symbol,
    TreeNode, Window,
};
use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_kernel::path_rules::PathRules;
use netplumb_kernel::prototype::Prototype;
use netplumb_lab::vm::process::{Extra, VmError};
use netplumb_model::class::Direction;
use netplumb_model::experiment::Trace;
use netplumb_model::message::{Reply, Request, RunPlan};
use netplumb_model::recording::Ledger;
use netplumb_sys::memory::memfd;

use crate::error::EngineError;
use crate::origin::Origin;
use crate::prototypes;
use crate::receive;
use crate::run::Options;
use crate::symbols::Symbols;
use crate::traces::{StreamExtras, Traced};

/// The results of an arm: all blocks, or those before an error.
#[derive(Debug, Default)]
pub(crate) struct ArmCounts {
    pub(crate) blocks: Vec<(Window, Ledger)>,
    /// The calling-context tree of this guest.
    pub(crate) nodes: Vec<TreeNode>,
    /// The symbols of the tree, if the origin has none.
    pub(crate) symbols: OnceLock<Arc<SymbolTable>>,
    pub(crate) losses: Losses,
    /// Prototypes of functions in traced calls.
    pub(crate) prototypes: BTreeMap<Symbol, Arc<Prototype>>,
    /// Instructions that were executed in blocks; of an arm that is measured in rounds, none.
    pub(crate) instructions: Vec<RanInsn>,
    /// Facts of the guest, if the origin has none.
    pub(crate) facts: BTreeMap<String, String>,
    /// The guest's notes on the arm's knobs.
    pub(crate) notes: BTreeMap<String, String>,
    pub(crate) qemu_peak_bytes: u64,
    pub(crate) error: Option<EngineError>,
}

/// The plugin's results.
#[derive(Debug, Default)]
pub(crate) struct PluginOutput {
    pub(crate) windows: Vec<Window>,
    pub(crate) nodes: Vec<TreeNode>,
    pub(crate) losses: Losses,
    pub(crate) instructions: Vec<RanInsn>,
    pub(crate) error: Option<StreamError>,
    /// The calls can't be traced.
    pub(crate) refused: Option<EngineError>,
}

/// Measure an arm, and draw samples and trace calls if asked to. `done` is called after each block.
pub(crate) fn measure(
    origin: &Origin,
    plan: &RunPlan,
    wires: Extra,
    beside: StreamExtras<'_>,
    options: &Options,
    done: &(dyn Fn() + Sync),
) -> ArmCounts {
    let mut measured = ArmCounts::default();
    if let Err(error) = try_measure(origin, plan, wires, beside, options, done, &mut measured) {
        measured.error = Some(error);
    }
    measured
}

fn try_measure(
    origin: &Origin,
    plan: &RunPlan,
    wires: Extra,
    beside: StreamExtras<'_>,
    options: &Options,
    done: &(dyn Fn() + Sync),
    measured: &mut ArmCounts,
) -> Result<(), EngineError> {
    let limit = options.timeout;
    // A wrong name is an error at once, where symbols are known.
    let traced = Traced { beside, release: origin.release(), command: false };
    let options_of_plugin =
        traced.options(origin.final_symbols().and_then(Symbols::table), &Images::default())?;
    let mut requests = vec![Request::Run(plan.clone())];
    if origin.final_symbols().is_none() {
        requests.push(Request::Describe);
        requests.push(Request::ReadFile("/proc/kallsyms".into()));
    }
    let (stream, extra) = tap(&options_of_plugin)?;
    let mut guest = origin.start(&requests, extra.and(wires), options)?;
    let mut facts = origin.cpu_facts(&mut guest)?;

    // The guest is moved into the scope: when that is left, for whatever reason, it is killed, its
    // end of the pipe is closed, and the reader ends.
    let mut ledgers: Vec<Ledger> = Vec::new();
    let late = &measured.symbols;
    let mut notes = BTreeMap::new();
    let (outcome, output, facts, peak) = thread::scope(|scope| {
        let mut guest = guest;
        let (ready, symbols_ready) = channel();
        if origin.final_symbols().is_some() {
            let _ = ready.send(());
        }
        let reader = scope.spawn(move || {
            let spooled: Box<dyn Read> = match origin.final_symbols() {
                Some(_) => Box::new(stream),
                None => Box::new(spool(stream)),
            };
            // The guest ended before the symbols were ready.
            if symbols_ready.recv().is_err() {
                return PluginOutput::default();
            }
            match late.get().map(|late| &**late).or_else(|| origin.table()) {
                Some(symbols) => follow(spooled, symbols, traced, None, done),
                None => PluginOutput::default(),
            }
        });
        let outcome = (|| -> Result<(), EngineError> {
            guest.go_on()?;
            let ran = guest.answers(limit, |reply| {
                match reply {
                    Reply::BlockDone { ledger, .. } => ledgers.push(ledger),
                    Reply::Facts(guest_facts) => notes.extend(guest_facts),
                    _ => {}
                }
                Ok(())
            });
            let failed = match ran {
                Ok(()) => None,
                // The agent is running, and has reported the blocks before that.
                Err(error @ VmError::CommandFailed { .. }) => Some(error),
                Err(error) => return Err(error.into()),
            };
            if origin.final_symbols().is_none() {
                guest.answers(limit, |reply| {
                    if let Reply::Facts(guest_facts) = reply {
                        facts.extend(guest_facts);
                    }
                    Ok(())
                })?;
                let text = guest.bytes(limit)?;
                let _ = late.set(Arc::new(receive::symbols(&text, origin.release())?));
                let _ = ready.send(());
            }
            failed.map_or(Ok(()), |error| Err(error.into()))
        })();
        let peak = guest.peak_memory_bytes().unwrap_or(0);
        drop((guest, ready));
        let output = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (outcome, output, facts, peak)
    });
    measured.facts = facts;
    measured.notes = notes;
    measured.qemu_peak_bytes = peak;
    measured.losses = output.losses;
    measured.instructions = output.instructions;
    measured.nodes = output.nodes;
    if let Some(refused) = output.refused {
        return Err(refused);
    }
    traced.check(&output.losses)?;
    let with_args = beside.trace.is_some_and(Trace::has_args);
    let known = beside.known.filter(|_| with_args);
    let symbols = late.get().map(|late| &**late);
    if let (Some(known), Some(symbols)) = (known, symbols.or_else(|| origin.table())) {
        measured.prototypes = prototypes::of_calls(known, symbols, &[], output.windows.iter());
    }
    let (got, wanted) = (output.windows.len(), ledgers.len());
    let mut ledgers = ledgers.into_iter();
    // Windows that the agent could not report any more are complete nevertheless.
    measured.blocks = output
        .windows
        .into_iter()
        .map(|window| {
            let ledger = ledgers.next();
            (window, ledger.unwrap_or_else(|| unknown_ledger(plan.packets)))
        })
        .collect();
    let outcome = outcome.and_then(|()| receive::seen(&measured.blocks, origin.release()));
    match (outcome, output.error) {
        // The stream after the last block ends where QEMU was killed.
        (Ok(()), _) if got == wanted => Ok(()),
        (Ok(()), Some(stream)) => Err(stream.into()),
        (Ok(()), None) => Err(EngineError::WindowsMissing { got, wanted }),
        (outcome, _) => outcome,
    }
}

/// Windows of a round, with what they refer to.
struct Round {
    windows: Vec<Window>,
    nodes: Vec<TreeNode>,
    losses: Losses,
}

/// Measure an arm in rounds of its blocks, in one guest that runs until `part`, which receives each
/// round, stops it. At most two rounds are in memory: until they are taken, the guest waits.
///
/// # Errors
/// The guest or its stream ended.
pub(crate) fn measure_on(
    origin: &Origin,
    plan: &RunPlan,
    wires: Extra,
    sampling: Option<&Sampling>,
    options: &Options,
    part: &mut dyn FnMut(ArmCounts) -> bool,
) -> Result<(), EngineError> {
    let limit = options.timeout;
    let (stream, extra) = tap(&[])?;
    let guest = origin.start(&[Request::RunOn(plan.clone())], extra.and(wires), options)?;
    let Some(symbols) = origin.symbols.as_ref().filter(|all| all.table().is_some()) else {
        let why = "unavailable: a run with a duration needs saved states, which this kernel does not \
                   support; use --blocks instead";
        return Err(EngineError::Guest(why.into()));
    };
    let late = &OnceLock::new();
    thread::scope(|scope| {
        // Moved into the scope, as in `try_measure`.
        let mut guest = guest;
        let (sender, rounds) = sync_channel(1);
        let (ready, symbols_ready) = channel();
        let blocks = plan.blocks as usize;
        let reader = scope.spawn(move || {
            symbols_ready.recv().ok()?;
            let late = late.get().map(|late: &Arc<SymbolTable>| &**late);
            let symbols = late.or_else(|| symbols.table())?;
            follow_rounds(stream, symbols, sampling, blocks, &sender)
        });
        let result = (|| -> Result<bool, EngineError> {
            guest.go_on()?;
            let mut notes = BTreeMap::new();
            let mut before = Losses::default();
            loop {
                let mut ledgers = Vec::new();
                while ledgers.len() < blocks {
                    match guest.answer(limit)? {
                        Some(Reply::BlockDone { ledger, .. }) => ledgers.push(ledger),
                        Some(Reply::Facts(guest_facts)) => notes.extend(guest_facts),
                        // Before the first block.
                        Some(Reply::Chunk(modules)) => {
                            if !modules.is_empty() {
                                let _ = late.set(Arc::new(symbols.with_modules(&modules)?));
                            }
                            let _ = ready.send(());
                        }
                        Some(_) => {}
                        None => {
                            return Err(EngineError::WindowsMissing { got: 0, wanted: blocks });
                        }
                    }
                }
                let Ok(Round { windows, nodes, losses }) = rounds.recv() else {
                    return Ok(false);
                };
                let measured = ArmCounts {
                    blocks: windows.into_iter().zip(ledgers).collect(),
                    nodes,
                    symbols: late.clone(),
                    losses: losses.since(&before),
                    notes: std::mem::take(&mut notes),
                    qemu_peak_bytes: guest.peak_memory_bytes().unwrap_or(0),
                    ..ArmCounts::default()
                };
                before = losses;
                receive::seen(&measured.blocks, origin.release())?;
                if !part(measured) {
                    return Ok(true);
                }
            }
        })();
        drop((guest, rounds, ready));
        let read = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match (result, read) {
            // Its stream ends where QEMU was killed, within a record or not.
            (Ok(true), _) => Ok(()),
            (Ok(false), Some(error)) => Err(error.into()),
            (result, _) => result.map(|_| ()),
        }
    })
}

/// Read windows from a stream in rounds of `blocks`, up to its end or until nobody takes them;
/// returns the error if it is damaged.
fn follow_rounds(
    stream: impl Read,
    symbols: &SymbolTable,
    sampling: Option<&Sampling>,
    blocks: usize,
    rounds: &SyncSender<Round>,
) -> Option<StreamError> {
    let rules = PathRules::built_in();
    let mut reader = StreamReader::new(stream);
    let mut accountant = Accountant::new(symbols, &rules).sampling(sampling);
    let mut windows = Vec::new();
    loop {
        match reader.next() {
            Ok(Some(record)) => windows.extend(accountant.take(record)),
            Ok(None) => return None,
            Err(error) => return Some(error),
        }
        if windows.len() < blocks {
            continue;
        }
        let round = Round {
            windows: std::mem::take(&mut windows),
            nodes: accountant.tree().nodes().to_vec(),
            losses: accountant.losses(),
        };
        if rounds.send(round).is_err() {
            return None;
        }
    }
}

/// The ledger of a block whose guest ended before reporting it.
fn unknown_ledger(packets: u32) -> Ledger {
    let packets = u64::from(packets);
    Ledger {
        offered: packets,
        delivered: 0,
        dropped: [("unknown: the run was interrupted".to_string(), packets)].into(),
    }
}

/// Read windows from a stream, up to its end. `serving` is the direction of all programs' system calls; none if markers
/// alone give it.
pub(crate) fn follow(
    stream: impl Read,
    symbols: &SymbolTable,
    traced: Traced<'_>,
    serving: Option<Direction>,
    done: &dyn Fn(),
) -> PluginOutput {
    let rules = PathRules::built_in();
    let mut reader = StreamReader::new(stream);
    let mut output = PluginOutput::default();
    let tracing = match traced.tracing(symbols, &Images::default()) {
        Ok(tracing) => tracing,
        Err(refused) => {
            output.refused = Some(refused);
            return output;
        }
    };
    let mut accountant = Accountant::new(symbols, &rules)
        .sampling(traced.beside.sampling)
        .tracing(tracing)
        .serving(serving);
    loop {
        match reader.next() {
            Ok(Some(record)) => {
                if let Some(window) = accountant.take(record) {
                    output.windows.push(window);
                    done();
                }
            }
            Ok(None) => break,
            Err(error) => {
                output.error = Some(error);
                break;
            }
        }
    }
    output.nodes = accountant.tree().nodes().to_vec();
    output.losses = accountant.losses();
    output.instructions = accountant.instructions();
    output
}

/// A buffer for a stream whose reader is not ready yet: the guest would otherwise wait.
pub(crate) struct Spool {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: Vec<u8>,
    at: usize,
}

/// Read ahead.
pub(crate) fn spool(mut stream: File) -> Spool {
    const CHUNK_BYTES: usize = 256 << 10;
    let (sender, chunks) = channel();
    thread::spawn(move || {
        loop {
            let mut chunk = vec![0; CHUNK_BYTES];
            let sent = match stream.read(&mut chunk) {
                Ok(0) => return,
                Ok(n) => {
                    chunk.truncate(n);
                    sender.send(Ok(chunk))
                }
                Err(error) => sender.send(Err(error)),
            };
            if sent.is_err() {
                return;
            }
        }
    });
    Spool { chunks, chunk: Vec::new(), at: 0 }
}

impl Read for Spool {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.chunk.len() {
            match self.chunks.recv() {
                Ok(chunk) => (self.chunk, self.at) = (chunk?, 0),
                Err(_) => return Ok(0),
            }
        }
        let n = buffer.len().min(self.chunk.len() - self.at);
        buffer[..n].copy_from_slice(&self.chunk[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

/// The plugin for a guest with these options, and the reading end of its pipe.
pub(crate) fn tap(options: &[String]) -> Result<(File, Extra), EngineError> {
    let plugin =
        memfd("netplumb-plugin", exact::PLUGIN).map_err(EngineError::host("hold the plugin"))?;
    let (stream, stream_end) = pipe().map_err(EngineError::host("make a pipe"))?;
    let extra = Extra {
        args: exact::qemu_args(plugin.as_raw_fd(), stream_end.as_raw_fd(), options),
        fds: vec![plugin, stream_end],
        cpu: None,
    };
    Ok((stream, extra))
}

/// A pipe: the end to read, and the end that another program writes to.
pub(crate) fn pipe() -> io::Result<(File, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both are new and nobody else's.
    let (read, write) = unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) };
    // The maximum size for an ordinary user; with a smaller one the guest waits more often. SAFETY:
    // a descriptor of ours and a number.
    unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, 1 << 20) };
    Ok((File::from(read), write))
}
