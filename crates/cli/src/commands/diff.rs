//! `plumb diff`: compare two recordings, or the arms of one.

mod args;
mod show;
mod side;

use std::process::ExitCode;

use netplumb_kernel::layers::LAYERS;
use netplumb_model::hosts;
use netplumb_model::recording::Recording;
use netplumb_model::timing::CPU_TIME;
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
use side::{SideRequest, names};

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
    let before = SideRequest::parse(&args.before);
    let recording = before.read()?;
    let Some(after) = args.after.as_deref().map(SideRequest::parse) else {
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
    let [before_name, after_name] =
        [before_name, after_name].map(|name| args.below.name_with_threads(name));
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
fn within(args: &DiffArgs, asked: &SideRequest, recording: &Recording) -> anyhow::Result<ExitCode> {
    let name = args.below.name_with_threads(asked.name());
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
    let sides =
        Sides { before: recording, after: recording, before_name: &name, after_name: &name };
    compare(args, sides, Pairs { pairs, ..Pairs::default() })
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
        if are_other_events([&before, &after]) {
            return Err(nothing_in_common(sides));
        }
        return compare_parts(args, sides, [&before, &after], pairs);
    }
    let own = [sides.before, sides.after].map(Recording::parts);
    let one_each = own.iter().all(|own| own.len() < 2);
    let rates = own_shapes(sides).contains(&Shape::Rates);
    let both: Vec<[&str; 2]> = in_common(sides);
    if (one_each && !are_other_events([sides.before, sides.after])) || rates {
        return compare_parts(args, sides, [sides.before, sides.after], pairs);
    }
    let for_one = args.json || args.csv || args.markdown || args.mail || args.page.wanted();
    if let [[hosts::INSTRUMENT, _], counted] | [counted, [hosts::INSTRUMENT, _]] = both[..]
        && for_one
    {
        // Functions, which have more detail; --clock wire has the others.
        return compare_part(args, sides, counted, pairs);
    }
    if both.is_empty() {
        return Err(nothing_in_common(sides));
    }
    if for_one {
        return Err(Usage(format!(
            "the recordings have several instruments ({}; {}): choose one with --clock",
            list(&own[0]),
            list(&own[1])
        ))
        .into());
    }
    let mut code = ExitCode::SUCCESS;
    for (number, names) in both.iter().enumerate() {
        let rule = if number == 0 { "" } else { "\n" };
        let title = match Event::from_recording(sides.before, names[0]) {
            Some(Event(event)) => format!("Samples of {}", printable(&event, 80)),
            None => format!("Instrument {}", printable(names[0], 80)),
        };
        print(&format!("{rule}{title}\n\n"))?;
        let judged = compare_part(args, sides, *names, pairs.clone())?;
        if judged != ExitCode::SUCCESS {
            code = judged;
        }
    }
    Ok(code)
}

/// The parts that both sides have, by their names on either side.
fn in_common<'r>(sides: Sides<'r>) -> Vec<[&'r str; 2]> {
    let [before, after] = [sides.before, sides.after].map(|side| {
        let parts = side.parts().into_iter();
        parts.map(|name| (name, Event::from_recording(side, name))).collect::<Vec<_>>()
    });
    let is_same =
        |one: &(&str, Option<Event>), other: &(&str, Option<Event>)| match (&one.1, &other.1) {
            (Some(one), Some(other)) => one.scope() == other.scope(),
            _ => one.0 == other.0,
        };
    let pair = |one: &(&'r str, Option<Event>)| {
        let other = after.iter().find(|other| is_same(one, other))?;
        Some([one.0, other.0])
    };
    before.iter().filter_map(pair).collect()
}

/// Whether both sides are of samples, each of another event.
fn are_other_events(sides: [&Recording; 2]) -> bool {
    match sides.map(|side| Event::from_recording(side, CPU_TIME.instrument)) {
        [Some(before), Some(after)] => before.scope() != after.scope(),
        _ => false,
    }
}

fn nothing_in_common(sides: Sides<'_>) -> anyhow::Error {
    let [before, after] = [sides.before, sides.after].map(|side| {
        let parts = side.parts().into_iter();
        let names = parts.map(|part| match Event::from_recording(side, part) {
            Some(Event(event)) => printable(&event, 80),
            None => printable(part, 80),
        });
        names.collect::<Vec<_>>().join(", ")
    });
    Usage(format!(
        "the recordings have nothing in common: before is of {before}, after of {after}; record the \
         same event of both"
    ))
    .into()
}

/// perf's name of a sampled event.
#[derive(Debug)]
struct Event(String);

impl Event {
    /// The event of a part of a recording, if the part has samples.
    fn from_recording(recording: &Recording, part: &str) -> Option<Event> {
        let quantity = recording.quantity_of_part(part)?;
        (quantity.instrument == CPU_TIME.instrument).then(|| Event(quantity.name.clone()))
    }

    /// Its name and whether kernel, programs or guests were sampled, but not how precise samples are: `cycles:ppp` and
    /// `cycles:P` are the same event, `cycles:u` and `cycles:k` are not.
    fn scope(&self) -> (&str, String) {
        const MODIFIERS: &str = "ukhGHIpPSDWeb";
        const SCOPES: &str = "ukhG";
        match self.0.rsplit_once([':', '/']) {
            Some((name, modifiers)) if modifiers.chars().all(|c| MODIFIERS.contains(c)) => {
                let scopes = modifiers.chars().filter(|c| SCOPES.contains(*c));
                (name, scopes.collect())
            }
            _ => (&self.0, String::new()),
        }
    }
}

/// Compare a part that both sides have, by its names.
fn compare_part(
    args: &DiffArgs,
    sides: Sides<'_>,
    [name, later]: [&str; 2],
    pairs: Pairs,
) -> anyhow::Result<ExitCode> {
    let before = sides.before.part(name);
    // Arms of one recording belong to the same part.
    if std::ptr::eq(sides.before, sides.after) {
        return compare_parts(args, sides, [&before, &before], pairs);
    }
    let after = sides.after.part(later);
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
    let sides = Sides { before, after, ..sides };
    let asked = |p: &ArmPair| {
        let protos = [sides.before.arms[p.before].proto, sides.after.arms[p.after].proto];
        args.proto.is_empty() || protos.iter().any(|p| args.proto.contains(p))
    };
    pairs.pairs.retain(asked);
    show::compare(args, sides, &pairs)
}
