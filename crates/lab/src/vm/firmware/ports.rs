//! By I/O ports.

use std::io;

use super::PANICKED;

/// Port of pvpanic, as in QEMU's arguments (`board.rs`).
const PANIC_PORT: u16 = 0x505;
/// Ports of fw_cfg (docs/specs/fw_cfg.rst of QEMU): selector, data, and the address of a request of DMA.
const SELECTOR_PORT: u16 = 0x510;
const DATA_PORT: u16 = 0x511;
const DMA_HIGH_PORT: u16 = 0x514;
const DMA_LOW_PORT: u16 = 0x518;
const PORTS: u64 = 12;

/// Ports, given up when dropped: switching to a task with access is more expensive.
#[derive(Debug)]
struct Access {
    first: u16,
    count: u64,
    held: bool,
}

impl Access {
    fn to(first: u16, count: u64) -> io::Result<Access> {
        let mut access = Access { first, count, held: false };
        access.take()?;
        Ok(access)
    }

    fn take(&mut self) -> io::Result<()> {
        // SAFETY: the call takes numbers, and touches no memory of ours.
        if unsafe { libc::ioperm(self.first.into(), self.count, 1) } != 0 {
            return Err(io::Error::last_os_error());
        }
        self.held = true;
        Ok(())
    }

    fn give(&mut self) {
        if std::mem::take(&mut self.held) {
            // SAFETY: as above. There is nothing to do about an error.
            unsafe { libc::ioperm(self.first.into(), self.count, 0) };
        }
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        self.give();
    }
}

/// The firmware configuration device.
#[derive(Debug)]
pub(crate) struct Firmware(Access);

impl Firmware {
    /// Get access to it.
    ///
    /// # Errors
    /// The kernel denies access, or the device is missing.
    pub(crate) fn open() -> io::Result<Firmware> {
        let mut firmware = Firmware(Access::to(SELECTOR_PORT, PORTS)?);
        match firmware.is_there() {
            true => Ok(firmware),
            false => Err(io::Error::new(io::ErrorKind::NotFound, "no fw_cfg device")),
        }
    }

    /// Get access again, after [`Firmware::give`].
    ///
    /// # Errors
    /// The kernel denies access.
    pub(crate) fn take(&mut self) -> io::Result<()> {
        self.0.take()
    }

    /// Give up access for a while.
    pub(crate) fn give(&mut self) {
        self.0.give();
    }

    /// Go to the beginning of an item.
    pub(super) fn select(&mut self, key: u16) {
        // SAFETY: we hold the port, and fw_cfg is behind it or nothing is; `out`
        // touches no memory.
        unsafe {
            std::arch::asm!("out dx, ax", in("dx") SELECTOR_PORT, in("ax") key,
                options(nomem, nostack, preserves_flags));
        }
    }

    /// The next byte of the item.
    pub(super) fn next(&mut self) -> u8 {
        read(DATA_PORT)
    }

    /// Have a request of DMA at this physical address carried out, which is done when this returns.
    pub(crate) fn ask(&mut self, request: u64) {
        out(DMA_HIGH_PORT, ((request >> 32) as u32).to_be());
        // Writing the second half starts the transfer, which is complete when the instruction is.
        out(DMA_LOW_PORT, (request as u32).to_be());
    }
}

/// The device that pauses the guest.
#[derive(Debug)]
pub(crate) struct Panic {
    _access: Access,
}

impl Panic {
    /// Get access to it.
    ///
    /// # Errors
    /// The kernel denies access, or the device is missing.
    pub(crate) fn open() -> io::Result<Panic> {
        let panic = Panic { _access: Access::to(PANIC_PORT, 1)? };
        // A port without a device reads as all ones.
        let features = read(PANIC_PORT);
        if features == 0xff || features & PANICKED == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no pvpanic device"));
        }
        Ok(panic)
    }

    /// Pause the guest.
    pub(crate) fn raise(&self) {
        // QEMU stops a CPU between blocks of code. Without an instruction clock `out` does not end one:
        // what follows would still be executed, and read the directory of the QEMU that is saved, not of
        // the one that resumes.
        // SAFETY: we hold the port. To the guest it is as if nothing happened, however long it is
        // stopped; memory is as it was.
        unsafe {
            std::arch::asm!("out dx, al", "jmp 2f", "2:", in("dx") PANIC_PORT, in("al") PANICKED,
                options(nostack, preserves_flags));
        }
    }
}

/// First port of the wire (plugins/qemu/wire.h), and their number.
const WIRE_PORT: u16 = 0x570;
const WIRE_PORTS: u64 = 16;

/// The registers of the wire to another host, of 32 bits each; there may be nothing behind them.
#[derive(Debug)]
pub(crate) struct Wire {
    _access: Access,
}

impl Wire {
    /// Get access to them.
    ///
    /// # Errors
    /// The kernel denies it.
    pub(crate) fn open() -> io::Result<Wire> {
        Ok(Wire { _access: Access::to(WIRE_PORT, WIRE_PORTS)? })
    }

    /// Read a register.
    pub(crate) fn read(&self, register: u16) -> u32 {
        let value: u32;
        // SAFETY: we hold the port; `in` touches no memory.
        unsafe {
            std::arch::asm!("in eax, dx", in("dx") WIRE_PORT + register, out("eax") value,
                options(nomem, nostack, preserves_flags));
        }
        value
    }

    /// Write a register; one instruction.
    pub(crate) fn write(&self, register: u16, value: u32) {
        // The wire, or nothing, is behind it; what is before and after it stays there.
        out(WIRE_PORT + register, value);
    }
}

fn read(port: u16) -> u8 {
    let value: u8;
    // SAFETY: callers hold the port; `in` touches no memory.
    unsafe {
        std::arch::asm!("in al, dx", in("dx") port, out("al") value,
            options(nomem, nostack, preserves_flags));
    }
    value
}

fn out(port: u16, value: u32) {
    // SAFETY: callers hold the port; what the device writes to is a mapping of ours, or what the
    // caller answers for.
    unsafe {
        std::arch::asm!("out dx, eax", in("dx") port, in("eax") value,
            options(nostack, preserves_flags));
    }
}

#[cfg(test)]
mod tests {
    use netplumb_model::arch::Arch;

    use super::super::super::board;
    use super::PANIC_PORT;

    /// Check that the agent writes to the port that QEMU's arguments name.
    #[test]
    fn one_port() {
        let port = board::board_for(Arch::X86_64).panic.split_once("ioport=").unwrap().1;
        assert_eq!(port.parse(), Ok(PANIC_PORT));
    }
}
