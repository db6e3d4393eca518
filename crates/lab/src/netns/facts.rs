//! Facts about a namespace for the recording: devices, drivers, offloads, settings.

use std::collections::BTreeMap;
use std::io;

use netplumb_model::experiment::Offload;
use netplumb_sys::ethtool::Ethtool;
use netplumb_sys::netlink::Netlink;
use netplumb_sys::netns::Namespace;
use netplumb_sys::sysctl;

/// Settings that affect the cost of a path, if a namespace has them.
const SYSCTLS: &[&str] = &[
    "net.core.bpf_jit_enable",
    "net.core.default_qdisc",
    "net.core.dev_weight",
    "net.core.netdev_budget",
    "net.core.netdev_max_backlog",
    "net.core.rmem_default",
    "net.core.wmem_default",
    "net.ipv4.ip_early_demux",
    "net.ipv4.ip_forward",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_timestamps",
    "net.ipv6.conf.all.forwarding",
];

/// Facts about the devices of a namespace and its settings, by dotted key below `prefix`.
///
/// # Errors
/// The namespace can't be entered, or a query fails.
pub fn facts(namespace: &Namespace, prefix: &str) -> io::Result<BTreeMap<String, String>> {
    namespace.inside(|| {
        let mut facts = BTreeMap::new();
        let ethtool = Ethtool::open()?;
        for device in Netlink::open()?.devices()? {
            let key = format!("{prefix}.{}", device.name);
            facts.insert(format!("{key}.mtu_bytes"), device.mtu_bytes.to_string());
            facts.insert(format!("{key}.qdisc"), device.qdisc);
            if let Some(driver) = ethtool.driver(&device.name) {
                facts.insert(format!("{key}.driver"), driver);
            }
            let on: Vec<&str> = Offload::ALL
                .iter()
                .filter(|o| ethtool.offload(&device.name, **o).is_ok_and(|on| on))
                .map(|o| o.as_str())
                .collect();
            facts.insert(format!("{key}.offloads"), on.join(" "));
        }
        for key in SYSCTLS {
            if let Ok(value) = sysctl::get(key) {
                facts.insert(format!("{prefix}.sysctl.{key}"), value);
            }
        }
        Ok(facts)
    })
}
