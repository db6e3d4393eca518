//! Network namespaces joined by a link: the topology that packets run through.
//!
//! In a guest namespaces have no names and no files: they exist as long as their descriptors are open. On the machine
//! itself they have names, so that other tools can use them, and the names have a journal: see [`names`].

mod devices;
mod facts;
mod making;
pub mod names;
mod nft;
mod nic;
mod offload;
mod plan;
mod programs;
mod qdisc;
pub mod settings;
mod topology;
mod wire;

pub use facts::facts;
pub use names::Names;
pub use nft::NFT;
pub use plan::{Nic, TopologyError, TopologyPlan};
pub use qdisc::{NO_TC, TC};
pub use topology::Topology;
