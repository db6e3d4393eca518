//! Cancellation.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Set by a signal handler, checked by everything that waits.
pub type Cancel = Arc<AtomicBool>;
