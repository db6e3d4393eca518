//! `plumb diff`: two recordings, or two arms of one, subtracted.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use netplumb_kernel::layers::LAYERS;
use netplumb_model::class::{Direction, Proto};
use netplumb_model::recording::Recording;
use netplumb_report::diff::arms::{self, ArmPair, Pairs};
use netplumb_report::diff::{self, Diff, Sides};
use netplumb_report::rates;
use netplumb_report::shape::{Shape, shape, varying};
use netplumb_report::terminal::View;
use netplumb_report::times::diff as times;
use netplumb_report::{html, printable};
use netplumb_stats::judge::Verdict;

use super::page::PageArgs;
use super::report::{chosen, columns, list, print};
use crate::exit::{Usage, WORSE};

/// Arguments of `plumb diff`.
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// What was: a recording, or FILE:ARM
    #[arg(value_name = "BEFORE")]
    before: OsString,
    /// What is; without it, the arms of BEFORE are compared with each other
    #[arg(value_name = "AFTER")]
    after: Option<OsString>,
    /// Only these protocols: raw, udp, tcp; several with commas
    #[arg(long, value_name = "PROTO", value_delimiter = ',')]
    proto: Vec<Proto>,
    /// Only these directions: tx, rx, forward, echo, ack; several with commas
    #[arg(long, value_name = "DIRECTION", value_delimiter = ',')]
    direction: Vec<Direction>,
    /// One layer only: syscall, socket, transport, network ...
    #[arg(long, value_name = "LAYER")]
    layer: Option<String>,
    /// Functions in a table, 0 for all
    #[arg(long, value_name = "N", default_value_t = 12)]
    top: usize,
    /// One line for each class, context and function, as CSV
    #[arg(long, conflicts_with_all = ["json", "markdown"])]
    csv: bool,
    /// Everything, as JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// For a patch's cover letter or a comment
    #[arg(long)]
    markdown: bool,
    /// Of several instruments in the recordings, only this one
    #[arg(long, value_name = "CLOCK")]
    clock: Option<String>,
    #[command(flatten)]
    page: PageArgs,
    /// Exit with 4 if any class got worse by more: 0.5%, 10insns or 10ns
    #[arg(long, value_name = "LIMIT")]
    fail_if_worse: Option<Limit>,
}

/// By how much a class may get worse.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Limit {
    Percent(f64),
    Insns(f64),
    Ns(f64),
}

impl std::str::FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, limit): (&str, fn(f64) -> Limit) =
            match (text.strip_suffix("insns"), text.strip_suffix("ns")) {
                (Some(number), _) => (number, Limit::Insns),
                (None, Some(number)) => (number, Limit::Ns),
                (None, None) => (text.strip_suffix('%').unwrap_or(text), Limit::Percent),
            };
        match number.trim().parse::<f64>() {
            Ok(n) if n.is_finite() && n >= 0.0 => Ok(limit(n)),
            _ => {
                Err("it takes percent, like 0.5%, instructions per packet, like 10insns, or nanoseconds, like 10ns".into())
            }
        }
    }
}

/// A side as it was asked for: a recording and, if one was named, an arm.
struct Asked {
    path: PathBuf,
    arm: Option<String>,
}

impl Asked {
    /// `FILE` or `FILE:ARM`. Names of files may hold colons: what is there as a
    /// whole is a file; else the longest file that is there, and the rest is the arm.
    fn parse(text: &OsStr) -> Asked {
        let whole = Path::new(text);
        if whole.exists() {
            return Asked {
                path: whole.into(),
                arm: None,
            };
        }
        let bytes = text.as_bytes();
        let mut colons: Vec<usize> = (0..bytes.len()).filter(|n| bytes[*n] == b':').collect();
        let split = |at: usize| Asked {
            path: PathBuf::from(OsStr::from_bytes(&bytes[..at])),
            arm: Some(String::from_utf8_lossy(&bytes[at + 1..]).into_owned()),
        };
        colons.reverse();
        colons
            .iter()
            .find(|at| Path::new(OsStr::from_bytes(&bytes[..**at])).exists())
            // What is missing is told by the name that was most likely meant.
            .or(colons.last().filter(|at| **at > 0))
            .map_or_else(
                || Asked {
                    path: whole.into(),
                    arm: None,
                },
                |at| split(*at),
            )
    }

    fn read(&self) -> anyhow::Result<Recording> {
        let recording = netplumb_store::read(&self.path)?;
        if recording.blocks.is_empty() {
            anyhow::bail!(
                "{}: the recording has no block: nothing was measured",
                self.path.display()
            );
        }
        Ok(recording)
    }

    /// What the side is called.
    fn name(&self) -> String {
        let file = self.path.display();
        match &self.arm {
            Some(arm) => format!("{file}, arm {arm}"),
            None => file.to_string(),
        }
    }

    /// The arms that were asked for.
    fn arms(&self, recording: &Recording) -> anyhow::Result<Vec<usize>> {
        let measured = |arm: &usize| recording.blocks.iter().any(|b| b.arm as usize == *arm);
        let all: Vec<usize> = (0..recording.arms.len()).filter(measured).collect();
        let Some(asked) = &self.arm else {
            return Ok(all);
        };
        let name = |n: &usize| recording.arms[*n].name.as_str();
        let exact: Vec<usize> = all.iter().copied().filter(|n| name(n) == asked).collect();
        if !exact.is_empty() {
            return Ok(exact);
        }
        // The words that some arms have in common name them all.
        let words: Vec<&str> = asked.split_whitespace().collect();
        let among = |arm: &str| {
            words
                .iter()
                .all(|w| arm.split_whitespace().any(|a| a == *w))
        };
        let several: Vec<usize> = all.iter().copied().filter(|n| among(name(n))).collect();
        if !words.is_empty() && !several.is_empty() {
            return Ok(several);
        }
        let mut near: Vec<(usize, &str)> = all
            .iter()
            .map(|n| (strsim::damerau_levenshtein(asked, name(n)), name(n)))
            .collect();
        near.sort_unstable();
        let near: Vec<String> = near.iter().take(8).map(|(_, n)| printable(n, 80)).collect();
        let more = match all.len().saturating_sub(near.len()) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        Err(Usage(format!(
            "{}: no arm is called `{}`; there are {}{more}",
            self.path.display(),
            printable(asked, 80),
            near.join(", ")
        ))
        .into())
    }
}

/// Read, compare and show.
///
/// # Errors
/// A file is no recording, or what was asked for is not in it.
pub(crate) fn run(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    if let Some(layer) = &args.layer
        && !LAYERS.contains(&layer.as_str())
    {
        return Err(Usage(format!(
            "`{layer}` is no layer: they are {}",
            LAYERS.join(", ")
        ))
        .into());
    }
    args.page.check()?;
    let before = Asked::parse(&args.before);
    let recording = before.read()?;
    let Some(after) = args.after.as_deref().map(Asked::parse) else {
        return within(args, &before, &recording);
    };
    let left = before.arms(&recording)?;
    let (before_name, after_name) = (before.name(), after.name());
    // One file is one recording: what differs is its arms.
    let same = std::fs::canonicalize(&before.path).ok() == std::fs::canonicalize(&after.path).ok();
    let other;
    let later = if same {
        &recording
    } else {
        other = after.read()?;
        &other
    };
    let right = after.arms(later)?;
    if same && left == right {
        return Err(Usage(format!(
            "{}: both sides are the same, so nothing can differ; give two files, or two of its arms: {}",
            before.path.display(),
            names(&recording)
        ))
        .into());
    }
    let sides = Sides {
        before: &recording,
        after: later,
        before_name: &before_name,
        after_name: &after_name,
    };
    let pairs = arms::pair((&recording.arms, left), (&later.arms, right));
    compare(args, sides, pairs)
}

/// The arms of one recording.
fn within(args: &DiffArgs, asked: &Asked, recording: &Recording) -> anyhow::Result<ExitCode> {
    let name = asked.name();
    let chosen = asked.arms(recording)?;
    let mut pairs = arms::pair_within(&recording.arms);
    pairs.retain(|p| chosen.contains(&p.before) && chosen.contains(&p.after));
    if pairs.is_empty() {
        return Err(Usage(format!(
            "{}: no two of its arms can be compared ({}); give a second recording",
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

fn names(recording: &Recording) -> String {
    const MANY: usize = 12;
    let mut names: Vec<String> = recording
        .arms
        .iter()
        .take(MANY)
        .map(|a| printable(&a.name, 80))
        .collect();
    if recording.arms.len() > MANY {
        names.push(format!("and {} more", recording.arms.len() - MANY));
    }
    names.join(", ")
}

/// Benches: by what packets take.
fn benches(args: &DiffArgs, sides: Sides<'_>, pairs: &Pairs) -> anyhow::Result<ExitCode> {
    if ![sides.before, sides.after]
        .iter()
        .all(|r| shape(r) == Shape::Rates)
    {
        return Err(Usage(
            "one is a bench and the other is not: rates can't be compared with costs".into(),
        )
        .into());
    }
    if args.page.wanted() {
        return Err(Usage(
            "two benches have no page together: `plumb report --html` makes one of each".into(),
        )
        .into());
    }
    let (before, after) = (rates::arms(sides.before), rates::arms(sides.after));
    let compared: Vec<rates::diff::Sides<'_>> = (pairs.pairs.iter())
        .filter_map(|p| {
            // Instructions that were counted are no rates.
            let (one, other) = (before.get(p.before)?, after.get(p.after)?);
            let names = [one, other].map(|arm| arm.arm.name.as_str());
            Some(rates::diff::Sides {
                name: match names {
                    [a, b] if a == b => a.to_string(),
                    [a, b] => format!("{a} to {b}"),
                },
                before: one,
                after: other,
                // Those of one run took turns.
                apart: !std::ptr::eq(sides.before, sides.after),
            })
        })
        .collect();
    if compared.is_empty() {
        return Err(Usage(format!(
            "no arms can be compared: before are {}; after {}",
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
    // What is certain: the lower end of the interval, as for times.
    let beyond = |row: &rates::diff::Row| match (args.fail_if_worse, row.judged.ratio) {
        (Some(Limit::Percent(most)), Some(ratio)) => (ratio.low - 1.0) * 100.0 > most,
        (Some(Limit::Ns(most)), Some(ratio)) => (ratio.low - 1.0) * row.judged.before > most,
        _ => false,
    };
    // A path of which no block counts any more has no rate that could be compared.
    let is_dead = |row: &&rates::diff::Row| row.pps[0] > 0.0 && row.pps[1] == 0.0;
    let mut code = ExitCode::SUCCESS;
    if args.fail_if_worse.is_some() {
        for row in rows.iter().filter(is_dead) {
            let name = printable(&row.name, 200);
            eprintln!("plumb: worse: {name} had packets before, and has no valid block after");
            code = ExitCode::from(WORSE);
        }
        for row in rows.iter().filter(|row| !is_dead(row)) {
            let judged = &row.judged;
            if judged.verdict == Verdict::TooFew || judged.is_blind() {
                let name = printable(&row.name, 200);
                eprintln!(
                    "plumb: {name}: not worse for certain, but too few blocks, or too much noise, \
                     to tell: measure both sides as arms of one run, with more blocks (--blocks)"
                );
            }
        }
    }
    if worse.filter(|row| beyond(row)).count() > 0 {
        code = ExitCode::from(WORSE);
    }
    Ok(code)
}

/// Compare what each instrument measured on both sides, or the one that was asked for.
fn compare(args: &DiffArgs, sides: Sides<'_>, pairs: Pairs) -> anyhow::Result<ExitCode> {
    if let Some(clock) = &args.clock {
        let before = chosen(sides.before, clock)?;
        // The arms of one recording are those of one part.
        if std::ptr::eq(sides.before, sides.after) {
            return compare_parts(args, sides, [&before, &before], pairs);
        }
        let after = chosen(sides.after, clock)?;
        return compare_parts(args, sides, [&before, &after], pairs);
    }
    let own = [sides.before, sides.after].map(Recording::instruments);
    let one_each = own.iter().all(|own| own.len() < 2);
    let rates = own_shapes(sides).contains(&Shape::Rates);
    if one_each || rates {
        return compare_parts(args, sides, [sides.before, sides.after], pairs);
    }
    let both = own[0].iter().filter(|name| own[1].contains(name));
    let both: Vec<&str> = both.copied().collect();
    if args.json || args.csv || args.markdown || args.page.wanted() || both.is_empty() {
        return Err(Usage(format!(
            "the recordings have figures of several instruments ({}; {}): choose one with --clock",
            list(&own[0]),
            list(&own[1])
        ))
        .into());
    }
    let mut code = ExitCode::SUCCESS;
    for (number, name) in both.iter().enumerate() {
        let rule = if number == 0 { "" } else { "\n" };
        print(&format!("{rule}Instrument {}\n\n", printable(name, 80)))?;
        let before = sides.before.part(name);
        let other;
        let after = match std::ptr::eq(sides.before, sides.after) {
            true => &before,
            false => {
                other = sides.after.part(name);
                &other
            }
        };
        let judged = compare_parts(args, sides, [&before, after], pairs.clone())?;
        if judged != ExitCode::SUCCESS {
            code = judged;
        }
    }
    Ok(code)
}

/// What both sides have.
fn own_shapes(sides: Sides<'_>) -> [Shape; 2] {
    [sides.before, sides.after].map(shape)
}

/// Compare parts of two recordings, which one instrument measured each.
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
    let shapes = own_shapes(sides);
    if shapes.contains(&Shape::Rates) {
        return benches(args, sides, &pairs);
    }
    let vary = [sides.before, sides.after]
        .iter()
        .any(|r| varying(r).is_some());
    if vary || shapes.contains(&Shape::Times) {
        return times(args, sides, &pairs);
    }
    if let Some(Limit::Ns(_)) = args.fail_if_worse {
        return Err(Usage(
            "these count instructions: --fail-if-worse takes percent or 10insns here".into(),
        )
        .into());
    }
    let diff = diff::compare(sides, &pairs, &args.direction);
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
    match io::stdout()
        .write_all(text.as_bytes())
        .and_then(|()| io::stdout().flush())
    {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => return Err(e.into()),
        _ => {}
    }
    if args.page.wanted() {
        args.page.put(&html::render(&diff::page::page(&diff)))?;
    }
    Ok(judged(args, &diff))
}

/// The same for times.
fn times(args: &DiffArgs, sides: Sides<'_>, pairs: &Pairs) -> anyhow::Result<ExitCode> {
    let diff = times::compare(sides, pairs, &args.direction);
    if diff.one_clock && diff.classes.is_empty() {
        let mut text = String::from("no class of times is on both sides");
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
        args.page.put(&html::render(&times::page::page(&diff)))?;
    }
    let Some(limit) = args.fail_if_worse else {
        return Ok(ExitCode::SUCCESS);
    };
    if !diff.one_clock {
        return Err(Usage(
            "--fail-if-worse needs one clock: between instructions and nanoseconds nothing is worse".into(),
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
                    "times are in nanoseconds: --fail-if-worse takes percent or 10ns here".into(),
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
            eprintln!("plumb: not worse by more than {told} for certain; but {why}");
        }
    }
    Ok(code)
}

/// Why nothing could be compared.
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
        "nothing{what} is on both sides; {} has {}; {} has {}",
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

/// The exit code, with a word on those that got worse.
fn judged(args: &DiffArgs, diff: &Diff<'_>) -> ExitCode {
    let Some(limit) = args.fail_if_worse else {
        return ExitCode::SUCCESS;
    };
    let mut code = ExitCode::SUCCESS;
    for class in &diff.classes {
        if class.verdict != diff::Verdict::Worse {
            continue;
        }
        // What is certain: all of the change, or the part that blocks did not blur.
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
