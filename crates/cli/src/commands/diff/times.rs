//! Compare two recordings of times.

use std::process::ExitCode;

use netplumb_report::diff::Sides;
use netplumb_report::diff::arms::Pairs;
use netplumb_report::html;
use netplumb_report::terminal::View;
use netplumb_report::times::diff as times;

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
    let diff = times::compare(sides, pairs, &args.direction);
    if diff.one_clock && diff.classes.is_empty() {
        let mut text = String::from("no class in common");
        for one in &diff.unpaired {
            text.push_str("\n  ");
            text.push_str(one);
        }
        return Err(Usage(text).into());
    }
    let view = View {
        layer: args.layer.clone(),
        top: args.top,
        tree: false,
        columns: columns(),
    };
    let text = if args.json {
        times::json::render(&diff)
    } else if args.csv {
        times::csv(&diff, args.layer.as_deref())
    } else if args.markdown {
        times::markdown::render(&diff, args.top)
    } else if args.page.wanted() {
        // The tables are on the page.
        times::terminal::head(&diff, view.columns)
    } else {
        times::terminal::render(&diff, &view)
    };
    print(&text)?;
    if args.page.wanted() {
        page::put(&args.page, &html::render(&times::page::page(&diff)))?;
    }
    let Some(limit) = args.fail_if_worse else {
        return Ok(ExitCode::SUCCESS);
    };
    if !diff.one_clock {
        return Err(Usage(
            "--fail-if-worse needs the same instrument on both sides: instructions can't be compared with nanoseconds".into(),
        )
        .into());
    }
    let mut code = ExitCode::SUCCESS;
    for class in &diff.classes {
        let (percent, ns) = class.worse_by();
        let before_ns = class.whole().map_or(0.0, |whole| whole.judged.before);
        let (worse, told, most_ns) = match limit {
            Limit::Percent(p) => (percent > p, format!("{p}%"), p / 100.0 * before_ns),
            Limit::Ns(n) => (ns > n, format!("{n} ns per {}", class.per), n),
            Limit::Insns(_) => {
                return Err(Usage(
                    "invalid --fail-if-worse for recordings of times; expected like 0.5% or 10ns"
                        .into(),
                )
                .into());
            }
        };
        if worse {
            eprintln!(
                "plumb: worse by more than {told}: {}",
                times::terminal::sentence(class)
            );
            code = ExitCode::from(WORSE);
        } else if let Some(why) = class.may_miss(most_ns) {
            eprintln!("plumb: no significant change beyond {told}, but {why}");
        }
    }
    Ok(code)
}
