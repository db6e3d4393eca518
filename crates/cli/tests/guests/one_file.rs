//! The program as one file: with the agent for guests inside.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{Place, Running};
use netplumb_lab::vm::agent;
use netplumb_model::arch::Arch;

const WORDS: &str = "path -q --link lo --proto udp --packets 20 --blocks 1 -o x.plumb";

/// Check that a copy of the program boots guests with the agent that `scripts/embed.sh` put into it, and that one
/// without an agent reports it, with what to do.
#[test]
fn a_copy_of_the_program() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    fs::create_dir(place.path("bin")).unwrap();
    let own = place.path("bin/plumb");
    let beside = place.path("bin").join(agent::file_name(Arch::OWN));
    // `make build` may have put one inside.
    let mut bare = Command::new("objcopy");
    bare.args(["--remove-section", ".plumb.agent.*"]).arg(env!("CARGO_BIN_EXE_plumb")).arg(&own);
    assert!(bare.status().unwrap().success());
    let run = || {
        let mut command = place.command(&own);
        command.args(WORDS.split(' '));
        command.env_remove(agent::variable(Arch::OWN));
        Running::start(&mut command).finish()
    };
    run().code(3).says(&["need plumb-agent", "`make build`"]);

    fs::copy(crate::common::agent(Arch::OWN), &beside).unwrap();
    let embed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/embed.sh");
    let embedded = Command::new(embed).arg(&own).status().unwrap();
    assert!(embedded.success());
    fs::remove_file(beside).unwrap();
    run().code(0);
}
