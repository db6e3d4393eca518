//! Complete frames, and the templates from which the program makes them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::PacketBuilder;
use netplumb_model::bench::{FrameKind, FrameSize, IMIX};
use netplumb_model::class::Family;

use super::error::GeneratorError;
use super::layout::{Config, MIX, SIZES, Template, WORDS};
use super::plan::{GeneratorPlan, low_half};
use netplumb_model::bench::{STAMP_BYTES, Stamp};

/// About the initial TCP window of the kernel on Ethernet.
const WINDOW: u16 = 64_240;
/// The order of sizes in the mix, evenly distributed: indices of [`IMIX`].
const MIXED: [u8; MIX] = [0, 1, 0, 0, 1, 0, 2, 0, 1, 0, 0, 1];
/// Offset of the IP header.
const IP_AT: u32 = 14;

/// The varying part of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Varying {
    /// The lower half of the source's address.
    pub(super) address: u32,
    pub(super) port: u16,
    pub(super) size_bytes: u32,
    pub(super) stamp: Option<Stamp>,
}

/// Sizes of frames, in the order of [`IMIX`]; one if all are equal. In the mix no frame is shorter
/// than its headers need.
pub(super) fn sizes(plan: &GeneratorPlan) -> Vec<u32> {
    match plan.frames.size {
        FrameSize::Bytes(bytes) => vec![bytes],
        FrameSize::Imix => {
            let least = plan.size_bytes_least();
            IMIX.iter().map(|(bytes, _)| least.max(*bytes)).collect()
        }
    }
}

/// A complete frame with all checksums, by an independent library.
pub(super) fn frame(plan: &GeneratorPlan, varying: &Varying) -> Result<Vec<u8>, GeneratorError> {
    let exit = &plan.exit;
    let payload_bytes = varying.size_bytes - plan.frames.header_bytes();
    let mut payload = vec![0; payload_bytes as usize];
    if let Some(stamp) = varying.stamp {
        payload[..STAMP_BYTES as usize].copy_from_slice(&stamp.bytes());
    }
    let link = PacketBuilder::ethernet2(exit.mac, exit.to_mac);
    let ip = match (exit.source, exit.destination) {
        (IpAddr::V4(_), IpAddr::V4(to)) => {
            link.ipv4(Ipv4Addr::from_bits(varying.address).octets(), to.octets(), plan.ttl)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let high = from.to_bits() >> 32 << 32;
            let from = Ipv6Addr::from_bits(high | u128::from(varying.address));
            link.ipv6(from.octets(), to.octets(), plan.ttl)
        }
        _ => {
            return Err(GeneratorError::Input("addresses of two versions of IP".into()));
        }
    };
    let mut bytes = Vec::with_capacity(varying.size_bytes as usize);
    let (port, to_port) = (varying.port, exit.destination_port);
    let written = match (plan.frames.kind, plan.frames.family) {
        (FrameKind::Udp, _) => ip.udp(port, to_port).write(&mut bytes, &payload),
        (FrameKind::TcpSyn, _) => {
            ip.tcp(port, to_port, 0, WINDOW).syn().write(&mut bytes, &payload)
        }
        (FrameKind::Icmp, Family::V4) => {
            ip.icmpv4_echo_request(port, to_port).write(&mut bytes, &payload)
        }
        (FrameKind::Icmp, Family::V6) => {
            ip.icmpv6_echo_request(port, to_port).write(&mut bytes, &payload)
        }
    };
    written.map_err(|e| GeneratorError::Input(format!("can't make such frames: {e}")))?;
    Ok(bytes)
}

/// The template of the longest frame.
pub(super) fn longest(plan: &GeneratorPlan) -> Result<Vec<u8>, GeneratorError> {
    let size_bytes = sizes(plan).into_iter().max().unwrap_or_default();
    let stamp = plan.stamped.then_some(Stamp { sequence: 0, due_ns: 0 });
    frame(
        plan,
        &Varying {
            address: low_half(plan.exit.source),
            port: plan.exit.source_port,
            size_bytes,
            stamp,
        },
    )
}

/// The programs' configuration. Mode and device are set by the caller.
pub(super) fn config(plan: &GeneratorPlan) -> Result<Config, GeneratorError> {
    let sizes = sizes(plan);
    let header = plan.frames.header_bytes();
    let (address_at, ip_check_at, l4_at) = match plan.frames.family {
        Family::V4 => (IP_AT + 12, IP_AT + 10, IP_AT + 20),
        Family::V6 => (IP_AT + 20, 0, IP_AT + 40),
    };
    let (port_at, l4_check_at) = match plan.frames.kind {
        FrameKind::Udp => (l4_at, l4_at + 6),
        FrameKind::TcpSyn => (l4_at, l4_at + 16),
        // The identifier takes the place of the port.
        FrameKind::Icmp => (l4_at + 4, l4_at + 2),
    };
    let mut config = Config {
        mix: MIXED,
        header_bytes: header,
        written_bytes: header + if plan.stamped { STAMP_BYTES } else { 0 },
        size_bytes: sizes.iter().copied().max().unwrap_or_default(),
        address_at,
        port_at,
        ip_check_at,
        l4_check_at,
        // ICMP over IPv4 has no pseudo header (RFC 792), ICMPv6 has (RFC 4443, 2.3).
        address_in_l4_check: (plan.frames.kind != FrameKind::Icmp
            || plan.frames.family == Family::V6)
            .into(),
        is_udp: (plan.frames.kind == FrameKind::Udp).into(),
        first_address: low_half(plan.exit.source),
        first_port: plan.exit.source_port.into(),
        ports: plan.ports(),
        varying: (plan.frames.flows > 1 || plan.stamped).into(),
        many_addresses: (plan.addresses() > 1).into(),
        many_flows: (plan.frames.flows > 1).into(),
        many_sizes: (sizes.len() > 1).into(),
        paced: plan.pps_each().is_some().into(),
        stamped: plan.stamped.into(),
        ..Config::default()
    };
    for (place, size_bytes) in sizes.into_iter().enumerate().take(SIZES) {
        config.templates[place] = template(plan, &config, size_bytes)?;
    }
    Ok(config)
}

fn template(
    plan: &GeneratorPlan,
    config: &Config,
    size_bytes: u32,
) -> Result<Template, GeneratorError> {
    let stamp = plan.stamped.then_some(Stamp { sequence: 0, due_ns: 0 });
    let whole = Varying {
        address: low_half(plan.exit.source),
        port: plan.exit.source_port,
        size_bytes,
        stamp,
    };
    let header = config.header_bytes as usize;
    let bytes = frame(plan, &whole)?;
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_ne_bytes(word)
    };
    let mut words = [0; WORDS];
    for (i, to) in words.iter_mut().enumerate().take(header / 8) {
        *to = word(i * 8);
    }
    // A checksum is the complement of the sum: with zeros for the varying fields, it gives the sum
    // of the rest.
    let rest = frame(
        plan,
        &Varying {
            address: if config.many_addresses == 0 { whole.address } else { 0 },
            port: if config.many_flows == 0 { whole.port } else { 0 },
            ..whole
        },
    )?;
    let sum = |at: u32| {
        let at = at as usize;
        u32::from(!u16::from_ne_bytes([rest[at], rest[at + 1]]))
    };
    Ok(Template {
        words,
        tail: word(header - 8),
        ip_sum: if config.ip_check_at == 0 { 0 } else { sum(config.ip_check_at) },
        l4_sum: sum(config.l4_check_at),
        size_bytes,
        reserved: 0,
    })
}
