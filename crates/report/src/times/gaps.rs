//! Gaps: how many packets were seen at one place and not at the next, by cause where it is
//! known; and how many the workload offered that were not followed.

use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::class::Proto;
use netplumb_model::quantity::Scalar;
use netplumb_model::recording::Recording;
use netplumb_model::timing::{PAUSED, SEEN, WAYS, Way};

use crate::number::thousands;
use crate::scalars::{by_label, sum};

/// Lines for the footer; none where nothing is missing.
pub(super) fn lines(recording: &Recording) -> Vec<String> {
    let mut lines = offered(recording);
    let seen = PacketsByPlace::from_recording(recording, |_| true);
    for proto in [Proto::Raw, Proto::Udp, Proto::Tcp] {
        for way in WAYS {
            lines.extend(within(&seen, proto, way));
        }
    }
    lines
}

/// Packets by protocol and place, of some blocks.
struct PacketsByPlace<'r>(BTreeMap<&'r str, f64>);

impl<'r> PacketsByPlace<'r> {
    fn from_recording(recording: &'r Recording, block: impl Fn(u32) -> bool) -> PacketsByPlace<'r> {
        PacketsByPlace(by_label(recording, &SEEN, block))
    }

    fn at(&self, proto: Proto, place: &str) -> u64 {
        let name = format!("{proto} {place}");
        // A count of packets: whole, and far below 2^53.
        self.0.get(name.as_str()).map_or(0, |n| *n as u64)
    }
}

/// "udp tx queue 4,401: 9 of them neither tx sent nor tx dropped ...".
fn within(seen: &PacketsByPlace<'_>, proto: Proto, way: Way) -> Option<String> {
    if proto == Proto::Tcp && !way.of_tcp {
        return None;
    }
    let begun = seen.at(proto, way.begins);
    let ended: u64 = way.ends.iter().map(|end| seen.at(proto, end)).sum();
    let missing = begun.saturating_sub(ended);
    if missing == 0 {
        return None;
    }
    let under_way = seen.at(proto, way.under_way).min(missing);
    let mut causes = Vec::new();
    if under_way > 0 {
        causes.push(format!(
            "{} still under way when a window closed, or gone on unseen",
            thousands(under_way)
        ));
    }
    if missing > under_way {
        causes.push(format!(
            "{} not seen again: their memory was another packet's by then, or the tracepoint was not run \
             (some kernels trace no tasks of certain kinds)",
            thousands(missing - under_way)
        ));
    }
    // The ends that packets reached show the path.
    let ends: Vec<&str> = way.ends.iter().copied().filter(|end| seen.at(proto, end) > 0).collect();
    let ends = match ends.is_empty() {
        true => way.ends[0].to_string(),
        false => ends.join(" or "),
    };
    Some(format!(
        "{proto} {}: {} seen, {} of them not at {ends} ({})",
        way.begins,
        thousands(begun),
        thousands(missing),
        causes.join(", ")
    ))
}

/// Packets that the workload offered and no tracepoint saw, by protocol. TCP segments its
/// data as it likes.
fn offered(recording: &Recording) -> Vec<String> {
    let mut lines = Vec::new();
    let counted: BTreeSet<u32> = (recording.scalars_of(&SEEN)).filter_map(Scalar::block).collect();
    for proto in [Proto::Raw, Proto::Udp] {
        let blocks: BTreeSet<u32> = (0_u32..)
            .zip(&recording.blocks)
            .filter(|(n, b)| {
                let arm = recording.arms.get(b.arm as usize);
                arm.is_some_and(|a| a.proto == proto) && b.ledger.offered > 0 && counted.contains(n)
            })
            .map(|(n, _)| n)
            .collect();
        let of_blocks = || blocks.iter().map(|n| &recording.blocks[*n as usize]);
        let offered: u64 = of_blocks().map(|b| b.ledger.offered).sum();
        let seen = PacketsByPlace::from_recording(recording, |block| blocks.contains(&block));
        let followed = seen.at(proto, "tx queue");
        // No tracepoint of a way out: another clock's ledger.
        if seen.0.is_empty() || followed >= offered || !is_of_stages(&seen, proto) {
            continue;
        }
        let early = seen.at(proto, "tx dropped before queue");
        let paused = sum(recording, &PAUSED) > 0.0;
        let rest = (offered - followed).saturating_sub(early);
        let mut causes = Vec::new();
        if early > 0 {
            causes.push(format!("{} dropped before the device's queue", thousands(early)));
        }
        if rest > 0 {
            let why = match paused {
                true => "sent while none were followed; --max-overhead 100% follows all",
                false => {
                    "not seen at the device's queue: their call was not seen, or a tracepoint was missed"
                }
            };
            causes.push(format!("{} {why}", thousands(rest)));
        }
        lines.push(format!(
            "{proto}: {} offered by the workload, {} of them followed ({})",
            thousands(offered),
            thousands(followed),
            causes.join(", ")
        ));
    }
    lines
}

/// Whether a ledger has places on a path.
fn is_of_stages(seen: &PacketsByPlace<'_>, proto: Proto) -> bool {
    WAYS.iter().any(|way| seen.at(proto, way.begins) > 0)
}
