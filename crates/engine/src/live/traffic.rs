//! Traffic of other programs or of a command, window by window.

use std::thread;
use std::time::{Duration, Instant};

use netplumb_lab::vm::process::VmError;
use netplumb_model::class::{Family, Link, Proto};
use netplumb_model::quantity::{FigureKey, Subject};
use netplumb_model::recording::{Arm, Recording};
use netplumb_model::timing::{BUSY, Filter, TimingSpec, Window};
use netplumb_sys::netns::Namespace;

use super::child::Running;
use super::packets::{Standing, Within};
use super::plan::TrafficPlan;
use super::{LiveEnd, LiveEvent, Probes};
use crate::error::EngineError;
use crate::kinds::{WindowOf, add_kinds, check_pairs};
use crate::plan::Plan;
use crate::schedule::Turn;
use crate::site::{self, Alone, Ended, Keeper, OneAtATime};
use netplumb_agent::ends::topology_of;
use netplumb_agent::outside::Cpus;

/// Polling interval.
const NAP: Duration = Duration::from_millis(10);
/// Environment variables with the addresses of the ends.
const TX_ADDRESS: &str = "PLUMB_SELF";
const RX_ADDRESS: &str = "PLUMB_PEER";
const NAMESPACES: &str = "PLUMB_NAMESPACES";
/// Work without a command.
const EVERYTHING: &str = "all CPUs";

/// Observe, window by window.
pub(super) fn run(
    traffic: &TrafficPlan,
    mut probes: Probes<'_, '_>,
    keeper: &mut Keeper<'_>,
) -> Result<LiveEnd, EngineError> {
    let mut standing = Standing::new();
    let mut variables = Vec::new();
    let mut namespace = None;
    let mut within = None;
    let recording = &mut *keeper.recording;
    if let Some(arm) = &traffic.within {
        let topologies = traffic.topologies.clone();
        let plan = Plan { arms: vec![arm.clone()], topologies, ..Plan::default() };
        let wanted = topology_of(&plan.run_plan(arm));
        let at = standing.build(wanted, &mut **probes.tell.borrow_mut())?;
        within = Some(Within::from_standing(&standing)?);
        let topology = standing.topology(at);
        let notes = topology.notes.clone();
        recording.environment.extend(notes);
        variables.push((TX_ADDRESS, topology.tx_address.to_string()));
        variables.push((RX_ADDRESS, topology.rx_address.to_string()));
        let names = topology.names.as_ref().map(|names| names.given().join(" "));
        variables.push((NAMESPACES, names.unwrap_or_default()));
        let held = topology.tx.try_clone();
        namespace = Some(held.map_err(EngineError::host("open a network namespace"))?);
        recording.environment.extend(standing.facts());
    }
    let spec = |spec: &TimingSpec| match &within {
        Some(within) => within.spec(spec),
        None => spec.clone(),
    };
    probes.attach(Some(0), &spec, recording)?;
    probes.open()?;
    let began = Instant::now();
    let command = match traffic.command.is_empty() {
        true => None,
        false => {
            let words = &traffic.command;
            let output = traffic.output_to_stderr.into();
            let started = Running::start(words, namespace, &variables, output, None);
            Some(
                started
                    .map_err(|source| EngineError::Command { name: words[0].clone(), source })?,
            )
        }
    };
    let windows = traffic.duration.map(|d| {
        let number = d.as_nanos().div_ceil(traffic.window.unwrap_or(d).as_nanos().max(1));
        u32::try_from(number).unwrap_or(u32::MAX)
    });
    let like = Arm {
        name: match traffic.command.is_empty() {
            true => EVERYTHING.into(),
            false => traffic.command.join(" "),
        },
        // A window of a run is not a run.
        proto: match (traffic.window, traffic.duration) {
            (None, None) => Proto::Command,
            _ => Proto::Work,
        },
        family: Family::V4,
        link: Link::Any,
        forward: false,
        size_bytes: 0,
        knobs: (traffic.within.as_ref()).map_or_else(Default::default, |arm| arm.knobs.clone()),
        made: None,
    };
    let tell = probes.tell;
    let long = keeper.long().copied();
    let first = long.map_or(0, |long| long.next(keeper.recording, None));
    // The rest of a run that was resumed.
    let duration = match &long {
        Some(long) => long.left(),
        None => traffic.duration,
    };
    let seen = !keeper.recording.blocks.is_empty();
    let mut site = OneAtATime::new(Windows {
        traffic,
        filter: probes.specs.first().map(|spec| spec.filter.clone()),
        probes,
        deadline: duration.map(|d| began + d),
        command,
        like,
        end: LiveEnd::default(),
        seen,
    });
    let turns = (first..).map(|index| Turn { arm: 0, by: 0, blocks: index..index + 1 });
    site::run(&mut site, turns, &[], keeper, &mut |recording, over| {
        (tell.borrow_mut())(match &long {
            Some(long) => LiveEvent::Passed(recording, long.pace()),
            None => LiveEvent::Block(recording, over, windows),
        });
    })?;
    let Windows { mut end, command, seen, .. } = site.site;
    end.stopped = command.is_some() && end.command.is_none();
    drop(command);
    match seen {
        true => Ok(end),
        false => Err(EngineError::NothingSeen { command: end.command }),
    }
}

/// The site: consecutive windows.
struct Windows<'a, 't> {
    traffic: &'a TrafficPlan,
    /// The requested filter.
    filter: Option<Filter>,
    probes: Probes<'a, 't>,
    deadline: Option<Instant>,
    command: Option<Running>,
    /// The template of arms.
    like: Arm,
    end: LiveEnd,
    /// Whether any packet was seen.
    seen: bool,
}

impl Alone for Windows<'_, '_> {
    fn turn(&mut self, turn: &Turn, keeper: &mut Keeper<'_>) -> Result<Ended, EngineError> {
        let cpus = Cpus::read();
        let opened = Instant::now();
        let window = self.traffic.window.map(|window| opened + window);
        let until = window.into_iter().chain(self.deadline).min();
        let why = self.wait(until, keeper)?;
        let last = match why {
            Woken::Ended => {
                self.end.command = match &mut self.command {
                    Some(running) => running.ended().unwrap_or_default(),
                    None => None,
                };
                true
            }
            Woken::Cancelled => true,
            Woken::Time => self.deadline.is_some_and(|d| Instant::now() >= d),
        };
        let window = match last {
            true => self.probes.close()?,
            false => self.probes.turn()?,
        };
        let window = window.unwrap_or_default();
        let busy = cpus.and_then(|cpus| cpus.busy_since());
        let took = opened.elapsed();
        self.add_window(&window, turn.blocks.start, took, busy, keeper.recording);
        if why == Woken::Cancelled {
            return Err(VmError::Interrupted.into());
        }
        let gone = self.filter.as_ref().and_then(|f| gone(self.traffic, f));
        match gone {
            Some(what) => Err(EngineError::Gone(what)),
            None if last => Ok(Ended::Last),
            None => Ok(Ended::Measured),
        }
    }
}

impl Windows<'_, '_> {
    /// Wait until a window is over, for any reason: its time, if it has one, or the end of all.
    fn wait(&mut self, until: Option<Instant>, keeper: &Keeper<'_>) -> Result<Woken, EngineError> {
        loop {
            self.probes.poll()?;
            if keeper.is_cancelled() {
                return Ok(Woken::Cancelled);
            }
            if let Some(command) = &mut self.command {
                let ended = command.ended();
                if ended.map_err(EngineError::host("wait for the command"))?.is_some() {
                    return Ok(Woken::Ended);
                }
            }
            let left = until.map_or(NAP, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(Woken::Time);
            }
            thread::sleep(left.min(NAP));
        }
    }

    /// Add a block for each protocol and address family that was seen.
    fn add_window(
        &mut self,
        window: &Window,
        index: u32,
        took: Duration,
        busy: Option<f64>,
        recording: &mut Recording,
    ) {
        let duration_ns = match window.duration_ns {
            0 => took.as_nanos() as u64,
            own => own,
        };
        let of = WindowOf {
            like: &self.like,
            instrument: self.probes.name(),
            family: self.filter.as_ref().and_then(|filter| filter.family),
            arm: None,
        };
        let blocks = add_kinds(recording, &of, window, index, duration_ns);
        self.probes.gather(recording, &blocks, window);
        if let (Some(&first), Some(busy)) = (blocks.first(), busy) {
            recording.add(Subject::Block(first), &BUSY, FigureKey::ONLY, busy);
        }
        self.seen |= !blocks.is_empty();
        // Work of no packet has a block for each window.
        let none = check_pairs(recording, &[self.probes.name()]).is_err();
        self.seen &= !none;
    }
}

/// The observed object that was removed, if any; another one of the same name does not count.
fn gone(traffic: &TrafficPlan, filter: &Filter) -> Option<String> {
    // Before its devices, which are removed with it.
    if let Some(name) = &traffic.namespace {
        let inode = Namespace::find(name).and_then(|found| found.inode()).ok();
        if inode.is_none() || inode.as_ref() != filter.namespaces.first() {
            return Some(format!("the network namespace {name}"));
        }
    }
    if let Some(name) = &traffic.interface {
        let within = match &traffic.namespace {
            Some(namespace) => Namespace::find(namespace),
            None => Namespace::current(),
        };
        let devices = within.and_then(|n| n.devices());
        // If they can't be listed, assume that they exist.
        let index = devices.map_or(filter.interface, |d| d.get(name).copied());
        if index.is_none() || index != filter.interface {
            return Some(format!("the interface {name}"));
        }
    }
    None
}

/// Why waiting ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Woken {
    Time,
    Ended,
    Cancelled,
}
