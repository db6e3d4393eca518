//! A function of a kernel, by its address.

/// One function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// Where it begins.
    pub addr: u64,
    /// Bytes up to the next symbol.
    pub size: u64,
    /// The preferred name at this address.
    pub name: String,
    /// The module that it is in; `bpf` for BPF programs, `None` for the kernel itself.
    pub module: Option<String>,
    /// The other names at this address, the best first.
    pub aliases: Vec<String>,
}

impl Symbol {
    /// Whether the address is within the function.
    pub fn contains(&self, addr: u64) -> bool {
        addr.wrapping_sub(self.addr) < self.size
    }
}
