//! The selected parts of a report.

/// The parts to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// One layer only.
    pub layer: Option<String>,
    /// Functions in a table; 0 for all.
    pub top: usize,
    /// The call graph too.
    pub tree: bool,
    /// Width of the terminal, columns.
    pub columns: usize,
}

impl Default for View {
    fn default() -> Self {
        View { layer: None, top: 12, tree: false, columns: 100 }
    }
}
