//! Offloads of devices, by ethtool's ioctl: there is one command to ask for each and
//! one to set it (include/uapi/linux/ethtool.h).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;

use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;
use netplumb_model::experiment::Offload;

use super::facts::ethtool;
use super::netlink::Netlink;

/// The command that asks; the one that sets is one more.
fn command(offload: Offload) -> u32 {
    match offload {
        Offload::RxChecksum => 0x14,
        Offload::TxChecksum => 0x16,
        Offload::Sg => 0x18,
        Offload::Tso => 0x1e,
        Offload::Gso => 0x23,
        Offload::Gro => 0x2b,
    }
}

/// struct ethtool_value: the command and a number.
fn value(fd: i32, device: &str, command: u32, number: u32) -> io::Result<u32> {
    let mut data = [0_u8; 8];
    data[..4].copy_from_slice(&command.to_ne_bytes());
    data[4..].copy_from_slice(&number.to_ne_bytes());
    ethtool(fd, device, &mut data)?;
    Ok(u32::from_ne_bytes([data[4], data[5], data[6], data[7]]))
}

/// Whether a device of this namespace does it. `fd` is any socket of the namespace.
pub(super) fn get(fd: i32, device: &str, offload: Offload) -> io::Result<bool> {
    Ok(value(fd, device, command(offload), 0)? != 0)
}

pub(super) fn set(fd: i32, device: &str, offload: Offload, on: bool) -> io::Result<()> {
    value(fd, device, command(offload) + 1, u32::from(on)).map(drop)
}

/// Set offloads of every device of this namespace, and read them back; `lo` counts
/// where it is the link. Where nothing changes by it, a note says so.
pub(super) fn set_all(
    wanted: &BTreeMap<Offload, bool>,
    lo: bool,
) -> io::Result<BTreeMap<String, String>> {
    let word = |on: bool| if on { "on" } else { "off" };
    let mut notes = BTreeMap::new();
    let socket = Socket::new(NETLINK_ROUTE)?;
    let fd = socket.as_raw_fd();
    for device in Netlink::open()?.devices()? {
        let name = &device.name;
        // Tunnels' fallback devices come with a namespace and stay down.
        if !device.up || (name == "lo") != lo {
            continue;
        }
        let before: Vec<bool> = wanted
            .keys()
            .map(|offload| get(fd, name, *offload).unwrap_or(false))
            .collect();
        // Some hang on others, which come first in the order of the kind (tso on sg on
        // checksums): so once in this order, and again for what that undid.
        let mut refused = BTreeMap::new();
        for _ in 0..2 {
            for (offload, on) in wanted {
                match set(fd, name, *offload, *on) {
                    Ok(()) => drop(refused.remove(offload)),
                    Err(error) => drop(refused.insert(*offload, error)),
                }
            }
        }
        for ((offload, on), before) in wanted.iter().zip(before) {
            let now = get(fd, name, *offload).unwrap_or(false);
            if now != *on {
                let why = match refused.remove(offload) {
                    Some(error) => format!(": {error}"),
                    None => String::new(),
                };
                return Err(io::Error::other(format!(
                    "{offload} of {name} is {} and reads back so after it was set {}: \
                     the driver does not let it be changed{why}",
                    word(now),
                    word(*on),
                )));
            }
            if before == *on {
                notes.insert(
                    format!("no_effect.offload.{offload}.{name}"),
                    format!("{offload} of {name} was {} anyhow", word(*on)),
                );
            }
        }
    }
    Ok(notes)
}
