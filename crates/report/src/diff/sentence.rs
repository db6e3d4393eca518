//! The result of a comparison, in a sentence for each class.

use netplumb_model::class::{Class, Direction, Proto};
use netplumb_model::recording::Recording;

use netplumb_stats::judge::{self, MIN_BLOCKS};

use super::exact::{Delta, PerPacket};
use super::side::Side;
use super::{Change, ClassDiff, Counts, DiffRow, ExactVerdict, Verdict};
use crate::acting;
use crate::analysis::NO_LAYER;
use crate::interval;
use crate::number::{counted, per_packet, printable, thousands};
use crate::text::{code, prose};
use crate::times::{ns, ns_range, rounded};

/// How names are written in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// As they are.
    Plain,
    /// Functions as code, everything else with Markdown's characters escaped.
    Markdown,
}

impl Style {
    /// A function's name.
    pub fn name(self, name: &str) -> String {
        match self {
            Style::Plain => printable(name, NAME_LIMIT),
            Style::Markdown => code(name, NAME_LIMIT),
        }
    }

    /// Other text.
    pub fn text(self, text: &str, limit: usize) -> String {
        match self {
            Style::Plain => printable(text, limit),
            Style::Markdown => prose(text, limit),
        }
    }
}

/// Text in HTML.
pub(super) fn html(text: &str) -> String {
    printable(text, 200)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Names in a sentence are cut to this.
const NAME_LIMIT: usize = 60;

/// "UDP send".
pub fn words(class: Class) -> String {
    let proto = match class.proto {
        Proto::Work => return "CPU time".into(),
        proto => word(proto),
    };
    let direction = match class.direction {
        Direction::Tx => "send",
        Direction::Rx => "receive",
        Direction::Forward => "forward",
        Direction::Echo => "echo",
        Direction::Ack => "ack",
        Direction::Drop => "drop",
        Direction::Connect => "connect",
        Direction::Accept => "accept",
        Direction::Close => "close",
        Direction::Reply => "reply",
        Direction::Run => "run",
        Direction::Other => "other",
    };
    format!("{proto} {direction}")
}

fn word(proto: Proto) -> &'static str {
    match proto {
        Proto::Raw => "RAW",
        Proto::Udp => "UDP",
        Proto::Tcp => "TCP",
        Proto::Command => "Command",
        Proto::Work => "CPU time",
    }
}

/// A change with its sign: without decimals if it is whole, else with one, or two
/// below ten.
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

/// Parts of a change with their signs, rounded so that they add up to it as shown by [`signed`].
pub fn signed_parts(whole: &Delta, parts: &[Delta]) -> Vec<String> {
    let denominator = whole.denominator.max(1);
    let exact = |d: &Delta| d.size().is_multiple_of(denominator);
    if exact(whole) && parts.iter().all(exact) {
        return parts.iter().map(signed).collect();
    }
    // As many decimals as the whole is shown with.
    let scale: i128 = match whole.value().abs() < 10.0 && !exact(whole) {
        true => 100,
        false => 10,
    };
    let share = i128::try_from(denominator).unwrap_or(i128::MAX);
    let half = |n: i128| if n < 0 { -(share / 2) } else { share / 2 };
    let rounded = |d: &Delta| {
        let scaled = d.numerator.saturating_mul(scale);
        scaled.saturating_add(half(scaled)) / share
    };
    let mut units: Vec<i128> = parts.iter().map(rounded).collect();
    // The rounding residue goes to the largest part, where it matters least.
    let left = rounded(whole) - units.iter().sum::<i128>();
    if let Some(largest) = units.iter_mut().max_by_key(|n| n.unsigned_abs()) {
        *largest += left;
    }
    let digits = if scale == 100 { 2 } else { 1 };
    let text = |n: &i128| {
        let sign = if *n < 0 { '-' } else { '+' };
        let size = n.unsigned_abs();
        let (whole, part) = (size / scale.unsigned_abs(), size % scale.unsigned_abs());
        let whole = thousands(u64::try_from(whole).unwrap_or(u64::MAX));
        match part {
            0 => format!("{sign}{whole}"),
            _ => format!("{sign}{whole}.{part:0digits$}"),
        }
    };
    units.iter().map(text).collect()
}

/// A change in percent of the figure before: "-1.8%", "from 0".
pub fn percent(change: &Change) -> String {
    match change.percent() {
        None if change.after.sum == 0 => String::new(),
        None => "from 0".into(),
        Some(_) if change.delta().numerator == 0 => String::new(),
        Some(p) if p.abs() < 0.05 => format!("{p:+.3}%"),
        Some(p) if p.abs() < 1_000.0 => format!("{p:+.1}%"),
        Some(_) => format!("x {:.1}", change.after.value() / change.before.value()),
    }
}

/// One side of a change.
pub fn figure(side: PerPacket) -> String {
    per_packet(side.sum, side.packets)
}

/// The class, with the label of its arms.
pub fn subject(class: &ClassDiff) -> String {
    if class.rates.is_some() {
        return class.label.clone();
    }
    let mut words = match class.before.proto {
        Proto::Work if class.way.is_some() => "Time between events".into(),
        _ => words(class.before),
    };
    if class.of_classes > 0 {
        words = match class.before.proto == class.after.proto {
            true => word(class.before.proto).into(),
            false => format!("{} → {}", word(class.before.proto), word(class.after.proto)),
        };
        words.push_str(", all classes");
    } else if class.before != class.after {
        words = format!("{words} → {}", self::words(class.after));
    }
    match class.label.as_str() {
        "" => words,
        label => format!("{words} ({})", printable(label, 200)),
    }
}

/// "UDP send: 6,277 to 6,161 instructions per packet, -116 (-1.8%), all of it in
/// nft_do_chain"; "UDP send: 1,002 to 1,181 ns per packet, slower by 17.9% (17.1% to 18.6%), most
/// of it in ip_output".
pub fn sentence(class: &ClassDiff) -> String {
    sentence_in(class, Style::Plain)
}

/// The same, in a style, with the compared settings that had no effect.
pub fn sentence_in(class: &ClassDiff, style: Style) -> String {
    let differs = class.whole().is_some_and(|whole| whole.judged.differs());
    let idle = acting::idle_text(&class.idle, class.idle_alone, differs);
    let outcome = match &class.counted {
        Some(counted) => {
            let behind = behind(class, counted);
            format!("{}{behind}", of_counts(class, counted, style))
        }
        None => of_samples(class, style),
    };
    // Already in the classes' sentences.
    let idle = if class.of_classes > 0 { String::new() } else { idle };
    format!("{outcome}{}", style.text(&idle, 600))
}

/// "usbnet_bh takes ", if only the part below a function is compared.
fn takes(class: &ClassDiff, style: Style) -> String {
    let root = class.root.as_deref();
    root.map_or_else(String::new, |root| format!("{} takes ", style.name(root)))
}

/// Both figures, with their unit.
fn figures(class: &ClassDiff, judged: &judge::Judged) -> String {
    match class.unit.as_str() {
        _ if class.is_share() => {
            format!("{} to {} of samples", percent_text(judged.before), percent_text(judged.after))
        }
        "ns" => ns_range(judged.before, judged.after),
        unit => format!(
            "{} to {} {}",
            rounded(judged.before),
            rounded(judged.after),
            printable(unit, 40)
        ),
    }
}

/// A percentage of samples.
pub(super) fn percent_text(percent: f64) -> String {
    format!("{percent:.2}%")
}

/// The first two of some rows, with their shares.
fn shares(rows: &[&DiffRow], style: Style) -> String {
    let one = |row: &&DiffRow| {
        let (was, is) = (row.judged.before(), row.judged.after());
        let (was, is) = (percent_text(was), percent_text(is));
        format!("{} ({was} \u{2192} {is})", style.name(&row.name))
    };
    let all: Vec<String> = rows.iter().take(2).map(one).collect();
    all.join(" and ")
}

/// The first two of some rows.
fn names(rows: &[&DiffRow], style: Style) -> String {
    let names: Vec<String> = rows.iter().take(2).map(|r| style.name(&r.name)).collect();
    names.join(" and ")
}

/// A ratio as a change: +12.3%.
pub(crate) fn ratio_percent(ratio: f64) -> String {
    if ratio.is_finite() { format!("{:+.1}%", (ratio - 1.0) * 100.0) } else { "?".into() }
}

/// The sentence on figures that vary.
fn of_samples(class: &ClassDiff, style: Style) -> String {
    let subject = style.text(&subject(class), 400);
    let changed = class.changed();
    let Some((whole, judged)) = class.whole().and_then(|w| Some((w, w.judged.statistically()?)))
    else {
        return match changed.len() {
            0 if class.is_share() => {
                format!("{subject}: no function's share of samples differs, as far as can be seen")
            }
            n if class.is_share() => format!(
                "{subject}: the shares of {} differ, most of all {}",
                counted(n, "function"),
                shares(&changed, style)
            ),
            0 if class.per != "call" => format!(
                "{subject}: no {} differs per {}, as far as can be seen",
                if class.is_events() { "count" } else { "clock" },
                class.per
            ),
            0 => format!("{subject}: no function or stage differs per call, as far as can be seen"),
            n => format!(
                "{subject}: {n} differ{} per {}, most of all {}",
                if n == 1 { "s" } else { "" },
                class.per,
                names(&changed, style)
            ),
        };
    };
    let takes = takes(class, style);
    let mut text = format!(
        "{subject}: {takes}{}{}, ",
        figures(class, judged),
        match class.is_share() {
            true => String::new(),
            false => format!(" per {}", class.per),
        }
    );
    match judged.verdict {
        judge::Verdict::Faster | judge::Verdict::Slower => {
            text.push_str(class.verdict(&whole.judged));
            if let Some(ratio) = judged.ratio {
                text.push_str(&format!(
                    " by {} ({})",
                    ratio_percent(ratio.value).trim_start_matches(['+', '-']),
                    interval::interval_text(ratio, ratio_percent)
                ));
            }
            let alike: Vec<&DiffRow> =
                (changed.into_iter()).filter(|r| r.judged.key() == whole.judged.key()).collect();
            if !alike.is_empty() {
                text.push_str(&format!(", most of it in {}", names(&alike, style)));
            }
        }
        judge::Verdict::NoDifference => {
            text.push_str("no difference seen");
            if judged.is_blind() {
                text.push_str(&format!(
                    ", but noise may hide any change: {}",
                    interval::remedy(class.apart)
                ));
            } else if let Some(smallest) = judged.smallest {
                text.push_str(&format!("; one of {:.1}% would have been", smallest * 100.0));
            }
            if !changed.is_empty() {
                let n = changed.len();
                text.push_str(&format!(
                    "; but {n} of its parts differ{}, most of all {}",
                    if n == 1 { "s" } else { "" },
                    names(&changed, style)
                ));
            }
        }
        judge::Verdict::TooFew => {
            text.push_str(&format!("no verdict: it needs {MIN_BLOCKS} blocks a side"))
        }
    }
    text
}

/// The sentence on figures that repeat exactly.
fn of_counts(class: &ClassDiff, counted: &ExactVerdict, style: Style) -> String {
    let (was, is) = (figure(counted.total.before), figure(counted.total.after));
    let subject = style.text(&subject(class), 400);
    let (unit, per) = (printable(&class.unit, 40), class.per);
    let takes = takes(class, style);
    let figures = match was == is {
        true => format!("{subject}: {takes}{is} {unit} per {per}"),
        false => format!("{subject}: {takes}{was} to {is} {unit} per {per}"),
    };
    let delta = counted.total.delta();
    let changed: Vec<(&Counts, &DiffRow)> =
        class.counts().filter(|(_, r)| r.judged.differs()).collect();
    let name = |row: &DiffRow| style.name(&row.name);
    if counted.verdict.differs() && counted.certain == delta {
        let place = place(class, &delta, &changed, &name);
        if class.root.is_some() {
            let signed = signed(&delta);
            let (more, size) = match signed.strip_prefix('-') {
                Some(size) => ("fewer", size),
                None => ("more", signed.trim_start_matches('+')),
            };
            let percent = percent(&counted.total);
            return format!(
                "{subject}: {takes}{size} {more} {unit} per {per} ({percent}): {was} \u{2192} {is}{place}"
            );
        }
        return format!("{figures}, {} ({}){}", signed(&delta), percent(&counted.total), place);
    }
    if counted.verdict.differs() {
        let parts = signed_parts(&delta, &[counted.certain, delta.minus(&counted.certain)]);
        return format!(
            "{figures}, of which {}{}; the rest, {}, is within the spread of the blocks",
            parts[0],
            place(class, &counted.certain, &changed, &name),
            parts[1]
        );
    }
    let mut text = format!("{figures}, no difference");
    match counted.verdict {
        Verdict::WithinSpread => {
            text.push_str(" beyond the spread of the blocks");
            if let Some(blind) = counted.blind().filter(|b| *b >= 0.05) {
                text.push_str(&format!(" (which hides up to {blind:.1})"));
            }
        }
        Verdict::Negligible => text.push_str(&format!(
            " of an instruction in every {} ({} on average)",
            class.per,
            signed(&delta)
        )),
        Verdict::Seeds => text.push_str(&format!(" that other seeds confirm ({})", signed(&delta))),
        Verdict::Placement => text.push_str(&format!(" in its code ({})", signed(&delta))),
        Verdict::Luck => {
            text.push_str(&format!(" beyond what differs between boots ({})", signed(&delta)))
        }
        _ => {}
    }
    let is_explained = matches!(counted.verdict, Verdict::Seeds | Verdict::Placement);
    if !changed.is_empty() && !is_explained {
        let names: Vec<String> = changed
            .iter()
            .take(2)
            .map(|(f, row)| format!("{} {}", name(row), signed(&f.own.delta())))
            .collect();
        let more = match changed.len() {
            1 | 2 => String::new(),
            n => format!(" and {} more", n - 2),
        };
        text.push_str(&format!(" in all, but {}{more}", names.join(", ")));
    }
    text
}

/// The change's range over seeds, and how much of it is in code that two kernels share.
fn behind(class: &ClassDiff, counted: &ExactVerdict) -> String {
    let delta = counted.total.delta();
    let mut text = match &counted.seeds {
        Some((seeds, _)) if seeds.range().iter().any(|delta| delta.numerator != 0) => {
            format!("; {}", seeds.seeds_text())
        }
        _ => String::new(),
    };
    let Some(code) = counted.code.filter(|code| delta.numerator != 0 && code.same.0 > 0) else {
        return text;
    };
    let (same, other) = (signed(&code.same.1), signed(&code.other.1));
    let functions = counted_functions(code.same.0);
    text.push_str(&match code.is_placement() {
        true => format!(
            "; no code on its path differs: {same} in {functions} with the same code in both kernels is placement \
             (allocators, hash buckets, alignment) or other data"
        ),
        false => format!(
            "; {other} in functions whose code differs, {same} in {functions} with the same code in both kernels"
        ),
    });
    if counted.seeds.is_none() && class.of_classes == 0 {
        text.push_str(" (--seeds 3 tells what depends on placement)");
    }
    text
}

fn counted_functions(n: usize) -> String {
    counted(n, "function")
}

/// The place of a change: ", all of it in X".
fn place(
    class: &ClassDiff,
    delta: &Delta,
    changed: &[(&Counts, &DiffRow)],
    name: &dyn Fn(&DiffRow) -> String,
) -> String {
    if class.of_classes > 0 {
        return String::new();
    }
    let [first, rest @ ..] = changed else {
        let per = class.per;
        return format!(", in no function by as much as an instruction in every {per}");
    };
    let first_name = name(first.1);
    let of = |(counts, _): &(&Counts, &DiffRow)| counts.own.delta();
    if rest.is_empty() && of(first) == *delta {
        return format!(", all of it in {first_name}");
    }
    // Where increases and decreases nearly cancel, a part of the rest means little.
    let gross: u128 = changed.iter().map(|f| of(f).size()).fold(0, u128::saturating_add);
    let mixed = gross > delta.size().saturating_mul(2);
    // "Most" means that the rest, either way, is less than half of the part.
    let most = |part: Delta| {
        let same_way = (part.numerator < 0) == (delta.numerator < 0);
        let (part, whole) = (part.size() as f64, delta.size() as f64);
        !mixed && same_way && part >= 0.6 * whole && part <= 1.4 * whole
    };
    if most(of(first)) {
        return format!(", most of it in {first_name}");
    }
    if let [second, ..] = rest
        && most(of(first).plus(&of(second)))
    {
        return format!(", most of it in {first_name} and {}", name(second.1));
    }
    let count = counted(changed.len(), "function");
    let largest = format!("largest {first_name} {}", signed(&of(first)));
    if mixed {
        let part = |up: bool| {
            let those = changed.iter().map(of);
            let those: Vec<Delta> = those.filter(|d| (d.numerator > 0) == up).collect();
            let sum = those.iter().fold(delta.none(), |sum, d| sum.plus(d));
            (sum, those.len())
        };
        let ((more, risen), (less, fallen)) = (part(true), part(false));
        // Parts that are too small to judge belong to the whole, too.
        let rest = delta.minus(&more).minus(&less);
        let parts = signed_parts(delta, &[more, less, rest]);
        let small = match rest.numerator {
            0 => String::new(),
            _ => format!(", {} too small to tell", parts[2]),
        };
        return format!(
            ": {} in {risen} and {} in {fallen} of {count}{small} ({largest})",
            parts[0], parts[1]
        );
    }
    let layer = class
        .layers
        .first()
        .filter(|row| row.name != NO_LAYER)
        .filter(|row| row.judged.exactly().is_some_and(|c| most(c.delta())))
        .map(|row| format!(", mostly {}", printable(&row.name, 40)))
        .unwrap_or_default();
    format!(", spread over {count}{layer} ({largest})")
}

/// "1,002 → 1,181"; "-" for a sum.
pub(super) fn quantile(sides: super::BeforeAfter) -> String {
    let text = |side: Option<f64>| side.map_or("-".into(), ns);
    match sides {
        [None, None] => "-".into(),
        [was, is] => format!("{} → {}", text(was), text(is)),
    }
}

/// Two different figures, with as many decimals as it takes to distinguish them.
pub fn distinct_texts(one: PerPacket, other: PerPacket) -> (String, String) {
    let plain = (figure(one), figure(other));
    if plain.0 != plain.1 {
        return plain;
    }
    let exact = |decimals: usize| {
        (format!("{:.decimals$}", one.value()), format!("{:.decimals$}", other.value()))
    };
    (2..6).map(exact).find(|(a, b)| a != b).unwrap_or_else(|| exact(6))
}

/// A direction that one side alone has.
pub(super) fn one_side(
    (recording, arm, direction): (&Recording, usize, Direction),
    side: &Side<'_>,
    name: &str,
) -> String {
    let of = &recording.arms;
    let arm = &of[arm];
    let class = Class { proto: arm.proto, direction };
    let alone = of.iter().filter(|other| other.proto == arm.proto).count() == 1;
    let which = match alone {
        true => String::new(),
        false => format!(" ({})", printable(&arm.name, NAME_LIMIT)),
    };
    format!(
        "{}{which}: only in {}, {} instructions per {}",
        words(class),
        printable(name, 120),
        per_packet(side.sum(), side.packets),
        arm.proto.unit()
    )
}
