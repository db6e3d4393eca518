//! Markers: instructions that do nothing, and that the `exact` plugin knows.
//!
//! `nopl imm32(%rax)`, with the magic and the mark in the displacement; the twin
//! of plugins/qemu/exact.h. No register, no system call, no memory access, so a
//! marker costs the measured path nothing.

use std::arch::asm;

const MAGIC: u32 = 0x4e50_0000;

/// From here on the kernel is counted.
pub const ARM: u32 = 1;
/// A block's window opens.
pub const WINDOW_BEGIN: u32 = 2;
/// A block's window closes.
pub const WINDOW_END: u32 = 3;
/// What this task does from here on is sending.
pub const TX_BEGIN: u32 = 4;
/// It no longer is.
pub const TX_END: u32 = 5;
/// What this task does from here on is receiving.
pub const RX_BEGIN: u32 = 6;
/// It no longer is.
pub const RX_END: u32 = 7;

/// The window of a command opens, and this task is its first.
pub const RUN_BEGIN: u32 = 8;
/// Before [`ARM`]: blocks of user mode are to be told as well.
pub const USER: u32 = 9;
const BIT_0: u32 = 10;
const BIT_1: u32 = 11;
const WATCH_BEGIN: u32 = 12;
const WATCH_END: u32 = 13;

/// Have the kernel's stores between two addresses told; before [`ARM`].
pub fn watch(begin: u64, end: u64) {
    shift_in(begin);
    mark::<WATCH_BEGIN>();
    shift_in(end);
    mark::<WATCH_END>();
}

/// Tell the plugin a number, bit by bit: markers carry nothing but themselves.
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
    // SAFETY: a NOP with an operand that is never accessed.
    unsafe {
        asm!(".byte 0x0f, 0x1f, 0x80", ".long {imm}", imm = const MAGIC | MARK,
             options(nostack, preserves_flags));
    }
}
