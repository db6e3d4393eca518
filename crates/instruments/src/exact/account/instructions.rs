//! How often each instruction was executed in windows.

use std::collections::BTreeMap;

use netplumb_model::code::MAX_INSN_BYTES;
use rustc_hash::FxHashMap;

use super::super::block::Block;
use super::super::tree::Symbol;
use super::{Accountant, Running};

/// How often an instruction was executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RanInsn {
    /// The function, by its number among the kernel's or the programs' symbols.
    pub symbol: Symbol,
    /// Its address: the kernel's, or in a program's file.
    pub address: u64,
    /// Its machine code.
    pub code: Vec<u8>,
    /// How often, in all windows.
    pub times: u64,
}

impl Accountant<'_> {
    /// Count a block's run for [`Accountant::instructions`].
    pub(super) fn count_run(&mut self, block: &mut Block, running: &Running) {
        if self.window.is_none() {
            return;
        }
        match running.ran {
            Some(ran) if ran < block.insns => {
                *self.cut.short.entry((running.id, ran)).or_default() += 1;
                return;
            }
            // `rep` counts every time around.
            Some(ran) if ran > block.insns => {
                let more = u64::from(ran - block.insns);
                *self.cut.more.entry(running.id).or_default() += more;
            }
            _ => {}
        }
        block.runs += 1;
    }

    /// The instructions that were executed in windows so far: of the kernel, and of a command's
    /// programs. In the order of symbols and addresses.
    pub fn instructions(&self) -> Vec<RanInsn> {
        let mut short: FxHashMap<u32, Vec<(u32, u64)>> = FxHashMap::default();
        for ((block, insns), times) in &self.cut.short {
            short.entry(*block).or_default().push((*insns, *times));
        }
        let mut sums: BTreeMap<(Symbol, u64), (&[u8], u64)> = BTreeMap::new();
        for (id, block) in (0..).zip(&self.blocks) {
            let Some(block) = block else { continue };
            let short = short.get(&id).map_or(&[][..], Vec::as_slice);
            if block.runs == 0 && short.is_empty() {
                continue;
            }
            let address = match &block.code {
                Some(code) => code.address,
                None if block.user => continue,
                None => block.start,
            };
            let more = self.cut.more.get(&id).copied().unwrap_or(0);
            for (n, (at, symbol, code)) in (1..).zip(block.insns(address)) {
                let cut = short.iter().filter(|(insns, _)| *insns >= n);
                let mut times = block.runs + cut.map(|(_, times)| times).sum::<u64>();
                if n == block.insns {
                    times += more;
                }
                if times > 0 && (1..=MAX_INSN_BYTES).contains(&code.len()) {
                    let sum = sums.entry((symbol, at)).or_insert((code, 0));
                    sum.1 += times;
                }
            }
        }
        let all = sums.into_iter();
        all.map(|((symbol, address), (code, times))| RanInsn {
            symbol,
            address,
            code: code.into(),
            times,
        })
        .collect()
    }
}
