//! Instructions of functions, and how often each was executed.

use serde::{Deserialize, Serialize};

use crate::tree::{FunctionId, SourceLine};

/// The longest instruction of x86-64, bytes (Intel SDM 2.3.11).
pub const MAX_INSN_BYTES: usize = 15;

/// The instructions of a function that were executed in an arm, in all of its blocks together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionCode {
    /// Index into [`Recording::arms`](crate::recording::Recording::arms).
    pub arm: u32,
    /// The function. Static functions of one name are one function with a list each.
    pub function: FunctionId,
    /// Where it begins: the kernel's address, or that in a program's file.
    pub address: u64,
    /// In the order of offsets.
    pub insns: Vec<Instruction>,
}

/// An instruction that was executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instruction {
    /// Bytes from the beginning of the function.
    pub offset: u32,
    /// How often it was executed; each repetition of a string instruction counts.
    pub times: u64,
    /// Its source line, if its file has debug information.
    pub source: Option<SourceLine>,
    size: u8,
    code: [u8; MAX_INSN_BYTES],
}

impl Instruction {
    /// An instruction with this machine code; none if that is empty or too long.
    pub fn new(offset: u32, code: &[u8], times: u64) -> Option<Instruction> {
        let mut padded = [0; MAX_INSN_BYTES];
        padded.get_mut(..code.len())?.copy_from_slice(code);
        (!code.is_empty()).then_some(Instruction {
            offset,
            times,
            source: None,
            size: code.len() as u8,
            code: padded,
        })
    }

    /// The same with a source line.
    #[must_use]
    pub fn at(self, source: Option<SourceLine>) -> Instruction {
        Instruction { source, ..self }
    }

    /// Its machine code, as it was executed: after the kernel's own patching.
    pub fn code(&self) -> &[u8] {
        &self.code[..usize::from(self.size).min(MAX_INSN_BYTES)]
    }

    /// The offset of the instruction after it.
    pub fn end(&self) -> u64 {
        u64::from(self.offset) + u64::from(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that instructions have 1 to 15 bytes.
    #[test]
    fn sizes() {
        let sizes = [0, 1, 15, 16].map(|n| Instruction::new(7, &vec![0x90; n], 1));
        let ends = sizes.map(|insn| insn.map(|insn| (insn.code().len(), insn.end())));
        assert_eq!(ends, [None, Some((1, 8)), Some((15, 22)), None]);
    }
}
