//! Blocks of code, cut at the borders of functions.

use netplumb_kernel::kallsyms::SymbolTable;

use super::interrupts::Change;
use super::stream::Kind;
use super::tree::{Symbol, UNKNOWN};
use super::user::{User, UserCode};
use crate::image::Page;

/// A run of instructions of one block in one function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) symbol: Symbol,
    pub(super) insns: u32,
    /// Whether it begins where the function does.
    pub(super) at_entry: bool,
}

/// A block of the stream, with the functions that its instructions are in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) segments: Vec<Segment>,
    pub(super) insns: u32,
    pub(super) kind: Kind,
    /// The address of its first instruction.
    pub(super) start: u64,
    /// The address after its last instruction: where a call returns to.
    pub(super) end: u64,
    /// Instructions of the kernel that change whether interrupts come, by their numbers.
    pub(super) changes: Box<[(u16, Change)]>,
    /// It is user code.
    pub(super) user: bool,
    /// ... that is in none of the files.
    pub(super) nowhere: bool,
    /// ... or in another one than was assumed, too.
    pub(super) guessed: bool,
    /// The image whose program begins here.
    pub(super) starts: Option<u32>,
    /// Whole runs of it in all windows.
    pub(super) runs: u64,
    pub(super) text: Box<Text>,
    /// None for the kernel's code, and for code in no file.
    pub(super) code: Option<Box<Code>>,
}

/// The instructions of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Text {
    sizes: Box<[u8]>,
    code: Box<[u8]>,
}

impl Text {
    /// The machine code of each.
    fn insns(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &*self.code;
        self.sizes.iter().map(move |size| {
            let (insn, after) = rest.split_at(rest.len().min(usize::from(*size)));
            rest = after;
            insn
        })
    }
}

/// Where a block of user code is from, and how often it ran in the window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Code {
    pub(super) image: u32,
    /// The address of its first instruction in the file.
    pub(super) address: u64,
    /// Whole runs of it.
    pub(super) times: u64,
}

impl Block {
    /// A block of user code.
    pub(super) fn of_user(
        user: &mut User,
        address: u64,
        kind: Kind,
        text: (&[u8], &[u8]),
        page: Page,
    ) -> Block {
        let starts = user.starts(address, page);
        let mut block = Block::cut(address, kind, text, |at| {
            let found = user.find(address, page, at);
            (found.symbol, found.start, found.end)
        });
        block.user = true;
        let place = user.place(address, page);
        block.nowhere = place.is_none();
        block.guessed = place.is_some_and(|(_, guessed)| guessed);
        block.starts = starts;
        block.code = place.map(|(place, _)| {
            Box::new(Code {
                image: place.image,
                address: address.wrapping_sub(place.bias),
                times: 0,
            })
        });
        block
    }

    /// Address in its file and symbol of each instruction, of user code that has one.
    pub(super) fn user_code(&self) -> Option<UserCode> {
        let code = self.code.as_ref()?;
        let insns = self.insns(code.address);
        Some(UserCode {
            image: code.image,
            insns: insns.map(|(at, symbol, _)| (at, symbol)).collect(),
        })
    }

    /// Address, symbol and machine code of each instruction, if the first is at `address`.
    pub(super) fn insns(&self, address: u64) -> impl Iterator<Item = (u64, Symbol, &[u8])> {
        let symbols =
            self.segments.iter().flat_map(|s| std::iter::repeat_n(s.symbol, s.insns as usize));
        let mut at = address;
        self.text.insns().zip(symbols).map(move |(code, symbol)| {
            let this = at;
            at = at.wrapping_add(code.len() as u64);
            (this, symbol, code)
        })
    }

    /// A block of the kernel.
    pub(super) fn new(
        symbols: &SymbolTable,
        address: u64,
        kind: Kind,
        text: (&[u8], &[u8]),
        changes: Vec<(u16, Change)>,
    ) -> Block {
        let find = |at| match symbols.lookup_index(at) {
            Some(index) => {
                let symbol = &symbols.symbols()[index];
                (index as Symbol, symbol.addr, symbol.addr.saturating_add(symbol.size))
            }
            None => (UNKNOWN, at, at.saturating_add(1)),
        };
        Block { changes: changes.into(), ..Block::cut(address, kind, text, find) }
    }

    /// Cut at the borders of functions, which `find` looks up by address: symbol, start
    /// and end. The text is the sizes of instructions, and their code.
    fn cut(
        address: u64,
        kind: Kind,
        (sizes, code): (&[u8], &[u8]),
        mut find: impl FnMut(u64) -> (Symbol, u64, u64),
    ) -> Block {
        let mut segments: Vec<Segment> = Vec::with_capacity(1);
        let mut at = address;
        // Up to here the last segment's function reaches.
        let mut reach = address;
        for &size in sizes {
            if at >= reach {
                let (symbol, start, end) = find(at);
                reach = end;
                match segments.last_mut() {
                    Some(last) if last.symbol == symbol => {}
                    _ => segments.push(Segment {
                        symbol,
                        insns: 0,
                        at_entry: symbol != UNKNOWN && at == start,
                    }),
                }
            }
            if let Some(last) = segments.last_mut() {
                last.insns += 1;
            }
            // Addresses are what a guest says.
            at = at.saturating_add(u64::from(size));
        }
        Block {
            segments,
            insns: sizes.len() as u32,
            kind,
            start: address,
            end: at,
            changes: Box::default(),
            user: false,
            nowhere: false,
            guessed: false,
            starts: None,
            runs: 0,
            text: Box::new(Text { sizes: sizes.into(), code: code.into() }),
            code: None,
        }
    }
}
