//! What spans.h declares, made of it when this is built.

mod made {
    #![allow(dead_code, reason = "not all that a header declares is used")]

    use netplumb_sys::plain::Plain;

    include!(concat!(env!("OUT_DIR"), "/spans.rs"));
}

pub(super) use made::{
    BY_BIO, BY_CPU, BY_NOTHING, BY_REQUEST, BY_SKB, BY_STACK, BY_TASK, Begun, Config, Counts,
    EVENTS, Event, Group, KEY_ARGUMENT, KEY_CPU, KEY_FIELD, KEY_RETURNED, KEY_TASK, KEYS, Known,
    OPEN, Times, Turn,
};

/// The row of the time from one event to a later one that is reached next.
pub(super) fn row(from: usize, to: usize) -> usize {
    to * (to - 1) / 2 + from
}

/// Rows of so many events: of each pair, and of the whole, which is the last.
pub(super) fn rows(events: usize) -> usize {
    events * (events - 1) / 2 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each pair of events has a row of its own, and the whole the last.
    #[test]
    fn rows_of_pairs() {
        for events in 2..=EVENTS {
            let mut all: Vec<usize> =
                (0..events).flat_map(|to| (0..to).map(move |from| row(from, to))).collect();
            all.sort_unstable();
            let wanted: Vec<usize> = (0..rows(events) - 1).collect();
            assert_eq!(all, wanted);
        }
        assert_eq!(rows(EVENTS), super::made::ROWS);
    }
}
