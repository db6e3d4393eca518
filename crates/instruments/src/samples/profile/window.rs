//! What a profile makes of a window that is closed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Instant;

use netplumb_model::loss::Loss;
use netplumb_model::quantity::Figure;
use netplumb_model::samples::{Sample, Thread};
use netplumb_model::timing::{
    IDLE, LATE, NAMES, OFF_CPU, ON_TIME, PROGRAMS, REACHED, READER, STACKS_COPIED, STACKS_CUT,
    TAKEN, TICKS, USER_STACKS, WAITS_BEGUN, WAITS_ENDED, WAITS_OPEN, Window,
};

use super::super::arrived::Who;
use super::super::late::late;
use super::super::layout::{Counts, Known, PIECE_BYTES, Time, Waited};
use super::Profile;
use super::charging::Charging;
use crate::live::{self, LiveError};
use crate::own::process_ns;

/// Kinds of waits that are kept, however many there are.
const MAX_WAITS: usize = 1 << 18;

/// Times of samples.
#[derive(Debug, Default)]
struct Timed {
    times: Vec<Time>,
    /// Without idle CPUs'; none if some have no time.
    samples: Vec<Sample>,
    threads: Vec<Thread>,
}

impl Profile {
    /// The times of samples that were counted in a window. The others belong to the next one.
    fn timed(&mut self, counted: &BTreeMap<u64, Known>, charging: &Charging) -> Timed {
        let mut left: HashMap<u64, u64> =
            (counted.iter()).map(|(hash, known)| (*hash, known.count)).collect();
        let mut timed = Timed::default();
        let mut numbers: HashMap<Thread, u32> = HashMap::new();
        let mut later = Vec::new();
        for time in std::mem::take(&mut self.times) {
            match left.get_mut(&time.hash) {
                Some(count) if *count > 0 => *count -= 1,
                _ => {
                    later.push(time);
                    continue;
                }
            }
            timed.times.push(time);
            let (Some(charged), Some(found)) =
                (charging.sample(time.hash, time.time_ns), self.stacks.get(time.hash))
            else {
                continue;
            };
            let thread = Thread {
                pid: match found.place.who {
                    Who::Process(pid) => pid,
                    Who::Idle | Who::Foreign => 0,
                },
                tid: time.tid,
                name: found.place.name.clone(),
            };
            let next = numbers.len() as u32;
            let thread = *numbers.entry(thread).or_insert_with_key(|thread| {
                timed.threads.push(thread.clone());
                next
            });
            timed.samples.push(Sample {
                time_ns: time.time_ns.saturating_sub(self.begun_ns),
                thread,
                cpu: time.cpu,
                ..charged
            });
        }
        self.times = later;
        // All of them have a time, or what they add up to is not what was counted.
        if timed.samples.len() as u64 != charging.taken {
            timed.samples.clear();
            timed.threads.clear();
        }
        timed
    }

    /// The window until now.
    pub(super) fn window(&mut self) -> Result<Window, LiveError> {
        self.drain(true)?;
        let counted = std::mem::take(&mut self.counted);
        let mut asleep = match self.off_cpu {
            true => self.sampler.asleep()?,
            false => Vec::new(),
        };
        self.take()?;
        let known: HashSet<(u32, u64)> =
            (asleep.iter()).map(|wait| (wait.tid, wait.begin_ns)).collect();
        let unseen = std::mem::take(&mut self.crossed).into_iter();
        asleep.extend(unseen.filter(|wait| {
            let window_ns = self.sampler.window_ns();
            wait.window_ns == window_ns && !known.contains(&(wait.tid, wait.begin_ns))
        }));
        let (ended, later): (Vec<Waited>, Vec<Waited>) = std::mem::take(&mut self.waited)
            .into_iter()
            .partition(|wait| self.sampler.is_before(wait.turn));
        self.waited = later;
        let now = Instant::now();
        let counts = self.sampler.counts()?;
        let of_waits = counted.keys().filter_map(|hash| self.waits.get(hash));
        let of_waits = of_waits.flat_map(|wait| [wait.stack, wait.waker]);
        let of_asleep = asleep.iter().flat_map(|wait| [wait.stack, wait.waker]);
        let of_ended = ended.iter().flat_map(|wait| [wait.stack, wait.waker]);
        let stacks: BTreeSet<u64> =
            (counted.keys().copied()).chain(of_waits).chain(of_asleep).chain(of_ended).collect();
        let naming_ns = process_ns();
        let mut unwound = self.stacks.name(&stacks, self.sampler.window_ns())?;
        let naming_ns = process_ns().saturating_sub(naming_ns);
        let (mut charging, mut waiting) = (Charging::default(), Charging::default());
        for (hash, known) in &counted {
            let (all, functions) = self.stacks.parts();
            match (all.get(hash), self.waits.get(hash)) {
                // It is there for a wait, and was not sampled.
                _ if known.count == 0 => {}
                (Some(found), _) => {
                    let stacks = unwound.remove(hash).unwrap_or_default();
                    charging.add(found, known, &stacks, functions);
                }
                (None, Some(wait)) => {
                    let of = (wait.stack, wait.waker, wait.reason);
                    waiting.add_wait(&mut self.stacks, of, None, (known.count, known.ns));
                }
                (None, None) => charging.unknown += known.count,
            }
        }
        for wait in &asleep {
            let of = (wait.stack, wait.waker, wait.reason);
            let waited_ns = self.sampler.waited_ns(wait);
            let unwound = self.stacks.of_wait((wait.tid, wait.begin_ns));
            waiting.add_wait(&mut self.stacks, of, unwound.as_ref(), (0, waited_ns));
        }
        for wait in &ended {
            let of = (wait.stack, wait.waker, wait.reason);
            let unwound = self.stacks.of_wait((wait.tid, wait.begin_ns));
            waiting.add_wait(&mut self.stacks, of, unwound.as_ref(), (1, wait.ns));
        }
        let open = asleep.iter().map(|wait| (wait.tid, wait.begin_ns));
        (self.stacks).keep_waits(&open.collect(), self.sampler.window_ns());
        self.lines.add(std::mem::take(&mut charging.leaves));
        let timed = self.timed(&counted, &charging);
        let needed = self.stacks.bound();
        if self.settles {
            // Copies begin at full pieces, so the next one may need a piece more.
            let with_room = |bytes: u32| if bytes > 0 { bytes + PIECE_BYTES } else { 0 };
            let of_stack = |(hash, bytes): (u64, Option<u32>)| (hash, bytes.map(with_room));
            self.sampler.copy(needed.into_iter().map(of_stack));
        }
        if self.waits.len() > MAX_WAITS {
            self.waits.clear();
        }
        let duration = now - self.opened;
        let late = (self.event.period_ns())
            .map_or_else(Default::default, |period_ns| late(&timed.times, period_ns));
        let ticks = (counts.ticks - self.counts.ticks) as f64;
        let reached = ticks / self.cpus as f64 / duration.as_secs_f64();
        let reader_ns = process_ns();
        let of_reader = reader_ns.saturating_sub(self.reader_ns + naming_ns);
        let since = |of: fn(&Counts) -> u64| of(&counts) - of(&self.counts);
        let run_ns = self.sampler.run_ns()?;
        let of_programs = run_ns - self.run_ns;
        let figures = [
            (&TAKEN, charging.taken as f64),
            (&IDLE, charging.idle as f64),
            (&REACHED, reached),
            (&TICKS, ticks),
            (&USER_STACKS, charging.user_stacks as f64),
            (&STACKS_CUT, charging.cut as f64),
            (&STACKS_COPIED, charging.copied as f64),
            (&ON_TIME, late.timed as f64),
            (&LATE, late.late as f64),
            (&PROGRAMS, of_programs as f64),
            (&READER, of_reader as f64),
            (&NAMES, naming_ns as f64),
        ];
        let waits = [
            (&WAITS_BEGUN, since(|c| c.waits_begun) as f64),
            (&WAITS_ENDED, since(|c| c.waits_ended) as f64),
            (&WAITS_OPEN, (counts.waits_begun - counts.waits_ended) as f64),
        ];
        let waits = waits.into_iter().filter(|_| self.off_cpu);
        let losses = lost(
            &counts,
            &self.counts,
            [&charging, &waiting],
            std::mem::take(&mut self.stacks.spaces.lost),
            std::mem::take(&mut self.stacks.not_kept),
            self.stacks.files.lost_names(),
        );
        let mut of_cpu = charging.costs(self.stacks.functions(), self.event.quantity());
        (of_cpu.samples, of_cpu.threads) = (timed.samples, timed.threads);
        let mut costs = vec![of_cpu];
        costs.extend(self.off_cpu.then(|| waiting.costs(self.stacks.functions(), &OFF_CPU)));
        self.counts = counts;
        self.run_ns = run_ns;
        self.reader_ns = reader_ns;
        self.opened = now;
        Ok(Window {
            duration_ns: duration.as_nanos() as u64,
            own_cpu_ns: of_programs + of_reader + naming_ns,
            figures: (figures.into_iter().chain(waits))
                .map(|(of, value)| Figure::new(of, value))
                .collect(),
            costs,
            losses,
            ..Window::default()
        })
    }
}

/// What was lost of a window.
fn lost(
    counts: &Counts,
    before: &Counts,
    [charging, waiting]: [&Charging; 2],
    changes: u64,
    not_kept: u64,
    (lines, files): (u64, u64),
) -> Vec<Loss> {
    let since = |of: fn(&Counts) -> u64| of(counts) - of(before);
    live::losses([
        (
            "samples lost: no room for more stacks",
            since(|c| c.lost_map),
            "their time is missing; a lower --frequency has fewer",
        ),
        (
            "samples lost: buffer full",
            since(|c| c.lost_ring),
            "their time is missing; a lower --frequency has fewer",
        ),
        ("samples lost: two stacks with one hash", since(|c| c.collided), "their time is missing"),
        (
            "samples of stacks that are not known any more",
            charging.unknown,
            "their time is missing",
        ),
        ("samples without a stack", charging.stackless, "their time is in [unknown]"),
        (
            "samples without a time",
            since(|c| c.without_time),
            "buffer full: they count, and are not among those that may be late",
        ),
        (
            "samples with more than 127 frames",
            since(|c| c.cut),
            "their outermost frames are missing",
        ),
        (
            "copies of user stacks lost: no room for more",
            since(|c| c.copies_lost) + not_kept,
            "their stacks of programs are by frame pointers only",
        ),
        (
            "waits lost: no room for more",
            since(|c| c.waits_dropped) + waiting.unknown,
            "their time is missing",
        ),
        (
            "new processes that were not followed",
            since(|c| c.processes_dropped),
            "their samples are missing",
        ),
        ("unreported changes of processes", changes, "code that was mapped then may have no name"),
        (
            "lines of perf-PID.map files that are not understood",
            lines,
            "code that they name may be [unknown]",
        ),
        (
            "perf-PID.map files of other users, or too large",
            files,
            "code that they name may be [unknown]",
        ),
    ])
}
