//! Traffic of others, window by window: the machine's own, or that of a command.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use netplumb_lab::vm::process::VmError;
use netplumb_model::class::{Family, Link, Proto};
use netplumb_model::quantity::{Item, Of};
use netplumb_model::recording::{Arm, Block, Ledger, Recording};
use netplumb_model::timing::{BUSY, FOLLOWED, Filter, Window};
use netplumb_sys::netns::Namespace;

use super::child::Running;
use super::cpu::Cpus;
use super::packets::{Standing, spec_for};
use super::{LiveEnd, Run, Source, TrafficPlan};
use crate::error::EngineError;
use crate::guest::topology_of;
use crate::plan::Plan;

/// How often it is looked whether it is time.
const NAP: Duration = Duration::from_millis(10);
/// Where other programs find the addresses of the ends.
const TX_ADDRESS: &str = "PLUMB_SELF";
const RX_ADDRESS: &str = "PLUMB_PEER";
const NAMESPACES: &str = "PLUMB_NAMESPACES";

impl Run<'_> {
    pub(super) fn traffic(&mut self, traffic: &TrafficPlan) -> Result<LiveEnd, EngineError> {
        let mut standing = Standing::new();
        let mut spec = self.plan.spec.clone();
        let mut variables = Vec::new();
        let mut namespace = None;
        if let Some(arm) = &traffic.within {
            let plan = Plan {
                arms: vec![arm.clone()],
                packets: 0,
                warmup_packets: 0,
                blocks: 0,
                scan: None,
            };
            let at = standing.build(topology_of(&plan.run_plan(arm)), self.tell)?;
            spec = spec_for(&spec, &standing, &[])?;
            let topology = standing.topology(at);
            let notes = topology.notes.clone();
            self.recording.environment.extend(notes);
            variables.push((TX_ADDRESS, topology.tx_address.to_string()));
            variables.push((RX_ADDRESS, topology.rx_address.to_string()));
            let names = topology.names.as_ref().map(|names| names.given().join(" "));
            variables.push((NAMESPACES, names.unwrap_or_default()));
            let held = topology.tx.try_clone();
            namespace = Some(held.map_err(EngineError::host("hold a namespace"))?);
            self.recording.environment.extend(standing.facts());
        }
        self.attach(&spec)?;
        self.open()?;
        let began = Instant::now();
        let mut command = match traffic.command.is_empty() {
            true => None,
            false => {
                let words = &traffic.command;
                let output = traffic.output_to_stderr;
                let started = Running::start(words, namespace, &variables, output);
                Some(started.map_err(|source| EngineError::Command {
                    name: words[0].clone(),
                    source,
                })?)
            }
        };
        let deadline = traffic.duration.map(|d| began + d);
        let windows = traffic.duration.map(|d| {
            let number = d.as_nanos().div_ceil(traffic.window.as_nanos().max(1));
            u32::try_from(number).unwrap_or(u32::MAX)
        });
        let mut end = LiveEnd::default();
        let mut index = 0;
        let mut seen = false;
        loop {
            let cpus = Cpus::read();
            let opened = Instant::now();
            let until =
                deadline.map_or(opened + traffic.window, |d| d.min(opened + traffic.window));
            let why = self.wait(until, command.as_mut())?;
            let last = match why {
                Woken::Ended => {
                    end.command = match &mut command {
                        Some(running) => running.ended().unwrap_or_default(),
                        None => None,
                    };
                    true
                }
                Woken::Cancelled => true,
                Woken::Time => deadline.is_some_and(|d| Instant::now() >= d),
            };
            let window = match last {
                true => self.close()?,
                false => self.turn()?,
            };
            let window = window.unwrap_or_default();
            let busy = cpus.and_then(|cpus| cpus.busy_since());
            seen |= self.add_window(&window, index, opened.elapsed(), busy);
            index += 1;
            self.keep(index, windows)?;
            if why == Woken::Cancelled {
                return Err(VmError::Interrupted.into());
            }
            if let Some(what) = gone(traffic, &self.plan.spec.filter) {
                return Err(EngineError::Gone(what));
            }
            if last {
                break;
            }
        }
        end.stopped = command.is_some() && end.command.is_none();
        drop(command);
        match seen {
            true => Ok(end),
            false => Err(EngineError::NothingSeen {
                command: end.command,
            }),
        }
    }

    /// Until a window is over, for whichever reason.
    fn wait(
        &self,
        until: Instant,
        mut command: Option<&mut Running>,
    ) -> Result<Woken, EngineError> {
        loop {
            if self.cancelled() {
                return Ok(Woken::Cancelled);
            }
            if let Some(command) = &mut command {
                let ended = command.ended();
                if ended
                    .map_err(EngineError::host("wait for the command"))?
                    .is_some()
                {
                    return Ok(Woken::Ended);
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Woken::Time);
            }
            thread::sleep(left.min(NAP));
        }
    }

    /// A block for each protocol and version of IP that was seen; whether any was.
    fn add_window(
        &mut self,
        window: &Window,
        index: u32,
        took: Duration,
        busy: Option<f64>,
    ) -> bool {
        let duration_ns = match window.duration_ns {
            0 => took.as_nanos() as u64,
            own => own,
        };
        let like = Arm {
            name: String::new(),
            proto: Proto::Command,
            family: Family::V4,
            link: Link::Any,
            forward: false,
            size_bytes: 0,
            knobs: match &self.plan.source {
                Source::Traffic(TrafficPlan {
                    within: Some(arm), ..
                }) => arm.knobs.clone(),
                _ => Default::default(),
            },
        };
        let asked = self.plan.spec.filter.family;
        let instrument = self.probe.as_ref().map(|p| p.clock.to_string());
        let of = WindowOf {
            like: &like,
            instrument: &instrument.unwrap_or_default(),
            family: asked,
        };
        let blocks = add_kinds(self.recording, &of, window, index, duration_ns);
        self.gather(&blocks, window);
        if let (Some(&first), Some(busy)) = (blocks.first(), busy) {
            self.recording
                .add(Of::Block(first), &BUSY, Item::ONLY, busy);
        }
        !blocks.is_empty()
    }
}

/// What windows are of.
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowOf<'a> {
    /// What the arms of its packets are like, but for these.
    pub(super) like: &'a Arm,
    /// Whose windows they are.
    pub(super) instrument: &'a str,
    /// The version of IP that was asked for.
    pub(super) family: Option<Family>,
}

/// A block for each protocol and version of IP that a window saw, each in an arm of its
/// own that has the link and the knobs of what it is like. Their numbers.
pub(super) fn add_kinds(
    recording: &mut Recording,
    of: &WindowOf<'_>,
    window: &Window,
    index: u32,
    duration_ns: u64,
) -> Vec<u32> {
    let mut blocks = Vec::new();
    for (proto, family) in kinds(window, of.family) {
        let arm = arm_of(recording, of.like, proto, family);
        let packets = window
            .stages
            .iter()
            .filter(|s| (s.proto, s.family) == (proto, family))
            .map(|s| s.times.count)
            .max();
        recording.blocks.push(Block {
            arm: arm as u32,
            instrument: of.instrument.into(),
            index,
            ledger: Ledger::default(),
            totals: Vec::new(),
            entered: 0,
            returned: 0,
            duration_ns,
        });
        let block = recording.blocks.len() as u32 - 1;
        blocks.push(block);
        // Nobody but the instrument counts them: no ledger has what was offered.
        if let Some(packets) = packets.filter(|n| *n > 0) {
            recording.add(Of::Block(block), &FOLLOWED, Item::ONLY, packets as f64);
        }
    }
    blocks
}

/// The arm of a kind of packets, which may be the first of its kind.
fn arm_of(recording: &mut Recording, like: &Arm, proto: Proto, family: Family) -> usize {
    let arms = &mut recording.arms;
    let known = arms
        .iter()
        .position(|a| (a.proto, a.family) == (proto, family));
    known.unwrap_or_else(|| {
        arms.push(Arm {
            name: format!("{proto} {family}"),
            proto,
            family,
            ..like.clone()
        });
        arms.len() - 1
    })
}

/// What of that which is watched is no more, if it has a name: another of the same name is
/// not it.
fn gone(traffic: &TrafficPlan, filter: &Filter) -> Option<String> {
    // Before its devices: they go with it.
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
        // That they can't be listed says nothing of them.
        let index = devices.map_or(filter.interface, |d| d.get(name).copied());
        if index.is_none() || index != filter.interface {
            return Some(format!("the interface {name}"));
        }
    }
    None
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Woken {
    Time,
    Ended,
    Cancelled,
}

/// The kinds of packets that a window saw. Functions don't tell the version of IP: it is
/// the one that was asked for, or that of the stages, or 4.
fn kinds(window: &Window, asked: Option<Family>) -> BTreeSet<(Proto, Family)> {
    let stages = window.stages.iter().filter(|s| s.times.count > 0);
    let mut kinds: BTreeSet<(Proto, Family)> = stages.map(|s| (s.proto, s.family)).collect();
    for of in window.functions.iter().filter(|f| f.times.count > 0) {
        let node = window.nodes.get(of.node as usize);
        if let Some(proto) = node.and_then(|n| n.proto)
            && !kinds.iter().any(|(known, _)| *known == proto)
        {
            kinds.insert((proto, asked.unwrap_or(Family::V4)));
        }
    }
    kinds
}
