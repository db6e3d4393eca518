//! Samples of CPUs that handle packets: whose work each is.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_kernel::path_rules::PathRules;
use netplumb_model::class::Direction;
use netplumb_model::quantity::Figure;
use netplumb_model::timing::{
    Attached, CPU_TIME, Costs, NAMES, PERIOD, PROGRAMS, READER, Roles, TAKEN, TimingSpec, Window,
};
use netplumb_sys::cpus;

use super::UNKNOWN;
use super::arrived::Place;
use super::event::Event;
use super::kernel::{self, Kernel};
use super::layout::{Config, Counts, Known};
use super::owner::Tasks;
use super::sampler::{Sampler, Setup};
use super::tree::{Functions, Sum, Tree, nameless};
use crate::live::{self, Live, LiveError};
use crate::own::process_ns;

/// Time between samples of a CPU, with no other period that it could beat with.
const PERIOD_NS: u64 = 499_979;
const EVENT: Event = Event::CpuClock { period_ns: PERIOD_NS };
/// Frames of a stack, at most: packets' stacks are not deeper.
const FRAMES: u32 = 64;
/// User code that has no name here.
const USER_CODE: &str = "[user code]";

/// CPUs that are sampled while a window is open.
#[derive(Debug)]
pub(super) struct Sampling {
    sampler: Sampler,
    roles: Roles,
    rules: PathRules,
    attached: Attached,
    kernel: Kernel,
    opened: Instant,
    closed: Option<Instant>,
    counts: Counts,
    run_ns: u64,
}

impl Sampling {
    pub(super) fn attach(spec: &TimingSpec) -> Result<Sampling, LiveError> {
        let begun = Instant::now();
        if spec.one_packet > 0 {
            return Err(LiveError::Asked(
                "`samples` does not follow packets; omit --one-packet".into(),
            ));
        }
        let filter = &spec.filter;
        let narrow = filter.port.is_some()
            || filter.address.is_some()
            || filter.interface.is_some()
            || filter.pid.is_some()
            || filter.cgroup.is_some();
        if narrow {
            return Err(LiveError::Asked(
                "`samples` covers all work of the CPUs; omit filters of packets and tasks".into(),
            ));
        }
        let cpus = cpus::online().map_err(LiveError::system("read which CPUs are online"))?;
        let sampler = sampler(&cpus.into_iter().collect::<Vec<u32>>())?;
        let attached = Attached {
            attach_ns: begun.elapsed().as_nanos() as u64,
            facts: BTreeMap::from([("sampled.event".into(), EVENT.name().into())]),
            figures: vec![Figure::new(&PERIOD, PERIOD_NS as f64)],
            ..Attached::default()
        };
        Ok(Sampling {
            counts: sampler.counts()?,
            run_ns: sampler.run_ns()?,
            sampler,
            roles: spec.roles.clone(),
            rules: PathRules::built_in(),
            attached,
            kernel: Kernel::default(),
            opened: begun,
            closed: None,
        })
    }
}

fn sampler(cpus: &[u32]) -> Result<Sampler, LiveError> {
    Sampler::load(&Setup {
        cpus,
        event: EVENT,
        config: Config { frames: FRAMES, ..Config::default() },
        programs: Vec::new(),
    })
}

impl Live for Sampling {
    fn attached(&self) -> &Attached {
        &self.attached
    }

    fn open(&mut self) -> Result<(), LiveError> {
        self.closed = None;
        self.counts = self.sampler.counts()?;
        self.run_ns = self.sampler.run_ns()?;
        self.opened = Instant::now();
        self.sampler.begin()
    }

    fn stop(&mut self) {
        self.sampler.stop();
        self.closed.get_or_insert_with(Instant::now);
    }

    fn close(&mut self) -> Result<Window, LiveError> {
        self.stop();
        let closed = self.closed.unwrap_or_else(Instant::now);
        // The window is closed: from here on this process works for its samples.
        let reading_ns = process_ns();
        let seen = seen(&mut self.sampler)?;
        let naming_ns = process_ns();
        let symbols = (self.kernel).symbols(seen.iter().flat_map(|(place, _)| &place.kernel))?;
        let named_ns = process_ns();
        // While the processes that it started still run.
        let tasks = Tasks::now(&self.roles, &self.rules);
        let mut charging = Charging::default();
        for (place, known) in &seen {
            charging.add(place, known, symbols, &tasks);
        }
        let taken: u64 = seen.iter().map(|(_, known)| known.count).sum();
        let stackless = seen.iter().filter(|(p, _)| !p.user && p.kernel.is_empty());
        let counts = self.sampler.counts()?;
        let losses = [
            (
                "samples lost (buffer full)",
                lost(&counts) - lost(&self.counts),
                "their time is missing",
            ),
            (
                "samples without a stack",
                stackless.map(|(_, known)| known.count).sum(),
                "their time is in [unknown]",
            ),
        ];
        let programs_ns = self.sampler.run_ns()? - self.run_ns;
        let names_ns = named_ns.saturating_sub(naming_ns);
        let reader_ns = process_ns().saturating_sub(reading_ns + names_ns);
        Ok(Window {
            duration_ns: (closed - self.opened).as_nanos() as u64,
            own_cpu_ns: programs_ns,
            figures: vec![
                Figure::new(&TAKEN, taken as f64),
                Figure::new(&PROGRAMS, programs_ns as f64),
                Figure::new(&READER, reader_ns as f64),
                Figure::new(&NAMES, names_ns as f64),
            ],
            costs: vec![charging.costs()],
            losses: live::losses(losses),
            ..Window::default()
        })
    }
}

/// Samples that there was no room for, or whose hash collides with another's.
pub(super) fn lost(counts: &Counts) -> u64 {
    counts.lost_map + counts.lost_ring + counts.collided
}

/// What was sampled, once sampling has stopped.
fn seen(sampler: &mut Sampler) -> Result<Vec<(Place, Known)>, LiveError> {
    let counted = sampler.drain(true)?;
    let places = sampler.poll()?.places.into_iter();
    let mut places: HashMap<u64, Place> = places.map(|place| (place.hash, place)).collect();
    let counted = counted.into_iter();
    let seen = counted.filter_map(|(hash, known)| Some((places.remove(&hash)?, known)));
    Ok(seen.collect())
}

/// Charges samples to their owners.
#[derive(Debug, Default)]
struct Charging {
    functions: Functions,
    tree: Tree,
    kernel: u64,
    user: u64,
}

impl Charging {
    fn add(&mut self, place: &Place, known: &Known, symbols: &SymbolTable, tasks: &Tasks) {
        let stack = kernel::found(symbols, &place.kernel);
        let names: Vec<&str> = stack.iter().map(|at| kernel::name(symbols, *at)).collect();
        let Some(owner) = tasks.owner(place, &names) else {
            return;
        };
        let sum = Sum { samples: known.count, ns: known.count * PERIOD_NS };
        if place.user && owner.direction == Direction::Rx {
            self.user += sum.ns;
            return;
        }
        let stack = &stack[..owner.frames.min(stack.len())];
        let functions = match (place.user, stack) {
            (true, _) => vec![nameless(USER_CODE)],
            (false, []) => vec![nameless(UNKNOWN)],
            (false, stack) => {
                let met = |at: &Option<usize>| kernel::met(symbols, *at);
                stack.iter().rev().map(met).collect()
            }
        };
        let root = owner.other.as_deref().map(nameless);
        let mut node = None;
        for function in root.into_iter().chain(functions) {
            let function = self.functions.number(function);
            node = Some(self.tree.node(node, function));
        }
        if let Some(node) = node {
            let to = (owner.direction, owner.context, node);
            self.tree.charge(to, sum);
        }
        self.kernel += sum.ns;
    }

    fn costs(self) -> Costs {
        let (tree, sums) = (self.tree, (self.kernel, self.user));
        tree.costs(&self.functions, &CPU_TIME, sums)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::super::arrived::Who;
    use super::*;

    /// Check that what this very thread does is seen: in user code, and in the kernel with
    /// the way there; and that the samples of all tasks are the time that went by.
    #[test]
    fn as_root_own_work() {
        if !netplumb_testkit::has_root() {
            return;
        }
        // SAFETY: takes nothing.
        let cpu = unsafe { libc::sched_getcpu() } as u32;
        netplumb_sys::cpus::pin(0, cpu).unwrap();
        let mut sampler = sampler(&[cpu]).unwrap();
        let begun = Instant::now();
        sampler.begin().unwrap();
        let mut zero = vec![0_u8; 1 << 20];
        while begun.elapsed() < Duration::from_millis(400) {
            use std::io::Read;
            // Nearly all of it is in the kernel, clearing memory.
            fs::File::open("/dev/zero").and_then(|mut f| f.read_exact(&mut zero)).unwrap();
        }
        sampler.stop();
        let all = seen(&mut sampler).unwrap();
        let elapsed_ns = begun.elapsed().as_nanos() as f64;
        let own: Vec<&(Place, Known)> = (all.iter())
            .filter(|(place, _)| place.who == Who::Process(std::process::id()))
            .collect();
        let deep = own.iter().filter(|(p, _)| !p.user && p.kernel.len() > 2);
        assert!(deep.map(|(_, known)| known.count).sum::<u64>() > 0, "{all:#?}");
        let samples: u64 = all.iter().map(|(_, known)| known.count).sum();
        let share = (samples * PERIOD_NS) as f64 / elapsed_ns;
        // Never more than there was; fewer where the machine itself did not run.
        assert!((0.2..1.05).contains(&share), "{share} of the time");
        let counts = sampler.counts().unwrap();
        assert_eq!(lost(&counts), 0);
        assert_eq!(counts.taken, samples);
    }
}
