//! A comparison as Markdown, for a patch's cover letter or a comment: the
//! sentences, one small table, and the rest folded away.

use super::facts::trust;
use super::sentence::{Style, figure, sentence_in};
use super::terminal::notes_in;
use super::{ClassDiff, Diff, table};

/// Functions in the table that is not folded away, over all classes.
const FEW: usize = 5;

/// The whole; of functions, `top` for each class, 0 for all.
pub fn render(diff: &Diff<'_>, top: usize) -> String {
    let style = Style::Markdown;
    let [was, is] = [diff.sides.before_name, diff.sides.after_name].map(|n| style.text(n, 200));
    let mut out = match was == is {
        true => format!("### Instructions per packet: the arms of {is}\n\n"),
        false => format!("### Instructions per packet: {was} → {is}\n\n"),
    };
    for difference in &diff.differences {
        out.push_str(&format!(
            "- differs: {}\n",
            style.text(&difference.to_string(), 400)
        ));
    }
    for warning in &diff.warnings {
        out.push_str(&format!("- **beware**: {}\n", style.text(warning, 400)));
    }
    if !(diff.differences.is_empty() && diff.warnings.is_empty()) {
        out.push('\n');
    }
    for class in &diff.classes {
        out.push_str(&format!("- {}\n", sentence_in(diff, class, style)));
    }
    for one in &diff.unpaired {
        out.push_str(&format!("- {}\n", style.text(one, 400)));
    }
    out.push('\n');
    out.push_str(&few(diff));
    for class in &diff.classes {
        if class.changed().next().is_some() {
            out.push_str(&details(diff, class, top));
        }
    }
    out.push_str("<details><summary>How it was measured</summary>\n\n");
    for line in trust(diff) {
        out.push_str(&item(&style.text(&line, 600)));
    }
    out.push_str("\n</details>\n");
    out
}

/// A line of which the first word is what it is about.
fn item(line: &str) -> String {
    match line.split_once(' ') {
        Some((word, rest)) if !word.is_empty() => format!("- **{word}** {}\n", rest.trim_start()),
        _ => format!("- {}\n", line.trim_start()),
    }
}

/// The largest changes of all classes.
fn few(diff: &Diff<'_>) -> String {
    let mut all: Vec<_> = diff
        .classes
        .iter()
        .flat_map(|c| c.changed().map(move |f| (c, f)))
        .collect();
    if all.is_empty() {
        return String::new();
    }
    let size = |d: super::Delta| d.value().abs();
    all.sort_by(|a, b| size(b.1.self_insns.delta()).total_cmp(&size(a.1.self_insns.delta())));
    let mut out = String::new();
    table::markdown_of_classes(diff, all.iter().copied().take(FEW), &mut out);
    if all.len() > FEW {
        out.push_str(&format!("{} more changed, by less.\n\n", all.len() - FEW));
    }
    out
}

fn details(diff: &Diff<'_>, class: &ClassDiff, top: usize) -> String {
    let style = Style::Markdown;
    let mut out = format!(
        "<details><summary>{}: {} to {}</summary>\n\n",
        // Not Markdown in here, but HTML.
        style.html(&super::sentence::subject(class)),
        figure(class.total.before),
        figure(class.total.after)
    );
    table::markdown(diff, class, top, &mut out);
    let notes = notes_in(diff, class, None, top == 0, style);
    for note in &notes {
        out.push_str(&item(note));
    }
    if !notes.is_empty() {
        out.push('\n');
    }
    out.push_str("</details>\n\n");
    out
}
