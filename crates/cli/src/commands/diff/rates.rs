//! Compare two benches, by time per packet.

use std::process::ExitCode;

use netplumb_report::diff::Sides;
use netplumb_report::diff::arms::Pairs;
use netplumb_report::shape::{Shape, shape};
use netplumb_report::{printable, rates};
use netplumb_stats::judge::Verdict;

use super::args::{DiffArgs, Limit};
use super::side::names;
use crate::exit::{Usage, WORSE};
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
    if ![sides.before, sides.after]
        .iter()
        .all(|r| shape(r) == Shape::Rates)
    {
        return Err(Usage(
            "only one of the recordings is a bench: rates can't be compared with costs".into(),
        )
        .into());
    }
    if args.page.wanted() {
        return Err(Usage(
            "--html is not supported for comparisons of benches; use plumb report --html on each"
                .into(),
        )
        .into());
    }
    let (before, after) = (rates::arms(sides.before), rates::arms(sides.after));
    let compared: Vec<rates::diff::Sides<'_>> = (pairs.pairs.iter())
        .filter_map(|p| {
            // Arms whose instructions were counted have no rates.
            let (one, other) = (before.get(p.before)?, after.get(p.after)?);
            let names = [one, other].map(|arm| arm.arm.name.as_str());
            Some(rates::diff::Sides {
                name: match names {
                    [a, b] if a == b => a.to_string(),
                    [a, b] => format!("{a} to {b}"),
                },
                before: one,
                after: other,
                // The blocks of one run alternate.
                apart: !std::ptr::eq(sides.before, sides.after),
            })
        })
        .collect();
    if compared.is_empty() {
        return Err(Usage(format!(
            "no arms in common: BEFORE has {}; AFTER has {}",
            names(sides.before),
            names(sides.after)
        ))
        .into());
    }
    let rows = rates::diff::rows(&compared);
    print(&match (args.json, args.csv, args.markdown) {
        (true, ..) => rates::diff::json(&rows),
        (_, true, _) => rates::diff::csv(&rows),
        (.., true) => rates::diff::markdown(&rows),
        _ => rates::diff::render(&rows, columns()),
    })?;
    let worse = rows
        .iter()
        .filter(|row| row.judged.verdict == Verdict::Slower);
    // By the lower end of the interval, as for times.
    let beyond = |row: &rates::diff::Row| match (args.fail_if_worse, row.judged.ratio) {
        (Some(Limit::Percent(most)), Some(ratio)) => (ratio.low - 1.0) * 100.0 > most,
        (Some(Limit::Ns(most)), Some(ratio)) => (ratio.low - 1.0) * row.judged.before > most,
        _ => false,
    };
    // A path without a valid block has no rate to compare.
    let is_dead = |row: &&rates::diff::Row| row.pps[0] > 0.0 && row.pps[1] == 0.0;
    let mut code = ExitCode::SUCCESS;
    if args.fail_if_worse.is_some() {
        for row in rows.iter().filter(is_dead) {
            let name = printable(&row.name, 200);
            eprintln!("plumb: worse: {name} has no valid block in AFTER");
            code = ExitCode::from(WORSE);
        }
        for row in rows.iter().filter(|row| !is_dead(row)) {
            let judged = &row.judged;
            if judged.verdict == Verdict::TooFew || judged.is_blind() {
                let name = printable(&row.name, 200);
                eprintln!(
                    "plumb: {name}: no significant change, but a change of this size could have \
                     been missed (too few blocks, or too much noise): measure both sides as arms \
                     of one run, with more blocks (--blocks)"
                );
            }
        }
    }
    if worse.filter(|row| beyond(row)).count() > 0 {
        code = ExitCode::from(WORSE);
    }
    Ok(code)
}
