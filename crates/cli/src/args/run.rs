//! Options of all commands that run experiments.

use std::path::PathBuf;

use clap::Args;

use netplumb_lab::vm::saved::MAX_BYTES;

use super::heading;
use crate::exit::Usage;

/// Options of all commands that run experiments.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = heading::EXECUTION)]
pub(crate) struct RunOptions {
    /// Run guests without QEMU's -icount
    ///
    /// Guests boot faster, and counts vary by a few tenths of a percent between runs.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Recording to write [default: NAME.plumb]
    ///
    /// An existing recording is renamed to NAME.plumb.old, or NAME.plumb.old.1 and so on.
    #[arg(short, long, value_name = "FILE", help_heading = heading::OUTPUT)]
    pub(crate) output: Option<PathBuf>,
    /// Timeout in seconds for booting a guest, and for running an arm
    ///
    /// Time in which QEMU waits for a CPU of a busy machine does not count.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
    /// Guests, or pairs of hosts, to run in parallel
    ///
    /// Counts don't depend on the number. [default: the number of CPUs, at most 8, and 4 pairs]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) jobs: Option<u16>,
    /// Resume an interrupted recording
    ///
    /// Arms in the recording are not measured again. With --duration, measure for the time left.
    #[arg(long)]
    pub(crate) resume: bool,
    /// Boot a guest for every arm, instead of restoring a saved state
    ///
    /// It is slow, and checks that saved states give the same counts.
    #[arg(long)]
    pub(crate) cold: bool,
    /// Measure every arm with N random seeds
    ///
    /// Seed-dependent results are shown as a range. [default: the experiment's, or 1; 3 if arms have
    /// different kernels]
    #[arg(long, value_name = "N", help_heading = heading::MEASUREMENT, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) seeds: Option<u32>,
    /// File of layer rules that take precedence over the built-in ones
    #[arg(long, value_name = "FILE", help_heading = heading::REPORT)]
    pub(crate) layers: Option<PathBuf>,
    /// Maximum size of all saved guest states on disk
    ///
    /// The least recently used states are removed first.
    #[arg(long, value_name = "SIZE", env = "PLUMB_CACHE_SIZE", hide_env_values = true, default_value = "6G", value_parser = size)]
    pub(crate) cache_size: u64,
    /// Don't print progress
    #[arg(short, long, help_heading = heading::OUTPUT)]
    pub(crate) quiet: bool,
}

/// A size on disk.
fn size(text: &str) -> Result<u64, String> {
    let invalid = || format!("invalid size `{text}`; expected like 500M or 6G");
    let (number, shift) = match text.strip_suffix(['K', 'M', 'G', 'T']) {
        Some(number) => (number, 10 * (1 + "KMGT".find(&text[number.len()..]).unwrap_or(0))),
        None => (text, 0),
    };
    let number: u64 = number.parse().map_err(|_| invalid())?;
    number.checked_mul(1 << shift).ok_or_else(invalid)
}

impl RunOptions {
    /// Check that no option is given that benches don't support: they count no instructions, and
    /// all blocks belong to one run.
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
                "{flag} can't be used with a bench: it is for experiments that count instructions"
            ))
            .into()),
        }
    }

    /// The defaults.
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
            cache_size: MAX_BYTES,
            quiet: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check sizes with and without a unit, and what is none.
    #[test]
    fn sizes() {
        assert_eq!(size("6G"), Ok(MAX_BYTES));
        assert_eq!(size("500M"), Ok(500 << 20));
        assert_eq!(size("4096"), Ok(4096));
        for wrong in ["", "G", "6 G", "-1", "6GB", "99999999999T", "1.5G"] {
            assert!(size(wrong).unwrap_err().contains("expected like"), "{wrong}");
        }
    }
}
