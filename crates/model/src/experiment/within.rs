//! Where in a topology rules and qdiscs are attached.

use crate::class::words;

words! {
    /// The hosts whose rules or egress qdisc are set.
    Within, "place",
    /// The sender.
    Tx = "tx",
    /// The receiver.
    Rx = "rx",
    /// Sender and receiver.
    Both = "both",
    /// The router.
    Router = "router",
}
