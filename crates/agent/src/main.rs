//! `plumb-agent`: PID 1 of guests, which carries out `plumb`'s requests.
//!
//! It is in the file of `plumb`, or beside it; see `netplumb_lab::vm::agent`.

#![allow(clippy::print_stderr)]

use std::process::ExitCode;

use netplumb_lab::vm::{agent, requested};

fn main() -> ExitCode {
    if netplumb_sys::guest::is_init() {
        netplumb_agent::guest::be_init();
        return ExitCode::FAILURE;
    }
    // The helper that the guest's kernel requests modules of.
    if let Some(module) = requested::request() {
        return match requested::answer(&module) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    eprintln!("{}: run `plumb`, which boots them", agent::MARK);
    ExitCode::from(2)
}
