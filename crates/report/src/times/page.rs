//! The page of a recording of times: the page of costs with percentiles, histograms,
//! stages, and (in `beside`) what was counted beside them.

use std::collections::BTreeMap;

use netplumb_model::experiment::Experiment;
use netplumb_model::recording::{Recording, env};
use netplumb_model::span::StageKind;

use super::analysis::{Per, Stage, TimedClass, TimedFunction};
use super::number::share;
use super::terminal::{bottleneck, nothing, shown};
use super::trust::footer;
use super::{as_costs, beside, between, ns, table};
use crate::analysis;
use crate::diff;
use crate::html::{functions, report_page, titled};
use crate::number::{counted, printable, thousands};
use crate::page::{
    Page, PageCell, PageClass, PagePart, PageSection, PageStage, PageTimedFunction, PageTimes,
};
use crate::summary::sent;
use crate::together::CrossQuantity;
use crate::trust::is_of_commands;

const NAME_LETTERS: usize = 500;
/// Wide enough to break no sentence.
const ONE_LINE: usize = usize::MAX;

/// The subject of its times.
pub(super) fn what_takes(recording: &Recording) -> &'static str {
    match is_of_commands(recording) {
        true => "What a run takes",
        false => "What a packet's way takes",
    }
}

/// The page of some classes of a recording.
pub fn page(
    recording: &Recording,
    classes: &[TimedClass<'_>],
    experiment: Option<&Experiment>,
) -> Page {
    let costs = as_costs(recording);
    let classes_shown = shown(classes);
    let mut stacks = analysis::classes(&costs);
    stacks.retain(|s| {
        let key = (s.arm, s.class.direction);
        classes_shown.iter().any(|c| (c.arm, c.class.direction) == key)
    });
    let mut page = report_page(&costs, &stacks, experiment, &CrossQuantity::default());
    page.unit = "ns".into();
    page.functions = functions(recording);
    // Packets seen and dropped have their own tables.
    page.trust = footer(&costs, classes);
    page.trust.retain(|note| !["seen", "dropped"].contains(&note.topic));
    let by = match recording.stages().next().is_none() {
        true => "function",
        false => "stage",
    };
    page.title = titled(&format!("{}, by {by}", what_takes(recording)), &costs, experiment);
    if between::is_of(recording) {
        page.title = "Time between events".into();
        if page.question.is_empty() {
            page.question = between::events(recording);
        }
    }
    let lab = recording.environment.get(env::LAB);
    if let Some(lab) = lab {
        page.question = match page.question.is_empty() {
            true => format!("Nanoseconds of the running kernel, lab {}", printable(lab, 40)),
            false => page.question,
        };
    }
    page.headline = diff::of_arms(recording, &[], ONE_LINE)
        .unwrap_or_default()
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| line.trim().to_string())
        .chain(classes_shown.iter().map(|c| sentence(c)))
        .collect();
    if classes_shown.is_empty() {
        page.headline = vec![nothing(recording).trim().into()];
    }
    let mut trees: BTreeMap<(usize, _), PageClass> = stacks
        .iter()
        .map(|s| (s.arm, s.class.direction))
        .zip(std::mem::take(&mut page.classes))
        .collect();
    page.classes = classes_shown
        .iter()
        .map(|class| {
            let tree = trees.remove(&(class.arm, class.class.direction));
            page_class(class, tree.unwrap_or_default())
        })
        .collect();
    let open = page.classes.iter().filter_map(|c| c.times.as_ref());
    let open = open.filter(|t| !t.open.is_empty()).count();
    if open > 0 {
        page.warnings.push(format!(
            "INVALID: the stages of {} don't add up to the whole way.",
            counted(open, "class")
        ));
    }
    page.summary = table::classes_page(&classes_shown);
    let heat = between::heat(recording).map(PagePart::Heat);
    let heat = PageSection::new("heat", "Over time", heat.into_iter().collect());
    let groups = classes_shown.iter().filter_map(|class| table::groups_page(class));
    let groups = groups.map(PagePart::Table).collect();
    let groups = PageSection::new("groups", "Broken down", groups);
    page.sections = heat.into_iter().chain(groups).chain(beside::sections(recording)).collect();
    page
}

fn page_class(class: &TimedClass<'_>, costs: PageClass) -> PageClass {
    let (columns, cells) = table::page(class);
    let (packets, count) = match class.per {
        Per::Packet(n) | Per::Connection(n) | Per::Run(n) => (n, None),
        Per::Second(seconds) => (0, Some(seconds)),
    };
    PageClass {
        arm: printable(&class.arm().name, NAME_LETTERS),
        class: class.class.to_string(),
        per: class.per.word().into(),
        sentence: format!("{}. {}", sent(class.arm()), sentence(class)),
        packets,
        count,
        times: Some(times(class, cells)),
        columns,
        // Timed functions have their own table.
        rows: Vec::new(),
        ..costs
    }
}

/// A class in a sentence.
fn sentence(class: &TimedClass<'_>) -> String {
    let mut said = Vec::new();
    if !class.stages.is_empty() {
        said.push(way(class));
    }
    if !class.functions.is_empty() {
        said.push(bottleneck(class, None));
    }
    format!("{}: {}", class.label(), said.join(" "))
}

/// "a packet's way takes 20.7us: 2,102 of work, 18.5us of waiting; most in qdisc".
fn way(class: &TimedClass<'_>) -> String {
    let whole = class.whole_ns();
    let of = |kind: StageKind| -> f64 {
        let stages = class.parts().filter(|s| s.kind == kind);
        stages.map(Stage::mean_ns).sum()
    };
    let mut text = match class.is_between() {
        true => format!(
            "from the first event to the last it takes {}, the mean of {}",
            with_unit(whole),
            thousands(class.stages.iter().map(Stage::packets).max().unwrap_or(0))
        ),
        false => format!(
            "a packet's way takes {}: {} of work, {} of waiting, {} unaccounted",
            with_unit(whole),
            with_unit(of(StageKind::Work)),
            with_unit(of(StageKind::Wait)),
            with_unit(of(StageKind::Unaccounted)),
        ),
    };
    if let Some(most) = class.parts().max_by(|a, b| a.mean_ns().total_cmp(&b.mean_ns())) {
        text.push_str(&format!(
            "; most in {} with {} ({})",
            printable(&most.name, 60),
            with_unit(most.mean_ns()),
            share(most.mean_ns(), whole)
        ));
    }
    text.push('.');
    text
}

/// A time in a sentence: it always has its unit.
fn with_unit(value: f64) -> String {
    let text = ns(value);
    match text.ends_with('s') {
        true => text,
        false => format!("{text} ns"),
    }
}

/// Hundredths are enough, and make a small file.
fn hundredths(value: f64) -> f64 {
    match value.is_finite() {
        true => (value * 100.0).round() / 100.0,
        false => 0.0,
    }
}

fn times(class: &TimedClass<'_>, cells: Vec<Vec<PageCell>>) -> PageTimes {
    let each = |sum: f64| hundredths(class.per.each(sum));
    let open = match (class.closes(), class.closure()) {
        (false, Some((total, parts))) => format!(
            "INVALID: the stages come to {}, and the whole way to {}",
            with_unit(parts),
            with_unit(total)
        ),
        _ => String::new(),
    };
    let (stage_columns, stage_cells) = table::stages_page(class);
    PageTimes {
        raw_ns: each(class.raw_ns),
        total_ns: each(class.total_ns),
        functions: (class.functions.iter().zip(cells))
            .map(|(f, cells)| function(f, cells))
            .collect(),
        stages: (class.stages.iter().zip(stage_cells)).map(|(s, cells)| stage(s, cells)).collect(),
        stage_columns,
        each: class.is_between().then(|| class.each_of().into()),
        open,
        ..PageTimes::default()
    }
}

fn function(function: &TimedFunction, cells: Vec<PageCell>) -> PageTimedFunction {
    PageTimedFunction {
        function: function.function,
        small: function.too_small(),
        shift_ns: hundredths(function.shift_ns),
        buckets: function.times.buckets.clone(),
        cells,
    }
}

fn stage(stage: &Stage, cells: Vec<PageCell>) -> PageStage {
    PageStage {
        name: printable(&stage.name, 80),
        kind: stage.kind.to_string(),
        buckets: stage.times.buckets.clone(),
        cells,
    }
}
