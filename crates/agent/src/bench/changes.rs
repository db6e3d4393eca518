//! A block list that is updated while packets run: the packets' source is on it all the time,
//! others are removed and added.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use netplumb_paths::Blocklist;

/// Sources that are removed and added again per update.
const AT_ONCE: u32 = 256;

/// An address by number that no packet has, of the generator's IP version.
fn other(like: IpAddr, number: u32) -> IpAddr {
    match like {
        // 240.0.0.0/4 is reserved (RFC 1112), so there are no packets from it.
        IpAddr::V4(_) => Ipv4Addr::from_bits(0xf000_0000 | (number & 0x0fff_ffff)).into(),
        // 0100::/64 is for discarding (RFC 6666).
        IpAddr::V6(_) => Ipv6Addr::from_bits((0x0100_u128 << 112) | u128::from(number)).into(),
    }
}

/// Add the packets' source and others to the list, up to a number.
pub(super) fn fill(list: &Blocklist, source: IpAddr, sources: u32) -> io::Result<()> {
    let mut all = vec![source];
    all.extend((1..sources).map(|n| other(source, n)));
    list.add(&all)
}

/// Remove other sources and add them again while `wait` runs; returns the number of updates, and
/// the result of `wait`.
pub(super) fn churn<T>(
    list: &Blocklist,
    source: IpAddr,
    sources: u32,
    wait: impl FnOnce() -> T,
) -> (io::Result<u64>, T) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let changes = scope.spawn(|| -> io::Result<u64> {
            let others = sources - 1;
            let mut changes = 0;
            let mut first = 1;
            while others > 0 && !over.load(Ordering::Relaxed) {
                let last = (first + AT_ONCE).min(sources);
                let some: Vec<IpAddr> = (first..last).map(|n| other(source, n)).collect();
                list.remove(&some)?;
                list.add(&some)?;
                changes += 2 * some.len() as u64;
                first = if last >= sources { 1 } else { last };
            }
            Ok(changes)
        });
        let waited = wait();
        over.store(true, Ordering::Relaxed);
        let changes = changes.join();
        let changes = changes.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (changes, waited)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that sources are unique, and differ from the packets' source.
    #[test]
    fn sources_differ() {
        for like in ["198.18.1.1", "2001:2::1"] {
            let like: IpAddr = like.parse().unwrap();
            let mut all: Vec<IpAddr> = (1..1000).map(|n| other(like, n)).collect();
            all.push(like);
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), 1000);
            assert!(all.iter().all(|a| a.is_ipv4() == like.is_ipv4()));
        }
    }
}
