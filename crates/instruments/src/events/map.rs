//! Tries every event that plumb knows.

use netplumb_model::events::{EVENTS, Event, EventRequest};
use netplumb_sys::perf::count::{Counter, Target};

use super::reasons;
use super::resolve::{Tracepoints, one};

/// Whether an event can be counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventSupport {
    /// As in the table of events that plumb knows.
    pub event: &'static Event,
    /// Where it can be counted, or why it can't.
    pub counted: Result<Extent, String>,
}

/// Whose events can be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Events of all tasks and CPUs.
    All,
    /// Events of this user's own programs, in user mode and in the kernel.
    Own,
    /// Events of this user's own programs, in user mode only.
    UserMode,
}

impl Extent {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Extent::All => "yes",
            Extent::Own => "of own programs",
            Extent::UserMode => "of own programs, in user mode",
        }
    }
}

/// Try every declared event: open and close it.
pub fn map() -> Vec<EventSupport> {
    let mut tracepoints = Tracepoints::new();
    let found =
        |event: &'static Event| EventSupport { event, counted: attempt(event, &mut tracepoints) };
    EVENTS.iter().map(found).collect()
}

fn attempt(event: &'static Event, tracepoints: &mut Tracepoints) -> Result<Extent, String> {
    let asked = EventRequest::parse(event.name).map_err(|error| error.to_string())?;
    let mut found = one(event.name, asked, tracepoints).map_err(super::resolve::Refusal::why)?;
    let Some(mut what) = found.pop() else {
        return Err("no such event".into());
    };
    let opens = |what: &super::resolve::Resolved, target| {
        Counter::open(&mut what.attr(), target, false).map(drop)
    };
    let Err(error) = opens(&what, Target::Cpu(0)) else {
        return Ok(Extent::All);
    };
    if opens(&what, Target::Thread(0, None)).is_ok() {
        return Ok(Extent::Own);
    }
    let why = reasons::refused(&what.asked, &error);
    match what.user_only() && opens(&what, Target::Thread(0, None)).is_ok() {
        true => Ok(Extent::UserMode),
        false => Err(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every event is tried once, that page faults of own programs can be counted, and that
    /// an event that can't be counted has a reason.
    #[test]
    fn all_are_tried() {
        let all = map();
        assert_eq!(all.len(), EVENTS.len());
        let faults = all.iter().find(|found| found.event.name == "page-faults");
        assert!(faults.unwrap().counted.is_ok());
        for found in &all {
            if let Err(why) = &found.counted {
                assert!(why.len() > 10, "{}: {why}", found.event.name);
            }
        }
    }
}
