//! Single traces for ui.perfetto.dev and chrome://tracing:
//! Chrome's trace event format, as JSON.
//!
//! For packets, a CPU is a process of the trace. Below it, each thread that ran there has a
//! track, and so has each kind of interrupt: its work does not belong to the interrupted
//! thread. Arrows lead from where a packet left one track to where it continued in
//! another.
//!
//! For calls, a block is a process, and each call has a track. The format has only time: counted
//! instructions are written as nanoseconds.

use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::calls::{OfCalls, TIMED};
use netplumb_model::class::Context;
use netplumb_model::recording::Recording;
use netplumb_model::trace::{Flags, Step, Trace};
use serde_json::{Value, json};

use crate::number::printable;

/// Tracks of interrupts have numbers above the threads'.
const FIRST_INTERRUPT: u64 = 1 << 32;

/// The trace; without steps, one without events.
pub fn render(recording: &Recording) -> String {
    let mut events = packets(recording);
    events.extend(calls(recording));
    let trace = json!({ "traceEvents": events, "displayTimeUnit": "ns" });
    // Plain data with string keys always serializes.
    let mut out =
        crate::number::json_text(serde_json::to_string_pretty(&trace).unwrap_or_default());
    out.push('\n');
    out
}

/// The events of calls.
fn calls(recording: &Recording) -> Vec<Value> {
    let mut events = Vec::new();
    let mut named = BTreeSet::new();
    // Instructions are counted from the begin of a block.
    let timed = OfCalls::in_recording(recording) == Some(&TIMED);
    let steps = recording.call_traces().flat_map(|trace| &trace.steps);
    let origin = steps.filter(|_| timed).map(|step| step.begin).min().unwrap_or(0);
    for trace in recording.call_traces() {
        let block = trace.block.unwrap_or(0);
        let place = recording.blocks.get(block as usize);
        let arm = place.and_then(|block| recording.arms.get(block.arm as usize));
        let quantity = recording.quantities.get(trace.quantity as usize);
        let unit = quantity.map_or("", |quantity| quantity.unit.as_str());
        if named.insert(block) {
            let arm = printable(arm.map_or("", |arm| &arm.name), 80);
            let index = place.map_or(0, |block| block.index) + 1;
            let clock = match unit {
                "instructions" => " (1 ns is 1 instruction)",
                _ => "",
            };
            let name = format!("{arm}, block {index}{clock}");
            events.push(meta("process_name", block, None, &name));
        }
        let track = trace.number + 1;
        let name = format!("call {track}");
        events.push(meta("thread_name", block, Some(track), &name));
        for step in &trace.steps {
            let mut args = json!({
                "total": step.total,
                "self": step.own,
                "switches": step.switches,
                "context": step.context.to_string(),
            });
            for (key, text) in [("arguments", step.arguments), ("returned", step.returned)] {
                if let Some(text) = text {
                    args[key] = printable(recording.text_of_trace(text), 1_000).into();
                }
            }
            for (key, flag) in [
                ("tail_call", Flags::TAIL),
                ("aside", Flags::ASIDE),
                ("unfinished", Flags::OPEN),
                ("cut", Flags::CUT),
            ] {
                if step.flags.has(flag) {
                    args[key] = true.into();
                }
            }
            events.push(json!({
                "name": printable(recording.text_of_trace(step.name), 200),
                "cat": step.context.to_string(),
                "ph": "X",
                "pid": block,
                "tid": track,
                "ts": (step.begin - origin) as f64 / 1e3,
                "dur": step.elapsed as f64 / 1e3,
                "args": args,
            }));
        }
    }
    events
}

/// The events of packets.
fn packets(recording: &Recording) -> Vec<Value> {
    let text = |id| recording.text_of_trace(id);
    let all = recording.packet_traces();
    let steps: Vec<(u64, &Step)> =
        all.flat_map(|trace| trace.steps.iter().map(|step| (trace.number, step))).collect();
    let origin = steps.iter().map(|(_, s)| s.begin).min().unwrap_or(0);
    // Microseconds, as the format has them; the numbers stay small enough to be exact.
    let at = |ns: u64| (ns - origin) as f64 / 1e3;
    let mut events: Vec<Value> = Vec::new();
    let cpus: BTreeSet<u32> = steps.iter().map(|(_, s)| s.cpu).collect();
    for cpu in &cpus {
        events.push(meta("process_name", *cpu, None, &format!("CPU {cpu}")));
    }
    let mut tracks: BTreeMap<(u32, u64), String> = BTreeMap::new();
    for (_, step) in &steps {
        let name = match step.context {
            Context::Task | Context::OtherTask => {
                format!("{} {}", printable(text(step.command), 40), step.thread)
            }
            context => context.to_string(),
        };
        tracks.entry((step.cpu, track(step))).or_insert(name);
    }
    for ((cpu, track), name) in &tracks {
        events.push(meta("thread_name", *cpu, Some(*track), name));
    }
    for (packet, step) in &steps {
        let mut event = json!({
            "name": printable(text(step.name), 200),
            "cat": step.context.to_string(),
            "pid": step.cpu,
            "tid": track(step),
            "ts": at(step.begin),
            "args": {
                "packet": packet,
                "thread": step.thread,
                "command": printable(text(step.command), 40),
            },
        });
        match step.elapsed {
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
    events.extend(arrows(recording.packet_traces(), &at));
    events
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
fn arrows<'r>(traces: impl Iterator<Item = &'r Trace>, at: &dyn Fn(u64) -> f64) -> Vec<Value> {
    let mut events = Vec::new();
    let mut id = 0;
    for trace in traces {
        let packet = trace.number;
        let mut steps: Vec<&Step> = trace.steps.iter().collect();
        steps.sort_by_key(|s| s.begin);
        for pair in steps.windows(2) {
            let (from, to) = (pair[0], pair[1]);
            if (from.cpu, track(from)) == (to.cpu, track(to)) {
                continue;
            }
            id += 1;
            // An arrow belongs to the slice that it begins in.
            let leaves = (from.begin.saturating_add(from.elapsed)).min(to.begin);
            for (ph, step, ns) in [("s", from, leaves), ("f", to, to.begin)] {
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
