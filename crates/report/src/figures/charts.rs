//! The figures of an experiment as charts of the page.

use netplumb_model::recording::Recording;
use netplumb_stats::welch::Mean;

use super::sweeps::{self, Plotted, Point, names, of_seeds, place_of};
use crate::chart::{axis, chart, ideal, log_axis, point, published, series};
use crate::claims::{CPU_USE, HANDLED};
use crate::page::{PageAxis, PageChart, PagePoint, PageSeries, PageSeriesKind};

/// Values with a larger ratio are on a logarithmic scale.
const RATIO: f64 = 30.0;

/// A figure, with published points beside it.
pub(crate) fn figure(plotted: &Plotted<'_>, recording: &Recording) -> PageChart {
    let figure = plotted.figure;
    let lines = sweeps::series(plotted, recording);
    let names = names(plotted);
    let mut all: Vec<PageSeries> = lines
        .iter()
        .map(|line| {
            let points = line.points.iter().filter_map(measured);
            series(&line.name, PageSeriesKind::Line, points)
        })
        .collect();
    if figure.x == "cores"
        && figure.y == HANDLED
        && let Some(best) = all.iter().max_by(|a, b| one(a).total_cmp(&one(b)))
        && one(best) > 0.0
    {
        let name = format!("{}, if CPUs shared nothing", best.name);
        let mut cores: Vec<u32> = (best.points.iter()).map(|p| p.x as u32).collect();
        cores.sort_unstable();
        cores.dedup();
        all.push(ideal(&name, one(best), &cores));
    }
    if !figure.published.is_empty() {
        let marked = figure.published.iter().filter_map(|marked| {
            let x = place_of(figure, &names, &marked.x)?;
            Some(published(x, marked.y, &marked.label))
        });
        all.push(series("published", PageSeriesKind::Published, marked));
    }
    let y = axis_of(&figure.y, recording, &[]);
    let y = match y.unit.as_str() {
        // Turns take microseconds and more.
        "ns" => {
            let points = all.iter_mut().flat_map(|series| &mut series.points);
            points.for_each(in_microseconds);
            axis(&figure.y, "us")
        }
        _ => y,
    };
    let title = format!("Figure {}: {}", figure.name, figure.title);
    let mut note = figure.note.trim().replace('\n', " ");
    if let Some(what) = of_seeds(&lines) {
        note = format!("Points are {what}. {note}").trim().to_string();
    }
    if lines.iter().all(|line| line.points.is_empty()) {
        // An empty frame needs an explanation.
        let why = format!("Nothing is drawn: no arm has a level of {}.", figure.x);
        note = format!("{why} {note}").trim().to_string();
    }
    let x = PageAxis {
        names: names.iter().map(|name| crate::number::printable(name, 60)).collect(),
        ..match names.is_empty() {
            true => axis_of(&figure.x, recording, &all),
            false => axis(&figure.x, ""),
        }
    };
    chart(&title, &note, [x, y], all)
}

fn in_microseconds(point: &mut PagePoint) {
    point.y /= 1e3;
    point.low = point.low.map(|low| low / 1e3);
    point.high = point.high.map(|high| high / 1e3);
}

fn measured(at: &Point) -> Option<PagePoint> {
    Some(PagePoint { label: at.note.clone().unwrap_or_default(), ..of_mean(at.x, at.y.as_ref()?) })
}

/// A point with its interval.
pub(crate) fn of_mean(x: f64, mean: &Mean) -> PagePoint {
    // No rate is below 0.
    point(x, mean.value, mean.low.map(|low| low.max(0.0)).zip(mean.high))
}

/// A series' value with one core.
fn one(series: &PageSeries) -> f64 {
    let at_one = series.points.iter().find(|p| p.x == 1.0);
    at_one.map_or(0.0, |p| p.y)
}

/// An axis in its unit; the x axis is logarithmic where values are far apart.
pub(crate) fn axis_of(which: &str, recording: &Recording, along: &[PageSeries]) -> PageAxis {
    let (label, unit) = match which {
        "cores" => ("CPUs that send", ""),
        "rate" => ("offered", "packets/s"),
        "size" => ("frame", "bytes"),
        HANDLED => (HANDLED, "packets/s"),
        CPU_USE => ("CPUs busy", ""),
        other => (other, sweeps::unit_of(other, recording)),
    };
    let all = along.iter().flat_map(|s| &s.points).map(|p| p.x);
    let (low, high) = all.fold((f64::INFINITY, 0.0_f64), |(l, h), x| (l.min(x), h.max(x)));
    match low > 0.0 && high > RATIO * low {
        true => log_axis(label, unit),
        false => axis(label, unit),
    }
}
