//! Registers where calls are traced with their arguments.

use netplumb_kernel::prototype::REGISTERS;

use super::super::stream::MAX_TEXT_BYTES;
use super::losses::Losses;

/// Registers at the running block.
#[derive(Debug, Default)]
pub(super) struct Registers {
    /// Where it began, if a call or a jump may have led there.
    pub(super) arguments: Option<[u64; REGISTERS]>,
    /// Texts that some of them point to.
    pub(super) texts: Vec<(u8, String)>,
    /// At the return that ends it.
    pub(super) returned: Option<u64>,
    /// Whether they have been right at a call, by the stack pointer.
    pub(super) proven: bool,
}

impl Registers {
    /// The next block runs.
    pub(super) fn clear(&mut self) {
        (self.arguments, self.returned) = (None, None);
        self.texts.clear();
    }

    /// Whether none could be checked of all that were read.
    pub(super) fn is_wrong(&self, losses: &Losses) -> bool {
        losses.unchecked_arguments > 0 && !self.proven
    }

    /// A register points to this text.
    pub(super) fn text(&mut self, register: u8, bytes: &[u8]) {
        let mut text = String::from_utf8_lossy(bytes).into_owned();
        if bytes.len() == MAX_TEXT_BYTES {
            text.push('\u{2026}');
        }
        self.texts.push((register, text));
    }

    /// A part of the block runs: arguments are where a function begins with the block.
    pub(super) fn at(&mut self, part: usize, at_entry: bool) {
        if part > 0 || !at_entry {
            self.arguments = None;
        }
    }
}
