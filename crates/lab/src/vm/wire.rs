//! The wire to another guest, a plugin of QEMU (plugins/qemu/wire.h): its registers, in a guest, and its output, on the
//! host.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use netplumb_model::hosts::Latch;

use super::firmware::Wire;

/// Registers; each access has 32 bits.
const COMMAND: u16 = 0;
const STATE: u16 = 4;
const LOW: u16 = 8;
const HIGH: u16 = 12;

const MAGIC: u32 = 0x4e50_5731;

const BEGIN: u32 = 1;
const END: u32 = 2;
const LATCH: u32 = 3;

const OVER: u32 = 2;

/// The message of the wire's plugin when the QEMU at its other end has gone (plugins/qemu/wire_peer.c).
pub(crate) const OTHER_HAS_ENDED: &str = "the other host has ended";

/// The interval of checks whether the other host has ended too, by the guest's clock.
const NAP: Duration = Duration::from_micros(200);

/// Access to the wire, until it is dropped.
#[derive(Debug)]
pub struct WirePorts(Wire);

/// A moment whose values the plugin keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The beginning of a block.
    Begin = 0,
    /// The end of the same block.
    End = 1,
    /// When the kernel was asked for what it had counted, before the beginning.
    Before = 2,
    /// The same after the end.
    After = 3,
}

impl WirePorts {
    /// Get access.
    ///
    /// # Errors
    /// The kernel denies it, or the guest has no wire.
    pub fn open() -> io::Result<WirePorts> {
        let ports = WirePorts(Wire::open()?);
        match ports.0.read(COMMAND) {
            MAGIC => Ok(ports),
            _ => Err(io::Error::new(io::ErrorKind::NotFound, "no wire")),
        }
    }

    /// Connect both hosts: from now on they have one clock, and wait for each other.
    pub fn begin(&self) {
        self.0.write(COMMAND, BEGIN);
    }

    /// Disconnect them, and wait for the other host to do so, too.
    ///
    /// # Errors
    /// It doesn't, within a time of the guest's clock.
    pub fn end(&self, patience: Duration) -> io::Result<()> {
        self.0.write(COMMAND, END);
        let began = Instant::now();
        while self.0.read(STATE) != OVER {
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
        self.0.write(COMMAND, LATCH | (moment as u32) << 8);
    }

    /// The values of a moment.
    pub fn latch(&self, moment: Moment) -> Latch {
        let mut values = [0; Latch::VALUES];
        for (value, number) in values.iter_mut().zip(0_u32..) {
            self.0.write(STATE, number | (moment as u32) << 8);
            *value = u64::from(self.0.read(HIGH)) << 32 | u64::from(self.0.read(LOW));
        }
        Latch::from_values(values)
    }
}
