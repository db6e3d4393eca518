//! Benches in the guest: blocks of rates, or counted instructions.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use netplumb_instruments::rates::cpu;
use netplumb_model::bench::{BenchArm, Handled, Limit, Since};
use netplumb_model::message::{CountPlan, Refused, Reply};
use netplumb_model::recording::Ledger;
use netplumb_sys::cpus;
use netplumb_workload::mark::{self, Counting, mark};

use super::{Agent, nics};
use crate::bench::Own;
use crate::bench::block::{self, BlockResult, Stand};
use crate::error::BlockError;

/// Default `PATH`: the kernel starts init without one.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// Time for new devices, and for deferred work after loading programs, before anything is counted;
/// with an instruction clock it takes no real time.
const SETTLE: Duration = Duration::from_secs(3);
/// Time for readers of packets in each block, more than any needs.
const REST: Duration = Duration::from_millis(20);

type SendReply<'a> = &'a mut dyn FnMut(Reply) -> io::Result<()>;

impl Agent {
    /// A block of rates.
    pub(super) fn bench_block(
        &self,
        arm: &BenchArm,
        times: [u64; 2],
        limit: Limit,
        reply: SendReply<'_>,
    ) -> Result<(), Refused> {
        name_programs();
        let times = times.map(Duration::from_nanos);
        let own = match nics::take(arm) {
            Ok(own) => own,
            Err(error) => return cannot(error, reply),
        };
        let ran =
            block::measure(arm, own.as_ref(), times, limit, &Arc::new(AtomicBool::new(false)));
        own.map_or(Ok(()), Own::end).map_err(|e| e.to_string())?;
        let answer = match ran.map_err(|e| e.to_string())? {
            BlockResult::Measured(measured, mut facts) => {
                facts.extend(cpu::facts());
                facts.insert("machine.cpus".into(), "1".into());
                Reply::BenchBlock(measured, facts)
            }
            BlockResult::CannotHere(why) => Reply::BenchCannot(why),
        };
        Ok(reply(answer)?)
    }

    /// The rate of the generator alone.
    pub(super) fn bench_limit(&self, arm: &BenchArm, reply: SendReply<'_>) -> Result<(), Refused> {
        name_programs();
        match block::calibrate_for(arm) {
            Ok(limit) => Ok(reply(Reply::BenchLimit(limit))?),
            Err(error) => cannot(error, reply),
        }
    }

    /// Trace where packets go.
    pub(super) fn bench_diagnose(
        &self,
        arm: &BenchArm,
        reply: SendReply<'_>,
    ) -> Result<(), Refused> {
        name_programs();
        let own = nics::take(arm).map_err(|e| e.to_string())?;
        let found = block::diagnose(arm, own.as_ref(), &Arc::new(AtomicBool::new(false)));
        own.map_or(Ok(()), Own::end).map_err(|e| e.to_string())?;
        let found = found.map_err(|e| e.to_string())?;
        Ok(reply(Reply::Diagnosis(found))?)
    }

    /// Count the instructions of frames along a path. No message is sent before the last block is
    /// complete.
    pub(super) fn bench_count(
        &self,
        plan: &CountPlan,
        reply: SendReply<'_>,
    ) -> Result<(), Refused> {
        name_programs();
        let (mut stand, frames) = match stand(&plan.arm) {
            Ok(stands) => stands,
            Err(error) => return cannot(error, reply),
        };
        thread::sleep(SETTLE);
        // Before anything is counted, since this takes a hundred times as many instructions.
        let symbols = program_symbols().map_err(|e| format!("read the kernel's symbols: {e}"))?;
        // A reader runs after each batch. From 6.6 on (EEVDF) it would otherwise wait until the sender's slice ends, after
        // all batches, and its socket's buffer would overflow.
        cpus::let_others_preempt(true).map_err(|e| format!("let readers preempt: {e}"))?;
        let counted = count_blocks(plan, &mut stand, &frames);
        cpus::let_others_preempt(false).map_err(|e| format!("let no reader preempt: {e}"))?;
        let ledgers = counted?;
        for (index, ledger) in (0..).zip(ledgers) {
            reply(Reply::BlockDone { index, ledger })?;
        }
        reply(Reply::Chunk(symbols))?;
        let facts = stand.facts(&plan.arm).map_err(|e| e.to_string())?;
        Ok(reply(Reply::Facts(facts))?)
    }
}

/// Warm up, and send the frames of each block in a window.
fn count_blocks(
    plan: &CountPlan,
    stand: &mut Stand,
    frames: &netplumb_workload::frames::Bounded,
) -> Result<Vec<Ledger>, String> {
    let message = |e: BlockError| e.to_string();
    let _counting = Counting::begin();
    frames.send(plan.warmup_frames).map_err(|e| format!("warm-up: {e}"))?;
    thread::sleep(REST);
    let mut before = stand.handled().map_err(message)?;
    let mut ledgers = Vec::new();
    for index in 0..plan.blocks {
        mark::<{ mark::WINDOW_BEGIN }>();
        let sent = frames.send(plan.frames);
        thread::sleep(REST);
        mark::<{ mark::WINDOW_END }>();
        sent.map_err(|e| format!("block {index}: {e}"))?;
        let now = stand.handled().map_err(message)?;
        ledgers.push(ledger(plan.frames, &now.since(&before)));
        before = now;
    }
    Ok(ledgers)
}

fn stand(arm: &BenchArm) -> Result<(Stand, netplumb_workload::frames::Bounded), BlockError> {
    let stand = Stand::build(arm, None)?;
    let frames = stand.bounded(arm)?;
    Ok((stand, frames))
}

/// The ledger of a number of frames.
fn ledger(frames: u32, came: &Handled) -> Ledger {
    let offered = u64::from(frames);
    let delivered = came.total();
    let mut dropped = came.lost.clone();
    let known = delivered + dropped.values().sum::<u64>();
    if known < offered {
        dropped.insert("unaccounted".into(), offered - known);
    }
    Ledger { offered, delivered, dropped }
}

fn cannot(error: BlockError, reply: SendReply<'_>) -> Result<(), Refused> {
    let why = block::why_not(error).map_err(|e| e.to_string())?;
    Ok(reply(Reply::BenchCannot(why))?)
}

/// Lines of /proc/kallsyms with BPF programs, which are not in the symbol table from before they
/// were loaded.
fn program_symbols() -> io::Result<Vec<u8>> {
    symbols(|line| line.ends_with(b"[bpf]"))
}

/// The lines of /proc/kallsyms that are wanted.
pub(super) fn symbols(is_wanted: impl Fn(&[u8]) -> bool) -> io::Result<Vec<u8>> {
    let mut file = BufReader::new(File::open("/proc/kallsyms")?);
    let (mut lines, mut line) = (Vec::new(), Vec::new());
    while file.read_until(b'\n', &mut line)? > 0 {
        if is_wanted(line.trim_ascii_end()) {
            lines.extend_from_slice(&line);
        }
        line.clear();
    }
    Ok(lines)
}

/// Set `PATH` if it is not set.
fn name_programs() {
    if std::env::var_os("PATH").is_none() {
        // SAFETY: the agent carries out one request at a time, and no thread of an earlier
        // one is left.
        unsafe { std::env::set_var("PATH", PATH) };
    }
}
