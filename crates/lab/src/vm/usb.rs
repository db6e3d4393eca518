//! USB NICs that a guest's agent emulates: see the crate `netplumb_usb`.

use std::{fs, io, thread};

use netplumb_sys::cpus;
use netplumb_usb::attach::Controller;
use netplumb_usb::{Bus, Device};

use super::guest::log;
use crate::netns::Nic;

/// Name of the thread, at most 15 bytes (`TASK_COMM_LEN` of the kernel).
const THREAD: &str = "usb-devices";

/// Start devices with the addresses of these NICs, each two of them connected.
///
/// The thread that serves them goes on until the guest ends. They are attached before it
/// starts, since the kernel's answers wait in their sockets.
pub(super) fn start(nics: &[Nic], device: fn([u8; 6]) -> Box<dyn Device>) -> io::Result<()> {
    let mut bus = Bus::new()?;
    let controller = Controller::default();
    let mut ports = Vec::new();
    for nic in nics {
        let attached = controller.attach().map_err(io::Error::other)?;
        ports.push(bus.add(attached.socket, device(nic.mac)));
    }
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
