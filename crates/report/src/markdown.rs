//! A report as GitHub-flavoured Markdown: for a patch's cover letter or a comment.
//!
//! Tables are padded, so that they can be read without rendering. There is no HTML
//! in it: mail has none.

use netplumb_model::experiment::Experiment;
use netplumb_model::recording::{Recording, env};

use crate::analysis::{ClassView, name_beside_unit, quantity};
use crate::sampled;
use crate::section::Section;
use crate::shares;
use crate::summary::{cost, label, summary_table};
use crate::table::{Column, Table, Value};
use crate::text::{code, prose};
use crate::together::CrossQuantity;
use crate::trust::common::{arms_of, values_of_arms};
use crate::view::View;
use crate::{all_classes, claims, conclusions, disks};
use crate::{footer, trust};

/// Columns of classes that a table has room for.
const CLASSES_ABREAST: usize = 6;
/// Classes whose functions are listed; a comment on GitHub holds 65,536 letters.
const MAX_CLASSES: usize = 12;
/// Classes whose layers are.
const MAX_LAYERED: usize = 96;

/// The report of some classes, with the results across all quantities. `view` has the layer and the number
/// of functions.
pub fn render(
    recording: &Recording,
    classes: &[ClassView<'_>],
    experiment: Option<&Experiment>,
    view: &View,
    together: &CrossQuantity<'_>,
) -> String {
    let layer = view.layer.as_deref();
    let mut out = heading(recording, classes, experiment);
    summary_table(classes, layer).markdown(&mut out);
    for sum in all_classes::sums(recording, classes) {
        out.push_str(&format!("{}\n\n", prose(&sum.sentence(), 400)));
    }
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
    let threads = together.threads(recording);
    let mut sections: Vec<Section<'_>> = disks::section(recording, classes).into_iter().collect();
    sections.extend(threads.as_ref().map(|threads| threads.section(view.top)));
    sections.extend(sampled::sections(sampled::of_part(recording, &together.sampled)));
    sections.extend(shares::sections(&together.shares));
    for section in &sections {
        section.markdown(&mut out);
    }
    let judged = experiment.map_or_else(Vec::new, |e| claims::judge(e, classes));
    conclusions::markdown(experiment, &judged, &mut out);
    out.push_str("## How it was measured\n\n");
    out.push_str(&footer::markdown(&trust::footer(recording, classes)));
    out
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
    let shown = arms_of(recording, classes);
    let release = values_of_arms(recording, &shown, env::KERNEL);
    let release = match release.is_empty() {
        true => "?".to_string(),
        false => release.join(" and "),
    };
    let below = recording.root();
    let below = below.map_or_else(String::new, |root| format!(" below {}", code(root, 80)));
    let quantity = quantity(recording);
    let of = match (quantity.unit.as_str(), classes.first()) {
        ("instructions", class) => format!(
            "Instructions{} per {}",
            name_beside_unit(&quantity).map_or(String::new(), |name| format!(" ({name})")),
            class.map_or("packet", |c| c.per.word())
        ),
        (unit, class) => {
            let (name, unit) = (prose(&quantity.name, 40), prose(unit, 40));
            format!("{name} in {unit} per {}", class.map_or("packet", |c| c.per.word()))
        }
    };
    out.push_str(&format!("{of}{below}, Linux {}.\n\n", code(&release, 160)));
    out
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
        let mut columns = vec![
            Column::text("layer", |layer: &&str| layer.to_string()).letters(30).markdown_rank(0),
        ];
        columns.extend(abreast.iter().map(|class| {
            Column::figure(label(class), |layer: &&str| match class.layer_insns(layer) {
                0 => Value::Missing,
                insns => Value::Formatted(cost(insns, class), None),
            })
            .letters(80)
            .markdown_rank(1)
        }));
        let names = sums.into_iter().map(|(name, _)| name);
        Table::new(columns, names).markdown(out);
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
