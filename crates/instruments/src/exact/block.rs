//! Blocks of code, cut at the borders of functions.

use netplumb_kernel::kallsyms::SymbolTable;

use super::stream::Kind;
use super::tree::{Symbol, UNKNOWN};

/// A run of instructions of one block in one function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) symbol: Symbol,
    pub(super) insns: u32,
    /// Whether it begins where the function does.
    pub(super) at_entry: bool,
}

/// A block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) segments: Vec<Segment>,
    pub(super) insns: u32,
    pub(super) kind: Kind,
    /// The address of its first instruction.
    pub(super) start: u64,
    /// The address after its last instruction: where a call returns to.
    pub(super) end: u64,
}

impl Block {
    pub(super) fn new(symbols: &SymbolTable, address: u64, kind: Kind, sizes: &[u8]) -> Block {
        let mut segments: Vec<Segment> = Vec::with_capacity(1);
        let mut at = address;
        // Up to here the last segment's function reaches.
        let mut reach = address;
        for &size in sizes {
            if at >= reach {
                let (symbol, start, end) = match symbols.lookup_index(at) {
                    Some(index) => {
                        let symbol = &symbols.symbols()[index];
                        (index as Symbol, symbol.addr, symbol.addr + symbol.size)
                    }
                    None => (UNKNOWN, at, at + 1),
                };
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
            at += u64::from(size);
        }
        Block {
            segments,
            insns: sizes.len() as u32,
            kind,
            start: address,
            end: at,
        }
    }
}
