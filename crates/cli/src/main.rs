//! `plumb`: where a packet's time goes in the Linux kernel, function by function.
//!
//! Only this crate prints, reads its arguments, or exits.
//!
//! `commands` write experiments, `experiment` makes plans of them and runs these, `output` prints recordings, and
//! `args` declares the flags that commands share.

#![allow(clippy::print_stdout, clippy::print_stderr)]

/// As in the standard library, without control characters: messages quote file names,
/// experiments and guests, none of which may move the terminal's cursor or set its title. A closed
/// pipe is no error: nobody reads what it would say.
macro_rules! eprintln {
    ($($text:tt)*) => {
        $crate::output::print::tell(&::std::format!($($text)*))
    };
}

mod args;
#[cfg(test)]
mod command_lines;
mod commands;
#[cfg(test)]
mod documents;
mod exit;
mod experiment;
mod files;
mod help;
mod http;
mod memory;
mod output;
mod progress;
mod recorder;
mod rights;
mod signals;
mod steps;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use netplumb_lab::vm;
use netplumb_model::arch::Arch;

use args::heading;
use exit::Failure;

#[global_allocator]
static ALLOCATOR: memory::OrExit = memory::OrExit;

/// Measure what a packet costs in the Linux kernel, function by function
///
/// Instruction counts are repeatable.
#[derive(Debug, Parser)]
#[command(name = "plumb", version, arg_required_else_help = true)]
struct Cli {
    /// Directory for guest kernels and saved guest states
    ///
    /// [default: $XDG_CACHE_HOME/netplumb or ~/.cache/netplumb]
    #[arg(
        long,
        global = true,
        env = "PLUMB_CACHE",
        value_name = "DIR",
        hide_env_values = true,
        hide_short_help = true,
        help_heading = heading::GLOBAL
    )]
    cache: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure what a packet costs, function by function
    ///
    /// Every combination of the values in lists is measured, as an arm.
    Path(Box<commands::path::PathArgs>),
    /// Sample CPU time: of all work, or of a process, a cgroup or a command
    Profile(Box<commands::profile::ProfileArgs>),
    /// Count events: of all CPUs, or of a process, a cgroup or a command
    Stat(Box<commands::stat::StatArgs>),
    /// Serve event counts, expensive functions or times between events to Prometheus
    Serve(Box<commands::serve::ServeArgs>),
    /// Trace single calls of a function, as call trees
    ///
    /// Every combination of the values in lists is measured, as an arm.
    Trace(Box<commands::trace::TraceArgs>),
    /// Measure the time from one event to the next: disk requests, wake-ups, functions
    Between(Box<commands::between::BetweenArgs>),
    /// Measure packet rates by data path (XDP, tc, nftables, ...) or between two hosts
    #[command(subcommand)]
    Bench(commands::bench::BenchCommand),
    /// Search for the best offloads, coalescing, rings and buffers
    Tune(Box<commands::tune::TuneArgs>),
    /// Run an experiment file
    Run(commands::run::RunArgs),
    /// Show the report of a recording
    Report(commands::report::ReportArgs),
    /// Compare two recordings, or the arms of one
    Diff(commands::diff::DiffArgs),
    /// Take names, addresses, paths and command lines out of a recording
    Redact(commands::redact::RedactArgs),
    /// Convert a perf.data file to a recording
    Import(commands::import::ImportArgs),
    /// Read a file: a workload for guests and for this machine
    ReadFile(commands::read_file::ReadFileArgs),
    /// Check what this machine can measure, in each lab (vm, netns, host)
    Doctor(commands::doctor::DoctorArgs),
    /// Manage guest kernels
    #[command(subcommand)]
    Kernel(commands::kernel::KernelCommand),
    /// Build modules from a guest kernel's source, with or without patches
    #[command(subcommand)]
    Module(commands::module::ModuleCommand),
    /// List and show topologies: what is between sender and receiver
    #[command(subcommand)]
    Topology(commands::topology::TopologyCommand),
    /// Print a shell completion script
    Completions(commands::manual::CompletionsArgs),
    /// Write man pages, one per command
    Man(commands::manual::ManArgs),
}

/// The command line, with its help.
fn command() -> clap::Command {
    let command = help::shaped(Cli::command());
    // To look for the agents takes time.
    match std::env::args().any(|word| word == "--version") {
        true => command.long_version(long_version()),
        false => command,
    }
}

/// The version, the commit that a package was built from, and the guests for which it has an agent.
fn long_version() -> &'static str {
    let commit = option_env!("PLUMB_COMMIT").unwrap_or("not recorded: built by cargo");
    let has_agent = |arch: &&Arch| vm::agent::program(**arch).is_ok();
    let guests: Vec<String> = Arch::ALL.iter().filter(has_agent).map(Arch::to_string).collect();
    let text = format!(
        "{}\ncommit: {commit}\nguests: {}\nrecordings: schema {}",
        env!("CARGO_PKG_VERSION"),
        match guests[..] {
            [] => "none: there is no agent".into(),
            _ => guests.join(", "),
        },
        netplumb_store::VERSION
    );
    // Once per run.
    Box::leak(text.into_boxed_str())
}

fn main() -> ExitCode {
    // A limit on the size of files is reported as an error; it does not kill.
    // SAFETY: to ignore a signal takes no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let mut matches = command().get_matches();
    let cli = Cli::from_arg_matches_mut(&mut matches)
        .unwrap_or_else(|error| error.format(&mut command()).exit());
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            let failure = Failure::from_error(&error);
            eprintln!("plumb: {}", exit::message(&error));
            ExitCode::from(failure.code())
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let cache = match cli.cache {
        Some(cache) => cache,
        None => {
            use etcetera::BaseStrategy;
            etcetera::choose_base_strategy()?.cache_dir().join("netplumb")
        }
    };
    match &cli.command {
        Command::Path(_)
        | Command::Profile(_)
        | Command::Stat(_)
        | Command::Serve(_)
        | Command::Trace(_)
        | Command::Between(_)
        | Command::Bench(_)
        | Command::Tune(_)
        | Command::Run(_) => {
            memory::check()?;
        }
        Command::Report(_)
        | Command::Diff(_)
        | Command::Redact(_)
        | Command::Import(_)
        | Command::ReadFile(_)
        | Command::Doctor(_)
        | Command::Kernel(_)
        | Command::Module(_)
        | Command::Topology(_)
        | Command::Completions(_)
        | Command::Man(_) => {}
    }
    match cli.command {
        Command::Path(args) => commands::path::run(*args, &cache),
        Command::Profile(args) => commands::profile::run(*args, &cache),
        Command::Stat(args) => commands::stat::run(*args, &cache),
        Command::Serve(args) => commands::serve::run(&args),
        Command::Trace(args) => commands::trace::run(*args, &cache),
        Command::Between(args) => commands::between::run(*args, &cache),
        Command::Bench(command) => commands::bench::run(command, &cache),
        Command::Tune(args) => commands::tune::run(*args, &cache),
        Command::Run(args) => commands::run::run(args, &cache),
        Command::Report(args) => commands::report::run(&args),
        Command::Diff(args) => commands::diff::run(&args),
        Command::Redact(args) => commands::redact::run(&args),
        Command::Import(args) => commands::import::run(&args),
        Command::ReadFile(args) => commands::read_file::run(&args),
        Command::Doctor(args) => commands::doctor::run(args, &cache),
        Command::Kernel(command) => commands::kernel::run(command, &cache),
        Command::Module(command) => commands::module::run(command, &cache),
        Command::Topology(command) => commands::topology::run(command),
        Command::Completions(args) => commands::manual::completions(&args),
        Command::Man(args) => commands::manual::man(&args),
    }
}
