//! Pauses: following every packet of a busy machine takes more CPU time than most can
//! spare, and a tracepoint costs even without work in it. So where measuring is held to
//! a share of the machine's work, packets are followed in stretches, with nothing
//! attached in between. A packet is followed to its end: at the end of a stretch no
//! more are let in, and those under way are waited for.
//!
//! The cost of a program's run is measured now and then, in a stretch whose packets are
//! in no figure, since the kernel's own measuring (kernel.bpf_stats_enabled) makes it
//! slower.

use std::fs;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use libbpf_sys as sys;
use netplumb_model::class::Proto;
use netplumb_model::timing::WAYS;

use super::hooks::Hooks;
use super::layout::{Cpu, PLACES, PROTOS, WindowState};
use super::maps::Maps;
use crate::own::{self, Programs};

/// The shortest and the longest interval of looking at what was spent: short if it is
/// soon spent.
const STEP: Duration = Duration::from_millis(4);
const STEP_MOST: Duration = Duration::from_millis(64);
/// The interval of looking whether packets under way have ended.
const DRAIN_STEP: Duration = Duration::from_millis(2);
/// If none ended for this long, the remaining packets wait for somebody.
const DRAIN_QUIET: Duration = Duration::from_millis(100);
/// The longest that packets under way are waited for.
const DRAIN_MOST: Duration = Duration::from_millis(500);
/// By then, a packet sent in a pause has reached its receiver's softirq.
const SETTLE_NS: u64 = 1_000_000;
/// CPU time that a stretch takes, so that attaching, and its opposite, some 2 ms
/// together, are a small part.
const STRETCH_NS: f64 = 8e6;
/// The budget at the beginning of a run: short runs have no pauses.
const BURST_NS: f64 = STRETCH_NS;
/// The largest debt at which a window still begins with a stretch.
const DEBT_NS: f64 = 40e6;
/// How much of the share is given out: what programs push out of caches, and interrupts
/// of other CPUs when they are attached, is not in the measured cost.
const GIVEN: f64 = 0.6;
/// Nothing is gained by less than this share of one CPU.
const LEAST_CPUS: f64 = 0.006;
/// What a run of a program is taken to cost before it was measured.
const HIT_NS: f64 = 130.0;
/// What it costs to call one, which the kernel does not count.
const CALL_NS: f64 = 30.0;
/// Runs that a measurement needs.
const ENOUGH_RUNS: u64 = 500;
/// The length of a stretch for that measurement.
const ASIDE: Duration = Duration::from_millis(5);
/// How often it is measured.
const MEASURE_EVERY: Duration = Duration::from_secs(10);

/// What the programs and their maps are reached by.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) maps: Maps,
    pub(super) programs: Programs,
}

/// A stop signal for another thread.
#[derive(Debug, Default)]
pub(super) struct Stop(Mutex<bool>, Condvar);

impl Stop {
    pub(super) fn set(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.1.notify_all();
    }

    /// Wait so long, or until it is set; whether it is.
    fn wait(&self, time: Duration) -> bool {
        let set = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.1.wait_timeout_while(set, time, |set| !*set);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The budget of CPU time.
#[derive(Debug)]
struct Budget {
    share: f64,
    left_ns: f64,
    at: Instant,
    /// The cost of a program run.
    hit_ns: f64,
    /// CPUs that were busy a while ago, at most one: what is spent comes from the CPU
    /// that packets are sent or received on.
    busy: f64,
    idle: Option<(Instant, f64)>,
}

impl Budget {
    fn new(share: f64) -> Budget {
        Budget {
            share,
            left_ns: BURST_NS,
            at: Instant::now(),
            hit_ns: HIT_NS,
            busy: 0.0,
            idle: None,
        }
    }

    /// How many nanoseconds there are to a nanosecond.
    fn rate(&self) -> f64 {
        (self.share * GIVEN * self.busy).max(LEAST_CPUS.min(self.share))
    }

    fn earn(&mut self) {
        let now = Instant::now();
        let passed_ns = (now - self.at).as_nanos() as f64;
        self.at = now;
        self.left_ns = (self.left_ns + passed_ns * self.rate()).min(BURST_NS);
        self.look_around(now);
    }

    fn spend(&mut self, ns: f64) {
        self.left_ns -= ns;
    }

    /// How long until there is enough for a stretch.
    fn time_to(&self, enough_ns: f64) -> Duration {
        let missing_ns = (enough_ns - self.left_ns).max(0.0);
        Duration::from_nanos((missing_ns / self.rate()) as u64)
    }

    /// See how busy the CPUs are: idleness comes in ticks, so not too often.
    fn look_around(&mut self, now: Instant) {
        const EVERY: Duration = Duration::from_millis(200);
        if (self.idle).is_some_and(|(at, _)| now - at < EVERY) {
            return;
        }
        let Some(idle_s) = idle_s() else { return };
        if let Some((at, before_s)) = self.idle {
            let wall_s = (now - at).as_secs_f64();
            self.busy = (online_cpus() - (idle_s - before_s) / wall_s).clamp(0.0, 1.0);
        }
        self.idle = Some((now, idle_s));
    }
}

/// All CPUs, whichever of them we may run on.
fn online_cpus() -> f64 {
    // SAFETY: takes a number.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    cpus.max(1) as f64
}

/// Seconds that all CPUs were idle together, since the machine started.
fn idle_s() -> Option<f64> {
    let text = fs::read_to_string("/proc/uptime").ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

/// Statistics since the last call.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Went {
    /// How long packets were followed.
    pub(super) followed: Duration,
    /// CPU time that it took.
    pub(super) own_ns: f64,
    /// Whether there was any pause.
    pub(super) paused: bool,
}

/// Attaches and pauses.
#[derive(Debug)]
pub(super) struct Pauser {
    kernel: Arc<Kernel>,
    hooks: Hooks,
    budget: Budget,
    stretch: u64,
    measured: Option<Instant>,
    /// Ways of this window whose ends were waited for in vain.
    endless: u64,
    /// The stretch that is under way.
    open: Option<WindowState>,
    went: Arc<Mutex<Went>>,
}

impl Pauser {
    /// For hooks that may take this share.
    pub(super) fn new(kernel: Arc<Kernel>, hooks: Hooks, share: f64) -> Pauser {
        Pauser {
            kernel,
            hooks,
            budget: Budget::new(share),
            stretch: 0,
            measured: None,
            endless: 0,
            open: None,
            went: Arc::default(),
        }
    }

    /// Open a window, in a stretch even if there is not enough for one, so that no
    /// window is without packets: before its workload begins, so that nothing is missed
    /// of a short one.
    pub(super) fn open(&mut self) -> Result<(), libbpf_rs::Error> {
        self.endless = 0;
        self.budget.earn();
        if self.budget.left_ns >= -DEBT_NS {
            self.open = Some(self.begin(0, 0)?);
        }
        Ok(())
    }

    /// Follow packets in intervals until stopped. Nothing is attached afterwards.
    pub(super) fn window(&mut self, stop: &Stop) -> Result<(), libbpf_rs::Error> {
        let result = self.stretches(stop);
        self.kernel.maps.set_window(WindowState::default())?;
        self.hooks.detach();
        result
    }

    /// The progress, for callers that ask meanwhile: reset by the caller.
    pub(super) fn went(&self) -> Arc<Mutex<Went>> {
        Arc::clone(&self.went)
    }

    fn went_on(&self, add: impl FnOnce(&mut Went)) {
        add(&mut self.went.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn stretches(&mut self, stop: &Stop) -> Result<(), libbpf_rs::Error> {
        loop {
            if (self.open.is_none() && self.rest(stop)) || self.stretch(stop)? {
                return Ok(());
            }
            let due = self.measured.is_none_or(|at| at.elapsed() > MEASURE_EVERY);
            if due && (self.rest(stop) || self.measure(stop)?) {
                return Ok(());
            }
        }
    }

    /// Wait until the budget is sufficient; returns whether to stop.
    fn rest(&mut self, stop: &Stop) -> bool {
        const MOST: Duration = Duration::from_millis(100);
        loop {
            self.budget.earn();
            let time = self.budget.time_to(STRETCH_NS);
            if time.is_zero() {
                return false;
            }
            self.went_on(|went| went.paused = true);
            if stop.wait(time.min(MOST)) {
                return true;
            }
        }
    }

    /// Follow packets until the budget is spent; returns whether to stop.
    fn stretch(&mut self, stop: &Stop) -> Result<bool, libbpf_rs::Error> {
        let state = match self.open.take() {
            Some(state) => state,
            None => self.begin(SETTLE_NS, 0)?,
        };
        let mut last_report = Instant::now();
        let mut hits = Cost::from_cpus(&self.kernel.maps.cpus()?).hits;
        let mut step = STEP;
        let stopped = loop {
            let stopped = stop.wait(step);
            let followed = std::mem::replace(&mut last_report, Instant::now()).elapsed();
            self.went_on(|went| went.followed += followed);
            let now = Cost::from_cpus(&self.kernel.maps.cpus()?);
            let spent_ns = now.hits.saturating_sub(hits) as f64 * self.budget.hit_ns;
            self.spend(spent_ns);
            hits = now.hits;
            self.budget.earn();
            // Half of the time that the rest of the budget lasts.
            let lasts = self.budget.left_ns.max(0.0) / spent_ns.max(1.0) * step.as_secs_f64();
            step = Duration::from_secs_f64(lasts.min(1.0) / 2.0).clamp(STEP, STEP_MOST);
            if stopped || self.budget.left_ns <= 0.0 {
                break stopped;
            }
        };
        if stopped {
            return Ok(true);
        }
        let stopped = self.drain(stop, state, hits)?;
        self.end()?;
        Ok(stopped)
    }

    /// Wait for the packets under way, letting in no more.
    fn drain(
        &mut self,
        stop: &Stop,
        state: WindowState,
        mut hits: u64,
    ) -> Result<bool, libbpf_rs::Error> {
        self.kernel.maps.set_window(WindowState { admits: 0, ..state })?;
        let begun = Instant::now();
        let (mut ended, mut quiet_since) = (0, begun);
        loop {
            if stop.wait(DRAIN_STEP) {
                return Ok(true);
            }
            let now = Cost::from_cpus(&self.kernel.maps.cpus()?);
            // One that is not followed costs less: how much is not known.
            self.spend(now.hits.saturating_sub(hits) as f64 * self.budget.hit_ns);
            hits = now.hits;
            if now.ended != ended {
                (ended, quiet_since) = (now.ended, Instant::now());
            }
            if now.ended + self.endless >= now.begun {
                return Ok(false);
            }
            if quiet_since.elapsed() > DRAIN_QUIET || begun.elapsed() > DRAIN_MOST {
                self.endless = now.begun - now.ended;
                return Ok(false);
            }
        }
    }

    /// Measure the cost of a program run; returns whether to stop.
    fn measure(&mut self, stop: &Stop) -> Result<bool, libbpf_rs::Error> {
        self.measured = Some(Instant::now());
        let Some(_stats) = stats() else {
            return Ok(false);
        };
        let before = self.kernel.programs.totals();
        let hits = Cost::from_cpus(&self.kernel.maps.cpus()?).hits;
        let state = self.begin(SETTLE_NS, 1)?;
        let mut stopped = stop.wait(ASIDE);
        let after = self.kernel.programs.totals();
        let hits = Cost::from_cpus(&self.kernel.maps.cpus()?).hits.saturating_sub(hits);
        let runs = after.runs.saturating_sub(before.runs);
        let spent_ns = after.run_ns.saturating_sub(before.run_ns) as f64 + runs as f64 * CALL_NS;
        self.spend(spent_ns);
        if runs >= ENOUGH_RUNS && hits > 0 {
            self.budget.hit_ns = spent_ns / hits as f64;
        }
        if !stopped {
            self.kernel.maps.set_window(WindowState { admits: 0, ..state })?;
            stopped = stop.wait(DRAIN_STEP);
        }
        self.end()?;
        Ok(stopped)
    }

    fn begin(&mut self, settle_ns: u64, aside: u64) -> Result<WindowState, libbpf_rs::Error> {
        let before_ns = own::thread_ns();
        self.hooks.attach()?;
        self.spend((own::thread_ns() - before_ns) as f64);
        // 16 bits of it are kept with each packet; 0 stands for no stretch.
        self.stretch = self.stretch % 0xffff + 1;
        let now_ns = own::monotonic_ns();
        let state = WindowState {
            opened_ns: now_ns,
            active: 1,
            admits: 1,
            settled_ns: now_ns + settle_ns,
            aside,
            stretch: self.stretch,
        };
        self.kernel.maps.set_window(state)?;
        Ok(state)
    }

    fn end(&mut self) -> Result<(), libbpf_rs::Error> {
        self.went_on(|went| went.paused = true);
        self.kernel.maps.set_window(WindowState::default())?;
        let before_ns = own::thread_ns();
        self.hooks.detach();
        self.spend((own::thread_ns() - before_ns) as f64);
        Ok(())
    }

    fn spend(&mut self, ns: f64) {
        self.budget.spend(ns);
        self.went_on(|went| went.own_ns += ns);
    }
}

/// Enable run time statistics of programs, while this is open.
fn stats() -> Option<OwnedFd> {
    // SAFETY: takes a number.
    let fd = unsafe { sys::bpf_enable_stats(sys::BPF_STATS_RUN_TIME) };
    // SAFETY: the descriptor is new and nobody else's.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The relevant counters of all CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cost {
    /// Runs of programs.
    hits: u64,
    /// Ways that began, and that ended.
    begun: u64,
    ended: u64,
}

impl Cost {
    fn from_cpus(cpus: &[Cpu]) -> Cost {
        let count = |class: usize, name: &str| -> u64 {
            let place = PLACES.iter().position(|p| *p == name);
            place.map_or(0, |at| cpus.iter().map(|cpu| cpu.places[class][at]).sum())
        };
        let mut cost = Cost { hits: cpus.iter().map(|cpu| cpu.hits).sum(), begun: 0, ended: 0 };
        for (class, proto) in PROTOS.iter().enumerate() {
            let is_tcp = *proto == Proto::Tcp;
            for way in WAYS {
                if way.of_tcp || !is_tcp {
                    let begun = count(class, way.begins);
                    let ended: u64 = way.ends.iter().map(|end| count(class, end)).sum();
                    cost.begun += begun;
                    // A packet that was not seen to begin ends no other.
                    cost.ended += ended.min(begun);
                }
            }
        }
        cost
    }
}
