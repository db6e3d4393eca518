//! The symbols of a saved state. They are parsed while QEMU starts, which takes about as
//! long, and are first needed when the guest runs.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

use netplumb_kernel::kallsyms::SymbolTable;

use crate::error::EngineError;
use crate::receive;

type Parsed = Result<SymbolTable, EngineError>;

/// Symbols that are being parsed, or have been.
#[derive(Debug)]
pub(crate) struct Symbols {
    text: Arc<Vec<u8>>,
    kernel: String,
    table: OnceLock<SymbolTable>,
    /// The parsing thread, until it was waited for.
    ahead: Mutex<Option<JoinHandle<Parsed>>>,
}

impl Symbols {
    /// Start to parse a guest's /proc/kallsyms. `kernel` is for errors.
    pub(crate) fn begin(text: Arc<Vec<u8>>, kernel: &str) -> Symbols {
        let of_thread = (Arc::clone(&text), kernel.to_string());
        let thread = thread::Builder::new().name("plumb-symbols".into());
        let ahead = thread.spawn(move || receive::symbols(&of_thread.0, &of_thread.1));
        Symbols {
            text,
            kernel: kernel.to_string(),
            table: OnceLock::new(),
            // Without a thread they are parsed when they are waited for.
            ahead: Mutex::new(ahead.ok()),
        }
    }

    /// Wait for the table.
    ///
    /// # Errors
    /// The text is damaged, or the kernel lacks functions that identify paths. Later calls return
    /// the same error.
    pub(crate) fn wait(&self) -> Result<&SymbolTable, EngineError> {
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        if self.table.get().is_none() {
            let parsed = match ahead.take() {
                Some(thread) => {
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                }
                None => receive::symbols(&self.text, &self.kernel),
            };
            let _ = self.table.set(parsed?);
        }
        drop(ahead);
        // INVARIANT: it was set above, or before.
        #[allow(clippy::expect_used)]
        Ok(self.table.get().expect("the table is there"))
    }

    /// The table of a guest with these modules, as lines of its /proc/kallsyms, which replace earlier ones.
    ///
    /// # Errors
    /// As of [`Symbols::wait`].
    pub(crate) fn with_modules(&self, modules: &[u8]) -> Parsed {
        let lines = self.text.split_inclusive(|byte| *byte == b'\n');
        let kernel = lines.filter(|line| !line.trim_ascii_end().ends_with(b"]"));
        let text: Vec<u8> = kernel.chain([modules]).flatten().copied().collect();
        receive::symbols(&text, &self.kernel)
    }

    /// The table, if it is ready.
    pub(crate) fn table(&self) -> Option<&SymbolTable> {
        self.table.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the table is available to all that wait for it, and later, and that all get the
    /// same error.
    #[test]
    fn waiting() {
        let names = [
            "entry_SYSCALL_64",
            "asm_common_interrupt",
            "__switch_to_asm",
            "handle_softirqs",
            "net_rx_action",
            "__netif_receive_skb_core",
        ];
        let lines = names.iter().zip(1..).map(|(name, n)| format!("{n}000 t {name}\n"));
        let text: String = lines.chain(["9000 t old\t[nf]\n".to_string()]).collect();
        let symbols = Symbols::begin(Arc::new(text.into_bytes()), "6.1");
        for _ in 0..2 {
            assert_eq!(symbols.wait().unwrap().symbols().len(), names.len() + 1);
        }
        assert!(symbols.table().is_some());
        let later = symbols.with_modules(b"9000 t moved\t[nf]\na000 t new\t[nft_log]\n");
        let later = later.unwrap();
        let all_names: Vec<&str> = later.symbols().iter().map(|s| &*s.name).collect();
        assert_eq!(all_names[names.len()..], ["moved", "new"]);

        let symbols = Symbols::begin(Arc::new(b"1000 t lonely\n".to_vec()), "6.1");
        for _ in 0..2 {
            let error = symbols.wait().unwrap_err();
            assert!(matches!(error, EngineError::NoPathFunction { .. }), "{error}");
        }
        assert!(symbols.table().is_none());
    }
}
