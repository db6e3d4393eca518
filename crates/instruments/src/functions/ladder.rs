//! Chooses the mechanism of each function: the best one that the kernel accepts.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use netplumb_model::quantity::{Figure, FigureKey};
use netplumb_model::timing::{
    ATTACH_EACH, Attached, Mechanism, OUTSIDE, RELEASE, TimedFunctionInfo,
};

use super::calibrate::Bench;
use super::hold::Hold;
use super::instances::{Maker, Probe, Shared};
use super::runtime::Memory;
use super::types::{Described, Types};

/// The mechanisms in use, the best first.
const LADDER: &[Mechanism] =
    &[Mechanism::FentryFexit, Mechanism::KprobeSession, Mechanism::Kretprobe];
/// Newer mechanisms, by their number in `enum bpf_attach_type`: tried and reported, not used. From
/// Linux 7.0 and 7.2.
const NEWER: &[(&str, u32)] = &[("fsession", 58), ("fsession_multi", 61)];

/// How one function is timed.
#[derive(Debug)]
enum Way {
    /// By programs of its own.
    Own(Probe),
    /// By the shared program.
    Shared(u32),
}

/// All probes of timed functions.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// By the user's index; none for those given up.
    each: Vec<Option<Way>>,
    shared: Option<Probe>,
    members: Vec<Shared>,
}

/// What attaching needs, and what it finds out.
pub(super) struct Climb<'a> {
    pub(super) maker: &'a Maker,
    pub(super) types: &'a Types,
    pub(super) memory: &'a Memory,
    pub(super) bench: Bench<'a>,
    pub(super) attached: &'a mut Attached,
    /// By a function's number, its index for the user.
    pub(super) known: BTreeMap<u32, u32>,
    /// Why the last function that was refused could not be attached.
    pub(super) last_error: Option<io::Error>,
    /// How long it took to measure the overhead of probes.
    pub(super) calibration_ns: u64,
    /// Set to stop: what is attached then is detached by the caller.
    pub(super) cancel: &'a AtomicBool,
}

impl Climb<'_> {
    /// Note why a function was refused; a missing permission is more informative than other errors.
    fn refused_for(&mut self, error: io::Error) {
        let forbids = |e: &io::Error| e.raw_os_error() == Some(libc::EPERM);
        if !self.last_error.as_ref().is_some_and(forbids) {
            self.last_error = Some(error);
        }
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// Attach to all functions that support it, and measure the cost.
    pub(super) fn attach(&mut self, functions: &[&Described], only: Option<Mechanism>) -> Probes {
        let mut probes = Probes::default();
        // Even if only another mechanism is requested: the boundaries use trampolines.
        self.measure(Mechanism::FentryFexit, &[]);
        self.try_newer();
        let mut left: Vec<(&Described, u32)> = functions.iter().copied().zip(1..).collect();
        let ladder = only.as_ref().map_or(LADDER, std::slice::from_ref);
        for &mechanism in ladder {
            if left.is_empty() || self.is_cancelled() {
                break;
            }
            let (begun, measuring_ns) = (Instant::now(), self.calibration_ns);
            left = match mechanism {
                Mechanism::KprobeSession => self.share(left, &mut probes),
                _ => self.attach_each(left, mechanism, &mut probes),
            };
            let took_ns = begun.elapsed().as_nanos() as u64 - (self.calibration_ns - measuring_ns);
            let of = FigureKey::label(mechanism.as_str());
            let took = Figure::new(&ATTACH_EACH, took_ns as f64).with_key(of);
            self.attached.figures.push(took);
        }
        // Unused mechanisms are not measured.
        let used: Vec<_> = self.attached.functions.iter().map(|f| f.mechanism).collect();
        (self.attached.calibration).retain(|c| used.contains(&c.mechanism));
        probes
    }

    fn attach_each<'f>(
        &mut self,
        functions: Vec<(&'f Described, u32)>,
        mechanism: Mechanism,
        probes: &mut Probes,
    ) -> Vec<(&'f Described, u32)> {
        let mut hold = None;
        if mechanism == Mechanism::FentryFexit {
            let names: Vec<_> = functions.iter().map(|(f, _)| f.name.as_str()).collect();
            let held = match Hold::on(&names) {
                Ok(Some(by)) => hold.insert(by).word().to_string(),
                Ok(None) => "no, too few functions".to_string(),
                Err(error) => format!("not supported by this kernel: {error}"),
            };
            (self.attached.facts).insert("functions.held".into(), held);
        } else {
            self.measure(mechanism, &[]);
        }
        let mut left = Vec::new();
        for (function, id) in functions {
            if self.is_cancelled() {
                break;
            }
            match self.maker.attach(self.types, function, id, mechanism) {
                Ok(probe) => {
                    probes.each.push(Some(Way::Own(probe)));
                    self.note(function, id, mechanism);
                }
                Err(error) => {
                    self.refuse(function, error);
                    left.push((function, id));
                }
            }
        }
        let begun = Instant::now();
        if hold.take().is_some() {
            let took = Figure::new(&RELEASE, begun.elapsed().as_nanos() as f64);
            self.attached.figures.push(took);
        }
        left
    }

    /// Attach one program for all.
    fn share<'f>(
        &mut self,
        functions: Vec<(&'f Described, u32)>,
        probes: &mut Probes,
    ) -> Vec<(&'f Described, u32)> {
        let mut members: Vec<_> = functions.iter().map(|(f, id)| Shared::new(f, *id)).collect();
        // It is all or none: a refused function keeps the others out.
        if let Err(error) = self.maker.share(&members) {
            let mut refused = None;
            members.retain(|one| {
                // If the way itself is missing, one try shows it.
                let tried = match &refused {
                    Some(_) => return false,
                    None => self.maker.share(std::slice::from_ref(one)),
                };
                match tried {
                    Err(e) if e.raw_os_error() == error.raw_os_error() && members_fail(&e) => {
                        refused = Some(e);
                        false
                    }
                    tried => tried.is_ok(),
                }
            });
            let fact = "functions.kprobe_session".to_string();
            self.attached.facts.insert(fact, error.to_string());
        }
        if members.is_empty() {
            return functions;
        }
        self.measure_shared(&members);
        let Ok(shared) = self.maker.share(&members) else {
            return functions;
        };
        probes.shared = Some(shared);
        let mut left = Vec::new();
        for (function, id) in functions {
            if members.iter().any(|m| m.id() == id) {
                probes.each.push(Some(Way::Shared(id)));
                self.note(function, id, Mechanism::KprobeSession);
            } else {
                left.push((function, id));
            }
        }
        probes.members = members;
        left
    }

    fn note(&mut self, function: &Described, id: u32, mechanism: Mechanism) {
        self.attached.refused.remove(&function.name);
        self.known.insert(id, self.attached.functions.len() as u32);
        self.attached.functions.push(TimedFunctionInfo {
            name: function.name.clone(),
            module: self.types.module_name(function).map(String::from),
            mechanism,
            arguments: function.arguments,
        });
    }

    fn refuse(&mut self, function: &Described, error: io::Error) {
        let why = explain(&error);
        // The best way's reason is the one to know.
        (self.attached.refused).entry(function.name.clone()).or_insert(why);
        self.refused_for(error);
    }

    /// Measure a mechanism's cost, on functions that do nothing.
    fn measure(&mut self, mechanism: Mechanism, beside: &[Shared]) {
        let bench = Bench { beside, ..self.bench };
        let begun = Instant::now();
        let measured = bench.measure(mechanism);
        self.calibration_ns += begun.elapsed().as_nanos() as u64;
        match measured {
            Ok(costs) => {
                self.attached.calibration.extend(costs.calibration);
                if mechanism == Mechanism::FentryFexit {
                    self.memory.set_outside(costs.outside_ns.round() as u64);
                    self.attached.nested_saving_ns = costs.nested_saving_ns;
                    let outside = Figure::new(&OUTSIDE, costs.outside_ns);
                    self.attached.figures.push(outside);
                }
            }
            Err(error) => {
                let fact = format!("functions.uncalibrated.{mechanism}");
                self.attached.facts.insert(fact, error.to_string());
            }
        }
    }

    /// The same for a program that these share. How long a cookie is looked for depends
    /// on the function, and is not known for each: it is part of the doubt.
    fn measure_shared(&mut self, members: &[Shared]) {
        let before = self.attached.calibration.len();
        self.measure(Mechanism::KprobeSession, &[]);
        let alone = self.attached.calibration.split_off(before);
        self.measure(Mechanism::KprobeSession, members);
        for (with, alone) in self.attached.calibration[before..].iter_mut().zip(alone) {
            with.uncertainty_ns += (with.pair_ns - alone.pair_ns).abs() / 2.0;
        }
    }

    /// Try newer mechanisms that are not used yet.
    fn try_newer(&mut self) {
        let Some(function) = self.types.find("bpf_fentry_test1") else {
            return;
        };
        for (name, attach) in NEWER {
            let said = match self.maker.accepts(*attach, function) {
                Ok(()) => "supported by this kernel, not used".to_string(),
                Err(why) => format!("not supported by this kernel: {why}"),
            };
            (self.attached.facts).insert(format!("functions.{name}"), said);
        }
    }
}

/// Whether the program or the kernel's configuration was refused, not a function.
fn members_fail(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::EOPNOTSUPP | libc::EPERM | libc::E2BIG) | None
    )
}

impl Probes {
    /// Whether nothing is timed.
    pub(super) fn is_empty(&self) -> bool {
        self.each.is_empty()
    }

    /// Missed entries and exits.
    pub(super) fn missed(&self) -> u64 {
        let own = self.each.iter().flatten().map(|way| match way {
            Way::Own(probe) => probe.missed(),
            Way::Shared(_) => 0,
        });
        own.sum::<u64>() + self.shared.as_ref().map_or(0, Probe::missed)
    }

    /// Detach a function; returns whether it was timed.
    pub(super) fn give_up(&mut self, at: usize, maker: &Maker) -> bool {
        let Some(way) = self.each[at].take() else {
            return false;
        };
        if let Way::Shared(id) = way {
            self.members.retain(|m| m.id() != id);
            // What is shared is attached as a whole.
            self.shared = None;
            if !self.members.is_empty() {
                self.shared = maker.share(&self.members).ok();
            }
        }
        true
    }
}

/// Why one function is not timed.
pub(super) fn explain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(netplumb_sys::errno::ENOTSUPP) => {
            "more arguments than the kernel can pass to a probe (six on most kernels)".into()
        }
        Some(libc::EPERM) => "probes on functions are not permitted (lockdown?)".into(),
        Some(libc::EBUSY) => "in use by another tracer".into(),
        Some(libc::EMFILE | libc::ENFILE) => {
            "too many open files: raise `ulimit -n`, or use a smaller --max-functions".into()
        }
        _ => error.to_string(),
    }
}
