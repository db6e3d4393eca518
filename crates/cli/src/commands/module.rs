//! `plumb module`: modules of guests' kernels, built from source.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use clap::{Args, Subcommand};
use netplumb_kernel::code::{Difference, FunctionDifference};
use netplumb_lab::modules::{
    BuiltModule, Change, ModuleBuilder, ModuleRequest, check_target, write_module,
};
use netplumb_lab::vm::kernels::KernelStore;
use netplumb_report::{printable, printable_lines};

use crate::output::columns::write_columns;
use crate::output::print::print;
use crate::signals;
use crate::steps::{Steps, building};

/// How many functions that differ are listed.
const FUNCTIONS_MAX: usize = 40;

/// What to do with modules.
#[derive(Debug, Subcommand)]
pub(crate) enum ModuleCommand {
    /// Build a kernel module from the kernel's source
    Build(BuildArgs),
}

/// What to build.
#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// Module name, like usbnet
    name: String,
    /// Apply a patch, as written by `git diff`, to the source; may be repeated
    #[arg(long, value_name = "FILE")]
    patch: Vec<PathBuf>,
    /// Apply a semantic patch with Coccinelle's spatch, after --patch; may be repeated
    #[arg(long, value_name = "FILE")]
    cocci: Vec<PathBuf>,
    /// Kernel to build for: release, start of the hash, or source (see `plumb kernel list`)
    #[arg(long, value_name = "KERNEL", default_value = "debian")]
    kernel: String,
    /// File to write [default: NAME.ko]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Run the command, with kernels and sources in `cache`.
pub(crate) fn run(command: ModuleCommand, cache: &Path) -> anyhow::Result<ExitCode> {
    match command {
        ModuleCommand::Build(args) => build(&args, cache),
    }
}

fn build(args: &BuildArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    let begun = Instant::now();
    let named = args.name.trim_end_matches(".ko").replace('-', "_");
    let target = match &args.output {
        Some(output) => output.clone(),
        None => PathBuf::from(format!("{named}.ko")),
    };
    check_target(&target)?;
    let kernel = KernelStore::new(cache).find(&args.kernel)?;
    let cancel = signals::watch().context("can't watch for signals")?;
    let patches = args.patch.iter().cloned().map(Change::Patch);
    let request = ModuleRequest {
        name: args.name.clone(),
        changes: patches.chain(args.cocci.iter().cloned().map(Change::Cocci)).collect(),
    };
    let mut steps = Steps::new();
    let built = ModuleBuilder::new(cache, cancel).build(&kernel, &request, &mut |progress| {
        building(&mut steps, &args.name, progress);
    });
    steps.clear();
    let built = built?;
    write_module(&target, &built.elf)?;
    let mut out = Vec::new();
    describe(&built, &kernel.release, &mut out)?;
    let (target, took) = (target.display().to_string(), begun.elapsed().as_secs_f64());
    writeln!(out, "Wrote {} in {took:.1} s", printable_lines(&target))?;
    print(&String::from_utf8_lossy(&out))
}

/// What was built, and what it differs by.
fn describe(built: &BuiltModule, release: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    let (name, release) = (&built.name, printable(release, 80));
    writeln!(out, "{name} for {release}, {} bytes of code", built.text_bytes)?;
    writeln!(out, "compiler    {}", printable(&built.compiler, 120))?;
    if let Some(of_kernel) = &built.compiler_of_kernel
        && *of_kernel != built.compiler
    {
        writeln!(out, "kernel's    {}", printable(of_kernel, 120))?;
        if let Some(remedy) = built.remedy {
            writeln!(out, "            {remedy}")?;
        }
    }
    let source = built.source.display().to_string();
    writeln!(out, "source      {}", printable_lines(&source))?;
    if !built.packages.is_empty() {
        let packages = printable(&built.packages.join(", "), 400);
        writeln!(out, "packages    not of the kernel's version, but nearest to it: {packages}")?;
    }
    if built.unmodified.is_empty() {
        writeln!(out, "unmodified  the same code as the kernel's own module")?;
    } else {
        writeln!(
            out,
            "unmodified  NOT the same code as the kernel's own module, which has {} bytes: \
             compare with an unmodified build, not with the kernel's own",
            built.own_text_bytes
        )?;
        list(&built.unmodified, out)?;
    }
    match &built.changed {
        Some(changed) if changed.is_empty() => {
            writeln!(out, "changed     no function: the changes make no difference to the code")?;
        }
        Some(changed) => {
            writeln!(out, "changed     {}", built.files.join(", "))?;
            list(changed, out)?;
        }
        None => {}
    }
    if !built.has_btf {
        writeln!(
            out,
            "no BTF      `--clock functions` can't time the module's functions: pahole is not \
             installed (`sudo apt-get install dwarves`), or can't use the kernel's types"
        )?;
    }
    Ok(())
}

fn list(difference: &Difference, out: &mut dyn Write) -> anyhow::Result<()> {
    let rows: Vec<Vec<String>> = difference.functions.iter().take(FUNCTIONS_MAX).map(row).collect();
    write_columns(&rows, &[1, 2, 3], out)?;
    if let Some(more @ 1..) = difference.functions.len().checked_sub(FUNCTIONS_MAX) {
        writeln!(out, "  and {more} more")?;
    }
    if !difference.versions.is_empty() {
        let names = difference.versions.join(", ");
        writeln!(out, "  versions of imported symbols differ: {}", printable(&names, 400))?;
    }
    Ok(())
}

/// A function and its size before, after, and the difference.
fn row(function: &FunctionDifference) -> Vec<String> {
    let size = |bytes: Option<u64>| bytes.map_or("-".to_owned(), |bytes| bytes.to_string());
    let change = match (function.before_bytes, function.after_bytes) {
        (Some(before), Some(after)) => format!("{:+}", after as i64 - before as i64),
        (None, _) => "new".to_owned(),
        (_, None) => "gone".to_owned(),
    };
    let name = format!("  {}", printable(&function.name, 80));
    vec![name, size(function.before_bytes), size(function.after_bytes), change]
}
