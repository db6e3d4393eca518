//! What a namespace is made of, for the record: devices, drivers, offloads,
//! settings.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;

use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;

use netplumb_model::experiment::Offload;

use super::netlink::Netlink;
use super::{Namespace, offload};

/// Settings that bear on a path's cost, where a namespace has them.
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

const ETHTOOL_GDRVINFO: u32 = 0x03;

impl Namespace {
    /// Facts about the devices of this namespace and its settings, by dotted key
    /// below `prefix`.
    ///
    /// # Errors
    /// The namespace can't be entered or asked.
    pub fn facts(&self, prefix: &str) -> io::Result<BTreeMap<String, String>> {
        self.inside(|| {
            let mut facts = BTreeMap::new();
            // Any socket of the namespace takes ethtool's requests.
            let socket = Socket::new(NETLINK_ROUTE)?;
            for device in Netlink::open()?.devices()? {
                let key = format!("{prefix}.{}", device.name);
                facts.insert(format!("{key}.mtu_bytes"), device.mtu_bytes.to_string());
                facts.insert(format!("{key}.qdisc"), device.qdisc);
                let fd = socket.as_raw_fd();
                if let Some(driver) = driver(fd, &device.name) {
                    facts.insert(format!("{key}.driver"), driver);
                }
                let on: Vec<&str> = Offload::ALL
                    .iter()
                    .filter(|o| offload::get(fd, &device.name, **o).is_ok_and(|on| on))
                    .map(|o| o.as_str())
                    .collect();
                facts.insert(format!("{key}.offloads"), on.join(" "));
            }
            for key in SYSCTLS {
                let path = format!("/proc/sys/{}", key.replace('.', "/"));
                if let Ok(value) = std::fs::read_to_string(path) {
                    facts.insert(format!("{prefix}.sysctl.{key}"), value.trim().to_string());
                }
            }
            Ok(facts)
        })
    }
}

/// Ask a device by ethtool's ioctl; `data` begins with the command.
pub(super) fn ethtool(fd: i32, device: &str, data: &mut [u8]) -> io::Result<()> {
    if device.len() >= libc::IFNAMSIZ {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: an all-zero ifreq is a valid one, to be filled in.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = data.as_mut_ptr().cast();
    // SAFETY: the request points to `data`, which is as long as its command's
    // structure and outlives the call.
    if unsafe { libc::ioctl(fd, libc::SIOCETHTOOL as _, &mut request) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// struct ethtool_drvinfo: the command, then 32 bytes of the driver's name; 196
/// bytes in all.
fn driver(fd: i32, device: &str) -> Option<String> {
    let mut data = [0_u8; 196];
    data[..4].copy_from_slice(&ETHTOOL_GDRVINFO.to_ne_bytes());
    ethtool(fd, device, &mut data).ok()?;
    let name = &data[4..36];
    let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    Some(String::from_utf8_lossy(&name[..end]).into_owned())
}
