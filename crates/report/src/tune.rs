//! The result of a search for settings: the ones that no other beats, the best by a goal, and the lines that set it.

use netplumb_model::hosts::{CLOCKED, INSTRUMENT};
use netplumb_model::recording::Recording;
use netplumb_model::tune::{Choice, Figures, Goal, Hold, SettingsBlocks, Tried, Tuned, name_of};
use netplumb_stats::welch::Mean;
use serde::Serialize;

use crate::acting;
use crate::footer::{self, Note};
use crate::hosts;
use crate::json::pretty;
use crate::number::{counted, printable, thousands};
#[cfg(test)]
use crate::table::reference::{Entry, entries};
use crate::table::{Column, Room, Table, Value};
use crate::text::continued;

/// Letters of the settings' names.
const NAME_LETTERS: usize = 60;
/// From here on there is room for explanatory columns.
const WIDE: usize = 100;

struct ChoiceRow<'r> {
    choice: &'r Choice,
    is_best: bool,
    holds: bool,
    goal: Goal,
}

/// Half the width of the 95% interval of a mean, as a share of it.
fn within(values: &[f64]) -> Option<f64> {
    let mean = Mean::from_values(values)?;
    (mean.value > 0.0).then(|| Some((mean.high? - mean.value) / mean.value))?
}

/// A number with one decimal, and thousands grouped.
fn grouped(value: f64) -> String {
    let tenths = (value * 10.0).round() as u64;
    format!("{}.{}", thousands(tenths / 10), tenths % 10)
}

/// The columns, including one for the receiver if that is another machine's CPU.
fn columns<'r>(at: &Tried) -> Vec<Column<'r, ChoiceRow<'r>>> {
    let (first, has_rx) = match at {
        Tried::Guests | Tried::Namespaces => ("tx busy", true),
        Tried::Nic { .. } => ("busy", false),
    };
    let figure = |title: &'static str, rank: u8, of: fn(&Figures) -> Value| {
        Column::figure(title, move |row: &ChoiceRow<'r>| of(&row.choice.measured.mean()))
            .people(rank)
    };
    let within_it = Column::figure("±", |row: &ChoiceRow<'r>| {
        let within = within(&row.choice.measured.values(row.goal));
        within.map_or(Value::Missing, Value::Share)
    });
    let within_it = match at {
        // Runs of guests don't differ.
        Tried::Guests => within_it,
        Tried::Namespaces | Tried::Nic { .. } => within_it.people(4),
    };
    let mut all = vec![
        Column::text("settings", |row: &ChoiceRow<'r>| {
            let mark = if row.is_best { "* " } else { "  " };
            format!("{mark}{}", name_of(&row.choice.settings))
        })
        .people(0)
        .hint("settings that were tried; the best has a star"),
        Column::text("settings", |row: &ChoiceRow<'r>| name_of(&row.choice.settings))
            .json("settings")
            .hint("settings that were tried"),
        Column::text("best", |row: &ChoiceRow<'r>| {
            if row.is_best { "yes" } else { "no" }.to_string()
        })
        .json("best")
        .hint("whether these are the best: `yes` or `no`"),
        figure("Mbit/s", 1, |m| Value::Number(m.throughput_bps / 1e6))
            .json("mbit_per_second")
            .unit("Mbit/s")
            .hint("throughput of a stream; of an interface, what the command moved over it in both directions"),
        figure("latency us", 2, |m| {
            // One unit for all rows.
            Value::Formatted(grouped(m.latency_ns / 1e3), Some(m.latency_ns))
        })
            .json("latency_ns")
            .unit("ns")
            .hint("median time of a request of 64 bytes, or of an echo while the command runs; or how long that runs"),
        Column::figure("CPU ns/KiB", |row: &ChoiceRow<'r>| {
            let ns = row.choice.measured.cost(Goal::Cpu);
            Value::Formatted(thousands(ns.round() as u64), Some(ns))
        })
        .people(3)
        .json("cpu_ns_per_kib")
        .unit("ns")
        .hint("CPU time of both hosts, or of this machine, for a KiB"),
        within_it
            .json("within")
        .hint("half of the 95% interval of what the goal is about, as a share of its mean; nothing where runs don't differ"),
        figure(first, 5, |m| Value::Share(m.busy[0]))
            .from(WIDE)
            .json("tx_busy")
            .hint("how busy the sender's CPU was, or all of this machine's"),
    ];
    if has_rx {
        all.push(
            figure("rx busy", 6, |m| Value::Share(m.busy[1]))
                .from(WIDE)
                .json("rx_busy")
                .hint("how busy the receiver's CPU was"),
        );
    }
    all.push(
        Column::text("holds", |row: &ChoiceRow<'r>| {
            if row.holds { "yes" } else { "no" }.to_string()
        })
        .people(7)
        .json("holds")
        .hint("whether it meets all of --hold: `yes` or `no`"),
    );
    // It is printed, or JSON.
    all.into_iter().map(Column::not_in_markdown).collect()
}

/// All columns, for the reference.
#[cfg(test)]
pub(crate) fn declared() -> Vec<Entry> {
    entries(&columns(&Tried::Namespaces))
}

fn rows(tuned: &Tuned) -> impl Iterator<Item = ChoiceRow<'_>> {
    tuned.front.iter().map(|choice| ChoiceRow {
        choice,
        is_best: choice.settings == tuned.best.settings,
        holds: tuned.hold.iter().all(|hold| hold.missed(&choice.measured) == 0.0),
        goal: tuned.goal,
    })
}

fn change(name: &str, before: f64, after: f64) -> String {
    match before > 0.0 {
        true => format!("{name} {:+.1}%", (after / before - 1.0) * 100.0),
        false => name.to_string(),
    }
}

/// The gain, in a sentence.
fn verdict(tuned: &Tuned) -> String {
    let (was, is) = (&tuned.default, &tuned.best.measured);
    let name = name_of(&tuned.best.settings);
    let is_default = tuned.best.settings.iter().all(|setting| setting.name.is_empty());
    if tuned.missed() {
        let gains = match is_default {
            true => String::new(),
            false => format!(": {}", changes(was, is)),
        };
        return format!(
            "Nothing that was tried holds all conditions; {name} comes closest{gains}."
        );
    }
    if is_default {
        return format!("The default is the best for {} of what was tried.", tuned.goal);
    }
    let Some(confirmed) = tuned.confirmed else {
        return format!("Best for {}: {name}: {}.", tuned.goal, changes(was, is));
    };
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let [_, low, high] = confirmed.ratio.map(percent);
    let measured = format!(
        "{:+.1}% to {:+.1}% ({} of each, measured again after it was chosen)",
        low,
        high,
        counted(confirmed.blocks, "block")
    );
    match (confirmed.is_better, tuned.recommends()) {
        (true, _) => format!(
            "Best for {}: {name}: {} {measured}; {}.",
            tuned.goal,
            of_goal(tuned.goal),
            changes(was, is)
        ),
        (false, true) => format!(
            "{name} holds what the default does not: {}; {} {measured}.",
            changes(was, is),
            of_goal(tuned.goal)
        ),
        (false, false) => format!(
            "No difference seen for {}: the best of what was tried, {name}, changes {} by {measured}. Leave the default.",
            tuned.goal,
            of_goal(tuned.goal)
        ),
    }
}

fn of_goal(goal: Goal) -> &'static str {
    match goal {
        Goal::Throughput => "throughput",
        Goal::Latency => "latency",
        Goal::Cpu => "CPU time per byte",
    }
}

fn changes(was: &SettingsBlocks, is: &SettingsBlocks) -> String {
    let mean = |measured: &SettingsBlocks, goal: Goal| match goal {
        Goal::Cpu => measured.cost(goal),
        _ => measured.mean().goal_value(goal),
    };
    [Goal::Throughput, Goal::Latency, Goal::Cpu]
        .map(|goal| change(of_goal(goal), mean(was, goal), mean(is, goal)))
        .join(", ")
}

fn condition(hold: &Hold) -> String {
    match hold {
        Hold::Latency(ns) => format!("latency below {} us", *ns as f64 / 1e3),
        Hold::Throughput(bps) => format!("more than {} Mbit/s", *bps as f64 / 1e6),
        Hold::Busy(share) => format!("CPUs below {:.0}% busy", share * 100.0),
    }
}

fn trust(tuned: &Tuned, recording: Option<&Recording>) -> Vec<Note> {
    let tried = format!(
        "{} of {} tried, by successive halving and then the neighbours of the best{}",
        tuned.tried,
        counted(tuned.possible, "combination"),
        if tuned.ended_early { "; the time ran out before all of these" } else { "" }
    );
    const IN_TURNS: &str = "this machine's; runs with all settings take turns, figures are means over them, and ± is half of \
                            the 95% interval of what the goal is about. What is shown was measured again after the search, \
                            so the best was not chosen by these figures";
    const OF_HOSTS: &str = "throughput and CPU time of one TCP stream; latency is the median of requests of 64 bytes, alone on the wire";
    let (clock, figures) = match &tuned.at {
        Tried::Guests => (
            "virtual time of two guests and a wire: no caches, no bus, no DMA. The order of settings is to be \
             confirmed on the machine that they are for",
            OF_HOSTS.to_string(),
        ),
        Tried::Namespaces => (IN_TURNS, OF_HOSTS.to_string()),
        Tried::Nic { command, peer } => (
            IN_TURNS,
            format!(
                "bytes that {} counted in both directions while `{}` ran, CPU time of all CPUs whatever it was for; latency is {}",
                tuned.nic,
                printable(command, 80),
                match peer {
                    Some(peer) =>
                        format!("the median of echoes (ICMP) of {} meanwhile", printable(peer, 60)),
                    None => "how long it ran".to_string(),
                }
            ),
        ),
    };
    let mut notes =
        vec![Note::new("clock", clock), Note::new("figures", figures), Note::new("search", tried)];
    for why in &tuned.left_out {
        notes.push(Note::new("left out", printable(why, 200)));
    }
    if !matches!(tuned.at, Tried::Guests) {
        notes.extend(recording.map(hosts::cpu_use));
    }
    if matches!(tuned.at, Tried::Namespaces) {
        notes.push(Note::new(
            "offloads",
            "veth hands packets over as they are: what it calls a checksum offload is no checksum at all, and a large packet is \
             never cut. Gains from these are not those of a NIC",
        ));
    }
    notes.extend(recording.into_iter().flat_map(acting::footer));
    notes
}

/// For a terminal, with the last recording's notes on its settings and on this machine.
pub fn terminal(tuned: &Tuned, recording: Option<&Recording>, columns: usize) -> String {
    let mut goal = format!("Goal: {}", tuned.goal);
    for hold in &tuned.hold {
        goal.push_str(&format!(", with {}", condition(hold)));
    }
    let title = match tuned.at {
        Tried::Guests => {
            "What no other settings beat, of what was tried, and the default (* the best):"
        }
        // It was chosen by other runs: in these, another one may be ahead by chance.
        Tried::Namespaces | Tried::Nic { .. } => {
            "What no other settings beat by more than chance, of what was tried, and the default (* the best of the \
             search; a difference within ± is no order):"
        }
    };
    let mut out = format!("{goal}\n\n{}\n", continued(title, 0, columns));
    let room = Room::new(columns, NAME_LETTERS);
    out.push_str(&Table::new(self::columns(&tuned.at), rows(tuned)).terminal(room));
    out.push('\n');
    out.push_str(&continued(&verdict(tuned), 0, columns));
    out.push('\n');
    let lines = tuned.lines();
    let mut list = |title: &str, lines: &[String]| {
        out.push_str(&format!("\n{title}\n\n"));
        for line in lines {
            out.push_str(&format!("   {line}\n"));
        }
    };
    match &tuned.kept {
        Some(undo) => {
            list("Kept, as if these had been run:", &lines);
            list("To undo that, as root:", undo);
        }
        None if tuned.recommends() => list(
            match tuned.at {
                Tried::Nic { .. } => "All is as it was. To set it, as root:",
                _ => "On a machine with such a NIC, as root:",
            },
            &lines,
        ),
        None => {}
    }
    out.push('\n');
    out.push_str(&footer::terminal(&trust(tuned, recording), columns));
    out
}

/// Incremented with any change that would break a reader.
const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct TuneJson {
    schema: u32,
    document: &'static str,
    clock: &'static str,
    lab: &'static str,
    goal: Goal,
    best: String,
    holds: bool,
    recommended: bool,
    lines: Vec<String>,
    default: ChoiceFigures,
    ratio: Option<Ratio>,
    front: Vec<Value>,
    tried: usize,
    possible: usize,
    ended_early: bool,
    left_out: Vec<String>,
    kept: bool,
    undo: Vec<String>,
    trust: Vec<Note>,
}

#[derive(Serialize)]
struct ChoiceFigures {
    mbit_per_second: f64,
    latency_ns: f64,
    cpu_ns_per_kib: f64,
}

#[derive(Serialize)]
struct Ratio {
    value: f64,
    low: f64,
    high: f64,
    blocks: usize,
    is_better: bool,
}

/// As JSON. docs/reference/json.md describes it for users.
pub fn json(tuned: &Tuned, recording: Option<&Recording>) -> String {
    let default = tuned.default.mean();
    let (clock, lab) = match tuned.at {
        Tried::Guests => (INSTRUMENT, "vm"),
        Tried::Namespaces => (CLOCKED, "netns"),
        Tried::Nic { .. } => (CLOCKED, "host"),
    };
    pretty(&TuneJson {
        schema: SCHEMA,
        document: "tune",
        clock,
        lab,
        goal: tuned.goal,
        best: name_of(&tuned.best.settings),
        holds: !tuned.missed(),
        recommended: tuned.recommends(),
        lines: tuned.lines(),
        default: ChoiceFigures {
            mbit_per_second: default.throughput_bps / 1e6,
            latency_ns: default.latency_ns,
            cpu_ns_per_kib: tuned.default.cost(Goal::Cpu),
        },
        ratio: tuned.confirmed.map(|confirmed| Ratio {
            value: confirmed.ratio[0],
            low: confirmed.ratio[1],
            high: confirmed.ratio[2],
            blocks: confirmed.blocks,
            is_better: confirmed.is_better,
        }),
        front: Table::new(columns(&tuned.at), rows(tuned)).json(),
        tried: tuned.tried,
        possible: tuned.possible,
        ended_early: tuned.ended_early,
        left_out: tuned.left_out.clone(),
        kept: tuned.kept.is_some(),
        undo: tuned.kept.clone().unwrap_or_default(),
        trust: trust(tuned, recording),
    })
}

#[cfg(test)]
mod tests {
    use netplumb_model::class::Link;
    use netplumb_model::tune::{Confirmed, chosen, of_guests, of_namespaces};

    use super::*;

    fn figures(mbit: f64, latency_us: f64, busy: f64) -> Figures {
        Figures {
            throughput_bps: mbit * 1e6,
            latency_ns: latency_us * 1e3,
            busy: [busy / 2.0, busy],
            cpus: 1.0,
        }
    }

    fn choice(point: &[usize], mbit: f64, latency_us: f64, busy: f64) -> Choice {
        Choice {
            settings: chosen(&of_guests([Link::E1000; 2], true), point),
            measured: SettingsBlocks::exactly(figures(mbit, latency_us, busy)),
        }
    }

    fn tuned(hold: &str) -> Tuned {
        let default = choice(&[0; 5], 900.0, 150.0, 0.6);
        let best = choice(&[0, 0, 2, 0, 1], 930.0, 60.0, 0.4);
        Tuned {
            goal: Goal::Cpu,
            hold: vec![hold.parse().unwrap()],
            at: Tried::Guests,
            default: default.measured,
            confirmed: None,
            front: vec![best.clone(), choice(&[0, 0, 1, 0, 0], 929.0, 38.0, 0.9)],
            best,
            tried: 20,
            possible: 96,
            ended_early: false,
            nic: "eth0".into(),
            left_out: Vec::new(),
            kept: None,
        }
    }

    /// A result of namespaces, with a gain of these shares.
    fn in_turns(ratio: [f64; 3], is_better: bool) -> Tuned {
        let block = |mbit| figures(mbit, 50.0, 0.5);
        let measured = |scale: f64| SettingsBlocks {
            blocks: [900.0, 1000.0, 1100.0].map(|mbit| block(mbit * scale)).to_vec(),
        };
        let of = |point: &[usize], scale| Choice {
            settings: chosen(&of_namespaces(), point),
            measured: measured(scale),
        };
        let best = of(&[0, 0, 0, 1, 0], ratio[0]);
        Tuned {
            goal: Goal::Throughput,
            hold: Vec::new(),
            at: Tried::Namespaces,
            default: measured(1.0),
            front: vec![best.clone(), of(&[0; 5], 1.0)],
            best,
            confirmed: Some(Confirmed { ratio, is_better, blocks: 3 }),
            ..tuned("latency<100us")
        }
    }

    /// Check that the best is marked, with its gain, and that its settings' lines have the interface's
    /// name.
    #[test]
    fn the_best_and_its_lines() {
        let text = terminal(&tuned("latency<100us"), None, 120);
        for part in [
            "* deferred 20us, rings of 1024",
            "with latency below 100 us",
            "throughput +3.3%, latency -60.0%, CPU time per byte -35.5%",
            "echo 20000 > /sys/class/net/eth0/gro_flush_timeout",
            "ethtool -G eth0 rx 1024 tx 1024",
            "20 of 96 combinations tried",
        ] {
            assert!(text.contains(part), "no `{part}` in:\n{text}");
        }
        let json = json(&tuned("latency<100us"), None);
        let document: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(document["holds"], true);
        assert_eq!(document["recommended"], true);
        assert_eq!(document["front"].as_array().unwrap().len(), 2);
        assert_eq!(document["default"]["mbit_per_second"], 900.0);
        assert!(document["ratio"].is_null());
    }

    /// Check that the footer names settings that could not act, once, and for namespaces the CPU use that is
    /// meant, like the report of these runs.
    #[test]
    fn what_could_not_act() {
        let mut recording = crate::hosts::tests::recording();
        let text = "the NIC of a guest has one queue".to_string();
        for arm in 0..recording.arms.len() {
            let notes = recording.notes_of(arm);
            notes.inert.insert("channels.combined".into(), text.clone());
        }
        let in_guests = tuned("latency<100us");
        let report = terminal(&in_guests, Some(&recording), 400);
        assert_eq!(report.matches(&text).count(), 1, "{report}");
        assert!(report.contains("\nidle "), "{report}");
        assert!(!report.contains("CPU use"), "{report}");
        let between = in_turns([1.2, 1.1, 1.3], true);
        let report = terminal(&between, Some(&recording), 400);
        assert_eq!(report.matches("\nCPU use ").count(), 1, "{report}");
        let json: serde_json::Value =
            serde_json::from_str(&json(&in_guests, Some(&recording))).unwrap();
        let trust = json["trust"].as_array().unwrap();
        assert!(trust.iter().any(|note| note["topic"] == "idle"), "{json:#}");
    }

    /// Check that nothing is recommended if a condition is missed.
    #[test]
    fn conditions_that_are_missed() {
        let text = terminal(&tuned("latency<50us"), None, 120);
        assert!(text.contains("Nothing that was tried holds all conditions"), "{text}");
        assert!(!text.contains("ethtool"), "{text}");
        let best = choice(&[0; 5], 900.0, 150.0, 0.6);
        let default = Tuned { best, ..tuned("latency<50us") };
        let text = terminal(&default, None, 120);
        assert!(text.contains("default comes closest."), "{text}");
    }

    /// Check that all rows of a column have one unit, however small or large they are.
    #[test]
    fn one_unit_per_column() {
        let mut tuned = tuned("latency<100us");
        // CPU time for a KiB: 3,773 ns and 11,000 ns, which were `3,773` and `11.0us`; latencies of 9 and 1,234 us.
        let of = |latency_us, ns_per_kib: f64| {
            let kib = 800e6 / 8.0 / 1024.0;
            let busy = ns_per_kib * kib / 1e9 / 1.5;
            SettingsBlocks::exactly(figures(800.0, latency_us, busy))
        };
        tuned.front[0].measured = of(9.04, 3_773.0);
        tuned.front[1].measured = of(1_234.0, 11_000.0);
        let text = terminal(&tuned, None, 120);
        for part in ["latency us", "CPU ns/KiB", " 9.0 ", " 1,234.0 ", " 3,773 ", " 11,000 "] {
            assert!(text.contains(part), "no `{part}` in:\n{text}");
        }
        let document: serde_json::Value = serde_json::from_str(&json(&tuned, None)).unwrap();
        assert_eq!(document["front"][1]["latency_ns"], 1_234_000.0);
    }

    /// Check that a gain is shown with its interval, and that one that may be chance is not recommended.
    #[test]
    fn gains_with_intervals() {
        let better = terminal(&in_turns([1.2, 1.1, 1.3], true), None, 120);
        for part in [
            "* MTU of 9000",
            "throughput +10.0% to +30.0% (3 blocks of each",
            "ip link set eth0 mtu 9000",
            "±",
            "no checksum at all",
            "beat by more than chance",
            "is no order",
        ] {
            assert!(better.contains(part), "no `{part}` in:\n{better}");
        }
        let same = terminal(&in_turns([1.01, 0.9, 1.12], false), None, 120);
        assert!(same.contains("No difference seen for throughput"), "{same}");
        assert!(same.contains("Leave the default"), "{same}");
        assert!(!same.contains("ip link set"), "{same}");
    }

    /// Check that the reference of JSON has every key.
    #[test]
    fn the_reference_has_every_key() {
        let reference = include_str!("../../../docs/reference/json.md");
        let (_, own) = reference.split_once("`plumb tune --json`").unwrap();
        let (own, _) = own.split_once("`plumb doctor --json`").unwrap();
        let json: serde_json::Value =
            serde_json::from_str(&json(&in_turns([1.2, 1.1, 1.3], true), None)).unwrap();
        let keys = |value: &serde_json::Value| -> Vec<String> {
            value.as_object().unwrap().keys().cloned().collect()
        };
        let mut all = keys(&json);
        for part in [&json["default"], &json["ratio"], &json["front"][0]] {
            all.extend(keys(part));
        }
        for key in all {
            assert!(own.contains(&format!("`{key}`")), "no `{key}`");
        }
    }

    /// Check that kept settings are printed with the lines that undo them.
    #[test]
    fn what_was_kept() {
        let kept = Tuned {
            at: Tried::Nic { command: "iperf3 -c peer".into(), peer: None },
            nic: "enp1s0".into(),
            kept: Some(vec!["ip link set enp1s0 mtu 1500".into()]),
            left_out: vec!["GRO: the driver refuses it".into()],
            ..in_turns([1.2, 1.1, 1.3], true)
        };
        let text = terminal(&kept, None, 120);
        for part in [
            "Kept, as if these had been run:\n\n   ip link set enp1s0 mtu 9000",
            "To undo that, as root:\n\n   ip link set enp1s0 mtu 1500",
            "left out",
            "how long it ran",
        ] {
            assert!(text.contains(part), "no `{part}` in:\n{text}");
        }
        assert!(!text.contains("rx busy"), "{text}");
    }
}
