//! The figures of an experiment: a quantity by a knob, with a line for each level of
//! another, beside published points.

use netplumb_model::experiment::{At, Experiment, Figure, Kind, Knob, Takes, number_of};
use netplumb_model::recording::{Arm, Recording};
use netplumb_stats::welch::{Mean, mean};

use crate::claims::{CPU_USE, HANDLED, Samples, What};
use crate::number::printable;
use crate::number::rate;
use crate::rates::{ArmRates, arms};
use crate::shape::{Shape, shape};
use crate::table::{Column, Room, Table, Value};
use crate::text::continued;
use crate::times::ns;

/// A point of a line.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The knob's level.
    pub x: f64,
    /// The quantity; none where nothing was measured. Under several seeds the median, from the least to the most.
    pub y: Option<Mean>,
    /// The number of random seeds.
    pub seeds: usize,
    /// Why there is no value, or a doubt about it.
    pub note: Option<String>,
}

/// A line of a figure: one level of a knob.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The level of the line's knob, such as a path.
    pub name: String,
    /// Its points, by `x`.
    pub points: Vec<Point>,
}

/// A figure with its arms.
#[derive(Debug, Clone)]
pub struct Plotted<'f> {
    /// The figure: an experiment's own, or one made for its knobs.
    pub figure: &'f Figure,
    arms: Vec<Arm>,
    /// The knob that has a line for each of its levels.
    lines: &'f str,
}

impl<'f> Plotted<'f> {
    /// A figure of an experiment.
    pub fn from_figure(experiment: &Experiment, figure: &'f Figure) -> Plotted<'f> {
        let by_default = match experiment.workload.kind {
            Kind::Frames => "path",
            _ => "proto",
        };
        Plotted {
            figure,
            arms: experiment.arms_of(figure),
            lines: figure.lines.as_deref().unwrap_or(by_default),
        }
    }

    /// A figure of all measured arms, except repeats under other seeds.
    pub fn all(recording: &Recording, figure: &'f Figure) -> Plotted<'f> {
        let arms = recording.arms.iter();
        Plotted {
            figure,
            arms: arms.filter(|arm| arm.repeats().is_none()).cloned().collect(),
            lines: figure.lines.as_deref().unwrap_or("proto"),
        }
    }
}

/// The levels on the x axis of a figure whose levels are not all numbers, in the order of the arms; empty
/// if they are, or there are none.
pub fn names(Plotted { figure, arms, .. }: &Plotted<'_>) -> Vec<String> {
    let mut names = Vec::new();
    for arm in arms {
        let Some(level) = arm.level_text(&figure.x) else {
            continue;
        };
        if !names.contains(&level) {
            names.push(level);
        }
    }
    let is_number = |level: &String| number_of(&figure.x, level).is_some();
    match names.iter().all(is_number) {
        true => Vec::new(),
        false => names,
    }
}

/// The place of a level on the x axis of a figure with these names.
fn place(figure: &Figure, names: &[String], level: &str) -> Option<f64> {
    match names.is_empty() {
        true => number_of(&figure.x, level),
        false => (names.iter().position(|name| name == level)).map(|n| n as f64),
    }
}

/// The place of a published point on it.
pub(crate) fn place_of(figure: &Figure, names: &[String], at: &At) -> Option<f64> {
    match at {
        At::Number(x) if names.is_empty() => Some(*x),
        At::Number(x) => {
            let is_it = |name: &String| number_of(&figure.x, name) == Some(*x);
            names.iter().position(is_it).map(|n| n as f64)
        }
        At::Name(name) => place(figure, names, name),
    }
}

/// The lines of a figure.
pub fn series(plotted: &Plotted<'_>, recording: &Recording) -> Vec<Series> {
    let Plotted { figure, lines, .. } = *plotted;
    let samples = Samples::from_recording(recording);
    let rates = match shape(recording) == Shape::Rates {
        true => arms(recording),
        false => Vec::new(),
    };
    let names = names(plotted);
    let what = What {
        quantity: Some(&figure.y),
        class: figure.class,
        layer: figure.layer.as_deref(),
        function: figure.function.as_deref(),
        below: None,
        stage: None,
    };
    let mut drawn: Vec<(Arm, String, Point)> = Vec::new();
    for arm in &plotted.arms {
        let found = samples.find(arm);
        let measured = found.and_then(|n| recording.level(n, &figure.x));
        let level = measured.or_else(|| arm.level_text(&figure.x));
        let Some(x) = level.and_then(|level| place(figure, &names, &level)) else {
            continue;
        };
        let (seeds, values) = match found {
            Some(n) => under_seeds(&samples, n, &what),
            None => (1, Err("it was not measured".to_string())),
        };
        let point = Point {
            x,
            note: match (found.and_then(|n| remark(recording, n, &rates)), &values) {
                (Some(remark), _) => Some(remark),
                (None, Err(why)) => Some(why.clone()),
                (None, Ok(_)) => None,
            },
            y: values.ok().flatten(),
            seeds,
        };
        let name = match arm.level_text(lines) {
            Some(level) => called(lines, level),
            None => arm.name.clone(),
        };
        drawn.push((arm.clone(), name, point));
    }
    let rest = others(&drawn, &[&figure.x, lines]);
    let mut all: Vec<Series> = Vec::new();
    for (arm, mut name, point) in drawn {
        let levels = (rest.iter()).filter_map(|key| Some(called(key, arm.level_text(key)?)));
        for level in levels {
            name = format!("{name} {level}");
        }
        match all.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => all.push(Series { name, points: vec![point] }),
        }
    }
    all
}

/// The value of an arm, and its number of seeds.
fn under_seeds(
    samples: &Samples<'_>,
    arm: usize,
    what: &What<'_>,
) -> (usize, Result<Option<Mean>, String>) {
    let seeds = samples.seeds(arm);
    if seeds.len() == 1 {
        return (1, samples.values(arm, what).map(|values| Mean::from_values(&values)));
    }
    let each = seeds.iter().map(|seed| samples.values(*seed, what));
    let each: Result<Vec<Vec<f64>>, String> = each.collect();
    let median = each.map(|each| {
        let mut means: Vec<f64> = each.iter().map(|values| mean(values)).collect();
        means.sort_by(f64::total_cmp);
        Some(Mean {
            // A measured value, as for costs.
            value: *means.get((means.len().max(1) - 1) / 2)?,
            low: means.first().copied(),
            high: means.last().copied(),
            of: means.len(),
        })
    });
    (seeds.len(), median)
}

/// A note on figures under several seeds; none under one.
pub(crate) fn of_seeds(all: &[Series]) -> Option<String> {
    let points = all.iter().flat_map(|series| &series.points);
    let most = points.map(|point| point.seeds).max();
    most.filter(|seeds| *seeds > 1)
        .map(|seeds| format!("medians under {seeds} random seeds, from the least to the most"))
}

/// The settings, besides these, that distinguish arms of one line at the same place: each such arm has a line of
/// its own.
fn others(drawn: &[(Arm, String, Point)], besides: &[&str]) -> Vec<String> {
    let same_place = drawn.iter().enumerate().any(|(number, (_, name, point))| {
        let before = &drawn[..number];
        (before.iter()).any(|(_, other, at)| other == name && at.x == point.x)
    });
    if !same_place {
        return Vec::new();
    }
    let mut keys: Vec<&String> = drawn.iter().flat_map(|(arm, ..)| arm.knobs.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let differs = |key: &&String| {
        let mut levels = drawn.iter().map(|(arm, ..)| arm.level_text(key));
        let first = levels.next();
        levels.any(|level| Some(level) != first)
    };
    let is_rest = |key: &&String| !besides.contains(&key.as_str());
    let rest = keys.into_iter().filter(is_rest).filter(differs);
    rest.cloned().collect()
}

/// The name of a line: its level, where that is clear by itself.
fn called(knob: &str, level: String) -> String {
    let declared = Knob::by_key(knob).map(|knob| knob.takes);
    match declared {
        Some(Takes::Word { .. }) => level,
        _ => format!("{knob}={level}"),
    }
}

/// Why an arm of a bench has no figure, or a doubt about it.
fn remark(recording: &Recording, arm: usize, rates: &[ArmRates<'_>]) -> Option<String> {
    let wanted: &Arm = &recording.arms[arm];
    let arm = rates.iter().find(|rates| std::ptr::eq(rates.arm, wanted))?;
    if let Some(why) = arm.failed {
        return Some(why.to_string());
    }
    if arm.valid.is_empty() {
        return arm.invalid.keys().next().cloned();
    }
    arm.is_generator_bound().then(|| "generator-bound".into())
}

/// Every figure as a table.
pub fn render(experiment: &Experiment, recording: &Recording, columns: usize) -> String {
    let mut out = String::new();
    for figure in &experiment.figures {
        let heading = format!("figure {}: {}", figure.name, figure.title);
        out.push_str(&printable(&heading, 400));
        out.push('\n');
        out.push_str(&one(&Plotted::from_figure(experiment, figure), recording, columns));
        let in_words = |figure: &Figure, y| in_unit(figure, y, recording);
        for marked in &figure.published {
            let at = match &marked.x {
                At::Number(x) => along(figure, *x),
                At::Name(name) => printable(name, 60),
            };
            let line = format!(
                "  published: {}: {} at {at}",
                printable(&marked.label, 120),
                in_words(figure, marked.y),
            );
            out.push_str(&continued(&line, 4, columns));
            out.push('\n');
        }
        if !figure.note.is_empty() {
            let note = printable(&figure.note.replace('\n', " "), 800);
            out.push_str(&continued(&format!("  {note}"), 2, columns));
            out.push('\n');
        }
        out.push('\n');
    }
    out
}

fn one(plotted: &Plotted<'_>, recording: &Recording, columns: usize) -> String {
    let figure = plotted.figure;
    let all = series(plotted, recording);
    let in_words = |figure: &Figure, y| in_unit(figure, y, recording);
    if all.is_empty() {
        let why = format!("  nothing to show: no arm has a level of {}", printable(&figure.x, 60));
        return continued(&why, 4, columns) + "\n";
    }
    let names = names(plotted);
    let corner = format!("{} by {}", figure.y, figure.x);
    let mut xs: Vec<f64> = all.iter().flat_map(|s| &s.points).map(|p| p.x).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let point = |series: &Series, x: f64| series.points.iter().find(|p| p.x == x).cloned();
    let reach = |mean: &Mean, seeds: usize| match (mean.low, mean.high) {
        (Some(low), Some(high)) if seeds > 1 => {
            let [low, high] = [low, high].map(|end| in_words(figure, end));
            format!(" ({low} to {high})")
        }
        (_, Some(high)) => {
            let share = (high - mean.value) / mean.value.max(1e-9);
            format!(" ±{:.0} %", share * 100.0)
        }
        _ => String::new(),
    };
    let mean = |point: Option<Point>| {
        let mean = point.and_then(|point| Some((point.y?, point.seeds)));
        mean.map_or(Value::Missing, |(mean, seeds)| {
            let text = in_words(figure, mean.value) + &reach(&mean, seeds);
            Value::Formatted(text, Some(mean.value))
        })
    };
    let name = Column::text(printable(&corner, 60), |s: &&Series| s.name.clone());
    let mut table = vec![name.letters(60).people(0)];
    table.extend(xs.iter().map(|x| {
        let title = match names.get(*x as usize) {
            Some(name) => printable(name, 60),
            None => along(figure, *x),
        };
        Column::figure(title, move |s: &&Series| mean(point(s, *x))).people(1)
    }));
    let mut remarks: Vec<String> = Vec::new();
    remarks.extend(of_seeds(&all).map(|what| format!("  {what}")));
    for series in &all {
        let name = printable(&series.name, 60);
        let notes = xs.iter().filter_map(|x| point(series, *x)?.note);
        for note in notes {
            let remark = format!("  {name}: {}", printable(&note, 300));
            if !remarks.contains(&remark) {
                remarks.push(remark);
            }
        }
    }
    let mut out = Table::new(table, &all).flush().terminal(Room::new(columns, 60));
    for remark in remarks {
        out.push_str(&continued(&remark, 4, columns));
        out.push('\n');
    }
    out
}

/// The unit of a knob, or of a quantity.
pub(crate) fn unit_of<'r>(name: &str, recording: &'r Recording) -> &'r str {
    match name {
        "wire_rate" => return "bit/s",
        "wire_delay" | "wire_jitter" | "gro_flush_timeout" => return "us",
        "mtu_bytes" | "size_bytes" | "buffer" | "tx_buffer" | "rx_buffer" => return "bytes",
        "coalesce.rx-usecs" | "coalesce.tx-usecs" => return "us",
        _ => {}
    }
    // Only figures of two hosts have their own unit.
    if shape(recording) != Shape::Hosts {
        return "";
    }
    let base = name.rsplit_once(" of ").map(|(base, _)| base);
    let mut quantities = recording.quantities.iter();
    let found = quantities.find(|q| q.name == name || Some(q.name.as_str()) == base);
    found.map_or("", |quantity| &quantity.unit)
}

/// A value on the x axis, in words.
pub(crate) fn along(figure: &Figure, x: f64) -> String {
    match figure.x.as_str() {
        "cores" if x == 1.0 => "1 core".into(),
        "cores" => format!("{x} cores"),
        "flows" if x == 1.0 => "1 flow".into(),
        "flows" => format!("{x} flows"),
        "queues" if x == 1.0 => "1 queue".into(),
        "queues" => format!("{x} queues"),
        "size" | "size_bytes" if x == 1.0 => "1 byte".into(),
        "size" | "size_bytes" | "mtu_bytes" => format!("{x:.0} bytes"),
        "rate" => rate(x),
        "wire_rate" => format!("{}bit/s", rate(x)),
        "wire_delay" | "wire_jitter" | "gro_flush_timeout" => format!("{x} us"),
        // The loss is per billion frames, so there are no more digits.
        "wire_loss" => format!("{}%", (x * 1e9).round() / 1e7),
        "buffer" | "tx_buffer" | "rx_buffer" if x >= 1024.0 && x % 1024.0 == 0.0 => {
            format!("{}K", x / 1024.0)
        }
        _ => format!("{x}"),
    }
}

/// The same, with the unit of times.
fn in_unit(figure: &Figure, y: f64, recording: &Recording) -> String {
    match unit_of(&figure.y, recording) {
        "ns" => ns(y),
        _ => up(figure, y),
    }
}

/// A value on the y axis, in words.
pub(crate) fn up(figure: &Figure, y: f64) -> String {
    match figure.y.as_str() {
        CPU_USE => format!("{y:.2}"),
        HANDLED => rate(y),
        _ if y.abs() >= 10_000.0 => rate(y),
        // Shares.
        _ if y.abs() < 1.0 => format!("{y:.3}"),
        _ => format!("{y:.1}"),
    }
}
