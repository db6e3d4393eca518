//! The programs' own time, which is subtracted, is what they take.

use std::time::Instant;

use netplumb_lab::netns::Topology;
use netplumb_model::class::{Direction, Family, Proto};
use netplumb_model::timing::Window;
use netplumb_testkit::mostly;
use netplumb_workload::ends::Sockets;

use crate::common::*;

const BLOCKS: usize = 9;
/// How many times what is subtracted packets may take longer: there is the way's first program before it, and its
/// last after it, and cache misses beside it. Measured: 1.5 to 1.7 on a CPU whose indirect calls are retpolines.
const TAKEN: std::ops::RangeInclusive<f64> = 0.5..=2.5;

/// The mean of what was subtracted of a packet's whole way, out and in.
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

/// Check that packets take longer while the instrument is attached, by about what it says that its programs take of
/// them.
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
        let (mut grown, mut told) = (Vec::new(), Vec::new());
        let mut run_ns = None;
        let mut before = block();
        for _ in 0..BLOCKS {
            let mut stages = stages(&spec);
            run_ns = stages.attached().facts.get("stages.run_ns").cloned();
            stages.open().unwrap();
            let with = block();
            told.push(way(&stages.close().unwrap()));
            drop(stages);
            let after = block();
            grown.push(with - f64::midpoint(before, after));
            before = after;
        }
        let (grown, told) = (median(grown), median(told));
        let found = format!(
            "{grown:.0} ns more of {before:.0}, and it says {told:.0}; a run costs {run_ns:?} ns"
        );
        match told > 0.0 && TAKEN.contains(&(grown / told)) {
            true => Ok(found),
            false => Err(found),
        }
    });
}
