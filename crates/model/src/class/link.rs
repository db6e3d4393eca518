//! Links: what joins a sender and a receiver.
//!
//! Each is declared here, in a row, for names, help, errors, labs and workloads. Its devices in a guest are in
//! `crates/lab/src/vm/link.rs`.

use super::words;

/// The kind of devices that make a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Devices {
    /// The loopback device of one namespace.
    Loopback,
    /// A pair of devices that is created where it is needed.
    Pair,
    /// NICs of the machine: of a guest.
    Nics,
    /// Whatever there is: nothing is created.
    Any,
}

/// The description of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkFacts {
    /// The kind of its devices.
    pub devices: Devices,
    /// Whether generated frames can be sent over it.
    pub frames: bool,
    /// Whether its devices are emulated in the guest, and can send by themselves.
    pub emulated: bool,
    /// Whether two hosts can be joined by it.
    pub hosts: bool,
    /// How many packets a ring of its NICs holds at most; none where it has no rings.
    pub largest_ring: Option<u32>,
    /// Why two boots of the same system differ over it, if they do.
    pub varies: Option<&'static str>,
}

macro_rules! links {
    (
        created { $($variant:ident = $word:literal, $about:literal, $declared:expr;)+ }
        observed { $other:ident = $other_word:literal, $other_about:literal, $other_declared:expr; }
    ) => {
        words! {
            /// The type of link between sender and receiver.
            Link, "link",
            $(#[doc = $about] $variant = $word,)+
            #[doc = $other_about]
            $other = $other_word,
        }

        impl Link {
            /// Those that are created, in the order of declaration; the other one is for
            /// traffic that is only observed.
            pub const CREATED: &'static [Link] = &[$(Link::$variant),+];

            /// How they are spelled.
            pub const CREATED_WORDS: &'static [&'static str] = &[$($word),+];

            /// A description of its devices, for help.
            pub(crate) const HELP: &'static str = concat!(
                "link between sender and receiver",
                $("; `", $word, "`: ", $about),+
            );

            /// The declared facts of the link.
            pub const fn declared(self) -> LinkFacts {
                match self {
                    $(Link::$variant => $declared,)+
                    Link::$other => $other_declared,
                }
            }
        }
    };
}

/// NICs of a guest, for any workload.
const NICS: LinkFacts = LinkFacts {
    devices: Devices::Nics,
    frames: true,
    emulated: false,
    hosts: false,
    largest_ring: None,
    varies: None,
};

/// The same, also for two hosts.
const NICS_OF_HOSTS: LinkFacts = LinkFacts { hosts: true, ..NICS };

/// The same, emulated in the guest.
const EMULATED: LinkFacts = LinkFacts { emulated: true, ..NICS };

links! {
    created {
        Lo = "lo", "the loopback device, both ends in one namespace", LinkFacts {
            devices: Devices::Loopback,
            frames: false,
            emulated: false,
            hosts: false,
            largest_ring: None,
            varies: None,
        };
        Veth = "veth", "a veth pair", LinkFacts {
            devices: Devices::Pair,
            frames: true,
            emulated: false,
            hosts: false,
            largest_ring: None,
            varies: None,
        };
        VirtioNet = "virtio-net", "two virtio-net NICs of a guest", LinkFacts {
            // hw/net/virtio-net.c: VIRTIO_NET_RX_QUEUE_DEFAULT_SIZE, VIRTIO_NET_TX_QUEUE_DEFAULT_SIZE.
            largest_ring: Some(256),
            ..NICS_OF_HOSTS
        };
        E1000 = "e1000", "two Intel 82540EM NICs of a guest (two hosts: 82545EM, their default)", LinkFacts {
            // drivers/net/ethernet/intel/e1000/e1000.h: E1000_MAX_82544_RXD, E1000_MAX_82544_TXD.
            largest_ring: Some(4096),
            ..NICS_OF_HOSTS
        };
        E1000e = "e1000e", "two Intel 82574L NICs of a guest", LinkFacts {
            // drivers/net/ethernet/intel/e1000e/e1000.h: E1000E_MAX_RXD, E1000E_MAX_TXD.
            largest_ring: Some(4096),
            ..NICS_OF_HOSTS
        };
        UsbNet = "usb-net", "a USB NIC of a guest (CDC Ethernet), connected to an e1000", LinkFacts {
            varies: Some("its controller polls by the clock"),
            ..NICS
        };
        Smsc95xx = "smsc95xx", "two USB NICs of a guest (SMSC LAN9512), emulated in the guest", EMULATED;
        CdcNcm = "cdc-ncm", "two USB NICs of a guest (CDC NCM), emulated in the guest", EMULATED;
    }
    observed {
        Any = "any", "any device: traffic of other programs on this machine", LinkFacts {
            devices: Devices::Any,
            frames: false,
            emulated: false,
            hosts: false,
            largest_ring: None,
            varies: None,
        };
    }
}

impl Link {
    /// Whether it uses NICs; a guest has one set of these.
    pub fn has_nics(self) -> bool {
        self.declared().devices == Devices::Nics
    }

    /// Those created links for which something is so, for a sentence: "lo and veth".
    pub fn listed(is_so: impl Fn(Link) -> bool) -> String {
        let words = Link::CREATED.iter().filter(|link| is_so(**link));
        let words: Vec<&str> = words.map(|link| link.as_str()).collect();
        match words.split_last() {
            Some((last, [])) => (*last).to_string(),
            Some((last, others)) => format!("{} and {last}", others.join(", ")),
            None => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a sentence lists the declared links, in their order.
    #[test]
    fn lists() {
        assert_eq!(Link::listed(|link| !link.has_nics()), "lo and veth");
        assert_eq!(
            Link::listed(|link| link.declared().frames),
            "veth, virtio-net, e1000, e1000e, usb-net, smsc95xx and cdc-ncm"
        );
        assert_eq!(Link::listed(|link| link == Link::Lo), "lo");
        assert!(Link::HELP.contains("`veth`: a veth pair; `virtio-net`"));
    }
}
