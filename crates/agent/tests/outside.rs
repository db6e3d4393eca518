//! The agent where there is no guest.

#![allow(clippy::unwrap_used)]

use std::process::Command;

/// Check that the agent says what it is, and does nothing, on a machine that is not one of our
/// guests.
#[test]
fn outside_of_guests() {
    let mut agent = Command::new(env!("CARGO_BIN_EXE_plumb-agent"));
    let ran = agent.output().unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(2));
    assert!(said.contains("init of its guests"), "{said}");
}
