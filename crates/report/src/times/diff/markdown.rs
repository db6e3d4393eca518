//! A comparison of times as Markdown, for a patch's cover letter or a comment: the
//! sentences, one table of what differs, and the rest folded away.

use super::mixed::ClassBoth;
use super::terminal::{sentence, subject, trust};
use super::{ClassDiff, Row, TimesDiff, table};
use crate::diff::sentence::{Style, words};
use crate::markdown::{code, prose};

/// Rows in the table that is not folded away, over all classes.
const FEW: usize = 5;
const TEXT: usize = 600;

/// The whole; of functions, `top` for each class, 0 for all.
pub fn render(diff: &TimesDiff<'_>, top: usize) -> String {
    let [was, is] = [diff.sides.before_name, diff.sides.after_name].map(|n| prose(n, 200));
    let mut out = match was == is {
        true => format!("### Nanoseconds: the arms of {is}\n\n"),
        false => format!("### Nanoseconds: {was} → {is}\n\n"),
    };
    for difference in &diff.differences {
        let text = prose(&difference.to_string(), TEXT);
        out.push_str(&format!("- differs: {text}\n"));
    }
    for warning in &diff.warnings {
        out.push_str(&format!("- **beware**: {}\n", prose(warning, TEXT)));
    }
    if !(diff.differences.is_empty() && diff.warnings.is_empty()) {
        out.push('\n');
    }
    if !diff.one_clock {
        out.push_str(&format!("- {}\n", super::terminal::two_clocks(diff)));
    }
    for class in &diff.classes {
        out.push_str(&format!("- {}\n", prose(&sentence(class), TEXT)));
    }
    for one in &diff.unpaired {
        out.push_str(&format!("- {}\n", prose(one, TEXT)));
    }
    out.push('\n');
    few(diff, &mut out);
    for class in &diff.both {
        side_by_side(class, top, &mut out);
    }
    for class in &diff.classes {
        details(diff, class, top, &mut out);
    }
    out.push_str("<details><summary>How it was measured</summary>\n\n");
    for line in trust(diff) {
        let (word, rest) = line.split_once(' ').unwrap_or(("", &line));
        out.push_str(&format!("- **{word}** {}\n", prose(rest, TEXT)));
    }
    out.push_str("\n</details>\n");
    out
}

/// What differs most, of all classes.
fn few(diff: &TimesDiff<'_>, out: &mut String) {
    let mut all: Vec<(&ClassDiff, &Row)> = diff
        .classes
        .iter()
        .flat_map(|c| c.changed().into_iter().map(move |r| (c, r)))
        .collect();
    if all.is_empty() {
        return;
    }
    all.sort_by(|a, b| b.1.delta().abs().total_cmp(&a.1.delta().abs()));
    table::markdown_of_classes(diff, all.iter().copied().take(FEW), out);
    if all.len() > FEW {
        out.push_str(&format!("{} more differ, by less.\n\n", all.len() - FEW));
    }
}

fn details(diff: &TimesDiff<'_>, class: &ClassDiff, top: usize, out: &mut String) {
    // Not Markdown in here, but HTML.
    let heading = Style::Markdown.html(&subject(class));
    let per = class.per;
    out.push_str(&format!(
        "<details><summary>{heading}, ns per {per}</summary>\n\n"
    ));
    if !class.stages.is_empty() {
        let rows = class.stages.iter().chain(&class.way);
        table::markdown(diff, class, "stage", rows, out);
    }
    if !class.functions.is_empty() {
        let (differ, same): (Vec<&Row>, Vec<&Row>) = class
            .functions
            .iter()
            .partition(|r| r.judged.verdict.differs());
        let shown = if top == 0 { class.functions.len() } else { top };
        let rows = differ.into_iter().chain(same).take(shown);
        table::markdown(diff, class, "function", rows.chain(&class.total), out);
        if class.functions.len() > shown {
            let rest = class.functions.len() - shown;
            out.push_str(&format!("and {rest} more functions\n\n"));
        }
    }
    if class.small > 0 {
        let small = class.small;
        out.push_str(&format!("{small} too small to rank on both sides\n\n"));
    }
    if !class.one_side.is_empty() {
        let names: Vec<String> = class.one_side.iter().map(|n| code(n, 60)).collect();
        out.push_str(&format!(
            "timed on one side only, in no figure here: {}\n\n",
            names.join(", ")
        ));
    }
    out.push_str("</details>\n\n");
}

/// Functions that two clocks saw.
fn side_by_side(class: &ClassBoth, top: usize, out: &mut String) {
    out.push_str(&format!(
        "**{}**, per {}\n\n",
        words(class.class),
        class.per
    ));
    table::both_markdown(class, top, out);
}
