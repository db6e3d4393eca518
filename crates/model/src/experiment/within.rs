//! Where in a topology something is done.

use crate::class::words;

words! {
    /// In which namespaces rules are applied, or on whose egress a queueing discipline is.
    Within, "namespace",
    /// The sender's.
    Tx = "tx",
    /// The receiver's.
    Rx = "rx",
    /// Both ends'.
    Both = "both",
    /// The router's.
    Router = "router",
}
