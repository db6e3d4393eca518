//! Names of the kernel's code.

use std::fs;

use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_model::timing::Met;
use rustc_hash::FxHashSet;

use super::UNKNOWN;
use super::tree::nameless;
use crate::live::LiveError;

/// The kernel's symbols, as they were when last something new was not among them.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    symbols: Option<SymbolTable>,
    /// Addresses that are in no symbol, also after these were read again.
    nameless: FxHashSet<u64>,
}

impl Kernel {
    /// Its symbols, read again if an address is in none of those that are known: modules come.
    ///
    /// # Errors
    /// They can't be read.
    pub(super) fn symbols<'a>(
        &mut self,
        addresses: impl Iterator<Item = &'a u64>,
    ) -> Result<&SymbolTable, LiveError> {
        let known = self.symbols.take();
        let is_known = |address: &u64| {
            let known = known.as_ref();
            known.is_some_and(|symbols| symbols.lookup_index(*address).is_some())
        };
        let new: Vec<u64> = addresses
            .filter(|address| !is_known(address) && !self.nameless.contains(address))
            .copied()
            .collect();
        let symbols = match known.filter(|_| new.is_empty()) {
            Some(symbols) => symbols,
            None => {
                let doing = "read the symbols";
                let text = fs::read("/proc/kallsyms").map_err(LiveError::system(doing))?;
                SymbolTable::parse(&text).map_err(LiveError::system(doing))?
            }
        };
        let nameless = new.into_iter();
        (self.nameless).extend(nameless.filter(|at| symbols.lookup_index(*at).is_none()));
        Ok(self.symbols.insert(symbols))
    }
}

/// The symbols of a stack, where the CPU was first. Callers go by the instruction that calls: what
/// follows may be another's.
pub(super) fn found(symbols: &SymbolTable, stack: &[u64]) -> Vec<Option<usize>> {
    (0..)
        .zip(stack)
        .map(|(depth, address)| match depth {
            0 => symbols.lookup_index(*address),
            _ => symbols.lookup_index(address.wrapping_sub(1)),
        })
        .collect()
}

/// The name of a symbol.
pub(super) fn name(symbols: &SymbolTable, at: Option<usize>) -> &str {
    at.map_or(UNKNOWN, |at| &symbols.symbols()[at].name)
}

/// A symbol as a function.
pub(super) fn met(symbols: &SymbolTable, at: Option<usize>) -> Met {
    let Some(symbol) = at.map(|at| &symbols.symbols()[at]) else {
        return nameless(UNKNOWN);
    };
    Met {
        name: symbol.name.clone(),
        module: symbol.module.clone(),
        user: false,
        address: symbol.addr,
        size_bytes: symbol.size,
    }
}
