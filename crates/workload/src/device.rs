//! Frames that the receiver's device hands to its driver, a transfer at a time: how a driver
//! handles them, including the ones it drops.
//!
//! Each transfer waits until the one before has been dealt with. The driver passes on a datagram to
//! the receiver's socket, whose system calls are between markers, as in [`crate::packets`].
//!
//! Whether the driver dropped a frame is known by the functions that `hands_up` lists in
//! crates/kernel/rules/path.toml.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::thread;

use etherparse::PacketBuilder;
use netplumb_model::experiment::{FromDevice, RxFault};
use netplumb_model::message::RunPlan;
use netplumb_model::recording::Ledger;

use crate::ends::{Ends, RX_PORT, TX_PORT};
use crate::mark::{self, mark};
use crate::packets::{ExtraCounters, NAP, NAPS, RUN_NS, Traffic, align, now_ns, readable};

/// Hops that a datagram may take: the kernel's default.
const TTL: u8 = 64;
/// A MAC address of nobody's.
const FROM_MAC: [u8; 6] = [0x02, 0x4e, 0x50, 0, 0, 0xfe];

/// A device that hands frames to its driver.
pub trait Device {
    /// The MAC address that its frames are sent to.
    fn mac(&self) -> [u8; 6];

    /// Hand frames of these bytes to the driver, in one transfer.
    ///
    /// # Errors
    /// The device can't.
    fn hand(&self, bytes: &[u8], frames: FromDevice) -> io::Result<()>;

    /// Frames with such a fault that the driver has taken so far.
    fn taken(&self, fault: RxFault) -> u64;
}

/// The frames of one plan.
pub struct FromDevices<'a> {
    traffic: Traffic<'a>,
    device: &'a dyn Device,
    frames: FromDevice,
    bytes: Vec<u8>,
}

impl<'a> FromDevices<'a> {
    /// Open the receiver's socket, and make the frame that all are.
    ///
    /// # Errors
    /// A socket call failed, or there is no such frame.
    pub fn open(
        plan: &'a RunPlan,
        frames: FromDevice,
        ends: &'a Ends,
        device: &'a dyn Device,
    ) -> io::Result<Self> {
        Ok(FromDevices {
            traffic: Traffic::open(plan, ends)?,
            device,
            frames,
            bytes: datagram(ends, device.mac(), plan.size_bytes)?,
        })
    }

    /// Hand over the warm-up, uncounted.
    ///
    /// # Errors
    /// The driver does not take the frames.
    pub fn warm_up(&mut self) -> io::Result<()> {
        self.all(self.traffic.plan.warmup_packets).map(drop)
    }

    /// Run a block, in its window.
    ///
    /// # Errors
    /// The driver does not take the frames, or a counter can't be read. Frames that the driver
    /// drops are not an error: they are in the ledger.
    pub fn block(&mut self) -> io::Result<Ledger> {
        let packets = self.traffic.plan.packets;
        let asked = ExtraCounters { queues: self.traffic.plan.qdisc.is_some() };
        let before = self.traffic.drops(asked)?;
        mark::<{ mark::WINDOW_BEGIN }>();
        let delivered = self.all(packets);
        mark::<{ mark::WINDOW_END }>();
        self.traffic.ledger((asked, &before), u64::from(packets), delivered?)
    }

    /// Hand over this many frames; returns how many datagrams the socket received.
    fn all(&mut self, frames: u32) -> io::Result<u64> {
        let aligned = self.traffic.plan.aligned;
        let mut run_began_ns = if aligned { align() } else { 0 };
        let (mut left, mut delivered) = (frames, 0);
        while left > 0 {
            if aligned && now_ns() - run_began_ns > RUN_NS {
                run_began_ns = align();
            }
            let now = left.min(self.frames.per_transfer);
            left -= now;
            delivered += self.transfer(now)?;
        }
        Ok(delivered)
    }

    /// Hand over the frames of one transfer, and wait until they have been dealt with.
    fn transfer(&mut self, frames: u32) -> io::Result<u64> {
        let FromDevice { fault, .. } = self.frames;
        let goal = self.device.taken(fault) + u64::from(frames);
        let per_transfer = frames;
        let now = FromDevice { per_transfer, ..self.frames };
        self.device.hand(&self.bytes, now)?;
        let (mut delivered, fd) = (0, self.traffic.sockets.rx.as_raw_fd());
        for _ in 0..NAPS {
            // Before the first look too: the device's thread runs meanwhile, then the driver.
            thread::sleep(NAP);
            while readable(fd, 0)? {
                self.traffic.receive()?;
                delivered += 1;
            }
            if self.device.taken(fault) >= goal {
                return Ok(delivered);
            }
        }
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!(
                "the driver has taken {} of {frames} frames of a transfer",
                frames.saturating_sub((goal - self.device.taken(fault)) as u32)
            ),
        ))
    }
}

/// A datagram to the receiver's socket, as a frame.
fn datagram(ends: &Ends, mac: [u8; 6], payload_bytes: u32) -> io::Result<Vec<u8>> {
    let link = PacketBuilder::ethernet2(FROM_MAC, mac);
    let ip = match (ends.tx_address, ends.rx_address) {
        (IpAddr::V4(from), IpAddr::V4(to)) => link.ipv4(from.octets(), to.octets(), TTL),
        (IpAddr::V6(from), IpAddr::V6(to)) => link.ipv6(from.octets(), to.octets(), TTL),
        _ => return Err(io::Error::other("addresses of two versions of IP")),
    };
    let payload: Vec<u8> = (0..payload_bytes).map(|i| i as u8).collect();
    let mut bytes = Vec::new();
    ip.udp(TX_PORT, RX_PORT).write(&mut bytes, &payload).map_err(io::Error::other)?;
    Ok(bytes)
}
