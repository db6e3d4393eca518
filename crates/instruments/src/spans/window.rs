//! Windows of spans: times, their groups, and a ledger of begun ones.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use netplumb_model::class::{Direction, Family, Proto};
use netplumb_model::loss::Loss;
use netplumb_model::quantity::{Figure, FigureKey};
use netplumb_model::span::{StageKind, Times};
use netplumb_model::spans::{
    APART, BEGUN, BEGUN_AGAIN, BETWEEN_NOT_BEGUN, By, ENDED, Group, NO_ROOM, NOT_BEGUN, OPEN,
    OUT_OF_ORDER, PROGRAMS, RUNS, SEEN, SLOW, STACKS, Slice, Slow, SpansSpec, THRESHOLD, TOO_DEEP,
    UNMATCHED, coarse,
};
use netplumb_model::timing::{Attached as Facts, Costs, StageTimes, TimingSpec, Window};
use netplumb_stats::histogram::quantile;
use netplumb_sys::cpus;

use super::attached::Attached;
use super::layout::{Counts, Known, row, rows};
use super::plan::Plan;
use crate::capability::lockdown;
use crate::live::{self, Live, LiveError};
use crate::own::process_ns;
use crate::samples::{Causes, Scope};

/// How often records are read: a process may be gone soon.
const POLL: Duration = Duration::from_millis(40);
/// The shortest slice of a picture over time; later ones are this part of the elapsed time, so that
/// hours have some hundred.
const SHORTEST: Duration = Duration::from_millis(50);
const PART: u32 = 100;

/// Events that are attached to, window by window.
#[derive(Debug)]
pub(super) struct Between {
    plan: Plan,
    by: Option<By>,
    slow: Option<Slow>,
    attached: Attached,
    causes: Option<Causes>,
    facts: Facts,
    /// What ended in this window so far.
    times: BTreeMap<usize, Times>,
    groups: BTreeMap<String, Times>,
    stacks: BTreeMap<u64, Known>,
    slices: Vec<Slice>,
    /// All that ended so far, the base of shares.
    all: Times,
    begun: Option<Instant>,
    opened: Instant,
    /// When counting stopped, for a window that is not closed yet.
    stopped: Option<Instant>,
    polled: Instant,
    sliced: Instant,
    counts: Counts,
    misses: u64,
    reader_ns: u64,
}

impl Between {
    pub(super) fn attach(spec: &TimingSpec, asked: &SpansSpec) -> Result<Between, LiveError> {
        let begun = Instant::now();
        let reader_ns = process_ns();
        let scope = Scope::new(asked.children, &spec.filter);
        let mut plan = Plan::from_spec(asked, true)?;
        let mut probes = None;
        let mut attached = match Attached::load(&plan, scope) {
            Err(error) if !plan.trampolines().is_empty() => {
                let names = plan.trampolines().join(", ");
                let neither = |other: LiveError| neither(&names, &error, other);
                plan = Plan::from_spec(asked, false).map_err(neither)?;
                probes = Some(format!("{names}: {error}"));
                Attached::load(&plan, scope)?
            }
            loaded => loaded?,
        };
        if let Some(Slow::Ns(ns)) = asked.slow {
            attached.set_slow(ns);
        }
        let causes = match asked.by {
            Some(By::Stack) => {
                let cpus = cpus::online();
                let cpus = cpus.map_err(LiveError::system("read which CPUs are online"))?;
                let cpus: Vec<u32> = cpus.into_iter().collect();
                Some(Causes::watch(&cpus, asked.children, spec.filter.pid)?)
            }
            _ => None,
        };
        let names: Vec<&str> = (0..plan.events.len()).map(|n| plan.name(n)).collect();
        let mut facts = BTreeMap::from([
            ("spans.events".to_string(), names.join(" → ")),
            ("spans.key".to_string(), plan.keys()),
        ]);
        if let Some(why) = probes {
            facts.insert("spans.probes".into(), why);
        }
        if let Some(by) = asked.by {
            facts.insert("spans.by".into(), by.to_string());
        }
        if let Some(slow) = asked.slow {
            facts.insert("spans.slow".into(), slow.to_string());
        }
        Ok(Between {
            by: asked.by,
            slow: asked.slow,
            counts: attached.counts()?,
            misses: attached.misses(),
            plan,
            attached,
            causes,
            facts: Facts {
                attach_ns: begun.elapsed().as_nanos() as u64,
                facts,
                ..Facts::default()
            },
            times: BTreeMap::new(),
            groups: BTreeMap::new(),
            stacks: BTreeMap::new(),
            slices: Vec::new(),
            all: Times::default(),
            begun: None,
            opened: begun,
            stopped: None,
            polled: begun,
            sliced: begun,
            reader_ns,
        })
    }

    fn take(&mut self) -> Result<(), LiveError> {
        self.polled = Instant::now();
        let arrived = self.attached.poll()?;
        if let Some(causes) = &mut self.causes {
            causes.take(arrived.iter().map(Vec::as_slice));
        }
        Ok(())
    }

    /// Take what has ended since the last call, as a slice that ends at `until`.
    fn slice(&mut self, until: Instant) -> Result<(), LiveError> {
        let taken = self.attached.take()?;
        let whole = rows(self.plan.events.len()) - 1;
        let begin_ns = self.since_begun(self.sliced);
        if let Some(times) = taken.times.get(&whole) {
            self.all.add(times);
            self.slices.push(Slice {
                block: 0,
                begin_ns,
                duration_ns: until.saturating_duration_since(self.sliced).as_nanos() as u64,
                buckets: coarse(&times.buckets),
            });
        }
        self.sliced = until;
        for (row, times) in &taken.times {
            self.times.entry(*row).or_default().add(times);
        }
        for (name, times) in &taken.groups {
            self.groups.entry(name.clone()).or_default().add(times);
        }
        for (hash, more) in taken.stacks {
            let known = self.stacks.entry(hash).or_default();
            known.count += more.count;
            known.ns += more.ns;
            known.slow += more.slow;
            known.slow_ns += more.slow_ns;
        }
        if let Some(Slow::Share(share)) = self.slow
            && self.all.count >= netplumb_model::spans::ENOUGH
        {
            self.attached.set_slow(threshold(&self.all, share));
        }
        Ok(())
    }

    fn since_begun(&self, at: Instant) -> u64 {
        let begun = self.begun.unwrap_or(at);
        at.saturating_duration_since(begun).as_nanos() as u64
    }

    /// The stages of the window, in the order of their events, and the whole.
    fn stages(&self) -> Vec<StageTimes> {
        let count = self.plan.events.len();
        let times = |row: usize| self.times.get(&row).cloned().unwrap_or_default();
        let whole = times(rows(count) - 1);
        let stage = |order: usize, name: String, kind: StageKind, times: Times| StageTimes {
            proto: Proto::Work,
            family: Family::V4,
            direction: Direction::Run,
            order: order as u16,
            name,
            kind,
            passed_over: whole.count.saturating_sub(times.count),
            own_ns: 0,
            times,
        };
        let mut stages = Vec::new();
        for from in 0..count {
            for to in from + 1..count {
                let times = times(row(from, to));
                // Spans that skip an event have a stage of their own, if there are any.
                if to == from + 1 || times.count > 0 {
                    let (name, kind) = (self.plan.stage(from, to), self.plan.kind(from, to));
                    stages.push(stage(from * count + to, name, kind, times));
                }
            }
        }
        if whole.count == 0 {
            return Vec::new();
        }
        stages.push(stage(count * count, "total".into(), StageKind::Total, whole.clone()));
        stages
    }

    /// The call graphs of the causes of ended spans.
    fn costs(&mut self) -> Result<(Vec<Costs>, u64), LiveError> {
        let stacks = std::mem::take(&mut self.stacks);
        let Some(causes) = &mut self.causes else {
            return Ok((Vec::new(), 0));
        };
        causes.name(stacks.keys().copied())?;
        let all = stacks.iter().filter(|(_, known)| known.count > 0);
        let all = all.map(|(hash, known)| (None, *hash, (known.count, known.ns)));
        let (costs, unknown) = causes.costs(all, &STACKS);
        let mut found = vec![costs];
        if self.slow.is_some() {
            let slow = stacks.iter().filter(|(_, known)| known.slow > 0);
            let slow = slow.map(|(hash, known)| (None, *hash, (known.slow, known.slow_ns)));
            found.push(causes.costs(slow, &SLOW).0);
        }
        causes.bound();
        Ok((found, unknown))
    }

    /// The window until now.
    fn window(&mut self, last: bool) -> Result<Window, LiveError> {
        self.take()?;
        let stopped = self.stopped.take();
        self.slice(stopped.unwrap_or_else(Instant::now))?;
        if last {
            // What programs wrote to the other half as it was taken.
            self.slice(Instant::now())?;
        }
        self.take()?;
        let now = stopped.unwrap_or_else(Instant::now);
        let counts = self.attached.counts()?;
        let misses = self.attached.misses();
        // Counted apart from what began, so that the ledger shows if they differ.
        let open = match last {
            true => Some(self.attached.give_up()?),
            false => None,
        };
        let stages = self.stages();
        let (costs, unknown) = self.costs()?;
        let figures = self.figures(&counts, open);
        let losses = self.lost(&counts, misses, unknown);
        let reader_ns = process_ns();
        let own_cpu_ns =
            (reader_ns - self.reader_ns) + counts.run_ns.saturating_sub(self.counts.run_ns);
        let by = self.by.unwrap_or(By::Stack);
        let groups = std::mem::take(&mut self.groups).into_iter();
        let window = Window {
            duration_ns: now.saturating_duration_since(self.opened).as_nanos() as u64,
            stages,
            own_cpu_ns,
            figures,
            costs,
            losses,
            groups: groups.map(|(name, times)| Group { block: 0, by, name, times }).collect(),
            slices: std::mem::take(&mut self.slices),
            ..Window::default()
        };
        self.times.clear();
        self.counts = counts;
        self.misses = misses;
        self.reader_ns = reader_ns;
        self.opened = now;
        Ok(window)
    }

    fn figures(&self, counts: &Counts, open: Option<u64>) -> Vec<Figure> {
        let since = |of: fn(&Counts) -> u64| of(counts).saturating_sub(of(&self.counts)) as f64;
        let mut figures = vec![
            Figure::new(&BEGUN, since(|c| c.begun)),
            Figure::new(&ENDED, since(|c| c.ended)),
            Figure::new(&PROGRAMS, since(|c| c.run_ns)),
            Figure::new(&RUNS, since(|c| c.seen.iter().sum())),
        ];
        figures.extend(open.map(|open| Figure::new(&OPEN, open as f64)));
        let mut named = BTreeSet::new();
        for n in 0..self.plan.events.len() {
            // An event that is listed twice is seen by two programs.
            if named.insert(self.plan.name(n)) {
                let seen = counts.seen[n].saturating_sub(self.counts.seen[n]);
                let figure = Figure::new(&SEEN, seen as f64);
                figures.push(figure.with_key(FigureKey::label(self.plan.name(n))));
            }
        }
        let causes = [
            (&UNMATCHED, BEGUN_AGAIN, since(|c| c.again)),
            (&UNMATCHED, NO_ROOM, since(|c| c.no_room)),
            (&UNMATCHED, TOO_DEEP, since(|c| c.too_deep)),
            (&APART, NOT_BEGUN, since(|c| c.not_begun)),
            (&APART, BETWEEN_NOT_BEGUN, since(|c| c.between)),
            (&APART, OUT_OF_ORDER, since(|c| c.out_of_order)),
        ];
        let causes = causes.into_iter().filter(|(.., count)| *count > 0.0);
        figures
            .extend(causes.map(|(of, cause, count)| {
                Figure::new(of, count).with_key(FigureKey::label(cause))
            }));
        if self.slow.is_some() && self.attached.slow_ns() < u64::MAX {
            figures.push(Figure::new(&THRESHOLD, self.attached.slow_ns() as f64));
        }
        figures
    }

    /// The window's losses.
    fn lost(&mut self, counts: &Counts, misses: u64, unknown: u64) -> Vec<Loss> {
        let changes = self.causes.as_mut().map_or(0, Causes::lost);
        let since = |of: fn(&Counts) -> u64| of(counts).saturating_sub(of(&self.counts));
        live::losses([
            (
                "begun, and no room in the table",
                since(|c| c.no_room),
                "too many were under way: their times are missing",
            ),
            (
                "events at which a program did not run",
                misses.saturating_sub(self.misses),
                "it was running on that CPU already: the ledger has no such event",
            ),
            ("events whose key could not be read", since(|c| c.no_key), "they are in no pair"),
            (
                "times without a stack",
                since(|c| c.lost_stacks) + unknown,
                "too many stacks: these times are not in the call graph",
            ),
            (
                "times without a group",
                since(|c| c.lost_groups),
                "too many groups: these times are in none",
            ),
            (
                "stacks with more than 127 frames",
                since(|c| c.cut),
                "their outermost frames are missing",
            ),
            (
                "new processes that were not followed",
                since(|c| c.processes_dropped),
                "what they began is missing",
            ),
            (
                "unreported changes of processes",
                changes,
                "code that was mapped then may have no name",
            ),
        ])
    }
}

/// The error for functions with neither a trampoline nor a kprobe.
fn neither(names: &str, trampoline: &LiveError, kprobe: LiveError) -> LiveError {
    match (kprobe, lockdown().filter(|mode| mode != "none")) {
        (LiveError::CannotRun { .. }, Some(mode)) => LiveError::CannotRun {
            reason: format!("can't attach to {names}"),
            remedy: format!(
                "kernel lockdown ({mode}) forbids probes in functions: boot without lockdown, or \
                 measure in a guest, with --lab vm"
            ),
        },
        (LiveError::CannotRun { remedy, .. }, None) => LiveError::CannotRun {
            reason: format!("can't attach to {names}"),
            remedy: format!("{trampoline}; and by a kprobe: {remedy}"),
        },
        (other, _) => other,
    }
}

/// The time that a share of times stays below, as in tables.
fn threshold(times: &Times, share: f64) -> u64 {
    let found = quantile(&times.buckets, share, times.min_ns, times.max_ns);
    found.map_or(u64::MAX, |ns| ns as u64)
}

impl Live for Between {
    fn attached(&self) -> &Facts {
        &self.facts
    }

    fn open(&mut self) -> Result<(), LiveError> {
        // Also after a window was closed: the next block is another one.
        if !self.attached.is_attached() {
            self.attached.begin(&self.plan)?;
        }
        self.opened = Instant::now();
        self.sliced = self.opened;
        self.begun.get_or_insert(self.opened);
        Ok(())
    }

    fn poll(&mut self) -> Result<(), LiveError> {
        if self.polled.elapsed() >= POLL {
            self.take()?;
        }
        let elapsed = self.begun.map_or(Duration::ZERO, |begun| begun.elapsed());
        match self.sliced.elapsed() >= SHORTEST.max(elapsed / PART) {
            true => self.slice(Instant::now()),
            false => Ok(()),
        }
    }

    fn polled_every(&self) -> Option<Duration> {
        Some(POLL)
    }

    fn turn(&mut self) -> Result<Window, LiveError> {
        self.window(false)
    }

    fn stop(&mut self) {
        if self.attached.is_attached() {
            self.stopped = Some(Instant::now());
            // Programs whose switch can't be written are detached: no event is counted either way.
            let _ = self.attached.stop();
        }
    }

    fn close(&mut self) -> Result<Window, LiveError> {
        self.stop();
        self.window(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a share of times is not above the threshold of that share, which is within a bucket.
    #[test]
    fn thresholds() {
        let times = Times {
            count: 100,
            buckets: vec![(5, 90), (16, 9), (400, 1)],
            min_ns: 5,
            max_ns: 1 << 40,
            ..Times::default()
        };
        assert_eq!(threshold(&times, 0.5), 5);
        assert_eq!(threshold(&times, 0.9), 5);
        assert_eq!(threshold(&times, 0.99), 16);
        assert!(threshold(&times, 0.999) > 1_000_000);
        assert_eq!(threshold(&Times::default(), 0.5), u64::MAX);
    }
}
