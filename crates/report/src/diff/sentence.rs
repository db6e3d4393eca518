//! What a comparison comes to, in a sentence for each class.

use netplumb_model::class::{Class, Direction, Proto};
use netplumb_model::recording::Arm;

use super::arms::differing;
use super::exact::Delta;
use super::side::Side;
use super::{Change, ClassDiff, Diff, FunctionChange, Verdict};
use crate::number::{per_packet, printable, thousands};

/// Names in a sentence are cut to this.
const NAME_LIMIT: usize = 60;

/// "UDP send".
pub fn words(class: Class) -> String {
    let proto = match class.proto {
        Proto::Raw => "RAW",
        Proto::Udp => "UDP",
        Proto::Tcp => "TCP",
    };
    let direction = match class.direction {
        Direction::Tx => "send",
        Direction::Rx => "receive",
        Direction::Forward => "forward",
        Direction::Echo => "echo",
        Direction::Ack => "ack",
        Direction::Other => "other",
    };
    format!("{proto} {direction}")
}

/// What tells two arms apart: "link lo → veth, 10 → 1024 bytes"; of arms of one
/// kind, their name.
pub fn label(before: &Arm, after: &Arm) -> String {
    let differences = differing(before, after);
    if differences.is_empty() {
        return match before.name == after.name {
            true => printable(&before.name, NAME_LIMIT),
            false => format!(
                "{} → {}",
                printable(&before.name, NAME_LIMIT),
                printable(&after.name, NAME_LIMIT)
            ),
        };
    }
    let told: Vec<String> = differences
        .iter()
        .map(|(what, was, is)| {
            let [what, was, is] = [what, was, is].map(|t| printable(t, 40));
            format!("{what} {was} → {is}")
        })
        .collect();
    told.join(", ")
}

/// A change with its sign: whole where it is, else to one decimal, or to two below
/// ten.
pub fn signed(delta: &Delta) -> String {
    let size = delta.size();
    let sign = match delta.numerator {
        0 => return "0".into(),
        n if n < 0 => "-",
        _ => "+",
    };
    if size.is_multiple_of(delta.denominator.max(1)) {
        let whole = u64::try_from(size / delta.denominator.max(1)).unwrap_or(u64::MAX);
        return format!("{sign}{}", thousands(whole));
    }
    let value = delta.value().abs();
    if value < 0.005 {
        format!("{sign}<0.01")
    } else if value < 10.0 {
        format!("{sign}{value:.2}")
    } else {
        let tenths = (value * 10.0).round() as u64;
        format!("{sign}{}.{}", thousands(tenths / 10), tenths % 10)
    }
}

/// A change in percent of what was: "-1.8%", "new".
pub fn percent(change: &Change) -> String {
    match change.percent() {
        None if change.after.sum == 0 => String::new(),
        None => "new".into(),
        Some(_) if change.delta().numerator == 0 => String::new(),
        Some(p) if p.abs() < 0.05 => format!("{p:+.3}%"),
        Some(p) if p.abs() < 1_000.0 => format!("{p:+.1}%"),
        Some(_) => format!("x {:.1}", change.after.value() / change.before.value()),
    }
}

/// One side of a change.
pub fn figure(side: super::PerPacket) -> String {
    per_packet(side.sum, side.packets)
}

/// The class, after what tells its arms apart.
pub fn subject(class: &ClassDiff) -> String {
    let mut words = words(class.before);
    if class.before != class.after {
        words = format!("{words} → {}", self::words(class.after));
    }
    match class.label.as_str() {
        "" => words,
        label => format!("{words} ({label})"),
    }
}

/// "UDP send: 6,277 to 6,161 instructions per packet, -116 (-1.8%), all of it in
/// nft_do_chain".
pub fn sentence(diff: &Diff<'_>, class: &ClassDiff) -> String {
    let (was, is) = (figure(class.total.before), figure(class.total.after));
    let delta = class.total.delta();
    let subject = subject(class);
    let changed: Vec<&FunctionChange> = class.changed().collect();
    if class.verdict.differs() {
        return format!(
            "{subject}: {was} to {is} instructions per packet, {} ({}){}",
            signed(&delta),
            percent(&class.total),
            place(diff, &delta, &changed)
        );
    }
    let mut text = if was == is {
        format!("{subject}: {is} instructions per packet, ")
    } else {
        format!("{subject}: {was} to {is} instructions per packet, ")
    };
    text.push_str("no difference");
    match class.verdict {
        Verdict::WithinSpread => {
            text.push_str(" beyond the spread of the blocks");
            if let Some(blind) = class.blind() {
                text.push_str(&format!(
                    "; a change of less than {blind:.1} could not have been seen"
                ));
            }
        }
        Verdict::Negligible => {
            text.push_str(&format!(
                " of an instruction in every packet ({} on average)",
                signed(&delta)
            ));
        }
        _ => {}
    }
    if !changed.is_empty() {
        let names: Vec<String> = changed
            .iter()
            .take(2)
            .map(|f| format!("{} {}", name(diff, f), signed(&f.self_insns.delta())))
            .collect();
        let more = match changed.len() {
            1 | 2 => String::new(),
            n => format!(" and {} more", n - 2),
        };
        text.push_str(&format!(" in all, but in {}{more}", names.join(", ")));
    }
    text
}

fn name(diff: &Diff<'_>, function: &FunctionChange) -> String {
    printable(
        &diff.functions.joints[function.function as usize].name,
        NAME_LIMIT,
    )
}

/// Where it is: ", all of it in X".
fn place(diff: &Diff<'_>, delta: &Delta, changed: &[&FunctionChange]) -> String {
    /// From this share on, in percent, two functions are most of it.
    const MOST: u128 = 60;
    let size = |f: &&FunctionChange| f.self_insns.delta().size();
    let gross: u128 = changed.iter().map(size).fold(0, u128::saturating_add);
    let share = |part: u128| part.saturating_mul(100) / gross.max(1);
    let [first, rest @ ..] = changed else {
        return ", in no function by more than the blocks differ".into();
    };
    let first_name = name(diff, first);
    if rest.is_empty() {
        return match first.self_insns.delta().size() == delta.size() {
            true => format!(", all of it in {first_name}"),
            false => format!(", nearly all of it in {first_name}"),
        };
    }
    // Where much goes up and much down, a share of what is left says little.
    let opposed: u128 = changed
        .iter()
        .filter(|f| (f.self_insns.delta().numerator < 0) != (delta.numerator < 0))
        .map(size)
        .fold(0, u128::saturating_add);
    let counts = || {
        let up = changed
            .iter()
            .filter(|f| f.self_insns.delta().numerator > 0)
            .count();
        (up, changed.len() - up)
    };
    if share(opposed) >= 20 {
        let (up, down) = counts();
        let sum = |up: bool| {
            changed
                .iter()
                .map(|f| f.self_insns.delta())
                .filter(|d| (d.numerator > 0) == up)
                .fold(delta.none(), |sum, d| sum.plus(&d))
        };
        return format!(
            ": {} in {}, {} in {} (largest {first_name} {})",
            signed(&sum(true)),
            functions(up),
            signed(&sum(false)),
            functions(down),
            signed(&first.self_insns.delta())
        );
    }
    let top = size(first);
    if share(top) >= MOST {
        return format!(", most of it in {first_name}");
    }
    if share(top.saturating_add(size(&rest[0]))) >= MOST {
        return format!(", most of it in {first_name} and {}", name(diff, rest[0]));
    }
    format!(
        ", spread over {} (largest {first_name} {})",
        functions(changed.len()),
        signed(&first.self_insns.delta())
    )
}

fn functions(count: usize) -> String {
    match count {
        1 => "1 function".into(),
        n => format!("{n} functions"),
    }
}

/// A direction that one side alone has.
pub(super) fn one_side(arm: &Arm, direction: Direction, side: &Side<'_>, name: &str) -> String {
    let class = Class {
        proto: arm.proto,
        direction,
    };
    format!(
        "{}: only in {}, {} instructions per packet",
        words(class),
        printable(name, 120),
        per_packet(side.sum(), side.packets)
    )
}
