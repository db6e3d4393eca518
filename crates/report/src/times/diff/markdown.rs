//! A comparison of times as Markdown, for a patch's cover letter or a comment: the
//! sentences, one table of what differs, and the rest folded away.

use super::mixed::ClassBoth;
use super::terminal::{percent, quantile, sentence, subject, trust};
use super::{ClassDiff, QUANTILES, Row, TimesDiff};
use crate::diff::sentence::{Style, words};
use crate::interval;
use crate::markdown::{Table, code, prose};
use crate::times::{ns, rounded};

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
        details(class, top, &mut out);
    }
    out.push_str("<details><summary>How it was measured</summary>\n\n");
    for line in trust(diff) {
        let (word, rest) = line.split_once(' ').unwrap_or(("", &line));
        out.push_str(&format!("- **{word}** {}\n", prose(rest, TEXT)));
    }
    out.push_str("\n</details>\n");
    out
}

fn header(first: &[&str]) -> Vec<String> {
    let figures = ["before", "after", "change", "95% interval", "could see"];
    let mut header: Vec<String> = first
        .iter()
        .chain(&figures)
        .map(|t| t.to_string())
        .collect();
    header.extend(QUANTILES.map(|(name, _)| name.to_string()));
    header.push("verdict".into());
    header
}

fn figures(row: &Row) -> Vec<String> {
    let judged = &row.judged;
    let none = || "-".to_string();
    let mut cells = vec![
        ns(judged.before),
        ns(judged.after),
        judged.ratio.map_or_else(none, |r| percent(r.value)),
        (judged.ratio).map_or_else(none, |r| interval::told(r, percent)),
        judged
            .smallest
            .map_or_else(none, |s| format!("{:.1}%", s * 100.0)),
    ];
    cells.extend(row.quantiles.map(quantile));
    cells.push(judged.verdict.as_str().into());
    cells
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
    let mut table = Table::new(2, header(&["class", "what"]));
    for (class, row) in all.iter().take(FEW) {
        let mut cells = vec![prose(&subject(class), 200), code(&row.name, 60)];
        cells.extend(figures(row));
        table.rows.push(cells);
    }
    table.write(out);
    if all.len() > FEW {
        out.push_str(&format!("{} more differ, by less.\n\n", all.len() - FEW));
    }
}

fn details(class: &ClassDiff, top: usize, out: &mut String) {
    // Not Markdown in here, but HTML.
    let heading = Style::Markdown.html(&subject(class));
    let per = class.per;
    out.push_str(&format!(
        "<details><summary>{heading}, ns per {per}</summary>\n\n"
    ));
    if !class.stages.is_empty() {
        let mut table = Table::new(2, header(&["stage", "kind"]));
        for row in class.stages.iter().chain(&class.way) {
            let kind = match row.of.as_str() {
                "unaccounted" | "total" => "",
                of => of,
            };
            let mut cells = vec![prose(&row.name, 60), kind.into()];
            cells.extend(figures(row));
            table.rows.push(cells);
        }
        table.write(out);
    }
    if !class.functions.is_empty() {
        let (differ, same): (Vec<&Row>, Vec<&Row>) = class
            .functions
            .iter()
            .partition(|r| r.judged.verdict.differs());
        let shown = if top == 0 { class.functions.len() } else { top };
        let mut table = Table::new(2, header(&["function", "layer"]));
        for row in differ.iter().chain(&same).take(shown) {
            let mut cells = vec![code(&row.name, 60), prose(&row.of, 40)];
            cells.extend(figures(row));
            table.rows.push(cells);
        }
        if let Some(row) = &class.total {
            let mut cells = vec!["**all**".to_string(), String::new()];
            cells.extend(figures(row));
            table.rows.push(cells);
        }
        table.write(out);
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
    let titles = [
        "function",
        "calls",
        "own insns",
        "all insns",
        "calls timed",
        "own ns",
        "all ns",
    ];
    let mut table = Table::new(1, titles.map(String::from).to_vec());
    let shown = if top == 0 { class.functions.len() } else { top };
    for function in class.functions.iter().take(shown) {
        table.rows.push(vec![
            code(&function.name, 60),
            rounded(function.calls),
            rounded(function.self_insns),
            rounded(function.inclusive_insns),
            rounded(function.timed_calls),
            ns(function.self_ns),
            ns(function.total_ns),
        ]);
    }
    table.write(out);
}
