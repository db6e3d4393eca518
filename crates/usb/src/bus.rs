//! The loop that serves devices over their sockets, and moves frames between them.
//!
//! There is one thread, and it waits for nothing but requests and commands: what it answers
//! depends on their order alone. A transfer of a driver's waits while the other device holds
//! as much as it can, so no frame is lost to a full buffer.

mod slot;

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::device::{BULK_IN, BULK_OUT, Device, INTERRUPT_IN};
use crate::usbip::{Direction, Request, Submit, UsbipError};
use crate::wire::{Counters, Frame, Kind, Load, LoadError};
use slot::{Behind, Slot};

/// Why devices are not served any more.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// The kernel doesn't let us wait.
    #[error("cannot wait for requests of USB drivers: {0}")]
    Poll(io::Error),
    /// A socket doesn't work.
    #[error("cannot talk to the driver of USB port {port}: {source}")]
    Socket {
        /// Of the device.
        port: usize,
        /// The kernel's error.
        source: io::Error,
    },
    /// A socket's data are not vhci_hcd's.
    #[error("cannot serve USB port {port}: {source}")]
    Request {
        /// Of the device.
        port: usize,
        /// What it was.
        source: UsbipError,
    },
}

/// A device on a bus, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port(usize);

enum Command {
    Offer(Port, Load, Sender<Result<(), LoadError>>),
    Carrier(Port, bool),
    Stop,
}

/// Devices, before they are served.
pub struct Bus {
    slots: Vec<Slot>,
    commands: Receiver<Command>,
    woken: UnixStream,
    handle: Handle,
}

/// Other threads' handle of a running bus.
#[derive(Debug, Clone)]
pub struct Handle {
    commands: Sender<Command>,
    wake: Arc<UnixStream>,
}

impl Handle {
    /// Give a load to a port, in addition to its cable's frames. It begins at once, or behind
    /// those given before; [`Counters`] show how far it is.
    ///
    /// # Errors
    ///
    /// If the device can't have such loads, or the bus has stopped.
    pub fn offer(&self, port: Port, load: Load) -> Result<(), LoadError> {
        let (answer, answered) = channel();
        self.send(Command::Offer(port, load, answer));
        answered.recv().unwrap_or(Err(LoadError::Stopped))
    }

    /// Plug the cable of a device in or out; for a device at its other end, too.
    pub fn set_carrier(&self, port: Port, up: bool) {
        self.send(Command::Carrier(port, up));
    }

    /// End [`Bus::serve`]. The sockets are closed then, and the kernel detaches the devices.
    pub fn stop(&self) {
        self.send(Command::Stop);
    }

    /// If the bus has stopped, nothing happens.
    fn send(&self, command: Command) {
        if self.commands.send(command).is_ok() {
            let _ = (&*self.wake).write_all(&[0]);
        }
    }
}

impl Bus {
    /// No devices yet.
    ///
    /// # Errors
    ///
    /// If no sockets can be made.
    pub fn new() -> io::Result<Bus> {
        let (wake, woken) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let (sender, commands) = channel();
        let handle = Handle { commands: sender, wake: Arc::new(wake) };
        Ok(Bus { slots: Vec::new(), commands, woken, handle })
    }

    /// Add a device and the socket to its driver. Nothing is behind it yet.
    pub fn add(&mut self, socket: UnixStream, device: Box<dyn Device>) -> Port {
        self.slots.push(Slot::new(socket, device));
        Port(self.slots.len() - 1)
    }

    /// Connect two devices by a cable.
    pub fn connect(&mut self, one: Port, other: Port) {
        for (from, to) in [(one, other), (other, one)] {
            let slot = &mut self.slots[from.0];
            slot.behind = Behind::Device(to.0);
            slot.device.set_carrier(true);
        }
    }

    /// Plug in a device's cable without another device: it has its loads alone, and what it
    /// sends goes nowhere.
    pub fn load(&mut self, port: Port) {
        self.slots[port.0].device.set_carrier(true);
    }

    /// For commands from other threads.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// What becomes of the frames of a device.
    #[must_use]
    pub fn counters(&self, port: Port) -> Arc<Counters> {
        Arc::clone(&self.slots[port.0].counters)
    }

    /// Serve the devices until all sockets are closed by the kernel, or [`Handle::stop`].
    ///
    /// # Errors
    ///
    /// If a socket doesn't work, or brings anything but requests.
    pub fn serve(mut self) -> Result<(), BusError> {
        while self.slots.iter().any(|slot| slot.is_open) {
            let ready = self.wait()?;
            if ready.commands && !self.command() {
                break;
            }
            for port in ready.ports {
                self.read(port)?;
            }
            while let Some(port) = self.slots.iter().position(Slot::has_replies) {
                self.write(port)?;
            }
        }
        Ok(())
    }

    /// Wait for requests or commands.
    fn wait(&self) -> Result<Ready, BusError> {
        // A negative descriptor is passed over.
        let sockets = self.slots.iter().map(|slot| match slot.is_open {
            true => slot.socket.as_raw_fd(),
            false => -1,
        });
        let mut polled: Vec<libc::pollfd> =
            std::iter::once(self.woken.as_raw_fd()).chain(sockets).map(readable).collect();
        loop {
            // SAFETY: the array is ours and has as many entries as we pass.
            let n = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, -1) };
            if n >= 0 {
                break;
            }
            let error = io::Error::last_os_error();
            if error.kind() != ErrorKind::Interrupted {
                return Err(BusError::Poll(error));
            }
        }
        let mut ready = polled.iter().map(|polled| polled.revents != 0);
        Ok(Ready {
            commands: ready.next().unwrap_or(false),
            ports: ready
                .enumerate()
                .filter_map(|(port, is_ready)| is_ready.then_some(port))
                .collect(),
        })
    }

    /// Carry out other threads' commands. Returns whether to go on.
    fn command(&mut self) -> bool {
        let mut bytes = [0; 64];
        while matches!(self.woken.read(&mut bytes), Ok(1..)) {}
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Stop => return false,
                Command::Carrier(port, up) => self.set_carrier(port.0, up),
                Command::Offer(port, load, answer) => {
                    // Who asked waits for the answer, or is gone.
                    let _ = answer.send(self.slots[port.0].offer(load));
                    self.settle(port.0);
                }
            }
        }
        true
    }

    /// Read once, and answer every complete request.
    fn read(&mut self, port: usize) -> Result<(), BusError> {
        let slot = &mut self.slots[port];
        match slot.requests.read(&mut slot.socket) {
            Ok(0) => {
                self.close(port);
                return Ok(());
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            Err(error) if is_closed(&error) => {
                self.close(port);
                return Ok(());
            }
            Err(source) => return Err(BusError::Socket { port, source }),
        }
        let mut requests = std::mem::take(&mut self.slots[port].requests);
        while let Some(request) =
            requests.next_request().map_err(|source| BusError::Request { port, source })?
        {
            match request {
                Request::Submit(submit) => self.submit(port, &submit),
                Request::Unlink { seqnum, unlinked } => {
                    self.slots[port].unlink(seqnum, unlinked);
                }
            }
            self.settle(port);
        }
        self.slots[port].requests = requests;
        Ok(())
    }

    fn write(&mut self, port: usize) -> Result<(), BusError> {
        let slot = &mut self.slots[port];
        match slot.replies.write(&mut slot.socket) {
            Ok(()) => Ok(()),
            Err(error) if is_closed(&error) => {
                self.close(port);
                Ok(())
            }
            Err(source) => Err(BusError::Socket { port, source }),
        }
    }

    /// The device is detached: for the other one, the cable is out.
    fn close(&mut self, port: usize) {
        let slot = &mut self.slots[port];
        if !std::mem::replace(&mut slot.is_open, false) {
            return;
        }
        slot.bulk_in.clear();
        slot.bulk_out.clear();
        slot.interrupt_in.clear();
        slot.stop_asking();
        self.set_carrier(port, false);
    }

    /// A cable has two ends.
    fn set_carrier(&mut self, port: usize, up: bool) {
        self.slots[port].device.set_carrier(up);
        if let Behind::Device(other) = self.slots[port].behind {
            self.slots[other].device.set_carrier(up);
        }
        self.settle(port);
    }

    /// Take a request of the driver's; [`Bus::settle`] answers those that can be.
    fn submit(&mut self, port: usize, submit: &Submit<'_>) {
        let slot = &mut self.slots[port];
        let (seqnum, length) = (submit.seqnum, submit.length);
        match (submit.endpoint, submit.direction) {
            (0, _) => slot.control(submit),
            (BULK_IN, Direction::In) => {
                slot.is_asking = true;
                slot.bulk_in.push_back((seqnum, length));
            }
            (BULK_OUT, Direction::Out) => {
                slot.bulk_out.push_back((seqnum, submit.data.to_vec()));
            }
            (INTERRUPT_IN, Direction::In) => slot.interrupt_in.push_back((seqnum, length)),
            _ => slot.refuse(seqnum),
        }
    }

    /// Move frames and answer requests until nothing moves at a device and at the one behind
    /// it: whatever happens to one can concern no other.
    fn settle(&mut self, port: usize) {
        let other = match self.slots[port].behind {
            Behind::Device(other) => Some(other),
            Behind::Nothing => None,
        };
        let mut is_moving = true;
        while is_moving {
            is_moving = false;
            for port in [Some(port), other].into_iter().flatten() {
                is_moving |= self.send(port);
                is_moving |= self.slots[port].receive();
            }
        }
        for port in [Some(port), other].into_iter().flatten() {
            self.slots[port].interrupt();
        }
    }

    /// Send what the driver transmits, as long as there is room for it. Returns whether any
    /// was sent.
    fn send(&mut self, port: usize) -> bool {
        let mut any = false;
        while let Some(frames) = self.transmitted(port) {
            any = true;
            for frame in frames {
                self.forward(port, frame);
            }
        }
        any
    }

    /// The frames of the driver's next transfer, which is answered.
    fn transmitted(&mut self, port: usize) -> Option<Vec<Frame>> {
        if let Behind::Device(other) = self.slots[port].behind
            && self.slots[other].fifo.is_full()
        {
            return None;
        }
        let slot = &mut self.slots[port];
        let (seqnum, transfer) = slot.bulk_out.pop_front()?;
        slot.counters.add_transfer_out();
        let mut frames = Vec::new();
        if slot.device.transmit(&transfer, &mut frames).is_err() {
            // A driver that hears of an error tries again or resets: the count shows it.
            slot.counters.add(Kind::Malformed, transfer.len());
        }
        slot.answer(seqnum, &[], transfer.len());
        Some(frames)
    }

    /// Forward one frame to the other end of the cable.
    fn forward(&mut self, port: usize, frame: Frame) {
        let slot = &self.slots[port];
        slot.counters.add(Kind::Sent, frame.bytes.len());
        if !slot.device.sends() {
            slot.counters.add(Kind::LinkDown, frame.bytes.len());
        } else if let Behind::Device(other) = slot.behind {
            self.slots[other].arrive(frame);
        }
    }
}

/// What there is to do.
struct Ready {
    commands: bool,
    ports: Vec<usize>,
}

fn readable(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// Whether the kernel has detached the device.
fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests;
