//! A comparison as Markdown, for a patch's cover letter or a comment: the sentences, one small
//! table, and the rest folded away.

use super::sentence::{Style, figure, html, sentence_in, subject, words};
use super::terminal::{is_bench, left_out, notes, two_clocks};
use super::trust::trust;
use super::{ClassDiff, Diff, DiffRow, mixed, table};
use crate::footer;
use crate::text::{code, prose};

/// Rows in the table that is not folded away, over all classes.
const FEW: usize = 5;
/// Letters of a sentence.
const TEXT: usize = 600;

/// The whole comparison, with `top` functions for each class, 0 for all.
pub fn render(diff: &Diff<'_>, top: usize) -> String {
    let [was, is] = [diff.sides.before_name, diff.sides.after_name].map(|n| prose(n, 200));
    let what: String = match diff.classes.first() {
        Some(class) if class.counted.is_some() => format!("Instructions per {}", class.per),
        Some(class) if class.is_share() => "Shares of samples".into(),
        Some(class) if class.unit != "ns" => prose(&class.unit, 40),
        _ => "Nanoseconds".into(),
    };
    let what = match diff.quantity() {
        Some(name) => format!("{what} ({name})"),
        None => what,
    };
    let what = match diff.sides.after.root() {
        Some(root) => format!("{what} below {}", code(root, 80)),
        None => what,
    };
    let mut out = match was == is {
        true => format!("### {what}: the arms of {is}\n\n"),
        false => format!("### {what}: {was} → {is}\n\n"),
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
    if let Some(text) = two_clocks(diff) {
        out.push_str(&format!("- {text}\n"));
    }
    for class in diff.with_sums().into_iter().filter(|_| !is_bench(diff)) {
        out.push_str(&format!("- {}\n", sentence_in(class, Style::Markdown)));
    }
    for one in &diff.unpaired {
        out.push_str(&format!("- {}\n", prose(one, TEXT)));
    }
    if !is_bench(diff) {
        out.push('\n');
    } else {
        table::wholes(diff).markdown(&mut out);
    }
    few(diff, &mut out);
    for class in &diff.both {
        let words = words(class.class);
        out.push_str(&format!("**{words}**, per {}\n\n", class.per));
        mixed::table(class, top).markdown(&mut out);
    }
    for class in diff.classes.iter().filter(|_| !is_bench(diff)) {
        if class.counted.is_none() || !class.changed().is_empty() {
            details(diff, class, top, &mut out);
        }
    }
    out.push_str("<details><summary>How it was measured</summary>\n\n");
    out.push_str(&footer::markdown(&trust(diff)));
    out.push_str("\n</details>\n");
    out
}

/// The largest changes of all classes.
fn few(diff: &Diff<'_>, out: &mut String) {
    // Functions with the same code are listed apart.
    let changed = |c| {
        let rows = ClassDiff::changed(c).into_iter();
        rows.filter(|r| !r.has_same_code()).map(move |r| (c, r))
    };
    let mut all: Vec<(&ClassDiff, &DiffRow)> = diff.classes.iter().flat_map(changed).collect();
    if all.is_empty() {
        return;
    }
    all.sort_by(|a, b| b.1.delta().abs().total_cmp(&a.1.delta().abs()));
    table::markdown_of_classes(diff, all.iter().copied().take(FEW), out);
    if all.len() > FEW {
        out.push_str(&format!("{} more changed, by less.\n\n", all.len() - FEW));
    }
}

fn details(diff: &Diff<'_>, class: &ClassDiff, top: usize, out: &mut String) {
    // Inside this element, HTML, not Markdown.
    let heading = html(&subject(class));
    let figures = match &class.counted {
        Some(counted) => {
            format!(": {} to {}", figure(counted.total.before), figure(counted.total.after))
        }
        None => format!(", {}", html(&class.per_what())),
    };
    out.push_str(&format!("<details><summary>{heading}{figures}</summary>\n\n"));
    if !class.stages.is_empty() {
        table::stages(diff, class).markdown(out);
    }
    if !class.functions.is_empty() {
        let (table, left) = table::functions(diff, class, None, top);
        table.markdown(out);
        if left > 0 {
            out.push_str(&format!("and {left} more functions\n\n"));
        }
    }
    if let Some((table, left)) = table::same_code(diff, class, None, top) {
        table.markdown(out);
        if left > 0 {
            out.push_str(&format!("and {left} more functions\n\n"));
        }
    }
    if !class.inclusive.is_empty() {
        let (table, left) = table::inclusive(diff, class, None, top);
        table.markdown(out);
        if left > 0 {
            out.push_str(&format!("and {left} more functions\n\n"));
        }
    }
    for text in left_out(class, &|name| code(name, 60)) {
        out.push_str(&format!("{text}\n\n"));
    }
    let notes = notes(class, diff, None, top == 0, Style::Markdown);
    for note in &notes {
        match note.topic {
            "" => out.push_str(&format!("- {}\n", note.text)),
            topic => out.push_str(&format!("- **{topic}** {}\n", note.text)),
        }
    }
    if !notes.is_empty() {
        out.push('\n');
    }
    out.push_str("</details>\n\n");
}
