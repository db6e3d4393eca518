//! `plumb serve`: counts of events, the most expensive functions, and times between events, for Prometheus to
//! scrape.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use netplumb_model::experiment::{Experiment, Filter, Kind, Lab, Time, Workload};

use super::between::BetweenEvents;
use super::profile::SamplingArgs;
use super::stat::EventArgs;
use crate::args::heading;
use crate::args::live::{EVENTS, SAMPLES, SPANS};
use crate::exit::Usage;
use crate::experiment::serve::{Serve, serve};

/// How often figures are renewed.
const INTERVAL: Duration = Duration::from_secs(5);
/// More often than that, reading the counters is most of what is done.
const SHORTEST: Duration = Duration::from_millis(100);

/// Arguments of `plumb serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Address to listen on; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9709", value_parser = address)]
    listen: SocketAddr,
    /// Allow clients on other machines: --listen accepts addresses other than loopback
    #[arg(long)]
    allow_remote_clients: bool,
    /// Time between updates [default: 5s]
    #[arg(long, value_name = "TIME")]
    interval: Option<Time>,
    /// Don't print the address or notes
    #[arg(short, long)]
    quiet: bool,
    #[command(subcommand)]
    what: What,
}

/// What is measured.
#[derive(Debug, Subcommand)]
enum What {
    /// Count events; followed by `profile`, also sample
    #[command(subcommand_precedence_over_arg = true)]
    Stat(StatOf),
    /// Sample CPU time
    Profile(ProfileOf),
    /// Measure the time from one event to the next
    Between(BetweenOf),
}

/// What else is.
#[derive(Debug, Subcommand)]
enum ServeExtra {
    /// Also sample CPU time
    Profile(ProfileOf),
}

/// Whose events are counted, or work is sampled.
#[derive(Debug, Args)]
#[command(next_help_heading = heading::FILTERS)]
struct Scope {
    /// Only this process, and its future children
    #[arg(long, value_name = "PID", conflicts_with = "cgroup")]
    pid: Option<u32>,
    /// Only tasks in this cgroup (version 2), and below it
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct StatOf {
    #[command(flatten)]
    which: EventArgs,
    #[command(flatten)]
    scope: Scope,
    #[command(subcommand)]
    beside: Option<ServeExtra>,
}

#[derive(Debug, Args)]
struct ProfileOf {
    #[command(flatten)]
    how: SamplingArgs,
    #[command(flatten)]
    scope: Scope,
    /// Maximum number of functions with a series of their own
    ///
    /// A function gets a series as soon as it takes 1% of a CPU.
    #[arg(long, help_heading = heading::REPORT, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    top: u32,
}

#[derive(Debug, Args)]
struct BetweenOf {
    #[command(flatten)]
    which: BetweenEvents,
    #[command(flatten)]
    scope: Scope,
}

/// An address with a port.
fn address(text: &str) -> Result<SocketAddr, String> {
    let expected = "expected like 127.0.0.1:9709 or [::1]:9709";
    text.parse().map_err(|_| expected.into())
}

impl ServeArgs {
    /// What is measured, as experiments.
    fn experiments(&self) -> Vec<Experiment> {
        let (stat, profile) = match &self.what {
            What::Stat(stat) => {
                let beside = stat.beside.as_ref();
                (Some(stat), beside.map(|ServeExtra::Profile(profile)| profile))
            }
            What::Profile(profile) => (None, Some(profile)),
            What::Between(_) => (None, None),
        };
        let between = match &self.what {
            What::Between(between) => Some(between),
            What::Stat(_) | What::Profile(_) => None,
        };
        let of = |instrument: &str, scope: &Scope| Experiment {
            name: "serve".into(),
            instruments: Some(vec![instrument.into()]),
            lab: Lab::Host,
            workload: Workload {
                window: Some(self.interval.unwrap_or(Time(INTERVAL))),
                ..Workload::from_kind(Kind::Work)
            },
            filter: Filter {
                pid: scope.pid,
                cgroup: (scope.cgroup.as_ref()).map(|path| path.display().to_string()),
                ..Filter::default()
            },
            ..Experiment::default()
        };
        let stat =
            stat.map(|stat| Experiment { events: stat.which.events(), ..of(EVENTS, &stat.scope) });
        let profile = profile.map(|profile| Experiment {
            samples: profile.how.samples(),
            ..of(SAMPLES, &profile.scope)
        });
        let between = between.map(|between| Experiment {
            spans: between.which.spans(),
            ..of(SPANS, &between.scope)
        });
        stat.into_iter().chain(profile).chain(between).collect()
    }

    fn top(&self) -> usize {
        let profile = match &self.what {
            What::Stat(stat) => stat.beside.as_ref().map(|ServeExtra::Profile(of)| of),
            What::Profile(profile) => Some(profile),
            What::Between(_) => None,
        };
        profile.map_or(0, |profile| profile.top as usize)
    }
}

/// Measure, and serve.
///
/// # Errors
/// It can't be measured here, or the address can't be listened at.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    if !args.listen.ip().is_loopback() && !args.allow_remote_clients {
        let why = format!(
            "--listen {}: other machines could read what is measured; add --allow-remote-clients \
             if they may, or listen at a loopback address like 127.0.0.1:9709",
            args.listen
        );
        return Err(Usage(why).into());
    }
    if args.interval.is_some_and(|time| time.0 < SHORTEST) {
        return Err(Usage("invalid interval; expected 100ms or more".into()).into());
    }
    serve(&Serve {
        listen: args.listen,
        experiments: &args.experiments(),
        functions: args.top(),
        quiet: args.quiet,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use netplumb_model::spans::Preset;

    use super::*;

    #[derive(Debug, Parser)]
    struct ServeLine {
        #[command(flatten)]
        args: ServeArgs,
    }

    fn asked(line: &str) -> Vec<Experiment> {
        let words = std::iter::once("serve").chain(line.split(' '));
        ServeLine::try_parse_from(words).unwrap().args.experiments()
    }

    /// Check that command lines are experiments that can be run: one, or both.
    #[test]
    fn command_lines() {
        let stat = asked("--listen [::1]:0 stat --focus network,block --by cpu");
        assert_eq!(stat.len(), 1);
        assert_eq!(stat[0].events.focus.len(), 2);
        let both = asked("--interval 1s stat page-faults,cs --pid 1 profile --frequency 49");
        let [counts, samples] = &both[..] else {
            panic!("both: {both:?}");
        };
        assert_eq!(counts.events.names, ["page-faults", "cs"]);
        assert_eq!(counts.filter.pid, Some(1));
        assert_eq!(samples.samples.frequency, Some(49));
        assert_eq!(samples.filter.pid, None);
        for experiment in stat.iter().chain(&both) {
            assert_eq!(experiment.check(), Ok(()));
        }
        let between = asked("between --preset disk --pid 7");
        assert_eq!(between[0].spans.preset, Some(Preset::Disk));
        assert_eq!(between[0].filter.pid, Some(7));
        assert_eq!(between[0].check(), Ok(()));
        assert_eq!(asked("profile").len(), 1);
        for wrong in ["--listen 9709 profile", "--listen localhost:1 stat", "", "profile --top 0"] {
            let words = std::iter::once("serve").chain(wrong.split(' '));
            assert!(ServeLine::try_parse_from(words).is_err(), "{wrong}");
        }
    }
}
