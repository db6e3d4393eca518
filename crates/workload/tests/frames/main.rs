//! The frame generator on its own veth pairs: all that it sends arrives.
//!
//! Needs root; elsewhere it is skipped.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod accepted;
mod common;
mod ledger;
mod rates;
