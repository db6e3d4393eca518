//! The footer under a profile: the sampling, its cost, and what its samples don't show.

use netplumb_model::quantity::Declared;
use netplumb_model::recording::{Block, Recording};
use netplumb_model::timing::{
    CPU_TIME, CYCLES, FREQUENCY, IDLE, LATE, LINES, NAMES, OFF_CPU, ON_TIME, PROGRAMS, REACHED,
    READER, STACKS_COPIED, STACKS_CUT, TAKEN, TICKS, USER_STACKS, WAITS_BEGUN, WAITS_ENDED,
    WAITS_OPEN,
};

use super::blind;
use super::blocks::{blocks, intervals};
use super::common::{CUT_SHORT, kernel, lost};
use super::devices::devices;
use super::layers;
use crate::acting;
use crate::analysis::{ClassView, quantity};
use crate::footer::Note;
use crate::number::{printable, thousands};
use crate::scalars::of_run;
use crate::times::ns;

/// How user stacks were followed, in recordings without that fact.
const BY_FRAMES: &str = "frame pointers";
const BY_TABLES: &str = "unwind tables";
const BY_BOTH: &str = "frame pointers, and by unwind tables where these don't hold";
/// From this share on, cut user stacks are reported.
const MUCH_CUT: f64 = 0.05;

/// Notes under a result. `classes` are the shown ones.
pub(super) fn footer(recording: &Recording, classes: &[ClassView<'_>]) -> Vec<Note> {
    let waits = quantity(recording).is(&OFF_CPU);
    let clock = match waits {
        true => OFF_CPU_CLOCK.into(),
        false => clock(recording),
    };
    let mut notes = vec![Note::new("clock", clock), kernel(recording)];
    notes.extend(devices(recording));
    notes.extend(acting::footer(recording));
    match waits {
        true => notes.push(ledger(recording)),
        false => {
            notes.push(Note::new("samples", samples(recording)));
            notes.extend(late(recording));
            notes.extend(stacks(recording));
        }
    }
    let cost = cost(recording).filter(|_| !waits);
    notes.extend(cost.map(|text| Note::new("cost", text)));
    notes.push(Note::new("blocks", blocks(recording, classes)));
    notes.extend(intervals(classes).map(|text| Note::new("interval", text)));
    notes.push(layers(classes, "cost"));
    notes.extend(lost(
        recording,
        "none: every sample has a stack, and there was room for all",
        CUT_SHORT,
    ));
    notes
}

/// The explanation of time off the CPU.
const OFF_CPU_CLOCK: &str = "time off the CPU, from each switch of tasks to the next: [preempted] \
    was runnable, [sleep] waited for something, [I/O] for a disk or the like, [blocked] for what \
    can't be interrupted; one that was off the CPU before the first window is not there until it \
    runs";

/// Every wait that began has ended, or is open.
fn ledger(recording: &Recording) -> Note {
    let (begun, ended) = (sum(recording, &WAITS_BEGUN), sum(recording, &WAITS_ENDED));
    let open = recording.scalars_of(&WAITS_OPEN).last();
    let open = open.map_or(0.0, |scalar| scalar.value);
    let closes = begun == ended + open;
    let text = format!(
        "{} begun = {} ended + {} still open, whose time counts until the end",
        thousands(begun as u64),
        thousands(ended as u64),
        thousands(open as u64)
    );
    match closes {
        true => Note::new("waits", text),
        false => Note::warning("waits", format!("INVALID: {text}")),
    }
}

/// A figure of blocks, summed.
fn sum(recording: &Recording, of: &Declared) -> f64 {
    let of_blocks = recording.scalars_of(of).filter(|s| s.block().is_some());
    of_blocks.map(|scalar| scalar.value).sum()
}

fn clock(recording: &Recording) -> String {
    let event = recording.environment.get("sampled.event");
    let event = event.map_or("cpu-clock".into(), |event| printable(event, 40));
    let what = match quantity(recording).is(&CYCLES) {
        true => "cycles of CPUs that are not halted, which are no time: their rate varies",
        false => "CPU time",
    };
    format!(
        "{what}, of the kernel and of programs, by samples of event {event}; a sample stands for \
         what passed since the one before; a function that no sample found is in no table"
    )
}

/// The rate, requested and reached, and the number of samples.
fn samples(recording: &Recording) -> String {
    let cost = |c: &&netplumb_model::recording::Cost| {
        let quantity = recording.quantities.get(c.quantity as usize);
        quantity.is_some_and(|q| q.is(&CPU_TIME) || q.is(&CYCLES))
    };
    let samples: u64 = recording.costs.iter().filter(cost).map(|c| c.calls).sum();
    let mut text = thousands(samples);
    let idle = sum(recording, &IDLE);
    if idle > 0.0 {
        text.push_str(&format!(", and {} of idle CPUs", thousands(idle as u64)));
    }
    let reached: Vec<f64> = recording.scalars_of(&REACHED).map(|s| s.value).collect();
    if let Some(asked) = of_run(recording, &FREQUENCY)
        && !reached.is_empty()
    {
        let mean = reached.iter().sum::<f64>() / reached.len() as f64;
        text.push_str(&format!("; {asked:.0} a second asked for of each CPU, {mean:.0} reached"));
    }
    let of = |of: fn(&Block) -> u64| -> u64 { recording.blocks.iter().map(of).sum() };
    let (kernel, user) = (of(Block::kernel), of(Block::user));
    let all = (kernel + user).max(1) as f64;
    text.push_str(&format!(
        "; {:.1}% in the kernel, {:.1}% in programs",
        kernel as f64 * 100.0 / all,
        user as f64 * 100.0 / all
    ));
    text
}

/// The share that the clock misplaces: at least the late samples, at most these and the ones where
/// interrupts are enabled.
fn late(recording: &Recording) -> Option<Note> {
    let (timed, late) = (sum(recording, &ON_TIME), sum(recording, &LATE));
    (timed > 0.0).then(|| {
        Note::new(
            "irqs off",
            format!(
                "{:.1}% of the samples came more than 10 us late: interrupts were off until then, \
                 or this CPU did not run; their time belongs to code before that which they found. \
                 Shorter sections are not in that: {}",
                late * 100.0 / timed,
                blind::charged(recording)
                    .unwrap_or_else(|| "how many samples they have is not known".into())
            ),
        )
    })
}

/// The share of programs' stacks that are cut.
fn stacks(recording: &Recording) -> Option<Note> {
    let (all, cut) = (sum(recording, &USER_STACKS), sum(recording, &STACKS_CUT));
    let how = recording.environment.get("sampled.user_stacks");
    let how = match how.map(String::as_str) {
        Some("dwarf") => BY_TABLES,
        Some("auto") => BY_BOTH,
        _ => BY_FRAMES,
    };
    let share = cut / all.max(1.0);
    (all > 0.0).then(|| {
        let copied = match how {
            BY_BOTH => format!(
                " ({:.1}% were copied for that)",
                sum(recording, &STACKS_COPIED) * 100.0 / all.max(1.0)
            ),
            _ => String::new(),
        };
        let text = format!(
            "of programs, by {how}{copied}: {:.1}% end before a function that a thread begins with",
            share * 100.0
        );
        match share > MUCH_CUT {
            true => Note::warning(
                "stacks",
                match how {
                    BY_FRAMES => {
                        text + "; their callers are missing, or wrong (code without frame pointers, or \
                                made at run time): --user-stacks auto follows the former"
                    }
                    _ => {
                        text + "; their callers are missing (files without unwind tables, stacks \
                                larger than what is copied, or code made at run time)"
                    }
                },
            ),
            false => Note::new("stacks", text),
        }
    })
}

/// Ticks per sample, from which on most of the cost of sampling is not for samples.
const MOSTLY_OTHERS: f64 = 2.0;

/// The cost of sampling.
pub(super) fn cost(recording: &Recording) -> Option<String> {
    let of = |of| sum(recording, of);
    let (programs, reader, names) = (of(&PROGRAMS), of(&READER), of(&NAMES));
    let all = of(&TAKEN) + of(&IDLE);
    let time_text = |value: f64| match ns(value) {
        long if long.ends_with('s') => long,
        short => format!("{short} ns"),
    };
    (all > 0.0 && programs + reader > 0.0).then(|| {
        let ticks = of(&TICKS);
        let mut text = match ticks > MOSTLY_OTHERS * all {
            // The cost depends on the ticks and the duration, not on the few ticks that count.
            true => format!(
                "{} of CPU time in all: {} in the kernel's programs, {} for each of {} ticks of all CPUs, of \
                 which {} found what is profiled, without the interrupts that run them; and {} in this process",
                time_text(programs + reader),
                time_text(programs),
                time_text(programs / ticks),
                thousands(ticks as u64),
                thousands(all as u64),
                time_text(reader)
            ),
            false => format!(
                "{} of CPU time per sample: {} in the kernel's programs, without the interrupts that \
                 run them, and {} in this process",
                time_text((programs + reader) / all),
                time_text(programs / all),
                time_text(reader / all)
            ),
        };
        if names > 0.0 {
            let apart = format!("; besides, {} to find the names of functions", time_text(names));
            text.push_str(&apart);
            let lines: f64 = recording.scalars_of(&LINES).map(|s| s.value).sum();
            if lines > 0.0 {
                text.push_str(&format!(", and {} their source lines", time_text(lines)));
            }
        }
        text
    })
}
