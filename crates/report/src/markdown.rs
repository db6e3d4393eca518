//! A report as GitHub-flavoured Markdown: for a patch's cover letter or a comment.
//!
//! Tables are padded, so that they can be read where nobody renders them. There is
//! no HTML in it: mail has none.

use netplumb_model::experiment::Experiment;
use netplumb_model::recording::{Recording, env};

use crate::analysis::{ClassView, quantity};
use crate::claims;
use crate::number::{percent, printable};
use crate::terminal::{View, label, split};
use crate::trust;

/// Columns of classes that a table has room for.
const CLASSES_ABREAST: usize = 6;
/// Classes whose functions are listed; a comment on GitHub holds 65,536 letters.
const MAX_CLASSES: usize = 12;
/// Classes whose layers are.
const MAX_LAYERED: usize = 96;
const NAME_LIMIT: usize = 60;

/// A table, its first columns left-aligned.
pub(crate) struct Table {
    left: usize,
    /// The first is the heading.
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(left: usize, header: Vec<String>) -> Self {
        Table {
            left,
            rows: vec![header],
        }
    }

    pub(crate) fn write(&self, out: &mut String) {
        let widths: Vec<usize> = (0..self.rows[0].len())
            .map(|n| {
                let cells = self.rows.iter().filter_map(|row| row.get(n));
                cells.map(|c| c.chars().count()).max().unwrap_or(0).max(3)
            })
            .collect();
        for (n, row) in self.rows.iter().enumerate() {
            out.push('|');
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let pad = " ".repeat(width - cell.chars().count());
                if column < self.left {
                    out.push_str(&format!(" {cell}{pad} |"));
                } else {
                    out.push_str(&format!(" {pad}{cell} |"));
                }
            }
            out.push('\n');
            if n == 0 {
                out.push('|');
                for (column, width) in widths.iter().enumerate() {
                    let end = if column < self.left { '-' } else { ':' };
                    out.push_str(&format!(" {}{end} |", "-".repeat(width - 1)));
                }
                out.push('\n');
            }
        }
        out.push('\n');
    }
}

/// The report of some classes. `view` has the layer and how many functions.
pub fn render(
    recording: &Recording,
    classes: &[ClassView<'_>],
    experiment: Option<&Experiment>,
    view: &View,
) -> String {
    let layer = view.layer.as_deref();
    let mut out = heading(recording, classes, experiment);
    summary(classes, layer, &mut out);
    if classes.len() <= MAX_LAYERED {
        layers(classes, &mut out);
    }
    if classes.len() > MAX_CLASSES {
        out.push_str(&format!(
            "Functions are listed for up to {MAX_CLASSES} classes, and layers for up to \
             {MAX_LAYERED}; there are {}: choose with `--direction` and `--arm`.\n\n",
            classes.len()
        ));
    } else {
        for class in classes {
            functions(class, view, &mut out);
        }
    }
    if let Some(experiment) = experiment.filter(|e| !e.claims.is_empty()) {
        out.push_str("## Claims\n\n");
        for one in claims::judge(experiment, classes) {
            out.push_str(&format!(
                "- **{}**: {}  \n  {}\n",
                one.verdict.as_str(),
                prose(&one.says, 400),
                prose(&one.because, 4_000)
            ));
        }
        out.push('\n');
    }
    out.push_str("## How it was measured\n\n");
    out.push_str(&fenced(&trust::footer(recording, classes).join("\n")));
    out
}

/// Text as it stands.
pub(crate) fn fenced(text: &str) -> String {
    let fence = "`".repeat(longest_run(text).max(2) + 1);
    format!("{fence}text\n{text}\n{fence}\n")
}

fn heading(
    recording: &Recording,
    classes: &[ClassView<'_>],
    experiment: Option<&Experiment>,
) -> String {
    let title = match experiment.map(|e| e.title.trim()) {
        Some(title) if !title.is_empty() => prose(title, 200),
        _ => "What it costs in the kernel".into(),
    };
    let mut out = format!("# {title}\n\n");
    if let Some(question) = experiment.map(|e| e.question.trim())
        && !question.is_empty()
    {
        out.push_str(&format!("{}\n\n", prose(question, 2_000)));
    }
    let release = recording.environment.get(env::KERNEL);
    let quantity = quantity(recording);
    let of = match (quantity.unit.as_str(), classes.first()) {
        ("instructions", class) => format!(
            "Instructions per {}",
            class.map_or("packet", |c| c.per.word())
        ),
        (unit, class) => {
            let (name, unit) = (prose(&quantity.name, 40), prose(unit, 40));
            format!(
                "{name} in {unit} per {}",
                class.map_or("packet", |c| c.per.word())
            )
        }
    };
    out.push_str(&format!(
        "{of}, Linux {}.\n\n",
        code(release.map_or("?", |r| r), 80)
    ));
    out
}

fn summary(classes: &[ClassView<'_>], layer: Option<&str>, out: &mut String) {
    let mut header = vec!["class".into(), "by context".into()];
    header.extend(["largest layer", "largest function"].map(String::from));
    let unit = classes.first().map_or("cost", |c| &c.quantity.unit);
    header.push(prose(unit, 40));
    header.extend(layer.map(|l| prose(l, 30)));
    let mut table = Table::new(4, header);
    for class in classes {
        let largest = class.layers.first().map_or_else(String::new, |(name, n)| {
            format!("{} {}", prose(name, 30), class.told(*n))
        });
        let top = class.functions_of(layer).next();
        let top = top.map_or_else(String::new, |f| {
            let cost = class.told(f.self_insns);
            format!("{} {cost}", code(class.name(f.function), NAME_LIMIT))
        });
        let mut row = vec![prose(&label(class), 80), prose(&split(class), 200)];
        row.extend([largest, top, class.told(class.total)]);
        row.extend(layer.map(|l| cost(class.layer_insns(l), class)));
        table.rows.push(row);
    }
    table.write(out);
}

/// Per packet, and the share of the path.
fn cost(insns: u64, class: &ClassView<'_>) -> String {
    format!(
        "{} ({:.1}%)",
        class.told(insns),
        percent(insns, class.total)
    )
}

fn layers(classes: &[ClassView<'_>], out: &mut String) {
    if classes.is_empty() {
        return;
    }
    out.push_str("## Layers\n\n");
    for abreast in classes.chunks(CLASSES_ABREAST) {
        let mut sums: Vec<(&str, u64)> = Vec::new();
        for (name, insns) in abreast.iter().flat_map(|c| &c.layers) {
            match sums.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += insns,
                None => sums.push((name, *insns)),
            }
        }
        sums.sort_by_key(|(name, sum)| (std::cmp::Reverse(*sum), *name));
        let mut header = vec!["layer".to_string()];
        header.extend(abreast.iter().map(|c| prose(&label(c), 80)));
        let mut table = Table::new(1, header);
        for (name, _) in sums {
            let mut row = vec![prose(name, 30)];
            row.extend(abreast.iter().map(|c| match c.layer_insns(name) {
                0 => "-".into(),
                insns => cost(insns, c),
            }));
            table.rows.push(row);
        }
        table.write(out);
    }
}

fn functions(class: &ClassView<'_>, view: &View, out: &mut String) {
    let layer = view.layer.as_deref();
    let of = layer.map_or_else(String::new, |l| format!(", {}", prose(l, 30)));
    out.push_str(&format!("## {}{of}\n\n", prose(&label(class), 80)));
    if class.functions_of(layer).next().is_none() {
        out.push_str("Nothing of it is in this layer.\n\n");
        return;
    }
    crate::functions::markdown(class, view, out);
}

/// Text that Markdown is to leave alone, on one line.
pub(crate) fn prose(text: &str, limit: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut out = String::new();
    for c in printable(&words.join(" "), limit).chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '~' | '&' | '#' | '$' => {
                out.push('\\');
                out.push(c);
            }
            // GitHub would send mail to whoever is called that.
            '@' => out.push_str("@\u{200b}"),
            c => out.push(c),
        }
    }
    // These begin a list, a heading's underline or a table's.
    if out.starts_with(['-', '+', '=', ':']) {
        out.insert(0, '\\');
    }
    out
}

/// A name, as code. A pipe would end a cell, in code too.
pub(crate) fn code(name: &str, limit: usize) -> String {
    let name = printable(name, limit).replace('|', "\\|");
    let fence = "`".repeat(longest_run(&name) + 1);
    if name.trim().is_empty() {
        return format!("{fence}?{fence}");
    }
    // One blank on each side is taken off again, and is needed beside a backtick.
    if name.starts_with(['`', ' ']) || name.ends_with(['`', ' ']) {
        format!("{fence} {name} {fence}")
    } else {
        format!("{fence}{name}{fence}")
    }
}

/// The most backticks in a row.
fn longest_run(text: &str) -> usize {
    let mut longest = 0;
    let mut run = 0;
    for c in text.chars() {
        run = if c == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}
