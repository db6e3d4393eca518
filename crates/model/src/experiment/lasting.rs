//! How long an experiment measures, and each of its blocks.

use std::time::Duration;

use super::{Experiment, Kind, Lab};
use crate::timing::{INSTRUCTIONS, SAMPLED};

/// Total measuring time on this machine, by default.
pub const DURATION: Duration = Duration::from_secs(5);
/// From here on a run is a long one.
const LONG: Duration = Duration::from_secs(60);
/// Duration of a block of a long run.
const BLOCK: Duration = Duration::from_secs(1);

impl Experiment {
    /// The duration of a long run, which repeats rounds of blocks until it has passed, can be resumed, and merges
    /// blocks as they get many. Instruments that count in guests run for any duration; others share a duration of less
    /// than a minute out among a number of blocks.
    pub fn long(&self) -> Option<Duration> {
        let duration = self.workload.duration.filter(|_| self.blocks.count.is_none())?.0;
        let counts =
            |name: &String| [INSTRUCTIONS.instrument, SAMPLED.instrument].contains(&name.as_str());
        let is_long = match (self.workload.kind, self.lab) {
            (Kind::Packets | Kind::Stream, Lab::Vm) => {
                (self.instruments.as_ref()).is_none_or(|names| names.iter().all(counts))
            }
            (Kind::Packets | Kind::Stream, _) => {
                duration >= LONG && self.workload.packets.is_none()
            }
            (Kind::Traffic, _) => duration >= LONG,
            (Kind::Request | Kind::Http | Kind::Command | Kind::Work | Kind::Frames, _) => false,
        };
        is_long.then_some(duration)
    }

    /// Duration of a block of packets that plumb sends; none if blocks end after a number of packets. Unless it is
    /// given, blocks share the duration: on this machine the blocks of all arms and instruments, in guests the blocks
    /// of each.
    pub fn block_time(&self) -> Option<Duration> {
        let workload = &self.workload;
        if self.blocks.time.is_some() || workload.packets.is_some() {
            return self.blocks.time.map(|time| time.0);
        }
        let whole = workload.duration.map(|time| time.0);
        let bare = u32::from(self.probes.measure_cost);
        let instruments = self.instruments.as_ref().map_or(1, Vec::len) as u32;
        let blocks = self.block_count();
        match (self.lab, self.long()) {
            (Lab::Vm, Some(_)) => None,
            (Lab::Vm, None) => whole.map(|whole| whole / (blocks * (1 + bare)).max(1)),
            (_, Some(_)) => Some(BLOCK),
            (_, None) => {
                let turns = instruments.max(1) + bare;
                let each = self.arms().len() as u32 * blocks * turns;
                Some(whole.unwrap_or(DURATION) / each.max(1))
            }
        }
    }
}
