//! callgrind's format, for KCachegrind and `callgrind_annotate`.
//!
//! The format knows functions and the calls between two of them. So that inclusive
//! costs are right in recursion too, the second of a function's frames on a stack
//! is `name'2`, the third `name'3`, as valgrind has it with `--separate-recs`: no
//! frame of a name is then below another of that name, and what a name costs
//! inclusively is the sum of its frames.
//!
//! Classes are events, beside `Ir`, their sum. The format's other way, a part for
//! each, is one that `callgrind_annotate` takes the last part's total of.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;

use netplumb_model::recording::{FunctionId, Recording, env};

use crate::analysis::{ClassView, NO_LAYER};
use crate::number::printable;
use crate::profile::{Part, conditions, parts, tame};
use crate::terminal::label;

/// KCachegrind takes no more than 13 events that are not computed.
const MAX_CLASS_EVENTS: usize = 12;
/// Where the kernel's own functions are.
const KERNEL_OBJECT: &str = "vmlinux";
/// The object and file of the functions that stand for contexts.
const CONTEXTS: &str = "(contexts)";

/// A function at one level of recursion, or a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Label {
    /// By the place of its part.
    Context(usize),
    /// The function, and how many of it are on the stack.
    Function(FunctionId, u32),
}

#[derive(Debug, Default)]
struct Costs {
    /// Its own, by class.
    own: Vec<u64>,
    calls: BTreeMap<Label, Call>,
}

#[derive(Debug, Default)]
struct Call {
    count: u64,
    /// Inclusive, by class.
    cost: Vec<u64>,
}

/// The profile of some classes of a recording.
pub fn render(recording: &Recording, classes: &[ClassView<'_>]) -> String {
    let parts = parts(classes);
    let mut costs: BTreeMap<Label, Costs> = BTreeMap::new();
    for (n, part) in parts.iter().enumerate() {
        add(&mut costs, n, part, classes.len());
    }
    let mut writer = Writer {
        recording,
        by_class: (2..=MAX_CLASS_EVENTS).contains(&classes.len()),
        names: names(recording, &parts),
        parts: &parts,
        known: HashMap::new(),
        out: String::new(),
    };
    writer.header(classes);
    for (label, costs) in &costs {
        writer.function(*label, costs);
    }
    let totals: Vec<u64> = classes.iter().map(|c| c.total).collect();
    let totals = writer.values(&totals);
    let _ = writeln!(writer.out, "\ntotals: {totals}");
    writer.out
}

/// Adds what a part's rows cost.
fn add(costs: &mut BTreeMap<Label, Costs>, n: usize, part: &Part<'_>, classes: usize) {
    let mut below: Vec<Vec<usize>> = vec![Vec::new(); part.rows.len()];
    let mut roots = Vec::new();
    for (row, data) in part.rows.iter().enumerate() {
        match data.parent {
            Some(parent) => below[parent].push(row),
            None => roots.push(row),
        }
    }
    let mut on_stack: HashMap<FunctionId, u32> = HashMap::new();
    let mut path: Vec<(Label, Vec<usize>)> = vec![(Label::Context(n), roots)];
    while let Some((caller, left)) = path.last_mut() {
        let caller = *caller;
        let Some(row) = left.pop() else {
            path.pop();
            if let Label::Function(function, _) = caller
                && let Some(count) = on_stack.get_mut(&function)
            {
                *count -= 1;
            }
            continue;
        };
        let data = &part.rows[row];
        let level = on_stack.entry(data.function).or_default();
        *level += 1;
        let callee = Label::Function(data.function, *level);
        let of = |costs: &mut Vec<u64>, insns: u64| {
            costs.resize(classes, 0);
            costs[part.class_index] += insns;
        };
        of(&mut costs.entry(callee).or_default().own, data.self_insns);
        let call = costs.entry(caller).or_default().calls.entry(callee);
        let call = call.or_default();
        call.count += data.calls;
        of(&mut call.cost, data.inclusive_insns);
        path.push((callee, std::mem::take(&mut below[row])));
    }
}

/// A name of its own for each function: several may have one symbol, and readers
/// know functions by name.
fn names(recording: &Recording, parts: &[Part<'_>]) -> HashMap<FunctionId, String> {
    let used: HashSet<FunctionId> = parts
        .iter()
        .flat_map(|p| p.rows.iter().map(|r| r.function))
        .collect();
    let mut used: Vec<FunctionId> = used.into_iter().collect();
    used.sort_unstable();
    let mut taken: HashSet<String> = HashSet::new();
    let mut names = HashMap::new();
    for function in used {
        let data = &recording.functions[function as usize];
        let mut name = tame(&data.name);
        if taken.contains(&name) {
            name = format!("{name}@{:x}", data.address);
        }
        if taken.contains(&name) {
            name = format!("{name}#{function}");
        }
        taken.insert(name.clone());
        names.insert(function, name);
    }
    names
}

struct Writer<'a> {
    recording: &'a Recording,
    by_class: bool,
    names: HashMap<FunctionId, String>,
    parts: &'a [Part<'a>],
    /// Numbers of the names that are written already, by kind.
    known: HashMap<(&'static str, String), usize>,
    out: String,
}

impl Writer<'_> {
    fn header(&mut self, classes: &[ClassView<'_>]) {
        let fact = |key: &str| {
            let value = self.recording.environment.get(key);
            printable(value.map_or("?", |v| v), 1_000)
        };
        self.out.push_str("# callgrind format\nversion: 1\n");
        let _ = writeln!(self.out, "creator: plumb {}", fact(env::PLUMB));
        let _ = writeln!(self.out, "cmd: {}", fact(env::ARGV));
        self.out.push_str("part: 1\n");
        for line in conditions(self.recording) {
            let _ = writeln!(self.out, "desc: {line}");
        }
        self.out.push_str("\npositions: line\n");
        self.out
            .push_str("event: Ir : Kernel instructions, all blocks\n");
        let mut events = String::from("events: Ir");
        if self.by_class {
            for (class, name) in classes.iter().zip(self::events(classes)) {
                let _ = writeln!(self.out, "event: {name} : {}", label(class));
                let _ = write!(events, " {name}");
            }
        }
        let totals: Vec<u64> = classes.iter().map(|c| c.total).collect();
        let totals = self.values(&totals);
        let _ = writeln!(self.out, "{events}\nsummary: {totals}");
    }

    /// The costs of an event each.
    fn values(&self, by_class: &[u64]) -> String {
        let mut out = by_class.iter().sum::<u64>().to_string();
        if self.by_class {
            for cost in by_class {
                let _ = write!(out, " {cost}");
            }
        }
        out
    }

    fn function(&mut self, label: Label, costs: &Costs) {
        self.out.push('\n');
        self.place(label, ["ob=", "fl=", "fn="]);
        if costs.own.iter().any(|c| *c > 0) {
            let values = self.values(&costs.own);
            let _ = writeln!(self.out, "0 {values}");
        }
        for (callee, call) in &costs.calls {
            self.place(*callee, ["cob=", "cfi=", "cfn="]);
            // A function that was entered before the window opened was called, if
            // not in it. callgrind_annotate takes what follows `calls=0` for the
            // caller's own cost.
            let _ = writeln!(self.out, "calls={} 0", call.count.max(1));
            let values = self.values(&call.cost);
            let _ = writeln!(self.out, "0 {values}");
        }
    }

    /// Object, file and function, each by its number once it has been named.
    fn place(&mut self, label: Label, keys: [&'static str; 3]) {
        let names = match label {
            Label::Context(n) => {
                let part = &self.parts[n];
                let name = format!("{}: {}", crate::terminal::label(part.class), part.context);
                [CONTEXTS.into(), CONTEXTS.into(), name]
            }
            Label::Function(function, level) => {
                let data = &self.recording.functions[function as usize];
                let name = &self.names[&function];
                [
                    data.module
                        .as_deref()
                        .map_or_else(|| KERNEL_OBJECT.into(), tame),
                    // In brackets, so that no reader looks for a file.
                    format!("[{}]", tame(data.layer.as_deref().unwrap_or(NO_LAYER))),
                    match level {
                        1 => name.clone(),
                        level => format!("{name}'{level}"),
                    },
                ]
            }
        };
        for ((key, kind), name) in keys.into_iter().zip(["ob", "fl", "fn"]).zip(names) {
            let next = self.known.len() + 1;
            match self.known.get(&(kind, name.clone())) {
                Some(number) => {
                    let _ = writeln!(self.out, "{key}({number})");
                }
                None => {
                    let _ = writeln!(self.out, "{key}({next}) {name}");
                    self.known.insert((kind, name), next);
                }
            }
        }
    }
}

/// Names for events: words of letters, digits and underscores, each its own.
fn events(classes: &[ClassView<'_>]) -> Vec<String> {
    let word = |text: String| -> String {
        let letters = text.chars();
        letters
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect()
    };
    let words: Vec<String> = classes.iter().map(|c| word(c.class.to_string())).collect();
    let several = |word: &String| words.iter().filter(|w| *w == word).count() > 1;
    words
        .iter()
        .enumerate()
        .map(|(n, word)| match several(word) {
            true => format!("{word}_{}", n + 1),
            false => word.clone(),
        })
        .collect()
}
