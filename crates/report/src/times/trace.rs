//! Per-packet traces for ui.perfetto.dev and chrome://tracing:
//! Chrome's trace event format, as JSON.
//!
//! A CPU is a process of the trace. Below it, each thread that ran there has a
//! track, and so has each kind of interrupt: what interrupts is not of the thread
//! that it hit. Arrows lead from where a packet left one track to where it went on
//! in another.

use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::class::Context;
use netplumb_model::recording::Recording;
use netplumb_model::timing::Step;
use serde_json::{Value, json};

use crate::number::printable;

/// Tracks of interrupts have numbers above those of threads.
const FIRST_INTERRUPT: u64 = 1 << 32;

/// The trace; without steps, one without events.
pub fn render(recording: &Recording) -> String {
    let steps = &recording.steps;
    let origin = steps.iter().map(|s| s.begin_ns).min().unwrap_or(0);
    // Microseconds, as the format has them; the numbers stay small enough to be exact.
    let at = |ns: u64| (ns - origin) as f64 / 1e3;
    let mut events: Vec<Value> = Vec::new();
    let cpus: BTreeSet<u32> = steps.iter().map(|s| s.cpu).collect();
    for cpu in &cpus {
        events.push(meta("process_name", *cpu, None, &format!("CPU {cpu}")));
    }
    let mut tracks: BTreeMap<(u32, u64), String> = BTreeMap::new();
    for step in steps {
        let name = match step.context {
            Context::Task | Context::OtherTask => {
                format!("{} {}", printable(&step.command, 40), step.thread)
            }
            context => context.to_string(),
        };
        tracks.entry((step.cpu, track(step))).or_insert(name);
    }
    for ((cpu, track), name) in &tracks {
        events.push(meta("thread_name", *cpu, Some(*track), name));
    }
    for step in steps {
        let mut event = json!({
            "name": printable(&step.name, 200),
            "cat": step.context.to_string(),
            "pid": step.cpu,
            "tid": track(step),
            "ts": at(step.begin_ns),
            "args": {
                "packet": step.packet,
                "thread": step.thread,
                "command": printable(&step.command, 40),
            },
        });
        match step.duration_ns {
            0 => {
                event["ph"] = "i".into();
                event["s"] = "t".into();
            }
            ns => {
                event["ph"] = "X".into();
                event["dur"] = (ns as f64 / 1e3).into();
            }
        }
        events.push(event);
    }
    events.extend(arrows(steps, &at));
    let trace = json!({ "traceEvents": events, "displayTimeUnit": "ns" });
    // Plain data with string keys always serializes.
    let mut out =
        crate::number::json_text(serde_json::to_string_pretty(&trace).unwrap_or_default());
    out.push('\n');
    out
}

fn track(step: &Step) -> u64 {
    match step.context {
        Context::Task | Context::OtherTask => u64::from(step.thread),
        Context::Hardirq => FIRST_INTERRUPT,
        Context::Softirq(vector) => FIRST_INTERRUPT + 1 + vector as u64,
    }
}

fn meta(what: &str, cpu: u32, track: Option<u64>, name: &str) -> Value {
    let mut event = json!({ "ph": "M", "name": what, "pid": cpu, "args": { "name": name } });
    if let Some(track) = track {
        event["tid"] = track.into();
    }
    event
}

/// From each step to the next one of the packet, where that is on another track.
fn arrows(steps: &[Step], at: &dyn Fn(u64) -> f64) -> Vec<Value> {
    let mut by_packet: BTreeMap<u32, Vec<&Step>> = BTreeMap::new();
    for step in steps {
        by_packet.entry(step.packet).or_default().push(step);
    }
    let mut events = Vec::new();
    let mut id = 0;
    for (packet, mut steps) in by_packet {
        steps.sort_by_key(|s| s.begin_ns);
        for pair in steps.windows(2) {
            let (from, to) = (pair[0], pair[1]);
            if (from.cpu, track(from)) == (to.cpu, track(to)) {
                continue;
            }
            id += 1;
            // An arrow hangs on the slice that it begins in.
            let leaves = (from.begin_ns.saturating_add(from.duration_ns)).min(to.begin_ns);
            for (ph, step, ns) in [("s", from, leaves), ("f", to, to.begin_ns)] {
                let mut event = json!({
                    "ph": ph,
                    "id": id,
                    "name": format!("packet {packet}"),
                    "cat": "packet",
                    "pid": step.cpu,
                    "tid": track(step),
                    "ts": at(ns),
                });
                if ph == "f" {
                    event["bp"] = "e".into();
                }
                events.push(event);
            }
        }
    }
    events
}
