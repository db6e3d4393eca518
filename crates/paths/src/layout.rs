//! What the BPF programs and this half share: programs/packet.h and errors.bpf.c.

use std::net::IpAddr;

use netplumb_model::bench::FrameKind;
use netplumb_model::span::{BUCKETS, Times};

use crate::Site;

/// `PATHS_CPUS`.
pub(crate) const CPUS: usize = 1024;
/// `ERRORS_NUMBERS`.
pub(crate) const ERRORS: usize = 256;

/// `struct paths_config`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) address: [u32; 4],
    pub(crate) port: u16,
    pub(crate) stamp_offset: u16,
    pub(crate) family: u8,
    pub(crate) proto: u8,
    pub(crate) next_mac: [u8; 6],
    pub(crate) own_mac: [u8; 6],
    pub(crate) lookups: u16,
}

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
            next_mac: site.next_mac,
            own_mac: site.egress.as_ref().map(|d| d.mac).unwrap_or_default(),
            lookups: 0,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the structure is repr(C) and without holes, as its size shows.
        const { assert!(size_of::<Config>() == 36) };
        // SAFETY: as above; any bytes can be read of it for as long as it is borrowed.
        unsafe { std::slice::from_raw_parts((self as *const Config).cast(), size_of::<Config>()) }
    }
}

/// `struct paths_counts`, in 64-bit words.
pub(crate) const COUNT_WORDS: usize = 8;

/// Of one CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) foreign: u64,
    pub(crate) unstamped: u64,
    pub(crate) listed: u64,
    pub(crate) unlisted: u64,
}

impl Counts {
    pub(crate) fn from_words(words: &[u64]) -> Counts {
        let word = |i: usize| words.get(i).copied().unwrap_or(0);
        Counts {
            packets: word(0),
            bytes: word(1),
            foreign: word(2),
            unstamped: word(3),
            listed: word(4),
            unlisted: word(5),
        }
    }
}

/// Add one CPU's `struct paths_times` to those of others.
pub(crate) fn add_times(times: &mut Times, value: &[u8]) {
    let words: Vec<u64> = value
        .chunks_exact(8)
        .map(|b| u64::from_ne_bytes(b.try_into().unwrap_or_default()))
        .collect();
    let [count, total, least, most, buckets @ ..] = &words[..] else {
        return;
    };
    if *count == 0 {
        return;
    }
    times.min_ns = match times.count {
        0 => *least,
        _ => times.min_ns.min(*least),
    };
    times.max_ns = times.max_ns.max(*most);
    times.count += count;
    times.total_ns += total;
    for (bucket, count) in (0_u16..).zip(buckets.iter().take(BUCKETS)) {
        if *count == 0 {
            continue;
        }
        match times.buckets.binary_search_by_key(&bucket, |(b, _)| *b) {
            Ok(at) => times.buckets[at].1 += count,
            Err(at) => times.buckets.insert(at, (bucket, *count)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(count: u64, total: u64, least: u64, most: u64, buckets: &[(usize, u64)]) -> Vec<u8> {
        let mut words = vec![0; 4 + BUCKETS];
        words[..4].copy_from_slice(&[count, total, least, most]);
        for (bucket, count) in buckets {
            words[4 + bucket] = *count;
        }
        words.iter().flat_map(|w: &u64| w.to_ne_bytes()).collect()
    }

    /// Check that the times of CPUs are put together, and that one without any changes
    /// nothing.
    #[test]
    fn times_of_cpus() {
        let mut times = Times::default();
        add_times(&mut times, &value(0, 0, 0, 0, &[]));
        assert_eq!(times, Times::default());
        add_times(&mut times, &value(3, 60, 10, 30, &[(10, 1), (18, 2)]));
        add_times(&mut times, &value(2, 25, 5, 20, &[(5, 1), (18, 1)]));
        assert_eq!((times.count, times.total_ns), (5, 85));
        assert_eq!((times.min_ns, times.max_ns), (5, 30));
        assert_eq!(times.buckets, [(5, 1), (10, 1), (18, 3)]);
    }
}
