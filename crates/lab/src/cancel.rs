//! How a wait is given up.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Set by a signal handler, seen by every wait.
pub type Cancel = Arc<AtomicBool>;
