//! The exception vectors of arm64: one symbol with sixteen entries. Each is a function here, since one is entered by
//! interrupts and another by system calls.

use crate::symbol::Symbol;

/// Tables of the kernel (arch/arm64/kernel/entry.S): the second and third are used where the CPU needs
/// mitigations.
const TABLES: [&str; 3] = ["vectors", "tramp_vectors", "__bp_harden_el1_vectors"];
/// Size of a table, to which its address is aligned (Arm ARM, VBAR_EL1), and of an entry.
const TABLE_BYTES: u64 = 0x800;
/// A symbol has one for each mitigation, and may reach up to the next symbol. What is longer is no table: sizes are what
/// others say.
const MAX_BYTES: u64 = 32 * TABLE_BYTES;
const ENTRY_BYTES: u64 = 0x80;
/// Who was interrupted: on the stack of user mode, on the kernel's own, 64-bit and 32-bit user code.
const FROM: [&str; 4] = ["el1t_64", "el1h_64", "el0t_64", "el0t_32"];
const WHAT: [&str; 4] = ["sync", "irq", "fiq", "error"];

/// The entry at an offset into a table.
fn entry(offset: u64) -> String {
    let number = (offset % TABLE_BYTES / ENTRY_BYTES) as usize;
    format!("{}_{}", FROM[number / 4], WHAT[number % 4])
}

/// Replace each table by its entries: `vectors:el1h_64_irq`. Others are left as they are.
pub(crate) fn split(symbols: Vec<Symbol>) -> Vec<Symbol> {
    let is_table = |symbol: &Symbol| {
        let is_named = TABLES.contains(&symbol.name.as_str());
        is_named && symbol.addr.is_multiple_of(TABLE_BYTES) && symbol.size <= MAX_BYTES
    };
    if !symbols.iter().any(is_table) {
        return symbols;
    }
    let mut all = Vec::with_capacity(symbols.len() + 64);
    for symbol in symbols {
        if !is_table(&symbol) {
            all.push(symbol);
            continue;
        }
        let tables_bytes = symbol.size / TABLE_BYTES * TABLE_BYTES;
        for offset in (0..tables_bytes).step_by(ENTRY_BYTES as usize) {
            all.push(Symbol {
                addr: symbol.addr + offset,
                size: ENTRY_BYTES,
                name: format!("{}:{}", symbol.name, entry(offset)),
                module: symbol.module.clone(),
                aliases: Vec::new(),
            });
        }
        // The entries' targets, without symbols.
        if tables_bytes < symbol.size {
            all.push(Symbol {
                addr: symbol.addr + tables_bytes,
                size: symbol.size - tables_bytes,
                ..symbol
            });
        }
    }
    all
}
