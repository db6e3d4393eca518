//! Qdiscs: drops and queue lengths in a namespace, and clsact.

use std::io;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcStats2};

use crate::links::name_of;
use crate::netlink::Netlink;
use crate::netns::Namespace;

/// `TC_H_MAJ(TC_H_CLSACT)`.
const CLSACT: TcHandle = TcHandle { major: 0xffff, minor: 0 };

/// A device's root qdisc, whose counters include its children's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qdisc {
    /// Name of the device in its namespace.
    pub device: String,
    /// Whether it is for ingress, or only for filters (`clsact`): it has no queue.
    pub is_filter: bool,
    /// Packets that it dropped since it was created.
    pub drops: u64,
    /// Packets in its queue.
    pub waiting: u64,
}

impl Netlink {
    /// The qdiscs of all devices in this thread's namespace, including those for filters.
    pub fn qdiscs(&mut self) -> io::Result<Vec<Qdisc>> {
        let asked = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        let mut all = Vec::new();
        for answer in self.ask(asked, NLM_F_DUMP)? {
            if let RouteNetlinkMessage::NewQueueDiscipline(one) = answer {
                all.extend(qdisc(&one)?);
            }
        }
        Ok(all)
    }
}

impl Namespace {
    /// Whether a device has the qdisc clsact.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn has_clsact(&self, device: u32) -> io::Result<bool> {
        let asked = TcMessage::with_index(i32::try_from(device).map_err(io::Error::other)?);
        let message = RouteNetlinkMessage::GetQueueDiscipline(asked);
        let answers = self.ask(|n| n.ask(message, NLM_F_DUMP))?;
        Ok(answers.into_iter().any(|answer| match answer {
            RouteNetlinkMessage::NewQueueDiscipline(found) => {
                u32::try_from(found.header.index) == Ok(device) && found.header.handle == CLSACT
            }
            _ => false,
        }))
    }

    /// Add the qdisc clsact to a device, or delete it with all filters.
    ///
    /// # Errors
    /// It exists already, or does not exist.
    pub fn set_clsact(&self, device: u32, on: bool) -> io::Result<()> {
        let mut message = TcMessage::with_index(i32::try_from(device).map_err(io::Error::other)?);
        message.header.handle = CLSACT;
        message.header.parent = TcHandle::CLSACT;
        message.attributes = vec![TcAttribute::Kind("clsact".into())];
        let (message, flags) = match on {
            true => (RouteNetlinkMessage::NewQueueDiscipline(message), NLM_F_CREATE | NLM_F_EXCL),
            false => (RouteNetlinkMessage::DelQueueDiscipline(message), 0),
        };
        self.ask(|n| n.ask(message, flags)).map(drop)
    }
}

fn qdisc(message: &TcMessage) -> io::Result<Option<Qdisc>> {
    let is_filter = message.header.parent == TcHandle::INGRESS;
    if message.header.parent != TcHandle::ROOT && !is_filter {
        return Ok(None);
    }
    let stats = message.attributes.iter().find_map(|attribute| {
        let TcAttribute::Stats2(stats) = attribute else {
            return None;
        };
        stats.iter().find_map(|one| match one {
            TcStats2::Queue(queue) => Some(queue),
            _ => None,
        })
    });
    let Some(stats) = stats else {
        return Ok(None);
    };
    Ok(Some(Qdisc {
        device: name_of(message.header.index as u32)?,
        is_filter,
        drops: u64::from(stats.drops),
        waiting: u64::from(stats.qlen),
    }))
}
