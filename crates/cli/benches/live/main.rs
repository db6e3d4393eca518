//! What measuring the running kernel costs those who do it: `make bench`.
//!
//! 1. Instructions that timing a function adds to each of its calls, in a guest whose
//!    nanoseconds are instructions, beside other tools that time the same functions of
//!    the same packets. The same in every run.
//! 2. What `stages` takes of the packets per second and of the CPU on this machine,
//!    beside other tools on the same tracepoints, block by block in turn.
//! 3. How long it takes to attach, and until there is a first figure.
//!
//! An exceeded bound is reported, but fails nothing: a timing on a machine with other work is no
//! verdict.

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod guest;
mod native;

use std::path::PathBuf;
use std::process::ExitCode;

use netplumb_lab::vm::kernels::KernelStore;
use netplumb_lab::vm::trial;
use netplumb_model::arch::Arch;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    if std::process::id() == 1 {
        guest::init();
    }
    let (guest, native) = (in_a_guest(), native::run());
    for result in [&guest, &native] {
        if let Err(error) = result {
            eprintln!("bench: {error}");
        }
    }
    if guest.is_ok() && native.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn in_a_guest() -> Result<()> {
    use etcetera::BaseStrategy;
    let cache = match std::env::var_os("PLUMB_CACHE") {
        Some(cache) => PathBuf::from(cache),
        None => etcetera::choose_base_strategy()?.cache_dir().join("netplumb"),
    };
    guest::run(&trial::find_qemu(Arch::OWN)?, &KernelStore::new(&cache).find("debian")?)
}

fn line(what: &str, figure: &str, note: &str) {
    println!("{}", format!("  {what:<42}{figure:<22}{note}").trim_end());
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
