//! By memory: of the machine `virt`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::ptr::NonNull;

use super::PANICKED;

/// Where fw_cfg is (`base_memmap` in hw/arm/virt.c of QEMU; part of its device tree).
const FIRMWARE: i64 = 0x0902_0000;
/// Its registers (docs/specs/fw_cfg.rst of QEMU).
const DATA: usize = 0;
const SELECTOR: usize = 8;
const DMA: usize = 16;
/// pvpanic as a PCI device (docs/specs/pvpanic.rst of QEMU), as sysfs has its numbers.
const PANIC_IDS: [&str; 2] = ["0x1b36", "0x0011"];
const PCI: &str = "/sys/bus/pci/devices";
const PAGE_BYTES: usize = 4096;

/// A page of registers.
#[derive(Debug)]
struct Page(NonNull<u8>);

// SAFETY: the mapping is this value's alone, and registers can be accessed from any thread.
unsafe impl Send for Page {}

impl Page {
    fn at_offset(file: &File, offset: i64) -> io::Result<Page> {
        // SAFETY: a new mapping, of nothing that is ours.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast::<u8>());
        at.map(Page).ok_or_else(|| io::Error::other("no memory"))
    }

    fn read<T>(&self, register: usize) -> T {
        // SAFETY: as below; registers are read as numbers.
        unsafe { self.0.as_ptr().add(register).cast::<T>().read_volatile() }
    }

    fn write<T>(&self, register: usize, value: T) {
        // SAFETY: within the page, and aligned: `register` is one of the constants of its device.
        unsafe { self.0.as_ptr().add(register).cast::<T>().write_volatile(value) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping of `of`, which nothing refers to any more. There is nothing to do
        // about an error.
        unsafe { libc::munmap(self.0.as_ptr().cast(), PAGE_BYTES) };
    }
}

/// The firmware configuration device.
#[derive(Debug)]
pub(crate) struct Firmware(Page);

impl Firmware {
    /// Get access to it.
    ///
    /// # Errors
    /// The kernel denies access, or the device is missing.
    pub(crate) fn open() -> io::Result<Firmware> {
        let mut firmware = Firmware(Page::at_offset(&memory()?, FIRMWARE)?);
        match firmware.is_there() {
            true => Ok(firmware),
            false => Err(io::Error::new(io::ErrorKind::NotFound, "no fw_cfg device")),
        }
    }

    /// Access costs other tasks nothing, and is kept.
    #[expect(clippy::unnecessary_wraps, reason = "that by ports can fail")]
    pub(crate) fn take(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// As above.
    pub(crate) fn give(&mut self) {}

    /// Go to the beginning of an item.
    pub(super) fn select(&mut self, key: u16) {
        self.0.write(SELECTOR, key.to_be());
    }

    /// The next byte of the item.
    pub(super) fn next(&mut self) -> u8 {
        self.0.read(DATA)
    }

    /// Have a request of DMA at this physical address carried out, which is done when this returns.
    pub(crate) fn ask(&mut self, request: u64) {
        self.0.write(DMA, request.to_be());
    }
}

/// The registers of the wire to another host (plugins/qemu/wire.h), of 32 bits each; there may be
/// nothing behind them.
#[derive(Debug)]
pub(crate) struct Wire(Page);

/// Where they are.
const WIRE: i64 = 0x0b00_0000;

impl Wire {
    /// Get access to them.
    ///
    /// # Errors
    /// The kernel denies it.
    pub(crate) fn open() -> io::Result<Wire> {
        Ok(Wire(Page::at_offset(&memory()?, WIRE)?))
    }

    /// Read a register.
    pub(crate) fn read(&self, register: u16) -> u32 {
        self.0.read(register.into())
    }

    /// Write a register; one instruction.
    pub(crate) fn write(&self, register: u16, value: u32) {
        self.0.write(register.into(), value);
    }
}

/// The machine's memory, and everything else with addresses.
fn memory() -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_SYNC);
    options.open("/dev/mem")
}

/// The device that pauses the guest.
#[derive(Debug)]
pub(crate) struct Panic(Page);

impl Panic {
    /// Get access to it.
    ///
    /// # Errors
    /// The kernel denies access, or the device is missing.
    pub(crate) fn open() -> io::Result<Panic> {
        let none = || io::Error::new(io::ErrorKind::NotFound, "no pvpanic device");
        let device = find().ok_or_else(none)?;
        // It has no driver that did.
        fs::write(device.join("enable"), "1")?;
        let registers = OpenOptions::new().read(true).write(true).open(device.join("resource0"))?;
        let panic = Panic(Page::at_offset(&registers, 0)?);
        match panic.0.read::<u8>(0) {
            0xff => Err(none()),
            features if features & PANICKED == 0 => Err(none()),
            _ => Ok(panic),
        }
    }

    /// Pause the guest.
    pub(crate) fn raise(&self) {
        self.0.write(0, PANICKED);
        // QEMU stops a CPU between blocks of code: the access is the last of its block.
        // SAFETY: a jump to the next instruction.
        unsafe {
            std::arch::asm!("b 2f", "2:", options(nostack, preserves_flags));
        }
    }
}

fn find() -> Option<PathBuf> {
    let is = |device: &PathBuf| {
        let ids = ["vendor", "device"].map(|name| fs::read_to_string(device.join(name)));
        let ids = ids.iter().map(|id| id.as_deref().unwrap_or_default().trim());
        ids.eq(PANIC_IDS)
    };
    let devices = fs::read_dir(PCI).ok()?.flatten();
    devices.map(|device| device.path()).find(is)
}
