//! Where a block runs: namespaces, devices, and the roles of CPUs.

use netplumb_lab::netns::{Topology, TopologyPlan};
use netplumb_model::bench::{Bench, BenchArm, DataPath, Fault};
use netplumb_model::class::Link;
use netplumb_model::topology::ArmTopology;
use netplumb_paths::{Device, Site};
use netplumb_sys::cpus;
use netplumb_sys::netns::Namespace;
use netplumb_workload::frames::Exit;

use super::nics::{Own, addresses};
use crate::error::{BlockError, NicError};

/// Ports of the frames. 9 is `discard` (RFC 863).
const SOURCE_PORT: u16 = 9_000;
const PORT: u16 = 9;

/// An MTU that XDP programs without multi-buffer support don't allow (veth_xdp_set,
/// drivers/net/veth.c).
const TOO_LONG_BYTES: u32 = 9_000;

/// The namespaces and devices of a block.
pub(super) struct Ground {
    /// None on interfaces of this machine.
    topology: Option<Topology>,
    /// The generator's device.
    from: (Namespace, Device),
    /// Names of the sending and the receiving device.
    pub(super) devices: [String; 2],
    /// The device that receives forwarded packets.
    pub(super) sink: Option<Site>,
    pub(super) site: Site,
}

/// The roles of CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cpus {
    /// CPUs that send.
    pub(super) send: Vec<u32>,
    /// CPUs that handle packets, where that can be chosen.
    pub(super) handle: Vec<u32>,
}

impl Cpus {
    /// The last CPUs send: the first ones have most of the machine's other work.
    pub(super) fn from_arm(arm: &BenchArm, online: &[u32]) -> Option<Cpus> {
        let cores = arm.cores as usize;
        let at = online.len().checked_sub(cores)?;
        let (others, send) = online.split_at(at);
        let handle = match (arm.apart, others) {
            (true, []) => return None,
            (_, []) => send,
            // A reader on the sending CPU would only get the time that the generator leaves.
            _ => &others[..others.len().min(cores)],
        };
        Some(Cpus { send: send.to_vec(), handle: handle.to_vec() })
    }
}

/// The CPUs that are online.
pub fn online() -> Result<Vec<u32>, BlockError> {
    let online = cpus::online().map_err(BlockError::host("read which CPUs are online"))?;
    Ok(online.into_iter().collect())
}

/// Whether packets are forwarded to another device.
fn crosses(bench: Bench, path: DataPath) -> bool {
    bench == Bench::Forward && path != DataPath::XdpTx
}

impl Ground {
    /// Set up the namespaces of an arm, or use interfaces of this machine.
    pub(super) fn build(arm: &BenchArm, own: Option<&Own>) -> Result<Ground, BlockError> {
        match own {
            Some(own) => Ground::of_own(arm, own),
            None => Ground::between_namespaces(arm),
        }
    }

    /// On interfaces of this machine.
    fn of_own(arm: &BenchArm, own: &Own) -> Result<Ground, BlockError> {
        let crosses = crosses(arm.bench, arm.path);
        let (source, destination) = addresses(arm.frames.family);
        let (egress, out) = match (arm.bench, crosses, &own.to, &own.sink) {
            (Bench::Drop, ..) => (None, None),
            (_, false, ..) => (None, Some(own.from.clone())),
            (_, true, Some(to), Some(sink)) => (Some(to.clone()), Some(sink.clone())),
            _ => {
                return Err(NicError::CannotRun {
                    reason: format!("path {} forwards to another interface", arm.path),
                    remedy: "name it and its peer: --to NIC --sink \
                             NIC"
                    .into(),
                }
                .into());
            }
        };
        let site = |ingress: Device, egress, next_mac| {
            Ok::<_, BlockError>(Site {
                namespace: own
                    .namespace
                    .try_clone()
                    .map_err(BlockError::host("open a network namespace"))?,
                ingress,
                egress,
                next_mac,
                source,
                destination,
                port: PORT,
                kind: arm.frames.kind,
                journal: Some(own.journal()),
            })
        };
        let next_mac = out.as_ref().map_or([0; 6], |device| device.mac);
        let sink = match out {
            Some(device) => Some(site(device, None, [0; 6])?),
            None => None,
        };
        Ok(Ground {
            topology: None,
            devices: [own.from.name.clone(), own.nic.name.clone()],
            from: (own.hold()?, own.from.clone()),
            sink,
            site: site(own.nic.clone(), egress, next_mac)?,
        })
    }

    /// In temporary namespaces.
    fn between_namespaces(arm: &BenchArm) -> Result<Ground, BlockError> {
        let crosses = crosses(arm.bench, arm.path);
        let topology = Topology::build_named(&TopologyPlan {
            host: None,
            link: Link::Veth,
            family: arm.frames.family,
            topology: match crosses {
                true => ArmTopology::forward(),
                false => ArmTopology::direct(),
            },
            queues: Some(arm.queues.unwrap_or(arm.cores.max(1))),
            mtu_bytes: (arm.planted.fault == Some(Fault::Mtu)).then_some(TOO_LONG_BYTES),
            sysctl: Default::default(),
            offload: Default::default(),
            nics: Default::default(),
            nft: None,
            qdisc: None,
            programs: Vec::new(),
        })?;
        let held = |namespace: &Namespace| {
            let clone = namespace.try_clone();
            clone.map_err(BlockError::host("open a network namespace"))
        };
        let device = |namespace: &Namespace, name: &str| {
            let found = namespace.device(name);
            let (index, mac) = found.map_err(BlockError::host("find a device"))?;
            Ok::<_, BlockError>(Device { name: name.into(), index, mac, permanent_mac: None })
        };
        let (tested, ingress, egress) = match topology.between("router") {
            Some(router) => (router, device(router, "r0")?, Some(device(router, "r1")?)),
            None => (&topology.rx, device(&topology.rx, "rx0")?, None),
        };
        let out = match (arm.bench, crosses) {
            (Bench::Drop, _) => None,
            (_, true) => Some((&topology.rx, device(&topology.rx, "rx0")?)),
            (_, false) => Some((&topology.tx, device(&topology.tx, "tx0")?)),
        };
        let site = |namespace: &Namespace, ingress, egress, next_mac| {
            Ok::<_, BlockError>(Site {
                namespace: held(namespace)?,
                ingress,
                egress,
                next_mac,
                source: topology.tx_address,
                destination: topology.rx_address,
                port: PORT,
                kind: arm.frames.kind,
                journal: None,
            })
        };
        let next_mac = out.as_ref().map_or([0; 6], |(_, device)| device.mac);
        let sink = match out {
            Some((namespace, device)) => Some(site(namespace, device, None, [0; 6])?),
            None => None,
        };
        let site = site(tested, ingress, egress, next_mac)?;
        let tx = Namespace::from(held(&topology.tx)?);
        let from = device(&tx, "tx0")?;
        Ok(Ground {
            devices: [from.name.clone(), site.ingress.name.clone()],
            from: (tx, from),
            topology: Some(topology),
            sink,
            site,
        })
    }

    /// Where the generator sends frames.
    pub(super) fn exit(&self, path: DataPath) -> Result<Exit, BlockError> {
        let (namespace, device) = &self.from;
        Ok(Exit {
            namespace: namespace
                .try_clone()
                .map_err(BlockError::host("open a network namespace"))?,
            device: device.index,
            mac: device.mac,
            to_mac: netplumb_paths::frame_mac(path, &self.site),
            source: self.site.source,
            destination: self.site.destination,
            source_port: SOURCE_PORT,
            destination_port: PORT,
        })
    }
}

impl Ground {
    /// Inodes of all namespaces that packets pass.
    pub(super) fn inodes(&self) -> Result<Vec<u32>, BlockError> {
        let inode = |namespace: &Namespace| {
            let inode = namespace.inode();
            inode.map_err(BlockError::host("number a namespace"))
        };
        match &self.topology {
            Some(topology) => topology.all().into_iter().map(inode).collect(),
            None => Ok(vec![inode(&self.from.0)?]),
        }
    }

    /// Whether there may be packets from elsewhere.
    pub(super) fn is_shared(&self) -> bool {
        self.topology.is_none()
    }

    /// The namespace that the path is in.
    pub(super) fn tested(&self) -> &Namespace {
        match &self.topology {
            Some(topology) => topology.between("router").unwrap_or(&topology.rx),
            None => &self.from.0,
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn arm(cores: u32, apart: bool) -> BenchArm {
        BenchArm { cores, apart, ..BenchArm::plain(Bench::Drop, DataPath::Xdp) }
    }

    /// Check the roles of CPUs, and that more than there are is an error.
    #[test]
    fn cpus() {
        let of = |cores, apart, online: &[u32]| {
            Cpus::from_arm(&arm(cores, apart), online).map(|c| (c.send, c.handle))
        };
        assert_eq!(of(1, false, &[0, 1, 2]), Some((vec![2], vec![0])));
        assert_eq!(of(2, false, &[0, 1]), Some((vec![0, 1], vec![0, 1])));
        assert_eq!(of(2, true, &[0, 1, 4, 5]), Some((vec![4, 5], vec![0, 1])));
        assert_eq!(of(2, true, &[0, 1]), None);
        assert_eq!(of(3, false, &[0, 1]), None);
    }
}
