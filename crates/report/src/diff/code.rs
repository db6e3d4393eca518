//! Whether functions of two kernels have the same code: their executed instructions, apart from addresses.
//!
//! A rebuilt kernel has its code and data at other addresses: lookups in hash tables walk other buckets, allocators
//! find room in other places. If a function's code is the same and its count changed, the reason is the same as with
//! another seed, or its callers.

use std::collections::BTreeMap;

use netplumb_model::arch::Arch;
use netplumb_model::code::FunctionCode;
use netplumb_model::recording::{FunctionId, Recording};

use super::arms::ArmPair;
use super::exact::Delta;
use super::functions::Joint;
use super::{Sides, Verdict};
use crate::asm;

/// The parts of a change in functions with different code, and in all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Split {
    /// Functions whose code differs, or is not known, and by how much they changed.
    pub other: (usize, Delta),
    /// The same for functions with the same code.
    pub same: (usize, Delta),
    /// How many functions that cost something have different code, changed or not.
    pub on_path: usize,
}

impl Split {
    /// From each function of a class: whether its code is the same, its change and its verdict.
    pub(super) fn from_functions(
        functions: impl Iterator<Item = (Option<bool>, Delta, Verdict)>,
        none: Delta,
    ) -> Split {
        let mut split = Split { other: (0, none), same: (0, none), on_path: 0 };
        for (same, delta, verdict) in functions {
            let part = match same {
                Some(true) => &mut split.same,
                Some(false) | None => {
                    split.on_path += 1;
                    &mut split.other
                }
            };
            if verdict.differs() {
                *part = (part.0 + 1, part.1.plus(&delta));
            }
        }
        split
    }

    /// Whether no code on the path differs.
    pub fn is_placement(&self) -> bool {
        self.on_path == 0 && self.same.0 > 0
    }
}

/// The code of both arms of a pair.
pub(super) struct Codes<'a> {
    sides: [BTreeMap<FunctionId, Code>; 2],
    recordings: [&'a Recording; 2],
}

/// Instructions by offset, without addresses.
type Code = BTreeMap<u32, Vec<u8>>;

impl<'a> Codes<'a> {
    /// None if a side's code is not known.
    pub(super) fn from_sides(sides: Sides<'a>, arms: ArmPair) -> Option<Codes<'a>> {
        let recordings = [sides.before, sides.after];
        let of = |recording: &Recording, arm: usize| {
            let arch = recording.arch(arm);
            let mut all: BTreeMap<FunctionId, Code> = BTreeMap::new();
            for code in recording.code.iter().filter(|c| c.arm as usize == arm) {
                let function = &recording.functions[code.function as usize];
                all.entry(code.function).or_default().extend(without_addresses(
                    arch,
                    code,
                    function.size_bytes,
                ));
            }
            (arch, all)
        };
        let (arch, before) = of(sides.before, arms.before);
        let (other, after) = of(sides.after, arms.after);
        (arch == other && !before.is_empty() && !after.is_empty())
            .then_some(Codes { sides: [before, after], recordings })
    }

    /// Whether the code of a function is the same; none if that is not known.
    pub(super) fn same(&self, joint: &Joint) -> Option<bool> {
        let ([before], [after]) = (&joint.before[..], &joint.after[..]) else {
            // On one side only.
            return (joint.before.is_empty() || joint.after.is_empty()).then_some(false);
        };
        let name = |n: usize, id: FunctionId| &self.recordings[n].functions[id as usize].name;
        if name(0, *before) != name(1, *after) {
            return Some(false);
        }
        Some(alike(self.sides[0].get(before)?, self.sides[1].get(after)?))
    }
}

/// Whether two pieces of code can be parts of the same code: no instruction of one differs from the other's, or begins
/// within one of them.
fn alike(before: &Code, after: &Code) -> bool {
    let fits = |one: &Code, other: &Code| {
        one.iter().all(|(offset, insn)| match other.get(offset) {
            Some(same) => same == insn,
            None => {
                let earlier = other.range(..offset).next_back();
                earlier.is_none_or(|(at, insn)| *at as usize + insn.len() <= *offset as usize)
            }
        })
    };
    before.keys().any(|offset| after.contains_key(offset))
        && fits(before, after)
        && fits(after, before)
}

fn without_addresses(
    arch: Arch,
    code: &FunctionCode,
    size_bytes: u64,
) -> impl Iterator<Item = (u32, Vec<u8>)> {
    let own = code.address..code.address.saturating_add(size_bytes.max(1));
    let insns = code.insns.iter().map(move |insn| {
        let at = code.address.wrapping_add(insn.offset.into());
        (insn.offset, asm::without_addresses(arch, insn.code(), at, &own))
    });
    insns.collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use netplumb_model::code::Instruction;

    use super::*;

    fn code(address: u64, insns: &[&[u8]]) -> Code {
        let mut offset = 0;
        let insns = insns.iter().map(|bytes| {
            let insn = Instruction::new(offset, bytes, 1).unwrap();
            offset += bytes.len() as u32;
            insn
        });
        let code = FunctionCode { arm: 0, function: 0, address, insns: insns.collect() };
        without_addresses(Arch::X86_64, &code, 64).collect()
    }

    /// Check that code is the same if calls, variables and percpu data are elsewhere, and not with another constant,
    /// another offset in a structure or another jump.
    #[test]
    fn same_but_for_addresses() {
        let call: &[u8] = &[0xe8, 0x10, 0x20, 0x30, 0x00];
        let load: &[u8] = &[0x48, 0x8b, 0x05, 1, 2, 3, 4];
        let percpu: &[u8] = &[0x65, 0x8b, 0x04, 0x25, 0x80, 0xc0, 0x01, 0x00];
        let pointer: &[u8] = &[0x48, 0xc7, 0xc7, 0x00, 0x10, 0x20, 0x82];
        let add: &[u8] = &[0x83, 0xc0, 0x03];
        let field: &[u8] = &[0x8b, 0x47, 0x10];
        let jump: &[u8] = &[0x75, 0x02];
        let here = [call, load, percpu, pointer, add, field, jump];
        let before = code(0xffff_ffff_8100_0000, &here);
        let moved = [
            &[0xe8, 0x55, 0x66, 0x77, 0x00][..],
            &[0x48, 0x8b, 0x05, 9, 8, 7, 6],
            &[0x65, 0x8b, 0x04, 0x25, 0x88, 0xd0, 0x01, 0x00],
            &[0x48, 0xc7, 0xc7, 0x40, 0x33, 0x21, 0x82],
            add,
            field,
            jump,
        ];
        assert!(alike(&before, &code(0xffff_ffff_8123_4500, &moved)));
        for (place, other) in [
            (4, &[0x83, 0xc0, 0x05][..]),
            (5, &[0x8b, 0x47, 0x18]),
            (6, &[0x75, 0x07]),
            (3, &[0x48, 0xc7, 0xc7, 0x05, 0x00, 0x00, 0x00]),
        ] {
            let mut changed = here;
            changed[place] = other;
            assert!(!alike(&before, &code(0xffff_ffff_8100_0000, &changed)), "{place}");
        }
        // Only a part was executed; and one more instruction moves all others.
        assert!(alike(&before, &code(0xffff_ffff_8100_0000, &here[..3])));
        let longer = [call, add, load, percpu, pointer, add, field, jump];
        assert!(!alike(&before, &code(0xffff_ffff_8100_0000, &longer)));
    }
}
