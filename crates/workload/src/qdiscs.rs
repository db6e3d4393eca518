//! What the queueing disciplines of a namespace dropped, and what waits in them.

use std::ffi::CStr;
use std::io;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcStats2};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// The discipline that a device's packets meet first: what those below it drop is counted
/// in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Qdisc {
    /// The device.
    pub(crate) device: String,
    /// Whether it is for what comes in, or for filters only (`clsact`): nothing waits there.
    pub(crate) is_filter: bool,
    /// Packets that it dropped, ever.
    pub(crate) drops: u64,
    /// Packets that wait in it.
    pub(crate) waiting: u64,
}

/// Those of the namespace that this thread is in.
pub(crate) fn read() -> io::Result<Vec<Qdisc>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let message = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
    let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut all = Vec::new();
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        let mut rest = &bytes[..];
        while rest.len() >= HEADER_BYTES {
            let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map_err(io::Error::other)?;
            let length = (answer.header.length as usize).next_multiple_of(4);
            rest = rest.get(length..).unwrap_or_default();
            match answer.payload {
                NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(all),
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewQueueDiscipline(one)) => {
                    all.extend(qdisc(&one)?);
                }
                _ => {}
            }
        }
    }
}

/// A `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;

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
        device: name(message.header.index)?,
        is_filter,
        drops: u64::from(stats.drops),
        waiting: u64::from(stats.qlen),
    }))
}

/// The name of a device of this namespace.
fn name(index: i32) -> io::Result<String> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the room that the call may fill.
    let found = unsafe { libc::if_indextoname(index as u32, name.as_mut_ptr()) };
    if found.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has put a string with its end into the buffer.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    Ok(name.to_string_lossy().into_owned())
}
