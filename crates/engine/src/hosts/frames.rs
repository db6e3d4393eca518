//! The log of frames that a wire's plugin writes, checked by arithmetic of its own: a wire that
//! delivers a frame at another time than a real one is not to be believed.

use netplumb_model::hosts::{WIRE_OVERHEAD_BYTES, Wire};

use crate::error::EngineError;

/// Bytes of an entry (`struct wire_entry`, plugins/qemu/wire.h).
const ENTRY_BYTES: usize = 24;

/// A frame on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Frame {
    /// When its first bit left.
    begin_ps: u64,
    /// When it had been received; none if it was lost.
    arrival_ns: Option<u64>,
    /// With its header, without FCS.
    bytes: u32,
}

/// The frames of a log.
fn frames(log: &[u8]) -> impl Iterator<Item = Frame> {
    log.chunks_exact(ENTRY_BYTES).map(|entry| {
        let word = |at: usize| {
            // INVARIANT: an entry has as many bytes.
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&entry[at..at + 8]);
            i64::from_le_bytes(bytes)
        };
        Frame {
            begin_ps: word(0) as u64,
            arrival_ns: u64::try_from(word(8)).ok(),
            bytes: word(16) as u32,
        }
    })
}

/// Check that frames follow each other as on a wire of this rate, and arrive when they would.
///
/// # Errors
/// One did not.
pub(super) fn check(log: &[u8], wire: Wire) -> Result<(), EngineError> {
    let wrong = |number: usize, why: &str| {
        Err(EngineError::Guest(format!(
            "the wire is not to be trusted: frame {number} {why}"
        )))
    };
    if !log.len().is_multiple_of(ENTRY_BYTES) {
        return wrong(log.len() / ENTRY_BYTES, "is cut short");
    }
    let (mut free_ps, mut last_arrival_ns) = (0_u64, 0_u64);
    for (number, frame) in frames(log).enumerate() {
        if frame.begin_ps < free_ps {
            return wrong(number, "began before the one before it had ended");
        }
        let bits = 8 * (u128::from(frame.bytes) + u128::from(WIRE_OVERHEAD_BYTES));
        let occupied_ps = bits * 1_000_000_000_000 / u128::from(wire.rate_bps);
        free_ps = frame.begin_ps + occupied_ps as u64;
        let Some(arrival_ns) = frame.arrival_ns else {
            continue;
        };
        let soonest = (free_ps.div_ceil(1_000) + wire.delay_ns).max(last_arrival_ns);
        let latest = (free_ps.div_ceil(1_000) + wire.delay_ns + wire.jitter_ns).max(soonest);
        if !(soonest..=latest).contains(&arrival_ns) {
            return wrong(number, "arrived at another time than over a wire");
        }
        last_arrival_ns = arrival_ns;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIRE: Wire = Wire {
        rate_bps: 1_000_000_000,
        delay_ns: 1_000,
        jitter_ns: 0,
        loss_ppb: 0,
    };

    fn log(frames: &[(u64, i64, u32)]) -> Vec<u8> {
        let entry = |(begin, arrival, bytes): &(u64, i64, u32)| {
            let words = [*begin as i64, *arrival, i64::from(*bytes)];
            words.map(i64::to_le_bytes).concat()
        };
        frames.iter().flat_map(entry).collect()
    }

    /// Check that two full frames, which take 12.304 us each, are believed one after the other, and
    /// that earlier, later and overlapping ones are not.
    #[test]
    fn full_frames() {
        let fine = [(0, 13_304, 1_514), (12_304_000, 25_608, 1_514)];
        assert!(check(&log(&fine), WIRE).is_ok());
        for wrong in [
            [(0, 13_303, 1_514), (12_304_000, 25_608, 1_514)],
            [(0, 13_305, 1_514), (12_304_000, 25_608, 1_514)],
            [(0, 13_304, 1_514), (12_303_999, 25_608, 1_514)],
        ] {
            let told = check(&log(&wrong), WIRE).unwrap_err().to_string();
            assert!(told.contains("not to be trusted"), "{told}");
        }
        assert!(check(&log(&fine)[1..], WIRE).is_err());
    }

    /// Check that lost frames occupy the wire, that jitter delays frames up to its limit, and that
    /// the order of frames is kept.
    #[test]
    fn losses_and_jitter() {
        let lost = [(0, -1, 1_514), (12_304_000, 25_608, 1_514)];
        assert!(check(&log(&lost), WIRE).is_ok());
        let jitter = Wire {
            jitter_ns: 20_000,
            ..WIRE
        };
        let kept = [(0, 33_304, 1_514), (12_304_000, 33_304, 1_514)];
        assert!(check(&log(&kept), jitter).is_ok());
        let overtaken = [(0, 33_304, 1_514), (12_304_000, 25_608, 1_514)];
        assert!(check(&log(&overtaken), jitter).is_err());
    }
}
