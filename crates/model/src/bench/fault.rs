//! What a lab can be broken by on purpose, to see that it is noticed.

use super::{Bench, DataPath};
use crate::class::words;

words! {
    /// A fault that makes packets vanish while some counter goes on counting them.
    Fault, "fault",
    /// The far end of the generator's device does not poll, so that what XDP sends there
    /// is lost.
    NoNapi = "no-napi",
    /// The path's thread polls on the generator's CPU, so that the ring before it is full.
    FullRing = "full-ring",
    /// Frames are to nobody's address.
    WrongMac = "wrong-mac",
    /// The first router is the last that frames may reach.
    Ttl = "ttl",
    /// Devices take frames that are too long for a program of XDP.
    Mtu = "mtu",
}

impl Fault {
    /// Why it is none for a path, if it is none.
    pub fn spares(self, bench: Bench, path: DataPath) -> Option<&'static str> {
        use DataPath as P;
        let driver = matches!(
            path,
            P::Xdp | P::XdpTx | P::XdpRedirect | P::AfXdp | P::Dpdk
        );
        match self {
            Fault::NoNapi if driver => Some("with a program of XDP a device polls anyhow"),
            Fault::WrongMac if driver || path == P::XdpSkb || path == P::Tc => {
                Some("it takes frames whomever they are to")
            }
            Fault::WrongMac if path == P::Bridge => Some("a bridge floods what is to nobody"),
            Fault::Ttl if bench == Bench::Drop => Some("what is not sent on has no TTL to run out"),
            Fault::Ttl if path != P::Route && path != P::NftFlowtable => {
                Some("it is no router, and leaves the TTL alone")
            }
            Fault::Mtu if !driver => Some("only a program of XDP in the driver minds"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each fault is one for some path.
    #[test]
    fn each_is_one_somewhere() {
        for fault in Fault::ALL {
            let spared = |bench| {
                let paths = DataPath::of(bench).iter();
                paths.filter(|p| fault.spares(bench, **p).is_some()).count()
                    == DataPath::of(bench).len()
            };
            assert!(!(spared(Bench::Drop) && spared(Bench::Forward)), "{fault}");
        }
    }
}
