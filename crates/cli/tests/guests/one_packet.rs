//! One packet's path as a trace, from the command line to the file: in a guest whose functions are
//! timed.

use std::collections::BTreeMap;

use crate::common::{Place, has_guests};
use serde_json::Value;

/// A slice of a track.
#[derive(Debug, Clone, PartialEq)]
struct Slice {
    name: String,
    begin: f64,
    end: f64,
}

/// The slices of each track, in the order of their beginnings, the longest first.
fn tracks(trace: &Value) -> BTreeMap<(u64, u64), Vec<Slice>> {
    let mut tracks: BTreeMap<(u64, u64), Vec<Slice>> = BTreeMap::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        // Every kind that there is has these.
        assert!(event["name"].is_string() && event["pid"].is_u64(), "{event}");
        match event["ph"].as_str().unwrap() {
            "X" => {
                let begin = event["ts"].as_f64().unwrap();
                let track = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
                tracks.entry(track).or_default().push(Slice {
                    name: event["name"].as_str().unwrap().into(),
                    begin,
                    end: begin + event["dur"].as_f64().unwrap(),
                });
            }
            // Moments, arrows, and names of tracks.
            "i" | "s" | "f" | "M" => {}
            other => panic!("no such kind of event here: {other}"),
        }
    }
    for slices in tracks.values_mut() {
        slices.sort_by(|a, b| (a.begin.total_cmp(&b.begin)).then(b.end.total_cmp(&a.end)));
    }
    tracks
}

/// Check that slices lie within each other or apart: a slice ends before the one that it began in.
/// Returns how many lie in another.
fn nested(slices: &[Slice]) -> usize {
    // Microseconds with three decimals.
    const ROUNDING: f64 = 0.0005;
    let mut open: Vec<&Slice> = Vec::new();
    let mut within = 0;
    for slice in slices {
        while open.last().is_some_and(|o| o.end <= slice.begin + ROUNDING) {
            open.pop();
        }
        if let Some(outer) = open.last() {
            assert!(slice.end <= outer.end + ROUNDING, "{slice:?} in {outer:?}");
            within += 1;
        }
        open.push(slice);
    }
    within
}

/// Check that one packet's way is a trace that opens: its calls nest on the thread's
/// track and on the softirq's, and an arrow leads from one to the other.
#[test]
fn a_packets_way_is_a_trace() {
    if !has_guests() {
        return;
    }
    let place = Place::new();
    let ran = place.run(
        "path --lab vm --clock functions --proto udp --family ipv4 --link lo --packets 20 \
         --functions __x64_sys_sendto,udp_sendmsg,ip_output,__dev_queue_xmit,ip_rcv,udp_rcv \
         --one-packet --perfetto way.json",
    );
    ran.code(0);
    let trace: Value =
        serde_json::from_slice(&std::fs::read(place.path("way.json")).unwrap()).unwrap();
    let tracks = tracks(&trace);
    assert_eq!(tracks.len(), 2, "{tracks:?}");
    let names =
        |slices: &[Slice]| -> Vec<String> { slices.iter().map(|s| s.name.clone()).collect() };
    let (task, softirq) = (tracks.values().next().unwrap(), tracks.values().last().unwrap());
    // The system call does not see the packet: the trace starts at the socket.
    assert_eq!(names(task), ["udp_sendmsg", "ip_output", "__dev_queue_xmit"]);
    assert_eq!(names(softirq), ["ip_rcv", "udp_rcv"]);
    assert_eq!((nested(task), nested(softirq)), (2, 1));
    let events = trace["traceEvents"].as_array().unwrap();
    let kinds = |ph: &str| events.iter().filter(|e| e["ph"] == ph).count();
    assert!(kinds("s") >= 1 && kinds("s") == kinds("f"));
}
