//! The `functions` instrument: nanoseconds from entry to exit of many kernel functions at once, by
//! calling context, without interruptions.
//!
//! The programs are in functions/: functions.bpf.c has the probes of functions, lookup.h their slow
//! paths, boundaries.h the boundaries of stacks, classify.h the classification of packets,
//! runtime.h the memory. The Rust part of each is beside it; hold.rs makes it fast to attach to
//! many. [`correct`](correct::correct) subtracts the cost of probes.

pub mod correct;

mod budget;
mod calibrate;
mod filter;
mod hold;
mod instances;
mod kprobe;
mod ladder;
mod layout;
mod object;
mod runtime;
mod select;
mod session;
mod steps;
mod tree;
mod types;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use netplumb_model::capability::Availability;
use netplumb_model::experiment::Lab;
use netplumb_model::loss::Loss;
use netplumb_model::quantity::{Declared, Figure};
use netplumb_model::timing::{
    ATTACH_EACH, ATTACH_ONLY, Attached, CALIBRATION, INTERRUPTIONS, OUTSIDE, OWN_TIME, RELEASE,
    Step, TimingSpec, Window,
};

use crate::capability::Tried;
use crate::instrument::{Instrument, Layers, in_guest};
use crate::live::{self, Live, LiveError};
use calibrate::Bench;
use instances::{Boundaries, Maker};
use ladder::{Climb, Probes, explain};
use layout::loss;
use object::Templates;
use runtime::{Memory, Shape};
use select::Symbols;
use tree::Tree;
use types::Types;

/// Times functions of the running kernel.
pub const INSTRUMENT: &dyn Instrument = &Declaration;

#[derive(Debug)]
struct Declaration;

impl Instrument for Declaration {
    fn about(&self) -> &'static str {
        "Nanoseconds from a function's entry to its exit"
    }

    fn quantities(&self) -> &'static [Declared] {
        const ALL: &[Declared] =
            &[OWN_TIME, INTERRUPTIONS, ATTACH_EACH, ATTACH_ONLY, CALIBRATION, RELEASE, OUTSIDE];
        ALL
    }

    fn works(&self, lab: Lab, tried: &Tried<'_>) -> Availability {
        if lab == Lab::Vm {
            return in_guest("fentry and fexit in the guest", tried);
        }
        // Without any, only mention the two that most kernels have.
        let trampolines = (["fentry", "fexit"].as_slice(), "by fentry and fexit");
        let kprobes = (["kprobe"].as_slice(), "by kprobes, at a higher cost per call");
        let best = tried.any(&[
            (&["fsession"], "by fsession"),
            trampolines,
            (&["kprobe-session"], "by kprobe.session"),
            kprobes,
        ]);
        match best.works() {
            true => best,
            false => tried.any(&[trampolines, kprobes]),
        }
    }

    fn attach(
        &self,
        spec: &TimingSpec,
        layers: &Layers<'_>,
        cancel: &AtomicBool,
    ) -> Result<Box<dyn Live>, LiveError> {
        Ok(Box::new(Functions::attach(spec, layers, cancel)?))
    }
}

/// The attached instrument.
#[derive(Debug)]
pub struct Functions {
    // Dropped in this order: the functions, then the boundaries, then the memory.
    probes: Probes,
    maker: Maker,
    /// Per-packet traces still to be recorded.
    packets: u32,
    packets_reported: u32,
    max_overhead: Option<f64>,
    boundaries: Boundaries,
    attached: Attached,
    tree: Tree,
    memory: Memory,
    templates: Templates,
    opened: Instant,
    /// Losses when the window was opened.
    before: Lost,
}

/// Losses so far.
#[derive(Debug, Clone, Copy, Default)]
struct Lost {
    counted: [u64; loss::ALL],
    missed: u64,
    boundaries_missed: u64,
}

impl Functions {
    /// Choose functions, measure the overhead of probes, and attach them.
    ///
    /// # Errors
    /// Tracing is not supported or not permitted, or there are no functions to time.
    pub fn attach(
        spec: &TimingSpec,
        layer: &dyn Fn(&str, Option<&str>) -> Option<String>,
        cancel: &AtomicBool,
    ) -> Result<Functions, LiveError> {
        let begun = Instant::now();
        let types = Types::load().map_err(|error| LiveError::CannotRun {
            reason: format!("the kernel has no usable type information (BTF): {error}"),
            remedy: "use a kernel with CONFIG_DEBUG_INFO_BTF, or `--clock exact` in the vm lab"
                .into(),
        })?;
        let chosen = select::choose(&spec.selection, &types, &Symbols::load(), layer)?;
        let mut attached = Attached {
            refused: chosen.refused,
            over_budget: chosen.over_budget,
            ..Default::default()
        };
        // The calibration's numbers come last.
        let numbers = chosen.functions.len() as u32 + calibrate::FUNCTIONS;
        let cpus = libbpf_rs::num_possible_cpus().unwrap_or(1) as u32;
        let shape = Shape::new(cpus, numbers);
        let mut templates = Templates::open()?;
        let ring_bytes = match spec.one_packet {
            // The minimum size: it can't be omitted.
            0 => 4096,
            _ => steps::RING_BYTES,
        };
        let memory = Memory::make(&mut templates, shape, &spec.filter, ring_bytes)?;
        let maker = Maker::new(&templates, shape, &types, spec.one_packet > 0)?;
        let boundaries = Boundaries::attach(&templates, shape, &types, true)?;
        let bench = Bench {
            templates: &templates,
            shape,
            memory: &memory,
            maker: &maker,
            types: &types,
            first: chosen.functions.len() as u32 + 1,
            beside: &[],
            tick_ns: netplumb_sys::clock::tick_ns(),
        };
        live::go_on(cancel)?;
        let attaching = Instant::now();
        // Each probe takes some.
        netplumb_sys::limits::raise_open_files();
        let mut climb = Climb {
            maker: &maker,
            types: &types,
            memory: &memory,
            bench,
            attached: &mut attached,
            known: BTreeMap::new(),
            last_error: None,
            calibration_ns: 0,
            cancel,
        };
        let probes = climb.attach(&chosen.functions, spec.mechanism);
        let (known, last_error) = (climb.known, climb.last_error);
        let calibration_ns = climb.calibration_ns;
        let attach_only_ns = attaching.elapsed().as_nanos() as u64 - calibration_ns;
        live::go_on(cancel)?;
        if probes.is_empty() {
            return Err(nothing(last_error));
        }
        let mut fact = |key: &str, value: String| {
            attached.facts.insert(format!("functions.{key}"), value);
        };
        fact("boundaries", boundaries.watched.join(" "));
        for (quantity, ns) in [(&CALIBRATION, calibration_ns), (&ATTACH_ONLY, attach_only_ns)] {
            attached.figures.push(Figure::new(quantity, ns as f64));
        }
        attached.refused.extend(boundaries.refused.clone());
        attached.attach_ns = begun.elapsed().as_nanos() as u64;
        let mut functions = Functions {
            tree: Tree::new(shape, known),
            probes,
            maker,
            packets: spec.one_packet,
            packets_reported: 0,
            max_overhead: spec.selection.max_overhead,
            boundaries,
            attached,
            memory,
            templates,
            opened: Instant::now(),
            before: Lost::default(),
        };
        functions.open()?;
        Ok(functions)
    }

    /// Detach functions whose probes took too much in a window.
    fn keep_to(&mut self, max_share: f64, window: &Window) {
        for function in budget::excess(max_share, &self.attached, window) {
            let at = function as usize;
            // A probe's misses go with it; this window's are counted already.
            if self.probes.give_up(at, &self.maker) {
                let name = self.attached.functions[at].name.clone();
                self.attached.over_budget.push(name);
            }
        }
    }

    /// Traces of the first packets, unless they have been read already.
    fn first_traces(&mut self) -> Result<Vec<Step>, LiveError> {
        if self.packets == 0 {
            return Ok(Vec::new());
        }
        self.memory.set_telling(0);
        let raw = steps::drain(self.templates.map_fd("steps")?).map_err(|e| LiveError::System {
            doing: "read the steps of single packets".into(),
            source: Box::new(e),
        })?;
        let (tree, memory, attached) = (&mut self.tree, &self.memory, &self.attached);
        let mut steps = steps::steps(raw, self.packets, |id| {
            let node = tree.node(memory, id)?.clone();
            let name = attached.functions[node.function as usize].name.clone();
            Some((node, name))
        });
        let count = steps.last().map_or(0, |s| s.packet + 1);
        for step in &mut steps {
            step.packet += self.packets_reported;
        }
        self.packets -= count.min(self.packets);
        self.packets_reported += count;
        Ok(steps)
    }

    fn lost(&self) -> Lost {
        Lost {
            counted: self.memory.lost(),
            missed: self.probes.missed(),
            boundaries_missed: self.boundaries.missed(),
        }
    }

    fn losses(&self, ignored_calls: u64) -> Vec<Loss> {
        let now = self.lost();
        let counted = |kind: usize| now.counted[kind] - self.before.counted[kind];
        let all = [
            (
                "calls nested too deep",
                counted(loss::DEPTH),
                "they are part of their callers' own time",
            ),
            (
                "calls in contexts beyond the size of the tree",
                ignored_calls,
                "they are not counted; time fewer functions",
            ),
            (
                "entries without an exit",
                counted(loss::UNMATCHED),
                "the call is not counted; its time is in its caller's",
            ),
            (
                "exits without an entry",
                counted(loss::ORPHANS),
                "the call is not counted; its time is in its caller's",
            ),
            (
                "task switches without a free stack",
                counted(loss::STACKS),
                "the calls in progress are not counted",
            ),
            (
                "interrupts nested too deep",
                counted(loss::LEVELS),
                "their time is charged to what they interrupted",
            ),
            (
                "interrupts whose end was not seen",
                counted(loss::BOUNDARIES),
                "the time of what they interrupted may be too long",
            ),
            ("times that an interrupt made negative", counted(loss::RACES), "they count as 0"),
            ("lost events of per-packet traces", counted(loss::STEPS), "the traces have gaps"),
            (
                "exits whose entry could not be looked up",
                counted(loss::QUESTIONS),
                "the call is not counted; its time is in its caller's",
            ),
            (
                "probe hits skipped by the kernel (recursion)",
                now.missed.saturating_sub(self.before.missed),
                "the call is not counted; its time is in its caller's",
            ),
            (
                "missed interrupts and task switches",
                now.boundaries_missed - self.before.boundaries_missed,
                "their time is charged to what they interrupted",
            ),
        ];
        live::losses(all)
    }
}

/// Why nothing is timed.
fn nothing(error: Option<std::io::Error>) -> LiveError {
    match error {
        Some(error) if error.raw_os_error() == Some(libc::EPERM) => LiveError::CannotRun {
            reason: "attaching to functions is not permitted (lockdown, or not root)".into(),
            remedy: "use `--clock stages`, which needs only tracepoints, or `--lab vm`".into(),
        },
        Some(error) => LiveError::CannotRun {
            reason: format!("no function could be timed: {}", explain(&error)),
            remedy: "choose other functions, or use `--clock stages`, which needs only tracepoints"
                .into(),
        },
        None => LiveError::Asked("none of the given functions can be timed on this kernel".into()),
    }
}

impl Functions {
    fn report_packets(&self) {
        (self.memory).set_telling(u64::from(self.packets).saturating_mul(steps::OF_ONE));
    }
}

impl Live for Functions {
    fn attached(&self) -> &Attached {
        &self.attached
    }

    fn open(&mut self) -> Result<(), LiveError> {
        self.before = self.lost();
        self.opened = Instant::now();
        self.tree.open(&self.memory);
        if self.packets > 0 {
            // Leftovers of an earlier window.
            steps::drain(self.templates.map_fd("steps")?).map_err(|e| LiveError::System {
                doing: "read the steps of single packets".into(),
                source: Box::new(e),
            })?;
            self.report_packets();
        }
        Ok(())
    }

    fn turn(&mut self) -> Result<Window, LiveError> {
        // The window is read up to the start of the next one.
        let window = self.close()?;
        self.before = self.lost();
        self.opened = Instant::now();
        if self.packets > 0 {
            self.report_packets();
        }
        Ok(window)
    }

    fn close(&mut self) -> Result<Window, LiveError> {
        let duration_ns = self.opened.elapsed().as_nanos() as u64;
        let seen = self.tree.close(&self.memory);
        let steps = self.first_traces()?;
        let mut window = Window {
            duration_ns,
            steps,
            losses: self.losses(seen.lost_calls),
            ledger: seen.ledger(&self.attached),
            nodes: seen.nodes,
            nested: seen.nested,
            functions: seen.functions,
            ..Default::default()
        };
        window.own_cpu_ns = correct::own_ns(&self.attached, &window) as u64;
        if let Some(max) = self.max_overhead {
            self.keep_to(max, &window);
        }
        Ok(window)
    }
}
