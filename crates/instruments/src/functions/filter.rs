//! Converts the filter for the programs.

use std::net::IpAddr;

use netplumb_model::class::{Family, Proto};
use netplumb_model::timing::Filter;

use super::layout::{RawFilter, proto};
use super::object::Templates;
use crate::live::LiveError;

/// The filter in the programs' format.
///
/// # Errors
/// A part is not supported.
pub(super) fn raw(filter: &Filter) -> Result<RawFilter, LiveError> {
    let mut raw = RawFilter {
        active: u32::from(*filter != Filter::default()),
        family: filter.family.map_or(0, family),
        port: filter.port.map_or(0, u32::from),
        interface: filter.interface.unwrap_or(0),
        pid: filter.pid.unwrap_or(0),
        cgroup: filter.cgroup.unwrap_or(0),
        ..Default::default()
    };
    for wanted in &filter.protos {
        raw.protos |= 1
            << match wanted {
                Proto::Raw => proto::RAW,
                Proto::Udp => proto::UDP,
                Proto::Tcp => proto::TCP,
                Proto::Command | Proto::Work => {
                    return Err(LiveError::Asked(format!(
                        "invalid protocol `{wanted}` in a filter; use --pid"
                    )));
                }
            };
    }
    match filter.address {
        None => {}
        Some(IpAddr::V4(address)) => {
            raw.address_family = 4;
            raw.address[..4].copy_from_slice(&address.octets());
        }
        Some(IpAddr::V6(address)) => {
            raw.address_family = 6;
            raw.address = address.octets();
        }
    }
    if filter.namespaces.len() > raw.namespace_inodes.len() {
        return Err(LiveError::Asked(format!(
            "too many network namespaces: {}; at most {}",
            filter.namespaces.len(),
            raw.namespace_inodes.len()
        )));
    }
    raw.namespaces = filter.namespaces.len() as u32;
    for (into, inode) in raw.namespace_inodes.iter_mut().zip(&filter.namespaces) {
        *into = *inode;
    }
    Ok(raw)
}

fn family(family: Family) -> u32 {
    match family {
        Family::V4 => 4,
        Family::V6 => 6,
    }
}

/// Write it to the programs' section, before they are loaded.
pub(super) fn write(templates: &Templates, raw: &RawFilter) -> Result<(), LiveError> {
    let (at, bytes) = templates.memory(".rodata.filter")?;
    assert!(bytes >= size_of::<RawFilter>());
    // SAFETY: the section holds the filter and nothing else, and nobody reads it yet.
    unsafe { at.cast::<RawFilter>().write_unaligned(*raw) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that an empty filter is the default, and that each part is carried.
    #[test]
    fn filters_are_carried() {
        assert_eq!(raw(&Filter::default()).unwrap(), RawFilter::default());
        let filter = Filter {
            protos: vec![Proto::Udp, Proto::Tcp],
            family: Some(Family::V6),
            port: Some(53),
            address: Some("10.1.2.3".parse().unwrap()),
            namespaces: vec![7, 8],
            ..Default::default()
        };
        let raw = raw(&filter).unwrap();
        assert_eq!((raw.active, raw.protos, raw.family, raw.port), (1, 0b1100, 6, 53));
        assert_eq!((raw.address_family, &raw.address[..4]), (4, &[10, 1, 2, 3][..]));
        assert_eq!((raw.namespaces, &raw.namespace_inodes[..2]), (2, &[7, 8][..]));
    }

    /// Check that unsupported filters are refused.
    #[test]
    fn a_command_is_no_packet() {
        let filter = Filter { protos: vec![Proto::Command], ..Default::default() };
        let error = raw(&filter).err().unwrap();
        assert!(matches!(error, LiveError::Asked(_)), "{error}");
    }
}
