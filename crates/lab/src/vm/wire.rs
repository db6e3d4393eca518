//! In a guest, the wire to another one: the I/O ports of a plugin of QEMU (plugins/qemu/wire.h).

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use netplumb_model::hosts::Latch;

/// First port, and their number; each access has 32 bits.
const PORT: u16 = 0x570;
const PORTS: u16 = 16;
const COMMAND: u16 = PORT;
const STATE: u16 = PORT + 4;
const LOW: u16 = PORT + 8;
const HIGH: u16 = PORT + 12;

const MAGIC: u32 = 0x4e50_5731;

const BEGIN: u32 = 1;
const END: u32 = 2;
const LATCH: u32 = 3;

const OVER: u32 = 2;

/// How often it is asked whether the other host has ended too, by the guest's clock.
const NAP: Duration = Duration::from_micros(200);

/// Access to the ports, until it is dropped.
#[derive(Debug)]
pub struct WirePorts(());

/// A moment whose values the plugin keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The beginning of a block.
    Begin = 0,
    /// Its end.
    End = 1,
}

impl WirePorts {
    /// Get access.
    ///
    /// # Errors
    /// The kernel denies it, or there is no wire.
    pub fn open() -> io::Result<WirePorts> {
        // SAFETY: the call takes numbers, and touches no memory of ours.
        if unsafe { libc::ioperm(PORT.into(), PORTS.into(), 1) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let ports = WirePorts(());
        match ports.read(COMMAND) {
            MAGIC => Ok(ports),
            _ => Err(io::Error::new(io::ErrorKind::NotFound, "no wire")),
        }
    }

    /// Connect both hosts: from now on they have one clock, and wait for each other.
    pub fn begin(&self) {
        self.write(COMMAND, BEGIN);
    }

    /// Disconnect them, and wait for the other host to do so as well.
    ///
    /// # Errors
    /// It doesn't, within a time of the guest's clock.
    pub fn end(&self, patience: Duration) -> io::Result<()> {
        self.write(COMMAND, END);
        let began = Instant::now();
        while self.read(STATE) != OVER {
            if began.elapsed() > patience {
                let why = "the other host goes on";
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            thread::sleep(NAP);
        }
        Ok(())
    }

    /// Have the values of this moment kept; one instruction.
    pub fn mark(&self, moment: Moment) {
        self.write(COMMAND, LATCH | (moment as u32) << 8);
    }

    /// The values of a moment.
    pub fn latch(&self, moment: Moment) -> Latch {
        let mut values = [0; Latch::VALUES];
        for (value, number) in values.iter_mut().zip(0_u32..) {
            self.write(STATE, number | (moment as u32) << 8);
            *value = u64::from(self.read(HIGH)) << 32 | u64::from(self.read(LOW));
        }
        Latch::of(values)
    }

    fn read(&self, port: u16) -> u32 {
        let value: u32;
        // SAFETY: we hold the port; `in` touches no memory.
        unsafe {
            std::arch::asm!("in eax, dx", in("dx") port, out("eax") value,
                options(nomem, nostack, preserves_flags));
        }
        value
    }

    fn write(&self, port: u16, value: u32) {
        // SAFETY: we hold the port, behind which is the wire or nothing. `out` touches no memory,
        // but what is before and after it stays there.
        unsafe {
            std::arch::asm!("out dx, eax", in("dx") port, in("eax") value,
                options(nostack, preserves_flags));
        }
    }
}

impl Drop for WirePorts {
    fn drop(&mut self) {
        // SAFETY: as in `open`. There is nothing to do about an error.
        unsafe { libc::ioperm(PORT.into(), PORTS.into(), 0) };
    }
}
