//! In which order blocks run: every arm once before any runs again, each time in
//! another order, so that what drifts bears on all arms alike.

/// One block to be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Turn {
    /// The arm.
    pub arm: usize,
    /// Which of its blocks.
    pub index: u32,
    /// Whether the instrument is attached.
    pub probed: bool,
}

/// `blocks` of each of `arms`; with `bare`, each arm's again without the instrument.
/// The same seed gives the same order.
pub fn turns(arms: usize, blocks: u32, bare: bool, seed: u64) -> Vec<Turn> {
    let mut random = seed | 1;
    let mut all = Vec::new();
    for index in 0..blocks {
        let mut round: Vec<Turn> = (0..arms)
            .flat_map(|arm| {
                let probed = [true, false].into_iter();
                probed
                    .take(1 + usize::from(bare))
                    .map(move |probed| Turn { arm, index, probed })
            })
            .collect();
        // Fisher and Yates.
        for last in (1..round.len()).rev() {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            round.swap(last, (random % (last as u64 + 1)) as usize);
        }
        all.extend(round);
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Check that every block has its turn once, that no arm is ahead of another by more
    /// than one block, that orders differ, and that a seed gives its order again.
    #[test]
    fn turns_are_interleaved_and_shuffled() {
        let all = turns(4, 50, true, 5);
        assert_eq!(all.len(), 400);
        let mut seen = BTreeSet::new();
        let mut orders = BTreeSet::new();
        for (number, round) in all.chunks(8).enumerate() {
            assert!(round.iter().all(|turn| turn.index as usize == number));
            for turn in round {
                assert!(seen.insert((turn.arm, turn.index, turn.probed)));
            }
            let order: Vec<_> = round.iter().map(|turn| (turn.arm, turn.probed)).collect();
            orders.insert(order);
        }
        assert!(orders.len() > 40, "{}", orders.len());
        assert_eq!(turns(4, 50, true, 5), all);
        assert_ne!(turns(4, 50, true, 7), all);
        assert!(turns(2, 3, false, 1).iter().all(|turn| turn.probed));
    }

    /// Check that no arm is always first.
    #[test]
    fn everyone_is_first_sometimes() {
        let all = turns(2, 200, false, 99);
        let first = all.chunks(2).filter(|round| round[0].arm == 0).count();
        assert!((60..140).contains(&first), "{first}");
    }
}
