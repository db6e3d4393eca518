//! How to run, whatever is run.

use std::path::PathBuf;

use clap::Args;

use crate::exit::Usage;

/// How to run, whatever is run.
#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// Without an instruction clock: a quicker boot, and counts within some tenths of a percent
    #[arg(long)]
    pub(crate) quick: bool,
    /// The recording [default: NAME.plumb; one that is there is kept as NAME.plumb.old]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Seconds that a boot or an arm may take
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
    /// Guests at once; counts are the same [default: as many as there are CPUs, up to 8]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) jobs: Option<u16>,
    /// Go on with a recording that was cut short: what it has is not measured again
    #[arg(long)]
    pub(crate) resume: bool,
    /// Boot for every arm, from no saved state: slow, to check what saved states count
    #[arg(long)]
    pub(crate) cold: bool,
    /// Every arm under so many random seeds: seed-dependent results are shown as a range
    /// [default: the experiment's, or 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) seeds: Option<u32>,
    /// A file of layer rules, asked before the built-in ones
    #[arg(long, value_name = "FILE")]
    pub(crate) layers: Option<PathBuf>,
    /// No progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

impl RunOptions {
    /// What is asked for that a bench can't do, since it boots no guest and its blocks are
    /// of one run.
    ///
    /// # Errors
    /// A usage error that names it.
    pub(crate) fn check_for_bench(&self) -> anyhow::Result<()> {
        let flags = [
            ("--quick", self.quick),
            ("--jobs", self.jobs.is_some()),
            ("--resume", self.resume),
            ("--cold", self.cold),
            ("--seeds", self.seeds.is_some()),
            ("--layers", self.layers.is_some()),
        ];
        match flags.iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((flag, _)) => Err(Usage(format!(
                "{flag} is for experiments that count instructions; this one is a bench"
            ))
            .into()),
        }
    }

    /// As where nothing is said.
    pub(crate) fn plain() -> RunOptions {
        RunOptions {
            quick: false,
            output: None,
            timeout: 120,
            jobs: None,
            resume: false,
            cold: false,
            seeds: None,
            layers: None,
            quiet: false,
        }
    }
}
