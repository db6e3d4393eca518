//! Single traces: the steps of one call of a function, or of one packet, in the order in which they
//! began.

use serde::{Deserialize, Serialize};

use crate::class::Context;
use crate::experiment::{OfCall, number};
use crate::quantity::{Declared, Kind, QuantityId};
use crate::recording::Recording;
use crate::timing;

/// An index into [`Recording::trace_texts`].
pub type TextId = u32;

/// Maximum number of steps of a recording.
pub const MAX_STEPS: usize = 1 << 23;

/// Calls of the traced function in a block; calls within one of them are part of that.
pub const CALLS: Declared = Declared::new("exact", "traced calls", "calls", Kind::Count).exactly();
/// Of these, those that the condition holds for.
pub const MATCHED: Declared =
    Declared::new("exact", "matching calls", "calls", Kind::Count).exactly();
/// Calls of the traced function within traced calls.
pub const RECURSIVE: Declared =
    Declared::new("exact", "recursive calls", "calls", Kind::Count).exactly();
/// Of the traced calls, those that had not returned when the window closed.
pub const UNFINISHED: Declared =
    Declared::new("exact", "unfinished calls", "calls", Kind::Count).exactly();
/// How traced calls are distributed, each with all that it called: [`PLACES`].
pub const CALL_COST: Declared = Declared::new(
    "exact",
    "instructions per call",
    "instructions",
    Kind::Count,
)
.exactly()
.by_label("of");
/// How long a step of a packet took.
pub const STEP_TIME: Declared = Declared::new("packets", "step time", "ns", Kind::Duration);
/// The labels of [`CALL_COST`]: what all calls add up to, and their order.
pub const PLACES: [&str; 5] = ["sum", "min", "median", "p99", "max"];

/// What a trace follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Followed {
    /// A packet.
    Packet,
    /// A call.
    Call,
}

/// One trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// Index into [`Recording::blocks`]; none in recordings of older versions.
    pub block: Option<u32>,
    /// What its steps are measured in.
    pub quantity: QuantityId,
    /// What it follows.
    pub of: Followed,
    /// Which one, from 0: of the calls of a block, or of the packets of the recording.
    pub number: u64,
    /// Its steps, a parent before its children.
    pub steps: Vec<Step>,
}

/// A step of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The step that it is part of.
    pub parent: Option<u32>,
    /// The function or stage.
    pub name: TextId,
    /// When it began: instructions since the block's window opened, or nanoseconds of the monotonic
    /// clock.
    pub begin: u64,
    /// From its begin to its end, with everything that came in between; 0 of an event.
    pub elapsed: u64,
    /// What it took itself, with all that it called: without interrupts, and without other tasks.
    pub total: u64,
    /// The same without what it called.
    pub own: u64,
    /// How often its task was switched out meanwhile.
    pub switches: u32,
    /// Whose time it was.
    pub context: Context,
    /// The CPU.
    pub cpu: u32,
    /// The thread; 0 if its number is not known.
    pub thread: u32,
    /// The thread's name.
    pub command: TextId,
    /// More about it.
    pub flags: Flags,
    /// Its arguments.
    pub arguments: Option<TextId>,
    /// What it returned.
    pub returned: Option<TextId>,
}

/// What else is known of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flags(pub u8);

impl Flags {
    /// It was jumped to: a tail call.
    pub const TAIL: Flags = Flags(1);
    /// It came in between: an interrupt or softirqs, in no total of what they interrupted.
    pub const ASIDE: Flags = Flags(2);
    /// It had not returned when the window closed.
    pub const OPEN: Flags = Flags(4);
    /// Not all that it called is shown: too deep, or too much.
    pub const CUT: Flags = Flags(8);
    /// All that there are.
    pub const ALL: Flags = Flags(15);

    /// Whether it has all of these.
    pub fn has(self, of: Flags) -> bool {
        self.0 & of.0 == of.0
    }

    /// With these.
    #[must_use]
    pub fn with(self, of: Flags) -> Flags {
        Flags(self.0 | of.0)
    }
}

/// The value of an argument in the text of a step's arguments, like `nr=0x20, name="a, b"`.
pub fn argument<'t>(arguments: &'t str, name: &str) -> Option<&'t str> {
    let mut rest = arguments;
    while let Some((key, value)) = rest.split_once('=') {
        // Texts are quoted, as `str::escape_debug` writes them.
        let quoted = value.strip_prefix('"').map(|text| {
            let mut escaped = false;
            let end = text.find(|c| {
                let is_end = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                is_end
            });
            end.map_or(value.len(), |end| end + 2)
        });
        let end = quoted.unwrap_or_else(|| value.find(", ").unwrap_or(value.len()));
        let (found, after) = value.split_at(end);
        if key == name {
            return Some(found);
        }
        rest = after.strip_prefix(", ")?;
    }
    None
}

impl Step {
    /// What a condition compares, as far as it is known.
    pub fn value(&self, recording: &Recording, of: &OfCall) -> Option<i128> {
        let text = |id: Option<TextId>| Some(recording.text_of_trace(id?));
        match of {
            OfCall::Insns => Some(self.total.into()),
            OfCall::Own => Some(self.own.into()),
            OfCall::Switches => Some(self.switches.into()),
            OfCall::Returned => number(text(self.returned)?),
            OfCall::Argument(name) => number(argument(text(self.arguments)?, name)?),
        }
    }
}

impl Trace {
    /// How many steps a step is below the first one; of each.
    pub fn depths(&self) -> Vec<usize> {
        let mut depths: Vec<usize> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let parent = step.parent.and_then(|p| depths.get(p as usize));
            depths.push(parent.map_or(0, |depth| depth + 1));
        }
        depths
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

    /// Add the steps of packets, each packet a trace. A step that lies within another one of the same
    /// thread or interrupt is part of that.
    pub fn add_packets(&mut self, block: Option<u32>, steps: &[timing::Step]) {
        if steps.is_empty() {
            return;
        }
        let quantity = self.quantity(&STEP_TIME);
        // Each window numbers its packets from 0; in the recording numbers are unique.
        let first = self
            .packet_traces()
            .map(|t| t.number + 1)
            .max()
            .unwrap_or(0);
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
    use crate::recording::Recording;

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

    /// Check that arguments are found by their names, also behind texts that look like some.
    #[test]
    fn arguments() {
        let text = r#"ractl=0xff, name="a\", nr=1, \\", nr=0x20, error=-5, b=?"#;
        let of = |name| argument(text, name);
        assert_eq!(of("ractl"), Some("0xff"));
        assert_eq!(of("nr"), Some("0x20"));
        assert_eq!(of("error").and_then(number), Some(-5));
        assert_eq!(of("b").and_then(number), None);
        assert_eq!(of("r"), None);
        assert_eq!(of("name"), Some(r#""a\", nr=1, \\""#));
        assert_eq!(argument("", "nr"), None);
        assert_eq!(argument("nr=\"open", "x"), None);
    }

    /// Check that steps of a packet within others of its thread are their children, whose time is
    /// not their own; that those of other threads are not; and that numbers of packets go on.
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
        let told: Vec<(&str, Option<u32>, u64, u64)> = (first.steps.iter())
            .map(|s| (recording.text_of_trace(s.name), s.parent, s.total, s.own))
            .collect();
        assert_eq!(
            told,
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
