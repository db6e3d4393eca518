//! What the accounting could not follow.

/// What could not be followed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// Returns without a call in the stream.
    pub unmatched_returns: u64,
    /// Calls without a return address in the stream.
    pub calls_without_address: u64,
    /// Stack addresses outside of the kernel's half.
    pub bad_addresses: u64,
    /// Instructions in code that no symbol covers.
    pub insns_without_symbol: u64,
    /// Stacks deeper than any kernel's, given up.
    pub stacks_given_up: u64,
    /// Calls whose path was too long or too rare to be kept: they are shown below the
    /// root of their thread.
    pub ways_cut: u64,
    /// User instructions in code that is in none of the files.
    pub insns_without_file: u64,
    /// User instructions in code that several files have; one was taken.
    pub insns_of_equal_files: u64,
    /// Switches of user code to another stack in the middle of a function, as coroutines do.
    pub stack_switches: u64,
    /// Windows that were open when the stream ended.
    pub windows_cut: u64,
    /// Where samples are drawn: `popf` with an unknown effect.
    pub unknown_flags: u64,
    /// Where arguments are read: QEMU does not export what is necessary, or the values were never proven
    /// right.
    pub no_registers: bool,
    /// Where arguments are read: calls whose arguments could not be checked before any could.
    pub unchecked_arguments: u64,
}

impl Losses {
    /// Losses since an earlier count of the same stream.
    pub fn since(&self, before: &Losses) -> Losses {
        Losses {
            unmatched_returns: self.unmatched_returns - before.unmatched_returns,
            calls_without_address: self.calls_without_address - before.calls_without_address,
            bad_addresses: self.bad_addresses - before.bad_addresses,
            insns_without_symbol: self.insns_without_symbol - before.insns_without_symbol,
            stacks_given_up: self.stacks_given_up - before.stacks_given_up,
            ways_cut: self.ways_cut - before.ways_cut,
            insns_without_file: self.insns_without_file - before.insns_without_file,
            insns_of_equal_files: self.insns_of_equal_files - before.insns_of_equal_files,
            stack_switches: self.stack_switches - before.stack_switches,
            windows_cut: self.windows_cut - before.windows_cut,
            unknown_flags: self.unknown_flags - before.unknown_flags,
            no_registers: self.no_registers,
            unchecked_arguments: self.unchecked_arguments - before.unchecked_arguments,
        }
    }
}
