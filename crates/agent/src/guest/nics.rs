//! The guest's NICs, for benches: two connected by a cable, and two more for forwarded packets.

use std::time::{Duration, Instant};

use netplumb_lab::vm::link;
use netplumb_model::bench::{Bench, BenchArm};
use netplumb_model::class::Link;
use netplumb_sys::links::DeviceState;
use netplumb_sys::netns::Namespace;

use crate::bench::{Nics, Own};
use crate::error::{BlockError, NicError};

/// Maximum time until a NIC has a carrier; e1000 takes two seconds of guest time.
const PATIENCE: Duration = Duration::from_secs(20);
const NAP: Duration = Duration::from_millis(20);

/// Use them for an arm that runs over them, and bring them up.
pub(super) fn take(arm: &BenchArm) -> Result<Option<Own>, BlockError> {
    if arm.link == Link::Veth {
        return Ok(None);
    }
    let wires = match arm.bench {
        Bench::Drop => 1,
        Bench::Forward => 2,
    };
    let there = usize::from(wires) * 2;
    let host = BlockError::host;
    link::start(arm.link, wires).map_err(host("start the link"))?;
    let namespace = Namespace::current().map_err(host("find this network namespace"))?;
    let begun = Instant::now();
    let found = loop {
        let found = find(&namespace, wires)?;
        for state in found.iter().filter(|state| !state.up) {
            let up = namespace.set_up(state.index, None);
            up.map_err(host("bring up a NIC"))?;
        }
        if found.len() >= there && found.iter().all(|state| state.running) {
            break found;
        }
        if begun.elapsed() > PATIENCE {
            return Err(NicError::CannotRun {
                reason: format!(
                    "{} of {there} NICs of the guest are present, {} with a carrier",
                    found.len(),
                    found.iter().filter(|state| state.running).count()
                ),
                remedy: "use another link type (--link)".into(),
            }
            .into());
        }
        std::thread::sleep(NAP);
    };
    let mut names = found.into_iter().map(|state| state.name);
    let (Some(from), Some(nic)) = (names.next(), names.next()) else {
        return Ok(None);
    };
    let mut nics = Nics {
        nic,
        from,
        to: names.next(),
        sink: names.next(),
        yes_change: Vec::new(),
        even_default_route: true,
    };
    nics.yes_change = nics.names().into_iter().map(String::from).collect();
    Own::begin(&nics, std::slice::from_ref(arm)).map(Some)
}

/// Those that there are, in the order in which packets pass them.
fn find(namespace: &Namespace, wires: u8) -> Result<Vec<DeviceState>, BlockError> {
    let states = namespace.device_states();
    let states = states.map_err(BlockError::host("list the NICs"))?;
    let of = |mac: [u8; 6]| states.iter().find(|state| state.mac == mac).cloned();
    let nics = link::nics(wires).into_iter();
    Ok(nics.map_while(|nic| of(nic.mac)).collect())
}
