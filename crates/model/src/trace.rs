//! Single traces: the steps of one call of a function, or of one packet, in the order in which they
//! began.

use serde::{Deserialize, Serialize};

use crate::class::Context;
use crate::condition::Condition;
use crate::quantity::QuantityId;

/// An index into the recording's texts of traces.
pub type TextId = u32;

/// Maximum number of steps of a recording.
pub const MAX_STEPS: usize = 1 << 23;

/// The subject of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Followed {
    /// A packet on its path through the kernel.
    Packet,
    /// A call of the traced function.
    Call,
}

/// One trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// The index of its block; none in recordings of older versions.
    pub block: Option<u32>,
    /// The unit of its steps.
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
    /// Its own cost, including callees: without interrupts, and without other tasks.
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
    /// The call's arguments, as one text.
    pub arguments: Option<TextId>,
    /// Its return value, as text.
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
    /// The number of calls kept in each window, the most expensive, besides the first one.
    pub slowest: u32,
    /// Maximum number of steps that are kept of a call.
    pub steps: u32,
    /// Which calls are kept.
    pub only: Option<Condition>,
    /// Of processes that this one starts from now on, and their descendants; otherwise as the filter selects.
    pub children: bool,
    /// Whether to trace calls of this process's own threads, too: the ones that send packets.
    pub own: bool,
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
    /// Their sums.
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

/// A timed call: its number among the calls of the window, and its steps, named by [`TimedCalls::names`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedCall {
    /// The call's number among the calls of its window.
    pub number: u64,
    /// Its steps; it is the first.
    pub steps: Vec<Step>,
}

/// Further properties of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flags(pub u8);

impl Flags {
    /// It was jumped to: a tail call.
    pub const TAIL: Flags = Flags(1);
    /// It came in between: an interrupt or softirqs, not included in the total of the interrupted.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::number;

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
}
