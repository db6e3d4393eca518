//! What a search for settings has found: those that no other beats, the best by a goal, and the lines that set it.

use netplumb_model::hosts::INSTRUMENT;
use netplumb_model::tune::{Choice, Goal, Hold, Measured, Tuned, name_of};
use serde::Serialize;

use crate::footer::{self, Note};
use crate::json::pretty;
use crate::number::counted;
use crate::table::{Column, Room, Table, Value};
use crate::text::continued;

/// Letters of the settings' names.
const NAME_LETTERS: usize = 60;
/// From here on there is room for what only explains.
const WIDE: usize = 100;

struct Row<'r> {
    choice: &'r Choice,
    is_best: bool,
    holds: bool,
}

fn columns<'r>() -> Vec<Column<'r, Row<'r>>> {
    let figure = |title: &'static str, rank: u8, of: fn(&Measured) -> Value| {
        Column::figure(title, move |row: &Row<'r>| of(&row.choice.measured)).people(rank)
    };
    vec![
        Column::text("settings", |row: &Row<'r>| {
            let mark = if row.is_best { "* " } else { "  " };
            format!("{mark}{}", name_of(&row.choice.settings))
        })
        .people(0)
        .key("settings"),
        figure("Mbit/s", 1, |m| Value::Number(m.throughput_bps / 1e6)).key("mbit_per_second"),
        figure("latency", 2, |m| Value::Ns(m.latency_ns)).key("latency_ns"),
        figure("CPU/KiB", 3, |m| Value::Ns(m.cpu_ns_per_kib())).key("cpu_ns_per_kib"),
        figure("tx busy", 4, |m| Value::Share(m.busy[0]))
            .from(WIDE)
            .key("tx_busy"),
        figure("rx busy", 5, |m| Value::Share(m.busy[1]))
            .from(WIDE)
            .key("rx_busy"),
        Column::text("holds", |row: &Row<'r>| {
            if row.holds { "yes" } else { "no" }.to_string()
        })
        .people(6)
        .key("holds"),
    ]
}

fn rows(tuned: &Tuned) -> impl Iterator<Item = Row<'_>> {
    tuned.front.iter().map(|choice| Row {
        choice,
        is_best: choice.settings == tuned.best.settings,
        holds: tuned
            .hold
            .iter()
            .all(|hold| hold.missed(&choice.measured) == 0.0),
    })
}

fn change(name: &str, before: f64, after: f64) -> String {
    match before > 0.0 {
        true => format!("{name} {:+.1}%", (after / before - 1.0) * 100.0),
        false => name.to_string(),
    }
}

/// What is gained, in a sentence.
fn verdict(tuned: &Tuned) -> String {
    let (was, is) = (&tuned.default, &tuned.best.measured);
    let name = name_of(&tuned.best.settings);
    if tuned.missed() {
        return format!(
            "Nothing that was tried holds all conditions; {name} comes closest: {}.",
            changes(was, is)
        );
    }
    match tuned
        .best
        .settings
        .iter()
        .all(|setting| setting.name.is_empty())
    {
        true => format!(
            "The default is the best for {} of what was tried.",
            tuned.goal
        ),
        false => format!("Best for {}: {name}: {}.", tuned.goal, changes(was, is)),
    }
}

fn changes(was: &Measured, is: &Measured) -> String {
    [
        change("throughput", was.throughput_bps, is.throughput_bps),
        change("latency", was.latency_ns, is.latency_ns),
        change(
            "CPU time per byte",
            was.cpu_ns_per_kib(),
            is.cpu_ns_per_kib(),
        ),
    ]
    .join(", ")
}

fn condition(hold: &Hold) -> String {
    match hold {
        Hold::Latency(ns) => format!("latency below {} us", *ns as f64 / 1e3),
        Hold::Throughput(bps) => format!("more than {} Mbit/s", *bps as f64 / 1e6),
        Hold::Busy(share) => format!("CPUs below {:.0}% busy", share * 100.0),
    }
}

fn trust(tuned: &Tuned) -> Vec<Note> {
    let tried = format!(
        "{} of {} tried, by successive halving and then the neighbours of the best{}",
        tuned.tried,
        counted(tuned.possible, "combination"),
        if tuned.ended_early {
            "; the time ran out before all of these"
        } else {
            ""
        }
    );
    vec![
        Note::new(
            "clock",
            "virtual time of two guests and a wire: no caches, no bus, no DMA. The order of settings is to be \
             confirmed on the machine that they are for",
        ),
        Note::new(
            "figures",
            "throughput and CPU time of one TCP stream; latency is the median of requests of 64 bytes, alone on the wire",
        ),
        Note::new("search", tried),
    ]
}

/// For a terminal.
pub fn terminal(tuned: &Tuned, columns: usize) -> String {
    let mut goal = format!("Goal: {}", tuned.goal);
    for hold in &tuned.hold {
        goal.push_str(&format!(", with {}", condition(hold)));
    }
    let mut out = format!(
        "{goal}\n\nWhat no other settings beat, of what was tried, and the default (* the best):\n\n"
    );
    let room = Room::of(columns, NAME_LETTERS);
    out.push_str(&Table::new(self::columns(), rows(tuned)).terminal(room));
    out.push('\n');
    out.push_str(&continued(&verdict(tuned), 0, columns));
    out.push('\n');
    let lines = tuned.lines();
    if !lines.is_empty() && !tuned.missed() {
        out.push_str("\nOn a machine with such a NIC, as root:\n\n");
        for line in lines {
            out.push_str(&format!("   {line}\n"));
        }
    }
    out.push('\n');
    out.push_str(&footer::terminal(&trust(tuned), columns));
    out
}

#[derive(Serialize)]
struct Document {
    document: &'static str,
    clock: &'static str,
    goal: Goal,
    best: String,
    holds: bool,
    lines: Vec<String>,
    default: Figures,
    front: Vec<Value>,
    tried: usize,
    possible: usize,
    ended_early: bool,
}

#[derive(Serialize)]
struct Figures {
    mbit_per_second: f64,
    latency_ns: f64,
    cpu_ns_per_kib: f64,
}

/// As JSON. docs/reference/json.md describes it for users.
pub fn json(tuned: &Tuned) -> String {
    pretty(&Document {
        document: "tune",
        clock: INSTRUMENT,
        goal: tuned.goal,
        best: name_of(&tuned.best.settings),
        holds: !tuned.missed(),
        lines: tuned.lines(),
        default: Figures {
            mbit_per_second: tuned.default.throughput_bps / 1e6,
            latency_ns: tuned.default.latency_ns,
            cpu_ns_per_kib: tuned.default.cpu_ns_per_kib(),
        },
        front: Table::new(columns(), rows(tuned)).json(),
        tried: tuned.tried,
        possible: tuned.possible,
        ended_early: tuned.ended_early,
    })
}

#[cfg(test)]
mod tests {
    use netplumb_model::tune::{DIMENSIONS, chosen};

    use super::*;

    fn choice(point: &[usize], mbit: f64, latency_us: f64, busy: f64) -> Choice {
        Choice {
            settings: chosen(DIMENSIONS, point),
            measured: Measured {
                throughput_bps: mbit * 1e6,
                latency_ns: latency_us * 1e3,
                busy: [busy / 2.0, busy],
            },
        }
    }

    fn tuned(hold: &str) -> Tuned {
        let default = choice(&[0; 5], 900.0, 150.0, 0.6);
        let best = choice(&[0, 0, 2, 0, 1], 930.0, 60.0, 0.4);
        Tuned {
            goal: Goal::Cpu,
            hold: vec![hold.parse().unwrap()],
            default: default.measured,
            front: vec![best.clone(), choice(&[0, 0, 1, 0, 0], 929.0, 38.0, 0.9)],
            best,
            tried: 20,
            possible: 96,
            ended_early: false,
            nic: "eth0".into(),
        }
    }

    /// Check that the best is marked, what it gains is said, and that lines are those of its settings with
    /// the interface's name.
    #[test]
    fn the_best_and_its_lines() {
        let text = terminal(&tuned("latency<100us"), 120);
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
        let json = json(&tuned("latency<100us"));
        let document: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(document["holds"], true);
        assert_eq!(document["front"].as_array().unwrap().len(), 2);
        assert_eq!(document["default"]["mbit_per_second"], 900.0);
    }

    /// Check that nothing is recommended if a condition is missed.
    #[test]
    fn conditions_that_are_missed() {
        let text = terminal(&tuned("latency<50us"), 120);
        assert!(
            text.contains("Nothing that was tried holds all conditions"),
            "{text}"
        );
        assert!(!text.contains("ethtool"), "{text}");
    }
}
