//! Which arms are compared with which.

use netplumb_model::recording::Arm;

/// Two arms to compare, by index, and what tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArmPair {
    /// Of the recording before.
    pub before: usize,
    /// Of the recording after.
    pub after: usize,
}

/// What of an arm that is not a knob of the machine may differ, and the knobs, in
/// words: "link", "lo", "veth".
pub fn differing(before: &Arm, after: &Arm) -> Vec<(String, String, String)> {
    let on = |b: bool| if b { "on" } else { "off" }.to_string();
    let mut differing = Vec::new();
    let mut add = |what: &str, was: String, is: String| {
        if was != is {
            differing.push((what.to_string(), was, is));
        }
    };
    add(
        "protocol",
        before.proto.to_string(),
        after.proto.to_string(),
    );
    add("IP", before.family.to_string(), after.family.to_string());
    add("link", before.link.to_string(), after.link.to_string());
    add("router", on(before.forward), on(after.forward));
    add(
        "bytes",
        before.size_bytes.to_string(),
        after.size_bytes.to_string(),
    );
    let mut knobs: Vec<&String> = before.knobs.keys().chain(after.knobs.keys()).collect();
    knobs.sort_unstable();
    knobs.dedup();
    for knob in knobs {
        let level = |arm: &Arm| arm.knobs.get(knob).cloned().unwrap_or("not set".into());
        add(knob, level(before), level(after));
    }
    differing
}

/// Pair arms of two recordings: by name; if each has one arm left, those; else
/// those that are alone in sending the same over the same.
pub fn pair(before: (&[Arm], Vec<usize>), after: (&[Arm], Vec<usize>)) -> Pairs {
    let (all_before, mut left) = before;
    let (all_after, mut right) = after;
    let mut pairs = Vec::new();
    type Same = fn(&Arm, &Arm) -> bool;
    let properties: Same = |a, b| {
        (a.proto, a.family, a.link, a.size_bytes, a.forward)
            == (b.proto, b.family, b.link, b.size_bytes, b.forward)
    };
    let same_knobs: Same = |a, b| {
        (a.proto, a.family, a.link, a.size_bytes, a.forward, &a.knobs)
            == (b.proto, b.family, b.link, b.size_bytes, b.forward, &b.knobs)
    };
    let passes: [Same; 4] = [
        |a, b| a.name == b.name,
        same_knobs,
        properties,
        |a, b| a.proto == b.proto,
    ];
    if left.len() == 1 && right.len() == 1 {
        pairs.push(ArmPair {
            before: left.remove(0),
            after: right.remove(0),
        });
    }
    for same in passes {
        let found: Vec<ArmPair> = left
            .iter()
            .filter_map(|b| {
                let only = |arms: &[Arm], among: &[usize], arm: &Arm| {
                    let mut fitting = among.iter().filter(|n| same(&arms[**n], arm));
                    fitting.next().filter(|_| fitting.next().is_none()).copied()
                };
                let a = only(all_after, &right, &all_before[*b])?;
                let back = only(all_before, &left, &all_after[a])?;
                (back == *b).then_some(ArmPair {
                    before: *b,
                    after: a,
                })
            })
            .collect();
        left.retain(|n| !found.iter().any(|p| p.before == *n));
        right.retain(|n| !found.iter().any(|p| p.after == *n));
        pairs.extend(found);
    }
    pairs.sort_by_key(|p| (p.before, p.after));
    Pairs {
        pairs,
        left_before: left,
        left_after: right,
    }
}

/// What came of pairing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pairs {
    /// To compare, in the order of the plan.
    pub pairs: Vec<ArmPair>,
    /// Without a partner, before.
    pub left_before: Vec<usize>,
    /// Without a partner, after.
    pub left_after: Vec<usize>,
}

/// The knob of an arm that repeats another under another random seed: it is of
/// that arm's spread, and not there to be compared with it.
const REPEAT_OF: &str = netplumb_model::recording::env::SEED_OF;

/// The knob of an arm that is another once more.
const AGAIN: &str = netplumb_model::bench::AGAIN;

/// Pair the arms of one recording among themselves: each, but the first of its
/// protocol, with the first before it from which it differs in one thing only, or
/// with the first if there is none. One that is another once more is compared with that,
/// and none with it.
pub fn pair_within(arms: &[Arm]) -> Vec<ArmPair> {
    let mut pairs = Vec::new();
    let repeat = |n: &usize| arms[*n].knobs.contains_key(REPEAT_OF);
    let again = |n: &usize| arms[*n].knobs.contains_key(AGAIN);
    for after in (0..arms.len()).filter(|n| !repeat(n)) {
        let earlier: Vec<usize> = (0..after)
            .filter(|n| arms[*n].proto == arms[after].proto && !repeat(n) && !again(n))
            .collect();
        if again(&after) {
            let same = |n: &&usize| {
                let differs = differing(&arms[**n], &arms[after]);
                differs.iter().all(|(what, ..)| what == AGAIN)
            };
            let before = earlier.iter().find(same);
            pairs.extend(before.map(|&before| ArmPair { before, after }));
            continue;
        }
        let by_one = earlier
            .iter()
            .find(|n| differing(&arms[**n], &arms[after]).len() == 1);
        if let Some(&before) = by_one.or(earlier.first()) {
            pairs.push(ArmPair { before, after });
        }
    }
    pairs
}
