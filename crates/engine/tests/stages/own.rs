//! The programs' own time is subtracted: it is as long as they take.

use std::time::Instant;

use netplumb_lab::netns::Topology;
use netplumb_model::class::{Direction, Family, Proto};
use netplumb_model::timing::Window;
use netplumb_testkit::mostly;
use netplumb_workload::ends::Sockets;

use crate::common::*;

const BLOCKS: usize = 9;
/// How much longer packets may take, as a multiple of the subtracted time: it lacks the way's first and last program,
/// and cache misses. Measured: 1.5 to 1.7 on a CPU whose indirect calls are retpolines.
const TAKEN: std::ops::RangeInclusive<f64> = 0.5..=2.5;

/// Mean of the time subtracted from a packet's whole way, out and in.
fn way(window: &Window) -> f64 {
    let each = |ns: u64, count: u64| ns as f64 / count as f64;
    let totals = [Direction::Tx, Direction::Rx].map(|to| of(window, to, "total"));
    totals.map(|s| each(s.own_ns, s.times.count)).iter().sum()
}

fn packets(sockets: &Sockets) {
    for _ in 0..PACKETS {
        one(sockets, &[7; 10]);
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Check that packets take longer while the instrument is attached, by about the time that it reports for its programs.
#[test]
fn as_root_own_time_is_what_it_takes() {
    if cannot() {
        return;
    }
    let _alone = alone();
    let topology = Topology::build(&veth(Family::V4, false), &[]).unwrap();
    let sockets = sockets(&topology, Proto::Udp);
    let spec = spec(&topology, Proto::Udp);
    let block = || {
        let begun = Instant::now();
        packets(&sockets);
        begun.elapsed().as_nanos() as f64 / PACKETS as f64
    };
    mostly(2, 3, || {
        let (mut grown, mut stages_ns) = (Vec::new(), Vec::new());
        let mut run_ns = None;
        let mut before = block();
        for _ in 0..BLOCKS {
            let mut stages = stages(&spec);
            run_ns = stages.attached().facts.get("stages.run_ns").cloned();
            stages.open().unwrap();
            let with = block();
            stages_ns.push(way(&stages.close().unwrap()));
            drop(stages);
            let after = block();
            grown.push(with - f64::midpoint(before, after));
            before = after;
        }
        let (grown, stages_ns) = (median(grown), median(stages_ns));
        let found = format!(
            "{grown:.0} ns more of {before:.0}, and it says {stages_ns:.0}; a run costs {run_ns:?} ns"
        );
        match stages_ns > 0.0 && TAKEN.contains(&(grown / stages_ns)) {
            true => Ok(found),
            false => Err(found),
        }
    });
}
