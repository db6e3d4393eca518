//! Converts a filter for the programs.

use std::net::IpAddr;

use netplumb_model::class::{Family, Proto};
use netplumb_model::timing::TimingSpec;

use super::layout::{CALLS, Config, NAMESPACES, PROTOS};
use crate::live::LiveError;

/// Calls that send, and that receive, of any kind of descriptor: which of them use
/// sockets shows when a packet comes by.
#[cfg(target_arch = "x86_64")]
const SENDS: &[libc::c_long] = &[
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_connect,
];
#[cfg(target_arch = "x86_64")]
const RECEIVES: &[libc::c_long] =
    &[libc::SYS_read, libc::SYS_readv, libc::SYS_recvfrom, libc::SYS_recvmsg, libc::SYS_recvmmsg];
#[cfg(not(target_arch = "x86_64"))]
const SENDS: &[libc::c_long] =
    &[libc::SYS_write, libc::SYS_writev, libc::SYS_sendto, libc::SYS_sendmsg, libc::SYS_sendmmsg];
#[cfg(not(target_arch = "x86_64"))]
const RECEIVES: &[libc::c_long] =
    &[libc::SYS_read, libc::SYS_readv, libc::SYS_recvfrom, libc::SYS_recvmsg, libc::SYS_recvmmsg];

fn calls(numbers: &[libc::c_long]) -> [u64; CALLS / 64] {
    let mut bits = [0; CALLS / 64];
    for number in numbers {
        let number = usize::try_from(*number).unwrap_or(usize::MAX);
        if let Some(word) = bits.get_mut(number / 64) {
            *word |= 1 << (number % 64);
        }
    }
    bits
}

/// The programs' settings.
pub(super) fn config(spec: &TimingSpec, has_data_ready: bool) -> Result<Config, LiveError> {
    let filter = &spec.filter;
    let mut config = Config {
        family: match filter.family {
            None => 0,
            Some(Family::V4) => 4,
            Some(Family::V6) => 6,
        },
        port: filter.port.map_or(0, u32::from),
        interface: filter.interface.unwrap_or(0),
        pid: filter.pid.unwrap_or(0),
        cgroup: filter.cgroup.unwrap_or(0),
        one_packet: spec.one_packet,
        has_data_ready: u32::from(has_data_ready),
        sends: calls(SENDS),
        receives: calls(RECEIVES),
        ..Config::default()
    };
    for proto in &filter.protos {
        let Some(bit) = PROTOS.iter().position(|p| p == proto) else {
            return Err(LiveError::Asked(format!(
                "invalid protocol `{}` for `stages`; expected {}, {} or {}",
                proto,
                Proto::Raw,
                Proto::Udp,
                Proto::Tcp
            )));
        };
        config.protos |= 1 << bit;
    }
    if filter.namespaces.len() > NAMESPACES {
        return Err(LiveError::Asked(format!(
            "`stages` watches at most {NAMESPACES} network namespaces, not {}",
            filter.namespaces.len()
        )));
    }
    config.namespace_inum[..filter.namespaces.len()].copy_from_slice(&filter.namespaces);
    // At most NAMESPACES, as checked.
    config.namespaces = filter.namespaces.len() as u32;
    let word = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().unwrap_or_default());
    match filter.address {
        None => {}
        Some(IpAddr::V4(address)) => {
            config.has_address = 4;
            config.address[0] = word(&address.octets());
        }
        Some(IpAddr::V6(address)) => {
            config.has_address = 6;
            for (to, from) in config.address.iter_mut().zip(address.octets().chunks(4)) {
                *to = word(from);
            }
        }
    }
    Ok(config)
}
