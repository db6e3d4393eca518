//! The figures of a bench's file: what was measured, beside what others published; and
//! its claims, put to the data.

use comfy_table::Cell;
use netplumb_model::bench::{Axis, BenchArm, BenchClaim, BenchFile, DataPath, Figure, Measured};
use netplumb_model::recording::Recording;
use netplumb_stats::ratio;
use netplumb_stats::welch::Mean;

use super::terminal::rate;
use super::{ArmRates, arms};
use crate::claims::{Judged, Verdict};
use crate::number::{counted, printable};
use crate::terminal::{continued, right, table, trimmed};

/// A point of a line.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Along.
    pub x: f64,
    /// Up; none where nothing was measured.
    pub y: Option<Mean>,
    /// Why there is nothing, or what is to be doubted.
    pub note: Option<String>,
}

/// A path's line.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The path.
    pub path: DataPath,
    /// Its points, along.
    pub points: Vec<Point>,
}

/// The lines of a figure.
pub fn series(file: &BenchFile, figure: &Figure, arms: &[ArmRates<'_>]) -> Vec<Series> {
    let wanted = file.arms_of(figure).unwrap_or_default();
    let point = |arm: &BenchArm| {
        let knobs = arm.knobs();
        let found = arms.iter().find(|a| a.arm.knobs == knobs);
        let y = found.and_then(|arm| match figure.y {
            Axis::Cpu => arm.mean(busy_of_path),
            _ => arm.handled_pps(),
        });
        Point {
            x: figure.x_of(arm),
            y,
            note: found.and_then(remark),
        }
    };
    figure
        .paths
        .iter()
        .map(|&path| Series {
            path,
            points: (wanted.iter().filter(|a| a.path == path))
                .map(point)
                .collect(),
        })
        .collect()
}

/// CPUs that were busy, without those that only send.
pub(super) fn busy_of_path(measured: &Measured) -> f64 {
    let sends = |cpu: u32| {
        measured
            .generated
            .iter()
            .any(|g| g.cpu == cpu && g.frames > 0)
    };
    let handles = |cpu: u32| measured.handled.packets.get(&cpu).is_some_and(|n| *n > 0);
    let cpus = measured.cpus.iter();
    cpus.filter(|c| handles(c.cpu) || !sends(c.cpu))
        .map(|c| c.busy)
        .sum()
}

fn remark(arm: &ArmRates<'_>) -> Option<String> {
    if let Some(why) = arm.failed {
        return Some(why.to_string());
    }
    if arm.valid.is_empty() {
        return arm.invalid.keys().next().cloned();
    }
    arm.is_generator_bound().then(|| "generator-bound".into())
}

/// Every figure as a table, then the claims.
pub fn render(file: &BenchFile, recording: &Recording, columns: usize) -> String {
    let arms = arms(recording);
    let mut out = String::new();
    for figure in &file.figures {
        out.push_str(&format!("figure {}: {}\n", figure.name, figure.title));
        out.push_str(&one(file, figure, &arms, columns));
        for marked in &figure.published {
            let line = format!(
                "  published: {}: {} at {}",
                printable(&marked.label, 120),
                up(figure, marked.y),
                along(figure, marked.x)
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
    for judged in judge(file, &arms) {
        let line = format!(
            "  {}: {}: {}",
            judged.verdict.as_str(),
            judged.says,
            judged.because
        );
        out.push_str(&continued(&line, 4, columns));
        out.push('\n');
    }
    out
}

fn one(file: &BenchFile, figure: &Figure, arms: &[ArmRates<'_>], columns: usize) -> String {
    let all = series(file, figure, arms);
    let mut table = table(columns);
    let mut heading = vec![Cell::new(format!("{} by {}", figure.y, figure.x))];
    let mut xs: Vec<f64> = all.iter().flat_map(|s| &s.points).map(|p| p.x).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    heading.extend(xs.iter().map(|x| right(along(figure, *x))));
    table.set_header(heading);
    let mut remarks: Vec<String> = Vec::new();
    for series in &all {
        let mut row = vec![Cell::new(series.path.as_str())];
        for x in &xs {
            let point = series.points.iter().find(|p| p.x == *x);
            let text = match point {
                Some(Point { y: Some(mean), .. }) => {
                    let reach = mean.high.map_or(String::new(), |high| {
                        format!(
                            " ±{:.0} %",
                            (high - mean.value) / mean.value.max(1e-9) * 100.0
                        )
                    });
                    format!("{}{reach}", up(figure, mean.value))
                }
                _ => "-".into(),
            };
            row.push(right(text));
            if let Some(note) = point.and_then(|p| p.note.as_ref()) {
                let remark = format!("  {}: {}", series.path, printable(note, 300));
                if !remarks.contains(&remark) {
                    remarks.push(remark);
                }
            }
        }
        table.add_row(row);
    }
    let mut out = trimmed(&table);
    for remark in remarks {
        out.push_str(&continued(&remark, 4, columns));
        out.push('\n');
    }
    out
}

/// A value of the axis that is along, in words.
pub(super) fn along(figure: &Figure, x: f64) -> String {
    match figure.x {
        Axis::Cores if x == 1.0 => "1 core".into(),
        Axis::Cores => format!("{x} cores"),
        Axis::Size => format!("{x:.0} bytes"),
        Axis::Flows if x == 1.0 => "1 flow".into(),
        Axis::Flows => format!("{x} flows"),
        _ => rate(x),
    }
}

/// A value of the axis that is up, in words.
pub(super) fn up(figure: &Figure, y: f64) -> String {
    match figure.y {
        Axis::Cpu => format!("{y:.2}"),
        _ => rate(y),
    }
}

/// Judge every claim.
pub fn judge(file: &BenchFile, arms: &[ArmRates<'_>]) -> Vec<Judged> {
    file.claims
        .iter()
        .map(|claim| {
            let (verdict, because) = outcome(file, claim, arms);
            Judged {
                says: printable(claim.says(), 300),
                verdict,
                finding: because.clone(),
                because,
                name: None,
            }
        })
        .collect()
}

fn outcome(file: &BenchFile, claim: &BenchClaim, arms: &[ArmRates<'_>]) -> (Verdict, String) {
    let of = |name: &str, path: DataPath| -> Vec<(BenchArm, Option<&ArmRates<'_>>)> {
        let figure = file.figures.iter().find(|f| f.name == name);
        let wanted = figure.map_or(Vec::new(), |f| file.arms_of(f).unwrap_or_default());
        let wanted = wanted.into_iter().filter(|arm| arm.path == path);
        let found = |arm: &BenchArm| {
            let knobs = arm.knobs();
            let mut arms = arms.iter();
            arms.find(|a| a.arm.knobs == knobs && !a.valid.is_empty())
        };
        wanted.map(|arm| (arm, found(&arm))).collect()
    };
    match claim {
        BenchClaim::Faster {
            figure,
            path,
            than,
            cores,
            ..
        } => {
            let wanted = |arm: &BenchArm| cores.is_none_or(|n| n == arm.cores);
            let mut told = Vec::new();
            let mut verdict = Verdict::Holds;
            for ((arm, one), (_, other)) in of(figure, *path).into_iter().zip(of(figure, *than)) {
                if !wanted(&arm) {
                    continue;
                }
                let (Some(one), Some(other)) = (one, other) else {
                    let missing = if one.is_none() { path } else { than };
                    return (Verdict::NotMeasured, format!("{missing} was not measured"));
                };
                let rates = |a: &ArmRates<'_>| -> Vec<f64> {
                    a.valid.iter().map(Measured::handled_pps).collect()
                };
                let ratio = ratio::ratio(&rates(other), &rates(one), [0.0; 2]);
                let Some(ratio) = ratio else {
                    return (Verdict::NotMeasured, "it takes two blocks of each".into());
                };
                if ratio.low <= 1.0 {
                    verdict = Verdict::DoesNotHold;
                }
                told.push(format!(
                    "{:.2} times with {} ({:.2} to {:.2})",
                    ratio.value,
                    counted(arm.cores as usize, "core"),
                    ratio.low,
                    ratio.high
                ));
            }
            if told.is_empty() {
                return (Verdict::NotMeasured, "no arm is meant".into());
            }
            (verdict, told.join(", "))
        }
        BenchClaim::Pinned {
            figure,
            path,
            at_least,
            ..
        } => {
            let busy = match cpu_of(of(figure, *path)) {
                Ok(busy) => busy,
                Err(missing) => return (Verdict::NotMeasured, missing),
            };
            let least = busy
                .iter()
                .map(|(_, cpu)| *cpu)
                .fold(f64::INFINITY, f64::min);
            let holds = least >= *at_least;
            let verdict = if holds {
                Verdict::Holds
            } else {
                Verdict::DoesNotHold
            };
            (verdict, format!("{least:.2} CPUs busy at the least"))
        }
        BenchClaim::Scales {
            figure, path, by, ..
        } => {
            let busy = match cpu_of(of(figure, *path)) {
                Ok(busy) => busy,
                Err(missing) => return (Verdict::NotMeasured, missing),
            };
            let ends = busy.first().zip(busy.last());
            let Some(((_, least), (_, most))) = ends.filter(|_| busy.len() > 1) else {
                return (Verdict::NotMeasured, "it takes two rates".into());
            };
            let holds = *most >= by * least;
            let verdict = if holds {
                Verdict::Holds
            } else {
                Verdict::DoesNotHold
            };
            (
                verdict,
                format!("{least:.2} CPUs busy at the least rate, {most:.2} at the greatest"),
            )
        }
    }
}

/// How busy a path's CPUs were, by what was offered.
fn cpu_of(arms: Vec<(BenchArm, Option<&ArmRates<'_>>)>) -> Result<Vec<(f64, f64)>, String> {
    let mut all = Vec::new();
    for (arm, found) in arms {
        let found = found.ok_or_else(|| format!("{} was not measured", arm.path))?;
        let offered = found.mean(Measured::offered_pps).map_or(0.0, |m| m.value);
        let busy = found.mean(busy_of_path).map_or(0.0, |m| m.value);
        all.push((offered, busy));
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(all)
}
