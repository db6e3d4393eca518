//! The topology of a plan, and the ends of a topology.

use std::io;

use netplumb_lab::netns::{Topology, TopologyPlan};
use netplumb_model::message::RunPlan;
use netplumb_workload::ends::Ends;

/// The topology that a plan needs.
pub fn topology_of(plan: &RunPlan) -> TopologyPlan {
    TopologyPlan {
        link: plan.link,
        host: plan.host,
        family: plan.family,
        forward: plan.forward,
        bridge: plan.bridge,
        queues: plan.queues,
        mtu_bytes: plan.mtu_bytes,
        sysctl: plan.sysctl.clone(),
        offload: plan.offload.clone(),
        nics: plan.nics.clone(),
        nft: (plan.nft.clone()).map(|rules| (rules.clone(), rules.text(plan.family, plan.proto))),
        qdisc: plan.qdisc.clone(),
    }
}

/// The sender and the receiver of a topology.
pub fn ends_of(topology: &Topology) -> io::Result<Ends> {
    let mut between = Vec::new();
    for (name, namespace) in [("router", &topology.router), ("bridge", &topology.bridge)] {
        if let Some(namespace) = namespace {
            between.push((name, namespace.try_clone()?));
        }
    }
    Ok(Ends {
        between,
        tx_namespace: topology.tx.try_clone()?,
        rx_namespace: topology.rx.try_clone()?,
        tx_address: topology.tx_address,
        rx_address: topology.rx_address,
    })
}
