//! Emulated USB network devices of this machine, for as long as the program runs:
//!
//! ```text
//! usbnet wire KIND KIND            two devices, connected with each other
//! usbnet load KIND FAULT N [PER]   one device, and N frames of its load, PER in a transfer
//! ```
//!
//! `KIND` is `smsc95xx` or `ncm`, `FAULT` is `none`, `size` or `error`. vhci-hcd and the
//! drivers' modules have to be loaded. A load begins with a line on standard input, and its
//! counts are printed when all frames are received.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use netplumb_usb::attach::Controller;
use netplumb_usb::{Bus, Counters, Device, Fault, Kind, Load, Ncm, Port, Smsc95xx};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Addresses are administered locally, and differ in the last byte.
fn mac(number: u8) -> [u8; 6] {
    [0x02, 0x4e, 0x50, 0, 0, number]
}

fn device(kind: &str, number: u8) -> Result<Box<dyn Device>> {
    match kind {
        "smsc95xx" => Ok(Box::new(Smsc95xx::new(mac(number)))),
        "ncm" => Ok(Box::new(Ncm::new(mac(number)))),
        _ => Err(format!("unknown device `{kind}`; expected smsc95xx or ncm").into()),
    }
}

/// A datagram of UDP to port 9 of 10.77.0.1, as a frame.
fn frame(to: [u8; 6]) -> Vec<u8> {
    let mut frame = to.to_vec();
    frame.extend_from_slice(&mac(0xfe));
    frame.extend_from_slice(&[8, 0]);
    frame.extend_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend_from_slice(&[10, 77, 0, 2, 10, 77, 0, 1]);
    let sum: u32 =
        frame[14..].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend_from_slice(&[0x0f, 0xa0, 0, 9, 0, 26, 0, 0]);
    frame.resize(60, b'.');
    frame
}

fn attach(bus: &mut Bus, kind: &str, number: u8) -> Result<Port> {
    let device = device(kind, number)?;
    let attached = Controller::default().attach()?;
    writeln!(io::stdout(), "{kind}: USB port {}", attached.port)?;
    Ok(bus.add(attached.socket, device))
}

fn show(name: &str, counters: &Counters) -> io::Result<()> {
    let mut line = format!(
        "{name}: {} transfers in, {} out",
        counters.transfers_in(),
        counters.transfers_out()
    );
    for kind in Kind::ALL {
        let tally = counters.get(kind);
        if tally.frames > 0 {
            line += &format!(", {kind:?} {} ({} bytes)", tally.frames, tally.bytes);
        }
    }
    writeln!(io::stdout(), "{line}")
}

fn wire(one: &str, other: &str) -> Result<()> {
    let mut bus = Bus::new()?;
    // The kernel asks for descriptors at once, and waits: attached one after the other, both
    // sockets are served in time.
    let ports = [attach(&mut bus, one, 1)?, attach(&mut bus, other, 2)?];
    bus.connect(ports[0], ports[1]);
    let counters = ports.map(|port| bus.counters(port));
    let handle = bus.handle();
    thread::spawn(move || {
        // Until standard input ends.
        let _ = io::stdin().read_line(&mut String::new());
        handle.stop();
    });
    bus.serve()?;
    show(one, &counters[0])?;
    show(other, &counters[1])?;
    Ok(())
}

fn load(kind: &str, fault: &str, frames: u64, per_transfer: usize) -> Result<()> {
    let fault = match fault {
        "none" => Fault::None,
        "size" => Fault::BadSize,
        "error" => Fault::ErrorBit,
        _ => return Err(format!("unknown fault `{fault}`; expected none, size or error").into()),
    };
    let load = Load::new(&frame(mac(1)), fault, frames)?.per_transfer(per_transfer)?;
    let mut bus = Bus::new()?;
    let port = attach(&mut bus, kind, 1)?;
    bus.load(port);
    let counters: Arc<Counters> = bus.counters(port);
    let handle = bus.handle();
    let server = thread::spawn(move || bus.serve());
    io::stdin().read_line(&mut String::new())?;
    handle.offer(port, load)?;
    while counters.get(Kind::received(fault)).frames < frames {
        thread::sleep(Duration::from_millis(1));
    }
    show(kind, &counters)?;
    io::stdin().read_line(&mut String::new())?;
    handle.stop();
    match server.join() {
        Ok(served) => Ok(served?),
        Err(_) => Err("the thread of the bus panicked".into()),
    }
}

fn run() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["wire", one, other] => wire(one, other),
        ["load", kind, fault, frames] => load(kind, fault, frames.parse()?, 1),
        ["load", kind, fault, frames, per] => load(kind, fault, frames.parse()?, per.parse()?),
        _ => Err("expected `wire KIND KIND` or `load KIND FAULT N [PER]`".into()),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "usbnet: {error}");
            ExitCode::FAILURE
        }
    }
}
