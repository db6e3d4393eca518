//! Instructions of functions, packed: some 5 bytes each.
//!
//! A row is a zlib stream of numbers in LEB128, then machine code: of each function its number, its
//! address, and how many instructions it has; of each instruction, in the order of functions, the
//! offset, how often it was executed, its length, and 0 or its source line, as the file's number from 1
//! and the line; then the machine code of all.

use netplumb_model::code::{FunctionCode, Instruction, MAX_INSN_BYTES};
use netplumb_model::recording::{Recording, SourceLine};
use rusqlite::{Connection, Transaction, params};

use crate::packed::{NUMBER_BYTES, number, put_number, unzlib, zlib};
use crate::row::{Wrong, count, each, get};

/// Most instructions of a recording.
const MAX_INSNS: u64 = 1 << 24;
/// Most bytes of a function or instruction, unpacked.
const MAX_BYTES: u64 = 5 * NUMBER_BYTES as u64 + MAX_INSN_BYTES as u64;

/// Write what is new: a row for each arm.
pub(crate) fn add(
    to: &Transaction<'_>,
    recording: &Recording,
    before: usize,
) -> rusqlite::Result<()> {
    let mut put = to.prepare("INSERT INTO code VALUES (NULL, ?, ?, ?, ?)")?;
    let new = recording.code.get(before..).unwrap_or_default();
    for of_arm in new.chunk_by(|a, b| a.arm == b.arm) {
        let arm = of_arm.first().map(|first| first.arm);
        let insns: usize = of_arm.iter().map(|code| code.insns.len()).sum();
        let packed = pack(of_arm)?;
        put.execute(params![arm, of_arm.len() as i64, insns as i64, packed])?;
    }
    Ok(())
}

/// Read all.
pub(crate) fn load(c: &Connection, recording: &mut Recording) -> Result<(), Wrong> {
    let mut all = 0_u64;
    each(c, "code", "arm, functions, insns, columns", "id", |_, r| {
        let (arm, functions, insns) = (get(r, 0)?, count(r, 1)?, count(r, 2)?);
        all = all.saturating_add(insns);
        if all > MAX_INSNS || functions > insns {
            let why = format!("{functions} functions with {insns} instructions");
            return Err(Wrong::Found(why));
        }
        let packed = r.get_ref(3)?;
        let packed = packed.as_blob().map_err(|e| Wrong::Found(e.to_string()))?;
        match unpack(packed, arm, functions, insns) {
            Some(code) => recording.code.extend(code),
            None => return Err(Wrong::Found(format!("no {insns} instructions in it"))),
        }
        Ok(())
    })
}

fn pack(all: &[FunctionCode]) -> rusqlite::Result<Vec<u8>> {
    let mut columns: [Vec<u8>; 6] = Default::default();
    let [functions, offsets, times, sizes, sources, code] = &mut columns;
    for one in all {
        for number in [u64::from(one.function), one.address, one.insns.len() as u64] {
            put_number(functions, number);
        }
        let mut before = 0;
        for insn in &one.insns {
            put_number(offsets, u64::from(insn.offset - before));
            before = insn.offset;
            put_number(times, insn.times);
            put_number(sizes, insn.code().len() as u64);
            code.extend(insn.code());
            match insn.source {
                Some(source) => {
                    put_number(sources, u64::from(source.file) + 1);
                    put_number(sources, u64::from(source.line));
                }
                None => put_number(sources, 0),
            }
        }
    }
    zlib(&columns)
}

/// Exactly these numbers of functions and instructions.
fn unpack(packed: &[u8], arm: u32, functions: u64, insns: u64) -> Option<Vec<FunctionCode>> {
    let bytes = unzlib(packed, (functions + insns) * MAX_BYTES)?;
    let rest = &mut bytes.as_slice();
    let mut heads = Vec::new();
    let mut left = insns;
    for _ in 0..functions {
        let head: (u32, u64, u64) = (number(rest)?.try_into().ok()?, number(rest)?, number(rest)?);
        left = left.checked_sub(head.2)?;
        heads.push(head);
    }
    if left > 0 {
        return None;
    }
    // As many as there are bytes, at most.
    let column =
        |rest: &mut &[u8]| -> Option<Vec<u64>> { (0..insns).map(|_| number(rest)).collect() };
    let (offsets, times, sizes) = (column(rest)?, column(rest)?, column(rest)?);
    let mut sources = Vec::new();
    for _ in 0..insns {
        sources.push(match number(rest)? {
            0 => None,
            file => Some(SourceLine {
                file: (file - 1).try_into().ok()?,
                line: number(rest)?.try_into().ok()?,
            }),
        });
    }
    let mut columns = offsets.into_iter().zip(times).zip(sizes).zip(sources);
    let mut all = Vec::with_capacity(heads.len());
    for (function, address, count) in heads {
        let mut of = Vec::new();
        let mut before = None;
        for (((gap, times), size), source) in columns.by_ref().take(count as usize) {
            // Of the same address twice, or of a count that the file's sums don't hold.
            if before.is_some() && gap == 0 || times == 0 || times > i64::MAX as u64 {
                return None;
            }
            let offset: u32 = u64::from(before.unwrap_or(0)).checked_add(gap)?.try_into().ok()?;
            before = Some(offset);
            let (code, after) = rest.split_at_checked(usize::try_from(size).ok()?)?;
            *rest = after;
            of.push(Instruction::new(offset, code, times)?.at(source));
        }
        all.push(FunctionCode { arm, function, address, insns: of });
    }
    rest.is_empty().then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what is packed is what comes out, and that nothing else is taken for it.
    #[test]
    fn round_trip() {
        let insn = |offset, code: &[u8], times| Instruction::new(offset, code, times).unwrap();
        let line = SourceLine { file: 3, line: 70 };
        let all = vec![
            FunctionCode {
                arm: 2,
                function: 9,
                address: u64::MAX - 7,
                insns: vec![insn(0, &[0x90], 1), insn(4, &[7; 15], i64::MAX as u64)],
            },
            FunctionCode {
                arm: 2,
                function: 1,
                address: 0,
                insns: vec![insn(u32::MAX, &[1, 2], 300).at(Some(line))],
            },
        ];
        let packed = pack(&all).unwrap();
        assert_eq!(unpack(&packed, 2, 2, 3), Some(all));
        for (functions, insns) in [(2, 2), (1, 3), (2, 4), (3, 3)] {
            assert_eq!(unpack(&packed, 2, functions, insns), None);
        }
        assert_eq!(unpack(&packed[..packed.len() / 2], 2, 2, 3), None);
    }

    /// Check that instructions at one address, that were never executed, or without machine code are
    /// refused.
    #[test]
    fn made_up() {
        let packed = |numbers: &[u64], code: &[u8]| {
            let mut bytes = Vec::new();
            for number in numbers {
                put_number(&mut bytes, *number);
            }
            bytes.extend(code);
            zlib(&[bytes]).unwrap()
        };
        let two = |offset, times, size, code: &[u8]| {
            let numbers = [0, 0, 2, 0, offset, 1, times, 1, size, 0, 0];
            unpack(&packed(&numbers, code), 0, 1, 2)
        };
        assert!(two(1, 1, 1, &[0x90, 0x90]).is_some());
        assert!(two(0, 1, 1, &[0x90, 0x90]).is_none());
        assert!(two(1, 0, 1, &[0x90, 0x90]).is_none());
        assert!(two(1, 1, 0, &[0x90]).is_none());
        assert!(two(1, 1, 16, &[0x90; 17]).is_none());
        assert!(two(1, 1, 2, &[0x90, 0x90]).is_none());
        assert!(two(1 << 32, 1, 1, &[0x90, 0x90]).is_none());
    }
}
