//! Single calls of one function, as trees of the calls below it, in the order of the stream.
//!
//! A call's instructions are its costs on the calling-context tree: without the interrupts and
//! softirqs that come in between, which are steps of their own (`aside`), and without other tasks.
//! So the totals of all calls add up to the function's inclusive cost, except for calls that began
//! before the window.

use std::collections::BTreeSet;
use std::sync::Arc;

use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_kernel::prototype::{Prototype, REGISTERS, Unread};
use netplumb_model::class::{Context, Softirq};
use netplumb_model::condition::{Condition, OfCall};
use netplumb_model::experiment::Trace as Spec;
use netplumb_model::symbol::{base_name, is_called, is_part};
use netplumb_model::trace::{CallCounts, Flags};
use rustc_hash::FxHashMap;

use super::tree::Symbol;
use super::user::{FIRST_SYMBOL, UserSymbol};
use crate::image::{Images, PAGE_BYTES, readable};
use crate::kept::{Call, KeptCalls};

/// A step of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracedStep {
    /// Its parent's index in `TracedCall::steps`; none for the first.
    pub parent: Option<u32>,
    /// The function, by its number among the kernel's or the programs' symbols.
    pub symbol: Symbol,
    /// Instructions in the window before it.
    pub begin: u64,
    /// Instructions until its end, other tasks' and interrupts' included.
    pub elapsed: u64,
    /// Instructions, with all that it called.
    pub total: u64,
    /// Instructions in the function itself.
    pub own: u64,
    /// How often its task was switched out.
    pub switches: u32,
    /// Whose time it was.
    pub context: Context,
    /// What else is known.
    pub flags: Flags,
    /// Registers of its arguments: index into [`TracedCall::registers`].
    pub arguments: Option<u32>,
    /// What it returned.
    pub returned: Option<u64>,
}

/// A traced call, with the calls below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedCall {
    /// Its number among the calls of the window, in the order in which they began.
    pub number: u64,
    /// The root of the thread that made it, in a command.
    pub thread: Option<Symbol>,
    /// Its steps; it is the first.
    pub steps: Vec<TracedStep>,
    /// Registers of the arguments of steps.
    pub registers: Vec<[u64; REGISTERS]>,
    /// Texts that some of them point to: by index into `registers`, and the register.
    pub texts: Vec<((u32, u8), String)>,
}

/// The calls of a window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TracedCalls {
    /// All of them.
    pub counts: CallCounts,
    /// Calls that are kept, in the order in which they began.
    pub kept: Vec<TracedCall>,
    /// Steps of calls that had too many.
    pub dropped: u64,
    /// Calls whose total is not in the distribution.
    pub unranked: u64,
}

impl TracedCalls {
    /// The functions of the calls that are kept.
    pub fn symbols(&self) -> BTreeSet<Symbol> {
        let steps = self.kept.iter().flat_map(|call| &call.steps);
        let threads = self.kept.iter().filter_map(|call| call.thread);
        steps.map(|step| step.symbol).chain(threads).collect()
    }
}

/// A program's function: the number of its file, and its address there.
pub type InFile = (u32, u64);

/// The error for an unknown function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoFunction {
    /// Similar names, at most five.
    pub near: Vec<String>,
    /// The named file does not exist.
    pub no_file: bool,
    /// A file that may have the function, but has no symbols to find it by: the one that was named, or a
    /// program.
    pub stripped: Option<String>,
}

/// What is traced: a function of these symbols and files.
#[derive(Debug, Clone)]
pub struct Tracing {
    spec: Spec,
    /// By symbol of the kernel.
    kernel: Vec<bool>,
    /// Functions of programs.
    programs: Vec<InFile>,
    /// The functions' prototypes, where arguments are read and they are known.
    of_kernel: FxHashMap<Symbol, Arc<Prototype>>,
    of_programs: FxHashMap<InFile, Arc<Prototype>>,
}

impl Tracing {
    /// Look a function up: in the kernel, and else in the program's files; if a file is named, only in
    /// images for whose numbers `is_file` is true.
    ///
    /// # Errors
    /// The function is unknown, or the file.
    pub fn find(
        spec: &Spec,
        symbols: &SymbolTable,
        images: &Images,
        is_file: &dyn Fn(u32) -> bool,
    ) -> Result<Tracing, NoFunction> {
        let (file, name) = spec.place();
        let mut kernel = vec![false; symbols.len()];
        if file.is_none() {
            let all = || symbols.symbols().iter().enumerate();
            let exact: Vec<usize> =
                (all().filter(|(_, s)| s.name == name)).map(|(n, _)| n).collect();
            // A compiler's clone, if there is nothing but that: `f.constprop.0`.
            let clones = all().filter(|(_, s)| base_name(&s.name) == name && !is_part(&s.name));
            let found = match exact.is_empty() {
                true => clones.map(|(n, _)| n).collect(),
                false => exact,
            };
            for n in &found {
                kernel[*n] = true;
            }
            if !found.is_empty() {
                return Ok(Tracing::from_spec(spec, kernel, Vec::new()));
            }
        }
        let files: Vec<_> = ((0..).zip(images.images()))
            .filter(|(number, _)| file.is_none() || is_file(*number))
            .collect();
        let mut programs = Vec::new();
        for (number, image) in &files {
            let named = image.functions.iter().filter(|function| {
                is_named(&readable(&function.name), name) || function.name == name
            });
            programs.extend(named.map(|function| (*number, function.start)));
        }
        if !programs.is_empty() {
            return Ok(Tracing::from_spec(spec, Vec::new(), programs));
        }
        let of_kernel = symbols.symbols().iter().map(|s| s.name.clone());
        let of_files = files.iter().flat_map(|(_, image)| &image.functions);
        let of_files = of_files.map(|function| readable(&function.name));
        let all: Vec<String> = match file {
            Some(_) => of_files.collect(),
            None => of_kernel.chain(of_files).collect(),
        };
        Err(NoFunction {
            near: near(name, &all),
            no_file: file.is_some() && files.is_empty(),
            stripped: (files.iter())
                .find(|(_, image)| (file.is_some() || image.program) && !image.has_symbols())
                .map(|(_, image)| image.name.clone()),
        })
    }

    fn from_spec(spec: &Spec, kernel: Vec<bool>, programs: Vec<InFile>) -> Tracing {
        Tracing {
            spec: spec.clone(),
            kernel,
            programs,
            of_kernel: FxHashMap::default(),
            of_programs: FxHashMap::default(),
        }
    }

    /// The same with the prototypes of the functions, at least one.
    ///
    /// # Errors
    /// None of these has an argument that the condition names, or one that can be read: what the
    /// functions are like, if that is known.
    pub fn with_prototypes(
        mut self,
        symbols: &SymbolTable,
        prototypes: &dyn Prototypes,
    ) -> Result<Tracing, NoArgument> {
        for symbol in self.kernel() {
            let found = prototypes.of_kernel(&symbols.symbols()[symbol as usize]);
            self.of_kernel.extend(found.map(|found| (symbol, found)));
        }
        let found = prototypes.of_programs(&self.programs);
        self.of_programs.extend(found);
        let known = || self.of_kernel.values().chain(self.of_programs.values());
        let names = self.spec.only.iter().flat_map(Condition::values);
        for name in names {
            let why = |of: &Prototype| of.check(name).err();
            if known().any(|of| why(of).is_none()) {
                continue;
            }
            // A function with this argument explains best why it is of no use.
            let has = known().find(|of| why(of) != Some(Unread::Missing));
            let prototype = has.or_else(|| known().next()).cloned();
            return Err(NoArgument {
                name: name.map(String::from),
                why: (prototype.as_deref().and_then(why)).unwrap_or(Unread::Missing),
                prototype,
            });
        }
        Ok(self)
    }

    /// Whether arguments of the functions are known.
    pub fn has_prototypes(&self) -> bool {
        !self.of_kernel.is_empty() || !self.of_programs.is_empty()
    }

    /// Whether functions of the kernel are meant.
    pub fn is_of_kernel(&self) -> bool {
        !self.kernel.is_empty()
    }

    /// Functions of the kernel, by their symbols.
    fn kernel(&self) -> Vec<Symbol> {
        let meant = self.kernel.iter().enumerate().filter(|(_, is)| **is);
        meant.map(|(n, _)| n as Symbol).collect()
    }

    /// The plugin's options: which calls are traced.
    pub fn options(&self, symbols: &SymbolTable, images: &Images) -> Vec<String> {
        let kernel = self.kernel().into_iter().map(|symbol| {
            let address = symbols.symbols()[symbol as usize].addr;
            let texts = self.of_kernel.get(&symbol).map_or(0, |of| of.texts());
            format!("call={address:x}:{texts:x}")
        });
        let programs = self.programs.iter().filter_map(|(image, address)| {
            let hash = images.hash_at(*image, *address)?;
            let texts = self.of_programs.get(&(*image, *address));
            let texts = texts.map_or(0, |of| of.texts());
            let offset = address % PAGE_BYTES as u64;
            Some(format!("user={hash:x}:{offset:x}:{texts:x}"))
        });
        kernel.chain(programs).collect()
    }
}

/// Prototypes of functions, as far as they are known.
pub trait Prototypes {
    /// The prototype of a function of the kernel or of a module.
    fn of_kernel(&self, symbol: &netplumb_kernel::symbol::Symbol) -> Option<Arc<Prototype>>;
    /// Prototypes of functions of programs.
    fn of_programs(&self, functions: &[InFile]) -> Vec<(InFile, Arc<Prototype>)>;
}

/// A condition names an argument that the function does not have, or that can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoArgument {
    /// The argument; none if it is what the function returns.
    pub name: Option<String>,
    /// Whether it is missing, or why it can't be read.
    pub why: Unread,
    /// The function's prototype, if it is known.
    pub prototype: Option<Arc<Prototype>>,
}

/// Whether a function of a program has a name, with or without its arguments.
fn is_named(readable: &str, name: &str) -> bool {
    readable == name || readable.split_once('(').is_some_and(|(whole, _)| whole == name)
}

/// Most names suggested for an unknown one.
const MOST_NEAR: usize = 5;

/// The nearest names: C++ and Rust functions with this last part, names spelled similarly, and names that contain it
/// without a prefix of the kernel's inner functions, which are often inlined into the others.
fn near(name: &str, all: &[String]) -> Vec<String> {
    let core = name.trim_start_matches('_');
    let core = core.strip_prefix("do_").unwrap_or(core);
    let mut kin: Vec<&str> = match core.len() >= 8 {
        true => all.iter().map(String::as_str).filter(|known| known.contains(core)).collect(),
        false => Vec::new(),
    };
    kin.sort_unstable_by_key(|known| (known.len(), *known));
    kin.dedup();
    let mut found: Vec<(usize, &str)> = (all.iter())
        .filter(|known| known.len().abs_diff(name.len()) <= name.len() / 2)
        .map(|known| (strsim::damerau_levenshtein(name, known), known.as_str()))
        .filter(|(distance, _)| 3 * distance <= name.len().max(3))
        .collect();
    found.sort_unstable();
    let spelled = found.iter().map(|(_, known)| *known).take(3);
    let mut called: Vec<&str> =
        (all.iter()).map(String::as_str).filter(|known| is_called(known, name)).collect();
    called.sort_unstable();
    let mut names: Vec<String> = Vec::new();
    for known in called.into_iter().chain(spelled).chain(kin) {
        if names.len() < MOST_NEAR && !is_part(known) && names.iter().all(|name| name != known) {
            names.push(known.to_string());
        }
    }
    names
}

/// A function that has not returned, in a traced call or as its first.
#[derive(Debug, Clone)]
struct Open {
    /// In user mode, or else in the kernel.
    user: bool,
    /// Its frame, by its place on that stack.
    level: usize,
    /// Its step, if it is one.
    step: Option<u32>,
    /// It was jumped to, and ends with what jumped.
    jumped: bool,
    /// What it returned.
    returned: Option<u64>,
    own: u64,
    /// Instructions of what it called.
    below: u64,
    switches: u32,
    /// It came in between.
    aside: bool,
    /// It is below something that came in between.
    within: bool,
}

/// A traced call that has not returned.
#[derive(Debug, Clone)]
pub(super) struct OpenTrace {
    number: u64,
    thread: Option<Symbol>,
    steps: Vec<TracedStep>,
    registers: Vec<[u64; REGISTERS]>,
    texts: Vec<((u32, u8), String)>,
    open: Vec<Open>,
    dropped: u64,
}

/// How a function was entered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entered {
    pub(super) symbol: Symbol,
    /// In user mode, or else in the kernel.
    pub(super) user: bool,
    /// The place of its frame on that stack.
    pub(super) level: usize,
    /// By a jump.
    pub(super) jumped: bool,
    /// An interrupt, or a run of softirqs.
    pub(super) aside: bool,
    /// The action of a softirq.
    pub(super) vector: Option<Softirq>,
    /// None in a run of softirqs, outside of their actions.
    pub(super) context: Option<Context>,
    /// The root of the thread, in a command.
    pub(super) thread: Option<Symbol>,
    /// Registers of its arguments.
    pub(super) arguments: Option<[u64; REGISTERS]>,
}

/// Traces calls.
#[derive(Debug)]
pub(super) struct Tracer {
    tracing: Tracing,
    /// Programs' functions by symbol; none if they are not meant.
    programs: FxHashMap<Symbol, Option<InFile>>,
    /// Instructions since the window opened; none between windows.
    clock: Option<u64>,
    calls: KeptCalls<TracedCall>,
    dropped: u64,
}

impl Tracer {
    pub(super) fn new(tracing: Tracing) -> Tracer {
        Tracer {
            tracing,
            programs: FxHashMap::default(),
            clock: None,
            calls: KeptCalls::default(),
            dropped: 0,
        }
    }

    /// A window opens.
    pub(super) fn begin(&mut self) {
        self.clock = Some(0);
        self.calls = KeptCalls::default();
        self.dropped = 0;
    }

    /// The window closes, once open calls have ended; returns what it had.
    pub(super) fn end(&mut self) -> TracedCalls {
        self.clock = None;
        let calls = std::mem::take(&mut self.calls);
        let unranked = calls.unranked;
        let (counts, kept) = calls.end();
        TracedCalls { counts, kept, dropped: std::mem::take(&mut self.dropped), unranked }
    }

    /// Instructions ran, in the function that was entered last.
    pub(super) fn charge(&mut self, traces: &mut [OpenTrace], insns: u32) {
        if let Some(clock) = &mut self.clock {
            *clock += u64::from(insns);
        }
        for trace in traces {
            if let Some(top) = trace.open.last_mut() {
                top.own += u64::from(insns);
            }
        }
    }

    /// Whether calls of a function are traced.
    fn is_meant(&mut self, symbol: Symbol, user: &[UserSymbol]) -> bool {
        let Some(number) = symbol.checked_sub(FIRST_SYMBOL) else {
            return (self.tracing.kernel.get(symbol as usize)).is_some_and(|is| *is);
        };
        if self.tracing.programs.is_empty() {
            return false;
        }
        let tracing = &self.tracing;
        let of = self.programs.entry(symbol).or_insert_with(|| {
            let found = user.get(number as usize)?;
            let of = (found.image?, found.address);
            tracing.programs.contains(&of).then_some(of)
        });
        of.is_some()
    }

    /// The prototype of a traced function.
    fn prototype(&self, symbol: Symbol) -> Option<&Prototype> {
        let found = match self.programs.get(&symbol) {
            Some(of) => self.tracing.of_programs.get(of.as_ref()?),
            None => self.tracing.of_kernel.get(&symbol),
        };
        found.map(|found| &**found)
    }

    /// A function was entered.
    pub(super) fn enter(
        &mut self,
        traces: &mut Vec<OpenTrace>,
        entered: &Entered,
        texts: &[(u8, String)],
        user: &[UserSymbol],
    ) {
        let Some(clock) = self.clock else { return };
        let meant = self.is_meant(entered.symbol, user);
        if traces.is_empty() && !meant {
            return;
        }
        for trace in traces.iter_mut() {
            trace.enter(entered, texts, clock, &self.tracing.spec);
        }
        if !meant {
            return;
        }
        // Within an interrupt of a traced call, it is a call of its own.
        let last = traces.last();
        if last.is_some_and(|trace| !trace.open.iter().any(|open| open.aside)) {
            self.calls.counts.recursive += 1;
            return;
        }
        let mut trace = OpenTrace {
            number: self.calls.counts.calls,
            thread: entered.thread,
            steps: Vec::new(),
            registers: Vec::new(),
            texts: Vec::new(),
            open: Vec::new(),
            dropped: 0,
        };
        self.calls.counts.calls += 1;
        let first = Entered { aside: false, ..*entered };
        trace.enter(&first, texts, clock, &self.tracing.spec);
        traces.push(trace);
    }

    /// Frames from `level` on a stack have ended; frames of user mode end with all in the kernel.
    pub(super) fn leave(&mut self, traces: &mut Vec<OpenTrace>, user: bool, level: usize) {
        let clock = self.clock.unwrap_or(0);
        let ends = |open: &Open| match (open.user, user) {
            (true, true) | (false, false) => open.level >= level,
            (false, true) => true,
            (true, false) => false,
        };
        for trace in traces.iter_mut() {
            while trace.open.last().is_some_and(ends) {
                trace.close(clock, false);
            }
        }
        while let Some(over) = traces.iter().position(|trace| trace.open.is_empty()) {
            let trace = traces.remove(over);
            self.keep(trace);
        }
    }

    /// What has not returned never will in this window.
    pub(super) fn give_up(&mut self, traces: &mut Vec<OpenTrace>) {
        let clock = self.clock.unwrap_or(0);
        for mut trace in traces.drain(..) {
            if self.clock.is_none() {
                continue;
            }
            while !trace.open.is_empty() {
                trace.close(clock, true);
            }
            self.calls.counts.unfinished += 1;
            self.keep(trace);
        }
    }

    /// Keep an ended call if it is one of the longest, or the first.
    fn keep(&mut self, trace: OpenTrace) {
        let Some(first) = trace.steps.first().copied() else {
            return;
        };
        self.calls.ended(first.total);
        let registers = &trace.registers;
        let prototype = self.prototype(first.symbol);
        let value = |of: &OfCall| match of {
            OfCall::Insns | OfCall::Duration => Some(i128::from(first.total)),
            OfCall::Elapsed => Some(i128::from(first.elapsed)),
            OfCall::Own => Some(i128::from(first.own)),
            OfCall::Switches => Some(i128::from(first.switches)),
            OfCall::Argument(name) => {
                prototype?.argument(name, registers.get(first.arguments? as usize)?)
            }
            OfCall::Returned => prototype?.return_value(first.returned?),
        };
        let spec = &self.tracing.spec;
        if spec.only.as_ref().is_some_and(|only| !only.holds(value)) {
            return;
        }
        let most = spec.slowest();
        let next = TracedCall {
            number: trace.number,
            thread: trace.thread,
            steps: trace.steps,
            registers: trace.registers,
            texts: trace.texts,
        };
        self.dropped += trace.dropped + self.calls.keep(next, most);
    }
}

impl Call for TracedCall {
    fn number(&self) -> u64 {
        self.number
    }

    fn total(&self) -> u64 {
        self.steps.first().map_or(0, |step| step.total)
    }

    fn steps(&self) -> usize {
        self.steps.len()
    }
}

/// The task of these calls is switched out.
pub(super) fn switched(traces: &mut [OpenTrace]) {
    for top in traces.iter_mut().filter_map(|trace| trace.open.last_mut()) {
        top.switches += 1;
    }
}

/// The running function returns this, and so do the functions that jumped to it.
pub(super) fn returned(traces: &mut [OpenTrace], user: bool, value: u64) {
    for trace in traces {
        for open in trace.open.iter_mut().rev() {
            if open.user != user {
                break;
            }
            open.returned = Some(value);
            if !open.jumped {
                break;
            }
        }
    }
}

impl OpenTrace {
    fn enter(&mut self, entered: &Entered, texts: &[(u8, String)], clock: u64, spec: &Spec) {
        let above = self.open.last();
        let within = above.is_some_and(|above| above.within || above.aside);
        let parent = self.open.iter().rev().find_map(|open| open.step);
        // A softirq's action shows which one it is.
        if let Some(vector) = entered.vector {
            for open in self.open.iter().rev() {
                let Some(step) = open.step.and_then(|at| self.steps.get_mut(at as usize)) else {
                    continue;
                };
                if step.context != UNKNOWN_SOFTIRQ {
                    break;
                }
                step.context = Context::Softirq(vector);
            }
        }
        let wanted = match within {
            // Of what comes in between, only what it is.
            true => entered.aside || entered.vector.is_some(),
            false => entered.aside || self.open.len() < spec.depth() as usize,
        };
        let fits = self.steps.len() < spec.steps() as usize;
        let step = (wanted && fits).then_some(self.steps.len() as u32);
        if step.is_none() && !within {
            self.dropped += u64::from(wanted);
            if let Some(parent) = parent {
                let flags = &mut self.steps[parent as usize].flags;
                *flags = flags.with(Flags::CUT);
            }
        }
        if step.is_some() {
            let arguments = entered.arguments.map(|registers| {
                let number = self.registers.len() as u32;
                self.registers.push(registers);
                let texts = texts.iter();
                (self.texts).extend(texts.map(|(at, text)| ((number, *at), text.clone())));
                number
            });
            let mut flags = Flags::default();
            if entered.jumped {
                flags = flags.with(Flags::TAIL);
            }
            if entered.aside {
                flags = flags.with(Flags::ASIDE);
            }
            self.steps.push(TracedStep {
                parent,
                symbol: entered.symbol,
                begin: clock,
                elapsed: 0,
                total: 0,
                own: 0,
                switches: 0,
                context: entered.context.unwrap_or(UNKNOWN_SOFTIRQ),
                flags,
                arguments,
                returned: None,
            });
        }
        self.open.push(Open {
            user: entered.user,
            level: entered.level,
            step,
            jumped: entered.jumped,
            returned: None,
            own: 0,
            below: 0,
            switches: 0,
            aside: entered.aside,
            within,
        });
    }

    fn close(&mut self, clock: u64, unfinished: bool) {
        let Some(over) = self.open.pop() else { return };
        let total = over.own + over.below;
        if let Some(step) = over.step.and_then(|step| self.steps.get_mut(step as usize)) {
            step.elapsed = clock.saturating_sub(step.begin);
            (step.total, step.own) = (total, over.own);
            step.switches = over.switches;
            match unfinished {
                true => step.flags = step.flags.with(Flags::OPEN),
                false => step.returned = over.returned,
            }
        }
        if let Some(above) = self.open.last_mut() {
            above.switches += over.switches;
            if !over.aside {
                above.below += total;
            }
        }
    }
}

/// The context of a run of softirqs until its first action.
const UNKNOWN_SOFTIRQ: Context = Context::Softirq(Softirq::Timer);
