//! The programs' own time, which is subtracted, is what they take.

use netplumb_lab::netns::Topology;
use netplumb_model::class::{Direction, Family, Proto};
use netplumb_model::timing::Window;
use netplumb_testkit::mostly;
use netplumb_workload::ends::Sockets;

use crate::common::*;

const BLOCKS: usize = 9;
/// How many times as much, or as little, an instrument may say of itself: within a third of it where the
/// machine is quiet, and other tests run beside this one.
const OFF: f64 = 2.0;

/// The mean of a packet's whole way, out and in, and of what was subtracted of it.
fn way(window: &Window) -> (f64, f64) {
    let each = |ns: u64, count: u64| ns as f64 / count as f64;
    let totals = [Direction::Tx, Direction::Rx].map(|to| of(window, to, "total"));
    let mean = totals.map(|s| each(s.times.total_ns, s.times.count));
    let own = totals.map(|s| each(s.own_ns, s.times.count));
    (mean.iter().sum(), own.iter().sum())
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

/// Check that while another one is attached, packets take as much longer as that one says that it takes
/// of them: its time is planted, and not what the first one subtracts.
#[test]
fn as_root_own_time_is_what_it_takes() {
    if cannot() {
        return;
    }
    let _alone = alone();
    let topology = Topology::build(&veth(Family::V4, false), &[]).unwrap();
    let sockets = sockets(&topology, Proto::Udp);
    let spec = spec(&topology, Proto::Udp);
    let mut first = stages(&spec);
    let run_ns = first.attached().facts.get("stages.run_ns").cloned();
    let mut block = || {
        first.open().unwrap();
        packets(&sockets);
        way(&first.close().unwrap()).0
    };
    mostly(2, 3, || {
        let (mut grown, mut told) = (Vec::new(), Vec::new());
        let mut before = block();
        for _ in 0..BLOCKS {
            let mut other = stages(&spec);
            other.open().unwrap();
            let with = block();
            told.push(way(&other.close().unwrap()).1);
            drop(other);
            let after = block();
            grown.push(with - f64::midpoint(before, after));
            before = after;
        }
        let (grown, told) = (median(grown), median(told));
        let found = format!(
            "{grown:.0} ns more of {before:.0}, and it says {told:.0}; a run costs {run_ns:?} ns"
        );
        match told > 0.0 && (OFF.recip()..=OFF).contains(&(grown / told)) {
            true => Ok(found),
            false => Err(found),
        }
    });
}
