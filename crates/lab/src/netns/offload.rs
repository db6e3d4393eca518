//! Offloads of all devices of a namespace.

use std::collections::BTreeMap;
use std::io;

use netplumb_model::experiment::Offload;
use netplumb_sys::ethtool::Ethtool;
use netplumb_sys::netlink::Netlink;

use super::nic::not_taken;

/// Set offloads of every device of this namespace, and read them back; of `lo` only if it is the
/// link. A note says where nothing changed.
pub(super) fn set_all(
    wanted: &BTreeMap<Offload, bool>,
    lo: bool,
) -> io::Result<BTreeMap<String, String>> {
    let word = |on: bool| if on { "on" } else { "off" };
    let mut notes = BTreeMap::new();
    let ethtool = Ethtool::open()?;
    for device in Netlink::open()?.devices()? {
        let name = &device.name;
        // Tunnels' fallback devices come with a namespace and stay down.
        if !device.up || (name == "lo") != lo {
            continue;
        }
        let before: Vec<bool> =
            wanted.keys().map(|offload| ethtool.offload(name, *offload).unwrap_or(false)).collect();
        // Some depend on others, which come first in this order (tso on sg on checksums): so once
        // in this order, and again for what that undid.
        let mut refused = BTreeMap::new();
        for _ in 0..2 {
            for (offload, on) in wanted {
                match ethtool.set_offload(name, *offload, *on) {
                    Ok(()) => drop(refused.remove(offload)),
                    Err(error) => drop(refused.insert(*offload, error)),
                }
            }
        }
        for ((offload, on), before) in wanted.iter().zip(before) {
            let now = ethtool.offload(name, *offload).unwrap_or(false);
            if now != *on {
                let why = match refused.remove(offload) {
                    Some(error) => format!(": {error}"),
                    None => String::new(),
                };
                return Err(not_taken(&format!(
                    "{offload} of {name} is still {} after it was set {}: not supported by the driver{why}",
                    word(now),
                    word(*on),
                )));
            }
            if before == *on {
                notes.insert(
                    format!("no_effect.offload.{offload}.{name}"),
                    format!("{offload} of {name} was already {}", word(*on)),
                );
            }
        }
    }
    Ok(notes)
}
