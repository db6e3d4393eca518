//! Compare two recordings of costs.

use std::process::ExitCode;

use netplumb_model::recording::Recording;
use netplumb_report::diff::arms::Pairs;
use netplumb_report::diff::{self, Diff, Sides};
use netplumb_report::terminal::View;
use netplumb_report::{html, printable};

use super::args::{DiffArgs, Limit};
use crate::exit::{Usage, WORSE};
use crate::output::page;
use crate::output::print::{columns, print};

/// Compare and show.
///
/// # Errors
/// What can't be compared or shown.
pub(super) fn compare(
    args: &DiffArgs,
    sides: Sides<'_>,
    pairs: &Pairs,
) -> anyhow::Result<ExitCode> {
    if let Some(Limit::Ns(_)) = args.fail_if_worse {
        return Err(Usage(
            "invalid --fail-if-worse for recordings of instructions; expected like 0.5% or 10insns"
                .into(),
        )
        .into());
    }
    let diff = diff::compare(sides, pairs, &args.direction);
    if diff.classes.is_empty() {
        return Err(Usage(nothing(args, sides, &diff)).into());
    }
    let view = View {
        layer: args.layer.clone(),
        top: args.top,
        tree: false,
        columns: columns(),
    };
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
    Ok(judged(args, &diff))
}

/// Why nothing can be compared.
fn nothing(args: &DiffArgs, sides: Sides<'_>, diff: &Diff<'_>) -> String {
    let has = |recording: &Recording| {
        let mut classes: Vec<String> = netplumb_report::analysis::classes(recording)
            .iter()
            .map(|c| c.class.to_string())
            .collect();
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

/// The exit code; classes that got worse are reported.
fn judged(args: &DiffArgs, diff: &Diff<'_>) -> ExitCode {
    let Some(limit) = args.fail_if_worse else {
        return ExitCode::SUCCESS;
    };
    let mut code = ExitCode::SUCCESS;
    for class in &diff.classes {
        if class.verdict != diff::Verdict::Worse {
            continue;
        }
        // What is certain: the change without the spread between blocks.
        let more = class.certain.value();
        let (worse, told) = match limit {
            Limit::Percent(p) => (
                more * 100.0 > p * class.total.before.value(),
                format!("{p}%"),
            ),
            Limit::Insns(n) => (more > n, format!("{n} instructions per packet")),
            // Refused above.
            Limit::Ns(_) => (false, String::new()),
        };
        if worse {
            eprintln!(
                "plumb: worse by more than {told}: {}",
                diff::sentence::sentence(diff, class)
            );
            code = ExitCode::from(WORSE);
        }
    }
    code
}
