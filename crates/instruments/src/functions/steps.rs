//! Per-packet traces: entries and exits of calls, from a ring buffer.
//!
//! A trace is the work of one thread on a packet, from the entry of the first timed function with
//! it to its return, with the softirqs on top: over loopback and veth that is all the way into
//! the other socket. Work by another thread is another trace.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::io;
use std::ptr;

use libbpf_sys as sys;
use netplumb_model::timing::{Step, TimedNode};

use super::layout::RawStep;

/// Maximum number of entries and exits per packet.
pub(super) const OF_ONE: u64 = 1024;
/// Bytes of the ring for per-packet traces, a power of two.
pub(super) const RING_BYTES: u32 = 1 << 20;

/// Takes one record.
///
/// # Safety
/// `into` is a vector of steps, `data` has `size` bytes.
unsafe extern "C" fn take(into: *mut c_void, data: *mut c_void, size: sys::size_t) -> i32 {
    if size as usize >= size_of::<RawStep>() {
        // SAFETY: as promised; a record need not be aligned.
        unsafe {
            let into = &mut *into.cast::<Vec<RawStep>>();
            into.push(data.cast::<RawStep>().read_unaligned());
        }
    }
    0
}

/// Read all records in the ring.
pub(super) fn drain(map: i32) -> io::Result<Vec<RawStep>> {
    let mut all: Vec<RawStep> = Vec::new();
    // SAFETY: the vector outlives the ring's reader, which nobody else uses.
    let result = unsafe {
        let ring = sys::ring_buffer__new(map, Some(take), (&raw mut all).cast(), ptr::null());
        if ring.is_null() {
            return Err(io::Error::last_os_error());
        }
        let result = sys::ring_buffer__consume(ring);
        sys::ring_buffer__free(ring);
        result
    };
    match result {
        0.. => Ok(all),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// The first `packets` of them, step by step. `node` looks up a node in the kernel, and the
/// name of its function.
pub(super) fn steps(
    mut raw: Vec<RawStep>,
    packets: u32,
    mut node: impl FnMut(u32) -> Option<(TimedNode, String)>,
) -> Vec<Step> {
    raw.sort_by_key(|r| r.at_ns);
    // By thread: what is under way, and for which packet.
    let mut open: BTreeMap<u32, Vec<(RawStep, u32)>> = BTreeMap::new();
    let mut next = 0;
    let mut whole = BTreeSet::new();
    let mut steps = Vec::new();
    for one in raw {
        let under_way = open.entry(one.thread).or_default();
        if one.is_exit == 0 {
            let packet = under_way.first().map_or(next, |(_, packet)| *packet);
            if under_way.is_empty() {
                next += 1;
            }
            under_way.push((one, packet));
            continue;
        }
        let same = |r: &RawStep| (r.stack, r.depth, r.node) == (one.stack, one.depth, one.node);
        let Some(at) = under_way.iter().rposition(|(r, _)| same(r)) else {
            continue;
        };
        let (begun, packet) = under_way[at];
        under_way.truncate(at);
        if at == 0 {
            whole.insert(packet);
        }
        let Some((node, name)) = node(one.node) else {
            continue;
        };
        let bytes = begun.command.split(|b| *b == 0).next().unwrap_or_default();
        steps.push(Step {
            packet,
            name,
            begin_ns: begun.at_ns,
            duration_ns: one.at_ns - begun.at_ns,
            cpu: begun.cpu,
            thread: begun.thread,
            command: String::from_utf8_lossy(bytes).into_owned(),
            context: node.context,
        });
    }
    // A packet whose end was not seen would look too short.
    let chosen: Vec<u32> = whole.into_iter().take(packets as usize).collect();
    steps.retain(|s| chosen.contains(&s.packet));
    for step in &mut steps {
        let at = chosen.iter().position(|c| *c == step.packet);
        step.packet = at.unwrap_or_default() as u32;
    }
    steps.sort_by_key(|s| (s.packet, s.begin_ns, std::cmp::Reverse(s.duration_ns)));
    steps
}

#[cfg(test)]
mod tests {
    use netplumb_model::class::{Context, Direction};

    use super::*;

    /// Check the nesting of calls, that a packet without an end is left out, and the maximum number
    /// of packets.
    #[test]
    fn packets_are_whole() {
        let raw = |at_ns, thread, depth, is_exit| RawStep {
            at_ns,
            thread,
            depth,
            node: depth,
            is_exit,
            ..Default::default()
        };
        let all = vec![
            // Its outer call has not returned.
            raw(1, 7, 1, 0),
            raw(2, 7, 2, 0),
            raw(3, 7, 2, 1),
            raw(10, 8, 1, 0),
            raw(12, 8, 2, 0),
            raw(15, 8, 2, 1),
            raw(20, 8, 1, 1),
            raw(30, 8, 1, 0),
            raw(40, 8, 1, 1),
        ];
        let node = |id: u32| {
            let node = TimedNode {
                parent: None,
                function: id,
                direction: Direction::Tx,
                proto: None,
                context: Context::Task,
            };
            Some((node, format!("f{id}")))
        };
        let found: Vec<_> = steps(all, 1, node)
            .into_iter()
            .map(|s| (s.packet, s.name, s.begin_ns, s.duration_ns))
            .collect();
        assert_eq!(found, [(0, "f1".to_string(), 10, 10), (0, "f2".to_string(), 12, 3)]);
    }
}
