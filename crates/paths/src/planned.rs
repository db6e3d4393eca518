//! The changes that a path will make on interfaces of this machine, to be allowed by the user
//! before. Changes that are not listed here are not made there.

use std::net::IpAddr;

use netplumb_knobs::{PRESENT, Planned, Setting};
use netplumb_model::bench::{Bench, DataPath};

use crate::Device;
use crate::changes::{RP_FILTER, RP_FILTER_ALL, gro, neighbour, route, sysctl, sysctl_of};
use crate::error::PathError;
use crate::forward::{BRIDGE_RULES, FORCE_FORWARDING, FORWARDING};
use crate::tc::clsact;

/// The interfaces to be changed.
#[derive(Debug)]
pub struct PlannedSite<'a> {
    /// The receiving interface.
    pub ingress: &'a Device,
    /// The forwarding interface, if another one.
    pub egress: Option<&'a Device>,
    /// The interface that receives forwarded packets.
    pub sink: Option<&'a Device>,
    /// The destination address.
    pub destination: IpAddr,
}

/// Whether a path is supported on interfaces of this machine.
pub(crate) fn can_on_own(path: DataPath, _v6: bool) -> Result<(), PathError> {
    let why = match path {
        DataPath::IptablesRaw => "iptables leaves its table `raw` behind, which plumb can't remove",
        DataPath::Dpdk => "testpmd may leave an XDP program behind, which plumb can't remove",
        DataPath::NftFlowtable => "a flow table takes routes to whole networks",
        _ => return Ok(()),
    };
    Err(PathError::cannot(
        format!("not supported on interfaces of this machine: {why}"),
        "measure it without --nic, between network namespaces",
    ))
}

/// All changes that a path may make there. Settings that already have the value are not changed.
///
/// # Errors
/// The path is not supported there.
pub fn planned(
    path: DataPath,
    bench: Bench,
    site: &PlannedSite<'_>,
) -> Result<Vec<Planned>, PathError> {
    let v6 = site.destination.is_ipv6();
    can_on_own(path, v6)?;
    let mut all = Vec::new();
    let program = |device: &Device, what: &str| Planned {
        on: Some(device.name.clone()),
        what: format!("{what}, during the measurement"),
    };
    let ingress = site.ingress;
    let any_source = |all: &mut Vec<Planned>| {
        if !v6 {
            all.push(sysctl(RP_FILTER_ALL).planned("0"));
            all.push(sysctl_of(RP_FILTER, ingress).planned("0"));
        }
    };
    let table = |all: &mut Vec<Planned>| {
        let family = if v6 { "ip6" } else { "ip" };
        all.push(crate::nft::table_setting(family, "").planned(PRESENT));
    };
    use DataPath as P;
    match path {
        P::Xdp | P::XdpTx | P::XdpRedirect => {
            all.push(program(ingress, "an XDP program is attached"));
            if let (P::XdpRedirect, Some(egress)) = (path, site.egress) {
                all.push(program(egress, "an XDP program that passes everything is attached"));
            }
        }
        P::XdpSkb => {
            all.push(gro(ingress).planned("on"));
            all.push(program(ingress, "an XDP program is attached (skb mode)"));
        }
        P::AfXdp => {
            all.push(program(
                ingress,
                "an XDP program and AF_XDP sockets are attached to all queues",
            ));
        }
        P::Tc => {
            all.push(gro(ingress).planned("on"));
            all.push(clsact(ingress).planned(PRESENT));
            all.push(program(ingress, "a program at tc ingress is attached"));
        }
        P::NftRaw => {
            all.push(gro(ingress).planned("on"));
            table(&mut all);
        }
        P::NftConntrack | P::Socket => {
            all.push(gro(ingress).planned("on"));
            all.push(route(ingress, site.destination, true).planned(PRESENT));
            any_source(&mut all);
            if path == P::NftConntrack {
                table(&mut all);
            }
        }
        P::Route | P::NftFlowtable => {
            all.push(gro(ingress).planned("on"));
            let key = if v6 { FORCE_FORWARDING } else { FORWARDING };
            all.push(sysctl_of(key, ingress).planned("1"));
            any_source(&mut all);
            if let Some(egress) = site.egress {
                all.push(route(egress, site.destination, false).planned(PRESENT));
                all.push(neighbour(egress, site.destination).planned(""));
            }
        }
        P::Bridge => {
            all.push(gro(ingress).planned("on"));
            let name = String::new();
            all.push(Setting::Bridge { name }.planned(PRESENT));
            all.extend(BRIDGE_RULES.map(|key| sysctl(key).planned("0")));
            for port in [Some(ingress), site.egress].into_iter().flatten() {
                all.push(Setting::Master { nic: port.nic() }.planned(""));
            }
        }
        P::IptablesRaw | P::Dpdk => {}
    }
    if let (Bench::Forward, Some(sink)) = (bench, site.sink) {
        all.push(gro(sink).planned("on"));
        all.push(program(sink, "an XDP program that counts is attached"));
    }
    Ok(all)
}
