//! Runs the target that `$PLUMB_FUZZ` names on what libFuzzer makes up.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use netplumb_fuzz::{Target, named};

static TARGET: OnceLock<Target> = OnceLock::new();

fuzz_target!(|data: &[u8]| {
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("PLUMB_FUZZ").unwrap_or_default();
        named(&name).unwrap_or_else(|| panic!("PLUMB_FUZZ={name}: no such target"))
    });
    let _ = (target.run)(data);
});
