//! The order of blocks. Where blocks run one at a time, they run in rounds: every arm has a turn
//! with every instrument before any has another, in a new order each round, so that drift affects
//! all alike.

use std::ops::Range;

/// Consecutive blocks of an arm.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Turn {
    /// Index of the arm in the run.
    pub(crate) arm: usize,
    /// The number of the instrument in the run.
    pub(crate) by: usize,
    /// The indices of its blocks.
    pub(crate) blocks: Range<u32>,
}

/// These blocks of each arm with each instrument, one block at a time. The same seed gives the same
/// order.
pub(crate) fn interleaved(
    arms: usize,
    instruments: usize,
    blocks: impl IntoIterator<Item = u32>,
    seed: u64,
) -> impl Iterator<Item = Turn> {
    let mut random = seed | 1;
    blocks.into_iter().flat_map(move |index| {
        let mut round: Vec<Turn> = whole(arms, instruments, index..index + 1);
        // Fisher and Yates.
        for last in (1..round.len()).rev() {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            round.swap(last, (random % (last as u64 + 1)) as usize);
        }
        round
    })
}

/// All blocks of an arm consecutively, arm by arm: where arms don't affect each other.
pub(crate) fn whole(arms: usize, instruments: usize, blocks: Range<u32>) -> Vec<Turn> {
    let of = |arm: usize| {
        let blocks = blocks.clone();
        (0..instruments).map(move |by| Turn { arm, by, blocks: blocks.clone() })
    };
    (0..arms).flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn list(arms: usize, instruments: usize, blocks: u32, seed: u64) -> Vec<Turn> {
        interleaved(arms, instruments, 0..blocks, seed).collect()
    }

    /// Check that every block has one turn, that no arm is ahead of another by more than one block,
    /// that rounds differ in order, and that a seed reproduces the order.
    #[test]
    fn turns_are_interleaved_and_shuffled() {
        let all = list(4, 2, 50, 5);
        assert_eq!(all.len(), 400);
        let mut seen = BTreeSet::new();
        let mut orders = BTreeSet::new();
        for (number, round) in (0..).zip(all.chunks(8)) {
            assert!(round.iter().all(|turn| turn.blocks == (number..number + 1)));
            for turn in round {
                assert!(seen.insert((turn.arm, turn.blocks.start, turn.by)));
            }
            let order: Vec<_> = round.iter().map(|turn| (turn.arm, turn.by)).collect();
            orders.insert(order);
        }
        assert!(orders.len() > 40, "{}", orders.len());
        assert_eq!(list(4, 2, 50, 5), all);
        assert_ne!(list(4, 2, 50, 7), all);
        assert!(list(2, 1, 3, 1).iter().all(|turn| turn.by == 0));
    }

    /// Check that no arm is always first.
    #[test]
    fn everyone_is_first_sometimes() {
        let all = list(2, 1, 200, 99);
        let first = all.chunks(2).filter(|round| round[0].arm == 0).count();
        assert!((60..140).contains(&first), "{first}");
    }

    /// Check that arms which don't affect each other run one after the other.
    #[test]
    fn arms_on_end() {
        let all = whole(2, 2, 0..5);
        let order: Vec<_> = all.iter().map(|turn| (turn.arm, turn.by)).collect();
        assert_eq!(order, [(0, 0), (0, 1), (1, 0), (1, 1)]);
        assert!(all.iter().all(|turn| turn.blocks == (0..5)));
    }
}
