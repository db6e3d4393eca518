//! What frames.h declares, made of it when this is built.

mod made {
    #![allow(dead_code, reason = "not all that a header declares is used")]

    use netplumb_sys::plain::Plain;

    include!(concat!(env!("OUT_DIR"), "/frames.rs"));
}

pub(super) use made::{Config, MIX, SIZES, Slot, Template, WORDS};

/// What is owed for longer is forgotten.
pub(super) const BEHIND_NS: u64 = made::BEHIND_NS as u64;
/// So that the sums of times between frames, in 1/65536 ns and times a number of 16
/// bits, stay in 64.
pub(super) const PPS_LEAST: f64 = 1.0;

/// `enum frames_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Mode {
    Full = made::FULL as u32,
    Loop = made::LOOP as u32,
    Redirect = made::REDIRECT as u32,
}
