//! Log-linear histograms of nanoseconds, as sparse lists of buckets and counts.
//!
//! Below 16 each value has a bucket. Above, each octave has 16 of equal width, so a bucket is never
//! wider than a sixteenth of its values. The last one also has values above 34 seconds.

/// Sub-buckets of an octave, as a power of two.
pub const SUB_BITS: u32 = 4;
/// Number of buckets.
pub const BUCKETS: usize = 512;

const SUB: u64 = 1 << SUB_BITS;

/// The bucket of a value.
pub fn bucket_of(value: u64) -> u16 {
    if value < SUB {
        return value as u16;
    }
    let octave = 63 - value.leading_zeros();
    let sub = (value >> (octave - SUB_BITS)) & (SUB - 1);
    let bucket = u64::from(octave - SUB_BITS + 1) * SUB + sub;
    bucket.min(BUCKETS as u64 - 1) as u16
}

/// The smallest value of a bucket.
pub fn lower(bucket: u16) -> u64 {
    let bucket = u64::from(bucket).min(BUCKETS as u64 - 1);
    if bucket < SUB {
        return bucket;
    }
    (SUB + bucket % SUB) << (bucket / SUB - 1)
}

/// The largest value of a bucket; for the last one, the largest within its width.
pub fn upper(bucket: u16) -> u64 {
    let bucket = u64::from(bucket).min(BUCKETS as u64 - 1);
    if bucket < SUB {
        return bucket;
    }
    let width = 1 << (bucket / SUB - 1);
    ((SUB + bucket % SUB) << (bucket / SUB - 1)) + (width - 1)
}

/// Add the counts of one list to another. Both are ascending, and the sum is.
pub fn merge(into: &mut Vec<(u16, u64)>, other: &[(u16, u64)]) {
    if other.is_empty() {
        return;
    }
    let mut out = Vec::with_capacity(into.len() + other.len());
    let (mut left, mut right) = (into.iter().peekable(), other.iter().peekable());
    loop {
        match (left.peek(), right.peek()) {
            (Some(&&(a, n)), Some(&&(b, m))) if a == b => {
                out.push((a, n.saturating_add(m)));
                left.next();
                right.next();
            }
            (Some(&&(a, n)), Some(&&(b, _))) if a < b => {
                out.push((a, n));
                left.next();
            }
            (Some(&&one), None) => {
                out.push(one);
                left.next();
            }
            (_, Some(&&one)) => {
                out.push(one);
                right.next();
            }
            (None, None) => break,
        }
    }
    *into = out;
}

/// The number of values.
pub fn count(buckets: &[(u16, u64)]) -> u64 {
    buckets.iter().fold(0, |sum, (_, n)| sum.saturating_add(*n))
}

/// The quantile of a share, interpolated within its bucket and limited to the minimum and maximum.
/// None for an empty histogram.
pub fn quantile(buckets: &[(u16, u64)], share: f64, min: u64, max: u64) -> Option<f64> {
    let all = count(buckets);
    if all == 0 {
        return None;
    }
    let rank = share.clamp(0.0, 1.0) * all as f64;
    let mut below = 0.0;
    let mut value = max as f64;
    for (bucket, n) in buckets.iter().filter(|(_, n)| *n > 0) {
        let n = *n as f64;
        if below + n >= rank {
            let low = lower(*bucket) as f64;
            // The last bucket has all longer times.
            let high = if usize::from(*bucket) == BUCKETS - 1 {
                max as f64
            } else {
                upper(*bucket) as f64
            };
            value = low + (high - low) * ((rank - below) / n).clamp(0.0, 1.0);
            break;
        }
        below += n;
    }
    // Not `clamp`, which would panic for an invalid recording with min above max.
    Some(value.max(min as f64).min(max as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that buckets follow each other without a gap, and that values are in their buckets.
    #[test]
    fn buckets_cover_everything() {
        let mut next = 0;
        for bucket in 0..BUCKETS as u16 {
            assert_eq!(lower(bucket), next, "bucket {bucket}");
            assert_eq!(bucket_of(lower(bucket)), bucket);
            assert_eq!(bucket_of(upper(bucket)), bucket);
            let width = upper(bucket) - lower(bucket) + 1;
            assert!(width == 1 || width * SUB <= lower(bucket), "bucket {bucket}");
            next = upper(bucket) + 1;
        }
        assert_eq!(next, 1 << 35);
        assert_eq!(bucket_of(u64::MAX), 511);
    }

    /// Check that a merge adds, keeps the order, and loses nothing.
    #[test]
    fn merging() {
        let mut sum = vec![(1, 1), (5, 2), (511, u64::MAX)];
        merge(&mut sum, &[(0, 4), (5, 1), (7, 9), (511, 1)]);
        assert_eq!(sum, [(0, 4), (1, 1), (5, 3), (7, 9), (511, u64::MAX)]);
        merge(&mut sum, &[]);
        assert_eq!(sum.len(), 5);
        let mut none = Vec::new();
        merge(&mut none, &[(3, 1)]);
        assert_eq!(none, [(3, 1)]);
    }

    /// Check that quantiles of a known distribution are within a bucket's width.
    #[test]
    fn quantiles() {
        let mut buckets: Vec<(u16, u64)> = Vec::new();
        for value in 1..=100_000 {
            merge(&mut buckets, &[(bucket_of(value), 1)]);
        }
        for share in [0.01, 0.25, 0.5, 0.9, 0.99, 0.999] {
            let found = quantile(&buckets, share, 1, 100_000).unwrap();
            let right = share * 100_000.0;
            assert!((found / right - 1.0).abs() < 1.0 / 64.0, "{share}: {found}");
        }
        assert_eq!(quantile(&buckets, 1.0, 1, 100_000), Some(100_000.0));
        assert_eq!(quantile(&buckets, 0.0, 1, 100_000), Some(1.0));
        assert_eq!(quantile(&[], 0.5, 0, 0), None);
        assert_eq!(quantile(&[(3, 0)], 0.5, 0, 0), None);
        // One value is every quantile.
        assert_eq!(quantile(&[(bucket_of(1000), 7)], 0.5, 1000, 1000), Some(1000.0));
        // Longer than any bucket.
        let long = 1 << 40;
        assert_eq!(quantile(&[(511, 1)], 1.0, long, long), Some(long as f64));
        assert_eq!(quantile(&[(3, 1)], 0.5, 9, 1), Some(1.0), "made up");
    }
}
