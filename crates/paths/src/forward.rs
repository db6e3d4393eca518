//! Forwarding by the kernel: routing, with a flow table or without, and the bridge.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netplumb_knobs::{PRESENT, Setting};
use netplumb_model::bench::{DataPath, FrameKind, Handled};
use netplumb_model::class::Family;
use netplumb_sys::errno;
use netplumb_sys::netns::Namespace;
use netplumb_sys::proc::counters::Counters;
use netplumb_workload::drops;

use crate::changes::Changes;
use crate::error::{Doing, PathError};
use crate::{Device, Site, Standing, nft};

/// Sysctls of netfilter for bridged packets.
pub(crate) const BRIDGE_RULES: [&str; 3] = [
    "net.bridge.bridge-nf-call-iptables",
    "net.bridge.bridge-nf-call-ip6tables",
    "net.bridge.bridge-nf-call-arptables",
];
/// The bridge's device.
const BRIDGE: &str = "plumb-br";

/// Sends packets on by the kernel's own means.
#[derive(Debug)]
pub(crate) struct Forward {
    changes: Changes,
    before: Counters,
    egress: Device,
    path: DataPath,
    table: String,
    v6: bool,
}

impl Forward {
    pub(crate) fn set_up(path: DataPath, site: &Site) -> Result<Forward, PathError> {
        let egress = site.egress()?.clone();
        let mut changes = Changes::at(site)?;
        let table = changes.own_name(nft::TABLE);
        changes.gro(&site.ingress)?;
        match path {
            DataPath::Bridge => bridge(&mut changes, site, &egress)?,
            DataPath::NftFlowtable => {
                route(&mut changes, site, &egress)?;
                flow_table(&mut changes, site, &egress, &table)?;
            }
            _ => route(&mut changes, site, &egress)?,
        }
        let before = changes.counters()?;
        Ok(Forward { changes, before, egress, path, table, v6: site.destination.is_ipv6() })
    }

    /// Counters of routing: packets forwarded, and dropped.
    fn routed(&self, counted: &Counters) -> (u64, BTreeMap<String, u64>) {
        let (family, forwarded) = match self.v6 {
            true => (Family::V6, "Ip6OutForwDatagrams"),
            false => (Family::V4, "IpForwDatagrams"),
        };
        let lost = drops::losses(&drops::of_protocol("Ip", family, counted.all()));
        (counted.get(forwarded), lost)
    }
}

/// The sysctl of forwarding by interface, for IPv6 from Linux 6.17 on.
pub(crate) const FORCE_FORWARDING: &str = "net.ipv6.conf.{}.force_forwarding";
/// The sysctl of forwarding by interface, for IPv4.
pub(crate) const FORWARDING: &str = "net.ipv4.conf.{}.forwarding";
/// The sysctl of forwarding on all interfaces, which also makes the host a router.
pub(crate) const FORWARDING_V6: &str = "net.ipv6.conf.all.forwarding";

/// Set up forwarding, a route, and a neighbour.
fn route(changes: &mut Changes, site: &Site, egress: &Device) -> Result<(), PathError> {
    let own = changes.journal().is_some();
    match (site.destination.is_ipv6(), own) {
        (true, false) => changes.sysctl(FORWARDING_V6, "1")?,
        (false, false) => changes.sysctl("net.ipv4.ip_forward", "1")?,
        // Only this interface: the sysctl for all changes others, which are not restored with it
        // (inet_forward_change, net/ipv4/devinet.c).
        (false, true) => changes.sysctl_of(FORWARDING, &site.ingress, "1")?,
        (true, true) => {
            let key = FORCE_FORWARDING.replace("{}", &site.ingress.name);
            if changes.namespace.sysctl(&key).is_ok() {
                changes.sysctl_of(FORCE_FORWARDING, &site.ingress, "1")?;
            } else if !changes.namespace.sysctl(FORWARDING_V6).is_ok_and(|v| v == "1") {
                return Err(PathError::cannot(
                    "IPv6 forwarding is off, and before Linux 6.17 toggling it removes default routes learnt from router advertisements",
                    format!("turn it on yourself: sysctl -w {FORWARDING_V6}=1"),
                ));
            }
        }
    }
    changes.any_source(&site.ingress, site)?;
    changes.route(egress, site.destination)?;
    changes.neighbour(egress, site.destination, site.next_mac)
}

/// A flow is added to the table by its second packet, after the first one created its entry in
/// connection tracking (nft_flow_offload_eval, net/netfilter/ nft_flow_offload.c); there must be a
/// route for replies, too.
fn flow_table(
    changes: &mut Changes,
    site: &Site,
    egress: &Device,
    table: &str,
) -> Result<(), PathError> {
    if site.kind != FrameKind::Udp {
        return Err(PathError::cannot(
            format!("flow tables do not take {} frames", site.kind),
            "use udp frames with the path `nft-flowtable`",
        ));
    }
    let network = if site.source.is_ipv6() { 64 } else { 24 };
    changes.network(&site.ingress, network_of(site.source), network)?;
    let nft = nft::tool()?;
    let family = nft::family(site);
    let rules = format!(
        "table {family} {} {{\n\
         \tflowtable flows {{\n\
         \t\thook ingress priority filter; devices = {{ {}, {} }};\n\
         \t}}\n\
         \tchain forwards {{\n\
         \t\ttype filter hook forward priority filter; policy accept;\n\
         \t\t{} counter flow add @flows\n\
         \t}}\n}}\n",
        table,
        site.ingress.name,
        egress.name,
        nft::matches(site)
    );
    nft::load(&nft, changes, family, table, &rules)
}

/// The first address of the network of a source.
fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() & !0xff).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
    }
}

/// Check that the kernel supports flow tables, in a temporary namespace.
pub(crate) fn has_flow_tables() -> Result<(), PathError> {
    let nft = nft::tool()?;
    let namespace = Namespace::new().doing(|| "make a network namespace".into())?;
    let table = "table ip try {\n\tflowtable flows {\n\t\thook ingress priority filter;\n\t}\n}\n";
    nft.run(&namespace, &["-f", "-"], table).map(drop).map_err(|error| {
        PathError::cannot(
            format!(
                "flow tables are not supported by this kernel ({})",
                error.to_string().lines().next().unwrap_or_default()
            ),
            "load the modules `nf_flow_table` and `nft_flow_offload`, or use a kernel with \
                 CONFIG_NF_FLOW_TABLE, as distributions have it",
        )
    })
}

fn bridge(changes: &mut Changes, site: &Site, egress: &Device) -> Result<(), PathError> {
    // A device's name has 15 characters at most.
    let name = match changes.journal() {
        Some(journal) => format!("plumb-{}", journal.word()),
        None => BRIDGE.into(),
    };
    let setting = Setting::Bridge { name: name.clone() };
    changes.set(setting, PRESENT).map_err(|error| match error {
        PathError::System { source, .. } if errno::errno_in(&*source) == Some(libc::EOPNOTSUPP) => {
            PathError::cannot(
                "bridges are not supported by this kernel",
                "load the module `bridge`, or use a kernel with CONFIG_BRIDGE",
            )
        }
        other => other,
    })?;
    // Bridged packets pass the rules of iptables only if this is on; even without rules it costs
    // time (br_nf_pre_routing, net/bridge/br_netfilter_hooks.c).
    for key in BRIDGE_RULES {
        if changes.namespace.sysctl(key).is_ok() {
            changes.sysctl(key, "0")?;
        }
    }
    // Turn off IPv6 on the bridge, so that it sends nothing itself.
    let key = format!("net.ipv6.conf.{name}.disable_ipv6");
    if changes.namespace.sysctl(&key).is_ok() {
        let set = changes.namespace.set_sysctl(&key, "1");
        set.doing(|| format!("set {key}"))?;
    }
    let doing = || "join the devices by a bridge".to_string();
    for port in [&site.ingress, egress] {
        if port.master(&changes.namespace)?.is_some() {
            return Err(PathError::cannot(
                format!("{} is already a port of a bridge", port.name),
                "remove it from that bridge, or use another device",
            ));
        }
        changes.set(Setting::Master { nic: port.nic() }, &name)?;
    }
    let namespace = &changes.namespace;
    let (bridge, _) = namespace.device(&name).doing(doing)?;
    namespace.set_up(bridge, None).doing(doing)?;
    namespace
        .add_forwarding(egress.index, site.next_mac)
        .doing(|| "add a forwarding entry to the bridge".into())
}

impl Device {
    fn master(&self, namespace: &Namespace) -> Result<Option<u32>, PathError> {
        Ok(self.nic().state(namespace)?.master)
    }
}

impl Standing for Forward {
    fn handled(&mut self) -> Result<Handled, PathError> {
        let counted = self.changes.counters()?.since(&self.before);
        let device = |name: &str| counted.get(&format!("{} {name}", self.egress.name));
        let (mut packets, mut lost) = match self.path {
            DataPath::Route => self.routed(&counted),
            DataPath::NftFlowtable => (device("tx_packets"), self.routed(&counted).1),
            _ => (device("tx_packets"), BTreeMap::new()),
        };
        let (cause, dropped) = drops::not_sent(&self.egress.name, &counted);
        if dropped > 0 {
            lost.insert(cause, dropped);
            if self.path == DataPath::Route {
                packets = packets.saturating_sub(dropped);
            }
        }
        Ok(Handled { cpu_unknown: packets, lost, ..Handled::default() })
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let mut facts = self.changes.facts.clone();
        let attached = match self.path {
            DataPath::Bridge => "the kernel's bridge, without spanning tree",
            DataPath::NftFlowtable => "the kernel's routing, a flow table of nftables",
            _ => "the kernel's routing, one route, one permanent neighbour",
        };
        facts.insert("path.attached".into(), attached.into());
        if self.path == DataPath::NftFlowtable {
            // The rule only sees packets that the flow table did not handle.
            let family = if self.v6 { "ip6" } else { "ip" };
            let slow =
                nft::tool().and_then(|nft| nft::counted(&nft, &self.changes, family, &self.table));
            if let Ok((packets, _)) = slow {
                facts.insert("path.not_by_flow_table".into(), packets.to_string());
            }
        }
        facts
    }
}
