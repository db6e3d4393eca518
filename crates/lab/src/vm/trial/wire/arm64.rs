//! The guest of arm64 on QEMU's `virt`: it gives its NIC I/O ports, by the configuration space of PCI, and
//! reports by the serial port.

use super::super::rom::SIZE;
use super::{REGISTERS, SIZES};

/// Its output if its NIC has received a frame.
pub(super) const WORD: &str = "received";

/// Where the NIC's table, the table of sizes and the word are.
const TABLE: usize = 0xc0;
const SIZES_AT: usize = 0xe0;
const WORD_AT: usize = 0xf0;
/// A register that there is not, at the end of the table.
const END: u8 = 0x80;

/// QEMU's arguments for it: the PCI addresses in its code are fixed by this machine and slot.
pub(super) const MACHINE: [&str; 4] = ["-machine", "virt,highmem=off", "-serial", "stdio"];
pub(super) const NIC: &str = "ne2k_pci,addr=2,romfile=";

/// The code, as assembled by `aarch64-linux-gnu-as`.
#[rustfmt::skip]
const CODE: [u32; 48] = [
    // 0x00: give the NIC in slot 2 I/O ports at 0x1000, and enable them.
    0xd2a7_e020, // mov  x0, #0x3f010000
    0x5282_0001, // mov  w1, #0x1000
    0xb900_1001, // str  w1, [x0, #0x10]
    0x5280_0021, // mov  w1, #1
    0xb900_0401, // str  w1, [x0, #4]
    // 0x14: set up the NIC, by registers and values of the table.
    0xd2a7_dfe2, // mov  x2, #0x3eff0000
    0xf282_0002, // movk x2, #0x1000
    0x1000_0523, // adr  x3, 0xc0
    0x3840_1464, // ldrb w4, [x3], #1
    0x3840_1465, // ldrb w5, [x3], #1
    0x3738_0064, // tbnz w4, #7, 0x34
    0x3824_6845, // strb w5, [x2, x4]
    0x17ff_fffc, // b    0x20
    // 0x34: connect the wire (plugins/qemu/wire.h).
    0xd2a1_6006, // mov  x6, #0xb000000
    0x5280_0021, // mov  w1, #1
    0xb900_00c1, // str  w1, [x6]
    // 0x40: send a frame of each size, some microseconds apart: they have to wait for each other.
    0x1000_0503, // adr  x3, 0xe0
    0x7840_2461, // ldrh w1, [x3], #2
    0x3400_0141, // cbz  w1, 0x70
    0x3900_1441, // strb w1, [x2, #5]
    0x5308_7c24, // lsr  w4, w1, #8
    0x3900_1844, // strb w4, [x2, #6]
    0x5280_04c4, // mov  w4, #0x26
    0x3900_0044, // strb w4, [x2]
    0x5280_7d04, // mov  w4, #1000
    0x7100_0484, // subs w4, w4, #1
    0x54ff_ffe1, // b.ne 0x64
    0x17ff_fff6, // b    0x44
    // 0x70: wait until all have come, disconnect, and wait for the other guest.
    0x52a0_0044, // mov  w4, #0x20000
    0x7100_0484, // subs w4, w4, #1
    0x54ff_ffe1, // b.ne 0x74
    0x5280_0041, // mov  w1, #2
    0xb900_00c1, // str  w1, [x6]
    0xb940_04c1, // ldr  w1, [x6, #4]
    0x7100_083f, // cmp  w1, #2
    0x54ff_ffc1, // b.ne 0x84
    // 0x90: write the word to the PL011 if the NIC has received a frame.
    0x3940_1c41, // ldrb w1, [x2, #7]
    0x3600_00e1, // tbz  w1, #0, 0xb0
    0x1000_02c4, // adr  x4, 0xf0
    0xd2a1_2005, // mov  x5, #0x9000000
    0x3840_1486, // ldrb w6, [x4], #1
    0x3400_0066, // cbz  w6, 0xb0
    0xb900_00a6, // str  w6, [x5]
    0x17ff_fffd, // b    0xa0
    // 0xb0: SYSTEM_OFF of PSCI.
    0xd2b0_8000, // mov  x0, #0x84000000
    0xf280_0100, // movk x0, #8
    0xd400_0002, // hvc  #0
    0x1400_0000, // b    0xbc
];

pub(super) fn rom() -> Vec<u8> {
    let mut rom: Vec<u8> = CODE.iter().flat_map(|word| word.to_le_bytes()).collect();
    rom.resize(SIZE, 0);
    let registers = REGISTERS.iter().map(|(port, value)| [*port as u8 & 0xf, *value]);
    let registers: Vec<u8> = registers.flatten().chain([END]).collect();
    let sizes: Vec<u8> = SIZES.iter().flat_map(|size| size.to_le_bytes()).collect();
    for (at, bytes) in [(TABLE, &registers[..]), (SIZES_AT, &sizes), (WORD_AT, WORD.as_bytes())] {
        rom[at..at + bytes.len()].copy_from_slice(bytes);
    }
    rom
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the tables are where the code looks for them, behind it and each other, and that they end.
    #[test]
    fn tables() {
        // The offset that `adr` adds to its own address.
        let target = |at: usize| {
            at + ((CODE[at / 4] >> 5 & 0x7_ffff) << 2 | CODE[at / 4] >> 29 & 3) as usize
        };
        assert_eq!([0x1c, 0x40, 0x98].map(target), [TABLE, SIZES_AT, WORD_AT]);
        assert!(CODE.len() * 4 <= TABLE);
        assert!(TABLE + REGISTERS.len() * 2 < SIZES_AT);
        assert!(SIZES_AT + SIZES.len() * 2 + 2 <= WORD_AT);
        let rom = rom();
        assert_eq!(rom[TABLE + REGISTERS.len() * 2], END);
        assert_eq!(rom[SIZES_AT..SIZES_AT + 2], 60_u16.to_le_bytes());
        assert_eq!(rom[WORD_AT..WORD_AT + 9], *b"received\0");
    }
}
