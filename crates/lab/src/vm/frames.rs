//! The log of frames that a wire's plugin writes, checked by arithmetic of its own while it comes:
//! a wire that delivers a frame at another time than a real one is not to be believed.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};

use netplumb_model::hosts::{WIRE_OVERHEAD_BYTES, Wire};

use super::saved::Key;

/// Bytes of an entry (`struct wire_entry`, plugins/qemu/wire.h).
const ENTRY_BYTES: usize = 24;
/// A frame is handed over so late at most (`LATENESS_NS`, plugins/qemu/wire_end.c).
const LATENESS_NS: u64 = 128;

/// Where both ends of a wire are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// In two guests: the log has no arrivals, which each guest counts.
    Apart,
    /// In one guest: the log has them.
    Together,
}

/// A frame on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Frame {
    /// When its first bit left.
    begin_ps: u64,
    /// When it had been received; none if it was lost.
    arrival_ns: Option<u64>,
    /// With its header, without FCS; 0 if the entry is not a frame, but a report that time has passed, or that the next
    /// frame has arrived.
    bytes: u32,
    /// Whether that has arrived.
    arrived: bool,
}

impl Frame {
    fn from_entry(entry: &[u8; ENTRY_BYTES]) -> Frame {
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
            arrived: word(16) >> 32 != 0,
        }
    }
}

/// When frames of one end were on the wire: times from one frame's first bit to the last bit of the last frame
/// that followed at once, in picoseconds, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Occupied(Vec<(u64, u64)>);

impl Occupied {
    fn add(&mut self, begin_ps: u64, end_ps: u64) {
        match self.0.last_mut() {
            Some((_, end)) if *end == begin_ps => *end = end_ps,
            _ => self.0.push((begin_ps, end_ps)),
        }
    }

    /// How long it was occupied between two times.
    pub fn between_ns(&self, begin_ns: u64, end_ns: u64) -> f64 {
        let (begin_ps, end_ps) = (begin_ns * 1_000, end_ns * 1_000);
        let first = self.0.partition_point(|(_, end)| *end <= begin_ps);
        let within = self.0[first..].iter();
        let within = within.take_while(|(begin, _)| *begin < end_ps);
        let cut = within.map(|(begin, end)| (*end).min(end_ps) - (*begin).max(begin_ps));
        cut.sum::<u64>() as f64 / 1e3
    }
}

/// The content of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// The hash of all frames.
    pub hash: String,
    /// Their number.
    pub frames: u64,
    /// When they were on the wire; nothing of a wire in one guest.
    pub occupied: Occupied,
}

/// Follows the frames that one end sends.
#[derive(Debug)]
struct Follower {
    wire: Wire,
    ends: Ends,
    /// The arrivals that are to come, if the log has them.
    expected_ns: VecDeque<u64>,
    hash: Key,
    frames: u64,
    occupied: Occupied,
    free_ps: u64,
    last_arrival_ns: u64,
    wrong: Option<String>,
}

impl Follower {
    fn new(end: &str, wire: Wire, ends: Ends) -> Follower {
        let mut hash = Key::default();
        hash.add("side", end.as_bytes());
        Follower {
            wire,
            ends,
            expected_ns: VecDeque::new(),
            hash,
            frames: 0,
            occupied: Occupied::default(),
            free_ps: 0,
            last_arrival_ns: 0,
            wrong: None,
        }
    }

    fn take(&mut self, entry: &[u8; ENTRY_BYTES]) {
        let frame = Frame::from_entry(entry);
        if self.wrong.is_some() {
            return;
        }
        if frame.arrived
            && let Err(why) = self.arrive(frame.arrival_ns)
        {
            self.wrong = Some(why.into());
        }
        if frame.bytes == 0 {
            return;
        }
        self.hash.extend(entry);
        if let Err(why) = self.check(frame) {
            self.wrong = Some(format!("frame {} {why}", self.frames));
        }
        self.frames += 1;
    }

    /// Check that the next frame arrived when it had to.
    fn arrive(&mut self, at_ns: Option<u64>) -> Result<(), &'static str> {
        let expected = self.expected_ns.pop_front();
        let Some((at_ns, expected)) = at_ns.zip(expected) else {
            return Err("a frame arrived that was not on its way");
        };
        match (expected..=expected + LATENESS_NS).contains(&at_ns) {
            true => Ok(()),
            false => Err("a frame was handed over at another time than it had to arrive"),
        }
    }

    /// Check that a frame follows its predecessor as on a wire of this rate, and arrives on time.
    fn check(&mut self, frame: Frame) -> Result<(), &'static str> {
        let Wire { rate_bps, delay_ns, jitter_ns, .. } = self.wire;
        if frame.begin_ps < self.free_ps {
            return Err("began before the one before it had ended");
        }
        let bits = 8 * (u128::from(frame.bytes) + u128::from(WIRE_OVERHEAD_BYTES));
        let occupied_ps = bits * 1_000_000_000_000 / u128::from(rate_bps);
        self.free_ps = frame.begin_ps + occupied_ps as u64;
        if self.ends == Ends::Apart {
            self.occupied.add(frame.begin_ps, self.free_ps);
        }
        let Some(arrival_ns) = frame.arrival_ns else {
            return Ok(());
        };
        let soonest = (self.free_ps.div_ceil(1_000) + delay_ns).max(self.last_arrival_ns);
        let latest = (self.free_ps.div_ceil(1_000) + delay_ns + jitter_ns).max(soonest);
        if !(soonest..=latest).contains(&arrival_ns) {
            return Err("arrived at another time than over a wire");
        }
        self.last_arrival_ns = arrival_ns;
        if self.ends == Ends::Together {
            self.expected_ns.push_back(arrival_ns);
        }
        Ok(())
    }

    fn finish(self) -> Result<Followed, String> {
        match self.wrong {
            None => Ok(Followed {
                hash: self.hash.finish(),
                frames: self.frames,
                occupied: self.occupied,
            }),
            Some(why) => Err(format!("the wire is not to be trusted: {why}")),
        }
    }
}

/// Follow the log of one end to its end, entry by entry. `seen` is the number of entries so far: it grows as long as
/// the hosts run.
///
/// # Errors
/// A frame was at another time than on a wire.
pub fn follow(
    mut log: impl Read,
    end: &str,
    wire: Wire,
    ends: Ends,
    seen: &AtomicU64,
) -> Result<Followed, String> {
    let mut follower = Follower::new(end, wire, ends);
    let mut buffer = vec![0; ENTRY_BYTES * 1_024];
    let mut filled = 0;
    loop {
        match log.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(format!("read the log of frames: {error}")),
        }
        let mut entries = buffer[..filled].chunks_exact(ENTRY_BYTES);
        for entry in &mut entries {
            // INVARIANT: chunks are as long.
            if let Ok(entry) = entry.try_into() {
                follower.take(entry);
                seen.fetch_add(1, Ordering::Relaxed);
            }
        }
        let rest = entries.remainder().len();
        buffer.copy_within(filled - rest..filled, 0);
        filled = rest;
    }
    // A truncated entry is from a guest that was ended.
    follower.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIRE: Wire = Wire { rate_bps: 1_000_000_000, delay_ns: 1_000, jitter_ns: 0, loss_ppb: 0 };

    fn log(frames: &[(u64, i64, u32)]) -> Vec<u8> {
        let entry = |(begin, arrival, bytes): &(u64, i64, u32)| {
            let words = [*begin as i64, *arrival, i64::from(*bytes)];
            words.map(i64::to_le_bytes).concat()
        };
        frames.iter().flat_map(entry).collect()
    }

    fn check(log: &[u8], wire: Wire) -> Result<Followed, String> {
        follow(log, "tx", wire, Ends::Apart, &AtomicU64::new(0))
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
            let message = check(&log(&wrong), WIRE).unwrap_err();
            assert!(message.contains("not to be trusted"), "{message}");
        }
    }

    /// Check that lost frames occupy the wire, that jitter delays frames up to its limit, and that
    /// the order of frames is kept.
    #[test]
    fn losses_and_jitter() {
        let lost = [(0, -1, 1_514), (12_304_000, 25_608, 1_514)];
        assert!(check(&log(&lost), WIRE).is_ok());
        let jitter = Wire { jitter_ns: 20_000, ..WIRE };
        let kept = [(0, 33_304, 1_514), (12_304_000, 33_304, 1_514)];
        assert!(check(&log(&kept), jitter).is_ok());
        let overtaken = [(0, 33_304, 1_514), (12_304_000, 25_608, 1_514)];
        assert!(check(&log(&overtaken), jitter).is_err());
    }

    /// Check that a frame on the wire when a time begins or ends counts only for its part within.
    #[test]
    fn occupied_within_a_time() {
        let frames = [(0, 13_304, 1_514), (12_304_000, 25_608, 1_514), (50_000_000, 63_304, 1_514)];
        let occupied = check(&log(&frames), WIRE).unwrap().occupied;
        assert_eq!(occupied.0.len(), 2);
        for (begin, end, expected) in [
            (0, 100_000, 36_912.0),
            (1_000, 20_000, 19_000.0),
            (20_000, 51_000, 5_608.0),
            (24_608, 50_000, 0.0),
            (70_000, 80_000, 0.0),
        ] {
            assert_eq!(occupied.between_ns(begin, end), expected, "{begin} {end}");
        }
    }

    /// Check that, with both ends in one guest, arrivals are followed, too: at most as many as were sent by the time
    /// they had to be.
    #[test]
    fn arrivals() {
        let sent = log(&[(0, 13_304, 1_514), (12_304_000, 25_608, 1_514)]);
        let arrived = |at_ns: u64| [0, at_ns, 1 << 32].map(u64::to_le_bytes).concat();
        let check = |arrivals: &[u64]| {
            let arrivals = arrivals.iter().flat_map(|at| arrived(*at));
            let log: Vec<u8> = sent.iter().copied().chain(arrivals).collect();
            follow(&log[..], "nic0", WIRE, Ends::Together, &AtomicU64::new(0))
        };
        assert_eq!(check(&[13_304, 25_608]).unwrap().frames, 2);
        assert_eq!(check(&[13_310]).unwrap().frames, 2);
        for wrong in [&[13_303][..], &[13_433], &[13_304, 25_608, 25_609], &[25_608]] {
            assert!(check(wrong).is_err(), "{wrong:?}");
        }
    }

    /// Check that the hash depends on frames alone, not on where the log is cut or on reports that time has passed; and
    /// that another frame gives another hash.
    #[test]
    fn hashes() {
        struct Pieces<'a>(&'a [u8], usize);
        impl Read for Pieces<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let n = self.1.min(self.0.len()).min(buffer.len());
                buffer[..n].copy_from_slice(&self.0[..n]);
                self.0 = &self.0[n..];
                Ok(n)
            }
        }
        let two = [(0, 13_304, 1_514), (12_304_000, 25_608, 1_514)];
        let whole = check(&log(&two), WIRE).unwrap();
        assert_eq!(whole.frames, 2);
        let with_time = [two[0], (0, 0, 0), two[1], (0, 0, 0)];
        let log_of = log(&with_time);
        let seen = AtomicU64::new(0);
        let pieces = follow(Pieces(&log_of, 7), "tx", WIRE, Ends::Apart, &seen).unwrap();
        assert_eq!((pieces, seen.into_inner()), (whole.clone(), 4));
        let other = [two[0], (12_304_001, 25_609, 1_514)];
        assert_ne!(check(&log(&other), WIRE).unwrap().hash, whole.hash);
    }
}
