//! The `stages` instrument: where a packet's time goes between tracepoints.
//!
//! A kernel whose functions can't be hooked still has tracepoints. The programs
//! (stages/stages.bpf.c) note at each when a packet came by, and at the end of its
//! way they add the stages between to histograms, one for each protocol, version of
//! IP, direction and stage. A packet's stages add up to its total, since each begins
//! where the one before it ended; what none explains is the stage `unaccounted`.
//!
//! docs/guide/stages.md describes each stage.

mod assemble;
mod cost;
mod counted;
mod filter;
mod hooks;
mod layout;
mod maps;
mod own;
mod pauses;
mod steps;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use libbpf_rs::{Object, RingBufferBuilder};
use netplumb_model::capability::Availability;
use netplumb_model::experiment::Lab;
use netplumb_model::loss::Loss;
use netplumb_model::quantity::Declared;
use netplumb_model::timing::{
    Attached, DROPPED, FOLLOWED, Mechanism, SEEN, STAGE_OWN, STAGE_TIME, TimingSpec, Window,
};
use netplumb_sys::bpf::{self, types};
use netplumb_sys::plain::Plain;

use self::counted::StageCounts;
use self::hooks::Hooks;
use self::layout::{PROTOS, StepEvent, WindowState};
use self::maps::{Half, Maps};
use self::own::Own;
use self::pauses::{Kernel, Pauser, Stop, Went};
use crate::capability::Tried;
use crate::instrument::{Instrument, Layers, in_guest};
use crate::live::{self, Live, LiveError};
use crate::own::{Programs, Totals};
use crate::reasons::Reasons;

/// The programs, compiled from stages/stages.bpf.c.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stages.bpf.o"));

/// The name of the instrument.
const STAGES: &str = STAGE_TIME.instrument;
/// Prefix of the programs' names, before the tracepoint's.
const PREFIX: &str = "stages_";
/// Without these no packet can be followed.
const NEEDED: &[&str] = &["net_dev_start_xmit", "net_dev_xmit", "netif_receive_skb"];

/// The effect of a missing tracepoint.
fn meaning(tracepoint: &str) -> &'static str {
    match tracepoint {
        "sys_enter" | "sys_exit" => "system calls can't be seen",
        "net_dev_queue" => "transmission can't be seen",
        "qdisc_enqueue" | "qdisc_dequeue" => "`qdisc wait` is in `device`",
        "netif_rx" => "`backlog` can't be seen",
        "sk_data_ready" => {
            "`socket queue` begins where the reader is woken; without that, `protocol` is in \
             `socket queue`"
        }
        "sock_recv_length" => "from 6.18 on, reads of UDP packets are not seen",
        "napi_poll" => "a reader woken by a timer may count as woken by a packet",
        "tcp_probe" => "`socket lock` is in `unaccounted`",
        "sched_switch" => "`wake-up` is in `read`",
        "consume_skb" => "reads of UDP and raw packets are not seen",
        "skb_copy_datagram_iovec" => "reads of TCP packets are not seen",
        "kfree_skb" => "drops can't be seen",
        cost::TRACEPOINT => "what it costs to run a program is not subtracted",
        _ => "`gro` can't be seen",
    }
}

/// Times packets between tracepoints.
pub const INSTRUMENT: &dyn Instrument = &Declaration;

#[derive(Debug)]
struct Declaration;

impl Instrument for Declaration {
    fn about(&self) -> &'static str {
        "Nanoseconds from one tracepoint to the next"
    }

    fn quantities(&self) -> &'static [Declared] {
        const ALL: &[Declared] = &[STAGE_TIME, STAGE_OWN, FOLLOWED, SEEN, DROPPED];
        ALL
    }

    fn works(&self, lab: Lab, tried: &Tried<'_>) -> Availability {
        match lab {
            Lab::Vm => in_guest("tracepoints in the guest", tried),
            Lab::Netns | Lab::Host => tried.any(&[
                (&["tp-btf"], "between typed tracepoints"),
                (&["raw-tp"], "between raw tracepoints"),
            ]),
        }
    }

    fn attach(
        &self,
        spec: &TimingSpec,
        _: &Layers<'_>,
        cancel: &AtomicBool,
    ) -> Result<Box<dyn Live>, LiveError> {
        Ok(Box::new(Stages::attach(spec, cancel)?))
    }
}

/// The attached instrument.
#[derive(Debug)]
pub struct Stages {
    attached: Attached,
    reasons: Reasons,
    following: Following,
    kernel: Arc<Kernel>,
    opened: Option<Opened>,
    /// See [`cost::of_a_run`].
    run_ns: f64,
    /// Statistics of intervals, if there may be pauses.
    went: Option<Arc<Mutex<Went>>>,
    /// The half of the table that times are written to.
    half: Half,
    one_packet: bool,
    _object: Object,
}

/// How packets are followed.
#[derive(Debug)]
enum Following {
    /// All of them, as long as a window is open.
    Always(#[expect(dead_code, reason = "holds what is attached")] Hooks),
    /// In intervals; none while it is running.
    Stretches(Option<Box<Pauser>>),
    /// It is at work.
    Working(Arc<Stop>, JoinHandle<Worked>),
}

/// What it comes back with.
type Worked = (Box<Pauser>, Result<(), libbpf_rs::Error>);

#[derive(Debug)]
struct Opened {
    at: Instant,
    /// When packets were followed first, by the programs' clock.
    since_ns: u64,
    totals: Totals,
    before: StageCounts,
    own: Own,
}

impl Stages {
    /// Attach to the kernel's tracepoints.
    ///
    /// # Errors
    /// The kernel has no BTF, the user lacks privileges, the filter is not supported, or it was cancelled.
    pub fn attach(spec: &TimingSpec, cancel: &AtomicBool) -> Result<Stages, LiveError> {
        let begun = Instant::now();
        if let Some(other) = spec.mechanism
            && other != Mechanism::TpBtf
        {
            return Err(LiveError::Asked(format!(
                "`stages` supports only {}, not {other}",
                Mechanism::TpBtf
            )));
        }
        let btf = types::of_kernel().map_err(LiveError::programs(STAGES))?;
        let has = |tracepoint: &str| types::has_tracepoint(&btf, tracepoint);
        let mut config = filter::config(spec, has("sk_data_ready"))?;
        config.has_pauses = u32::from(spec.selection.max_overhead.is_some());
        let mut attached = Attached::default();
        let mut open = bpf::Opened::new(OBJECT).map_err(LiveError::programs(STAGES))?;
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            let tracepoint = name.strip_prefix(PREFIX).unwrap_or(&name);
            let wanted = match tracepoint {
                "sched_waking" | "napi_poll" => !has("sk_data_ready"),
                _ => true,
            };
            if wanted && !has(tracepoint) {
                if NEEDED.contains(&tracepoint) {
                    return Err(LiveError::CannotRun {
                        reason: format!("the kernel has no tracepoint `{tracepoint}`"),
                        remedy: "use a kernel with CONFIG_TRACEPOINTS and CONFIG_NET".into(),
                    });
                }
                let why = format!("this kernel has no such tracepoint: {}", meaning(tracepoint));
                attached.refused.insert(tracepoint.to_string(), why);
            }
            program.set_autoload(wanted && has(tracepoint));
        }
        open.set_constants(config.bytes()).map_err(LiveError::programs(STAGES))?;
        live::go_on(cancel)?;
        let object = open.load().map_err(LiveError::programs(STAGES))?;
        let maps =
            Maps::from_object(&object).map_err(LiveError::system("find the maps of `stages`"))?;
        let mut hooks = Hooks::default();
        let mut run_ns = None;
        for program in object.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            let tracepoint = name.strip_prefix(PREFIX).unwrap_or(&name);
            if !program.autoload() {
                continue;
            }
            live::go_on(cancel)?;
            if tracepoint == cost::TRACEPOINT {
                match cost::of_a_run(&maps, &program) {
                    Ok(cost_ns) => run_ns = cost_ns,
                    Err(error) => {
                        let why = format!("{error}: {}", meaning(tracepoint));
                        attached.refused.insert(tracepoint.to_string(), why);
                    }
                }
                continue;
            }
            match hooks.add(&program) {
                Ok(()) => {}
                Err(source) if NEEDED.contains(&tracepoint) => {
                    return Err(LiveError::system("attach `stages`")(source));
                }
                Err(source) => {
                    let why = format!("{source}: {}", meaning(tracepoint));
                    attached.refused.insert(tracepoint.to_string(), why);
                }
            }
        }
        attached.facts.insert(
            "stages.tracepoints".into(),
            format!("{} by {}", hooks.count(), Mechanism::TpBtf),
        );
        if let Some(run_ns) = run_ns {
            (attached.facts).insert("stages.run_ns".into(), format!("{run_ns:.1}"));
        }
        let kernel = Arc::new(Kernel { maps, programs: Programs::from_object(&object) });
        let mut went = None;
        let following = match spec.selection.max_overhead {
            None => Following::Always(hooks),
            Some(share) => {
                attached.facts.insert(
                    "stages.max_overhead".into(),
                    // As it was asked for, not as a float has it: 0.07 is 7.000000000000001 %.
                    format!("{} %", (share * 1e5).round() / 1e3),
                );
                // Until a window is opened, they would cost for nothing.
                hooks.detach();
                let pauser = Pauser::new(Arc::clone(&kernel), hooks, share);
                went = Some(pauser.went());
                Following::Stretches(Some(Box::new(pauser)))
            }
        };
        attached.attach_ns = nanoseconds(begun.elapsed());
        Ok(Stages {
            attached,
            reasons: Reasons::from_btf(&btf),
            following,
            kernel,
            opened: None,
            run_ns: run_ns.unwrap_or_default(),
            went,
            half: Half::default(),
            one_packet: spec.one_packet > 0,
            _object: object,
        })
    }

    /// The events in the ring.
    fn events(&self) -> Result<Vec<StepEvent>, libbpf_rs::Error> {
        if !self.one_packet {
            return Ok(Vec::new());
        }
        let events = Rc::new(RefCell::new(Vec::new()));
        let into = Rc::clone(&events);
        let mut builder = RingBufferBuilder::new();
        builder.add(&self.kernel.maps.ring, move |bytes| {
            into.borrow_mut().extend(StepEvent::read(bytes));
            0
        })?;
        builder.build()?.consume()?;
        Ok(events.take())
    }

    /// The results of the window up to now; the next one begins here.
    fn take(&mut self, opened: &mut Opened) -> Result<Window, libbpf_rs::Error> {
        let maps = &self.kernel.maps;
        let was = self.half;
        self.half = was.other();
        maps.set_half(self.half)?;
        let mut window =
            Window { duration_ns: nanoseconds(opened.at.elapsed()), ..Window::default() };
        opened.at = Instant::now();
        let before_ns = crate::own::thread_ns();
        maps.settle()?;
        let own = maps.own(self.run_ns)?;
        let seen = maps.take_times(was)?;
        window.stages = assemble::stages(&seen, &own.since(&opened.own));
        opened.own = own;
        let now = StageCounts::read(maps)?;
        let seen = now.since(&opened.before);
        opened.before = now;
        window.ledger = seen.ledger;
        window.losses = assemble::described_losses(&seen.losses);
        for ((proto, reason), count) in seen.drops {
            if let Some(proto) = PROTOS.get(proto as usize) {
                let name = format!("{proto} {}", self.reasons.name(reason));
                *window.drops.entry(name).or_default() += count;
            }
        }
        window.steps = steps::steps(&self.events()?);
        let totals = self.kernel.programs.totals();
        let misses = totals.misses.saturating_sub(opened.totals.misses);
        if misses > 0 {
            window.losses.push(Loss {
                cause: "tracepoint hits skipped by the kernel (recursion)".into(),
                count: misses,
                meaning: "these packets lack a timestamp: a stage is part of the next one, or of `unaccounted`"
                    .into(),
            });
        }
        let mut run_ns = totals.run_ns.saturating_sub(opened.totals.run_ns);
        opened.totals = totals;
        if let Some(went) = &self.went {
            let went = std::mem::take(&mut *went.lock().unwrap_or_else(PoisonError::into_inner));
            run_ns = went.own_ns as u64;
            if went.paused {
                let followed_ns = nanoseconds(went.followed);
                window.paused_ns = window.duration_ns.saturating_sub(followed_ns);
            }
        }
        window.own_cpu_ns = run_ns + (crate::own::thread_ns() - before_ns);
        Ok(window)
    }

    /// Begin to follow packets.
    fn follow(&mut self) -> Result<(), libbpf_rs::Error> {
        match &mut self.following {
            Following::Always(_) => self.kernel.maps.set_window(WindowState {
                opened_ns: crate::own::monotonic_ns(),
                active: 1,
                admits: 1,
                stretch: 1,
                ..WindowState::default()
            }),
            Following::Working(..) | Following::Stretches(None) => {
                Err(std::io::Error::other("a window is open already").into())
            }
            Following::Stretches(pauser) => {
                let Some(mut pauser) = pauser.take() else {
                    return Ok(());
                };
                if let Err(error) = pauser.open() {
                    self.following = Following::Stretches(Some(pauser));
                    return Err(error);
                }
                let stop = Arc::new(Stop::default());
                let stopped = Arc::clone(&stop);
                let thread = std::thread::Builder::new().name("plumb-pauses".into());
                let thread = thread.spawn(move || {
                    let went = pauser.window(&stopped);
                    (pauser, went)
                })?;
                self.following = Following::Working(stop, thread);
                Ok(())
            }
        }
    }

    /// End it.
    fn unfollow(&mut self) -> Result<(), libbpf_rs::Error> {
        let following = std::mem::replace(&mut self.following, Following::Stretches(None));
        match following {
            Following::Working(stop, thread) => {
                stop.set();
                let worked = thread.join();
                let (pauser, went) = worked
                    .map_err(|_| std::io::Error::other("the thread that pauses it failed"))?;
                self.following = Following::Stretches(Some(pauser));
                went
            }
            other => {
                self.following = other;
                self.kernel.maps.set_window(WindowState::default())
            }
        }
    }
}

impl Drop for Stages {
    fn drop(&mut self) {
        // Detach before the maps are removed; results are discarded.
        let _ = self.unfollow();
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Live for Stages {
    fn attached(&self) -> &Attached {
        &self.attached
    }

    fn open(&mut self) -> Result<(), LiveError> {
        self.unfollow()
            .and_then(|()| self.kernel.maps.settle())
            .and_then(|()| self.kernel.maps.clear())
            .and_then(|()| self.kernel.maps.take_times(self.half).map(drop))
            .and_then(|()| self.events().map(drop))
            .map_err(LiveError::system("clear the maps of `stages`"))?;
        if let Some(went) = &self.went {
            *went.lock().unwrap_or_else(PoisonError::into_inner) = Went::default();
        }
        let own = (self.kernel.maps.own(self.run_ns))
            .map_err(LiveError::system("read the maps of `stages`"))?;
        self.opened = Some(Opened {
            at: Instant::now(),
            since_ns: crate::own::monotonic_ns(),
            totals: self.kernel.programs.totals(),
            before: StageCounts::default(),
            own,
        });
        self.follow().map_err(LiveError::system("open a window of `stages`"))
    }

    fn turn(&mut self) -> Result<Window, LiveError> {
        let mut opened = self.opened.take().ok_or_else(not_open)?;
        let window = self.take(&mut opened);
        self.opened = Some(opened);
        window.map_err(LiveError::system("read the maps of `stages`"))
    }

    fn close(&mut self) -> Result<Window, LiveError> {
        let mut opened = self.opened.take().ok_or_else(not_open)?;
        self.unfollow().map_err(LiveError::system("close the window of `stages`"))?;
        let maps = &self.kernel.maps;
        // A kernel that can't read maps by the batch leaves it unknown.
        let under_way = maps.under_way(opened.since_ns).unwrap_or_default();
        let mut window =
            self.take(&mut opened).map_err(LiveError::system("read the maps of `stages`"))?;
        window.ledger.extend(under_way);
        Ok(window)
    }
}

fn not_open() -> LiveError {
    LiveError::Asked("the window of `stages` is not open".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the programs are carried, with the maps and settings as large as they
    /// are read and written, and the tracepoint in their names.
    #[test]
    fn programs_are_carried() {
        let object = bpf::Opened::new(OBJECT).unwrap();
        for program in object.progs() {
            let name = program.name().to_string_lossy().into_owned();
            let tracepoint = name.strip_prefix(PREFIX).unwrap();
            assert_eq!(program.section().to_string_lossy(), format!("tp_btf/{tracepoint}"));
        }
        let size = |name: &str| {
            let map = object.maps().find(|m| m.name().to_string_lossy().ends_with(name)).unwrap();
            map.value_size() as usize
        };
        assert_eq!(size("times"), layout::TIMES_WORDS * 8);
        assert_eq!(size("cpus"), size_of::<layout::Cpu>());
        assert_eq!(size("traced"), layout::TRACED_BYTES);
        assert_eq!(size(".rodata"), size_of::<layout::Config>());
        assert!(size(".data.window") == size_of::<WindowState>());
    }
}
