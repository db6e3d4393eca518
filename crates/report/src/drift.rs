//! Drift over a long run: of each class, and of the functions that drifted most.

use std::collections::{BTreeMap, HashMap};

use netplumb_model::recording::{FunctionId, INTO_RUN, MAX_BLOCKS, Recording, SESSIONS};
use netplumb_model::span::StageKind;
use netplumb_stats::fdr::discoveries;
use netplumb_stats::trend::{FEWEST, LEVEL, Trend};
use serde::Serialize;

use crate::analysis::{self, ClassView};
use crate::footer::Note;
use crate::number::{printable, thousands};
use crate::per::Per;
use crate::scalars::of_run;
use crate::shape::{Shape, shape};
use crate::times::analysis::{TimedClass, classes};

/// The share of named functions that may be wrong.
const FALSE_DISCOVERIES: f64 = 0.05;
/// The most functions that are named.
const NAMED: usize = 5;
/// Functions of less than this share of their class are not tested.
const LEAST_SHARE: f64 = 0.005;
/// Letters of a name.
const NAME_LETTERS: usize = 60;
const NS_PER_HOUR: f64 = 3.6e12;

/// A figure by block.
struct Series {
    hours: Vec<f64>,
    values: Vec<f64>,
}

impl Series {
    fn trend(&self) -> Option<Trend> {
        Trend::fit(&self.hours, &self.values)
    }
}

/// A class over time, with its functions.
struct Over {
    class: String,
    unit: String,
    all: Series,
    functions: Vec<(String, Series)>,
}

/// Whether and how a class drifted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Drift {
    /// The arm and class.
    pub(crate) class: String,
    /// The unit of its figure.
    pub(crate) unit: String,
    /// Whether it drifted; none if there are too few blocks to judge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) drifts: Option<bool>,
    /// Its trend, relative to the mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trend: Option<TrendOut>,
    /// The functions that drifted, those that changed the class most first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) functions: Vec<Drifting>,
    /// The figure of each block.
    pub(crate) series: Vec<Point>,
}

/// A linear trend over the blocks of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TrendOut {
    /// The mean of all blocks.
    pub(crate) mean: f64,
    /// The change in an hour, in percent of the mean.
    pub(crate) percent_per_hour: f64,
    /// The 95 % interval of that.
    pub(crate) low: f64,
    /// Its upper end.
    pub(crate) high: f64,
    /// The p-value of no trend.
    pub(crate) p: f64,
    /// A step, if that explains the figures better.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) step: Option<StepOut>,
}

/// A step between two medians, in place of a trend.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct StepOut {
    /// When, in hours since the run began.
    pub(crate) hours: f64,
    /// The median before it.
    pub(crate) before: f64,
    /// The median after it.
    pub(crate) after: f64,
}

/// A function that drifted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Drifting {
    function: String,
    /// The change of its own cost in an hour, in percent of its class's.
    percent_per_hour: f64,
}

/// The figure of a block.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Point {
    hours: f64,
    value: f64,
}

/// The drift of each class; empty if the run was not long.
pub(crate) fn drifts(recording: &Recording) -> Vec<Drift> {
    let ends = hours(recording);
    if ends.is_empty() {
        return Vec::new();
    }
    let all: Vec<Over> = match shape(recording) {
        Shape::Rates | Shape::Counts | Shape::Hosts => Vec::new(),
        Shape::Times => (classes(recording).iter())
            .filter(|class| analysis::is_class(recording, class.class.direction))
            .filter_map(|class| over_times(class, &ends))
            .collect(),
        Shape::Costs => {
            (analysis::classes(recording).iter()).map(|class| over_costs(class, &ends)).collect()
        }
    };
    let trends: Vec<Option<Trend>> = all.iter().map(|over| over.all.trend()).collect();
    let p: Vec<f64> = (trends.iter()).map(|trend| trend.map_or(f64::NAN, |t| t.p)).collect();
    let found = discoveries(&p, LEVEL);
    (all.iter().zip(trends).zip(found))
        .map(|((over, trend), found)| drift(over, trend, found))
        .collect()
}

fn drift(over: &Over, trend: Option<Trend>, found: bool) -> Drift {
    let percent = |value: f64, mean: f64| match mean {
        0.0 => 0.0,
        mean => 100.0 * value / mean,
    };
    let out = trend.map(|t| TrendOut {
        mean: t.mean,
        percent_per_hour: percent(t.slope, t.mean),
        low: percent(t.low, t.mean),
        high: percent(t.high, t.mean),
        p: t.p,
        step: t.step.map(|step| StepOut {
            hours: over.all.hours[step.at - 1],
            before: step.before,
            after: step.after,
        }),
    });
    let mean = trend.map_or(0.0, |t| t.mean);
    let tested: Vec<(&String, Trend)> = (over.functions.iter())
        .filter_map(|(name, series)| Some((name, series.trend()?)))
        .collect();
    let p: Vec<f64> = tested.iter().map(|(_, trend)| trend.p).collect();
    let mut functions: Vec<Drifting> = (tested.iter().zip(discoveries(&p, FALSE_DISCOVERIES)))
        .filter(|((_, trend), found)| *found && trend.slope != 0.0)
        .map(|((name, trend), _)| Drifting {
            function: (*name).clone(),
            percent_per_hour: percent(trend.slope, mean),
        })
        .collect();
    let size = |f: &Drifting| f.percent_per_hour.abs();
    functions.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let points = over.all.hours.iter().zip(&over.all.values);
    Drift {
        class: over.class.clone(),
        unit: over.unit.clone(),
        drifts: trend.map(|t| (found && t.slope != 0.0) || t.step.is_some()),
        trend: out,
        functions,
        series: points.map(|(hours, value)| Point { hours: *hours, value: *value }).collect(),
    }
}

/// When each block ended, in hours since the run began.
fn hours(recording: &Recording) -> HashMap<u32, f64> {
    let times = recording.scalars_of(&INTO_RUN);
    times.filter_map(|s| Some((s.block()?, s.value / NS_PER_HOUR))).collect()
}

/// Figures of blocks, in the order of their times.
fn series(blocks: &[u32], ends: &HashMap<u32, f64>, values: impl Iterator<Item = f64>) -> Series {
    let mut points: Vec<(f64, f64)> = (blocks.iter().zip(values))
        .filter_map(|(block, value)| Some((*ends.get(block)?, value)))
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    Series {
        hours: points.iter().map(|(hours, _)| *hours).collect(),
        values: points.iter().map(|(_, value)| *value).collect(),
    }
}

fn over_costs(class: &ClassView<'_>, ends: &HashMap<u32, f64>) -> Over {
    let recording = class.recording;
    let per = class.per_by_block();
    let each = |own: &[f64]| -> Vec<f64> {
        let values = per.iter().zip(own);
        values.map(|(per, own)| per.each(*own)).collect()
    };
    let places: HashMap<u32, usize> = class.blocks.iter().copied().zip(0..).collect();
    let quantity = recording.costs.first().map(|cost| cost.quantity);
    let mut own: BTreeMap<FunctionId, Vec<f64>> = BTreeMap::new();
    for cost in &recording.costs {
        let is_of = cost.direction == class.class.direction && Some(cost.quantity) == quantity;
        if let (true, Some(at)) = (is_of, places.get(&cost.block)) {
            let function = recording.nodes[cost.node as usize].function;
            let blocks = own.entry(function).or_insert_with(|| vec![0.0; per.len()]);
            blocks[*at] += cost.own as f64;
        }
    }
    let all: Vec<f64> = class.by_block.iter().map(|own| *own as f64).collect();
    Over {
        class: crate::summary::label(class),
        unit: format!("{} per {}", class.quantity.unit, class.per.word()),
        functions: functions(recording, &class.blocks, ends, own, &each, class.total as f64),
        all: series(&class.blocks, ends, each(&all).into_iter()),
    }
}

fn over_times(class: &TimedClass<'_>, ends: &HashMap<u32, f64>) -> Option<Over> {
    let recording = class.recording;
    let whole = class.stages.iter().find(|s| s.kind == StageKind::Total);
    let unit = format!("ns per {}", class.per.word());
    if class.functions.is_empty() {
        let by_block = &whole?.by_block;
        let timed = (class.blocks.iter().zip(by_block)).filter_map(|(b, v)| Some((*b, (*v)?)));
        let (blocks, values): (Vec<u32>, Vec<f64>) = timed.unzip();
        return Some(Over {
            class: class.label(),
            unit,
            all: series(&blocks, ends, values.into_iter()),
            functions: Vec::new(),
        });
    }
    let per = &class.per_by_block;
    let each = |own: &[f64]| -> Vec<f64> {
        let values = per.iter().zip(own);
        values.map(|(per, own): (&Per, &f64)| per.each(*own)).collect()
    };
    let mut all = vec![0.0; per.len()];
    let mut own = BTreeMap::new();
    for function in &class.functions {
        for (sum, own) in all.iter_mut().zip(&function.self_by_block) {
            *sum += own;
        }
        own.insert(function.function, function.self_by_block.clone());
    }
    Some(Over {
        class: class.label(),
        unit,
        functions: functions(recording, &class.blocks, ends, own, &each, class.total_ns),
        all: series(&class.blocks, ends, each(&all).into_iter()),
    })
}

/// Functions whose share of the whole is worth a test.
fn functions(
    recording: &Recording,
    blocks: &[u32],
    ends: &HashMap<u32, f64>,
    own: BTreeMap<FunctionId, Vec<f64>>,
    each: &dyn Fn(&[f64]) -> Vec<f64>,
    whole: f64,
) -> Vec<(String, Series)> {
    let large = |own: &[f64]| own.iter().sum::<f64>() >= LEAST_SHARE * whole;
    let own = own.into_iter().filter(|(_, own)| large(own));
    own.map(|(function, own)| {
        let name = recording.functions[function as usize].name.clone();
        (name, series(blocks, ends, each(&own).into_iter()))
    })
    .collect()
}

/// Notes on a long run: its length, and its drift.
pub(crate) fn notes(recording: &Recording) -> Vec<Note> {
    let drifts = drifts(recording);
    if hours(recording).is_empty() {
        return Vec::new();
    }
    let run = recording.run_ns() as f64 / NS_PER_HOUR;
    let mut notes = vec![Note::new("run", about(recording, run))];
    for drift in &drifts {
        let text = sentence(drift, run);
        notes.push(match drift.drifts {
            Some(true) => Note::warning("drift", text),
            _ => Note::new("drift", text),
        });
    }
    notes
}

fn about(recording: &Recording, run: f64) -> String {
    let sessions = of_run(recording, &SESSIONS).unwrap_or(1.0);
    let sessions = match sessions as u64 {
        0 | 1 => String::new(),
        n => format!(", in {n} separate sessions"),
    };
    let measured = recording.measured_blocks();
    let most = recording.merged_in(|_| true);
    let merged = match most {
        0 | 1 => String::new(),
        n => format!(
            "; up to {} are merged into one, so that an arm has at most {MAX_BLOCKS}",
            thousands(u64::from(n))
        ),
    };
    format!("{}{sessions}; {} blocks measured{merged}", hours_text(run), thousands(measured))
}

/// A time, from hours.
fn hours_text(hours: f64) -> String {
    let seconds = (hours * 3_600.0).round() as u64;
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, 0) => format!("{m} min"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, 0, _) => format!("{h} h"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

/// A percentage with as many decimals as it takes.
fn percent(value: f64) -> String {
    match value.abs() {
        0.0 => "0%".into(),
        v if v < 0.001 => "0.001%".into(),
        v if v < 0.01 => format!("{v:.3}%"),
        v if v < 1.0 => format!("{v:.2}%"),
        v => format!("{v:.1}%"),
    }
}

fn sentence(drift: &Drift, run: f64) -> String {
    let class = printable(&drift.class, NAME_LETTERS);
    let Some(trend) = &drift.trend else {
        return format!("{class}: too few blocks to judge; drift needs {FEWEST} of an arm");
    };
    // In a run of less than an hour, over the whole run.
    let (factor, over) = match run >= 1.0 {
        true => (1.0, "an hour".to_string()),
        false => (run, format!("in {}", hours_text(run))),
    };
    let of = format!("{:.2} {}", trend.mean, printable(&drift.unit, NAME_LETTERS));
    let mut text = match (&trend.step, drift.drifts) {
        (Some(step), _) => {
            let change = 100.0 * (step.after / step.before - 1.0);
            format!(
                "{class}: a step after {}: from {:.2} to {:.2} {} ({}{})",
                hours_text(step.hours),
                step.before,
                step.after,
                printable(&drift.unit, NAME_LETTERS),
                if change < 0.0 { "-" } else { "+" },
                percent(change)
            )
        }
        (None, Some(true)) => {
            let verb = match trend.percent_per_hour < 0.0 {
                true => "falls",
                false => "rises",
            };
            let ends = [trend.low * factor, trend.high * factor];
            let (near, far) = match ends[0].abs() < ends[1].abs() {
                true => (ends[0], ends[1]),
                false => (ends[1], ends[0]),
            };
            format!(
                "{class}: {verb} by {} {over} (95% interval {} to {}), of {of}",
                percent(trend.percent_per_hour * factor),
                percent(near),
                percent(far)
            )
        }
        (None, _) => {
            let most = trend.low.abs().max(trend.high.abs()) * factor;
            match most {
                0.0 => format!("{class}: none, of {of}"),
                most => format!("{class}: none; at most {} {over}, of {of}", percent(most)),
            }
        }
    };
    let named: Vec<String> = (drift.functions.iter().take(NAMED))
        .map(|f| {
            let change = f.percent_per_hour * factor;
            let sign = if change < 0.0 { "-" } else { "+" };
            let name = printable(&f.function, NAME_LETTERS);
            format!("{name} {sign}{}", percent(change))
        })
        .collect();
    if !named.is_empty() {
        let more = match drift.functions.len().saturating_sub(NAMED) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        text.push_str(&format!(
            "; functions that drift, by the change of the whole {over}: {}{more}",
            named.join(", ")
        ));
    }
    if let Some(highest) = highest(drift, trend) {
        text.push_str(&highest);
    }
    text
}

/// The highest block, if it is far from the mean.
fn highest(drift: &Drift, trend: &TrendOut) -> Option<String> {
    const FAR: f64 = 1.0;
    let most = drift.series.iter().max_by(|a, b| a.value.total_cmp(&b.value))?;
    let above = 100.0 * (most.value / trend.mean - 1.0);
    (above >= FAR).then(|| {
        format!(
            "; the highest block is {} above the mean, after {}",
            percent(above),
            hours_text(most.hours)
        )
    })
}

#[cfg(test)]
mod tests;
