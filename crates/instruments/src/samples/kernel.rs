//! Names of the kernel's code.

use netplumb_kernel::kallsyms::{SymbolTable, SymbolText};
use netplumb_model::timing::Met;
use rustc_hash::FxHashSet;

use super::UNKNOWN;
use super::tree::nameless;
use crate::live::{LiveError, kernel_symbols};

/// The kernel's functions that were met, by its symbols when an address was last missing among
/// them.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    text: Option<SymbolText>,
    met: SymbolTable,
    /// Addresses that are in no symbol, also after these were read again.
    nameless: FxHashSet<u64>,
}

impl Kernel {
    /// The functions at some addresses, and at those just before them, which callers go by. The
    /// symbols are read again if an address is in none that is known: modules come.
    ///
    /// # Errors
    /// They can't be read.
    pub(super) fn symbols<'a>(
        &mut self,
        addresses: impl Iterator<Item = &'a u64>,
    ) -> Result<&SymbolTable, LiveError> {
        let mut new: FxHashSet<u64> = FxHashSet::default();
        for address in addresses {
            for at in [*address, address.wrapping_sub(1)] {
                if self.met.lookup_index(at).is_none() && !self.nameless.contains(&at) {
                    new.insert(at);
                }
            }
        }
        if let Some(text) = &self.text {
            new.retain(|at| !insert(&mut self.met, text, *at));
        }
        // At the end of a function, the next address may be in none.
        let is_new = |at: &u64| self.met.lookup_index(at.wrapping_sub(1)).is_none();
        if self.text.is_none() || new.iter().any(is_new) {
            let text = kernel_symbols()?;
            new.retain(|at| !insert(&mut self.met, &text, *at));
            self.text = Some(text);
        }
        self.nameless.extend(new);
        Ok(&self.met)
    }
}

/// Add the function at an address; returns whether there is one.
fn insert(met: &mut SymbolTable, text: &SymbolText, address: u64) -> bool {
    if met.lookup_index(address).is_some() {
        return true;
    }
    let found = text.lookup(address);
    let is_there = found.is_some();
    found.into_iter().for_each(|symbol| met.insert(symbol));
    is_there
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
