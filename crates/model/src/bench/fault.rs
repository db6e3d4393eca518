//! Faults that can be injected, to check that they are detected.

use super::{Bench, DataPath};
use crate::class::words;

words! {
    /// A fault that loses packets although a counter still counts them.
    Fault, "fault",
    /// The peer of the generator's device does not poll, so that frames from XDP are lost.
    NoNapi = "no-napi",
    /// The NAPI thread runs on the CPU of the generator, so that its ring is full.
    FullRing = "full-ring",
    /// The destination MAC address is unknown.
    WrongMac = "wrong-mac",
    /// The TTL expires at the first router.
    Ttl = "ttl",
    /// The MTU is too large for an XDP program.
    Mtu = "mtu",
}

impl Fault {
    /// Why it has no effect on a data path, if it has none.
    pub fn spares(self, bench: Bench, path: DataPath) -> Option<&'static str> {
        use DataPath as P;
        let driver = matches!(path, P::Xdp | P::XdpTx | P::XdpRedirect | P::AfXdp | P::Dpdk);
        match self {
            Fault::NoNapi if driver => Some("a device with an XDP program always polls"),
            Fault::WrongMac if driver || path == P::XdpSkb || path == P::Tc => {
                Some("it accepts frames for any MAC address")
            }
            Fault::WrongMac if path == P::Bridge => {
                Some("a bridge floods frames for unknown addresses")
            }
            Fault::Ttl if bench == Bench::Drop => {
                Some("frames are not forwarded, so the TTL does not matter")
            }
            Fault::Ttl if path != P::Route && path != P::NftFlowtable => {
                Some("it is not a router and does not decrement the TTL")
            }
            Fault::Mtu if !driver => Some("only XDP programs in the driver limit the MTU"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each fault affects at least one path.
    #[test]
    fn each_is_one_somewhere() {
        for fault in Fault::ALL {
            let spared = |bench| {
                let paths = DataPath::for_bench(bench).iter();
                paths.filter(|p| fault.spares(bench, **p).is_some()).count()
                    == DataPath::for_bench(bench).len()
            };
            assert!(!(spared(Bench::Drop) && spared(Bench::Forward)), "{fault}");
        }
    }
}
