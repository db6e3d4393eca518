//! The programs' own time in each stage, which is subtracted: what own.h took of some packets, and what
//! running a program costs in addition.

use std::collections::BTreeMap;

use netplumb_model::span::{BUCKETS, Times, upper};

use super::layout::Own as Taken;

/// What was taken of each row of the programs' table since they were loaded, by its place there.
#[derive(Debug, Clone, Default)]
pub(super) struct Own {
    pub(super) rows: BTreeMap<usize, Taken>,
    /// See [`cost::of_a_run`](super::cost::of_a_run).
    pub(super) run_ns: f64,
}

/// Packets from which on a window's own mean is better than the mean of all windows.
const ENOUGH: u64 = 16;

impl Own {
    /// What was taken since then, in rows with enough of it; in others, everything.
    pub(super) fn since(&self, before: &Own) -> Own {
        let mut since = self.clone();
        for (key, taken) in &mut since.rows {
            let Some(before) = before.rows.get(key) else {
                continue;
            };
            if taken.count - before.count >= ENOUGH {
                taken.count -= before.count;
                taken.own_ns -= before.own_ns;
                taken.hits -= before.hits;
            }
        }
        since
    }

    /// The mean of a packet in a row; 0 where none was taken.
    fn mean_ns(&self, key: usize) -> f64 {
        let Some(taken) = self.rows.get(&key).filter(|taken| taken.count > 0) else {
            return 0.0;
        };
        let sum_ns = taken.own_ns as f64 + taken.hits as f64 * self.run_ns;
        (sum_ns / taken.count as f64).max(0.0)
    }

    /// Subtract it from the times of a row; returns the sum over all packets.
    pub(super) fn take_off(&self, key: usize, times: &mut Times) -> u64 {
        let own_ns = (self.mean_ns(key) * times.count as f64).round() as u64;
        let own_ns = own_ns.min(times.total_ns);
        shorten(times, own_ns);
        own_ns
    }
}

/// Subtract this from the sum of times, evenly from each.
pub(super) fn shorten(times: &mut Times, off_ns: u64) {
    if times.count == 0 || off_ns == 0 {
        return;
    }
    let each_ns = off_ns as f64 / times.count as f64;
    times.total_ns -= off_ns;
    let less = |ns: u64| (ns as f64 - each_ns).max(0.0).round() as u64;
    times.min_ns = less(times.min_ns);
    times.max_ns = less(times.max_ns);
    let moved = shifted(&times.buckets, each_ns);
    // Times shorter than that become 0: the remaining ones would add up to more than the sum.
    let least_ns: f64 = moved.iter().map(|(bucket, n)| begins(*bucket) * *n as f64).sum();
    times.buckets = match least_ns <= times.total_ns as f64 {
        true => moved,
        false => {
            let share = times.total_ns as f64 / (times.total_ns + off_ns) as f64;
            moved_by(&times.buckets, |ns| ns * share)
        }
    };
}

/// A histogram with all times shortened by this, each bucket's spread evenly over it.
fn shifted(buckets: &[(u16, u64)], by_ns: f64) -> Vec<(u16, u64)> {
    moved_by(buckets, |ns| ns - by_ns)
}

/// Where a bucket begins; the end of the last is where the next would.
fn begins(bucket: u16) -> f64 {
    match bucket {
        0 => 0.0,
        bucket => upper(bucket - 1) as f64 + 1.0,
    }
}

/// A histogram with shortened times, in the same order.
///
/// Times are whole ns, and a bucket ends with its longest one. That one becomes one of the numbers from its shorter
/// self to 1 above, each as likely, which rounded down are its shorter self on average: so the buckets' sum still
/// equals the times', even for times of a few ns.
fn moved_by(buckets: &[(u16, u64)], shorter: impl Fn(f64) -> f64) -> Vec<(u16, u64)> {
    let mut found: BTreeMap<u16, u64> = BTreeMap::new();
    for &(bucket, count) in buckets {
        let longest = begins(bucket + 1) - 1.0;
        let (from, to) = (shorter(begins(bucket)), shorter(longest) + 1.0);
        if to <= 0.0 {
            *found.entry(0).or_default() += count;
            continue;
        }
        // Buckets are in order of time, so what is below the end of one is a growing number.
        let below = |end: f64| {
            let share = ((end - from) / (to - from)).clamp(0.0, 1.0);
            (share * count as f64).round() as u64
        };
        let mut placed = 0;
        for into in (0..=bucket).rev().take_while(|into| {
            // Values below 0 become 0.
            begins(*into + 1) > from || *into == 0
        }) {
            let above = match into {
                0 => count,
                into => count - below(begins(into)),
            };
            let new = above - placed;
            if new > 0 {
                *found.entry(into).or_default() += new;
            }
            placed = above;
        }
    }
    debug_assert!(found.keys().all(|bucket| usize::from(*bucket) < BUCKETS));
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(values: &[u64]) -> Times {
        let mut times = Times::default();
        for ns in values {
            let bucket = (0..).find(|bucket| *ns <= upper(*bucket)).unwrap();
            times.add(&Times {
                count: 1,
                total_ns: *ns,
                min_ns: *ns,
                max_ns: *ns,
                buckets: vec![(bucket, 1)],
            });
        }
        times
    }

    fn own(count: u64, own_ns: u64, hits: u64) -> Own {
        let taken = Taken { count, own_ns, hits };
        Own { rows: BTreeMap::from([(3, taken)]), run_ns: 20.0 }
    }

    /// Check that the mean of what was taken, and of what its runs cost, is subtracted from every
    /// packet of its row, and from no other row.
    #[test]
    fn a_mean_is_subtracted() {
        // 100 ns and two runs a packet.
        let own = own(5, 500, 10);
        let mut seen = times(&[1000; 40]);
        assert_eq!(own.take_off(3, &mut seen), 40 * 140);
        assert_eq!((seen.count, seen.total_ns, seen.min_ns, seen.max_ns), (40, 40 * 860, 860, 860));
        assert_eq!(seen.buckets.iter().map(|(_, n)| n).sum::<u64>(), 40);
        for (bucket, _) in &seen.buckets {
            // Times of 992 to 1023 ns.
            assert!((852..884).contains(&upper(*bucket)) || (864..=895).contains(&upper(*bucket)));
        }
        let mut other = times(&[1000; 40]);
        assert_eq!(own.take_off(4, &mut other), 0);
        assert_eq!(other, times(&[1000; 40]));
    }

    /// Check that a window's own packets count if there are enough of them.
    #[test]
    fn windows_are_apart() {
        let (before, few, many) =
            (own(100, 5_000, 100), own(115, 9_000, 115), own(120, 9_000, 120));
        assert_eq!(few.since(&before).rows[&3].count, 115);
        assert_eq!(many.since(&before).rows[&3].own_ns, 4_000);
        assert_eq!(many.since(&Own::default()).rows[&3].count, 120);
    }

    /// Check that no time is negative.
    #[test]
    fn nothing_is_less_than_nothing() {
        let mut seen = times(&[10, 20, 500]);
        assert_eq!(own(1, 600, 0).take_off(3, &mut seen), 530);
        assert_eq!((seen.total_ns, seen.min_ns, seen.max_ns), (0, 0, 323));
        assert_eq!(seen.buckets.iter().map(|(_, n)| n).sum::<u64>(), 3);
    }

    /// Check that a histogram agrees with its sum, even if many times are shorter than what is subtracted.
    #[test]
    fn sums_and_buckets_agree() {
        let mut seen = times(&[10, 10, 10, 10, 10_000]);
        shorten(&mut seen, 9_000);
        let least: u64 = (seen.buckets.iter()).map(|(bucket, n)| begins(*bucket) as u64 * n).sum();
        assert!(least <= seen.total_ns, "{seen:?}");
        assert_eq!(seen.buckets.iter().map(|(_, n)| n).sum::<u64>(), 5);
        shorten(&mut seen, 1_040);
        assert_eq!((seen.total_ns, &seen.buckets[..]), (0, &[(0, 5)][..]));
    }

    /// Check that the buckets have room for the sum, and no more than it, whatever is subtracted, and however short the
    /// times.
    #[test]
    fn buckets_have_room_for_the_sum() {
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..500 {
            let (least, spread) = (random(40), 1 + random(200));
            let values: Vec<u64> = (0..2000).map(|_| least + random(spread)).collect();
            let mut seen = times(&values);
            let off_ns = random(seen.total_ns);
            shorten(&mut seen, off_ns);
            let sum = |of: fn(u16) -> u64| -> u64 {
                seen.buckets.iter().map(|(bucket, n)| of(*bucket) * n).sum()
            };
            let (low, high) = (sum(|bucket| begins(bucket) as u64), sum(upper));
            // Rounding: a few packets of each bucket.
            let slack = 100 + seen.total_ns / 50;
            assert!(
                low <= seen.total_ns + slack && seen.total_ns <= high + slack,
                "{least} ns and up to {spread} more, less {off_ns} ns in all: {seen:?}"
            );
        }
    }

    /// Check that a shift by less than a bucket moves that share of it, so that a median does not stand
    /// still until it jumps.
    #[test]
    fn a_small_shift_moves_a_share() {
        // A bucket of 32 ns: 992 to 1023.
        let seen = shifted(&[(111, 1000)], 8.0);
        assert_eq!(upper(111), 1023);
        assert_eq!(seen, [(110, 250), (111, 750)]);
        assert_eq!(shifted(&[(0, 5), (3, 2)], 4.0), [(0, 7)]);
    }
}
