//! Prints recordings of times.

use std::process::ExitCode;

use netplumb_model::class::Direction;
use netplumb_model::experiment::Experiment;
use netplumb_model::recording::Recording;
use netplumb_report::diff;
use netplumb_report::figures::sweeps;
use netplumb_report::times::{TimedClass, as_costs, classes, csv, json, terminal};
use netplumb_report::together::CrossQuantity;
use netplumb_report::view::View;
use netplumb_report::{analysis, claims, conclusions, printable, tree};

use super::formats::{self, ShownRecording};
use super::named::around;
use super::print::{columns, print};
use crate::args::show::ShowArgs;
use crate::exit::Usage;

/// Print a recording of times.
///
/// # Errors
/// It lacks a requested arm, class or function.
pub(super) fn show(
    recording: &Recording,
    experiment: Option<&Experiment>,
    args: &ShowArgs,
    directions: &[Direction],
) -> anyhow::Result<ExitCode> {
    if args.lines.is_some() {
        return Err(Usage("--lines is of functions: for recordings of instrument `exact`, and of `plumb profile`, or a part of this one by --clock".into()).into());
    }
    let views = asked(recording, directions, &args.arm)?;
    let view =
        View { layer: args.layer.clone(), top: args.top, tree: args.tree, columns: columns() };
    // Trees and stacks are made from costs.
    let costs = as_costs(recording);
    let mut stacks = analysis::classes(&costs);
    stacks.retain(|s| {
        let is = |v: &TimedClass<'_>| (v.arm, v.class.direction) == (s.arm, s.class.direction);
        views.iter().any(is)
    });
    let formats = &args.formats;
    let of = ShownRecording {
        recording: &costs,
        views: &stacks,
        experiment,
        times: &views,
        together: &CrossQuantity::default(),
    };
    if formats::write(formats, &of, &view)? {
        return Ok(ExitCode::SUCCESS);
    }
    let text = if args.json {
        json::render(recording, &views, experiment)
    } else if args.csv {
        csv(&views, args.layer.as_deref())
    } else if let Some(name) = &args.focus {
        around(&costs, &stacks, name, |class, function| {
            tree::render_focus(class, function, view.columns)
        })?
    } else {
        let compared = diff::of_arms(recording, directions, view.columns);
        let mut text = compared.map(|text| text + "\n").unwrap_or_default();
        text.push_str(&terminal::render(recording, &views, &view));
        if let Some(experiment) = experiment {
            let judged = claims::judge_blocks(experiment, recording);
            text.push('\n');
            text.push_str(&sweeps::render(experiment, recording, view.columns));
            text.push_str(&claims::render(&judged, view.columns));
            text.push_str(&conclusions::render(experiment, &judged, None, view.columns));
        }
        if args.tree {
            for class in &stacks {
                text.push_str(&format!("\n{}, ns\n", class.class));
                text.push_str(&tree::render(class, view.layer.as_deref(), 0.5));
            }
        }
        text
    };
    print(&text)
}

/// The classes of the given directions and arms, or all.
///
/// # Errors
/// There are none.
pub(super) fn asked<'a>(
    recording: &'a Recording,
    directions: &[Direction],
    arms: &[String],
) -> anyhow::Result<Vec<TimedClass<'a>>> {
    let mut views = classes(recording);
    let has = |views: &[TimedClass<'_>], name: fn(&TimedClass<'_>) -> String| {
        let mut names: Vec<String> = views.iter().map(name).collect();
        names.sort();
        names.dedup();
        names.join(", ")
    };
    for arm in arms {
        if !views.iter().any(|v| v.arm().name == *arm) {
            return Err(Usage(format!(
                "no such arm `{}`; the recording has {}",
                printable(arm, 80),
                has(&views, |v| printable(&v.arm().name, 80))
            ))
            .into());
        }
    }
    if !arms.is_empty() {
        views.retain(|v| arms.contains(&v.arm().name));
    }
    if !directions.is_empty() {
        let known = has(&views, |v| v.class.to_string());
        views.retain(|v| directions.contains(&v.class.direction));
        if views.is_empty() {
            let words: Vec<&str> = directions.iter().map(|d| d.as_str()).collect();
            return Err(Usage(format!(
                "no class of direction {} in the recording; it has {known}",
                words.join(" or ")
            ))
            .into());
        }
    }
    Ok(views)
}
