//! Times as GitHub-flavoured Markdown: for a patch's cover letter or a comment.

use netplumb_model::experiment::Experiment;
use netplumb_model::recording::Recording;

use super::analysis::TimedClass;
use super::page::what_takes;
use super::terminal::{bottleneck, nothing, shown};
use super::{between, table, trust};
use crate::footer;
use crate::text::prose;
use crate::view::View;
use crate::{claims, conclusions};

/// The report: a section for each class, and notes.
pub fn render(
    recording: &Recording,
    classes: &[TimedClass<'_>],
    experiment: Option<&Experiment>,
    view: &View,
) -> String {
    let mut out = match between::is_of(recording) {
        true => format!("# From {}\n\n", prose(&between::events(recording), 300)),
        false => format!("# {}\n\n", what_takes(recording)),
    };
    for class in shown(classes) {
        out.push_str(&format!("## {}\n\n", prose(&class.label(), 200)));
        stages(class, &mut out);
        functions(class, view, &mut out);
    }
    if shown(classes).is_empty() {
        out.push_str(nothing(recording));
        out.push('\n');
    }
    let judged = experiment.map_or_else(Vec::new, |e| claims::judge_blocks(e, recording));
    conclusions::markdown(experiment, &judged, &mut out);
    out.push_str("## How it was measured\n\n");
    out.push_str(&footer::markdown(&trust::footer(recording, classes)));
    out
}

fn stages(class: &TimedClass<'_>, out: &mut String) {
    if class.stages.is_empty() {
        return;
    }
    out.push_str(match class.is_between() {
        false => {
            "Nanoseconds; percentiles are of the packets that went through a stage, the mean is of \
             all on the way.\n\n"
        }
        true => {
            "Nanoseconds, as read; percentiles are of those that went through a stage, the mean is of all \
             that ended.\n\n"
        }
    });
    table::stages_markdown(class, out);
    table::groups_markdown(class, out);
    if !class.closes() {
        out.push_str("INVALID: the stages don't add up to the whole way.\n\n");
    }
}

fn functions(class: &TimedClass<'_>, view: &View, out: &mut String) {
    if class.functions.is_empty() {
        return;
    }
    out.push_str(&format!(
        "Nanoseconds per {}; percentiles and mean are of a call.\n\n",
        class.per.word()
    ));
    if let Some(small) = table::functions_markdown(class, view, out) {
        out.push_str(&format!("{}\n\n", prose(&small, 600)));
    }
    let sentence = bottleneck(class, view.layer.as_deref());
    out.push_str(&format!("{}\n\n", prose(&sentence, 600)));
}
