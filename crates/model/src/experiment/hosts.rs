//! Two hosts with a wire between them, as an experiment asks for them.

use super::error::Mistake;
use super::nic::Ends;
use super::setup::FileSize;
use super::{Experiment, Kind, Knob, Knobs, Lab};
use crate::class::{Link, Proto};
use crate::events::nearest;
use crate::hosts::{
    self, CLOCKED, COUNTED_IN_KERNEL, COUNTED_IN_PROGRAMS, Client, HostLoad, INSTRUMENT, PAYLOAD,
    Side, WIRE_KEYS, Wire,
};
use crate::quantity::Kind::Count;
use crate::recording::Arm;
use crate::timing::INSTRUCTIONS;
use crate::web::{MOST_DIRECTORIES, WebLoad, WebPlan};

/// The instrument that two hosts share with other workloads.
const COUNTS: &str = INSTRUCTIONS.instrument;

/// Defaults of the load in a block.
const STREAM_BYTES: u32 = 4 << 20;
const WRITE_BYTES: u32 = 64 << 10;
const TURNS: u32 = 100;
const REQUEST_BYTES: &str = "64";
const REQUESTS: u32 = 400;
const CLIENTS: u32 = 16;
const DIRECTORIES: u32 = 2;
/// This machine is faster than a guest: its blocks are this many times as long.
const IN_NETNS: u32 = 64;

/// Limits, so that a typing error does not result in days of measuring.
const MAX_STREAM_BYTES: u32 = 1 << 30;
const MAX_TURNS: u32 = 100_000;

/// Settings that only two hosts have.
const OF_HOSTS: [&str; 9] = [
    "client",
    "offload_in",
    "buffer",
    "rx_link",
    "throttle",
    "tx_buffer",
    "rx_buffer",
    "tx_shift",
    "rx_shift",
];

/// Settings of a web server.
const OF_WEB: [&str; 6] =
    ["disk", "scheduler", "nr_requests", "read_ahead_kb", "page_cache", "sendfile"];

/// Settings that two hosts share with other workloads.
const ALSO_OF_HOSTS: [&str; 35] = [
    "proto",
    "family",
    "link",
    "size_bytes",
    "mtu_bytes",
    "kernel",
    "arch",
    "mitigations",
    "cmdline",
    "sysctl",
    "offload",
    "module",
    "load",
    "module_options",
    "module_options_in",
    "coalesce",
    "coalesce_in",
    "rings",
    "rings_in",
    "feature",
    "feature_in",
    "gro_flush_timeout",
    "napi_defer_hard_irqs",
    "threaded",
    "napi_in",
    "queues",
    "channels",
    "rps_cpus",
    "xps_cpus",
    "steering_in",
    "seed",
    WIRE_KEYS[0],
    WIRE_KEYS[1],
    WIRE_KEYS[2],
    WIRE_KEYS[3],
];

/// Whether two hosts have a knob.
pub fn is_of_hosts(knob: &Knob) -> bool {
    OF_HOSTS.contains(&knob.key) || ALSO_OF_HOSTS.contains(&knob.key)
}

/// The link of two hosts in a lab, if none is named.
fn link_in(lab: Lab) -> Link {
    match lab {
        Lab::Netns => Link::Veth,
        _ => Link::E1000,
    }
}

/// The default of a knob of two hosts, if it differs from the default for packets.
pub fn default_of_hosts(knob: &Knob) -> Option<String> {
    let in_netns = || format!("{}; in the netns lab {}", link_in(Lab::Vm), link_in(Lab::Netns));
    match knob.key {
        "link" => Some(in_netns()),
        "size_bytes" => Some(REQUEST_BYTES.into()),
        _ => None,
    }
}

/// Whether a web server on one of two hosts has a knob.
pub fn is_of_web(knob: &Knob) -> bool {
    OF_WEB.contains(&knob.key)
}

/// The NIC of a host.
pub fn link_of(arm: &Arm, side: Side) -> Link {
    let own = match side {
        Side::Tx => None,
        Side::Rx => arm.read("rx_link"),
    };
    own.unwrap_or(arm.link)
}

/// The size of a host's socket buffer; none for the kernel's own.
pub fn buffer_of(arm: &Arm, side: Side) -> Option<u32> {
    let own = match side {
        Side::Tx => "tx_buffer",
        Side::Rx => "rx_buffer",
    };
    arm.read(own).or_else(|| arm.read("buffer"))
}

impl Experiment {
    /// Whether it is about two hosts.
    pub fn has_hosts(&self) -> bool {
        self.hosts == Some(2)
    }

    /// Whether arms have a wire between NICs of one guest.
    pub fn has_wire_in_guest(&self) -> bool {
        !self.has_hosts() && self.set_keys().any(|key| WIRE_KEYS.contains(&key))
    }

    /// The load of two hosts in a block; the arm sets the size of requests and the seed.
    pub fn host_load(&self) -> HostLoad {
        let workload = &self.workload;
        let times = match self.lab {
            Lab::Netns => IN_NETNS,
            _ => 1,
        };
        match workload.kind {
            Kind::Request => {
                HostLoad::Request { turns: workload.turns.unwrap_or(TURNS * times), size_bytes: 0 }
            }
            Kind::Http => HostLoad::Web(WebLoad {
                requests: workload.requests.unwrap_or(REQUESTS * times),
                connections: workload.connections.unwrap_or(CLIENTS),
                directories: workload.directories.unwrap_or(DIRECTORIES),
                seed: 1,
            }),
            _ => HostLoad::Stream {
                bytes: workload.bytes.map_or(STREAM_BYTES * times, |size| size.0).into(),
                write_bytes: workload.write_bytes.map_or(WRITE_BYTES, |size| size.0),
                connections: workload.connections.unwrap_or(1),
            },
        }
    }

    /// Whether instructions of both are counted by function.
    pub fn counts_hosts(&self) -> bool {
        let mut named = self.instruments.iter().flatten();
        self.has_hosts() && named.any(|name| name == COUNTS)
    }

    /// An arm with these settings, and the defaults of two hosts if there are some.
    pub(super) fn arm_of(&self, mut knobs: Knobs, name: String) -> Arm {
        if !self.has_hosts() {
            return knobs.arm(name, self.lab);
        }
        let is_request = self.workload.kind == Kind::Request;
        let link = link_in(self.lab);
        for (key, level) in [
            ("proto", Proto::Tcp.as_str()),
            ("link", link.as_str()),
            ("size_bytes", if is_request { REQUEST_BYTES } else { "0" }),
        ] {
            if knobs.get(key).is_none() {
                // INVARIANT: these are levels of these knobs, as a test checks.
                let _ = knobs.set(key, level);
            }
        }
        knobs.arm(name, self.lab)
    }

    /// Check the settings for two hosts, and that none are set without them.
    pub(super) fn check_hosts(&self) -> Result<(), Mistake> {
        let workload = &self.workload;
        match self.hosts {
            None | Some(1) => {
                if let Kind::Request | Kind::Http = workload.kind {
                    let kind = workload.kind;
                    let why = format!("a workload of kind {kind} needs hosts = 2");
                    return Err(("kind", why).into());
                }
                for (key, given) in [
                    ("bytes", workload.bytes.is_some()),
                    ("write_bytes", workload.write_bytes.is_some()),
                    ("turns", workload.turns.is_some()),
                    ("requests", workload.requests.is_some()),
                    ("directories", workload.directories.is_some()),
                    (
                        "connections",
                        workload.kind == Kind::Stream && workload.connections.is_some(),
                    ),
                ] {
                    if given {
                        let of = if key == "connections" { " of a stream" } else { "" };
                        return Err((key, format!("{key}{of} needs hosts = 2")).into());
                    }
                }
                return match self.set_keys().find(|key| OF_HOSTS.contains(key)) {
                    Some(key) => Err((key, format!("{key} needs hosts = 2")).into()),
                    None => Ok(()),
                };
            }
            Some(2) => {}
            Some(other) => {
                let why = format!("invalid hosts `{other}`; expected 1 or 2");
                return Err(("hosts", why).into());
            }
        }
        if self.lab == Lab::Host {
            let why = "hosts = 2 needs lab = \"vm\", where each host is a guest, or lab = \"netns\", where each is \
                       a namespace";
            return Err(("hosts", why.to_string()).into());
        }
        if !matches!(workload.kind, Kind::Stream | Kind::Request | Kind::Http) {
            let why = format!(
                "hosts = 2 needs a workload of kind stream, request or http; this one is of kind {}",
                workload.kind
            );
            return Err(("kind", why).into());
        }
        let mut named = self.instruments.iter().flatten();
        let (known, expected): (&[&str], String) = match self.lab {
            Lab::Netns => (&[CLOCKED], format!("`{CLOCKED}`")),
            _ => {
                (&[INSTRUMENT, COUNTS], format!("`{INSTRUMENT}`, or `{INSTRUMENT}` and `{COUNTS}`"))
            }
        };
        if let Some(name) = named.find(|name| !known.contains(&name.as_str())) {
            let name: String = name.chars().take(40).collect();
            let why = format!(
                "instrument `{name}` is not supported with hosts = 2 in lab {}; expected {expected}",
                self.lab
            );
            return Err(("instruments", why).into());
        }
        let is_stream = workload.kind == Kind::Stream;
        for (key, given) in [
            ("packets", workload.packets.is_some()),
            ("warmup_packets", workload.warmup_packets.is_some()),
            ("rate", workload.rate.is_some()),
            ("duration", workload.duration.is_some()),
        ] {
            if given {
                let has = match workload.kind {
                    Kind::Stream => "bytes",
                    Kind::Http => "requests",
                    _ => "turns",
                };
                let why = format!("{key} is not supported with hosts = 2; a block has {has}");
                return Err((key, why).into());
            }
        }
        let stream: &[Kind] = &[Kind::Stream];
        let web: &[Kind] = &[Kind::Http];
        for (key, given, of) in [
            ("bytes", workload.bytes.is_some(), stream),
            ("write_bytes", workload.write_bytes.is_some(), stream),
            ("connections", workload.connections.is_some(), &[Kind::Stream, Kind::Http]),
            ("turns", workload.turns.is_some(), &[Kind::Request]),
            ("requests", workload.requests.is_some(), web),
            ("directories", workload.directories.is_some(), web),
        ] {
            if given && !of.contains(&workload.kind) {
                let of: Vec<&str> = of.iter().map(|kind| kind.as_str()).collect();
                let why = format!("{key} needs a workload of kind {}", of.join(" or "));
                return Err((key, why).into());
            }
        }
        let size = |size: Option<FileSize>| size.map(|size| size.0);
        for (key, value, most) in [
            ("bytes", size(workload.bytes), MAX_STREAM_BYTES),
            ("write_bytes", size(workload.write_bytes), 16 << 20),
            ("turns", workload.turns, MAX_TURNS),
            ("requests", workload.requests, MAX_TURNS),
            ("directories", workload.directories, MOST_DIRECTORIES),
            ("connections", workload.connections, HostLoad::MAX_CONNECTIONS),
        ] {
            if let Some(value) = value.filter(|n| !(1..=most).contains(n)) {
                let why = format!("invalid {key} `{value}`; expected 1 to {most}");
                return Err((key, why).into());
            }
        }
        let load = self.host_load();
        if let HostLoad::Stream { bytes, connections, .. } = load
            && bytes < u64::from(connections)
        {
            let why = format!("bytes `{bytes}`: each of {connections} connections needs one");
            return Err(("bytes", why).into());
        }
        if self.blocks.time.is_some() {
            let why = "time is not supported with hosts = 2: a block ends after its bytes, turns or requests";
            return Err(("time", why.to_string()).into());
        }
        let is_web = workload.kind == Kind::Http;
        let fits = |key: &&'static str| {
            OF_HOSTS.contains(key)
                || ALSO_OF_HOSTS.contains(key)
                || (is_web && OF_WEB.contains(key))
        };
        if let Some(key) = self.set_keys().find(|key| !fits(key)) {
            let of = match OF_WEB.contains(&key) {
                true => " and a workload of this kind: it is of kind http",
                false => "",
            };
            return Err((key, format!("{key} is not supported with hosts = 2{of}")).into());
        }
        if is_web && self.set_keys().any(|key| key == "size_bytes") {
            let why = "size_bytes (--size) is not supported with kind http: files have the sizes of SPECweb99";
            return Err(("size_bytes", why.to_string()).into());
        }
        self.check_quantities()?;
        if is_stream && self.set_keys().any(|key| key == "size_bytes") {
            let why = "size_bytes (--size) is the size of a request; for a stream use write_bytes (--write-bytes), in [workload]";
            return Err(("size_bytes", why.to_string()).into());
        }
        Ok(())
    }

    /// Check that claims and figures are about quantities that two hosts have, and name one of several figures,
    /// before anything is measured.
    fn check_quantities(&self) -> Result<(), Mistake> {
        for (n, claim) in self.claims.iter().enumerate() {
            for (key, name) in claim.quantities() {
                check_quantity(key, name).map_err(Mistake::within("claim", n))?;
            }
        }
        for (n, figure) in self.figures.iter().enumerate() {
            check_quantity("y", &figure.y).map_err(Mistake::within("figure", n))?;
        }
        Ok(())
    }

    /// Check that guests are not asked for queues: only links that can't join two guests have them.
    pub(super) fn check_queues(&self, arm: &Arm) -> Result<(), (&'static str, String)> {
        match self.has_hosts() && self.lab == Lab::Vm && arm.level("queues").is_some() {
            true => {
                let why = "queues is not supported by two guests, which have one CPU each, and NICs with one queue; use \
                           lab netns (--lab netns)";
                Err(("queues", why.into()))
            }
            false => Ok(()),
        }
    }

    /// Check an arm of two hosts.
    pub(super) fn check_host_arm(&self, arm: &Arm) -> Result<(), (&'static str, String)> {
        if !self.has_hosts() {
            return check_wire_in_guest(arm);
        }
        match (arm.proto, self.workload.kind) {
            (Proto::Tcp, _) | (Proto::Raw, Kind::Request) => {}
            (Proto::Raw, _) => {
                let why = "two hosts send streams and files over tcp; for ICMP echoes use kind = \"request\"";
                return Err(("proto", why.into()));
            }
            (other, _) => {
                let why = format!("two hosts send tcp, or raw (ICMP echoes), not {other}");
                return Err(("proto", why));
            }
        }
        if self.lab == Lab::Netns {
            return self.check_namespaces(arm);
        }
        let [tx_link, rx_link] = [Side::Tx, Side::Rx].map(|side| link_of(arm, side));
        for (key, link) in [("link", tx_link), ("rx_link", rx_link)] {
            if !link.declared().hosts {
                let why = format!(
                    "link {link} can't join two hosts; expected {}",
                    Link::listed(|link| link.declared().hosts)
                );
                return Err((key, why));
            }
        }
        if arm.level("throttle") == Some("off") && [tx_link, rx_link] != [Link::E1000; 2] {
            let why = "throttle = \"off\" is of QEMU's e1000 only: use link e1000 at both hosts, or \
                       gro_flush_timeout with napi_defer_hard_irqs";
            return Err(("throttle", why.into()));
        }
        if self.workload.kind == Kind::Request && arm.size_bytes == 0 {
            return Err((
                "size_bytes",
                "invalid size_bytes (--size) `0`: a request, or an echo, has at least a byte"
                    .into(),
            ));
        }
        for key in ["buffer", "tx_buffer", "rx_buffer"] {
            if let Some(bytes) = arm.read::<u32>(key)
                && !(1..=(1 << 28)).contains(&bytes)
            {
                let why = format!("invalid {key} `{bytes}`; expected 1 to 268435456 (256M)");
                return Err((key, why));
            }
        }
        if let HostLoad::Web(load) = self.host_load() {
            WebPlan::from_arm(arm).check(load)?;
        }
        let wire = Wire::from_arm(arm);
        wire.check().map_err(|why| ("wire_delay", why))?;
        if arm.proto == Proto::Raw && wire.loss_ppb > 0 {
            let why = "a lost echo is never sent again: use wire_loss with a stream, or with requests over TCP";
            return Err(("wire_loss", why.into()));
        }
        // QEMU splits what it should segment into IP fragments there (net_tx_pkt.c). The receiver of requests also
        // sends.
        let senders = match self.workload.kind {
            Kind::Request => &[Side::Tx, Side::Rx][..],
            _ => &[Side::Tx],
        };
        for side in senders {
            let ends = Ends::from_arm(arm, "offload_in");
            let is_off = arm.level("offload.tso") == Some("off") && ends.has(*side);
            if link_of(arm, *side) == Link::E1000e && !is_off && arm.proto != Proto::Raw {
                let why = "QEMU's e1000e sends IP fragments instead of TCP segments; use link e1000, or turn offload \
                           tso off in each host that sends (of requests both do); as rx_link it can receive a stream";
                return Err(("link", why.into()));
            }
        }
        Ok(())
    }

    /// Check an arm of two namespaces of this machine.
    fn check_namespaces(&self, arm: &Arm) -> Result<(), (&'static str, String)> {
        if arm.link != Link::Veth {
            let why = format!("two hosts in lab netns are joined by veth, not by {}", arm.link);
            return Err(("link", why));
        }
        if self.workload.kind == Kind::Request && arm.size_bytes == 0 {
            return Err((
                "size_bytes",
                "invalid size_bytes (--size) `0`: a request, or an echo, has at least a byte"
                    .into(),
            ));
        }
        let client: Client = arm.read("client").unwrap_or_default();
        let kind = match client {
            Client::Plumb => self.workload.kind,
            Client::Iperf3 => Kind::Stream,
            Client::Wrk => Kind::Http,
        };
        if kind != self.workload.kind {
            let why = format!("client {client} needs a workload of kind {kind}");
            return Err(("client", why));
        }
        let own = ["tx_buffer", "rx_buffer"];
        if let (Client::Iperf3, Some(key)) =
            (client, own.iter().find(|key| arm.level(key).is_some()))
        {
            let why = "iperf3 sets the buffers of both hosts alike; use buffer = \"SIZE\"";
            return Err((key, why.into()));
        }
        Ok(())
    }

    /// The keys of all knobs that are set or varied.
    fn set_keys(&self) -> impl Iterator<Item = &'static str> {
        let named = self.arms.iter().map(|arm| &arm.knobs);
        let figures = self.figures.iter();
        let knobs = std::iter::once(&self.knobs)
            .chain(named)
            .chain(figures.clone().map(|figure| &figure.knobs));
        let vary = std::iter::once(&self.vary).chain(figures.map(|figure| &figure.vary));
        let fixed = knobs.flat_map(Knobs::set_ones);
        fixed.chain(vary.flat_map(super::Vary::set_ones)).map(|knob| knob.key)
    }
}

/// Check the wire between NICs of one guest.
fn check_wire_in_guest(arm: &Arm) -> Result<(), (&'static str, String)> {
    let given = WIRE_KEYS.iter().find(|key| arm.knobs.contains_key(**key));
    let Some((key, wire)) = given.zip(Wire::of_one_guest(arm)) else {
        return Ok(());
    };
    if !arm.link.declared().hosts {
        let why = format!(
            "{key} is of a wire between two NICs of QEMU, not of link {}; expected {}",
            arm.link,
            Link::listed(|link| link.declared().hosts)
        );
        return Err(("link", why));
    }
    if wire.loss_ppb > 0 && arm.proto != Proto::Tcp {
        let why = format!(
            "a lost packet of {} is never sent again: use proto tcp, or wire_loss with hosts = 2",
            arm.proto
        );
        return Err(("wire_loss", why));
    }
    Ok(())
}

/// Check that two hosts have a quantity, or the one of its figures that is named: `CPU use of sender`.
fn check_quantity(key: &'static str, name: &str) -> Result<(), Mistake> {
    // Also of functions, if these are counted.
    const OF_FUNCTIONS: [&str; 2] = [INSTRUCTIONS.name, "calls"];
    let more = [PAYLOAD, COUNTED_IN_KERNEL, COUNTED_IN_PROGRAMS];
    let declared = || hosts::ALL.iter().chain(&more);
    let called = |name: &str| declared().find(|of| of.name == name);
    let (base, label) = match (called(name), name.rsplit_once(" of ")) {
        (None, Some((base, label))) => (base, Some(label)),
        _ => (name, None),
    };
    let shown: String = name.chars().take(40).collect();
    let Some(quantity) = called(base) else {
        let names = || declared().map(|of| of.name).chain(OF_FUNCTIONS);
        if names().any(|known| known == base) {
            return Ok(());
        }
        let expected = match nearest(base, names()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => {
                let all: Vec<&str> = hosts::ALL.iter().map(|of| of.name).collect();
                format!("expected {}", all.join(", "))
            }
        };
        let why = format!("no quantity of two hosts is called `{shown}`; {expected}");
        return Err((key, why).into());
    };
    let labels = hosts::labels_of(quantity);
    let is_known = match label {
        Some(label) => labels.contains(&label),
        // Counts of both hosts add up.
        None => labels.is_empty() || quantity.kind == Count,
    };
    if is_known {
        return Ok(());
    }
    let each: Vec<String> = (labels.iter()).map(|label| format!("`{base} of {label}`")).collect();
    let why = match (label, &each[..]) {
        (_, []) => format!("`{base}` is a single figure, so there is no `{shown}`"),
        (None, _) => format!("`{base}` has several figures; expected one of {}", each.join(", ")),
        (Some(_), _) => format!("there is no `{shown}`; expected one of {}", each.join(", ")),
    };
    Err((key, why).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(rest: &str) -> Result<Experiment, String> {
        let text = format!("name = \"x\"\nhosts = 2\n{rest}");
        Experiment::parse(&text).map_err(|error| error.to_string())
    }

    const STREAM: &str = "[workload]\nkind = \"stream\"\n";

    /// Check that two hosts have defaults of their own, which an experiment may change.
    #[test]
    fn defaults() {
        let arm = |rest: &str| hosts(rest).unwrap().arms().remove(0);
        let stream = arm(STREAM);
        assert_eq!((stream.proto, stream.link, stream.size_bytes), (Proto::Tcp, Link::E1000, 0));
        let request = arm("[workload]\nkind = \"request\"\n");
        assert_eq!(request.size_bytes, 64);
        let other = arm(&format!("{STREAM}[knobs]\nlink = \"virtio-net\"\n"));
        assert_eq!(other.link, Link::VirtioNet);
        let load = hosts("[workload]\nkind = \"stream\"\nbytes = \"1M\"\n").unwrap();
        assert_eq!(
            load.host_load(),
            HostLoad::Stream { bytes: 1 << 20, write_bytes: 64 << 10, connections: 1 }
        );
    }

    /// Check that settings which two hosts can't have are errors, and settings that need two hosts are errors without
    /// them.
    #[test]
    fn what_they_cannot() {
        for (rest, why) in [
            ("lab = \"host\"\n[workload]\nkind = \"stream\"", "where each is a namespace"),
            (
                "lab = \"netns\"\ninstruments = [\"wire\"]\n[workload]\nkind = \"stream\"",
                "expected `sockets`",
            ),
            (
                "lab = \"netns\"\n[workload]\nkind = \"stream\"\n[knobs]\nclient = \"wrk\"",
                "needs a workload of kind http",
            ),
            (
                "lab = \"netns\"\n[workload]\nkind = \"stream\"\n[knobs]\ntx_shift = 2",
                "tx_shift is not supported by lab netns",
            ),
            (
                "lab = \"netns\"\n[workload]\nkind = \"stream\"\n[knobs]\noffload_in = \"tx\"",
                "not supported by lab netns",
            ),
            ("", "kind stream, request or http"),
            ("[workload]\nkind = \"http\"\nturns = 3", "kind request"),
            ("[workload]\nkind = \"http\"\npackets = 3", "has requests"),
            ("[workload]\nkind = \"http\"\ndirectories = 13", "expected 1 to 12"),
            ("[workload]\nkind = \"http\"\n[knobs]\nsize_bytes = 3", "sizes of SPECweb99"),
            ("[workload]\nkind = \"http\"\n[knobs]\npage_cache = \"cold\"", "needs a disk"),
            (
                "[workload]\nkind = \"http\"\n[knobs]\ndisk = \"virtio-blk:64M:ext4\"",
                "a guest's memory",
            ),
            ("[workload]\nkind = \"http\"\n[knobs]\ndisk = \"brd:64M:raw\"", "needs a file system"),
            ("[workload]\nkind = \"http\"\n[knobs]\ndisk = \"brd:10M:ext4\"", "a disk of 18 MiB"),
            (
                "[workload]\nkind = \"http\"\ndirectories = 4\n[knobs]\ndisk = \"brd:64M:ext4\"",
                "at most 3 directories",
            ),
            ("[workload]\nkind = \"http\"\n[knobs]\nlink = \"e1000e\"", "IP fragments"),
            ("[workload]\nkind = \"stream\"\n[knobs]\nsendfile = \"off\"", "of kind http"),
            ("[workload]\nkind = \"stream\"\nturns = 3", "kind request"),
            ("[workload]\nkind = \"request\"\nbytes = 3", "kind stream"),
            ("[workload]\nkind = \"stream\"\nbytes = 0", "expected 1 to"),
            ("[workload]\nkind = \"stream\"\npackets = 3", "has bytes"),
            ("[workload]\nkind = \"stream\"\n[knobs]\nforward = true", "forward is not"),
            ("[workload]\nkind = \"stream\"\n[knobs]\nsize_bytes = 3", "write_bytes"),
            ("[workload]\nkind = \"stream\"\n[knobs]\nproto = \"udp\"", "two hosts send tcp"),
            ("[workload]\nkind = \"stream\"\n[knobs]\nproto = \"raw\"", "kind = \"request\""),
            ("[workload]\nkind = \"stream\"\nconnections = 65", "expected 1 to 64"),
            ("[workload]\nkind = \"stream\"\n[knobs]\nlink = \"veth\"", "virtio-net, e1000"),
            ("[workload]\nkind = \"stream\"\n[knobs]\nlink = \"e1000e\"", "IP fragments"),
            (
                "[workload]\nkind = \"stream\"\n[knobs]\nlink = \"e1000e\"\noffload = { tso = \"off\" }\n\
                 offload_in = \"rx\"",
                "IP fragments",
            ),
            ("[workload]\nkind = \"request\"\n[knobs]\nrx_link = \"e1000e\"", "IP fragments"),
            (
                "[workload]\nkind = \"stream\"\n[knobs]\nlink = \"virtio-net\"\nqueues = 2",
                "use lab netns",
            ),
            ("[workload]\nkind = \"stream\"\n[knobs]\nqueues = 2", "one CPU each"),
            ("[workload]\nkind = \"stream\"\n[knobs]\nrx_link = \"lo\"", "can't join two hosts"),
            (
                "[workload]\nkind = \"stream\"\n[knobs]\nrx_link = \"virtio-net\"\nthrottle = \"off\"",
                "e1000 only",
            ),
            (
                "[workload]\nkind = \"stream\"\n[[figure]]\nname = \"a\"\nx = \"tx_buffer\"\ny = \"troughput\"",
                "did you mean `throughput`?",
            ),
            (
                "[workload]\nkind = \"request\"\n[[figure]]\nname = \"a\"\nx = \"tx_buffer\"\ny = \"turn\"",
                "line 8: `turn` has several figures; expected one of `turn of mean`",
            ),
            (
                "[workload]\nkind = \"request\"\n[[claim]]\nkind = \"ranking\"\nsays = \"a\"\nquantity = \"turns\"\n\
                 [[claim]]\nkind = \"ranking\"\nsays = \"b\"\nquantity = \"turn of 95%\"",
                "line 12: there is no `turn of 95%`; expected one of `turn of mean`",
            ),
            (
                "[workload]\nkind = \"request\"\n[[claim]]\nkind = \"turning-point\"\nsays = \"a\"\nknob = \"tx_shift\"\n\
                 level = \"0\"\nagainst = \"2\"\nby = \"CPU use\"\nquantity = \"turns\"\nat_least = 1.1",
                "line 11: `CPU use` has several figures",
            ),
            (
                "[workload]\nkind = \"stream\"\n[[figure]]\nname = \"a\"\nx = \"tx_buffer\"\ny = \"wire use of sender\"",
                "`wire use` is a single figure",
            ),
            ("[workload]\nkind = \"stream\"\n[knobs]\nwire_rate = \"fast\"", "like 1G"),
            (
                "[workload]\nkind = \"stream\"\n[knobs]\nwire_delay = \"0\"\nwire_rate = \"100G\"",
                "too short",
            ),
            ("instruments = [\"samples\"]\n[workload]\nkind = \"stream\"", "`wire` and `exact`"),
        ] {
            let message = hosts(rest).unwrap_err();
            assert!(message.contains(why), "{rest}: {message}");
        }
        for (text, why) in [
            ("hosts = 3", "expected 1 or 2"),
            ("[workload]\nkind = \"http\"", "hosts = 2"),
            ("[workload]\nkind = \"stream\"\nrequests = 3", "hosts = 2"),
            ("[workload]\nkind = \"request\"", "hosts = 2"),
            ("[workload]\nkind = \"stream\"\nbytes = 3", "hosts = 2"),
            ("[workload]\nkind = \"stream\"\n[knobs]\ntx_shift = 2", "hosts = 2"),
        ] {
            let error = Experiment::parse(&format!("name = \"x\"\n{text}")).unwrap_err();
            assert!(error.to_string().contains(why), "{text}: {error}");
        }
        for fine in [
            "link = \"e1000e\"\noffload = { tso = \"off\" }",
            "link = \"e1000e\"\noffload = { tso = \"off\" }\noffload_in = \"tx\"",
            "rx_link = \"e1000e\"",
            "throttle = \"off\"",
        ] {
            let parsed = hosts(&format!("{STREAM}[knobs]\n{fine}\n"));
            assert!(parsed.is_ok(), "{fine}: {parsed:?}");
        }
    }
}
