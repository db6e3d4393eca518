//! The instrument: calls of a function, window by window.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use netplumb_kernel::kallsyms::SymbolText;
use netplumb_kernel::symbol::Symbol;
use netplumb_model::calls::{CALL_BIAS, CALL_PROBE, TIMED};
use netplumb_model::class::{Context, Softirq};
use netplumb_model::events::nearest;
use netplumb_model::quantity::{Figure, Quantity};
use netplumb_model::symbol::{base_name, is_part};
use netplumb_model::timing::{Attached, Costs, Met, TimingSpec, Window};
use netplumb_model::trace::{CallsSpec, TimedCalls};
use rustc_hash::FxHashMap;

use super::ring::{Level, Pages, Record, What};
use super::tracer::{self, ALL_LEVELS, Tracer, Whose};
use super::tree::{Calls, Cost, Ended, Names};
use crate::live::{self, Live, LiveError, kernel_symbols};
use crate::own::process_ns;
use crate::samples;

/// How often records are read: the kernel's buffer is limited.
const POLL: Duration = Duration::from_millis(10);
/// The name of code that no symbol covers.
const UNKNOWN: &str = "[unknown]";
/// The function that is called to measure the tracer's cost: it does nearly nothing, and has one of
/// these names. A system call without arguments has one that all architectures share.
const CALIBRATED: [&str; 3] = ["__do_sys_getppid", "__x64_sys_getppid", "__arm64_sys_getppid"];
/// A function that is not called meanwhile.
const NOT_CALLED: [&str; 3] = ["__do_sys_vhangup", "__x64_sys_vhangup", "__arm64_sys_vhangup"];
/// Long enough to be switched out and in again.
const SWITCHED: Duration = Duration::from_millis(1);
/// Calls of a round, and rounds.
const CALLS: u32 = 200;
const ROUNDS: usize = 7;

/// Names of functions and tasks.
#[derive(Debug)]
struct KnownNames {
    symbols: SymbolText,
    by_address: FxHashMap<u64, u32>,
    by_name: BTreeMap<String, u32>,
    names: Vec<String>,
    symbol_of: Vec<Option<Symbol>>,
    traced: BTreeSet<String>,
    /// Whether symbols were read again for an address that was missing among them.
    is_new: bool,
}

impl KnownNames {
    fn new(traced: &[String]) -> Result<KnownNames, LiveError> {
        Ok(KnownNames {
            symbols: kernel_symbols()?,
            by_address: FxHashMap::default(),
            by_name: BTreeMap::new(),
            names: Vec::new(),
            symbol_of: Vec::new(),
            traced: traced.iter().cloned().collect(),
            is_new: true,
        })
    }

    fn number(&mut self, name: &str, symbol: Option<Symbol>) -> u32 {
        if let Some(number) = self.by_name.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.into());
        self.symbol_of.push(symbol);
        self.by_name.insert(name.into(), number);
        number
    }

    fn met(&self, number: u32) -> Met {
        let symbol = self.symbol_of.get(number as usize).and_then(Option::as_ref);
        Met {
            name: self.names.get(number as usize).cloned().unwrap_or_default(),
            module: symbol.and_then(|symbol| symbol.module.clone()),
            user: false,
            address: symbol.map_or(0, |symbol| symbol.addr),
            size_bytes: symbol.map_or(0, |symbol| symbol.size),
        }
    }
}

impl Names for KnownNames {
    fn name(&mut self, address: u64) -> u32 {
        if let Some(number) = self.by_address.get(&address) {
            return *number;
        }
        let mut found = self.symbols.lookup(address);
        // Modules come.
        if found.is_none()
            && std::mem::take(&mut self.is_new)
            && let Ok(symbols) = kernel_symbols()
        {
            self.symbols = symbols;
            found = self.symbols.lookup(address);
        }
        let name = found.as_ref().map_or(UNKNOWN.into(), |symbol| symbol.name.clone());
        let number = self.number(&name, found);
        self.by_address.insert(address, number);
        number
    }

    fn is_traced(&self, name: u32) -> bool {
        let name = self.names.get(name as usize);
        name.is_some_and(|name| self.traced.contains(name))
    }

    fn task(&mut self, task: i32, known: Option<&str>) -> u32 {
        let name = match known {
            Some(name) => name.into(),
            None if task == 0 => "swapper".into(),
            None => {
                let name = fs::read_to_string(format!("/proc/{task}/comm"));
                name.map_or_else(|_| String::new(), |name| name.trim_end().to_string())
            }
        };
        self.number(&name, None)
    }

    fn context(&self, stack: &[u32], level: Level) -> Context {
        let name = |number: &u32| self.names.get(*number as usize).map_or("", String::as_str);
        // The innermost first.
        let names: Vec<&str> = stack.iter().rev().map(name).collect();
        match (level, samples::context(&names)) {
            (Level::Hardirq | Level::Nmi, _) => Context::Hardirq,
            (_, context @ Context::Softirq(_)) => context,
            _ => Context::Softirq(Softirq::NetRx),
        }
    }
}

/// Which functions of the kernel are meant: of a name, or else clones of it that the compiler made. A
/// named program's functions are of no use.
fn find(name: &str, all: &[String], program: Option<&str>) -> Result<Vec<String>, LiveError> {
    let of = |is: &dyn Fn(&str) -> bool| -> Vec<String> {
        let found: BTreeSet<&String> = all.iter().filter(|known| is(known)).collect();
        found.into_iter().cloned().collect()
    };
    let exact = of(&|known| known == name);
    if !exact.is_empty() {
        return Ok(exact);
    }
    let clones = of(&|known| base_name(known) == name && !is_part(known));
    if !clones.is_empty() {
        return Ok(clones);
    }
    if let Some(program) = program {
        return Err(LiveError::Asked(format!(
            "the kernel has no function `{name}`; {program} has one, but functions of programs can't be \
             timed: count its instructions in a guest, without --time"
        )));
    }
    let meant = nearest(name, all.iter().map(String::as_str));
    let meant = meant.map_or(".".into(), |meant| format!("; did you mean `{meant}`?"));
    Err(LiveError::Asked(format!(
        "the kernel has no function `{name}` that can be traced{meant} It may have been inlined into its \
         callers, or be one that the tracer itself uses: trace a caller of it"
    )))
}

/// The threads of a process.
fn threads(pid: u32) -> Result<Vec<u32>, LiveError> {
    let path = format!("/proc/{pid}/task");
    let all = fs::read_dir(&path).map_err(LiveError::system("list the threads of the process"))?;
    let numbers = all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(numbers.collect())
}

/// The time of a call of the calibrated function, averaged over a round.
fn round_ns() -> f64 {
    let begun = Instant::now();
    for _ in 0..CALLS {
        // SAFETY: it takes nothing and can't fail.
        unsafe { libc::syscall(libc::SYS_getppid) };
    }
    begun.elapsed().as_nanos() as f64 / f64::from(CALLS)
}

fn least(all: &[f64]) -> f64 {
    all.iter().copied().fold(f64::INFINITY, f64::min)
}

/// How our own threads' calls are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Own {
    /// They are traced, like threads that send packets.
    Traced,
    /// They are recorded until the command starts, since only so it is followed, but ignored.
    UntilItStarts,
    /// They are not recorded.
    LeftOut,
}

/// Calls that are timed.
#[derive(Debug)]
pub(super) struct CallTimer {
    tracer: Tracer,
    pages: Pages,
    known: KnownNames,
    calls: Calls,
    whose: Own,
    children: bool,
    /// Read, and not taken yet: other CPUs may have earlier ones.
    waiting: Vec<Record>,
    /// Up to this time all have been read.
    read_ns: u64,
    lost: u64,
    /// How deep calls are shown.
    depth: u32,
    /// Whether no deeper ones are recorded, since there was no room for them.
    limited: bool,
    facts: Attached,
    opened: Instant,
    reader_ns: u64,
}

impl CallTimer {
    pub(super) fn attach(spec: &TimingSpec, asked: CallsSpec) -> Result<CallTimer, LiveError> {
        let begun = Instant::now();
        let reader_ns = process_ns();
        let opened = tracer::open()?;
        let root = opened.1.clone();
        let all = tracer::functions(&root)?;
        let traced = find(&asked.function, &all, asked.program.as_deref())?;
        // Before the tracer is on: reading symbols calls many kernel functions, and each would be traced.
        let known = KnownNames::new(&traced)?;
        let own = std::process::id();
        // SAFETY: it takes nothing and can't fail.
        let thread = unsafe { libc::gettid() };
        let whose = match (asked.children, spec.filter.pid) {
            (true, _) => Whose::Threads(threads(own)?),
            (false, Some(pid)) => Whose::Threads(threads(pid)?),
            (false, None) => Whose::All,
        };
        let pages = Pages::new(&|of| Tracer::format(&root, of))?;
        let calibrated = CALIBRATED.into_iter().find(|name| all.iter().any(|known| known == name));
        let calibrated = calibrated.map(|name| [name.to_string()]);
        let first = calibrated.as_ref().map_or(&traced[..], |name| &name[..]);
        // The cost is measured by our own calls.
        let mut at_first = whose.clone();
        if let Whose::Threads(threads) = &mut at_first {
            threads.push(thread.unsigned_abs());
        }
        let bare: Vec<f64> = (0..ROUNDS).map(|_| round_ns()).collect();
        let mut tracer = Tracer::start(opened, first, &at_first)?;
        let cost = match &calibrated {
            Some(function) => calibrate(&mut tracer, &pages, thread, function, &all, &bare)?,
            None => Cost::default(),
        };
        tracer.aim(&traced, ALL_LEVELS)?;
        tracer.follow(&whose)?;
        let own_calls = match (asked.own, asked.children) {
            (true, _) => Own::Traced,
            (_, true) => Own::UntilItStarts,
            _ => Own::LeftOut,
        };
        if own_calls == Own::LeftOut {
            tracer.leave_out(&threads(own)?)?;
        }
        let facts = BTreeMap::from([
            ("calls.function".to_string(), traced.join(", ")),
            ("calls.depth".to_string(), asked.depth.to_string()),
            (
                "calls.tracer".to_string(),
                match tracer.is_shared() {
                    true => "function_graph".into(),
                    false => "function_graph, in an instance of its own".to_string(),
                },
            ),
        ]);
        Ok(CallTimer {
            known,
            calls: Calls::new(&asked, cost),
            whose: own_calls,
            children: asked.children,
            tracer,
            pages,
            waiting: Vec::new(),
            read_ns: 0,
            lost: 0,
            depth: asked.depth,
            limited: false,
            facts: Attached {
                attach_ns: begun.elapsed().as_nanos() as u64,
                facts,
                figures: vec![
                    Figure::new(&CALL_PROBE, cost.call_ns),
                    Figure::new(&CALL_BIAS, cost.bias_ns),
                ],
                ..Attached::default()
            },
            opened: begun,
            reader_ns,
        })
    }

    /// Read what was recorded, and take what is complete; all of it, at the end.
    fn take(&mut self, all: bool) -> Result<(), LiveError> {
        self.known.is_new = true;
        loop {
            let until_ns = self.tracer.read(&self.pages, &mut self.waiting)?;
            // In the order of their times; the sort is stable, so that records of a CPU stay in theirs.
            self.waiting.sort_by_key(|record| record.ns);
            // What was read before is complete now, of all CPUs.
            let until = if all { u64::MAX } else { self.read_ns };
            let until = until_ns.map_or(until, |ns| until.min(ns));
            let latest = self.waiting.last().map_or(0, |record| record.ns);
            self.read_ns = self.read_ns.max(until_ns.unwrap_or(latest));
            let complete = self.waiting.partition_point(|record| record.ns <= until);
            self.calls.take(&self.waiting[..complete], &mut self.known);
            self.waiting.drain(..complete);
            // While it goes on, reading would add records without end.
            if !all || until_ns.is_none() {
                break;
            }
        }
        self.lost += self.tracer.lost();
        if self.lost > 0 && !self.limited {
            self.tracer.limit(self.depth)?;
            self.limited = true;
        }
        Ok(())
    }

    /// Leave out our own calls, once the command is there: what it starts is followed by then.
    fn leave_out_own(&mut self) -> Result<(), LiveError> {
        let own = threads(std::process::id())?;
        let has_children = || {
            own.iter().any(|thread| {
                let children = fs::read(format!("/proc/self/task/{thread}/children"));
                children.is_ok_and(|children| !children.is_empty())
            })
        };
        if self.whose == Own::UntilItStarts && has_children() {
            self.tracer.leave_out(&own)?;
            self.whose = Own::LeftOut;
        }
        Ok(())
    }

    /// What a window had.
    fn window(&mut self, ended: Ended) -> Window {
        let Ended { counts, kept, nodes, costs, losses } = ended;
        let own = process_ns();
        let functions = (0..self.known.names.len() as u32).map(|number| self.known.met(number));
        let kernel = costs.iter().map(|cost| cost.own).sum();
        let lost = std::mem::take(&mut self.lost);
        let window = Window {
            duration_ns: self.opened.elapsed().as_nanos() as u64,
            costs: vec![Costs {
                quantity: Quantity::from(&TIMED.step),
                functions: functions.collect(),
                nodes,
                costs,
                kernel,
                user: 0,
                samples: Vec::new(),
                threads: Vec::new(),
            }],
            losses: live::losses([
                (
                    "records of calls",
                    lost,
                    "the kernel's buffer was full: trace fewer calls, or with a smaller --depth",
                ),
                (
                    "windows without functions below --depth",
                    u64::from(self.limited),
                    "the kernel's buffer was full: what it takes to look at them is in the times of their \
                     callers; trace fewer calls, or with a larger --depth",
                ),
                (
                    "calls with a gap",
                    losses.broken,
                    "records of entries or returns are missing: they are shown up to there",
                ),
                (
                    "calls below traced calls",
                    losses.dropped,
                    "beyond the maximum of steps of a call ([trace] steps): they are in the totals of what called them",
                ),
                (
                    "calls without a percentile",
                    losses.unranked,
                    "more calls than are remembered: they are in the number and sum of calls, but not in their median and 99th percentile",
                ),
                (
                    "calls not in the call tree",
                    losses.no_node,
                    "they were called in more ways than are kept; traces have them",
                ),
            ]),
            own_cpu_ns: own.saturating_sub(self.reader_ns),
            calls: Some(TimedCalls { counts, names: self.known.names.clone(), kept }),
            ..Window::default()
        };
        self.reader_ns = own;
        window
    }
}

/// The functions that were entered.
fn entered(records: &[Record]) -> impl Iterator<Item = u64> {
    records.iter().filter_map(|record| match record.what {
        What::Enter { function, .. } => Some(function),
        _ => None,
    })
}

/// How many functions are entered from one call of this one to the next.
fn between(records: &[Record], function: u64) -> f64 {
    let all: Vec<u64> = entered(records).collect();
    let is_it = |at: &u64| *at == function;
    let (first, last) = (all.iter().position(is_it), all.iter().rposition(is_it));
    let calls = all.iter().filter(|at| is_it(at)).count();
    match (first, last) {
        (Some(first), Some(last)) if calls > 1 => (last - first) as f64 / (calls - 1) as f64,
        _ => 0.0,
    }
}

/// What the tracer costs, by calls of ours that do nearly nothing, which took `bare` without it: for calls that it
/// checks, and for calls that it also records. It checks a system call's entry, too, which is not traced.
fn calibrate(
    tracer: &mut Tracer,
    pages: &Pages,
    thread: i32,
    function: &[String],
    all: &[String],
    bare: &[f64],
) -> Result<Cost, LiveError> {
    let other = NOT_CALLED.into_iter().find(|name| all.iter().any(|known| known == name));
    let Some(other) = other.map(String::from) else {
        return Ok(Cost::default());
    };
    let round = |tracer: &mut Tracer, rounds: &mut Vec<f64>| {
        tracer.record(true)?;
        // The kernel checks whether a task is traced when it is switched in.
        thread::sleep(SWITCHED);
        rounds.push(round_ns());
        tracer.record(false)?;
        let mut records = Vec::new();
        tracer.read(pages, &mut records)?;
        // An interrupt in one round would be some calls more in each system call.
        records.retain(|record| record.task == thread && record.level == Level::Task);
        Ok::<_, LiveError>(records)
    };
    let (mut looked_at, mut traced) = (Vec::new(), Vec::new());
    let (mut steps, mut shortest, mut first) = (0.0, f64::INFINITY, None);
    // The tracer is aimed once for all rounds: each time, the kernel searches all its functions for the name.
    tracer.aim(std::slice::from_ref(&other), ALL_LEVELS)?;
    for _ in 0..ROUNDS {
        round(tracer, &mut looked_at)?;
    }
    tracer.aim(function, ALL_LEVELS)?;
    for _ in 0..ROUNDS {
        let records = round(tracer, &mut traced)?;
        steps = entered(&records).count() as f64 / f64::from(CALLS);
        first = first.or_else(|| entered(&records).next());
        for record in records {
            if let What::Leave { times: Some((entered, left)), .. } = record.what {
                shortest = f64::min(shortest, left.saturating_sub(entered) as f64);
            }
        }
    }
    // All functions that a system call calls; once is enough.
    tracer.aim(&[], ALL_LEVELS)?;
    let all = round(tracer, &mut Vec::new())?;
    let of_system_calls = first.map_or(0.0, |first| between(&all, first));
    if steps < 1.0 || !shortest.is_finite() {
        return Ok(Cost::default());
    }
    let look_ns = (least(&looked_at) - least(bare)) / of_system_calls.max(steps);
    let record_ns = (least(&traced) - least(&looked_at)) / steps;
    let call_ns = look_ns.max(0.0) + record_ns.max(0.0);
    Ok(Cost { call_ns, bias_ns: shortest.min(call_ns) })
}

impl Live for CallTimer {
    fn attached(&self) -> &Attached {
        &self.facts
    }

    fn open(&mut self) -> Result<(), LiveError> {
        // What came before belongs to no window.
        while self.tracer.read(&self.pages, &mut Vec::new())?.is_some() {}
        if self.children {
            self.tracer.leave_out(&[])?;
            self.whose = Own::UntilItStarts;
        }
        self.tracer.lost();
        self.waiting.clear();
        self.calls.forget();
        self.lost = 0;
        self.opened = Instant::now();
        self.tracer.record(true)
    }

    fn poll(&mut self) -> Result<(), LiveError> {
        self.leave_out_own()?;
        self.take(false)
    }

    fn polled_every(&self) -> Option<Duration> {
        Some(POLL)
    }

    fn stop(&mut self) {
        // What is recorded after the end is in no call that counts.
        let _ = self.tracer.record(false);
    }

    fn close(&mut self) -> Result<Window, LiveError> {
        self.tracer.record(false)?;
        self.leave_out_own()?;
        self.take(true)?;
        let ended = self.calls.end(&mut self.known);
        Ok(self.window(ended))
    }
}
