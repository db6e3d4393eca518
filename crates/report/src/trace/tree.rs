//! The steps of a call as lines, with repeated ones folded.

use std::hash::{DefaultHasher, Hash, Hasher};

use netplumb_model::calls::TIMED;
use netplumb_model::recording::Recording;
use netplumb_model::trace::{Flags, Step, Trace};

use crate::number::{printable, thousands};

/// Deeper ones are not indented further.
const MOST_INDENT: usize = 40;
/// Letters of a name, of arguments, and of a return value.
const NAME_LETTERS: usize = 80;
const TEXT_LETTERS: usize = 200;
/// Letters of figures.
const FIGURE: usize = 13;

/// Facts about a step beside its figures, in words; figures have this unit.
pub(super) fn remarks(step: &Step, unit: &str) -> Vec<String> {
    let mut all = Vec::new();
    if step.flags.has(Flags::ASIDE) {
        all.push(format!("came in between: {}", step.context));
    }
    if step.flags.has(Flags::TAIL) {
        all.push("jump".into());
    }
    match step.switches {
        0 => {}
        1 => all.push("switched out once".into()),
        times => all.push(format!("switched out {times} times")),
    }
    if step.switches > 0 && unit == TIMED.step.unit {
        all.push(format!("{} {unit} elapsed", thousands(step.elapsed)));
    }
    if step.flags.has(Flags::OPEN) {
        all.push("did not return".into());
    }
    if step.flags.has(Flags::CUT) {
        all.push("more below".into());
    }
    all
}

/// The steps of a call, with their callees.
pub(super) struct Tree<'t> {
    trace: &'t Trace,
    /// The steps directly below each step.
    below: Vec<Vec<u32>>,
    roots: Vec<u32>,
    /// A hash of each step's subtree: equal for equal ones.
    looks: Vec<u64>,
}

/// A line: a step, with the number of equal ones in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StepLine {
    pub(super) step: u32,
    pub(super) depth: usize,
    pub(super) times: usize,
}

impl<'t> Tree<'t> {
    pub(super) fn from_trace(trace: &'t Trace) -> Tree<'t> {
        let count = trace.steps.len();
        let mut below: Vec<Vec<u32>> = vec![Vec::new(); count];
        let mut roots = Vec::new();
        for (number, step) in (0..).zip(&trace.steps) {
            match step.parent.and_then(|parent| below.get_mut(parent as usize)) {
                Some(siblings) => siblings.push(number),
                None => roots.push(number),
            }
        }
        let mut looks = vec![0; count];
        // Steps below a step come after it.
        for number in (0..count).rev() {
            let step = &trace.steps[number];
            let mut hasher = DefaultHasher::new();
            (step.name, step.total, step.own, step.switches).hash(&mut hasher);
            (step.flags.0, step.context, step.arguments, step.returned).hash(&mut hasher);
            for child in &below[number] {
                looks[*child as usize].hash(&mut hasher);
            }
            looks[number] = hasher.finish();
        }
        Tree { trace, below, roots, looks }
    }

    /// The lines, from top to bottom.
    pub(super) fn lines(&self) -> Vec<StepLine> {
        let mut lines = Vec::new();
        // The next is the last.
        let mut left = self.folded(&self.roots, 0);
        while let Some(line) = left.pop() {
            lines.push(line);
            left.extend(self.folded(&self.below[line.step as usize], line.depth + 1));
        }
        lines
    }

    /// Steps beside each other, from the last to the first.
    fn folded(&self, steps: &[u32], depth: usize) -> Vec<StepLine> {
        let look = |step: &u32| self.looks[*step as usize];
        let equal = steps.chunk_by(|a, b| look(a) == look(b));
        let lines = equal.filter_map(|equal| {
            Some(StepLine { step: *equal.first()?, depth, times: equal.len() })
        });
        lines.rev().collect()
    }

    /// The lines as text, at most `limit`.
    pub(super) fn render(&self, recording: &Recording, limit: usize) -> String {
        let quantity = recording.quantities.get(self.trace.quantity as usize);
        let unit = quantity.map_or("", |quantity| quantity.unit.as_str());
        let mut out = format!("{unit:>FIGURE$} {:>FIGURE$}  function\n", "self");
        let lines = self.lines();
        for line in lines.iter().take(limit) {
            let step = &self.trace.steps[line.step as usize];
            let indent = "  ".repeat(line.depth.min(MOST_INDENT));
            let mut notes = remarks(step, unit);
            if line.times > 1 {
                notes.insert(0, format!("{} times", thousands(line.times as u64)));
            }
            let notes = match notes.is_empty() {
                true => String::new(),
                false => format!("  ({})", notes.join("; ")),
            };
            out.push_str(&format!(
                "{:>FIGURE$} {:>FIGURE$}  {indent}{}{notes}\n",
                thousands(step.total),
                thousands(step.own),
                call(recording, step),
            ));
        }
        let left = lines.len().saturating_sub(limit);
        if left > 0 {
            out.push_str(&format!(
                "  ({} more lines: `plumb report FILE --call {}` shows all)\n",
                thousands(left as u64),
                self.trace.number + 1
            ));
        }
        out
    }
}

/// A call, with its arguments and what it returned, where these are known.
pub(super) fn call(recording: &Recording, step: &Step) -> String {
    let text = |id, letters| printable(recording.text_of_trace(id), letters);
    let name = recording.text_of_trace(step.name);
    let mut out = match step.arguments {
        Some(_) => printable(without_parameters(name), NAME_LETTERS),
        None => printable(name, NAME_LETTERS),
    };
    if let Some(arguments) = step.arguments {
        out += &format!("({})", text(arguments, TEXT_LETTERS));
    }
    if let Some(returned) = step.returned {
        out += &format!(" = {}", text(returned, TEXT_LETTERS));
    }
    match step.flags.has(Flags::ASIDE) {
        true => format!("[{out}]"),
        false => out,
    }
}

/// The name of a C++ function without the types of its parameters.
fn without_parameters(name: &str) -> &str {
    let Some(list) = name.trim_end_matches(" const").strip_suffix(')') else {
        return name;
    };
    let mut depth = 1;
    for (at, letter) in list.char_indices().rev() {
        match letter {
            ')' => depth += 1,
            '(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if at > 0 { &name[..at] } else { name };
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that types of parameters are left out, and nothing else.
    #[test]
    fn parameters() {
        for (name, short) in [
            ("ns::C::get(int, void (*)(int)) const", "ns::C::get"),
            ("operator()(int)", "operator()"),
            ("ksys_read", "ksys_read"),
            ("(anonymous)", "(anonymous)"),
            ("f)", "f)"),
        ] {
            assert_eq!(without_parameters(name), short);
        }
    }
}
