//! The frame generator on veth pairs of its own: what was sent is what came.
//!
//! Needs root; elsewhere it is skipped.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod accepted;
mod common;
mod ledger;
mod rates;
