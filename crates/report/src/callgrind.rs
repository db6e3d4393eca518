//! callgrind's format, for KCachegrind and `callgrind_annotate`.
//!
//! The format knows functions and the calls between two of them. So that inclusive
//! costs are right in recursion too, the second of a function's frames on a stack
//! is `name'2`, the third `name'3`, as with valgrind's `--separate-recs`: no frame
//! of a name is then below another of that name, and the inclusive cost of a name
//! is the sum over its frames.
//!
//! Code whose lines are known is in its own file, with the cost of each line.
//! Recursive functions, whose levels share lines, and calls, which are recorded
//! without lines, are where the function is defined.
//!
//! Classes are events, beside `Ir`, their sum. The format also allows a part for
//! each, but then `callgrind_annotate` takes only the last part's total.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;

use netplumb_model::recording::{FunctionId, Recording, SourceLine, env};

use crate::analysis::{ClassView, NO_LAYER, quantity};
use crate::number::printable;
use crate::profile::{ProfilePart, conditions, parts, tame};
use crate::source::{PATH_LETTERS, of_class};
use crate::summary::label;

/// KCachegrind accepts at most 13 events that are not computed.
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
    /// The function, and how many of its frames are on the stack.
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
        lines: by_line(classes, &costs),
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
fn add(costs: &mut BTreeMap<Label, Costs>, n: usize, part: &ProfilePart<'_>, classes: usize) {
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

/// A unique name for each function: several may have one symbol, and readers
/// identify functions by name.
fn names(recording: &Recording, parts: &[ProfilePart<'_>]) -> HashMap<FunctionId, String> {
    let used: HashSet<FunctionId> =
        parts.iter().flat_map(|p| p.rows.iter().map(|r| r.function)).collect();
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

/// What a function's lines cost, by class.
type ByLine = BTreeMap<SourceLine, Vec<u64>>;

/// Of functions without recursion, where lines add up to no more than the own cost.
fn by_line(
    classes: &[ClassView<'_>],
    costs: &BTreeMap<Label, Costs>,
) -> BTreeMap<FunctionId, ByLine> {
    let mut all: BTreeMap<FunctionId, ByLine> = BTreeMap::new();
    for (n, class) in classes.iter().enumerate() {
        for (function, lines) in of_class(class) {
            let of = all.entry(function).or_default();
            for (source, insns) in lines {
                of.entry(source).or_insert_with(|| vec![0; classes.len()])[n] = insns;
            }
        }
    }
    all.retain(|function, lines| {
        let recursive = costs.contains_key(&Label::Function(*function, 2));
        let own = costs.get(&Label::Function(*function, 1)).map(|c| &c.own);
        let fits = (0..classes.len()).all(|n| {
            let sum: u64 = lines.values().map(|by_class| by_class[n]).sum();
            sum <= own.and_then(|own| own.get(n)).copied().unwrap_or(0)
        });
        !recursive && fits
    });
    all
}

struct Writer<'a> {
    recording: &'a Recording,
    by_class: bool,
    names: HashMap<FunctionId, String>,
    parts: &'a [ProfilePart<'a>],
    lines: BTreeMap<FunctionId, ByLine>,
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
        for line in conditions(self.recording, classes) {
            let _ = writeln!(self.out, "desc: {line}");
        }
        self.out.push_str("\npositions: line\n");
        let quantity = quantity(self.recording);
        let (event, meaning) = match quantity.unit.as_str() {
            "instructions" => ("Ir", "Kernel instructions".into()),
            "ns" => ("Ns", format!("Nanoseconds of {}", printable(&quantity.name, 40))),
            unit => ("Cost", format!("{}, {}", printable(&quantity.name, 40), printable(unit, 40))),
        };
        let _ = writeln!(self.out, "event: {event} : {meaning}, all blocks");
        let mut events = format!("events: {event}");
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
        let home = self.source(label);
        let line = home.map_or(0, |s| s.line);
        let mut own = costs.own.clone();
        let mut file = home.map(|s| s.file);
        for (source, by_class) in self.lines_of(label) {
            if file != Some(source.file) {
                // What was inlined from elsewhere.
                let name = self.path(source);
                self.named("fi=", "fl", name);
                file = Some(source.file);
            }
            for (rest, cost) in own.iter_mut().zip(&by_class) {
                *rest -= cost;
            }
            let values = self.values(&by_class);
            let _ = writeln!(self.out, "{} {values}", source.line);
        }
        if file != home.map(|s| s.file) {
            let [_, name, _] = self.names_of(label);
            self.named("fe=", "fl", name);
        }
        if own.iter().any(|c| *c > 0) {
            let values = self.values(&own);
            let _ = writeln!(self.out, "{line} {values}");
        }
        for (callee, call) in &costs.calls {
            self.place(*callee, ["cob=", "cfi=", "cfn="]);
            // A function that was entered before the window opened was still
            // called. callgrind_annotate takes the line after `calls=0` for the
            // caller's own cost.
            let to = self.source(*callee).map_or(0, |s| s.line);
            let _ = writeln!(self.out, "calls={} {to}", call.count.max(1));
            let values = self.values(&call.cost);
            let _ = writeln!(self.out, "{line} {values}");
        }
    }

    /// Where a function is defined.
    fn source(&self, label: Label) -> Option<SourceLine> {
        match label {
            Label::Context(_) => None,
            Label::Function(function, _) => self.recording.functions[function as usize].source,
        }
    }

    fn lines_of(&self, label: Label) -> ByLine {
        match label {
            Label::Function(function, 1) => self.lines.get(&function).cloned().unwrap_or_default(),
            _ => ByLine::new(),
        }
    }

    fn path(&self, source: SourceLine) -> String {
        let file = self.recording.source(source).map_or("?", |(file, _)| file);
        printable(file, PATH_LETTERS)
    }

    /// Object, file and function, each by its number once it has been named.
    fn place(&mut self, label: Label, keys: [&'static str; 3]) {
        let names = self.names_of(label);
        for ((key, kind), name) in keys.into_iter().zip(["ob", "fl", "fn"]).zip(names) {
            self.named(key, kind, name);
        }
    }

    fn named(&mut self, key: &str, kind: &'static str, name: String) {
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

    /// Names of its object, file and function.
    fn names_of(&self, label: Label) -> [String; 3] {
        match label {
            Label::Context(n) => {
                let part = &self.parts[n];
                let name = format!("{}: {}", crate::summary::label(part.class), part.context);
                [CONTEXTS.into(), CONTEXTS.into(), name]
            }
            Label::Function(function, level) => {
                let data = &self.recording.functions[function as usize];
                let name = &self.names[&function];
                [
                    data.module.as_deref().map_or_else(|| KERNEL_OBJECT.into(), tame),
                    match data.source {
                        Some(source) => self.path(source),
                        // In brackets, so that no reader looks for a file.
                        None => format!("[{}]", tame(data.layer.as_deref().unwrap_or(NO_LAYER))),
                    },
                    match level {
                        1 => name.clone(),
                        level => format!("{name}'{level}"),
                    },
                ]
            }
        }
    }
}

/// Names for events: words of letters, digits and underscores, each its own.
fn events(classes: &[ClassView<'_>]) -> Vec<String> {
    let word = |text: String| -> String {
        let letters = text.chars();
        letters.map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
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
