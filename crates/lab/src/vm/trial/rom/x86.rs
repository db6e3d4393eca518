//! The guest of x86-64.
//!
//! The processor starts in the ROM's last 16 bytes and jumps to its start. The guest switches to
//! protected mode and paging, computes, and reports by a port that ends QEMU.

use super::SIZE;

/// The device with that port.
pub(in super::super) const EXIT: &str = "isa-debug-exit,iobase=0xf4,iosize=4";

/// QEMU's exit status if the guest succeeded: the port turns a byte `b` into `2b+1`, and the guest
/// writes 0x31.
pub(in super::super) const REACHED: i32 = 0x31 * 2 + 1;

/// Where the processor starts, from the beginning of the ROM.
const RESET: usize = 0xfff0;

/// `jmp 0`, in 16-bit mode.
const RESET_JUMP: [u8; 3] = [0xe9, 0x0d, 0x00];

#[rustfmt::skip]
const CODE: &[u8] = &[
    // 0x00, 16-bit: switch to protected mode.
    0xfa,                                           // cli
    0x2e, 0x66, 0x0f, 0x01, 0x16, 0xc0, 0x00,       // lgdtl %cs:0xc0
    0x0f, 0x20, 0xc0,                               // mov   %cr0, %eax
    0x0c, 0x01,                                     // or    $1, %al
    0x0f, 0x22, 0xc0,                               // mov   %eax, %cr0
    0x66, 0xea, 0x18, 0x00, 0xff, 0xff, 0x08, 0x00, // ljmpl $0x08, $0xffff0018
    // 0x18, 32-bit: segments and a stack.
    0x66, 0xb8, 0x10, 0x00,                         // mov   $0x10, %ax
    0x8e, 0xd8,                                     // mov   %ax, %ds
    0x8e, 0xc0,                                     // mov   %ax, %es
    0x8e, 0xd0,                                     // mov   %ax, %ss
    0xbc, 0x00, 0x80, 0x00, 0x00,                   // mov   $0x8000, %esp
    // 0x27: a page directory at 0x1000 that maps the first and the last 4 MiB onto themselves.
    0xbf, 0x00, 0x10, 0x00, 0x00,                   // mov   $0x1000, %edi
    0x31, 0xc0,                                     // xor   %eax, %eax
    0xb9, 0x00, 0x04, 0x00, 0x00,                   // mov   $1024, %ecx
    0xfc,                                           // cld
    0xf3, 0xab,                                     // rep stosl
    0xc7, 0x05, 0x00, 0x10, 0x00, 0x00, 0x83, 0x00, 0x00, 0x00, // movl $0x00000083, 0x1000
    0xc7, 0x05, 0xfc, 0x1f, 0x00, 0x00, 0x83, 0x00, 0xc0, 0xff, // movl $0xffc00083, 0x1ffc
    // 0x4a: large pages, and paging on.
    0x0f, 0x20, 0xe0,                               // mov   %cr4, %eax
    0x83, 0xc8, 0x10,                               // or    $0x10, %eax
    0x0f, 0x22, 0xe0,                               // mov   %eax, %cr4
    0xb8, 0x00, 0x10, 0x00, 0x00,                   // mov   $0x1000, %eax
    0x0f, 0x22, 0xd8,                               // mov   %eax, %cr3
    0x0f, 0x20, 0xc0,                               // mov   %cr0, %eax
    0x0d, 0x00, 0x00, 0x00, 0x80,                   // or    $0x80000000, %eax
    0x0f, 0x22, 0xc0,                               // mov   %eax, %cr0
    0xeb, 0x00,                                     // jmp   0x68
    // 0x68: add up 1 to 20,000 in memory, by a call each.
    0xc7, 0x05, 0x00, 0x30, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // movl $0, 0x3000
    0xb9, 0x20, 0x4e, 0x00, 0x00,                   // mov   $20000, %ecx
    0x51,                                           // push  %ecx
    0xe8, 0x1d, 0x00, 0x00, 0x00,                   // call  0x9a
    0x59,                                           // pop   %ecx
    0x49,                                           // dec   %ecx
    0x75, 0xf6,                                     // jnz   0x77
    // 0x81: report 0x31 if the sum is right, else 0x32, and stop.
    0xb0, 0x32,                                     // mov   $0x32, %al
    0x81, 0x3d, 0x00, 0x30, 0x00, 0x00, 0x10, 0xe9, 0xeb, 0x0b, // cmpl $200010000, 0x3000
    0x75, 0x02,                                     // jne   0x91
    0xb0, 0x31,                                     // mov   $0x31, %al
    0x66, 0xba, 0xf4, 0x00,                         // mov   $0xf4, %dx
    0xee,                                           // out   %al, %dx
    0xfa,                                           // cli
    0xf4,                                           // hlt
    0xeb, 0xfc,                                     // jmp   0x96
    // 0x9a: add the argument to the sum.
    0x8b, 0x44, 0x24, 0x04,                         // mov   4(%esp), %eax
    0x01, 0x05, 0x00, 0x30, 0x00, 0x00,             // add   %eax, 0x3000
    0xc3,                                           // ret
    0x00, 0x00, 0x00,
    // 0xa8: descriptors: none, flat code, flat data.
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0xff, 0xff, 0x00, 0x00, 0x00, 0x9b, 0xcf, 0x00,
    0xff, 0xff, 0x00, 0x00, 0x00, 0x93, 0xcf, 0x00,
    // 0xc0: their table: size less one, address.
    0x17, 0x00, 0xa8, 0x00, 0xff, 0xff,
];

/// The ROM's bytes.
pub(super) fn bytes() -> Vec<u8> {
    rom_of(CODE)
}

/// A ROM that begins with this code.
pub(in super::super) fn rom_of(code: &[u8]) -> Vec<u8> {
    let mut rom = vec![0; SIZE];
    rom[..code.len()].copy_from_slice(code);
    rom[RESET..RESET + RESET_JUMP.len()].copy_from_slice(&RESET_JUMP);
    rom
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the parts are at the addresses in the code.
    #[test]
    fn addresses_in_the_code_hold() {
        let rom = bytes();
        assert_eq!(rom.len(), SIZE);
        assert_eq!(rom[0x18..0x1c], [0x66, 0xb8, 0x10, 0x00]);
        assert_eq!(rom[0x9a..0x9e], [0x8b, 0x44, 0x24, 0x04]);
        assert_eq!(rom[0xc0..0xc2], [0x17, 0x00]);
        // The jump is relative to its end, and wraps at 64 KiB.
        let jump = usize::from(u16::from_le_bytes([RESET_JUMP[1], RESET_JUMP[2]]));
        assert_eq!((RESET + RESET_JUMP.len() + jump) % SIZE, 0);
    }

    /// Check that the guest compares with the sum that it computes.
    #[test]
    fn the_sum_is_right() {
        let sum: u32 = (1..=20_000).sum();
        assert_eq!(CODE[0x89..0x8d], sum.to_le_bytes());
    }
}
