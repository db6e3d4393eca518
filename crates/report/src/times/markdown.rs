//! Times as GitHub-flavoured Markdown: for a patch's cover letter or a comment.

use netplumb_model::recording::Recording;
use netplumb_model::timing::StageKind;

use super::analysis::{PERCENTILES, TimedClass, TimedFunction, percentile};
use super::terminal::{bottleneck, label, shown, too_small, whole_ns};
use super::trust::footer;
use super::{ns, rounded};
use crate::markdown::{Table, code, fenced, prose};
use crate::number::thousands;
use crate::terminal::View;

const NAME_LIMIT: usize = 60;

/// The report: a section for each class, and what to think of it.
pub fn render(recording: &Recording, classes: &[TimedClass<'_>], view: &View) -> String {
    let mut out = String::from("# What a packet's way takes\n\n");
    for class in shown(classes) {
        out.push_str(&format!("## {}\n\n", prose(&label(class), 200)));
        stages(class, &mut out);
        functions(class, view, &mut out);
    }
    if shown(classes).is_empty() {
        out.push_str("No packet was seen: nothing was timed in any window.\n\n");
    }
    out.push_str("## How it was measured\n\n");
    out.push_str(&fenced(&footer(recording, classes).join("\n")));
    out
}

fn percent(part: f64, whole: f64) -> String {
    match whole > 0.0 {
        true => format!("{:.1}%", part * 100.0 / whole),
        false => "-".into(),
    }
}

fn stages(class: &TimedClass<'_>, out: &mut String) {
    if class.stages.is_empty() {
        return;
    }
    let whole = whole_ns(class);
    out.push_str(
        "Nanoseconds, as read; percentiles are of the packets that went through a stage, the mean is of all on \
         the way.\n\n",
    );
    let mut header = vec!["stage".to_string(), "kind".into(), "packets".into()];
    header.extend(PERCENTILES.iter().map(|(name, _)| name.to_string()));
    header.extend(["max", "mean", "share"].map(String::from));
    let mut table = Table::new(2, header);
    for stage in &class.stages {
        let mut row = vec![
            prose(&stage.name, NAME_LIMIT),
            match stage.kind {
                StageKind::Total | StageKind::Unaccounted => String::new(),
                kind => kind.to_string(),
            },
            thousands(stage.times.count),
        ];
        for (_, share) in PERCENTILES {
            row.push(percentile(&stage.times, share).map_or("-".into(), ns));
        }
        row.push(stage.max_ns().map_or("-".into(), ns));
        row.push(ns(stage.mean_ns()));
        row.push(percent(stage.mean_ns(), whole));
        table.rows.push(row);
    }
    table.write(out);
    if !class.closes() {
        out.push_str("INVALID: the stages don't add up to the whole way.\n\n");
    }
}

fn functions(class: &TimedClass<'_>, view: &View, out: &mut String) {
    if class.functions.is_empty() {
        return;
    }
    let each = |sum: f64| ns(class.per.each(sum));
    let whole = match &view.layer {
        Some(layer) => class.layer_ns(layer),
        None => class.total_ns,
    };
    out.push_str(&format!(
        "Nanoseconds per {}; percentiles and mean are of a call.\n\n",
        class.per.word()
    ));
    let mut header = vec!["function".to_string(), "layer".into(), "calls".into()];
    header.push("mean".into());
    header.extend(PERCENTILES.iter().map(|(name, _)| name.to_string()));
    header.extend(["max", "raw", "total", "self", "share"].map(String::from));
    let mut table = Table::new(2, header);
    let all: Vec<&TimedFunction> = class.functions_of(view.layer.as_deref()).collect();
    let (small, ranked): (Vec<&TimedFunction>, Vec<&TimedFunction>) =
        all.into_iter().partition(|f| f.too_small());
    let top = if view.top == 0 {
        ranked.len()
    } else {
        view.top
    };
    for function in ranked.iter().take(top) {
        let mut row = vec![
            code(class.name(function.function), NAME_LIMIT),
            prose(class.layer(function.function), 40),
            rounded(class.per.each(function.times.count as f64)),
            ns(function.mean_ns()),
        ];
        for (_, share) in PERCENTILES {
            row.push(function.percentile(share).map_or("-".into(), ns));
        }
        row.extend([
            ns(function.max_ns()),
            each(function.raw_ns),
            each(function.corrected_ns),
            each(function.self_ns),
            percent(function.self_ns, whole),
        ]);
        table.rows.push(row);
    }
    table.write(out);
    if ranked.len() > top {
        out.push_str(&format!(
            "{} more functions took less.\n\n",
            ranked.len() - top
        ));
    }
    if !small.is_empty() {
        out.push_str(&format!("{}\n\n", prose(&too_small(class, &small), 600)));
    }
    let told = bottleneck(class, view.layer.as_deref());
    out.push_str(&format!("{}\n\n", prose(&told, 600)));
}
