//! `plumb doctor`: what this machine can measure, and in which lab.
//!
//! The trials live with what they try: BPF and perf in `instruments`, QEMU in `lab`. Here they are
//! run side by side, what follows for each lab is worked out, and the answer is printed.

mod labs;
mod resources;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use netplumb_instruments::capability;
use netplumb_instruments::exact::PLUGIN;
use netplumb_lab::netns::names;
use netplumb_lab::vm::trial;
use netplumb_model::capability::{Capability, Doctor};
use netplumb_sys::threads::{self, Task};

use crate::output::print::{columns, print};

/// The exit code when no lab at all works here.
const NO_LAB: u8 = 3;

/// The most columns that read well.
const COLUMNS: usize = 100;

/// What `plumb doctor` takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct DoctorArgs {
    /// Print the answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Only undo what runs left behind that were killed: network namespaces, and what they had
    /// changed on your own interfaces
    #[arg(long, conflicts_with = "json")]
    pub(crate) clean: bool,
}

/// Remove what runs left behind that were killed, and say what that was.
fn clean() -> anyhow::Result<ExitCode> {
    let removed = names::sweep().context(
        "can't remove what runs left behind: it takes the rights that they had (sudo plumb doctor \
         --clean)",
    )?;
    let recovered = netplumb_knobs::recover().context(
        "can't restore the settings of killed runs: it takes the rights that they had (sudo plumb \
         doctor --clean)",
    )?;
    let mut told = String::new();
    if !removed.is_empty() {
        told += &format!("removed, left by killed runs: {}\n", removed.join(", "));
    }
    for what in &recovered.put_back {
        told += &format!("restored, left by a killed run: {what}\n");
    }
    for what in &recovered.left {
        told += &format!("not restored: {what}\n");
    }
    if told.is_empty() {
        told += "no run left anything behind\n";
    }
    print(&told)
}

/// Examine this machine and print what was found. `cache` is where kernels are kept.
pub(crate) fn run(args: DoctorArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    if args.clean {
        return clean();
    }
    let doctor = examine(cache, PLUGIN);
    let text = if args.json {
        serde_json::to_string_pretty(&doctor).context("could not write the answer as JSON")? + "\n"
    } else {
        netplumb_report::capability::render(&doctor, columns().min(COLUMNS))
    };
    print(&text)?;
    Ok(if doctor.any_lab_works() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(NO_LAB)
    })
}

/// Try everything. The trials of QEMU mostly wait, so the others run meanwhile.
fn examine(cache: &Path, plugin: &[u8]) -> Doctor {
    let start = Instant::now();
    let mut machine = None;
    let mut capabilities: Vec<Capability> = threads::each(vec![
        Box::new(|| trial::try_all(Some(plugin))) as Task<'_, _>,
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
    Doctor {
        machine: machine.expect("every task has run"),
        capabilities,
        labs,
        took_ms,
    }
}
