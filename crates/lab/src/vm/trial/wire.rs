//! A trial of the wire between two hosts: two tiny guests with an NE2000 each put some frames on it,
//! whose times are checked.
//!
//! The guest is a firmware ROM again: it sets up its NIC, connects the wire, sends frames of several sizes close to
//! each other, waits for the other one's, disconnects, and reports whether its NIC received any.

mod arm64;

use std::fs::File;
use std::io::Seek;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::{self, Builder};
use std::time::Instant;

use netplumb_model::arch::Arch;
use netplumb_model::capability::{Availability, Capability};
use netplumb_model::hosts::{Side, Wire};

use super::rom::{EXIT, REACHED, rom_of};
use super::run::{self, Ended, memory_file, path_of};
use super::{LIMIT, VERSION_LIMIT, explain, find_qemu, first, version};
use crate::vm::frames;
use crate::vm::wire::OTHER_HAS_ENDED;

/// The port of the NIC in QEMU.
const PORT: &str = "trial";

/// The wire of the trial.
const WIRE: Wire = Wire { rate_bps: 1_000_000_000, delay_ns: 1_000, jitter_ns: 0, loss_ppb: 0 };

/// The plugin of a wire.
#[derive(Clone, Copy)]
pub struct WirePlugin<'a> {
    /// The plugin's shared library, for QEMU to load.
    pub bytes: &'a [u8],
    /// QEMU's arguments for one end of a wire: which host, the port of its NIC, and the descriptors of
    /// the plugin, the socket to the other host and the log.
    pub args: fn(Wire, Side, &str, [i32; 3]) -> Vec<String>,
}

/// The machine and the NIC that the code below is for.
const X86_MACHINE: [&str; 4] = ["-machine", "pc", "-device", EXIT];
const X86_NIC: &str = "ne2k_isa,iobase=0x300,irq=9";

/// Lengths in bytes of the frames that each guest sends.
const SIZES: [u16; 5] = [60, 1_514, 1_514, 64, 590];

#[rustfmt::skip]
const CODE: &[u8] = &[
    // 0x00, 16-bit: set up the NIC, by ports and values of the table at 0x90.
    0xfa,                               // cli
    0xbe, 0x90, 0x00,                   // mov  $0x90, %si
    0x2e, 0x8b, 0x14,                   // mov  %cs:(%si), %dx
    0x85, 0xd2,                         // test %dx, %dx
    0x74, 0x0a,                         // je   0x15
    0x2e, 0x8a, 0x44, 0x02,             // mov  %cs:2(%si), %al
    0xee,                               // out  %al, %dx
    0x83, 0xc6, 0x03,                   // add  $3, %si
    0xeb, 0xef,                         // jmp  0x04
    // 0x15: connect the wire (plugins/qemu/wire.h).
    0xba, 0x70, 0x05,                   // mov  $0x570, %dx
    0x66, 0xb8, 0x01, 0x00, 0x00, 0x00, // mov  $1, %eax
    0x66, 0xef,                         // out  %eax, %dx
    // 0x20: send a frame of each size at 0xc0, some microseconds apart: they have to wait for each other.
    0xbe, 0xc0, 0x00,                   // mov  $0xc0, %si
    0x2e, 0x8b, 0x0c,                   // mov  %cs:(%si), %cx
    0x85, 0xc9,                         // test %cx, %cx
    0x74, 0x1b,                         // je   0x45
    0xba, 0x05, 0x03,                   // mov  $0x305, %dx
    0x88, 0xc8,                         // mov  %cl, %al
    0xee,                               // out  %al, %dx
    0x42,                               // inc  %dx
    0x88, 0xe8,                         // mov  %ch, %al
    0xee,                               // out  %al, %dx
    0xba, 0x00, 0x03,                   // mov  $0x300, %dx
    0xb0, 0x26,                         // mov  $0x26, %al
    0xee,                               // out  %al, %dx
    0x83, 0xc6, 0x02,                   // add  $2, %si
    0xb9, 0xe8, 0x03,                   // mov  $1000, %cx
    0x49,                               // dec  %cx
    0x75, 0xfd,                         // jne  0x40
    0xeb, 0xde,                         // jmp  0x23
    // 0x45: wait until all have come, disconnect, and wait for the other guest.
    0x66, 0xb9, 0xa0, 0x86, 0x01, 0x00, // mov  $100000, %ecx
    0x66, 0x49,                         // dec  %ecx
    0x75, 0xfc,                         // jne  0x4b
    0xba, 0x70, 0x05,                   // mov  $0x570, %dx
    0x66, 0xb8, 0x02, 0x00, 0x00, 0x00, // mov  $2, %eax
    0x66, 0xef,                         // out  %eax, %dx
    0xba, 0x74, 0x05,                   // mov  $0x574, %dx
    0x66, 0xed,                         // in   %dx, %eax
    0x66, 0x83, 0xf8, 0x02,             // cmp  $2, %eax
    0x75, 0xf8,                         // jne  0x5d
    // 0x65: report 0x31 if the NIC has received a frame, else 0x32, and stop.
    0xba, 0x07, 0x03,                   // mov  $0x307, %dx
    0xec,                               // in   %dx, %al
    0x88, 0xc4,                         // mov  %al, %ah
    0xb0, 0x32,                         // mov  $0x32, %al
    0xf6, 0xc4, 0x01,                   // test $1, %ah
    0x74, 0x02,                         // je   0x74
    0xb0, 0x31,                         // mov  $0x31, %al
    0xba, 0xf4, 0x00,                   // mov  $0xf4, %dx
    0xee,                               // out  %al, %dx
    0xf4,                               // hlt
    0xeb, 0xfd,                         // jmp  0x78
];

/// Where the NIC's table and the table of sizes are.
const TABLE: usize = 0x90;
const SIZES_AT: usize = 0xc0;

/// Registers of the NIC (DP8390D data sheet, section 10), and the values written to each in turn.
const REGISTERS: [(u16, u8); 14] = [
    (0x300, 0x21), // stop, page 0
    (0x30e, 0x49), // data configuration: by words
    (0x30a, 0x00), // remote byte count
    (0x30b, 0x00),
    (0x30c, 0x14), // receive: all, and broadcast
    (0x30d, 0x00), // transmit: no loopback
    (0x301, 0x46), // pages of the receive ring: first,
    (0x302, 0x60), // end,
    (0x303, 0x46), // boundary
    (0x307, 0xff), // no interrupt pending
    (0x300, 0x61), // page 1
    (0x307, 0x47), // current page
    (0x300, 0x22), // start, page 0
    (0x304, 0x40), // page to transmit from
];

fn rom() -> Vec<u8> {
    let mut rom = rom_of(CODE);
    let mut put = |mut at: usize, bytes: &[u8]| {
        for byte in bytes {
            rom[at] = *byte;
            at += 1;
        }
    };
    for (number, (port, value)) in REGISTERS.iter().enumerate() {
        let [low, high] = port.to_le_bytes();
        put(TABLE + number * 3, &[low, high, *value]);
    }
    for (number, size) in SIZES.iter().enumerate() {
        put(SIZES_AT + number * 2, &size.to_le_bytes());
    }
    rom
}

/// Connect two guests by a wire, and check the times of frames in both directions.
///
/// # Errors
/// Why the wire can't be trusted.
pub fn probe_wire(arch: Arch, qemu: &Path, plugin: &WirePlugin<'_>) -> Result<(), String> {
    let sockets = UnixStream::pair().map_err(|e| format!("make a socket pair: {e}"))?;
    let sockets: [OwnedFd; 2] = [sockets.0.into(), sockets.1.into()];
    // Each waits for the other: both need a thread.
    let ended = thread::scope(|scope| {
        let begun = (Side::ALL.iter().zip(sockets)).map(|(side, socket)| {
            Builder::new().spawn_scoped(scope, move || guest(arch, qemu, plugin, *side, socket))
        });
        let begun: Vec<_> = begun.collect();
        let both = begun.into_iter().map(|thread| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(e) => Err(format!("start a thread: {e}")),
        });
        both.collect::<Vec<_>>()
    });
    // A guest that ended because the other did has no information on the cause.
    let is_consequence = |why: &&String| why.contains(OTHER_HAS_ENDED);
    let failed: Vec<&String> = ended.iter().filter_map(|e| e.as_ref().err()).collect();
    let cause = failed.iter().find(|why| !is_consequence(why));
    match cause.or(failed.first()) {
        Some(why) => Err(why.to_string()),
        None => Ok(()),
    }
}

/// Whether a wire works between guests of an architecture, if there is a plugin of it to try.
pub(super) fn capability(arch: Arch, plugin: Option<&WirePlugin<'_>>) -> Capability {
    let start = Instant::now();
    let verdict = match (plugin, find_qemu(arch)) {
        (None, _) => Availability::yes("not tried"),
        (Some(plugin), Ok(qemu)) => {
            let version = version(&qemu, VERSION_LIMIT, &AtomicBool::new(false));
            explain::wire(arch, &version, probe_wire(arch, &qemu, plugin))
        }
        (Some(_), Err(_)) if arch == Arch::OWN => explain::no_qemu(),
        (Some(_), Err(_)) => Availability::no("no working QEMU", explain::install(arch)),
    };
    let (id, what) = match arch == Arch::OWN {
        true => ("qemu-wire".to_owned(), "two trial guests and a wire between them".to_owned()),
        false => (
            format!("qemu-wire-{}", arch.uname()),
            format!("two trial {arch} guests and a wire between them"),
        ),
    };
    super::capability(&id, &what, verdict, start)
}

/// Run one of the guests, and check the frames that it sent.
fn guest(
    arch: Arch,
    qemu: &Path,
    plugin: &WirePlugin<'_>,
    side: Side,
    socket: OwnedFd,
) -> Result<(), String> {
    let file = |name, bytes: &[u8]| {
        memory_file(name, bytes).map_err(|e| format!("make a file in memory: {e}"))
    };
    let (rom, machine, nic) = match arch {
        Arch::X86_64 => (rom(), &X86_MACHINE, X86_NIC),
        Arch::Arm64 => (arm64::rom(), &arm64::MACHINE, arm64::NIC),
    };
    let firmware = file(c"plumb-rom", &rom)?;
    let object = file(c"plumb-wire", plugin.bytes)?;
    let log = file(c"plumb-frames", b"")?;
    let mut command = Command::new(qemu);
    command.args(["-nodefaults", "-no-user-config", "-display", "none"]);
    command.args(machine);
    command.args(["-m", "16", "-smp", "1", "-cpu", "max"]);
    command.args(["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off"]);
    command.arg("-netdev").arg(format!("hubport,id={PORT},hubid=0"));
    command.arg("-device").arg(format!("{nic},netdev={PORT}"));
    command.arg("-bios").arg(path_of(&firmware));
    let fds = [&object, &socket, &log].map(AsRawFd::as_raw_fd);
    command.args((plugin.args)(WIRE, side, PORT, fds));
    let shared = [&firmware, &object, &socket, &log];
    let ended = run::run(command, &shared, LIMIT).map_err(|e| e.to_string())?;
    // The other guest ends with this one.
    drop(socket);
    match ended {
        Ended::Exited { code, output, .. } if has_received(arch, code, &output) => {}
        Ended::Exited { status, output, .. } => {
            let said = first_of_plumb(&output);
            return Err(match (said.is_empty(), run::is_signal(&status)) {
                (true, _) => {
                    format!("a trial guest ended with {status}: no frame came over the wire")
                }
                // Earlier output is not the cause.
                (false, true) => {
                    format!("QEMU of a trial guest ended with {status}; its output: {said}")
                }
                (false, false) => said.to_string(),
            });
        }
        Ended::Killed { .. } => {
            return Err(format!("trial guests hung for {} s", LIMIT.as_secs()));
        }
    }
    let mut log = File::from(log);
    log.rewind().map_err(|e| format!("read the log: {e}"))?;
    let followed =
        frames::follow(log, side.as_str(), WIRE, frames::Ends::Apart, &AtomicU64::new(0))?;
    match followed.frames as usize == SIZES.len() {
        true => Ok(()),
        false => {
            Err(format!("{} frames were sent, and the wire saw {}", SIZES.len(), followed.frames))
        }
    }
}

/// Whether a guest reported that its NIC received a frame: by QEMU's exit code, or what it wrote.
fn has_received(arch: Arch, code: Option<i32>, output: &str) -> bool {
    match arch {
        Arch::X86_64 => code == Some(REACHED),
        Arch::Arm64 => code == Some(0) && output.contains(arm64::WORD),
    }
}

/// The plugin's reason, or else QEMU's.
fn first_of_plumb(output: &str) -> &str {
    let mut lines = output.lines();
    let ours = lines.find_map(|line| line.split_once("netplumb: ").map(|(_, said)| said));
    ours.unwrap_or_else(|| first(output))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the tables are where the code looks for them, and end by a zero.
    #[test]
    fn tables() {
        let rom = rom();
        assert!(CODE.len() <= TABLE);
        assert_eq!(CODE[2..4], (TABLE as u16).to_le_bytes());
        assert_eq!(CODE[0x21..0x23], (SIZES_AT as u16).to_le_bytes());
        let end = TABLE + REGISTERS.len() * 3;
        assert!(end + 2 <= SIZES_AT);
        assert_eq!(rom[end..end + 2], [0, 0]);
        assert_eq!(rom[SIZES_AT..SIZES_AT + 2], 60_u16.to_le_bytes());
    }

    /// Check that the plugin's message comes first.
    #[test]
    fn reasons() {
        let output = "qemu: warning: hub 0\nnetplumb: no wire: this QEMU does not export x\n";
        assert_eq!(first_of_plumb(output), "no wire: this QEMU does not export x");
        assert_eq!(first_of_plumb("\nqemu: no\n"), "qemu: no");
    }
}
