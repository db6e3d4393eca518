//! The main figure of an experiment that claims that cost is a line along some knob: the
//! measurements and the line.

use netplumb_model::experiment::{Claim, Experiment};

use crate::analysis::{ClassView, unit};
use crate::chart::{axis, chart, point, series};
use crate::claims::drawn;
use crate::page::{PageChart, PageSeries, PageSeriesKind};
use crate::seeds;

/// The figure of the first claim of a line, with other claims' lines about the same.
pub(super) fn figure(experiment: &Experiment, views: &[ClassView<'_>]) -> Vec<PageChart> {
    let views = seeds::typical(views);
    let Some(first) = experiment.claims.iter().find_map(about) else {
        return Vec::new();
    };
    let mut measured: Vec<PageSeries> = Vec::new();
    let mut lines: Vec<PageSeries> = Vec::new();
    let same = experiment.claims.iter().filter(|c| about(c) == Some(first));
    for one in same.flat_map(|claim| drawn(claim, &views)) {
        let name = one.class.to_string();
        if one.points.len() > 1 && !measured.iter().any(|s| s.name == name) {
            let points = one.points.iter().map(|(x, y)| point(*x, *y, None));
            measured.push(series(&name, PageSeriesKind::Points, points));
        }
        if let Some(ends) = one.line {
            let points = ends.map(|(x, y)| point(x, y, None));
            let name = format!("{name}: {}", one.formula);
            lines.push(series(&name, PageSeriesKind::Ideal, points));
        }
    }
    let (Some(view), false) = (views.first(), measured.is_empty()) else {
        return Vec::new();
    };
    let (knob, layer, function) = first;
    let of = match (function, layer) {
        (Some(function), _) => format!(" in {function}"),
        (None, Some(layer)) => format!(" in the {layer} layer"),
        (None, None) => String::new(),
    };
    let title = format!("What a packet costs{of}, by {knob}");
    let cost = format!("{} per {}", unit(view.recording), view.class.proto.unit());
    let axes = [axis(knob, ""), axis(&cost, "")];
    measured.append(&mut lines);
    vec![chart(&title, "", axes, measured)]
}

/// The subject of a claim of a line: the knob, the layer, the function.
fn about(claim: &Claim) -> Option<(&str, Option<&str>, Option<&str>)> {
    match claim {
        Claim::Linear { knob, layer, function, .. } => {
            Some((knob, layer.as_deref(), function.as_deref()))
        }
        _ => None,
    }
}
