//! Times, and their distributions.

use netplumb_model::recording::Recording;
use netplumb_model::span::{BUCKETS, SUB_BITS, Times};

use super::{UNDER_WAY, UNDER_WAY_SHARE};

/// Spans and attachments refer to existing rows.
pub(super) fn ids(recording: &Recording) -> Result<(), String> {
    let (blocks, nodes) = (recording.blocks.len(), recording.nodes.len());
    let check = |table: &str, row: usize, what: &str, id: u32, len: usize| {
        if (id as usize) < len {
            return Ok(());
        }
        Err(format!("table {table}, row {row}: dangling reference to {what} {id}"))
    };
    for (row, span) in recording.spans.iter().enumerate() {
        check("span", row, "block", span.block, blocks)?;
        if let Some(call) = span.call() {
            check("span", row, "node", call.node, nodes)?;
        }
    }
    for (row, group) in recording.groups.iter().enumerate() {
        check("span_group", row, "block", group.block, blocks)?;
    }
    for (row, slice) in recording.slices.iter().enumerate() {
        check("span_slice", row, "block", slice.block, blocks)?;
        let wrong = |bucket: &(u16, u64)| usize::from(bucket.0) >= BUCKETS;
        if slice.buckets.iter().any(wrong) {
            return Err(format!("table span_slice, row {row}: no such bucket"));
        }
    }
    let functions = recording.functions.len();
    for (row, attachment) in recording.attachments.iter().enumerate() {
        check("attachment", row, "function", attachment.function, functions)?;
    }
    Ok(())
}

/// A distribution agrees with its count and sum.
pub(super) fn add_up(recording: &Recording) -> Result<(), String> {
    for (row, span) in recording.spans.iter().enumerate() {
        distribution(&span.times).map_err(|why| format!("table span, row {row}: {why}"))?;
    }
    for (row, group) in recording.groups.iter().enumerate() {
        distribution(&group.times).map_err(|why| format!("table span_group, row {row}: {why}"))?;
    }
    Ok(())
}

fn distribution(times: &Times) -> Result<(), String> {
    // The maximum is reset when a window opens, possibly during a call.
    if times.min_ns > times.max_ns && times.max_ns > 0 {
        let (min, max) = (times.min_ns, times.max_ns);
        return Err(format!("minimum {min} ns, maximum {max} ns"));
    }
    let (mut count, mut least, mut most) = (0, 0_u128, 0_u128);
    for (bucket, n) in &times.buckets {
        if usize::from(*bucket) >= BUCKETS {
            return Err(format!("no such bucket {bucket}"));
        }
        count += n;
        let (low, high) = bounds(*bucket);
        // The last bucket has all longer times.
        let high = if usize::from(*bucket) == BUCKETS - 1 { times.max_ns.max(low) } else { high };
        least += u128::from(low) * u128::from(*n);
        most += u128::from(high) * u128::from(*n);
    }
    if count.abs_diff(times.count) > UNDER_WAY + times.count / UNDER_WAY_SHARE {
        return Err(format!("count {}, but {count} in its buckets", times.count));
    }
    // These are also read one after the other; and each may be as long as the maximum.
    let slack = |sum: u128| sum / u128::from(UNDER_WAY_SHARE);
    let last = times.buckets.last().map_or(0, |(bucket, _)| bounds(*bucket).1);
    let one = u128::from(times.max_ns.max(last)) * u128::from(UNDER_WAY);
    let total = u128::from(times.total_ns);
    if total + one + slack(least) < least || total > most + one + slack(most) {
        return Err(format!("total {total} ns, but {least} to {most} by its buckets"));
    }
    Ok(())
}

/// The bounds of a bucket, as in the view `bucket_bounds`.
fn bounds(bucket: u16) -> (u64, u64) {
    const SUB: u64 = 1 << SUB_BITS;
    let bucket = u64::from(bucket);
    if bucket < SUB {
        return (bucket, bucket);
    }
    let shift = bucket / SUB - 1;
    let low = (SUB + bucket % SUB) << shift;
    (low, low + (1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(count: u64, each_ns: u64, buckets: &[(u16, u64)]) -> Times {
        Times {
            count,
            total_ns: count * each_ns,
            min_ns: each_ns,
            max_ns: each_ns,
            buckets: buckets.to_vec(),
        }
    }

    /// Check that differences from reading counters while packets run are tolerated, and that
    /// changed sums are not.
    #[test]
    fn readers_that_wait() {
        // 1,000 ns are in bucket 111: (16 + 15) << 5 to 1,023.
        let whole = times(89_371, 1_000, &[(111, 89_371)]);
        assert_eq!(distribution(&whole), Ok(()));
        let torn = times(89_371, 1_000, &[(111, 89_570)]);
        assert_eq!(distribution(&torn), Ok(()));
        // One call with only its bucket counted; and the maximum was reset meanwhile.
        let bucket_alone = times(0, 0, &[(400, 1)]);
        assert_eq!(distribution(&bucket_alone), Ok(()));
        let forgotten = Times { max_ns: 0, ..times(1, 1_000, &[(111, 1)]) };
        assert_eq!(distribution(&forgotten), Ok(()));
        let doubled = Times { total_ns: 2 * whole.total_ns, ..whole.clone() };
        let error = distribution(&doubled).unwrap_err();
        assert!(error.starts_with("total "), "{error}");
        let more = Times { count: 2 * whole.count, ..whole };
        let error = distribution(&more).unwrap_err();
        assert!(error.ends_with("in its buckets"), "{error}");
    }
}
