//! Totals of a file's reads.

use netplumb_model::text::plural;

/// The total of reads of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Total {
    /// Bytes of the file that were read; with mmap, bytes on accessed pages.
    pub bytes: u64,
    /// Calls of `read(2)`, or pages that were accessed.
    pub accesses: u64,
}

/// The total, in a line.
pub fn said(total: &Total) -> String {
    let Total { bytes, accesses } = total;
    let noun = |n: u64, noun| plural(usize::try_from(n).unwrap_or(usize::MAX), noun);
    let (unit, times) = (noun(*bytes, "byte"), noun(*accesses, "access"));
    format!("read {bytes} {unit} in {accesses} {times}\n")
}
