//! The guest of arm64: the processor starts at the beginning of the ROM, which writes a word to the serial
//! port and switches off by PSCI if the sum is right, and stops where it is if not.

use super::SIZE;

/// What it writes.
pub(super) const WORD: &str = "reached";

/// The code, as assembled by `aarch64-linux-gnu-as`.
#[rustfmt::skip]
const CODE: [u32; 30] = [
    // 0x00: a stack in memory, which begins at 1 GiB.
    0xd2a8_0009, // mov  x9, #0x40000000
    0x9140_212a, // add  x10, x9, #0x8000
    0x9100_015f, // mov  sp, x10
    // 0x0c: add up 1 to 20,000 in memory, by a call each.
    0xf900_013f, // str  xzr, [x9]
    0xd289_c401, // mov  x1, #20000
    0xf81f_0fe1, // str  x1, [sp, #-16]!
    0x9400_0013, // bl   0x64
    0xf841_07e1, // ldr  x1, [sp], #16
    0xf100_0421, // subs x1, x1, #1
    0x54ff_ff81, // b.ne 0x14
    // 0x28: stop here unless the sum is right.
    0xf940_0122, // ldr  x2, [x9]
    0xd29d_2203, // mov  x3, #0xe910
    0xf2a1_7d63, // movk x3, #0xbeb, lsl #16
    0xeb03_005f, // cmp  x2, x3
    0x5400_0001, // b.ne 0x38
    // 0x3c: write the word to the PL011.
    0x1000_01e4, // adr  x4, 0x78
    0xd2a1_2005, // mov  x5, #0x9000000
    0x3840_1486, // ldrb w6, [x4], #1
    0x3400_0066, // cbz  w6, 0x54
    0xb900_00a6, // str  w6, [x5]
    0x17ff_fffd, // b    0x44
    // 0x54: SYSTEM_OFF of PSCI.
    0xd2b0_8000, // mov  x0, #0x84000000
    0xf280_0100, // movk x0, #8
    0xd400_0002, // hvc  #0
    0x1400_0000, // b    0x60
    // 0x64: add the argument to the sum.
    0xf940_03e7, // ldr  x7, [sp]
    0xf940_0128, // ldr  x8, [x9]
    0x8b07_0108, // add  x8, x8, x7
    0xf900_0128, // str  x8, [x9]
    0xd65f_03c0, // ret
];

/// The ROM's bytes.
pub(super) fn bytes() -> Vec<u8> {
    let mut rom: Vec<u8> = CODE.iter().flat_map(|word| word.to_le_bytes()).collect();
    // At 0x78, and a zero after it.
    rom.extend(WORD.as_bytes());
    rom.resize(SIZE, 0);
    rom
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the guest compares with the sum that it computes, and that the word is where it reads it.
    #[test]
    fn sum_and_word() {
        let immediate = |word: u32| (word >> 5) & 0xffff;
        let sum: u32 = (1..=20_000).sum();
        assert_eq!(immediate(CODE[11]) | immediate(CODE[12]) << 16, sum);
        let rom = bytes();
        assert_eq!(rom[0x78..0x80], *b"reached\0");
        assert_eq!(rom.len(), SIZE);
    }
}
