//! A profile: where CPU time goes, of all work or of a process, a cgroup or a command.
//!
//! What a stack stands for is found out as soon as it arrives, while its process may still be
//! there; how often it was seen, when a window is closed.
//!
//! `stacks.rs` resolves stacks, `charging.rs` charges a window's samples to nodes, `lines.rs` adds source lines,
//! and `causes.rs` makes call graphs of stacks that other instruments take at events.

mod causes;
mod charging;
mod lines;
mod stacks;
mod user;
mod window;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use netplumb_model::quantity::Figure;
use netplumb_model::timing::{
    Attached, FREQUENCY, Met, PERIOD, ProfileSpec, TimingSpec, UserStacks, Window,
};
use netplumb_sys::cpus;
use netplumb_sys::perf::changes::Changes;

use super::event::Event;
use super::layout::{
    Config, Counts, Crossed, FRAMES, KEYS, Known, Scope, Time, USER_COPY, USER_FRAME_POINTERS,
    Wait, Waited,
};
use super::sampler::{Sampler, Setup};
use crate::live::{Live, LiveError, SourceLines};
use crate::own::{monotonic_ns, process_ns};
pub(crate) use causes::Causes;
use lines::Sampled;
use stacks::Stacks;

/// The limit of the kernel.
const MAX_RATE: &str = "/proc/sys/kernel/perf_event_max_sample_rate";
/// How often records are read: a process may be gone soon.
const POLL: Duration = Duration::from_millis(40);
/// Bytes of a user stack, at most; deeper ones are cut.
const COPIED_BYTES: u32 = 8 << 10;
/// Programs that measure time off the CPU.
const SWITCHING: &[&str] = &["samples_switch", "samples_waking"];
/// Programs that follow a process's children.
const FOLLOWING: &[&str] = &["samples_fork", "samples_exec", "samples_free"];

/// CPUs that are sampled, window by window.
#[derive(Debug)]
pub(super) struct Profile {
    sampler: Sampler,
    changes: Changes,
    stacks: Stacks,
    lines: Sampled,
    /// Waits by hash: why, and of whom.
    waits: HashMap<u64, Wait>,
    /// Waits that went on as a window ended.
    crossed: Vec<Crossed>,
    /// Ended waits with a stack of their own.
    waited: Vec<Waited>,
    /// What was counted in this window so far.
    counted: BTreeMap<u64, Known>,
    /// Stacks that have arrived since that was read.
    fresh: usize,
    times: Vec<Time>,
    attached: Attached,
    cpus: usize,
    off_cpu: bool,
    /// Whether stacks whose frame pointers hold are copied no more.
    settles: bool,
    /// When the first window began.
    begun_ns: u64,
    event: Event,
    polled: Instant,
    opened: Instant,
    counts: Counts,
    run_ns: u64,
    reader_ns: u64,
}

impl Profile {
    pub(super) fn attach(spec: &TimingSpec, asked: &ProfileSpec) -> Result<Profile, LiveError> {
        let begun = Instant::now();
        let reader_ns = process_ns();
        check_frequency(asked.frequency_hz)?;
        let cpus: Vec<u32> = cpus::online()
            .map_err(LiveError::system("read which CPUs are online"))?
            .into_iter()
            .collect();
        let opens = |event: Event| cpus.iter().try_for_each(|cpu| event.open(*cpu).map(drop));
        let event = Event::choose(asked.event, asked.frequency_hz, opens)?;
        let scope = Scope::new(asked.children, &spec.filter);
        let mut programs = Vec::new();
        programs.extend(FOLLOWING.iter().filter(|_| scope.follows()));
        programs.extend(SWITCHING.iter().filter(|_| asked.off_cpu));
        let setup = Setup {
            cpus: &cpus,
            event,
            config: Config {
                scope: scope.scope,
                tgid: scope.tgid,
                cgroup: scope.cgroup,
                user: match asked.user_stacks {
                    UserStacks::Auto | UserStacks::Dwarf => USER_COPY,
                    UserStacks::FramePointers => USER_FRAME_POINTERS,
                } as u32,
                stack_bytes: COPIED_BYTES,
                times: 1,
                frames: FRAMES,
                ..Config::default()
            },
            programs,
        };
        let sampler = Sampler::load(&setup)?;
        let changes =
            Changes::watch(&cpus).map_err(LiveError::system("watch what processes map"))?;
        let mut stacks = Stacks::default();
        if !asked.children {
            stacks.spaces.read(spec.filter.pid, &mut stacks.files);
        }
        let attached = Attached {
            attach_ns: begun.elapsed().as_nanos() as u64,
            facts: BTreeMap::from([
                ("sampled.event".into(), event.name().into()),
                ("sampled.user_stacks".into(), asked.user_stacks.to_string()),
            ]),
            figures: (event.period_ns())
                .map(|period_ns| Figure::new(&PERIOD, period_ns as f64))
                .into_iter()
                .chain([Figure::new(&FREQUENCY, f64::from(asked.frequency_hz))])
                .collect(),
            ..Attached::default()
        };
        Ok(Profile {
            counts: sampler.counts()?,
            run_ns: sampler.run_ns()?,
            sampler,
            changes,
            stacks,
            lines: Sampled::default(),
            waits: HashMap::new(),
            crossed: Vec::new(),
            waited: Vec::new(),
            counted: BTreeMap::new(),
            fresh: 0,
            times: Vec::new(),
            attached,
            cpus: cpus.len(),
            off_cpu: asked.off_cpu,
            settles: asked.user_stacks == UserStacks::Auto,
            begun_ns: 0,
            event,
            polled: begun,
            opened: begun,
            reader_ns,
        })
    }

    /// Take what has arrived.
    fn take(&mut self) -> Result<(), LiveError> {
        self.polled = Instant::now();
        for (time, change) in self.changes.poll() {
            self.stacks.follow(time, change);
        }
        let arrived = self.sampler.poll()?;
        self.fresh += arrived.places.len();
        for place in arrived.places {
            self.stacks.add(place);
        }
        for copied in &arrived.copies {
            self.stacks.unwind(copied);
        }
        let waits = arrived.waits.into_iter();
        self.waits.extend(waits.map(|wait| (wait.hash, wait)));
        self.times.extend(arrived.times);
        self.crossed.extend(arrived.crossed);
        self.waited.extend(arrived.waited);
        Ok(())
    }

    /// Read what was counted, before the map is full or as a window ends.
    fn drain(&mut self, window: bool) -> Result<(), LiveError> {
        self.fresh = 0;
        for (hash, more) in self.sampler.drain(window)? {
            let known = self.counted.entry(hash).or_default();
            known.count += more.count;
            known.ns += more.ns;
        }
        Ok(())
    }
}

/// The kernel refuses to sample more often, or it takes a pause.
fn check_frequency(hz: u32) -> Result<(), LiveError> {
    let most = std::fs::read_to_string(MAX_RATE).ok();
    match most.and_then(|most| most.trim().parse::<u32>().ok()) {
        Some(most) if hz > most => Err(LiveError::CannotRun {
            reason: format!(
                "the kernel takes at most {most} samples a second of each CPU, not {hz}"
            ),
            remedy: format!(
                "use --frequency {most}, or raise the limit: sysctl \
                 kernel.perf_event_max_sample_rate={hz}"
            ),
        }),
        _ => Ok(()),
    }
}

impl Live for Profile {
    fn attached(&self) -> &Attached {
        &self.attached
    }

    fn open(&mut self) -> Result<(), LiveError> {
        self.opened = Instant::now();
        self.begun_ns = monotonic_ns();
        self.sampler.begin()
    }

    fn poll(&mut self) -> Result<(), LiveError> {
        if self.polled.elapsed() < POLL {
            return Ok(());
        }
        self.take()?;
        match self.fresh > KEYS / 2 {
            true => self.drain(false),
            false => Ok(()),
        }
    }

    fn turn(&mut self) -> Result<Window, LiveError> {
        self.window()
    }

    fn stop(&mut self) {
        self.sampler.stop();
    }

    fn close(&mut self) -> Result<Window, LiveError> {
        self.stop();
        self.window()
    }

    fn forget(&mut self) {
        self.lines = Sampled::default();
        self.stacks.files.is_endless = true;
    }

    fn late_names(&mut self) -> Vec<(Met, Met)> {
        self.stacks.files.late_names()
    }

    fn lines(&mut self, go_on: &dyn Fn() -> bool) -> SourceLines {
        self.lines.find(&mut self.stacks, go_on)
    }
}
