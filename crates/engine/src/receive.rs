//! Checks that a kernel's receive path is found by function names: otherwise receive work would be
//! counted as the sender's, and that is an error, not a smaller number.

use netplumb_instruments::exact::Window;
use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_kernel::path_rules::PathRules;
use netplumb_model::class::{Context, Direction, Softirq};
use netplumb_model::recording::Ledger;

use crate::error::EngineError;

/// Parse a guest's symbols, which must include the functions that identify paths.
pub(crate) fn symbols(text: &[u8], kernel: &str) -> Result<SymbolTable, EngineError> {
    let table = SymbolTable::parse(text)?;
    let names = table.symbols().iter().map(|symbol| symbol.name.as_str());
    match PathRules::built_in().missing(names) {
        None => Ok(table),
        Some(missing) => Err(EngineError::NoPathFunction {
            kernel: kernel.to_string(),
            what: missing.what,
            names: missing.names.join(", "),
        }),
    }
}

/// Check that packets that were delivered were received in a softirq.
pub(crate) fn seen(blocks: &[(Window, Ledger)], kernel: &str) -> Result<(), EngineError> {
    // That softirq also runs transmit completions.
    let receives = |window: &Window| {
        let mut costs = window.costs.iter();
        costs.any(|cost| {
            cost.context == Context::Softirq(Softirq::NetRx)
                && !matches!(cost.direction, Direction::Tx | Direction::Other)
        })
    };
    let good = |(window, ledger): &(Window, Ledger)| ledger.delivered == 0 || receives(window);
    if blocks.iter().all(good) {
        return Ok(());
    }
    Err(EngineError::NoReceiveWork {
        kernel: kernel.to_string(),
        names: PathRules::built_in().receive_path().join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The functions that identify paths, as of a PREEMPT_RT kernel, without one of them.
    fn kernel(without: &str) -> String {
        [
            "entry_SYSCALL_64",
            "asm_common_interrupt",
            "__switch_to_asm",
            "handle_softirqs.constprop.0",
            "net_rx_action",
            "__netif_receive_skb_core.constprop.0",
        ]
        .iter()
        .filter(|name| **name != without)
        .zip(1..)
        .map(|(name, n)| format!("{n}000 t {name}\n"))
        .collect()
    }

    /// Check that a kernel whose receive path can't be found is an error, with the names that were
    /// looked for and the kernel; and that clones count as their function.
    #[test]
    fn kernels_without_a_receive_path() {
        assert!(symbols(kernel("").as_bytes(), "6.12-rt").is_ok());
        for (without, looked_for) in [
            ("handle_softirqs.constprop.0", "__do_softirq, handle_softirqs"),
            ("net_rx_action", "net_rx_action"),
            ("__netif_receive_skb_core.constprop.0", "__netif_receive_skb_one_core"),
        ] {
            let error = symbols(kernel(without).as_bytes(), "6.12-rt").unwrap_err();
            let text = error.to_string();
            assert!(text.contains("6.12-rt") && text.contains(looked_for), "{text}");
        }
    }
}
