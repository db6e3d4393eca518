//! Prints recordings of costs.

use std::path::Path;
use std::process::ExitCode;

use netplumb_model::class::Direction;
use netplumb_model::experiment::Experiment;
use netplumb_model::recording::{Recording, env};
use netplumb_report::analysis::{ClassView, classes};
use netplumb_report::beside::LineTimes;
use netplumb_report::together::CrossQuantity;
use netplumb_report::view::View;
use netplumb_report::{
    asm, claims, conclusions, diff, disks, figures, footer, functions, json, lines, printable,
    scan, seeds, summary, terminal, trace, tree, trust,
};

use super::formats::{self, ShownRecording};
use super::named::{around, named};
use super::print::{columns, print};
use crate::args::show::ShowArgs;
use crate::exit::Usage;

/// The message that there are no samples by thread.
pub(super) const NO_THREADS: &str = "--threads: no single samples in the recording; `plumb profile` and `plumb \
                                     import` keep them";

/// Print a recording of costs, with what all quantities show together.
///
/// # Errors
/// It lacks a requested arm, class or function.
pub(super) fn show(
    recording: &Recording,
    experiment: Option<&Experiment>,
    together: &CrossQuantity<'_>,
    args: &ShowArgs,
    directions: &[Direction],
) -> anyhow::Result<ExitCode> {
    let mut views = shown_classes(recording, directions, &args.arm)?;
    let columns = columns();
    let view = View { layer: args.layer.clone(), top: args.top, tree: args.tree, columns };
    let formats = &args.formats;
    let of = ShownRecording { recording, views: &views, experiment, times: &[], together };
    if formats::write(formats, &of, &view)? {
        return Ok(ExitCode::SUCCESS);
    }
    let spread = seeds::render(recording, &views, columns);
    if !args.json && !args.csv {
        // Other seeds are shown as the range.
        views = seeds::typical(&views);
    }
    let text = if let Some(name) = &args.lines {
        of_lines(recording, &views, name, args, columns)?
    } else if args.json {
        json::render(recording, &views, experiment, together)
    } else if args.threads {
        by_thread(recording, together, args)?
    } else if args.csv {
        functions::csv(&views, args.layer.as_deref(), together)
    } else if let Some(name) = &args.focus {
        around(recording, &views, name, |class, function| {
            tree::render_focus(class, function, columns)
        })?
    } else if !args.call.is_empty() || calls_are_shown(recording, experiment, args) {
        traced(recording, &views, experiment, args)?
    } else {
        tables(recording, &views, &view, experiment, &spread)
    };
    print(&text)
}

/// The lines of the functions of a name, or their instructions.
///
/// # Errors
/// No such function, or the recording with times can't be read.
fn of_lines(
    recording: &Recording,
    views: &[ClassView<'_>],
    name: &str,
    args: &ShowArgs,
    columns: usize,
) -> anyhow::Result<String> {
    let times = match &args.beside {
        Some(file) => Some(times_beside(file, name)?),
        None => None,
    };
    let times = times.as_ref();
    if args.json {
        let asked = lines::json::LinesRequest { asm: args.asm, source: args.source, times };
        return Ok(lines::json::render(views, &named(recording, name)?, asked));
    }
    around(recording, views, name, |class, function| {
        let first = lines::is_first(views, class, function);
        match args.asm {
            false => lines::render(class, function, columns, first, args.source, times),
            true if first => asm::render(class, function, args.source, times),
            true => String::new(),
        }
    })
}

/// The time of a function's lines, in another recording.
///
/// # Errors
/// It is not a recording of time, or has none of that function.
fn times_beside(file: &Path, name: &str) -> anyhow::Result<LineTimes> {
    let recording = netplumb_store::read(file)?;
    let times = LineTimes::from_recording(&recording, name);
    times.ok_or_else(|| {
        Usage(format!(
            "--beside {}: it has no time of lines of `{}`; `plumb profile` records it for programs \
             with debug information (-g)",
            printable(&file.display().to_string(), 80),
            printable(name, 80)
        ))
        .into()
    })
}

/// Whether to show a recording's traced calls: it has costs of functions, too, and an experiment
/// may make claims about both.
fn calls_are_shown(
    recording: &Recording,
    experiment: Option<&Experiment>,
    args: &ShowArgs,
) -> bool {
    let claims = experiment.is_some_and(|experiment| !experiment.claims.is_empty());
    trace::is_of_calls(recording) && !claims && !args.tree && args.layer.is_none()
}

/// Traced calls.
///
/// # Errors
/// One that is asked for was not kept.
fn traced(
    recording: &Recording,
    views: &[ClassView<'_>],
    experiment: Option<&Experiment>,
    args: &ShowArgs,
) -> anyhow::Result<String> {
    let kept: Vec<u64> = recording.call_traces().map(|t| t.number + 1).collect();
    if let Some(number) = args.call.iter().find(|number| !kept.contains(number)) {
        let some: Vec<String> = kept.iter().take(20).map(ToString::to_string).collect();
        return Err(Usage(match kept[..] {
            [] => "--call: no traced calls in the recording; `plumb trace FUNCTION` records them"
                .into(),
            _ => format!(
                "--call {number}: that call was not kept; the recording has {}{}",
                some.join(", "),
                if kept.len() > some.len() { ", ..." } else { "" }
            ),
        })
        .into());
    }
    let shown = match args.call[..] {
        [] => trace::ShownCalls::Typical,
        _ => trace::ShownCalls::Calls(args.call.clone()),
    };
    let columns = columns();
    let mut out = trace::render(recording, experiment, &args.arm, &shown, columns);
    let notes = trust::footer(recording, views);
    out.push('\n');
    out.push_str(&footer::terminal(&notes, columns));
    Ok(out)
}

/// Samples by thread.
///
/// # Errors
/// There are none with threads.
fn by_thread(
    recording: &Recording,
    together: &CrossQuantity<'_>,
    args: &ShowArgs,
) -> anyhow::Result<String> {
    let threads = together.threads(recording).ok_or_else(|| {
        Usage(match recording.environment.contains_key(env::BELOW) {
            true => "--threads can't be used with --below: samples have no times below a function"
                .into(),
            false => NO_THREADS.into(),
        })
    })?;
    let section = threads.section(args.top);
    Ok(match args.csv {
        true => section.csv(),
        false => section.terminal(columns()),
    })
}

/// The classes of the given directions and arms, or all.
///
/// # Errors
/// There are none.
pub(super) fn shown_classes<'a>(
    recording: &'a Recording,
    directions: &[Direction],
    arms: &[String],
) -> anyhow::Result<Vec<ClassView<'a>>> {
    let mut views = classes(recording);
    if !directions.is_empty() {
        views.retain(|v| directions.contains(&v.class.direction));
        if views.is_empty() {
            let words: Vec<&str> = directions.iter().map(|d| d.as_str()).collect();
            return Err(Usage(format!(
                "no class of direction {} in the recording; it has {}",
                words.join(" or "),
                classes(recording)
                    .iter()
                    .map(|v| v.class.to_string())
                    .collect::<Vec<_>>()
                    .join(", ")
            ))
            .into());
        }
    }
    only_arms(&mut views, arms)?;
    Ok(views)
}

/// Keep only the given arms, if any.
fn only_arms(views: &mut Vec<ClassView<'_>>, arms: &[String]) -> anyhow::Result<()> {
    for arm in arms {
        if !views.iter().any(|v| v.arm().name == *arm) {
            let mut known: Vec<String> = Vec::new();
            for view in views.iter() {
                let name = printable(&view.arm().name, 80);
                if known.last() != Some(&name) {
                    known.push(name);
                }
            }
            return Err(Usage(format!(
                "no such arm `{}`; the recording has {}",
                printable(arm, 80),
                known.join(", ")
            ))
            .into());
        }
    }
    if !arms.is_empty() {
        views.retain(|v| arms.contains(&v.arm().name));
    }
    Ok(())
}

fn tables(
    recording: &Recording,
    views: &[ClassView<'_>],
    view: &View,
    experiment: Option<&Experiment>,
    spread: &str,
) -> String {
    let columns = view.columns;
    let scan = scan::scan(recording, views);
    let mut directions: Vec<Direction> = views.iter().map(|v| v.class.direction).collect();
    directions.sort_unstable();
    directions.dedup();
    // Two arms of one recording are compared; the hundreds of a scan, and repeats with other
    // seeds, have a table of their own.
    let compared = if scan.is_some() || !spread.is_empty() {
        String::new()
    } else {
        let text = diff::of_arms(recording, &directions, columns);
        text.map(|text| {
            text + "
"
        })
        .unwrap_or_default()
    };
    let asks = |e: &&Experiment| {
        let shows = !e.published.is_empty() || !e.figures.is_empty();
        shows || !e.claims.is_empty() || e.scan.is_some()
    };
    let Some(experiment) = experiment.filter(asks) else {
        let mut out = compared + &terminal::render(recording, views, view);
        if !spread.is_empty() {
            out.push('\n');
            out.push_str(spread.trim_end());
            out.push('\n');
        }
        return out;
    };
    let mut out = String::new();
    for text in [&experiment.title, &experiment.question] {
        if !text.is_empty() {
            for line in text.trim().lines() {
                out.push_str(&printable(line, 1_000));
                out.push('\n');
            }
            out.push('\n');
        }
    }
    match &scan {
        Some(scan) => out.push_str(&scan::render(scan, columns)),
        None => {
            out.push_str(&summary::summary(views, columns));
            out.push('\n');
            if let Some(disks) = disks::section(recording, views) {
                out.push_str(&disks.terminal(columns));
                out.push('\n');
            }
        }
    }
    out.push_str(&compared);
    out.push_str(spread);
    if !experiment.published.is_empty() {
        out.push_str(&figures::render(experiment, views));
        if let Some(layer) = &experiment.layer {
            for class in
                views.iter().filter(|v| experiment.published.iter().any(|p| p.class == v.class))
            {
                out.push_str(&format!("Call graph of the {layer} layer, {}\n", class.class));
                out.push_str(&tree::render(class, Some(layer), 0.0));
                out.push('\n');
            }
        }
    }
    out.push_str(&figures::sweeps::render(experiment, recording, columns));
    if view.tree || view.layer.is_some() {
        out.push_str(&terminal::render(recording, views, view));
        out.push('\n');
    }
    let judged = claims::judge(experiment, views);
    out.push_str(&claims::render(&judged, columns));
    out.push_str(&conclusions::knobs(recording, columns));
    if !(view.tree || view.layer.is_some()) {
        let notes = trust::footer(recording, views);
        out.push_str(&footer::terminal(&notes, columns));
    }
    out.push_str(&conclusions::render(experiment, &judged, scan.as_ref(), columns));
    out
}
