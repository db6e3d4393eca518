//! Traced calls: which they are, and from a guest's ids to a recording.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use netplumb_instruments::exact::{
    self, Images, Losses, NoArgument, NoFunction, Sampling, Symbol, TracedCalls, Tracing,
};
use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_kernel::layers::LayerRules;
use netplumb_kernel::prototype::{Prototype, Unread};
use netplumb_model::calls::COUNTED;
use netplumb_model::condition::OF_CALLS;
use netplumb_model::experiment::Trace as Spec;
use netplumb_model::loss::Loss;
use netplumb_model::recording::Recording;
use netplumb_model::timing::INSTRUCTIONS;
use netplumb_model::trace::{Followed, MAX_STEPS, Step, TextId, Trace};

use crate::collect::Executed;
use crate::error::EngineError;
use crate::prototypes::GuestPrototypes;

/// Calls without a trace, as the recording has its maximum number of steps.
pub(crate) const FULL: &str = "traces beyond the limit of a recording";
/// What to do about it.
pub(crate) const FULL_MEANS: &str = "not shown; keep fewer with --slowest or --depth";

/// What is made of a stream in addition to costs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StreamExtras<'a> {
    /// Samples.
    pub(crate) sampling: Option<&'a Sampling>,
    /// Traces of calls.
    pub(crate) trace: Option<&'a Spec>,
    /// Types of functions, if calls are traced.
    pub(crate) known: Option<&'a GuestPrototypes<'a>>,
}

/// Whose calls are traced.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Traced<'a> {
    pub(crate) beside: StreamExtras<'a>,
    /// Release of the guest's kernel.
    pub(crate) release: &'a str,
    /// Whether a command is measured.
    pub(crate) command: bool,
}

impl Traced<'_> {
    /// Which calls are traced, if any are.
    ///
    /// # Errors
    /// There is no such function, or none with the arguments of the condition.
    pub(crate) fn tracing(
        self,
        symbols: &SymbolTable,
        images: &Images,
    ) -> Result<Option<Tracing>, EngineError> {
        let Some(spec) = self.beside.trace else {
            return Ok(None);
        };
        let is_file = |number: u32| {
            let (known, file) = (self.beside.known, spec.place().0);
            known.zip(file).is_some_and(|(known, file)| known.is_file(number, file))
        };
        let tracing = Tracing::find(spec, symbols, images, &is_file)
            .map_err(|missing| self.no_function(spec, &missing))?;
        let Some(known) = self.beside.known.filter(|_| spec.has_args()) else {
            return Ok(Some(tracing));
        };
        let tracing = (tracing.with_prototypes(symbols, known))
            .map_err(|missing| no_argument(spec, &missing))?;
        if !tracing.has_prototypes() && tracing.is_of_kernel() && !known.has_types() {
            return Err(EngineError::NoArguments(format!(
                "kernel {} has no type information (BTF), by which arguments have names; use a \
                 kernel with CONFIG_DEBUG_INFO_BTF, as distributions' kernels have, or leave out \
                 --args",
                self.release
            )));
        }
        Ok(Some(tracing))
    }

    /// The plugin's options. If symbols are not known yet, all calls are read.
    ///
    /// # Errors
    /// As [`Self::tracing`].
    pub(crate) fn options(
        self,
        symbols: Option<&SymbolTable>,
        images: &Images,
    ) -> Result<Vec<String>, EngineError> {
        let tracing = match symbols {
            Some(symbols) => self.tracing(symbols, images)?,
            None => None,
        };
        if !self.beside.trace.is_some_and(Spec::has_args) {
            return Ok(Vec::new());
        }
        Ok(match (tracing, symbols) {
            (Some(tracing), Some(symbols)) => tracing.options(symbols, images),
            _ => vec![exact::ALL_CALLS.into()],
        })
    }

    /// The error that a function is not there.
    fn no_function(self, spec: &Spec, missing: &NoFunction) -> EngineError {
        let (file, name) = spec.place();
        let kernel = self.release;
        let place = match (file, self.command) {
            (Some(file), _) if missing.no_file => {
                return EngineError::NoFunction(format!(
                    "the command has no file `{file}`; expected the name or path of its program or of one of its libraries"
                ));
            }
            (Some(file), _) if missing.stripped.is_some() => {
                return EngineError::NoFunction(format!(
                    "{file} has no symbols: use a file that is not stripped"
                ));
            }
            (Some(file), _) => format!("{file} has no function `{name}`"),
            (None, true) => {
                format!("neither kernel {kernel} nor the command's files have a function `{name}`")
            }
            (None, false) => format!("kernel {kernel} has no function `{name}`"),
        };
        let inlined =
            (self.beside.known).map_or_else(BTreeSet::new, |known| known.inlined_into(file, name));
        if !inlined.is_empty() {
            return EngineError::NoFunction(format!(
                "{place}: it was inlined into {}; trace one of these",
                exact::listed(&inlined)
            ));
        }
        let near = match &missing.near[..] {
            [] => "no name is similar".to_string(),
            names => format!("similar names are {}", names.join(", ")),
        };
        let stripped = missing.stripped.as_ref().map_or_else(String::new, |file| {
            format!("; {file} has no symbols: use a file that is not stripped")
        });
        let known = self.beside.known.filter(|_| file.is_none());
        EngineError::NoFunction(match known.is_some_and(|known| known.has_function(name)) {
            true => format!(
                "kernel {kernel} has `{name}` in its types (BTF), but no code of that name: it was \
                 inlined into its callers (into which, runs tell after `plumb kernel add KERNEL --debug`), or is in a \
                 module that is not loaded; {near}"
            ),
            false => format!(
                "{place}; {near}. A function that the compiler put into its callers (inlined) can't \
                 be traced: trace one of those{stripped}"
            ),
        })
    }

    /// Whether arguments could be read, if they were to be.
    ///
    /// # Errors
    /// They could not.
    pub(crate) fn check(self, losses: &Losses) -> Result<(), EngineError> {
        if losses.no_registers {
            return Err(EngineError::NoArguments(
                "this QEMU does not export the functions with which arguments are read \
                 (qemu_get_cpu, and x86_cpu_gdb_read_register or aarch64_cpu_gdb_read_register), or they do not read \
                 what they should: the stack pointer is not where a call left it; use Debian's QEMU, or \
                 leave out --args"
                    .into(),
            ));
        }
        Ok(())
    }
}

/// Add the traced calls of the block that was added last, with their arguments if prototypes are
/// known.
pub(crate) fn add(
    recording: &mut Recording,
    executed: &Executed<'_>,
    layers: &LayerRules,
    traced: &TracedCalls,
    prototypes: Option<&BTreeMap<Symbol, Arc<Prototype>>>,
) {
    let Some(block) = (recording.blocks.len() as u32).checked_sub(1) else {
        return;
    };
    recording.add_call_counts(block, &COUNTED, &traced.counts);
    let quantity = recording.quantity(&INSTRUCTIONS);
    let mut texts = recording.known_texts();
    let mut names: BTreeMap<Symbol, TextId> = BTreeMap::new();
    for symbol in traced.symbols() {
        let name = executed.function(layers, symbol).name;
        names.insert(symbol, recording.trace_text(&mut texts, &name));
    }
    let nameless = recording.trace_text(&mut texts, "");
    let name = |symbol: Symbol| names.get(&symbol).copied().unwrap_or(nameless);
    let mut all: usize = recording.traces.iter().map(|t| t.steps.len()).sum();
    let mut full = 0;
    let mut unnamed = BTreeSet::new();
    let mut unread = 0;
    for call in &traced.kept {
        all += call.steps.len();
        if all > MAX_STEPS {
            full += 1;
            continue;
        }
        let command = call.thread.map_or(nameless, name);
        let mut text = |text: String| recording.trace_text(&mut texts, &text);
        let mut values: Vec<(Option<TextId>, Option<TextId>)> = Vec::new();
        for step in prototypes.iter().flat_map(|_| &call.steps) {
            let of = prototypes.and_then(|all| all.get(&step.symbol));
            let registers = step.arguments.and_then(|at| call.registers.get(at as usize));
            if of.is_none() {
                unnamed.insert(step.symbol);
            }
            unread += u64::from(of.is_some() && registers.is_none());
            let returned = of.zip(step.returned).and_then(|(of, value)| of.returned(value));
            values.push((
                of.zip(registers).map(|(of, all)| {
                    let known = |register: usize| {
                        let at = (step.arguments?, register as u8);
                        let mut all = call.texts.iter();
                        all.find_map(|(of, text)| (*of == at).then_some(text.as_str()))
                    };
                    text(of.arguments(all, known))
                }),
                returned.map(&mut text),
            ));
        }
        let values = values.into_iter().chain(std::iter::repeat((None, None)));
        let steps = call.steps.iter().zip(values).map(|(step, (arguments, returned))| Step {
            parent: step.parent,
            name: name(step.symbol),
            begin: step.begin,
            elapsed: step.elapsed,
            total: step.total,
            own: step.own,
            switches: step.switches,
            context: step.context,
            cpu: 0,
            thread: 0,
            command,
            flags: step.flags,
            arguments,
            returned,
        });
        recording.traces.push(Trace {
            block: Some(block),
            quantity,
            of: Followed::Call,
            number: call.number,
            steps: steps.collect(),
        });
    }
    for (cause, count, meaning) in [
        (
            "calls below traced calls",
            traced.dropped,
            "beyond the maximum of steps of a call ([trace] steps): they are in the totals of what called them",
        ),
        (
            "calls without a percentile",
            traced.unranked,
            "more calls than are remembered: they are in the number and sum of calls, but not in their median and 99th percentile",
        ),
        (
            "functions without names of arguments",
            unnamed.len() as u64,
            "not in the kernel's types or the program's debug information, or changed by the compiler: assembly, constprop and isra clones",
        ),
        (
            "calls without arguments",
            unread,
            "it was jumped to (a tail call), or an interrupt came between the call and the function",
        ),
        (FULL, full, FULL_MEANS),
    ] {
        if count > 0 {
            recording.add_loss(INSTRUCTIONS.instrument, Loss::new(cause, count, meaning));
        }
    }
}

/// The error that the function does not have an argument.
fn no_argument(spec: &Spec, missing: &NoArgument) -> EngineError {
    let name = spec.place().1;
    let always = OF_CALLS[..3].join(", ");
    let Some(prototype) = &missing.prototype else {
        return EngineError::NoFunction(format!(
            "arguments of {name} are not known: it is not in the kernel's types (BTF) or the \
             program's debug information, or the compiler changed them; use {always}"
        ));
    };
    let is_read = |name: &String| prototype.check(Some(name.as_str())).is_ok();
    let mut names: Vec<String> = prototype.names().filter(is_read).collect();
    if prototype.check(None).is_ok() {
        names.push(OF_CALLS[3].into());
    }
    names.push(always);
    let names = names.join(", ");
    let of = match &missing.name {
        Some(argument) => format!("argument `{argument}` of {name}"),
        None => format!("what {name} returns"),
    };
    let why = match (missing.why, &missing.name) {
        (Unread::Missing, Some(argument)) => format!("{name} has no argument `{argument}`"),
        (Unread::Missing, None) => format!("{name} returns nothing"),
        (Unread::NoNumber, _) => format!(
            "{of} can't be compared: it is floating-point, or a structure or union that is not in one register"
        ),
        (Unread::NoRegister, _) => {
            format!("{of} can't be read: it is in no register, or not known in which")
        }
    };
    EngineError::NoFunction(format!("{why}; expected one of {names}"))
}
