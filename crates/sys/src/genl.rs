//! Requests of generic netlink, and their replies; errors have the kernel's reason.

use std::collections::BTreeMap;
use std::io;

use netlink_packet_core::{
    DefaultNla, Emitable, NLM_F_ACK, NLM_F_REQUEST, NetlinkHeader, NlaBuffer, NlasIterator,
};
use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};

/// A `struct nlmsghdr`, and a `struct genlmsghdr` after it.
const HEADER_BYTES: usize = 16;
const GENERIC_BYTES: usize = 4;
/// Types of messages of the kernel (include/uapi/linux/netlink.h).
const NLMSG_ERROR: u16 = 2;
/// Of an error: `struct nlmsgerr` has the number and the request's header.
const ERROR_BYTES: usize = 4 + HEADER_BYTES;
const NLMSGERR_ATTR_MSG: u16 = 1;
/// NLA_F_NESTED: the attribute holds others.
pub(crate) const NESTED: u16 = 0x8000;

/// include/uapi/linux/genetlink.h.
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// A socket for one family of messages, in the namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct GenericNetlink {
    socket: Socket,
    family: u16,
    sequence: u32,
}

impl GenericNetlink {
    /// Open one for a family of this name.
    ///
    /// # Errors
    /// No file descriptors are left; of kind `NotFound`: the kernel lacks the family.
    pub(crate) fn open(family: &str) -> io::Result<GenericNetlink> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Errors have a text, and not the request.
        socket.set_ext_ack(true)?;
        socket.set_cap_ack(true)?;
        let mut netlink = GenericNetlink { socket, family: GENL_ID_CTRL, sequence: 0 };
        let name = DefaultNla::new(CTRL_ATTR_FAMILY_NAME, [family.as_bytes(), &[0]].concat());
        let found = netlink.ask(CTRL_CMD_GETFAMILY, 0, [name].as_slice())?;
        netlink.family = (found.get(&CTRL_ATTR_FAMILY_ID))
            .and_then(|id| Some(u16::from_ne_bytes(id.get(..2)?.try_into().ok()?)))
            .ok_or_else(|| {
                io::Error::other(format!("the kernel did not report the id of {family}"))
            })?;
        Ok(netlink)
    }

    /// Send a request, and receive the attributes of the reply, if there is one, and the acknowledgement.
    pub(crate) fn ask(
        &mut self,
        command: u8,
        flags: u16,
        attributes: impl Emitable,
    ) -> io::Result<BTreeMap<u16, Vec<u8>>> {
        const VERSION: u8 = 1;
        self.sequence += 1;
        let mut bytes = vec![0; HEADER_BYTES + GENERIC_BYTES + attributes.buffer_len()];
        let mut header = NetlinkHeader::default();
        header.length = bytes.len() as u32;
        header.message_type = self.family;
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        header.sequence_number = self.sequence;
        header.emit(&mut bytes);
        bytes[HEADER_BYTES..][..2].copy_from_slice(&[command, VERSION]);
        attributes.emit(&mut bytes[HEADER_BYTES + GENERIC_BYTES..]);
        self.socket.send(&bytes, 0)?;

        let mut reply = BTreeMap::new();
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            let mut rest = &bytes[..];
            while let Some((kind, message, after)) = first_of(rest) {
                rest = after;
                match kind {
                    NLMSG_ERROR | NLMSG_DONE => return outcome(message).map(|()| reply),
                    _ => reply.extend(attributes_of(message.get(GENERIC_BYTES..))),
                }
            }
        }
    }
}

/// The first message: its type and what is behind its header, and the messages after it.
fn first_of(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let message = bytes.get(HEADER_BYTES..length)?;
    let after = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, message, after))
}

/// The result in an acknowledgement.
fn outcome(message: &[u8]) -> io::Result<()> {
    let code = message.get(..4).and_then(|code| code.try_into().ok());
    let code = code.map_or(-libc::EIO, i32::from_ne_bytes);
    if code == 0 {
        return Ok(());
    }
    let error = io::Error::from_raw_os_error(-code);
    let said = attributes_of(message.get(ERROR_BYTES..)).remove(&NLMSGERR_ATTR_MSG);
    let said = said.map(|text| String::from_utf8_lossy(&text).trim_matches('\0').to_string());
    Err(match said.filter(|said| !said.is_empty()) {
        Some(said) => io::Error::new(error.kind(), format!("{said} ({error})")),
        None => error,
    })
}

fn attributes_of(bytes: Option<&[u8]>) -> BTreeMap<u16, Vec<u8>> {
    let all = NlasIterator::new(bytes.unwrap_or_default());
    all.filter_map(|one: Result<NlaBuffer<&[u8]>, _>| {
        let one = one.ok()?;
        Some((one.kind(), one.value().to_vec()))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a refusal has the driver's reason if it gave one, and the system's otherwise.
    #[test]
    fn refusals() {
        let mut message = (-libc::EINVAL).to_ne_bytes().to_vec();
        message.resize(ERROR_BYTES, 0);
        let plain = outcome(&message).unwrap_err();
        assert_eq!(plain.raw_os_error(), Some(libc::EINVAL));
        let said = DefaultNla::new(NLMSGERR_ATTR_MSG, b"too much\0".to_vec());
        let mut attribute = vec![0; said.buffer_len()];
        said.emit(&mut attribute);
        message.extend(attribute);
        let error = outcome(&message).unwrap_err();
        assert_eq!(error.to_string(), "too much (Invalid argument (os error 22))");
        assert!(outcome(&[0; ERROR_BYTES]).is_ok());
        assert!(outcome(&[]).is_err());
    }
}
