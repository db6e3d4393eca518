//! Compares two recordings of one instrument each.

use std::collections::BTreeSet;
use std::process::ExitCode;

use netplumb_model::events::{COUNT, TIME};
use netplumb_model::recording::{Recording, env};
use netplumb_report::diff::arms::Pairs;
use netplumb_report::diff::{self, Diff, Sides};
use netplumb_report::shape::{Shape, shape};
use netplumb_report::view::View;
use netplumb_report::{analysis, hosts, html, printable, times};

use super::args::{DiffArgs, Limit};
use crate::exit::{Usage, WORSE};
use crate::output::page;
use crate::output::print::{columns, print};

/// Compare and show.
///
/// # Errors
/// The part that can't be compared or shown.
pub(super) fn compare(
    args: &DiffArgs,
    sides: Sides<'_>,
    pairs: &Pairs,
) -> anyhow::Result<ExitCode> {
    let benches = [sides.before, sides.after].map(|r| shape(r) == Shape::Rates);
    if benches[0] != benches[1] {
        return Err(Usage(
            "only one of the recordings is a bench: rates can't be compared with costs".into(),
        )
        .into());
    }
    if benches[0] && args.page.wanted() {
        return Err(Usage(
            "--html is not supported for comparisons of benches; use plumb report --html on each"
                .into(),
        )
        .into());
    }
    let hosts = [sides.before, sides.after].map(|r| shape(r) == Shape::Hosts);
    if hosts.contains(&true) {
        return two_hosts(args, sides, pairs, hosts);
    }
    let counts = [sides.before, sides.after].map(|r| shape(r) == Shape::Counts);
    if counts.contains(&true) && args.page.wanted() {
        return Err(Usage(
            "--html is not supported for comparisons of counts; use plumb report --html on each"
                .into(),
        )
        .into());
    }
    let diff = diff::compare(sides, pairs, &args.direction);
    if diff.one_clock && diff.classes.is_empty() {
        return Err(Usage(nothing(args, sides, &diff)).into());
    }
    let limit = checked(args, &diff)?;
    let view =
        View { layer: args.layer.clone(), top: args.top, tree: args.tree, columns: width(args) };
    let text = if args.json {
        diff::json::render(&diff)
    } else if args.csv {
        diff::csv(&diff, args.layer.as_deref())
    } else if args.markdown {
        diff::markdown::render(&diff, args.top)
    } else if args.page.wanted() {
        // The tables are on the page.
        diff::terminal::head(&diff, view.columns)
    } else {
        diff::terminal::render(&diff, &view)
    };
    print(&text)?;
    if args.page.wanted() {
        page::put(&args.page, &html::render(&diff::page::page(&diff)))?;
    }
    Ok(limit.map_or(ExitCode::SUCCESS, |limit| judged(limit, &diff)))
}

/// Compare recordings of two hosts, whose figures are the same in every run.
fn two_hosts(
    args: &DiffArgs,
    sides: Sides<'_>,
    pairs: &Pairs,
    are: [bool; 2],
) -> anyhow::Result<ExitCode> {
    let wrong = |why: &str| Err(Usage(why.into()).into());
    if are.contains(&false) {
        return wrong("only one of the recordings is of two hosts: there is nothing to compare");
    }
    if args.page.wanted() {
        return wrong(
            "--html is not supported for comparisons of two hosts; use plumb report --html on each",
        );
    }
    if args.tree || args.layer.is_some() || !args.proto.is_empty() || !args.direction.is_empty() {
        return wrong(
            "--tree, --layer, --proto and --direction apply to functions, and a recording of two hosts has none",
        );
    }
    let limit = match args.fail_if_worse {
        None => None,
        Some(Limit::Percent(percent)) => Some(percent),
        Some(_) => {
            return wrong(
                "invalid --fail-if-worse for recordings of two hosts; expected like 0.5%",
            );
        }
    };
    let compared = hosts::compare(sides, pairs);
    if compared.is_empty() {
        return wrong("no arm and figure in common: name an arm of each, like a.plumb:ARM");
    }
    print(&match (args.json, args.csv, args.markdown) {
        (true, ..) => compared.json(),
        (_, true, _) => compared.csv(),
        (.., true) => compared.markdown(),
        _ => compared.terminal(width(args).min(HOSTS)),
    })?;
    let Some(limit) = limit else {
        return Ok(ExitCode::SUCCESS);
    };
    let worse = compared.worse_than(limit);
    for line in &worse {
        eprintln!("plumb: worse by more than {limit}%: {line}");
    }
    Ok(match worse.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(WORSE),
    })
}

/// The most columns of a comparison of two hosts.
const HOSTS: usize = 100;
/// Columns of a message on a mailing list.
const MAIL: usize = 72;

/// The width of text in columns: a mailing list gets the same as a terminal of that width.
fn width(args: &DiffArgs) -> usize {
    if args.mail { MAIL } else { columns() }
}

/// The error if nothing can be compared.
fn nothing(args: &DiffArgs, sides: Sides<'_>, diff: &Diff<'_>) -> String {
    let [before, after] = [sides.before, sides.after].map(events);
    if ![&before, &after].iter().any(|all| all.is_empty()) && before.is_disjoint(&after) {
        let listed = |all: BTreeSet<&str>| {
            let all: Vec<&str> = all.into_iter().collect();
            printable(&all.join(", "), 400)
        };
        return format!(
            "no event in common; {} has {}; {} has {}",
            printable(sides.before_name, 120),
            listed(before),
            printable(sides.after_name, 120),
            listed(after)
        );
    }
    let has = |recording: &Recording| {
        let mut classes: Vec<String> = match shape(recording) {
            Shape::Rates | Shape::Counts | Shape::Hosts => {
                recording.arms.iter().map(|arm| arm.name.clone()).collect()
            }
            Shape::Times => {
                (times::classes(recording).iter()).map(|c| c.class.to_string()).collect()
            }
            Shape::Costs => {
                (analysis::classes(recording).iter()).map(|c| c.class.to_string()).collect()
            }
        };
        classes.sort();
        classes.dedup();
        classes.join(", ")
    };
    let mut asked: Vec<&str> = args.proto.iter().map(|p| p.as_str()).collect();
    asked.extend(args.direction.iter().map(|d| d.as_str()));
    let what = match asked.is_empty() {
        true => String::new(),
        false => format!(" of {}", asked.join(" or ")),
    };
    let mut text = format!(
        "no class{what} in common; {} has {}; {} has {}",
        printable(sides.before_name, 120),
        has(sides.before),
        printable(sides.after_name, 120),
        has(sides.after)
    );
    for one in &diff.unpaired {
        text.push_str("\n  ");
        text.push_str(one);
    }
    text
}

/// The instrument of a recording.
fn instrument(recording: &Recording) -> String {
    let clock = recording.environment.get(env::CLOCK);
    clock.map_or_else(|| "none".into(), |clock| format!("`{}`", printable(clock, 80)))
}

/// The events that were counted.
fn events(recording: &Recording) -> BTreeSet<&str> {
    let all = [&COUNT, &TIME].map(|of| recording.scalars_of(of));
    let labels = all.into_iter().flatten().map(|s| s.item.label.as_deref());
    labels.flatten().collect()
}

/// The limit, checked for the unit of the recordings.
fn checked(args: &DiffArgs, diff: &Diff<'_>) -> anyhow::Result<Option<Limit>> {
    let Some(limit) = args.fail_if_worse else {
        return Ok(None);
    };
    if !diff.one_clock {
        return Err(Usage(format!(
            "--fail-if-worse needs the same instrument on both sides: {} is by {}, {} by {}",
            printable(diff.sides.before_name, 120),
            instrument(diff.sides.before),
            printable(diff.sides.after_name, 120),
            instrument(diff.sides.after)
        ))
        .into());
    }
    let unit = diff.classes.first().map_or("", |class| &class.unit);
    let text = match (limit, unit) {
        (Limit::Percent(_), _) | (Limit::Insns(_), "instructions") | (Limit::Ns(_), "ns") => {
            return Ok(Some(limit));
        }
        (_, "instructions") => {
            "invalid --fail-if-worse for recordings of instructions; expected like 0.5% or 10insns"
                .into()
        }
        (_, "ns") => {
            "invalid --fail-if-worse for recordings of times; expected like 0.5% or 10ns".into()
        }
        (_, unit) => format!(
            "invalid --fail-if-worse for recordings of {}; expected like 0.5%",
            printable(unit, 40)
        ),
    };
    Err(Usage(text).into())
}

/// The exit code; prints a line for each class that got worse, or may have.
fn judged(limit: Limit, diff: &Diff<'_>) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for class in diff.judged() {
        // A path without valid blocks in AFTER has no rate to compare.
        if let Some([before, after]) = class.rates
            && before > 0.0
            && after == 0.0
        {
            let name = printable(&class.label, 200);
            eprintln!("plumb: worse: {name} has no valid block in AFTER");
            code = ExitCode::from(WORSE);
            continue;
        }
        let (percent, cost) = class.worse_by();
        let before = class.whole().map_or(0.0, |whole| whole.judged.before());
        let (worse, bound, most) = match limit {
            Limit::Percent(p) => (percent > p, format!("{p}%"), p / 100.0 * before),
            Limit::Insns(n) | Limit::Ns(n) => {
                let bound = format!("{n} {} per {}", class.unit, class.per);
                (cost > n, bound, n)
            }
        };
        if worse {
            let sentence = diff::sentence::sentence(class);
            eprintln!("plumb: worse by more than {bound}: {sentence}");
            code = ExitCode::from(WORSE);
        } else if let Some(why) = class.may_miss(most) {
            eprintln!("plumb: no significant change beyond {bound}, but {why}");
        }
    }
    code
}
