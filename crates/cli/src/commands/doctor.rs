//! `plumb doctor`: what this machine can measure, in each lab.
//!
//! The checks of BPF and perf are in `instruments`, those of QEMU in `lab`. They run in parallel
//! here; their effect on each lab is derived, and printed.

mod events;
mod labs;
mod resources;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use netplumb_instruments::capability;
use netplumb_instruments::exact::PLUGIN;
use netplumb_instruments::wire;
use netplumb_lab::netns::names;
use netplumb_lab::sums;
use netplumb_lab::vm::kernels::KernelStore;
use netplumb_lab::vm::saved::SavedStates;
use netplumb_lab::vm::trial::{self, WirePlugin};
use netplumb_model::capability::{Capability, Doctor};
use netplumb_report::printable_lines;
use netplumb_sys::threads::{self, Task};

use crate::output::print::{columns, print};

/// The exit code if no lab works.
const NO_LAB: u8 = 3;

/// Maximum width of the output.
const COLUMNS: usize = 100;

/// Arguments of `plumb doctor`.
#[derive(Args, Clone, Debug)]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Only clean up after killed runs
    ///
    /// Deletes their network namespaces, restores the interface settings that they changed, and
    /// removes damaged files from the cache.
    #[arg(long, conflicts_with = "json")]
    pub(crate) clean: bool,
    /// Try each event of `plumb stat`, by subsystem, and report why any can't be counted
    #[arg(long, conflicts_with = "clean")]
    pub(crate) events: bool,
}

/// Clean up after killed runs, and report what was done.
fn clean(cache: &Path) -> anyhow::Result<ExitCode> {
    let removed = names::sweep().context(
        "can't delete what killed runs left behind; run it as the same user (sudo plumb doctor \
         --clean)",
    )?;
    let recovered = netplumb_knobs::recover().context(
        "can't restore settings left by killed runs; run it as the same user (sudo plumb doctor \
         --clean)",
    )?;
    let traced = netplumb_instruments::calls::recover();
    let mut text = String::new();
    if !removed.is_empty() {
        text += &format!("deleted, left by killed runs: {}\n", removed.join(", "));
    }
    for what in traced.iter().chain(&recovered.put_back) {
        text += &format!("restored settings left by a killed run: {what}\n");
    }
    for what in &recovered.left {
        text += &format!("not restored: {what}\n");
    }
    let mut tell = |line: String| text += &printable_lines(&format!("{line}\n"));
    KernelStore::new(cache).clean(&mut tell)?;
    SavedStates::new(cache).clean(&mut tell);
    sums::clean(cache, &mut tell);
    if text.is_empty() {
        text += "nothing to clean up\n";
    }
    print(&text)
}

/// Check this machine and print what was found. `cache` is the directory of kernels.
pub(crate) fn run(args: DoctorArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    if args.clean {
        return clean(cache);
    }
    if args.events {
        return events::run(args.json);
    }
    let doctor = examine(cache, PLUGIN);
    let text = if args.json {
        serde_json::to_string_pretty(&doctor).context("can't write JSON")? + "\n"
    } else {
        netplumb_report::capability::render(&doctor, columns().min(COLUMNS))
    };
    print(&text)?;
    Ok(if doctor.any_lab_works() { ExitCode::SUCCESS } else { ExitCode::from(NO_LAB) })
}

/// Run all checks. Those of QEMU mostly wait, so the others run meanwhile.
fn examine(cache: &Path, plugin: &[u8]) -> Doctor {
    let start = Instant::now();
    let of_wire = WirePlugin { bytes: wire::PLUGIN, args: wire::trial_args };
    let mut machine = None;
    let mut capabilities: Vec<Capability> = threads::each(vec![
        Box::new(|| trial::try_all(Some(plugin), Some(&of_wire))) as Task<'_, _>,
        Box::new(|| {
            let survey = capability::survey();
            machine = Some(survey.machine);
            survey.capabilities
        }),
    ])
    .concat();
    capabilities.extend(resources::try_all(cache));
    capabilities.sort_by_key(|c| c.group);
    let labs = labs::judge(&capabilities);
    let took_ms = (start.elapsed().as_secs_f64() * 1e4).round() / 10.0;
    Doctor { machine: machine.expect("every task has run"), capabilities, labs, took_ms }
}
