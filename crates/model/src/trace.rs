//! Single traces: the steps of one call of a function, or of one packet, in the order in which they
//! began.

use serde::{Deserialize, Serialize};

use crate::class::Context;
use crate::experiment::{Condition, OfCall, Trace as Asked, number};
use crate::quantity::{Declared, Item, Kind, Of, QuantityId};
use crate::recording::Recording;
use crate::timing;

/// An index into [`Recording::trace_texts`].
pub type TextId = u32;

/// Maximum number of steps of a recording.
pub const MAX_STEPS: usize = 1 << 23;

/// What an instrument that traces calls says of those of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfCalls {
    /// What steps are measured in.
    pub step: Declared,
    /// Calls of the traced function; calls within one of them are part of that.
    pub calls: Declared,
    /// Of these, those that the condition holds for.
    pub matched: Declared,
    /// Calls of the traced function within traced calls.
    pub recursive: Declared,
    /// Of the traced calls, those that had not returned when the window closed.
    pub unfinished: Declared,
    /// How traced calls are distributed, each with all that it called: [`PLACES`].
    pub cost: Declared,
}

impl OfCalls {
    const fn of(step: Declared, cost: Declared) -> OfCalls {
        const fn count(name: &'static str, like: Declared) -> Declared {
            Declared {
                repeats: like.repeats,
                ..Declared::new(like.instrument, name, "calls", Kind::Count)
            }
        }
        OfCalls {
            step,
            calls: count("traced calls", step),
            matched: count("matching calls", step),
            recursive: count("recursive calls", step),
            unfinished: count("unfinished calls", step),
            cost: Declared { repeats: step.repeats, ..cost.by_label("of") },
        }
    }

    /// That of the calls of a recording.
    pub fn in_recording(recording: &Recording) -> Option<&'static OfCalls> {
        let has = |of: &&&OfCalls| recording.scalars_of(&of.calls).next().is_some();
        [&COUNTED, &TIMED].iter().find(has).copied()
    }
}

/// Calls whose instructions are counted.
pub const COUNTED: OfCalls = OfCalls::of(
    timing::INSTRUCTIONS,
    Declared::new("exact", "instructions per call", "instructions", Kind::Count),
);
/// Calls that take time.
pub const TIMED: OfCalls = OfCalls::of(
    Declared::new("calls", "time", "ns", Kind::Duration),
    Declared::new("calls", "time per call", "ns", Kind::Duration),
);
/// What entering and leaving a function costs while calls are timed, which is subtracted from the
/// calls above it.
pub const CALL_PROBE: Declared = Declared::new("calls", "cost of a call", "ns", Kind::Duration);
/// The least that the time of a function has of that, which is subtracted from its own.
pub const CALL_BIAS: Declared = Declared::new("calls", "bias of a call", "ns", Kind::Duration);
/// All quantities of the instrument that times calls.
pub const TIMED_QUANTITIES: &[Declared] = &[
    TIMED.step,
    TIMED.calls,
    TIMED.matched,
    TIMED.recursive,
    TIMED.unfinished,
    TIMED.cost,
    CALL_PROBE,
    CALL_BIAS,
];

/// How long a step of a packet took.
pub const STEP_TIME: Declared = Declared::new("packets", "step time", "ns", Kind::Duration);
/// The labels of [`OfCalls::cost`]: what all calls add up to, and their order.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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

/// Which calls an instrument times, and whose.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CallsSpec {
    /// The function of the kernel.
    pub function: String,
    /// The command's program, if it has a function of that name, which can't be timed.
    pub program: Option<String>,
    /// How deep: 1 is the function alone.
    pub depth: u32,
    /// How many calls are kept in each window, those that took most; besides the first one.
    pub slowest: u32,
    /// Maximum number of steps that are kept of a call.
    pub steps: u32,
    /// Which calls are kept.
    pub only: Option<Condition>,
    /// Of processes that this one starts from now on, and of those that they start; else of what
    /// the filter says.
    pub children: bool,
    /// Whether calls of this process's own threads are traced as well: those that send packets.
    pub own: bool,
}

impl CallsSpec {
    /// What an experiment asks for.
    pub fn of(asked: &Asked) -> CallsSpec {
        CallsSpec {
            function: asked.place().1.into(),
            depth: asked.depth(),
            slowest: asked.slowest(),
            steps: asked.steps(),
            only: asked.only.clone(),
            ..CallsSpec::default()
        }
    }
}

/// How many calls a block had, and how they are distributed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCounts {
    /// How many there were, without those within others.
    pub calls: u64,
    /// How many the condition holds for.
    pub matched: u64,
    /// How many were within others.
    pub recursive: u64,
    /// How many had not returned when the window closed.
    pub unfinished: u64,
    /// What they add up to.
    pub sum: u64,
    /// The least, median, 99th percentile and largest; none without calls.
    pub spread: Option<[u64; 4]>,
}

/// The calls of a window, whose times an instrument measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedCalls {
    /// All of them.
    pub counts: CallCounts,
    /// Names of functions and threads, which calls have by their index.
    pub names: Vec<String>,
    /// Those that are kept, in the order in which they began.
    pub kept: Vec<TimedCall>,
}

/// A call that was timed: its number among the calls of the window, and its steps, whose names are
/// those of [`TimedCalls::names`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedCall {
    /// Its number.
    pub number: u64,
    /// Its steps; it is the first.
    pub steps: Vec<Step>,
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

    /// Add how many calls a block had.
    pub fn add_call_counts(&mut self, block: u32, of: &OfCalls, counts: &CallCounts) {
        let at = Of::Block(block);
        for (quantity, value) in [
            (&of.calls, counts.calls),
            (&of.matched, counts.matched),
            (&of.recursive, counts.recursive),
            (&of.unfinished, counts.unfinished),
        ] {
            self.add(at, quantity, Item::ONLY, value as f64);
        }
        let spread = counts.spread.iter().flatten().copied();
        for (place, value) in PLACES.into_iter().zip(std::iter::once(counts.sum).chain(spread)) {
            self.add(at, &of.cost, Item::label(place), value as f64);
        }
    }

    /// Add the calls of a block that were timed. Returns how many there was no room for.
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
