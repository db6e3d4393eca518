//! Whether a path is supported, without changing anything.

use netplumb_model::bench::{Bench, DataPath};

use crate::error::PathError;
use crate::{af_xdp, dpdk, forward, iptables, nft};

/// Check that this machine supports a path, as far as that is known without a device.
///
/// # Errors
/// What is missing, and the remedy.
pub fn needs(path: DataPath, _bench: Bench) -> Result<(), PathError> {
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
