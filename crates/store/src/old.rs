//! Reads recordings of older schemas. The file is never changed: versions before 3 are migrated to
//! that in a copy in memory, and version 3 is read here.
//!
//! Up to version 3 figures were in the environment and in counters, under dotted names: only this
//! module parses those.

use std::collections::BTreeMap;

use netplumb_model::bench::{Hop, quantities as rates};
use netplumb_model::quantity::{Declared, Item, Kind, Of};
use netplumb_model::recording::{
    Arm, Block, BlockHop, Cost, Ledger, Made, MadeBy, Recording, Total, env,
};
use netplumb_model::span::{Call, Span, SpanOf, Stage};
use netplumb_model::timing::{
    ATTACH, ATTACH_EACH, ATTACH_ONLY, BUSY, CALIBRATION, CPU_TIME, DELIVERED, DROPPED, FOLLOWED,
    INSTRUCTIONS, INTERRUPTIONS, LATENCY_P50, LATENCY_P99, Mechanism, OUTSIDE, OWN_CPU, PAUSED,
    PERIOD, QEMU_PEAK, RELEASE, SEEN, Step,
};
use rusqlite::Connection;

use crate::row::{Wrong, count, each, finite, get, known, name, numbered, of, rows, word};
use crate::span::times;

/// The schema of version 3, except for what [`TIMED`] adds.
pub(crate) const SCHEMA_3: &str = include_str!("old/schema-3.sql");
/// The tables of times: the step to version 3.
pub(crate) const TIMED: &str = include_str!("old/timed.sql");
/// The last version that is read here.
pub(crate) const LAST: i32 = 3;

/// A step for each version: `STEPS[n]` migrates n to n + 1. Version 0 was never released.
const STEPS: &[&str] = &["", LINES, TIMED];

/// Version 2 has lines of user code.
const LINES: &str = "
CREATE TABLE source_file (
  id   INTEGER NOT NULL PRIMARY KEY,
  path TEXT NOT NULL
) STRICT;
ALTER TABLE function ADD COLUMN file INTEGER REFERENCES source_file(id);
ALTER TABLE function ADD COLUMN line INTEGER;
CREATE TABLE line_cost (
  block    INTEGER NOT NULL REFERENCES block(id),
  function INTEGER NOT NULL REFERENCES function(id),
  file     INTEGER NOT NULL REFERENCES source_file(id),
  line     INTEGER NOT NULL,
  insns    INTEGER NOT NULL,
  PRIMARY KEY (block, function, file, line)
) STRICT, WITHOUT ROWID;
";

/// Migrate a database in memory to version 3.
pub(crate) fn up(connection: &Connection, from: i32) -> rusqlite::Result<()> {
    for step in STEPS.iter().skip(from.max(0) as usize) {
        connection.execute_batch(step)?;
    }
    Ok(())
}

/// Read blocks. Their totals are instructions, or samples.
pub(crate) fn blocks(c: &Connection, recording: &mut Recording) -> Result<(), Wrong> {
    let sampled: Vec<bool> = recording.arms.iter().map(is_sampled).collect();
    let columns = "arm, repetition, offered, delivered, kernel_insns, user_insns, entered, \
                   returned, duration_ns";
    let mut counted = Vec::new();
    recording.blocks = numbered(c, "block", columns, |r| {
        Ok(Block {
            arm: get(r, 1)?,
            instrument: String::new(),
            index: get(r, 2)?,
            ledger: Ledger {
                offered: count(r, 3)?,
                delivered: count(r, 4)?,
                dropped: Default::default(),
            },
            totals: vec![Total { quantity: 0, kernel: count(r, 5)?, user: count(r, 6)? }],
            entered: count(r, 7)?,
            returned: count(r, 8)?,
            duration_ns: count(r, 9)?,
        })
    })?;
    each(c, "cost", "DISTINCT block", "block", |_, r| {
        counted.push(get::<u32>(r, 0)?);
        Ok(())
    })?;
    for at in 0..recording.blocks.len() {
        let total = recording.blocks[at].total();
        let has_costs = counted.binary_search(&(at as u32)).is_ok();
        let arm = recording.blocks[at].arm as usize;
        let is_sampled = sampled.get(arm).is_some_and(|is| *is);
        if !has_costs && !is_sampled && (total.kernel, total.user) == (0, 0) {
            recording.blocks[at].totals.clear();
            continue;
        }
        let quantity = quantity_of(recording, &sampled, arm);
        recording.blocks[at].totals[0].quantity = quantity;
    }
    Ok(())
}

fn is_sampled(arm: &Arm) -> bool {
    arm.knobs.get(COUNTED).is_some_and(|what| what == SAMPLED)
}

/// The knob of an arm whose packets were counted, or sampled, to explain the rate of another one.
const COUNTED: &str = "counted";
/// Its value if they were sampled.
const SAMPLED: &str = "nanoseconds";
/// Suffixes of the names of such arms.
const SUFFIXES: [&str; 2] = [", counted", ", sampled"];
/// The knob of an arm that was run without the instrument, and its value.
const BARE: (&str, &str) = ("probes", "off");

/// Set the instrument of each block: up to version 3 there was one for each recording, except for
/// arms that were counted or sampled. Sampled blocks are moved to the arm that they belong to.
pub(crate) fn instruments(recording: &mut Recording) {
    let clock = recording.environment.get(env::CLOCK).cloned();
    let clock = clock.unwrap_or_else(|| INSTRUCTIONS.instrument.into());
    let mut arms: Vec<Arm> = Vec::new();
    // The new index of each arm, and the instrument of its blocks.
    let mut now: Vec<(u32, String)> = Vec::new();
    for mut arm in std::mem::take(&mut recording.arms) {
        let instrument = match arm.knobs.remove(COUNTED) {
            Some(what) if what == SAMPLED => CPU_TIME.instrument,
            Some(_) => INSTRUCTIONS.instrument,
            None if arm.knobs.get(BARE.0).is_some_and(|v| v == BARE.1) => "",
            None => &clock,
        };
        let beside = *instrument != *clock;
        let stem = SUFFIXES.iter().find_map(|s| arm.name.strip_suffix(s));
        let name = stem.filter(|_| beside).map(String::from);
        if let Some(name) = &name {
            arm.name.clone_from(name);
        }
        let same = arms.iter().position(|a| a.name == arm.name);
        let at = match same.filter(|_| name.is_some()) {
            Some(at) if arms[at].knobs == arm.knobs => at,
            _ => {
                arms.push(arm);
                arms.len() - 1
            }
        };
        now.push((at as u32, instrument.to_string()));
    }
    recording.arms = arms;
    for block in &mut recording.blocks {
        if let Some((arm, instrument)) = now.get(block.arm as usize) {
            block.arm = *arm;
            block.instrument.clone_from(instrument);
        }
    }
    for (arm, mut notes) in std::mem::take(&mut recording.notes) {
        let Some((at, instrument)) = now.get(arm as usize) else {
            continue;
        };
        let whys = std::mem::take(&mut notes.failed);
        let whys = whys.into_values().map(|why| (instrument.clone(), why));
        let known = recording.notes.entry(*at).or_default();
        known.failed.extend(whys);
        known.facts.extend(notes.facts);
        known.inert.extend(notes.inert);
        known.irregular.extend(notes.irregular);
        known.diagnosis = known.diagnosis.take().or(notes.diagnosis);
    }
    for scalar in &mut recording.scalars {
        if let Of::Arm(arm) = &mut scalar.of
            && let Some((at, _)) = now.get(*arm as usize)
        {
            *arm = *at;
        }
    }
}

fn quantity_of(recording: &mut Recording, sampled: &[bool], arm: usize) -> u32 {
    match sampled.get(arm) {
        Some(true) => recording.quantity(&CPU_TIME),
        _ => recording.quantity(&INSTRUCTIONS),
    }
}

/// Read costs, after their blocks.
pub(crate) fn costs(c: &Connection, recording: &mut Recording) -> Result<(), Wrong> {
    let (columns, order) =
        ("block, direction, context, node, calls, self_insns", "block, direction, context, node");
    let quantities: Vec<u32> = (recording.blocks.iter()).map(|b| b.total().quantity).collect();
    recording.costs = rows(c, "cost", columns, order, |r| {
        let block: u32 = get(r, 0)?;
        Ok(Cost {
            block,
            quantity: quantities.get(block as usize).copied().unwrap_or_default(),
            direction: word(r, 1)?,
            context: word(r, 2)?,
            node: get(r, 3)?,
            calls: count(r, 4)?,
            own: count(r, 5)?,
        })
    })?;
    Ok(())
}

/// Read times, which were in two tables: of functions, and of stages.
pub(crate) fn spans(c: &Connection, recording: &mut Recording) -> Result<(), Wrong> {
    let columns = "block, direction, context, node, calls, total_ns, min_ns, max_ns, \
                   corrected_ns, uncertainty_ns";
    let mut calls = numbered(c, "timed", columns, |r| {
        let call = Call {
            context: word(r, 3)?,
            node: get(r, 4)?,
            corrected_ns: known(r, 9)?,
            uncertainty_ns: known(r, 10)?,
        };
        Ok(Span {
            block: get(r, 1)?,
            direction: word(r, 2)?,
            of: SpanOf::Call(call),
            times: times(r, 5)?,
        })
    })?;
    let (columns, order) = ("timed, bucket, calls", "timed, bucket");
    each(c, "timed_bucket", columns, order, |_, r| {
        let span = of(&mut calls, get(r, 0)?, "a time")?;
        span.times.buckets.push((get(r, 1)?, count(r, 2)?));
        Ok(())
    })?;
    let columns = "block, direction, place, name, packets, total_ns, min_ns, max_ns, kind, \
                   passed_over";
    let mut stages = numbered(c, "stage", columns, |r| {
        let stage = Stage {
            order: get(r, 3)?,
            name: name(r, 4)?,
            kind: word(r, 9)?,
            passed_over: count(r, 10)?,
        };
        Ok(Span {
            block: get(r, 1)?,
            direction: word(r, 2)?,
            of: SpanOf::Stage(stage),
            times: times(r, 5)?,
        })
    })?;
    let (columns, order) = ("stage, bucket, packets", "stage, bucket");
    each(c, "stage_bucket", columns, order, |_, r| {
        let span = of(&mut stages, get(r, 0)?, "a stage")?;
        span.times.buckets.push((get(r, 1)?, count(r, 2)?));
        Ok(())
    })?;
    recording.spans = calls;
    recording.spans.append(&mut stages);
    Ok(())
}

/// Read per-packet traces, whose steps were rows.
pub(crate) fn steps(c: &Connection, recording: &mut Recording) -> Result<(), Wrong> {
    let columns = "packet, name, begin_ns, duration_ns, cpu, thread, command, context";
    let steps = rows(c, "step", columns, "rowid", |r| {
        Ok(Step {
            packet: get(r, 0)?,
            name: name(r, 1)?,
            begin_ns: count(r, 2)?,
            duration_ns: count(r, 3)?,
            cpu: get(r, 4)?,
            thread: get(r, 5)?,
            command: name(r, 6)?,
            context: word(r, 7)?,
        })
    })?;
    recording.add_packets(None, &steps);
    Ok(())
}

/// How an arm was made was among its knobs.
pub(crate) fn made(arm: &mut Arm) {
    let repeats = arm.knobs.remove("seed_of");
    let setting = arm.knobs.remove("scan.setting");
    let base = arm.knobs.remove("scan.base");
    let control = arm.knobs.remove("scan.control").is_some();
    arm.made = match (repeats, base) {
        (Some(from), _) => Some(Made { from, by: MadeBy::Seed }),
        (None, Some(from)) => {
            Some(Made { from, by: MadeBy::Scan { setting: setting.unwrap_or_default(), control } })
        }
        (None, None) => None,
    };
}

/// Up to version 3 losses did not name the instrument.
pub(crate) const ANY_INSTRUMENT: &str = "";

/// Figures that were in the environment: the key, the quantity, and the factor to its unit.
const FIGURES: &[(&str, Declared, f64)] = &[
    ("probes.attach_ms", ATTACH, 1e6),
    ("vm.qemu_peak_bytes", QEMU_PEAK, 1.0),
    ("functions.calibration_ns", CALIBRATION, 1.0),
    ("functions.attach_only_ns", ATTACH_ONLY, 1.0),
    ("functions.release_ns", RELEASE, 1.0),
    ("functions.outside_ns", OUTSIDE, 1.0),
    ("sampled.period_ns", PERIOD, 1.0),
    ("swap.programs", rates::PROGRAMS, 1.0),
    ("swap.met_packets", rates::PROGRAMS_MET, 1.0),
    ("blocklist.updates_per_s", rates::LIST_UPDATES, 1.0),
];

/// Move facts about arms, searches and figures out of the environment.
pub(crate) fn environment(recording: &mut Recording) {
    let mut arms: Vec<(usize, String)> =
        (recording.arms.iter().enumerate()).map(|(at, arm)| (at, arm.name.clone())).collect();
    // A name may be a prefix of another one, with a dot.
    arms.sort_by_key(|(_, name)| std::cmp::Reverse(name.len()));
    let arm_of = |rest: &str| -> Option<(usize, String)> {
        arms.iter().find_map(|(at, name)| {
            let key = rest.strip_prefix(name.as_str())?;
            let key = match key.strip_prefix('.') {
                Some(key) => key,
                None if key.is_empty() => "",
                None => return None,
            };
            Some((*at, key.to_string()))
        })
    };
    for (key, value) in std::mem::take(&mut recording.environment) {
        if take(recording, &arm_of, &key, &value).is_none() {
            recording.environment.insert(key, value);
        }
    }
}

/// Move a fact to its place; none if it belongs in the environment.
fn take(
    recording: &mut Recording,
    arm_of: &dyn Fn(&str) -> Option<(usize, String)>,
    key: &str,
    value: &str,
) -> Option<()> {
    if let Some((_, quantity, factor)) = FIGURES.iter().find(|(k, ..)| *k == key) {
        let figure: f64 = value.parse().ok().filter(|f: &f64| f.is_finite())?;
        recording.set(quantity, Item::ONLY, figure * factor);
        return Some(());
    }
    if key == "shed" {
        let names = value.split_whitespace().map(String::from).collect();
        recording.shed.insert(ANY_INSTRUMENT.into(), names);
        return Some(());
    }
    let (kind, rest) = key.split_once('.')?;
    match kind {
        "failed" => {
            let (arm, rest) = arm_of(rest)?;
            let failed = &mut recording.notes_of(arm).failed;
            // The instrument is set when all arms are known: see [`instruments`].
            (rest.is_empty()).then(|| drop(failed.insert(String::new(), value.into())))
        }
        "diagnosis" => {
            let (arm, rest) = arm_of(rest)?;
            let diagnosis = &mut recording.notes_of(arm).diagnosis;
            rest.is_empty().then(|| *diagnosis = Some(value.into()))
        }
        "arm" => {
            let (arm, rest) = arm_of(rest)?;
            let notes = recording.notes_of(arm);
            match rest.strip_prefix("could_not_act.") {
                Some(setting) => notes.inert.insert(setting.into(), value.into()),
                None => notes.facts.insert(rest, value.into()),
            };
            Some(())
        }
        "scan" => {
            let setting = rest.strip_prefix("skipped.")?;
            recording.untried.insert(setting.into(), value.into());
            Some(())
        }
        "not_watched" => {
            let unwatched = recording.unwatched.entry(ANY_INSTRUMENT.into());
            let unwatched = unwatched.or_default();
            unwatched.insert(rest.into(), value.into());
            Some(())
        }
        "functions" => {
            // "12345 for 7 functions"
            let mechanism: Mechanism = rest.strip_prefix("attach_ns.")?.parse().ok()?;
            let ns: f64 = value.split(' ').next()?.parse().ok()?;
            let quantity = &ATTACH_EACH;
            recording.set(quantity, Item::label(mechanism.as_str()), ns);
            Some(())
        }
        "search" => {
            let (arm, rest) = arm_of(rest)?;
            let (goal, key) = rest.split_once('.')?;
            let goal: u32 = goal.parse().ok()?;
            let quantity = match key {
                "loss_ratio" => &rates::GOAL_LOSS,
                "lower_pps" => &rates::GOAL_LOWER,
                "upper_pps" => &rates::GOAL_UPPER,
                "throughput_pps" => &rates::GOAL_THROUGHPUT,
                "trials" => &rates::GOAL_TRIALS,
                "irregular" => {
                    let irregular = &mut recording.notes_of(arm).irregular;
                    irregular.insert(goal, value.into());
                    return Some(());
                }
                _ => return None,
            };
            let figure: f64 = value.parse().ok().filter(|f: &f64| f.is_finite())?;
            recording.add(Of::Arm(arm as u32), quantity, Item::number(goal), figure);
            Some(())
        }
        _ => None,
    }
}

/// The quantity of an unknown counter.
const UNKNOWN: Declared = Declared::new("machine", "counter", "", Kind::Rate).by_label("name");

/// Read counters, which are scalars and hops now.
pub(crate) fn counters(c: &Connection, recording: &mut Recording) -> Result<(), Wrong> {
    let mut hops: BTreeMap<(u32, u32), Hop> = BTreeMap::new();
    each(c, "counter", "block, name, value, unit", "rowid", |_, r| {
        let (block, value): (u32, f64) = (get(r, 0)?, finite(r, 2)?);
        of(&mut recording.blocks, i64::from(block), "a block")?;
        let (name, unit) = (name(r, 1)?, name(r, 3)?);
        let counts = ["packets", "bytes", "runs", "batches", "polls"];
        let is_count = counts.contains(&unit.as_str()) || name.starts_with("hop.");
        if is_count && value < 0.0 {
            return Err(Wrong::Found(format!("negative count {value} {unit}")));
        }
        if hop(&mut hops, block, &name, value).is_some() {
            return Ok(());
        }
        match scalar(&name) {
            Some((quantity, item)) => {
                let unknown = quantity == rates::LIMIT && value <= 0.0;
                let value = if unknown { f64::NAN } else { value };
                recording.add(Of::Block(block), &quantity, item, value);
            }
            // Not written by any version of plumb.
            None => recording.add(Of::Block(block), &UNKNOWN, Item::label(name), value),
        }
        Ok(())
    })?;
    recording.hops = (hops.into_iter()).map(|((block, _), hop)| BlockHop { block, hop }).collect();
    Ok(())
}

/// Parse `hop.N.entered.NAME`, `hop.N.left.NAME` or `hop.N.dropped.CAUSE`.
fn hop(hops: &mut BTreeMap<(u32, u32), Hop>, block: u32, name: &str, value: f64) -> Option<()> {
    let mut words = name.strip_prefix("hop.")?.splitn(3, '.');
    let place: u32 = words.next()?.parse().ok().filter(|n| *n < 64)?;
    let (what, rest) = (words.next()?, words.next()?);
    let hop = hops.entry((block, place)).or_default();
    let n = value as u64;
    match what {
        "entered" => (hop.name, hop.entered) = (rest.into(), n),
        "left" => hop.left = n,
        "dropped" => drop(hop.dropped.insert(rest.into(), n)),
        _ => {}
    }
    Some(())
}

/// The quantity and the item of a counter's name.
fn scalar(name: &str) -> Option<(Declared, Item)> {
    let only = |quantity: Declared| Some((quantity, Item::ONLY));
    match name {
        "handled_cpu_unknown" => return only(rates::HANDLED_CPU_UNKNOWN),
        "handled_bytes" => return only(rates::HANDLED_BYTES),
        "foreign" => return only(rates::FOREIGN),
        "polls.all" => return only(rates::POLLS),
        "polls.useful" => return only(rates::USEFUL_POLLS),
        "limit" => return only(rates::LIMIT),
        "followed" => return only(FOLLOWED),
        "rate.delivered" => return only(DELIVERED),
        "latency.p50" => return only(LATENCY_P50),
        "latency.p99" => return only(LATENCY_P99),
        "cpu.busy" => return only(BUSY),
        "cpu.own" => return only(OWN_CPU),
        "paused" => return only(PAUSED),
        "interruptions" => return only(INTERRUPTIONS),
        _ => {}
    }
    let (kind, rest) = name.split_once('.')?;
    let (first, more) = rest.split_once('.').unwrap_or((rest, ""));
    let number = first.parse::<u32>().ok();
    let of_cpu = |quantity: Declared| Some((quantity, Item::number(number?)));
    match kind {
        "lost" => Some((rates::LOST, Item::label(rest))),
        "ledger" => Some((SEEN, Item::label(rest))),
        "drops" => Some((DROPPED, Item::label(rest))),
        "queue" => of_cpu(rates::BY_QUEUE),
        // The format before it had a name.
        "handled" if number == Some(u32::MAX) => only(rates::HANDLED_CPU_UNKNOWN),
        "handled" => of_cpu(rates::HANDLED),
        "cpu" => of_cpu(match more {
            "busy" => rates::BUSY,
            "second" => rates::BUSY_SECOND,
            "steal" => rates::STEAL,
            "softirq" => rates::SOFTIRQ,
            _ => return None,
        }),
        "generated" => match more.split_once('.') {
            Some(("refused", why)) => Some((rates::REFUSED, Item::of(number?, why))),
            _ => of_cpu(match more {
                "frames" => rates::GENERATED,
                "sent" => rates::SENT,
                "bytes" => rates::GENERATED_BYTES,
                "idle" => rates::IDLE_RUNS,
                "behind" => rates::BEHIND,
                "batches" => rates::BATCHES,
                _ => return None,
            }),
        },
        _ => None,
    }
}
