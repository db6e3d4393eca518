//! The frame generator on its own veth pairs: what was sent is what arrived.
//!
//! Needs root; elsewhere it is skipped.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod accepted;
mod common;
mod ledger;
mod rates;
