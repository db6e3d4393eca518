//! Of AArch64.

use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::InstDecoder;

use super::{Disassemble, Names};

pub(super) struct Disassembler {
    names: Names,
}

impl Disassembler {
    pub(super) fn new(names: Names) -> Self {
        Disassembler { names }
    }
}

impl Disassemble for Disassembler {
    fn one(&mut self, code: &[u8], at: u64) -> (String, Option<u64>) {
        let word = code.try_into().map(u32::from_le_bytes).ok();
        let text = word.and_then(|word| Some((word, text(word)?)));
        let Some((word, text)) = text else {
            return ("(bad)".into(), None);
        };
        let mut words = text.splitn(2, char::is_whitespace);
        let mnemonic = words.next().unwrap_or_default();
        let mut operands = words.next().unwrap_or_default().trim().to_owned();
        let target = target(word);
        if let Some((kind, offset)) = target {
            // The last operand is the target, as its distance.
            let to = address(kind, at, offset);
            let name = self.names.name(to, kind != Kind::Address);
            let before = operands.rsplit_once(", ").map(|(before, _)| before.to_owned());
            let to = name.unwrap_or_else(|| format!("{to:#x}"));
            operands = before.map_or(to.clone(), |before| format!("{before}, {to}"));
        }
        let jump = match target {
            Some((Kind::Jump, offset)) => Some(address(Kind::Jump, at, offset)),
            _ => None,
        };
        let text = format!("{mnemonic:<7} {operands}");
        (text.trim_end().to_owned(), jump)
    }
}

/// An instruction in the form that assemblers prefer. It takes two libraries: this one knows the aliases (`cmp`
/// for `subs wzr`), the other one system registers, hints and barriers. Neither names the maintenance
/// instructions, and both leave out how a register is extended.
fn text(word: u32) -> Option<String> {
    if let Some(text) = extended(word) {
        return Some(text);
    }
    const SYSTEM: (u32, u32) = (0xffc0_0000, 0xd500_0000);
    if word & SYSTEM.0 == SYSTEM.1 {
        if let Some(text) = maintenance(word) {
            return Some(text);
        }
        return disarm64::decoder::decode(word).map(|decoded| decoded.to_string());
    }
    let bytes = word.to_le_bytes();
    let decoded = InstDecoder::default().decode(&mut U8Reader::new(&bytes));
    decoded.ok().map(|decoded| decoded.to_string())
}

/// Sums and differences with an extended register (Arm ARM, C4.1, "Add/subtract (extended register)").
fn extended(word: u32) -> Option<String> {
    const SUM: (u32, u32) = (0x1fe0_0000, 0x0b20_0000);
    const SP: u32 = 31;
    let field = |low: u32, bits: u32| word >> low & ((1 << bits) - 1);
    let (option, amount) = (field(13, 3), field(10, 3));
    if word & SUM.0 != SUM.1 || amount > 4 {
        return None;
    }
    let (long, flags) = (field(31, 1) == 1, field(29, 1) == 1);
    let name = |register: u32, long: bool, of_31: [&str; 2]| match (register, long) {
        (SP, long) => of_31[usize::from(long)].to_string(),
        (register, true) => format!("x{register}"),
        (register, false) => format!("w{register}"),
    };
    let [stack, zero] = [["wsp", "sp"], ["wzr", "xzr"]];
    let (to, from) = (field(0, 5), field(5, 5));
    let by = name(field(16, 5), long && option & 3 == 3, zero);
    let mut operands = vec![name(from, long, stack), by];
    let op = match (field(30, 1), flags, to) {
        (0, true, SP) => "cmn",
        (1, true, SP) => "cmp",
        (subtract, flags, _) => {
            operands.insert(0, name(to, long, if flags { zero } else { stack }));
            [["add", "adds"], ["sub", "subs"]][subtract as usize][usize::from(flags)]
        }
    };
    // With the stack pointer, a register that is not extended needs no word.
    let plain = option == 2 + u32::from(long) && (from == SP || (to == SP && !flags));
    const EXTENDED: [&str; 8] = ["uxtb", "uxth", "uxtw", "uxtx", "sxtb", "sxth", "sxtw", "sxtx"];
    match (plain, amount) {
        (true, 0) => {}
        (true, amount) => operands.push(format!("lsl #{amount}")),
        (false, 0) => operands.push(EXTENDED[option as usize].into()),
        (false, amount) => operands.push(format!("{} #{amount}", EXTENDED[option as usize])),
    }
    Some(format!("{op} {}", operands.join(", ")))
}

/// Maintenance of caches and TLBs, aliases of `sys` (Arm ARM, C5.1.3), by op1, CRn, CRm and op2, as far as
/// kernels use them. And `clrex`.
fn maintenance(word: u32) -> Option<String> {
    const SYS: (u32, u32) = (0xfff8_0000, 0xd508_0000);
    const CLREX: u32 = 0xd503_3f5f;
    if word == CLREX {
        return Some("clrex".into());
    }
    if word & SYS.0 != SYS.1 {
        return None;
    }
    let field = |low: u32, bits: u32| word >> low & ((1 << bits) - 1);
    let name = match (field(16, 3), field(12, 4), field(8, 4), field(5, 3)) {
        (0, 7, 1, 0) => "ic ialluis",
        (0, 7, 5, 0) => "ic iallu",
        (3, 7, 5, 1) => "ic ivau",
        (0, 7, 6, 1) => "dc ivac",
        (0, 7, 6, 2) => "dc isw",
        (0, 7, 10, 2) => "dc csw",
        (0, 7, 14, 2) => "dc cisw",
        (3, 7, 4, 1) => "dc zva",
        (3, 7, 10, 1) => "dc cvac",
        (3, 7, 11, 1) => "dc cvau",
        (3, 7, 12, 1) => "dc cvap",
        (3, 7, 14, 1) => "dc civac",
        (0, 7, 8, 0) => "at s1e1r",
        (0, 7, 8, 1) => "at s1e1w",
        (0, 7, 8, 2) => "at s1e0r",
        (0, 7, 8, 3) => "at s1e0w",
        (0, 8, 3, 0) => "tlbi vmalle1is",
        (0, 8, 3, 1) => "tlbi vae1is",
        (0, 8, 3, 2) => "tlbi aside1is",
        (0, 8, 3, 3) => "tlbi vaae1is",
        (0, 8, 3, 5) => "tlbi vale1is",
        (0, 8, 3, 7) => "tlbi vaale1is",
        (0, 8, 7, 0) => "tlbi vmalle1",
        (0, 8, 7, 1) => "tlbi vae1",
        (0, 8, 7, 2) => "tlbi aside1",
        (0, 8, 7, 3) => "tlbi vaae1",
        (0, 8, 7, 5) => "tlbi vale1",
        (0, 8, 7, 7) => "tlbi vaale1",
        _ => return None,
    };
    Some(match field(0, 5) {
        31 => name.into(),
        register => format!("{name}, x{register}"),
    })
}

/// What an instruction does with an address that it encodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Call,
    Jump,
    /// `adr`
    Address,
    /// `adrp`
    Page,
}

fn address(kind: Kind, at: u64, offset: i64) -> u64 {
    match kind {
        Kind::Page => (at & !0xfff).wrapping_add_signed(offset),
        _ => at.wrapping_add_signed(offset),
    }
}

/// The distance that an instruction encodes (Arm ARM, C4.1): `bits` from `low` on, in units of
/// `1 << shift`.
fn target(word: u32) -> Option<(Kind, i64)> {
    let field = |low: u32, bits: u32, shift: u32| {
        let value = i64::from(word >> low) << (64 - bits) >> (64 - bits);
        value << shift
    };
    let pages = || (field(5, 19, 2) | i64::from(word >> 29 & 3)) << 12;
    Some(match word {
        _ if word & 0xfc00_0000 == 0x1400_0000 => (Kind::Jump, field(0, 26, 2)),
        _ if word & 0xfc00_0000 == 0x9400_0000 => (Kind::Call, field(0, 26, 2)),
        // b.cond and bc.cond; cbz and cbnz
        _ if word & 0xff00_0000 == 0x5400_0000 => (Kind::Jump, field(5, 19, 2)),
        _ if word & 0x7e00_0000 == 0x3400_0000 => (Kind::Jump, field(5, 19, 2)),
        // tbz and tbnz
        _ if word & 0x7e00_0000 == 0x3600_0000 => (Kind::Jump, field(5, 14, 2)),
        _ if word & 0x9f00_0000 == 0x1000_0000 => {
            (Kind::Address, field(5, 19, 2) | i64::from(word >> 29 & 3))
        }
        _ if word & 0x9f00_0000 == 0x9000_0000 => (Kind::Page, pages()),
        _ => return None,
    })
}

/// An instruction without addresses of other places: the bits that [`target`] reads.
pub(super) fn without_addresses(code: &[u8], at: u64, own: &std::ops::Range<u64>) -> Vec<u8> {
    let word = code.try_into().map(u32::from_le_bytes);
    let kept = word.ok().and_then(|word| {
        let (kind, offset) = target(word)?;
        let bits = match kind {
            _ if own.contains(&address(kind, at, offset)) => return None,
            Kind::Address | Kind::Page => 0x60ff_ffe0,
            _ if word & 0x7c00_0000 == 0x1400_0000 => 0x03ff_ffff,
            _ if word & 0x7e00_0000 == 0x3600_0000 => 0x0007_ffe0,
            _ => 0x00ff_ffe0,
        };
        Some((word & !bits).to_le_bytes().to_vec())
    });
    kept.unwrap_or_else(|| code.to_vec())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Check that instructions are decoded, and that targets are named: an offset in the function
    /// itself, or another function's name.
    #[test]
    fn names_of_targets() {
        let mut disassembler = Disassembler::new(Names {
            begin: 0x1000,
            size_bytes: 0x40,
            functions: BTreeMap::from([
                (0x1000, (0x40, "spin".into())),
                (0x1100, (0x40, "rest".into())),
            ]),
        });
        let mut disassembled = |word: u32, at| {
            let (text, jump) = disassembler.one(&word.to_le_bytes(), at);
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            (text, jump)
        };
        assert_eq!(disassembled(0xd503_201f, 0x1000), ("nop".into(), None));
        assert_eq!(disassembled(0xd65f_03c0, 0x1004), ("ret".into(), None));
        // b.ne, cbz and tbz backwards and forwards
        assert_eq!(disassembled(0x5400_00a1, 0x1000), ("b.ne +0x14".into(), Some(0x1014)));
        assert_eq!(disassembled(0xb4ff_ffe0, 0x1008), ("cbz x0, +0x4".into(), Some(0x1004)));
        let tested = disassembled(0x3600_0081, 0x1000);
        assert_eq!(tested, ("tbz w1, #0x0, +0x10".into(), Some(0x1010)));
        // In the form that objdump has.
        for (word, form) in [
            (0x2a00_03f4, "mov w20, w0"),
            (0x9100_03fd, "mov x29, sp"),
            (0x7100_041f, "cmp w0, #0x1"),
            (0x5280_0015, "mov w21, #0x0"),
            (0x1ac0_2021, "lsl w1, w1, w0"),
            (0xd503_233f, "paciasp"),
            (0xd503_245f, "bti c"),
            (0xd538_4100, "mrs x0, sp_el0"),
            (0xd503_3bbf, "dmb ish"),
            // As GNU as writes them: dc zva, x0; ic ivau, x3; dc cvau, x1; tlbi vmalle1is; clrex.
            (0xd50b_7420, "dc zva, x0"),
            (0xd50b_7523, "ic ivau, x3"),
            (0xd50b_7b21, "dc cvau, x1"),
            (0xd508_831f, "tlbi vmalle1is"),
            (0xd503_3f5f, "clrex"),
            (0x0b20_0020, "add w0, w1, w0, uxtb"),
            (0x2b20_2029, "adds w9, w1, w0, uxth"),
            (0xab20_d020, "adds x0, x1, w0, sxtw #4"),
            (0x4b20_a2b5, "sub w21, w21, w0, sxth"),
            (0x8b34_42a0, "add x0, x21, w20, uxtw"),
            (0x8b20_63e0, "add x0, sp, x0"),
            (0xcb20_63ff, "sub sp, sp, x0"),
            (0xcb20_6fff, "sub sp, sp, x0, lsl #3"),
            (0xeb20_c85f, "cmp x2, w0, sxtw #2"),
            (0xeb29_63ff, "cmp sp, x9"),
            (0x2b20_003f, "cmn w1, w0, uxtb"),
        ] {
            assert_eq!(disassembled(word, 0x1000).0, form);
        }
        // A call of another function, and a jump out of all.
        assert_eq!(disassembled(0x9400_0040, 0x1000), ("bl rest".into(), None));
        assert_eq!(disassembled(0x1400_4000, 0x1000), ("b 0x11000".into(), Some(0x11000)));
        assert_eq!(disassembled(0xffff_ffff, 0x1000).0, "(bad)");
        assert_eq!(disassembler.one(&[0x90], 0).0, "(bad)");
    }
}
