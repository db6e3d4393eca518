//! A comparison of times for a terminal: the sentences, then tables.

use netplumb_stats::judge::{FALSE_RATE, MIN_BLOCKS, Verdict};

use super::mixed::ClassBoth;
use super::{BeforeAfter, ClassDiff, Row, TimesDiff, table};
use crate::acting;
use crate::diff::sentence::words;
use crate::diff::terminal::head_of;
use crate::interval;
use crate::number::{plural, printable};
use crate::shape::varying;
use crate::terminal::{View, continued};
use crate::times::{ns, ns_range};

/// The whole.
pub fn render(diff: &TimesDiff<'_>, view: &View) -> String {
    let mut out = head(diff, view.columns);
    for class in &diff.both {
        out.push('\n');
        out.push_str(&side_by_side(class, view));
    }
    for class in &diff.classes {
        out.push('\n');
        out.push_str(&section(diff, class, view));
    }
    out.push('\n');
    for line in trust(diff) {
        out.push_str(&continued(&line, 10, view.columns));
        out.push('\n');
    }
    out
}

/// What is said before any table: differences, and a sentence for each class.
pub fn head(diff: &TimesDiff<'_>, columns: usize) -> String {
    let clocks = (!diff.one_clock).then(|| two_clocks(diff).to_string());
    let sentences = diff.classes.iter().map(sentence);
    let said = clocks.into_iter().chain(sentences);
    let said = said.chain(diff.unpaired.iter().cloned());
    head_of(
        diff.sides,
        (&diff.differences, &diff.warnings),
        said,
        columns,
    )
}

/// What can be said of sides that read different clocks.
pub(super) fn two_clocks(diff: &TimesDiff<'_>) -> &'static str {
    match diff.both.is_empty() {
        true => "Two clocks: no function is on both sides, and there is nothing to compare.",
        false => "Two clocks: what both saw stands side by side, and there is no verdict.",
    }
}

/// What a class is called.
pub(super) fn subject(class: &ClassDiff) -> String {
    let mut text = words(class.before);
    if class.before != class.after {
        text = format!("{text} → {}", words(class.after));
    }
    match class.label.as_str() {
        "" => text,
        label => format!("{text} ({})", printable(label, 200)),
    }
}

/// "UDP send: 1,002 to 1,181 ns per packet, slower by 17.9% (17.1% to 18.6%), most of
/// it in ip_output".
pub fn sentence(class: &ClassDiff) -> String {
    let differs = class
        .whole()
        .is_some_and(|whole| whole.judged.verdict.differs());
    let idle = acting::told(&class.idle, class.idle_alone, differs);
    format!("{}{idle}", outcome(class))
}

fn outcome(class: &ClassDiff) -> String {
    let subject = subject(class);
    let changed = class.changed();
    let names = |rows: &[&Row]| -> String {
        let names: Vec<String> = rows
            .iter()
            .take(2)
            .map(|r| printable(&r.name, 60))
            .collect();
        names.join(" and ")
    };
    let Some(whole) = class.whole() else {
        return match changed.len() {
            0 => format!("{subject}: no function or stage differs per call, as far as can be seen"),
            n => format!(
                "{subject}: {n} differ per call, most of all {}",
                names(&changed)
            ),
        };
    };
    let mut text = format!(
        "{subject}: {} per {}, ",
        ns_range(whole.judged.before, whole.judged.after),
        class.per
    );
    match whole.judged.verdict {
        verdict @ (Verdict::Faster | Verdict::Slower) => {
            text.push_str(verdict.as_str());
            if let Some(ratio) = whole.judged.ratio {
                text.push_str(&format!(
                    " by {} ({})",
                    percent(ratio.value).trim_start_matches(['+', '-']),
                    interval::told(ratio, percent)
                ));
            }
            let alike: Vec<&Row> = changed
                .iter()
                .copied()
                .filter(|r| r.judged.verdict == verdict)
                .collect();
            if !alike.is_empty() {
                text.push_str(&format!(", most of it in {}", names(&alike)));
            }
        }
        Verdict::NoDifference => {
            text.push_str("no difference seen");
            if whole.judged.is_blind() {
                text.push_str(&format!(
                    ", but noise may hide any change: {}",
                    interval::remedy(class.apart)
                ));
            } else if let Some(smallest) = whole.judged.smallest {
                text.push_str(&format!(
                    "; one of {:.1}% would have been",
                    smallest * 100.0
                ));
            }
            if !changed.is_empty() {
                let n = changed.len();
                text.push_str(&format!(
                    "; but {n} of its parts differ{}, most of all {}",
                    if n == 1 { "s" } else { "" },
                    names(&changed)
                ));
            }
        }
        Verdict::TooFew => text.push_str(&format!(
            "and no verdict: it takes {MIN_BLOCKS} blocks a side"
        )),
    }
    text
}

/// A ratio as a change: +12.3%.
pub(super) fn percent(ratio: f64) -> String {
    if ratio.is_finite() {
        format!("{:+.1}%", (ratio - 1.0) * 100.0)
    } else {
        "?".into()
    }
}

fn section(diff: &TimesDiff<'_>, class: &ClassDiff, view: &View) -> String {
    let mut out = format!("{}\n", subject(class));
    if !class.stages.is_empty() && view.layer.is_none() {
        let rows = class.stages.iter().chain(&class.way);
        out.push_str(&table::terminal(diff, class, "stage", rows, view));
    }
    let of_layer = |r: &&Row| view.layer.as_ref().is_none_or(|l| r.of == *l);
    let functions: Vec<&Row> = class.functions.iter().filter(of_layer).collect();
    if !functions.is_empty() {
        let top = if view.top == 0 {
            functions.len()
        } else {
            view.top
        };
        // Those that differ first.
        let (differ, same): (Vec<&Row>, Vec<&Row>) =
            functions.iter().partition(|r| r.judged.verdict.differs());
        let rows = differ.into_iter().chain(same).take(top);
        let total = class.total.as_ref().filter(|_| view.layer.is_none());
        let rows = rows.chain(total);
        out.push_str(&table::terminal(diff, class, "function", rows, view));
        if functions.len() > top {
            let more = functions.len() - top;
            out.push_str(&format!("  and {more} more {}\n", plural(more, "function")));
        }
    }
    if class.small > 0 {
        out.push_str(&format!(
            "  {} too small to rank on both sides\n",
            class.small
        ));
    }
    if !class.one_side.is_empty() {
        let mut names = class.one_side[..class.one_side.len().min(6)].join(", ");
        if class.one_side.len() > 6 {
            names.push_str(&format!(" and {} more", class.one_side.len() - 6));
        }
        let line = format!("  timed on one side only, in no figure here: {names}");
        out.push_str(&continued(&line, 2, view.columns));
        out.push('\n');
    }
    out
}

/// "1,002 → 1,181"; "-" of a sum.
pub(super) fn quantile(sides: BeforeAfter) -> String {
    let told = |side: Option<f64>| side.map_or("-".into(), ns);
    match sides {
        [None, None] => "-".into(),
        [was, is] => format!("{} → {}", told(was), told(is)),
    }
}

/// Instructions and nanoseconds in one row.
fn side_by_side(class: &ClassBoth, view: &View) -> String {
    let mut out = format!("{}, per {}\n", words(class.class), class.per);
    out.push_str(&table::both_terminal(class, view));
    let top = if view.top == 0 { usize::MAX } else { view.top };
    if class.functions.len() > top {
        out.push_str(&format!(
            "  and {} more functions\n",
            class.functions.len() - top
        ));
    }
    out
}

/// How the verdicts came about.
pub(super) fn trust(diff: &TimesDiff<'_>) -> Vec<String> {
    if !diff.one_clock {
        return vec![
            "clocks    instructions are counted to the instruction; nanoseconds are corrected for the \
             probes, and own time includes functions below that were not timed"
                .into(),
        ];
    }
    let blocks = |recording: &netplumb_model::recording::Recording| recording.blocks.len();
    let mut lines = vec![
        format!(
            "blocks    {} before, {} after; a block is one measurement, however many packets it has",
            blocks(diff.sides.before),
            blocks(diff.sides.after)
        ),
        format!(
            "verdicts  Welch's test over blocks, with at most {:.0}% of the differences found among all \
             functions, stages or wholes being false, and the interval apart from no change",
            FALSE_RATE * 100.0
        ),
        format!(
            "interval  95% on the ratio of the means (Fieller's, over blocks); `and more` has no upper \
             end, and `any` no end at all{}",
            // Nothing is taken off costs.
            match varying(diff.sides.before) {
                Some(_) => "",
                None => {
                    "; what the corrections may be off by is in it where the sides were calibrated \
                     apart"
                }
            }
        ),
        "smallest  what it could see: the smallest change that such a run finds in four of five tries".into(),
    ];
    for apart in [false, true] {
        let classes = || diff.classes.iter().filter(|c| c.apart == apart);
        let rows = classes().flat_map(ClassDiff::rows);
        let noise = interval::noise(rows.map(|r| (r.name.as_str(), &r.judged)), apart);
        lines.extend(noise.map(|text| format!("noise     {}", text.trim_start_matches("noise "))));
    }
    if diff.classes.iter().any(|c| c.apart) {
        lines.push(
            "drift     sides that did not take turns differ only if they do by more than a random walk makes \
             whose steps are those from block to block; the interval has it in it"
                .into(),
        );
    }
    lines
}
