//! `plumb run`: an experiment file, carried out and judged.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use netplumb_engine::Plan;
use netplumb_kernel::layers::LAYERS;
use netplumb_model::bench::BenchFile;
use netplumb_model::experiment::{Experiment, MAX_RULESET_BYTES, Nft};

use super::page::PageArgs;
use super::path::finish;
use super::report::ShowArgs;
use crate::recorder::{RunOptions, record};

/// Arguments of `plumb run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The experiment, a TOML file
    experiment: PathBuf,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    options: RunOptions,
}

/// An experiment file is a page or two.
const MAX_EXPERIMENT_BYTES: u64 = 1 << 20;

/// Run and show.
///
/// # Errors
/// What kept it from measuring.
pub(crate) fn run(mut args: RunArgs, cache: &Path) -> anyhow::Result<ExitCode> {
    let path = &args.experiment;
    let size = std::fs::metadata(path)
        .with_context(|| format!("{}: can't read it", path.display()))?
        .len();
    if size > MAX_EXPERIMENT_BYTES {
        anyhow::bail!(
            "{}: {size} bytes are too many for an experiment file",
            path.display()
        );
    }
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("{}: can't read it", path.display()))?;
    if BenchFile::is(&text) {
        let file = BenchFile::parse(&text).inspect_err(|_| eprintln!("{}:", path.display()))?;
        args.show.check_for_bench()?;
        args.options.check_for_bench()?;
        return super::bench::run_file(&file, &text, &args.show, &args.page, &args.options, cache);
    }
    let mut experiment = Experiment::parse(&text)
        .and_then(|e| e.check_layers(&text, LAYERS).map(|()| e))
        .inspect_err(|_| eprintln!("{}:", path.display()))?;
    read_files(&mut experiment, path)?;
    let plan = Plan::of(&experiment);
    args.options.seeds.get_or_insert(experiment.blocks.seeds);
    args.show.check()?;
    args.page.check()?;
    let outcome = record(&plan, &experiment.name, &text, &args.options, cache)?;
    finish(outcome, &args.show, &args.page, &[])
}

/// Read the files that knobs name; their paths are from the experiment's folder.
fn read_files(experiment: &mut Experiment, path: &Path) -> anyhow::Result<()> {
    let folder = path.parent().unwrap_or(Path::new(""));
    for nft in experiment.rulesets_mut() {
        let Nft::File(name) = nft else { continue };
        let file = folder.join(&*name);
        let told = || format!("{}: can't read the rules", file.display());
        let open = std::fs::File::open(&file).with_context(told)?;
        let mut rules = String::new();
        open.take(MAX_RULESET_BYTES + 1)
            .read_to_string(&mut rules)
            .with_context(told)?;
        if rules.len() as u64 > MAX_RULESET_BYTES {
            anyhow::bail!(
                "{}: more than {} MiB of rules",
                file.display(),
                MAX_RULESET_BYTES >> 20
            );
        }
        *nft = Nft::Text {
            rules,
            file: Some(name.clone()),
        };
    }
    for module in experiment.modules_mut().filter(|m| !m.is_empty()) {
        let file = std::path::absolute(folder.join(&*module))?;
        std::fs::metadata(&file)
            .with_context(|| format!("{}: can't read the module", file.display()))?;
        *module = file.display().to_string();
    }
    Ok(())
}
