//! The counts, by event.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::events::{
    self, COUNT, ENABLED, INSTRUMENT, RUNNING, Ratio, TASK_COUNT, TASK_TIME, TIME, is_time,
};
use netplumb_model::quantity::Declared;
use netplumb_model::recording::Recording;
use netplumb_stats::welch::{Mean, mean};

use super::counted::EventCount;
use super::layers;
use crate::per::{Per, offered};

/// Tasks of an event that are shown to people.
const TASKS: usize = 10;
/// Nanoseconds of a second.
const SECOND: f64 = 1e9;
/// The counted event that a name means: the one of that name, or else its user-mode variant, counted in
/// its place where the kernel allows only that.
pub(crate) fn meant<'n>(counted: &[&'n str], name: &str) -> Option<&'n str> {
    let called = |name: &str| counted.iter().copied().find(|known| *known == name);
    called(name).or_else(|| called(&format!("{name}:u")))
}

/// All counts, by arm and then in the requested order.
pub(crate) fn counts(recording: &Recording) -> Vec<EventCount<'_>> {
    let blocks = |arm: usize| -> Vec<u32> {
        let all = (0..).zip(&recording.blocks);
        all.filter(|(_, b)| b.arm as usize == arm && b.instrument == INSTRUMENT)
            .map(|(number, _)| number)
            .collect()
    };
    let by_arm: Vec<Vec<u32>> = (0..recording.arms.len()).map(blocks).collect();
    // Where each block is: its arm, and its place among the arm's.
    let mut places: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    for (arm, blocks) in by_arm.iter().enumerate() {
        places.extend(blocks.iter().enumerate().map(|(at, b)| (*b, (arm, at))));
    }
    let mut all: Vec<EventCount<'_>> = Vec::new();
    type Key<'a> = (usize, &'a str, Option<u32>, Option<&'a str>);
    let mut known: BTreeMap<Key<'_>, usize> = BTreeMap::new();
    for (of, is_time, by_task) in [
        (&COUNT, false, false),
        (&TIME, true, false),
        (&TASK_COUNT, false, true),
        (&TASK_TIME, true, true),
    ] {
        for scalar in recording.scalars_of(of) {
            let place = scalar.block().and_then(|block| places.get(&block));
            let (Some(&(arm, at)), Some(name)) = (place, scalar.item.label.as_deref()) else {
                continue;
            };
            let number = scalar.item.number;
            let (cpu, task) = match by_task {
                false => (number, None),
                true => {
                    let thread = number.and_then(|n| recording.threads.get(n as usize));
                    (None, Some(thread.map_or("", |thread| thread.name.as_str())))
                }
            };
            let key = (arm, name, cpu, task);
            let index = *known.entry(key).or_insert_with(|| {
                let proto = recording.arms[arm].proto;
                let of = |blocks: &[u32]| {
                    Per::from_recording(recording, proto, blocks, offered(recording, blocks))
                };
                let blocks = &by_arm[arm];
                let seconds = blocks.iter().map(|b| &recording.blocks[*b as usize]);
                all.push(EventCount {
                    arm,
                    name,
                    cpu,
                    task: task.map(Cow::Borrowed),
                    layer: None,
                    is_time,
                    values: vec![0.0; blocks.len()],
                    per: blocks.iter().map(|block| of(&[*block])).collect(),
                    per_all: of(blocks),
                    seconds: seconds.map(|b| b.duration_ns as f64 / SECOND).sum(),
                    counted_ns: None,
                });
                all.len() - 1
            });
            all[index].values[at] += scalar.value;
        }
    }
    let mut add = |of: &Declared, end: usize| {
        for scalar in recording.scalars_of(of) {
            let place = scalar.block().and_then(|block| places.get(&block));
            if let (Some(&(arm, _)), Some(name)) = (place, scalar.item.label.as_deref())
                && let Some(&index) = known.get(&(arm, name, None, None))
            {
                let sums: &mut EventCount<'_> = &mut all[index];
                sums.counted_ns.get_or_insert_default()[end] += scalar.value;
            }
        }
    };
    add(&ENABLED, 0);
    add(&RUNNING, 1);
    // In a recording times come after counts; here all are in the requested order.
    let mut order: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, scalar) in recording.scalars.iter().enumerate() {
        if let Some(name) = scalar.item.label.as_deref() {
            order.entry(name).or_insert(at);
        }
    }
    let parts = layers::parts(recording, &all, &places);
    all.extend(parts);
    // Tasks and layers that did most come first.
    let by_most = |c: &EventCount<'_>| c.task.is_some() || c.layer.is_some();
    let most = |c: &EventCount<'_>| Reverse(if by_most(c) { c.total() as u64 } else { 0 });
    all.sort_by_key(|c| {
        let of_task = (most(c), c.task.clone(), c.layer);
        (c.arm, order.get(c.name).copied(), c.cpu, c.is_part(), of_task)
    });
    all
}

/// Parts of an event by task: shown ones, and all others in one.
fn with_few_tasks(all: Vec<EventCount<'_>>) -> Vec<EventCount<'_>> {
    let mut shown: Vec<EventCount<'_>> = Vec::new();
    let (mut tasks, mut others) = (0, 0);
    for counted in all {
        if counted.task.is_none() {
            (tasks, others) = (0, 0);
            shown.push(counted);
            continue;
        }
        tasks += 1;
        if tasks <= TASKS {
            shown.push(counted);
            continue;
        }
        others += 1;
        let name = Some(format!("({others} others)").into());
        match shown.last_mut() {
            Some(last) if others > 1 => {
                for (sum, more) in last.values.iter_mut().zip(&counted.values) {
                    *sum += more;
                }
                last.task = name;
            }
            _ => shown.push(EventCount { task: name, ..counted }),
        }
    }
    shown
}

/// A row of the table.
#[derive(Debug, Clone)]
pub(super) struct EventRow<'a> {
    /// Its arm; empty if the event was counted in none.
    pub(super) arm: &'a str,
    pub(super) name: &'a str,
    pub(super) counted: Option<EventCount<'a>>,
    /// Why it was not counted.
    pub(super) why: Option<&'a str>,
}

impl EventRow<'_> {
    /// The mean over blocks, per run, packet or second.
    pub(super) fn mean(&self) -> Option<Mean> {
        let counted = self.counted.as_ref()?;
        let of_blocks = Mean::from_values(&counted.each())?;
        // Blocks need not be of one length.
        Some(Mean { value: counted.per_all.each(counted.total()), ..of_blocks })
    }

    pub(super) fn has_interval(&self) -> bool {
        self.mean().is_some_and(|mean| mean.low.is_some())
    }

    /// The part of the time in which it was counted, where that is known.
    pub(super) fn share(&self) -> Option<f64> {
        self.counted.as_ref()?.share()
    }

    /// Whether it was not counted all the time.
    pub(super) fn is_shared(&self) -> bool {
        self.counted.as_ref().is_some_and(EventCount::is_shared)
    }

    /// In a second.
    pub(super) fn per_second(&self) -> Option<f64> {
        let counted = self.counted.as_ref()?;
        (counted.seconds > 0.0).then(|| counted.total() / counted.seconds)
    }

    pub(super) fn per(&self) -> Option<&'static str> {
        Some(self.counted.as_ref()?.per_all.word())
    }

    pub(super) fn is_time(&self) -> bool {
        self.counted.as_ref().is_some_and(|c| c.is_time)
    }
}

/// The rows for people: with many tasks, only the largest.
pub(super) fn shown(recording: &Recording) -> Vec<EventRow<'_>> {
    rows_of(recording, with_few_tasks)
}

/// All rows: counted events, then missing ones.
pub(super) fn rows(recording: &Recording) -> Vec<EventRow<'_>> {
    rows_of(recording, |all| all)
}

fn rows_of(
    recording: &Recording,
    select: fn(Vec<EventCount<'_>>) -> Vec<EventCount<'_>>,
) -> Vec<EventRow<'_>> {
    // An event that never happened has no parts by CPU.
    let mut counted = counts(recording);
    counted.retain(|c| !c.is_part() || c.total() > 0.0);
    let missing = missing(recording, &counted);
    let counted = select(counted).into_iter();
    let mut rows: Vec<EventRow<'_>> = counted
        .map(|counted| EventRow {
            arm: &recording.arms[counted.arm].name,
            name: counted.name,
            counted: Some(counted),
            why: None,
        })
        .collect();
    rows.extend(missing);
    rows
}

/// Events that were not counted: by arm, if kernels differ in their events.
fn missing<'r>(recording: &'r Recording, counted: &[EventCount<'r>]) -> Vec<EventRow<'r>> {
    let arms: BTreeSet<usize> = counted.iter().map(|c| c.arm).collect();
    let not_measured = recording.not_measured.get(INSTRUMENT).into_iter().flatten();
    let rows = not_measured.flat_map(|(name, why)| {
        let of = counted.iter().filter(|c| c.name == name);
        let has: BTreeSet<usize> = of.map(|c| c.arm).collect();
        let without = arms.difference(&has).map(|arm| &*recording.arms[*arm].name);
        let arms: Vec<&str> = match has.is_empty() {
            true => vec![""],
            false => without.collect(),
        };
        arms.into_iter().map(move |arm| EventRow { arm, name, counted: None, why: Some(why) })
    });
    rows.collect()
}

/// A ratio of two events in an arm.
#[derive(Debug, Clone)]
pub(super) struct Divided {
    pub(super) arm: String,
    pub(super) ratio: String,
    /// What it is in.
    pub(super) unit: &'static str,
    /// None if either event was not counted, or the denominator never happened.
    pub(super) mean: Option<Mean>,
}

/// The requested ratios. A time is in seconds as denominator, in nanoseconds as numerator.
pub(super) fn divided(recording: &Recording, ratios: &[String]) -> Vec<Divided> {
    let all = counts(recording);
    let ratios = ratios.iter().filter_map(|text| Ratio::parse(text).ok());
    let ratios: Vec<Ratio> = ratios.collect();
    let mut rows = Vec::new();
    for (number, arm) in recording.arms.iter().enumerate() {
        let whole = || all.iter().filter(|c| c.arm == number && !c.is_part());
        let names: Vec<&str> = whole().map(|c| c.name).collect();
        let of = |name: &str| {
            let name = meant(&names, name)?;
            whole().find(|c| c.name == name)
        };
        for ratio in &ratios {
            let both = of(&ratio.over).zip(of(&ratio.under));
            // Events that carry a time are counts where their causes were counted.
            let times = match both {
                Some((over, under)) => (over.is_time, under.is_time),
                None => (is_time(&ratio.over), is_time(&ratio.under)),
            };
            let unit = match times {
                (true, false) => "ns",
                (false, true) => "/s",
                _ => "",
            };
            let mean = both.and_then(|(over, under)| {
                let scale = if unit == "/s" { SECOND } else { 1.0 };
                ratio_of(&over.values, &under.values, scale)
            });
            rows.push(Divided { arm: arm.name.clone(), ratio: ratio.to_string(), unit, mean });
        }
    }
    rows
}

/// The ratio of two sums over the same blocks, with its interval from each block's deviation, as for
/// any ratio estimate (Cochran, "Sampling Techniques", chapter 6).
pub(super) fn ratio_of(over: &[f64], under: &[f64], scale: f64) -> Option<Mean> {
    let below = mean(under);
    if below <= 0.0 {
        return None;
    }
    let ratio = mean(over) / below;
    let each = over.iter().zip(under);
    let each: Vec<f64> = each.map(|(a, b)| (ratio + (a - ratio * b) / below) * scale).collect();
    // A block may be off by more than the ratio, but no count is below 0.
    Mean::from_values(&each).map(|mean| Mean { low: mean.low.map(|low| low.max(0.0)), ..mean })
}

/// The unit of an event's count.
pub(super) fn unit(is_time: bool) -> &'static str {
    match is_time {
        true => events::TIME.unit,
        false => events::COUNT.unit,
    }
}
