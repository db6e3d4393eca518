//! Jumps and calls within a section, which have no relocation: their targets, and the bits of the code that encode
//! them.

use iced_x86::{Decoder, DecoderOptions, OpKind};
use netplumb_model::arch::Arch;

/// Instructions of x86-64 modules.
const BITS: u32 = 64;
/// An instruction of AArch64.
const WORD_BYTES: usize = 4;

/// A jump or a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Branch {
    /// Offset in the code of the field with its target.
    pub(super) at: usize,
    /// Size of the field.
    pub(super) bytes: usize,
    /// Bits of the field with other meanings.
    pub(super) other_bits: u32,
    /// Where it leads.
    pub(super) target: u64,
}

/// The branches of code that begins at an offset of its section.
pub(super) fn within(arch: Arch, code: &[u8], begin: u64) -> Vec<Branch> {
    match arch {
        Arch::X86_64 => of_x86(code, begin),
        Arch::Arm64 => of_arm64(code, begin),
    }
}

fn of_x86(code: &[u8], begin: u64) -> Vec<Branch> {
    let mut branches = Vec::new();
    let mut decoder = Decoder::with_ip(BITS, code, begin, DecoderOptions::NONE);
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let constants = decoder.get_constant_offsets(&instruction);
        if instruction.op0_kind() == OpKind::NearBranch64 && constants.has_immediate() {
            branches.push(Branch {
                at: (instruction.ip() - begin) as usize + constants.immediate_offset(),
                bytes: constants.immediate_size(),
                other_bits: 0,
                target: instruction.near_branch_target(),
            });
        }
    }
    branches
}

fn of_arm64(code: &[u8], begin: u64) -> Vec<Branch> {
    let (words, _) = code.as_chunks::<WORD_BYTES>();
    let branch = |(n, word): (usize, &[u8; WORD_BYTES])| {
        let word = u32::from_le_bytes(*word);
        let (low, width) = offset_field(word)?;
        let field = ((1 << width) - 1) << low;
        // Signed, in instructions.
        let offset = ((word & field) << (32 - low - width)) as i32 >> (32 - width);
        let at = n * WORD_BYTES;
        Some(Branch {
            at,
            bytes: WORD_BYTES,
            other_bits: !field,
            target: (begin + at as u64).wrapping_add_signed(i64::from(offset) * 4),
        })
    };
    words.iter().enumerate().filter_map(branch).collect()
}

/// The lowest bit and the number of bits of a branch's offset (Arm ARM C4.1: branches, exception
/// generating and system instructions).
fn offset_field(word: u32) -> Option<(u32, u32)> {
    Some(match word {
        // b, bl
        _ if word & 0x7c00_0000 == 0x1400_0000 => (0, 26),
        // b.cond, bc.cond
        _ if word & 0xff00_0000 == 0x5400_0000 => (5, 19),
        // cbz, cbnz
        _ if word & 0x7e00_0000 == 0x3400_0000 => (5, 19),
        // tbz, tbnz
        _ if word & 0x7e00_0000 == 0x3600_0000 => (5, 14),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the targets of AArch64 branches, forwards and back, against objdump's, and that other instructions are not
    /// taken for branches.
    #[test]
    fn arm64() {
        for (word, target) in [
            (0x1400_0002, Some(0x108)), // b
            (0x97ff_fffe, Some(0xf8)),  // bl
            (0x5400_0061, Some(0x10c)), // b.ne
            (0xb4ff_ffe0, Some(0xfc)),  // cbz x0
            (0x3500_0040, Some(0x108)), // cbnz w0
            (0x3707_ffe1, Some(0xfc)),  // tbnz w1, #0
            (0xd65f_03c0, None),        // ret
            (0xd63f_0020, None),        // blr x1
            (0x9100_0000, None),        // add
        ] {
            let found = within(Arch::Arm64, &u32::to_le_bytes(word), 0x100);
            assert_eq!(found.first().map(|b| b.target), target, "{word:#x}");
        }
    }

    /// Check that a branch's registers and condition are not of its target.
    #[test]
    fn other_bits() {
        let bits = |word: u32| within(Arch::Arm64, &word.to_le_bytes(), 0)[0].other_bits & word;
        assert_eq!(bits(0x97ff_fffe), 0x9400_0000);
        assert_eq!(bits(0xb4ff_ffe3), 0xb400_0003);
        assert_eq!(bits(0x5400_0061), 0x5400_0001);
        assert_eq!(bits(0x3707_ffe1), 0x3700_0001);
    }
}
