//! Settings of an interface of this machine, while a command runs.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use netplumb_engine::EngineError;
use netplumb_engine::live::{Change, NicRuns, clean_up, keep, run_with_nic, try_changes};
use netplumb_instruments::rates::cpu::CpuClock;
use netplumb_knobs::{Nic, Setting as Machine};
use netplumb_model::class::Link;
use netplumb_model::experiment::{Coalescing, Knobs, Lab, MachinePlan, Offload, Ring};
use netplumb_model::tune::{Abilities, Dimension, Measured, Setting, Tried, Tuned, chosen, of_nic};
use netplumb_report::printable;
use netplumb_stats::halving::Point;
use netplumb_sys::ethnl::EthtoolNetlink;
use netplumb_sys::ethtool::{Ethtool, is_in};
use netplumb_sys::napi::File;
use netplumb_sys::netns::Namespace;

use super::TuneArgs;
use super::search::{LeftOut, Place, Search};
use crate::exit::{CannotHere, Usage};
use crate::experiment::machine::{find_nic, guard, of_system};
use crate::rights;
use crate::signals;

/// Runs at scale 0, twice as many at the next, and the scale from which there are no more.
const RUNS: u32 = 2;
const MOST_SCALE: u32 = 2;
/// Runs of those that are measured once more.
const CONFIRMING: u32 = 6;

/// Search, and keep the best if that was asked for.
pub(super) fn run(args: &TuneArgs, name: &str) -> anyhow::Result<Tuned> {
    if let Some((key, _)) = args.knobs.given().first() {
        return Err(Usage(format!(
            "{key} is a knob of two hosts: with --nic the settings are those that the interface has now"
        ))
        .into());
    }
    if args.options.output.is_some() {
        let why = "-o: a search on an interface leaves no recording; use --json for its figures";
        return Err(Usage(why.into()).into());
    }
    if !rights::is_root() {
        let why = "changing settings of this machine needs root: run it with sudo";
        return Err(CannotHere(why.into()).into());
    }
    let quiet = args.options.quiet;
    let mut tell = |text: String| {
        if !quiet {
            eprintln!("plumb: {}", printable(&text, 400));
        }
    };
    // Before anything is changed, so that the first signal ends it in order.
    let cancel = signals::watch()?;
    clean_up(&mut tell);
    let nic = find_nic(name)?;
    guard(&[&nic], args.guard.even_default_route)?;
    let has = abilities(name)?;
    let (dimensions, left_out) = accepted(name, of_nic(&has))?;
    if dimensions.is_empty() {
        let why = format!(
            "{name} has no settings that could be tried: ethtool -k, -c and -g {name} show what it has"
        );
        return Err(CannotHere(why).into());
    }
    for why in &left_out {
        tell(format!("left out: {why}"));
    }
    let search = Search {
        args,
        dimensions: &dimensions,
        varies: true,
    };
    let mut place = OnNic {
        args,
        nic: &nic,
        dimensions: &dimensions,
        clock: CpuClock::begin()?,
        cancel,
        rounds: 0,
        tell: &mut tell,
    };
    let found = search.run(&mut place)?;
    let last = search.last(&found);
    let points: Vec<Point> = last.iter().map(|n| found.tried[*n].point.clone()).collect();
    let again = place.runs(&points, CONFIRMING)?;
    let at = Tried::Nic {
        command: printable(&args.command.join(" "), 80),
        peer: args.peer.map(|peer| peer.to_string()),
    };
    let left_out = LeftOut::before(left_out);
    let mut tuned = search.tuned(&found, &last, Some(&again), at, name, left_out);
    if args.keep && tuned.recommends() {
        let changes = changes(name, &tuned.best.settings)?;
        let undo = undo(&nic, &changes)?;
        keep(&changes)?;
        tuned.kept = Some(undo);
    }
    Ok(tuned)
}

/// What an interface has, by what its driver tells.
fn abilities(name: &str) -> anyhow::Result<Abilities> {
    let own = Namespace::current()?;
    let ethtool = Ethtool::open()?;
    let (features, names) = (ethtool.features(name)?, ethtool.feature_names(name)?);
    let can_change = |which: Offload| {
        let changeable = |feature: &str| {
            let number = names.iter().position(|known| known == feature);
            number.is_some_and(|number| is_in(&features.changeable, number))
        };
        match which {
            Offload::Tso => changeable("tx-tcp-segmentation"),
            Offload::Gro => changeable("rx-gro"),
            _ => [
                "tx-checksum-ip-generic",
                "tx-checksum-ipv4",
                "tx-checksum-ipv6",
            ]
            .iter()
            .any(|feature| changeable(feature)),
        }
    };
    let offloads = [Offload::Tso, Offload::Gro, Offload::TxChecksum].into_iter();
    let offloads = offloads
        .filter(|which| can_change(*which))
        .filter_map(|which| Some((which, ethtool.offload(name, which).ok()?)));
    // Drivers that have none refuse to tell.
    let mut netlink = EthtoolNetlink::open()?;
    let coalescing: BTreeMap<Coalescing, u32> = netlink.coalescing(name).unwrap_or_default();
    let now = netlink.rings(name).unwrap_or_default();
    let most = netlink.largest_rings(name).unwrap_or_default();
    let ring = |ring: &Ring| Some((*ring, (*now.get(ring)?, *most.get(ring)?)));
    let file = |file: File| file.read(&own, name).ok();
    let sysctl = |key: &str| {
        let value = own.sysctl(key).ok()?;
        Some(value.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let buffers = ["net.ipv4.tcp_wmem", "net.ipv4.tcp_rmem"].map(sysctl);
    Ok(Abilities {
        offloads: offloads.collect(),
        coalescing,
        rings: Ring::ALL.iter().filter_map(ring).collect(),
        deferral: file(File::GroFlushTimeout).zip(file(File::NapiDeferHardIrqs)),
        buffers: match buffers {
            [Some(send), Some(receive)] => Some([send, receive]),
            _ => None,
        },
    })
}

/// What settings are on this machine.
fn changes(name: &str, settings: &[Setting]) -> anyhow::Result<Vec<Change>> {
    let knobs = settings.iter().flat_map(|setting| setting.knobs.clone());
    let nic = ("nic".to_string(), name.to_string());
    let knobs = Knobs::of(knobs.chain([nic])).map_err(Usage)?;
    let mut arm = knobs.arm(String::new(), Lab::Host);
    arm.link = Link::Any;
    of_system(&MachinePlan::of(&arm))
}

/// The levels that the interface accepts, each alone, and why it does not accept the others.
fn accepted(name: &str, all: Vec<Dimension>) -> anyhow::Result<(Vec<Dimension>, Vec<String>)> {
    let (mut dimensions, mut left_out) = (Vec::new(), Vec::new());
    for dimension in all {
        let each: Vec<Vec<Change>> = (dimension.iter())
            .map(|setting| changes(name, std::slice::from_ref(setting)))
            .collect::<Result<_, _>>()?;
        let refused = try_changes(&each)?;
        let mut levels = Vec::new();
        for (setting, why) in dimension.into_iter().zip(refused) {
            match why {
                None => levels.push(setting),
                Some(why) => left_out.push(format!("{}: {why}", setting.name)),
            }
        }
        if levels.len() > 1 {
            dimensions.push(levels);
        }
    }
    Ok((dimensions, left_out))
}

/// The lines that undo changes, before they are made.
fn undo(nic: &Nic, changes: &[Change]) -> anyhow::Result<Vec<String>> {
    let own = Namespace::current()?;
    let name = &nic.name;
    let mut lines = Vec::new();
    for change in changes.iter().rev() {
        let before = change.setting.read(&own)?;
        let ethtool = |letter: &str, which: &dyn Display| {
            format!("ethtool -{letter} {name} {which} {before}")
        };
        lines.push(match &change.setting {
            Machine::Sysctl { key, .. } => {
                let value = before.split_whitespace().collect::<Vec<_>>().join(" ");
                format!("sysctl -w {key}='{value}'")
            }
            Machine::Feature { which, .. } => {
                let word = match which {
                    Offload::TxChecksum => "tx",
                    Offload::RxChecksum => "rx",
                    other => other.as_str(),
                };
                ethtool("K", &word)
            }
            Machine::NamedFeature { name: feature, .. } => ethtool("K", feature),
            Machine::Coalescing { which, .. } => match which.is_switch() {
                true => {
                    let word = if before == "0" { "off" } else { "on" };
                    format!("ethtool -C {name} {which} {word}")
                }
                false => ethtool("C", which),
            },
            Machine::Ring { which, .. } => ethtool("G", which),
            Machine::Channel { which, .. } => ethtool("L", which),
            Machine::Polling { file, .. } => {
                format!("echo {before} > /sys/class/net/{name}/{file}")
            }
            other => format!("# {} was {before}", other.whose()),
        });
    }
    Ok(lines)
}

/// Measures points by runs of the command.
struct OnNic<'a> {
    args: &'a TuneArgs,
    nic: &'a Nic,
    dimensions: &'a [Dimension],
    clock: CpuClock,
    cancel: Arc<AtomicBool>,
    /// Each has another order of runs.
    rounds: u64,
    tell: &'a mut dyn FnMut(String),
}

impl OnNic<'_> {
    fn runs(&mut self, points: &[Point], blocks: u32) -> Result<Vec<Measured>, EngineError> {
        self.rounds += 1;
        let changes = |point: &Point| {
            let settings = chosen(self.dimensions, point);
            changes(&self.nic.name, &settings).map_err(|e| EngineError::Tuning(e.to_string()))
        };
        let runs = NicRuns {
            nic: self.nic.clone(),
            peer: self.args.peer,
            command: self.args.command.clone(),
            arms: points.iter().map(changes).collect::<Result<_, _>>()?,
            blocks,
            seed: self.rounds,
        };
        (self.tell)(format!(
            "round {}: {} combinations, {blocks} runs of each",
            self.rounds,
            points.len()
        ));
        let measured = run_with_nic(&runs, &self.clock, &self.cancel, &mut |_| {})?;
        let measured = measured.into_iter().map(|blocks| Measured { blocks });
        Ok(measured.collect())
    }
}

impl Place for OnNic<'_> {
    fn measure(
        &mut self,
        points: &[Point],
        scale: u32,
    ) -> Result<Vec<Option<Measured>>, EngineError> {
        let measured = self.runs(points, RUNS << scale.min(MOST_SCALE))?;
        Ok(measured.into_iter().map(Some).collect())
    }
}
