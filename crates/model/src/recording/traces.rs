//! Single traces in a recording: their texts, the steps, and what instruments add.

use super::Recording;
use crate::calls::{OfCalls, PLACES, TIMED};
use crate::condition::{OfCall, number};
use crate::quantity::{Declared, FigureKey, Kind, Subject};
use crate::timing;
use crate::trace::{
    CallCounts, Flags, Followed, MAX_STEPS, Step, TextId, TimedCalls, Trace, argument,
};

/// How long a step of a packet took.
const STEP_TIME: Declared = Declared::new("packets", "step time", "ns", Kind::Duration);

impl Step {
    /// The figures that a condition compares, as far as known.
    pub fn value(&self, recording: &Recording, of: &OfCall) -> Option<i128> {
        match of {
            OfCall::Insns | OfCall::Duration => Some(self.total.into()),
            OfCall::Elapsed => Some(self.elapsed.into()),
            OfCall::Own => Some(self.own.into()),
            OfCall::Switches => Some(self.switches.into()),
            OfCall::Returned | OfCall::Argument(_) => match self.word(recording, of)? {
                "false" => Some(0),
                "true" => Some(1),
                text => number(text),
            },
        }
    }

    /// How an argument or what was returned is written.
    pub fn word<'r>(&self, recording: &'r Recording, of: &OfCall) -> Option<&'r str> {
        let text = |id: Option<TextId>| Some(recording.text_of_trace(id?));
        match of {
            OfCall::Returned => text(self.returned),
            OfCall::Argument(name) => argument(text(self.arguments)?, name),
            _ => None,
        }
    }
}

impl Recording {
    /// The index of a text of traces, which is added if it is new. `texts` has those that are known.
    pub fn trace_text(
        &mut self,
        texts: &mut std::collections::HashMap<String, TextId>,
        text: &str,
    ) -> TextId {
        if let Some(id) = texts.get(text) {
            return *id;
        }
        let id = self.trace_texts.len() as TextId;
        self.trace_texts.push(text.into());
        texts.insert(text.into(), id);
        id
    }

    /// A text of traces.
    pub fn text_of_trace(&self, id: TextId) -> &str {
        self.trace_texts.get(id as usize).map_or("", |text| text)
    }

    /// The indices of texts of traces.
    pub fn known_texts(&self) -> std::collections::HashMap<String, TextId> {
        (self.trace_texts.iter().cloned()).zip(0..).collect()
    }

    /// Traces of packets.
    pub fn packet_traces(&self) -> impl Iterator<Item = &Trace> {
        self.traces.iter().filter(|t| t.of == Followed::Packet)
    }

    /// Traces of calls.
    pub fn call_traces(&self) -> impl Iterator<Item = &Trace> {
        self.traces.iter().filter(|t| t.of == Followed::Call)
    }

    /// Add how many calls a block had.
    pub fn add_call_counts(&mut self, block: u32, of: &OfCalls, counts: &CallCounts) {
        let at = Subject::Block(block);
        for (quantity, value) in [
            (&of.calls, counts.calls),
            (&of.matched, counts.matched),
            (&of.recursive, counts.recursive),
            (&of.unfinished, counts.unfinished),
        ] {
            self.add(at, quantity, FigureKey::ONLY, value as f64);
        }
        let spread = counts.spread.iter().flatten().copied();
        for (place, value) in PLACES.into_iter().zip(std::iter::once(counts.sum).chain(spread)) {
            self.add(at, &of.cost, FigureKey::label(place), value as f64);
        }
    }

    /// Add the timed calls of a block. Returns the number of calls left out for lack of room.
    pub fn add_calls(&mut self, block: u32, timed: &TimedCalls) -> u64 {
        self.add_call_counts(block, &TIMED, &timed.counts);
        let quantity = self.quantity(&TIMED.step);
        let mut texts = self.known_texts();
        let names: Vec<TextId> =
            (timed.names.iter()).map(|name| self.trace_text(&mut texts, name)).collect();
        let nameless = self.trace_text(&mut texts, "");
        let name = |id: TextId| names.get(id as usize).copied().unwrap_or(nameless);
        let mut room = MAX_STEPS.saturating_sub(self.traces.iter().map(|t| t.steps.len()).sum());
        let mut full = 0;
        for call in &timed.kept {
            if call.steps.len() > room {
                full += 1;
                continue;
            }
            room -= call.steps.len();
            let steps = call.steps.iter().map(|step| Step {
                name: name(step.name),
                command: name(step.command),
                ..*step
            });
            self.traces.push(Trace {
                block: Some(block),
                quantity,
                of: Followed::Call,
                number: call.number,
                steps: steps.collect(),
            });
        }
        full
    }

    /// Add the steps of packets, each packet a trace. A step that lies within another one of the same
    /// thread or interrupt is part of that.
    pub fn add_packets(&mut self, block: Option<u32>, steps: &[timing::Step]) {
        if steps.is_empty() {
            return;
        }
        let quantity = self.quantity(&STEP_TIME);
        // Each window numbers its packets from 0; in the recording numbers are unique.
        let first = self.packet_traces().map(|t| t.number + 1).max().unwrap_or(0);
        let mut texts = self.known_texts();
        let mut sorted: Vec<&timing::Step> = steps.iter().collect();
        sorted.sort_by_key(|s| (s.packet, s.begin_ns, std::cmp::Reverse(s.duration_ns)));
        for of_one in sorted.chunk_by(|a, b| a.packet == b.packet) {
            let Some(packet) = of_one.first().map(|step| step.packet) else {
                continue;
            };
            let mut made: Vec<Step> = Vec::with_capacity(of_one.len());
            for (at, step) in of_one.iter().enumerate() {
                let (name, command) = (
                    self.trace_text(&mut texts, &step.name),
                    self.trace_text(&mut texts, &step.command),
                );
                let end = step.begin_ns.saturating_add(step.duration_ns);
                let holds = |of: &&timing::Step| {
                    let same =
                        (of.cpu, of.thread, of.context) == (step.cpu, step.thread, step.context);
                    same && of.begin_ns.saturating_add(of.duration_ns) >= end && of.duration_ns > 0
                };
                let parent = of_one[..at].iter().rposition(holds);
                if let Some(parent) = parent.and_then(|parent| made.get_mut(parent)) {
                    parent.own = parent.own.saturating_sub(step.duration_ns);
                }
                made.push(Step {
                    parent: parent.map(|parent| parent as u32),
                    name,
                    begin: step.begin_ns,
                    elapsed: step.duration_ns,
                    total: step.duration_ns,
                    own: step.duration_ns,
                    switches: 0,
                    context: step.context,
                    cpu: step.cpu,
                    thread: step.thread,
                    command,
                    flags: Flags::default(),
                    arguments: None,
                    returned: None,
                });
            }
            self.traces.push(Trace {
                block,
                quantity,
                of: Followed::Packet,
                number: first + u64::from(packet),
                steps: made,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Context;

    fn step(packet: u32, name: &str, begin_ns: u64, duration_ns: u64, thread: u32) -> timing::Step {
        timing::Step {
            packet,
            name: name.into(),
            begin_ns,
            duration_ns,
            cpu: 0,
            thread,
            command: "nc".into(),
            context: Context::Task,
        }
    }

    /// Check that a packet's steps within other steps of its thread become their children, whose time is not their own;
    /// that other threads' steps do not; and that packet numbers continue.
    #[test]
    fn steps_of_packets() {
        let mut recording = Recording::default();
        let steps = [
            step(1, "late", 900, 5, 1),
            step(0, "ip_output", 20, 30, 1),
            step(0, "udp_sendmsg", 10, 100, 1),
            step(0, "dst_output", 30, 10, 1),
            step(0, "ip_rcv", 40, 20, 2),
            step(0, "kfree_skb", 200, 0, 1),
        ];
        recording.add_packets(Some(3), &steps);
        recording.add_packets(None, &steps[..1]);
        let numbers: Vec<u64> = recording.traces.iter().map(|t| t.number).collect();
        assert_eq!(numbers, [0, 1, 3]);
        let first = &recording.traces[0];
        let rows: Vec<(&str, Option<u32>, u64, u64)> = (first.steps.iter())
            .map(|s| (recording.text_of_trace(s.name), s.parent, s.total, s.own))
            .collect();
        assert_eq!(
            rows,
            [
                ("udp_sendmsg", None, 100, 70),
                ("ip_output", Some(0), 30, 20),
                ("dst_output", Some(1), 10, 10),
                ("ip_rcv", None, 20, 20),
                ("kfree_skb", None, 0, 0),
            ]
        );
        assert_eq!(first.depths(), [0, 1, 2, 0, 0]);
    }
}
