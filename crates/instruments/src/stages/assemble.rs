//! Converts the programs' counters to stages and a ledger.

use std::collections::BTreeMap;

use netplumb_model::class::{Direction, Family, Proto};
use netplumb_model::loss::Loss;
use netplumb_model::span::{StageKind, Times};
use netplumb_model::timing::StageTimes;

use super::layout::{CLASSES, Cpu, FAMILIES, LOSS_WORDS, PLACES, PROTOS, ROWS, TIMES_WORDS};
use super::own::{Own, shorten};
use crate::live;

/// Add the times of another CPU, from the words of its map entry.
pub(super) fn add(times: &mut Times, words: &[u64]) {
    let [count, total_ns, min_ns, max_ns, buckets @ ..] = words else {
        return;
    };
    if *count == 0 {
        return;
    }
    times.min_ns = if times.count == 0 { *min_ns } else { times.min_ns.min(*min_ns) };
    times.max_ns = times.max_ns.max(*max_ns);
    times.count += count;
    times.total_ns += total_ns;
    let mut merged: BTreeMap<u16, u64> = times.buckets.iter().copied().collect();
    for (bucket, count) in (0_u16..).zip(buckets).filter(|(_, count)| **count > 0) {
        *merged.entry(bucket).or_default() += count;
    }
    times.buckets = merged.into_iter().collect();
}

/// The words of a `struct stages_times`, of one CPU.
pub(super) fn words(bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks_exact(8)
        .take(TIMES_WORDS)
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
        .collect()
}

/// The index of a class's row in the programs' table.
pub(super) fn key(row: usize, proto: usize, family: usize) -> usize {
    (row * CLASSES + proto) * FAMILIES + family
}

/// The stages of all classes that had packets, by their place in the programs'
/// table, without the programs' own time. What no packet met after the end of its path is left out.
pub(super) fn stages(seen: &BTreeMap<usize, Times>, own: &Own) -> Vec<StageTimes> {
    let mut stages = Vec::new();
    for (p, &proto) in PROTOS.iter().enumerate() {
        for (f, &family) in [Family::V4, Family::V6].iter().enumerate() {
            for direction in [Direction::Tx, Direction::Rx, Direction::Forward] {
                way(seen, own, (p, proto), (f, family), direction, &mut stages);
            }
        }
    }
    stages
}

fn way(
    seen: &BTreeMap<usize, Times>,
    own: &Own,
    (p, proto): (usize, Proto),
    (f, family): (usize, Family),
    direction: Direction,
    stages: &mut Vec<StageTimes>,
) {
    let rows = || {
        let all = ROWS.iter().enumerate();
        all.filter(move |(_, row)| row.direction == direction)
    };
    let times = |row: usize| seen.get(&key(row, p, f)).cloned().unwrap_or_default();
    let total = rows().find(|(_, row)| row.kind == StageKind::Total);
    let packets = total.map_or(0, |(row, _)| times(row).count);
    let mut after = false;
    // The total is reduced as much as its stages, so they still add up to it.
    let mut way_own_ns = 0;
    for (order, (row, stage)) in (0_u16..).zip(rows()) {
        let mut times = times(row);
        let own_ns = match stage.kind {
            StageKind::Total => {
                way_own_ns = u64::min(way_own_ns, times.total_ns);
                shorten(&mut times, way_own_ns);
                way_own_ns
            }
            _ if stage.busy => own.take_off(key(row, p, f), &mut times),
            _ => 0,
        };
        way_own_ns += own_ns;
        if times.count > 0 || (packets > 0 && !after) {
            stages.push(StageTimes {
                proto,
                family,
                direction,
                order,
                name: stage.name.to_string(),
                kind: stage.kind,
                passed_over: packets.saturating_sub(times.count),
                times,
                own_ns,
            });
        }
        after |= stage.kind == StageKind::Total;
    }
}

/// The ledger: counts by place, of all CPUs.
pub(super) fn ledger(cpus: &[Cpu]) -> BTreeMap<String, u64> {
    let mut ledger = BTreeMap::new();
    for (p, proto) in PROTOS.iter().enumerate() {
        for (place, name) in PLACES.iter().enumerate() {
            let count: u64 = cpus.iter().map(|cpu| cpu.places[p][place]).sum();
            if count > 0 {
                ledger.insert(format!("{proto} {name}"), count);
            }
        }
    }
    ledger
}

/// Losses of all CPUs, by `enum stages_loss`.
pub(super) fn losses(cpus: &[Cpu]) -> Vec<u64> {
    let each = 0..LOSS_WORDS.len();
    each.map(|i| cpus.iter().map(|cpu| cpu.losses[i]).sum()).collect()
}

/// The losses with their descriptions.
pub(super) fn described_losses(losses: &[u64]) -> Vec<Loss> {
    let words = LOSS_WORDS.iter().zip(losses);
    live::losses(words.map(|((cause, meaning), count)| (*cause, *count, *meaning)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(values: &[u64]) -> Vec<u64> {
        let mut words = vec![0; TIMES_WORDS];
        for (i, ns) in values.iter().enumerate() {
            words[0] += 1;
            words[1] += ns;
            words[2] = if i == 0 { *ns } else { words[2].min(*ns) };
            words[3] = words[3].max(*ns);
            words[4 + usize::try_from(*ns).unwrap()] += 1;
        }
        words
    }

    /// Check that the times of CPUs are added up, and that a CPU without any changes nothing.
    #[test]
    fn cpus_are_merged() {
        let mut times = Times::default();
        for values in [&[][..], &[3, 9], &[], &[2, 9, 15]] {
            add(&mut times, &entry(values));
        }
        assert_eq!(
            times,
            Times {
                count: 5,
                total_ns: 38,
                min_ns: 2,
                max_ns: 15,
                buckets: vec![(2, 1), (3, 1), (9, 2), (15, 1)],
            }
        );
    }

    /// Check that a class has all rows of its way in order, with the number of packets
    /// that skipped each; that a completion nobody met is left out; and that other
    /// classes have none.
    #[test]
    fn a_way_has_all_its_rows() {
        let find = |name: &str| {
            let mut rows = ROWS.iter();
            rows.position(|r| r.direction == Direction::Tx && r.name == name).unwrap()
        };
        let times = |count| Times { count, ..Times::default() };
        let seen = BTreeMap::from([
            (key(find("system call"), 1, 0), times(10)),
            (key(find("qdisc wait"), 1, 0), times(4)),
            (key(find("total"), 1, 0), times(10)),
        ]);
        let rows = stages(&seen, &Own::default());
        let found: Vec<_> =
            rows.iter().map(|s| (s.order, s.name.as_str(), s.passed_over)).collect();
        assert_eq!(
            found,
            [
                (0, "system call", 0),
                (1, "enqueue", 10),
                (2, "qdisc wait", 6),
                (3, "device", 10),
                (4, "driver", 10),
                (5, "unaccounted", 10),
                (6, "total", 0),
            ]
        );
        assert!(rows.iter().all(|s| s.proto == Proto::Udp));
        assert!(rows.iter().all(|s| s.family == Family::V4));
    }
}
