//! A device, its socket, and its open requests.

use std::collections::VecDeque;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use crate::device::{Device, Setup};
use crate::standard;
use crate::usbip::{Direction, Replies, Reply, Requests, Submit};
use crate::wire::{Counters, Fifo, Frame, Kind, Load, LoadError, Refusal};

/// What is behind a device's Ethernet side.
#[derive(Debug)]
pub(super) enum Behind {
    Nothing,
    Device(usize),
}

/// A device, with its open requests.
pub(super) struct Slot {
    pub(super) socket: UnixStream,
    pub(super) requests: Requests,
    pub(super) replies: Replies,
    pub(super) device: Box<dyn Device>,
    pub(super) configuration: u8,
    pub(super) behind: Behind,
    /// What it receives in addition to its cable's frames.
    pub(super) loads: VecDeque<Load>,
    pub(super) fifo: Fifo,
    pub(super) counters: Arc<Counters>,
    /// Requests for frames and for changes: their numbers, and bytes of their buffers.
    pub(super) bulk_in: VecDeque<(u32, usize)>,
    pub(super) interrupt_in: VecDeque<(u32, usize)>,
    /// Transfers of the driver's, until the other device has room.
    pub(super) bulk_out: VecDeque<(u32, Vec<u8>)>,
    /// The driver asks for frames: not before its interface is up, and not once it has taken
    /// back all requests.
    pub(super) is_asking: bool,
    pub(super) is_open: bool,
}

impl Slot {
    /// Nothing is behind the device yet.
    pub(super) fn new(socket: UnixStream, device: Box<dyn Device>) -> Slot {
        Slot {
            socket,
            requests: Requests::default(),
            replies: Replies::default(),
            device,
            configuration: 0,
            behind: Behind::Nothing,
            loads: VecDeque::new(),
            fifo: Fifo::default(),
            counters: Arc::default(),
            bulk_in: VecDeque::new(),
            interrupt_in: VecDeque::new(),
            bulk_out: VecDeque::new(),
            is_asking: false,
            is_open: true,
        }
    }

    pub(super) fn answer(&mut self, seqnum: u32, data: &[u8], actual: usize) {
        self.replies.push(&Reply::Submit { seqnum, status: 0, actual, data });
    }

    /// Stall: the request is not one of this device.
    pub(super) fn refuse(&mut self, seqnum: u32) {
        self.replies.push(&Reply::Submit { seqnum, status: -libc::EPIPE, actual: 0, data: &[] });
    }

    pub(super) fn control(&mut self, submit: &Submit<'_>) {
        let setup = Setup::parse(submit.setup);
        let device = &mut *self.device;
        match standard::control(device, &mut self.configuration, &setup, submit.data) {
            Err(_stall) => self.refuse(submit.seqnum),
            Ok(mut answer) if submit.direction == Direction::In => {
                answer.truncate(submit.length);
                self.answer(submit.seqnum, &answer, answer.len());
            }
            Ok(_nothing) => self.answer(submit.seqnum, &[], submit.length),
        }
    }

    /// Take a request back, unless it is answered: then the answer is on its way, before
    /// this one.
    pub(super) fn unlink(&mut self, seqnum: u32, unlinked: u32) {
        let incoming = self.bulk_in.len() + self.interrupt_in.len();
        self.bulk_in.retain(|&(seqnum, _)| seqnum != unlinked);
        self.interrupt_in.retain(|&(seqnum, _)| seqnum != unlinked);
        let is_incoming = self.bulk_in.len() + self.interrupt_in.len() < incoming;
        let outgoing = self.bulk_out.len();
        self.bulk_out.retain(|(seqnum, _)| *seqnum != unlinked);
        let is_outgoing = self.bulk_out.len() < outgoing;
        // An interface that goes down takes back its requests for frames, if it has any just
        // then, and its request for changes, which it always has: usbnet_stop().
        if is_incoming && self.bulk_in.is_empty() {
            self.stop_asking();
        }
        let status = match is_incoming || is_outgoing {
            true => -libc::ECONNRESET,
            false => 0,
        };
        self.replies.push(&Reply::Unlink { seqnum, status });
    }

    /// The driver wants no more frames: the ones that wait for it are dropped.
    pub(super) fn stop_asking(&mut self) {
        self.is_asking = false;
        self.fifo.flush(Kind::NotReceiving, &self.counters);
    }

    /// Whether answers wait to be written.
    pub(super) fn has_replies(&self) -> bool {
        self.is_open && !self.replies.is_empty()
    }

    /// Whether the device takes a frame now.
    fn accepts(&self, frame: &Frame) -> Result<(), Refusal> {
        if !self.is_open {
            return Err(Refusal::LinkDown);
        }
        self.device.accepts(frame)?;
        match self.is_asking {
            true => Ok(()),
            false => Err(Refusal::NotReceiving),
        }
    }

    /// A frame comes by the cable.
    pub(super) fn arrive(&mut self, frame: Frame) {
        match self.accepts(&frame) {
            Ok(()) => self.fifo.push(frame),
            Err(why) => self.counters.add(why.into(), frame.bytes.len()),
        }
    }

    /// Give frames to the driver as long as it asks for some. Returns whether it got any.
    pub(super) fn receive(&mut self) -> bool {
        let mut any = false;
        while let Some(&(seqnum, room)) = self.bulk_in.front() {
            self.refill();
            let transfer = self.device.receive(&mut self.fifo, room);
            self.fifo.count(&self.counters);
            let Some(transfer) = transfer else {
                break;
            };
            any = true;
            self.bulk_in.pop_front();
            self.counters.add_transfer_in();
            self.answer(seqnum, &transfer, transfer.len());
        }
        any
    }

    /// Take the next frames of a load, once all those before are given out. It waits while
    /// there is no link.
    fn refill(&mut self) {
        while self.fifo.is_empty()
            && let Some(load) = self.loads.front_mut()
        {
            if load.is_done() {
                self.loads.pop_front();
                continue;
            }
            let state = self.device.accepts(load.frame());
            if matches!(state, Err(Refusal::LinkDown | Refusal::NotReceiving)) {
                return;
            }
            for frame in load.next_transfer() {
                match state {
                    Ok(()) => self.fifo.push(frame),
                    Err(why) => self.counters.add(why.into(), frame.bytes.len()),
                }
            }
        }
    }

    /// Tell the driver of changes.
    pub(super) fn interrupt(&mut self) {
        while let Some(&(seqnum, room)) = self.interrupt_in.front()
            && let Some(mut message) = self.device.interrupt()
        {
            self.interrupt_in.pop_front();
            message.truncate(room);
            self.answer(seqnum, &message, message.len());
        }
    }

    pub(super) fn offer(&mut self, load: Load) -> Result<(), LoadError> {
        let fault = load.frame().fault;
        if !self.device.supports(fault) {
            return Err(LoadError::Fault(fault));
        }
        self.loads.push_back(load);
        Ok(())
    }
}
