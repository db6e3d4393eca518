//! Markers: instructions without effect that the `exact` plugin recognises.
//!
//! On x86-64 `nopl imm32(%rax)`, with the magic and the mark in the displacement; on arm64 `movz xzr,
//! #imm16, lsl #48`; the twin of plugins/qemu/exact.h. No register, no system call, no memory access, so a
//! marker costs the measured path nothing.

use std::arch::asm;

#[cfg(target_arch = "x86_64")]
const MAGIC: u32 = 0x4e50_0000;
#[cfg(target_arch = "aarch64")]
const MAGIC: u32 = 0x4e00;

const ARM: u32 = 1;
/// A block's window opens.
pub const WINDOW_BEGIN: u32 = 2;
/// A block's window closes.
pub const WINDOW_END: u32 = 3;
/// This task is sending from here on.
pub const TX_BEGIN: u32 = 4;
/// This task is sending until here.
pub const TX_END: u32 = 5;
/// This task is receiving from here on.
pub const RX_BEGIN: u32 = 6;
/// This task is receiving until here.
pub const RX_END: u32 = 7;

/// The window of a command opens, and this task is its first.
pub const RUN_BEGIN: u32 = 8;
/// Before [`Counting::begin`]: also record blocks of user mode.
pub const USER: u32 = 9;
const BIT_0: u32 = 10;
const BIT_1: u32 = 11;
const WATCH_BEGIN: u32 = 12;
const WATCH_END: u32 = 13;

const DISARM: u32 = 14;

/// From here on, packets and marked system calls are of the making of a connection.
pub const CONNECT: u32 = 15;
/// ... are of its taking.
pub const ACCEPT: u32 = 16;
/// ... are of its closing.
pub const CLOSE: u32 = 17;
/// ... are of the answer to a datagram.
pub const REPLY: u32 = 18;
/// ... are packets again.
pub const PACKETS: u32 = 19;

/// The kernel is counted until this is dropped.
#[must_use]
pub struct Counting(());

impl Counting {
    /// Start counting the kernel.
    #[inline(always)]
    pub fn begin() -> Counting {
        mark::<ARM>();
        Counting(())
    }
}

impl Drop for Counting {
    #[inline(always)]
    fn drop(&mut self) {
        mark::<DISARM>();
    }
}

/// Record the kernel's stores between two addresses; before [`Counting::begin`].
pub fn watch(begin: u64, end: u64) {
    shift_in(begin);
    mark::<WATCH_BEGIN>();
    shift_in(end);
    mark::<WATCH_END>();
}

/// Pass a number to the plugin, bit by bit: markers have no arguments.
fn shift_in(number: u64) {
    for bit in (0..64).rev() {
        if number >> bit & 1 == 1 {
            mark::<BIT_1>();
        } else {
            mark::<BIT_0>();
        }
    }
}

/// Execute the marker `MARK`.
#[inline(always)]
pub fn mark<const MARK: u32>() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: it writes to the register that can't be written.
    unsafe {
        asm!(".inst {insn}", insn = const 0xd2e0_001f_u32 | (MAGIC | MARK) << 5,
             options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a NOP with an operand that is never accessed.
    unsafe {
        asm!(".byte 0x0f, 0x1f, 0x80", ".long {imm}", imm = const MAGIC | MARK,
             options(nostack, preserves_flags));
    }
}
