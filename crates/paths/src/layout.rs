//! What programs/paths.h and programs/errors.h declare, made of them when this is built.

use std::net::IpAddr;

use netplumb_model::bench::FrameKind;
use netplumb_model::span::{BUCKETS, Times};

use crate::Site;

mod made {
    #![allow(dead_code, reason = "not all that a header declares is used")]

    use netplumb_sys::plain::Plain;

    include!(concat!(env!("OUT_DIR"), "/paths.rs"));
}

/// What errors.bpf.c counts.
pub(crate) mod errors {
    use netplumb_sys::plain::Plain;

    include!(concat!(env!("OUT_DIR"), "/errors.rs"));

    // Machines are looked at once, for all programs.
    const _: () = assert!(CPUS == super::CPUS);
    const _: () = assert!(size_of::<Lost>() == (2 * NUMBERS + CPUS) * 8);
}

pub(crate) use made::{CPUS, Config, Counts, Times as CpuTimes};

const _: () = assert!(made::BUCKETS == BUCKETS);

/// The number of a protocol in an IP header (IANA, "Assigned Internet Protocol
/// Numbers").
pub(crate) fn protocol_number(kind: FrameKind, v6: bool) -> u8 {
    match (kind, v6) {
        (FrameKind::Udp, _) => 17,
        (FrameKind::TcpSyn, _) => 6,
        (FrameKind::Icmp, false) => 1,
        (FrameKind::Icmp, true) => 58,
    }
}

impl Config {
    pub(crate) fn new(site: &Site, stamped: bool) -> Config {
        let v6 = site.destination.is_ipv6();
        let mut address = [0; 4];
        match site.destination {
            IpAddr::V4(v4) => address[0] = u32::from_ne_bytes(v4.octets()),
            IpAddr::V6(v6) => {
                for (word, bytes) in address.iter_mut().zip(v6.octets().chunks(4)) {
                    *word = u32::from_ne_bytes(bytes.try_into().unwrap_or_default());
                }
            }
        }
        let l4_bytes = match site.kind {
            FrameKind::TcpSyn => 20,
            FrameKind::Udp | FrameKind::Icmp => 8,
        };
        let ip_bytes = if v6 { 40 } else { 20 };
        Config {
            address,
            port: site.port.to_be(),
            stamp_offset: if stamped { 14 + ip_bytes + l4_bytes } else { 0 },
            family: if v6 { 6 } else { 4 },
            proto: protocol_number(site.kind, v6),
            next_mac: halves(site.next_mac),
            own_mac: halves(site.egress.as_ref().map(|d| d.mac).unwrap_or_default()),
            lookups: 0,
        }
    }
}

/// An address as the programs copy it: in halves of words.
fn halves(mac: [u8; 6]) -> [u16; 3] {
    let [a, b, c, d, e, f] = mac;
    [[a, b], [c, d], [e, f]].map(u16::from_ne_bytes)
}

/// Add one CPU's times to those of others.
pub(crate) fn add_times(times: &mut Times, cpu: &CpuTimes) {
    if cpu.count == 0 {
        return;
    }
    times.min_ns = match times.count {
        0 => cpu.min_ns,
        _ => times.min_ns.min(cpu.min_ns),
    };
    times.max_ns = times.max_ns.max(cpu.max_ns);
    times.count += cpu.count;
    times.total_ns += cpu.total_ns;
    for (bucket, count) in (0_u16..).zip(cpu.buckets) {
        if count == 0 {
            continue;
        }
        match times.buckets.binary_search_by_key(&bucket, |(b, _)| *b) {
            Ok(at) => times.buckets[at].1 += count,
            Err(at) => times.buckets.insert(at, (bucket, count)),
        }
    }
}

#[cfg(test)]
mod tests {
    use netplumb_sys::plain::Plain;

    use super::*;

    fn cpu(numbers: [u64; 4], buckets: &[(usize, u64)]) -> CpuTimes {
        let [count, total_ns, min_ns, max_ns] = numbers;
        let mut times = CpuTimes {
            count,
            total_ns,
            min_ns,
            max_ns,
            ..CpuTimes::zeroed()
        };
        for (bucket, count) in buckets {
            times.buckets[*bucket] = *count;
        }
        times
    }

    /// Check that the times of CPUs are put together, and that one without any changes
    /// nothing.
    #[test]
    fn times_of_cpus() {
        let mut times = Times::default();
        add_times(&mut times, &cpu([0; 4], &[]));
        assert_eq!(times, Times::default());
        add_times(&mut times, &cpu([3, 60, 10, 30], &[(10, 1), (18, 2)]));
        add_times(&mut times, &cpu([2, 25, 5, 20], &[(5, 1), (18, 1)]));
        assert_eq!((times.count, times.total_ns), (5, 85));
        assert_eq!((times.min_ns, times.max_ns), (5, 30));
        assert_eq!(times.buckets, [(5, 1), (10, 1), (18, 3)]);
    }

    /// Check that the bytes of an address are in memory as they were.
    #[test]
    fn addresses() {
        let config = Config {
            next_mac: halves([1, 2, 3, 4, 5, 6]),
            ..Config::zeroed()
        };
        let bytes = config.bytes();
        assert!(bytes.windows(6).any(|six| six == [1, 2, 3, 4, 5, 6]));
    }
}
