//! Whether a path is supported, without changing anything.

use netplumb_model::bench::{Bench, DataPath};

use crate::error::PathError;
use crate::{af_xdp, dpdk, forward, iptables, nft};

/// Check that this machine supports a path, as far as that is known without a device.
///
/// # Errors
/// What is missing, and the remedy.
pub fn needs(path: DataPath, _bench: Bench) -> Result<(), PathError> {
    // SAFETY: takes nothing, and always succeeds.
    if unsafe { libc::geteuid() } != 0 {
        return Err(PathError::cannot(
            "not root",
            "changing devices and loading BPF programs needs root: use `sudo`",
        ));
    }
    match path {
        DataPath::NftRaw | DataPath::NftConntrack => nft::tool().map(drop),
        DataPath::AfXdp => af_xdp::supported().map_err(|error| {
            PathError::cannot(
                format!("AF_XDP is not supported by this kernel ({error})"),
                "use a kernel with CONFIG_XDP_SOCKETS=y, as distributions have it",
            )
        }),
        DataPath::IptablesRaw => iptables::installed(),
        DataPath::Dpdk => dpdk::tool().map(drop),
        DataPath::NftFlowtable => forward::has_flow_tables(),
        _ => Ok(()),
    }
}
