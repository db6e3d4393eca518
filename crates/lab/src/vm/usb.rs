//! USB NICs that a guest's agent emulates: see the crate `netplumb_usb`.
//!
//! The devices are attached to `vhci_hcd` by sockets; they are detached when these close, so they end with the
//! process.

use std::sync::{Arc, OnceLock};
use std::{fs, io, thread};

use netplumb_model::experiment::{FromDevice, RxFault};
use netplumb_sys::cpus;
use netplumb_usb::attach::Controller;
use netplumb_usb::{Bus, Counters, Device, Fault, Handle, Kind, Load, Port};

use super::guest::log;
use crate::netns::Nic;

/// Name of the thread, at most 15 bytes (`TASK_COMM_LEN` of the kernel).
const THREAD: &str = "usb-devices";

/// Those that were started, in the order of their NICs.
static STARTED: OnceLock<Vec<EmulatedNic>> = OnceLock::new();

/// A NIC that the agent emulates, as what can be handed to its driver.
#[derive(Debug, Clone)]
pub struct EmulatedNic {
    /// MAC address.
    pub mac: [u8; 6],
    handle: Handle,
    port: Port,
    counters: Arc<Counters>,
}

/// The NIC of this number, if it is emulated and was started.
pub fn emulated(number: usize) -> Option<&'static EmulatedNic> {
    STARTED.get()?.get(number)
}

impl EmulatedNic {
    /// Hand frames of these bytes to the driver, in one transfer, as soon as it asks for some.
    ///
    /// # Errors
    /// The device has no such frames, or is no longer served.
    pub fn hand(&self, bytes: &[u8], frames: FromDevice) -> io::Result<()> {
        let load = Load::new(bytes, fault(frames.fault), frames.per_transfer.into());
        load.and_then(|load| load.per_transfer(frames.per_transfer as usize))
            .and_then(|load| self.handle.offer(self.port, load))
            .map_err(io::Error::other)
    }

    /// Frames with such a fault that the driver has taken so far, those by the cable included.
    pub fn taken(&self, of: RxFault) -> u64 {
        self.counters.get(Kind::received(fault(of))).frames
    }
}

fn fault(of: RxFault) -> Fault {
    match of {
        RxFault::None => Fault::None,
        RxFault::BadSize => Fault::BadSize,
        RxFault::ErrorBit => Fault::ErrorBit,
    }
}

/// Start devices with the addresses of these NICs, each two of them connected.
///
/// The thread that serves them runs until the guest ends. They are attached before it starts, since the kernel's
/// answers wait in their sockets.
pub(super) fn start(nics: &[Nic], device: fn([u8; 6]) -> Box<dyn Device>) -> io::Result<()> {
    let mut bus = Bus::new()?;
    let controller = Controller::default();
    let mut ports = Vec::new();
    for nic in nics {
        let attached = controller.attach().map_err(io::Error::other)?;
        ports.push(bus.add(attached.socket, device(nic.mac)));
    }
    let started = nics.iter().zip(&ports).map(|(nic, port)| EmulatedNic {
        mac: nic.mac,
        handle: bus.handle(),
        port: *port,
        counters: bus.counters(*port),
    });
    // Started once: see `super::link::start`.
    let _ = STARTED.set(started.collect());
    for wire in ports.chunks_exact(2) {
        bus.connect(wire[0], wire[1]);
    }
    for thread in controller_threads()? {
        cpus::never_preempt(thread)?;
    }
    let serve = move || {
        if let Err(error) = cpus::never_preempt(0) {
            log(&format!("USB devices: {error}"));
        }
        if let Err(error) = bus.serve() {
            log(&format!("USB devices: {error}"));
        }
    };
    thread::Builder::new().name(THREAD.into()).spawn(serve)?;
    Ok(())
}

/// Threads of the kernel that carry transfers between drivers and sockets, two of each device
/// (drivers/usb/usbip/vhci_sysfs.c).
///
/// Woken by a packet's sender they would run in the middle of its system call, which would then
/// have the cost of switching tasks.
fn controller_threads() -> io::Result<Vec<i32>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Ok(thread) = entry.file_name().to_string_lossy().parse() else {
            continue;
        };
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if matches!(name.trim_end(), "vhci_rx" | "vhci_tx") {
            threads.push(thread);
        }
    }
    Ok(threads)
}
