//! `plumb diff`: compare two recordings, or the arms of one.

mod args;
mod show;
mod side;

use std::process::ExitCode;

use netplumb_kernel::layers::LAYERS;
use netplumb_model::hosts;
use netplumb_model::recording::Recording;
use netplumb_report::diff::Sides;
use netplumb_report::diff::arms::{self, ArmPair, Pairs};
use netplumb_report::printable;
use netplumb_report::shape::{Shape, shape};

use crate::exit::Usage;
use crate::output::below::{below, below_both};
use crate::output::page;
use crate::output::part::{chosen, list};
use crate::output::print::print;
pub(crate) use args::DiffArgs;
use side::{Asked, names};

/// Read, compare and show.
///
/// # Errors
/// A file is not a recording, or lacks a requested arm or instrument.
pub(crate) fn run(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    if let Some(layer) = &args.layer
        && !LAYERS.contains(&layer.as_str())
    {
        return Err(Usage(format!(
            "invalid layer `{layer}`; expected one of {}",
            LAYERS.join(", ")
        ))
        .into());
    }
    page::check(&args.page)?;
    let before = Asked::parse(&args.before);
    let recording = before.read()?;
    let Some(after) = args.after.as_deref().map(Asked::parse) else {
        let recording = below(&args.below, &recording, &before.name())?;
        return within(args, &before, &recording);
    };
    let (before_name, after_name) = (before.name(), after.name());
    // Both are one file: compare its arms.
    let same = std::fs::canonicalize(&before.path).ok() == std::fs::canonicalize(&after.path).ok();
    let (other, earlier_part, later_part);
    let (recording, later) = if same {
        earlier_part = below(&args.below, &recording, &before_name)?;
        (&*earlier_part, &*earlier_part)
    } else {
        other = after.read()?;
        let files = [before_name.as_str(), after_name.as_str()];
        [earlier_part, later_part] = below_both(&args.below, [&recording, &other], files)?;
        (&*earlier_part, &*later_part)
    };
    let left = before.arms(recording)?;
    let right = after.arms(later)?;
    if same && left == right {
        return Err(Usage(format!(
            "{}: both sides are the same; give two files, or two arms of one: {}",
            before.path.display(),
            names(recording)
        ))
        .into());
    }
    let sides = Sides {
        before: recording,
        after: later,
        before_name: &before_name,
        after_name: &after_name,
    };
    let pairs = arms::pair((&recording.arms, left), (&later.arms, right));
    compare(args, sides, pairs)
}

/// Compare the arms of one recording.
fn within(args: &DiffArgs, asked: &Asked, recording: &Recording) -> anyhow::Result<ExitCode> {
    let name = asked.name();
    let chosen = asked.arms(recording)?;
    let mut pairs = arms::pair_within(recording);
    pairs.retain(|p| chosen.contains(&p.before) && chosen.contains(&p.after));
    if pairs.is_empty() {
        return Err(Usage(format!(
            "{}: no two arms to compare (it has {}); give a second recording",
            asked.path.display(),
            names(recording)
        ))
        .into());
    }
    let sides = Sides {
        before: recording,
        after: recording,
        before_name: &name,
        after_name: &name,
    };
    compare(
        args,
        sides,
        Pairs {
            pairs,
            ..Pairs::default()
        },
    )
}

/// Compare the parts of each instrument of both sides, or of the requested one.
fn compare(args: &DiffArgs, sides: Sides<'_>, pairs: Pairs) -> anyhow::Result<ExitCode> {
    if let Some(clock) = &args.clock {
        let before = chosen(sides.before, clock)?;
        // Arms of one recording belong to the same part.
        if std::ptr::eq(sides.before, sides.after) {
            return compare_parts(args, sides, [&before, &before], pairs);
        }
        let after = chosen(sides.after, clock)?;
        return compare_parts(args, sides, [&before, &after], pairs);
    }
    let own = [sides.before, sides.after].map(Recording::parts);
    let one_each = own.iter().all(|own| own.len() < 2);
    let rates = own_shapes(sides).contains(&Shape::Rates);
    if one_each || rates {
        return compare_parts(args, sides, [sides.before, sides.after], pairs);
    }
    let both = own[0].iter().filter(|name| own[1].contains(name));
    let both: Vec<&str> = both.copied().collect();
    let for_one = args.json || args.csv || args.markdown || args.mail || args.page.wanted();
    if let [hosts::INSTRUMENT, counted] | [counted, hosts::INSTRUMENT] = both[..]
        && for_one
    {
        // Functions, of which there is more to say; --clock wire has the others.
        return compare_part(args, sides, counted, pairs);
    }
    if for_one || both.is_empty() {
        return Err(Usage(format!(
            "the recordings have several instruments ({}; {}): choose one with --clock",
            list(&own[0]),
            list(&own[1])
        ))
        .into());
    }
    let mut code = ExitCode::SUCCESS;
    for (number, name) in both.iter().enumerate() {
        let rule = if number == 0 { "" } else { "\n" };
        print(&format!("{rule}Instrument {}\n\n", printable(name, 80)))?;
        let judged = compare_part(args, sides, name, pairs.clone())?;
        if judged != ExitCode::SUCCESS {
            code = judged;
        }
    }
    Ok(code)
}

/// Compare the part of one instrument, which both sides have.
fn compare_part(
    args: &DiffArgs,
    sides: Sides<'_>,
    name: &str,
    pairs: Pairs,
) -> anyhow::Result<ExitCode> {
    let before = sides.before.part(name);
    // Arms of one recording belong to the same part.
    if std::ptr::eq(sides.before, sides.after) {
        return compare_parts(args, sides, [&before, &before], pairs);
    }
    let after = sides.after.part(name);
    compare_parts(args, sides, [&before, &after], pairs)
}

/// The shapes of both sides.
fn own_shapes(sides: Sides<'_>) -> [Shape; 2] {
    [sides.before, sides.after].map(shape)
}

/// Compare parts of two recordings, each of one instrument.
fn compare_parts(
    args: &DiffArgs,
    sides: Sides<'_>,
    [before, after]: [&Recording; 2],
    mut pairs: Pairs,
) -> anyhow::Result<ExitCode> {
    let sides = Sides {
        before,
        after,
        ..sides
    };
    let asked = |p: &ArmPair| {
        let protos = [
            sides.before.arms[p.before].proto,
            sides.after.arms[p.after].proto,
        ];
        args.proto.is_empty() || protos.iter().any(|p| args.proto.contains(p))
    };
    pairs.pairs.retain(asked);
    show::compare(args, sides, &pairs)
}
