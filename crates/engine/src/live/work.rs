//! Work of this machine's CPUs, whatever it is for, window by window.

use std::thread;
use std::time::{Duration, Instant};

use netplumb_lab::vm::process::VmError;
use netplumb_model::events;
use netplumb_model::quantity::{FigureKey, Kind, Quantity, Scalar, Subject};
use netplumb_model::recording::{Block, Cost, Ledger, Recording, Total};
use netplumb_model::samples::{Sample, Samples};
use netplumb_model::span::{Span, SpanOf, StageKind};
use netplumb_model::spans::{Group, OPEN, THRESHOLD};
use netplumb_model::timing::{BUSY, WAITS_OPEN, Window};

use super::child::Running;
use super::plan::{Length, WorkPlan};
use super::{LiveEnd, LiveEvent, Probes};
use crate::error::EngineError;
use crate::index::add_costs;
use crate::schedule::Turn;
use crate::site::{self, Alone, Ended, Keeper, OneAtATime};
use netplumb_agent::outside::Cpus;

/// How long a command may take to end that was interrupted.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(1);
/// Polling interval.
const NAP: Duration = Duration::from_millis(10);
/// Maximum time to find source lines.
const PATIENCE: Duration = Duration::from_secs(30);
/// A last window that is a smaller part of the one before belongs to that.
const REST: f64 = 0.5;

impl Length {
    /// When the window ends of this number, from 1, of those since `began`.
    fn end(self, began: Instant, opened: Instant, number: u32) -> Instant {
        match self {
            // By the clock of all of them, so that the time to close one is not added to each: else the last one is too
            // short to count. Unless that takes most of a window.
            Length::Each(length) => {
                let planned = began + length * number;
                match planned > opened + length.mul_f64(REST) {
                    true => planned,
                    false => opened + length,
                }
            }
            Length::Growing { shortest, part } => {
                opened + shortest.max(opened.saturating_duration_since(began) / part.max(1))
            }
        }
    }

    /// How many make this duration, where that is known.
    fn number(self, duration: Duration) -> Option<u32> {
        match self {
            Length::Each(length) => {
                let number = duration.as_nanos().div_ceil(length.as_nanos().max(1));
                u32::try_from(number).ok()
            }
            Length::Growing { .. } => None,
        }
    }
}

/// Sample, window by window.
pub(super) fn run(
    work: &WorkPlan,
    mut probes: Probes<'_, '_>,
    keeper: &mut Keeper<'_>,
) -> Result<LiveEnd, EngineError> {
    probes.attach(Some(0), &|spec| spec.clone(), keeper.recording)?;
    probes.open()?;
    let began = Instant::now();
    let command = match work.command.is_empty() {
        true => None,
        false => {
            let (words, output) = (&work.command, work.output_to_stderr.into());
            let started = Running::start(words, None, &[], output, None);
            Some(
                started
                    .map_err(|source| EngineError::Command { name: words[0].clone(), source })?,
            )
        }
    };
    keeper.recording.arms = vec![work.arm()];
    let windows = work.duration.and_then(|all| work.length.number(all));
    let tell = probes.tell;
    let mut site = OneAtATime::new(Windows {
        work,
        probes,
        began,
        deadline: work.duration.map(|d| began + d),
        command,
        end: LiveEnd::default(),
        gone: None,
    });
    let turns = (0..).map(|index| Turn { arm: 0, by: 0, blocks: index..index + 1 });
    let ran = site::run(&mut site, turns, &[], keeper, &mut |recording, over| {
        (tell.borrow_mut())(LiveEvent::Block(recording, over, windows));
    });
    let Windows { mut end, command, gone, mut probes, .. } = site.site;
    match ran {
        // Without a duration that is how it ends.
        Err(EngineError::Vm(VmError::Interrupted)) if work.ends_by_signal() => {}
        ran => ran?,
    }
    if let Some(what) = gone {
        (tell.borrow_mut())(LiveEvent::Note(what));
    }
    end.stopped = command.is_some() && end.command.is_none();
    drop(command);
    finish(work, end, &mut probes, keeper.recording)
}

/// Find the source lines of measured functions, and check that anything was measured.
pub(super) fn finish(
    work: &WorkPlan,
    end: LiveEnd,
    probes: &mut Probes<'_, '_>,
    recording: &mut Recording,
) -> Result<LiveEnd, EngineError> {
    if !work.rolling {
        let until = Instant::now() + PATIENCE;
        probes.add_lines(recording, &|| Instant::now() < until);
    }
    let counted = |of| recording.scalars_of(of).next().is_some();
    let counted = [&events::COUNT, &events::TIME].into_iter().any(counted);
    let measured = counted || !recording.spans.is_empty();
    // The latest window alone may well be empty.
    match recording.costs.is_empty() && !measured && !work.rolling {
        false => Ok(end),
        true => Err(EngineError::NothingSeen { command: end.command }),
    }
}

/// The site: consecutive windows.
struct Windows<'a, 't> {
    work: &'a WorkPlan,
    probes: Probes<'a, 't>,
    began: Instant,
    deadline: Option<Instant>,
    command: Option<Running>,
    end: LiveEnd,
    /// The sampled object that is gone.
    gone: Option<String>,
}

/// Why waiting ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Woken {
    Time,
    /// The sampled object has ended.
    Ended,
    Cancelled,
}

impl Alone for Windows<'_, '_> {
    fn turn(&mut self, turn: &Turn, keeper: &mut Keeper<'_>) -> Result<Ended, EngineError> {
        if self.work.rolling {
            keeper.recording.forget_blocks();
            self.probes.forget(keeper.recording);
        }
        let cpus = Cpus::read();
        let opened = Instant::now();
        let until = self.work.length.end(self.began, opened, turn.blocks.end);
        let until = self.deadline.map_or(until, |d| d.min(until));
        let why = self.wait(until, keeper)?;
        let last = match why {
            Woken::Ended | Woken::Cancelled => true,
            Woken::Time => self.deadline.is_some_and(|d| Instant::now() >= d),
        };
        let window = match last {
            true => self.probes.close(),
            false => self.probes.turn(),
        };
        let window = window?.unwrap_or_default();
        let busy = cpus.and_then(|cpus| cpus.busy_since());
        self.add_window(&window, busy, keeper.recording);
        if last {
            join_rest(keeper.recording);
            self.probes.name_late(keeper.recording);
        }
        match why {
            Woken::Cancelled if !self.work.ends_by_signal() => Err(VmError::Interrupted.into()),
            _ if last => Ok(Ended::Last),
            _ => Ok(Ended::Measured),
        }
    }
}

impl Windows<'_, '_> {
    /// Wait until a window is over, for any reason.
    fn wait(&mut self, until: Instant, keeper: &Keeper<'_>) -> Result<Woken, EngineError> {
        loop {
            self.probes.poll()?;
            if keeper.is_cancelled() {
                if let Some(command) = &mut self.command {
                    // As at a terminal: its last work is measured, too.
                    self.end.interrupted = true;
                    let ended = command.interrupt(LAST_WORDS);
                    self.end.command = ended.map_err(EngineError::host("wait for the command"))?;
                }
                return Ok(Woken::Cancelled);
            }
            if let Some(command) = &mut self.command {
                let ended = command.ended();
                let ended = ended.map_err(EngineError::host("wait for the command"))?;
                if ended.is_some() {
                    self.end.command = ended;
                    return Ok(Woken::Ended);
                }
            }
            if let Some(pid) = self.work.pid.filter(|pid| has_ended(*pid)) {
                self.gone = Some(format!("process {pid} has ended"));
                return Ok(Woken::Ended);
            }
            let cgroup = self.work.cgroup.as_ref().filter(|path| !path.exists());
            if let Some(path) = cgroup {
                self.gone = Some(format!("the cgroup {} was removed", path.display()));
                return Ok(Woken::Ended);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Woken::Time);
            }
            thread::sleep(left.min(NAP));
        }
    }

    fn add_window(&mut self, window: &Window, busy: Option<f64>, recording: &mut Recording) {
        recording.blocks.push(Block {
            arm: 0,
            instrument: self.probes.name().into(),
            index: recording.blocks.len() as u32,
            ledger: Ledger::default(),
            totals: Vec::new(),
            entered: 0,
            returned: 0,
            duration_ns: window.duration_ns,
        });
        let block = recording.blocks.len() as u32 - 1;
        self.probes.gather(recording, &[block], window);
        if let Some(busy) = busy {
            recording.add(Subject::Block(block), &BUSY, FigureKey::ONLY, busy);
        }
    }
}

/// Whether a process is gone, or nobody has asked yet how it ended.
fn has_ended(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return true;
    };
    // The state comes after the name, which may contain anything.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('Z' | 'X'))
}

/// Add the last block to the one before if it is much shorter: the end of a command, or of a stopped run, is not a
/// repetition of the block before. That one is saved already, and written again.
fn join_rest(recording: &mut Recording) {
    let [.., before, last] = &recording.blocks[..] else {
        return;
    };
    if last.duration_ns as f64 >= before.duration_ns as f64 * REST {
        return;
    }
    let to = recording.blocks.len() as u32 - 2;
    let Some(last) = recording.blocks.pop() else {
        return;
    };
    let block = &mut recording.blocks[to as usize];
    block.duration_ns += last.duration_ns;
    for total in last.totals {
        match block.totals.iter_mut().find(|t| t.quantity == total.quantity) {
            Some(of) => {
                of.kernel += total.kernel;
                of.user += total.user;
            }
            None => block.totals.push(Total { ..total }),
        }
    }
    let of_both = |block: u32| block >= to;
    let (both, others): (Vec<Cost>, Vec<Cost>) =
        (recording.costs.drain(..)).partition(|cost| of_both(cost.block));
    recording.costs = others;
    join_times(recording, to);
    let quantities = 0..recording.quantities.len() as u32;
    let (rest, kept) =
        (recording.samples.drain(..)).partition(|samples: &Samples| of_both(samples.block));
    recording.samples = kept;
    let rest: Vec<Samples> = rest;
    for quantity in quantities {
        let of = rest.iter().filter(|samples| samples.quantity == quantity);
        let singles: Vec<Sample> = of.flat_map(Samples::iter).collect();
        let count = both.iter().filter(|cost| cost.quantity == quantity).map(|cost| cost.calls);
        // If all of them are known.
        if !singles.is_empty() && count.sum::<u64>() == singles.len() as u64 {
            recording.add_samples(Samples::new(to, quantity, singles));
            continue;
        }
        let of = both.iter().filter(|cost| cost.quantity == quantity);
        let of: Vec<Cost> = of.map(|cost| Cost { block: to, ..*cost }).collect();
        add_costs(recording, of.into_iter());
    }
    let (ended, kept) =
        (recording.scalars.drain(..)).partition(|scalar| scalar.block() == Some(to + 1));
    recording.scalars = kept;
    let ended: Vec<_> = ended;
    for scalar in ended {
        let quantity: Option<&Quantity> = recording.quantities.get(scalar.quantity as usize);
        let adds_up = quantity.is_some_and(|q| matches!(q.kind, Kind::Count | Kind::Duration));
        // What is left at the end replaces what was left before.
        let is_left =
            quantity.is_some_and(|q| [WAITS_OPEN, OPEN, THRESHOLD].iter().any(|of| q.is(of)));
        let same = recording.scalars.iter_mut().find(|s| {
            s.block() == Some(to) && s.quantity == scalar.quantity && s.item == scalar.item
        });
        match same {
            Some(same) if is_left => same.value = scalar.value,
            Some(same) if adds_up => same.value += scalar.value,
            // A cause that came last.
            None if adds_up => recording.scalars.push(Scalar { of: Subject::Block(to), ..scalar }),
            _ => {}
        }
    }
}

/// Add times between events of the block after this one to it.
fn join_times(recording: &mut Recording, to: u32) {
    let mut spans: Vec<Span> = Vec::new();
    for mut span in std::mem::take(&mut recording.spans) {
        span.block = span.block.min(to);
        let name = |span: &Span| span.stage().map(|stage| stage.name.clone());
        let same = |known: &&mut Span| known.block == to && name(known) == name(&span);
        let known = match span.block == to {
            true => spans.iter_mut().rev().find(same),
            false => None,
        };
        let Some(known) = known else {
            spans.push(span);
            continue;
        };
        known.times.add(&span.times);
        if let (SpanOf::Stage(known), SpanOf::Stage(more)) = (&mut known.of, &span.of) {
            known.passed_over += more.passed_over;
        }
    }
    recording.spans = spans;
    pass_over(recording, to);
    let mut groups: Vec<Group> = Vec::new();
    for mut group in std::mem::take(&mut recording.groups) {
        group.block = group.block.min(to);
        let same = |known: &&mut Group| known.block == to && known.name == group.name;
        match groups.iter_mut().rev().find(same) {
            Some(known) => known.times.add(&group.times),
            None => groups.push(group),
        }
    }
    recording.groups = groups;
    for slice in &mut recording.slices {
        slice.block = slice.block.min(to);
    }
}

/// A stage was passed over by all that did not go through it, also where one of the blocks has no such stage.
fn pass_over(recording: &mut Recording, block: u32) {
    let of_block = |span: &&Span| span.block == block;
    let total = recording.spans.iter().filter(of_block).find(|span| {
        let stage = span.stage();
        stage.is_some_and(|stage| stage.kind == StageKind::Total)
    });
    let Some(all) = total.map(|span| span.times.count) else {
        return;
    };
    for span in recording.spans.iter_mut().filter(|span| span.block == block) {
        if let SpanOf::Stage(stage) = &mut span.of {
            stage.passed_over = all.saturating_sub(span.times.count);
        }
    }
}

#[cfg(test)]
mod tests {
    use netplumb_model::class::{Context, Direction};
    use netplumb_model::timing::{CPU_TIME, REACHED, USER_STACKS, WAITS_OPEN};

    use super::*;

    fn block(recording: &mut Recording, duration_ns: u64, own: u64) {
        let quantity = recording.quantity(&CPU_TIME);
        let number = recording.blocks.len() as u32;
        recording.blocks.push(Block {
            arm: 0,
            instrument: "samples".into(),
            index: number,
            ledger: Ledger::default(),
            totals: vec![Total { quantity, kernel: own, user: 0 }],
            entered: 0,
            returned: 0,
            duration_ns,
        });
        recording.costs.push(Cost {
            block: number,
            quantity,
            direction: Direction::Run,
            context: Context::Task,
            node: 0,
            calls: 1,
            own,
        });
        recording.add(Subject::Block(number), &USER_STACKS, FigureKey::ONLY, 3.0);
        recording.add(Subject::Block(number), &REACHED, FigureKey::ONLY, 997.0);
        recording.add(Subject::Block(number), &WAITS_OPEN, FigureKey::ONLY, 5.0);
    }

    /// Check that windows end by the clock of all of them, however late each is opened, so that there are as many as
    /// were planned; and that one which is opened very late is as long as others.
    #[test]
    fn ends_of_windows() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let each = Length::Each(Duration::from_millis(100));
        assert_eq!(each.end(began, at(0), 1), at(100));
        assert_eq!(each.end(began, at(130), 2), at(200));
        assert_eq!(each.end(began, at(440), 5), at(500));
        assert_eq!(each.end(began, at(180), 2), at(280));
        let growing = Length::Growing { shortest: Duration::from_millis(50), part: 10 };
        assert_eq!(growing.end(began, at(0), 1), at(50));
        assert_eq!(growing.end(began, at(1000), 9), at(1100));
    }

    /// Check that a short rest is added to the block before, with its costs and counts and not its
    /// rates, nor what was left both times, and that a long one is a block.
    #[test]
    fn rests() {
        let mut recording = Recording::default();
        for (duration_ns, own) in [(100, 5), (100, 6), (20, 2)] {
            block(&mut recording, duration_ns, own);
        }
        join_rest(&mut recording);
        let costs: Vec<(u32, u64)> = recording.costs.iter().map(|c| (c.block, c.own)).collect();
        assert_eq!(costs, [(0, 5), (1, 8)]);
        let durations: Vec<u64> = recording.blocks.iter().map(|b| b.duration_ns).collect();
        assert_eq!(durations, [100, 120]);
        assert_eq!(recording.blocks[1].totals[0].kernel, 8);
        let values = |of| recording.scalars_of(of).map(|s| s.value);
        assert_eq!(values(&USER_STACKS).collect::<Vec<_>>(), [3.0, 6.0]);
        assert_eq!(values(&REACHED).collect::<Vec<_>>(), [997.0, 997.0]);
        assert_eq!(values(&WAITS_OPEN).collect::<Vec<_>>(), [5.0, 5.0]);
        block(&mut recording, 90, 1);
        join_rest(&mut recording);
        assert_eq!(recording.blocks.len(), 3);
    }
}
