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
        topology: plan.topology.clone(),
        queues: plan.queues,
        mtu_bytes: plan.mtu_bytes,
        sysctl: plan.sysctl.clone(),
        offload: plan.offload.clone(),
        nics: plan.nics.clone(),
        nft: (plan.nft.clone()).map(|rules| (rules.clone(), rules.text(plan.family, plan.proto))),
        qdisc: plan.qdisc.clone(),
        programs: plan.programs.clone(),
    }
}

/// The sender and the receiver of a topology.
pub fn ends_of(topology: &Topology) -> io::Result<Ends> {
    let between = topology.between.iter();
    let between = between.map(|(name, namespace)| Ok((name.clone(), namespace.try_clone()?)));
    Ok(Ends {
        between: between.collect::<io::Result<_>>()?,
        tx_namespace: topology.tx.try_clone()?,
        rx_namespace: topology.rx.try_clone()?,
        tx_address: topology.tx_address,
        rx_address: topology.rx_address,
        to_address: topology.to_address,
    })
}
