//! Settings of an interface of this machine, while a command runs.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::anyhow;
use netplumb_engine::EngineError;
use netplumb_engine::live::{
    Change, NicBlock, NicRuns, clean_up, keep, record_nic, run_with_nic, try_changes,
};
use netplumb_instruments::rates::cpu::CpuClock;
use netplumb_knobs::{Nic, Setting as Machine};
use netplumb_model::class::Link;
use netplumb_model::experiment::{
    Blocks, Coalescing, Experiment, Kind, Knobs, Lab, MachinePlan, Offload, Ring, Workload,
};
use netplumb_model::recording::{Recording, env};
use netplumb_model::tune::{
    Abilities, Dimension, Setting, SettingsBlocks, Tried, Tuned, arm_of, chosen, of_nic,
};
use netplumb_report::printable;
use netplumb_stats::halving::Point;
use netplumb_sys::ethnl::EthtoolNetlink;
use netplumb_sys::ethtool::{Ethtool, is_in};
use netplumb_sys::napi::File;
use netplumb_sys::netns::Namespace;

use super::TuneArgs;
use super::search::{LeftOut, Place, Search, of_places, unbeaten};
use crate::exit::{CannotHere, Usage};
use crate::experiment::machine::{find_nic, guard, of_system};
use crate::recorder::record_by;
use crate::rights;
use crate::signals;

/// Runs at scale 0, twice as many at the next, and the scale from which there are no more.
const RUNS: u32 = 2;
const MOST_SCALE: u32 = 2;
/// Runs of points that are measured once more.
const CONFIRMING: u32 = 6;

/// Search, and keep the best if that was asked for.
pub(super) fn run(args: &TuneArgs, name: &str, cache: &Path) -> anyhow::Result<(Tuned, Recording)> {
    if let Some((key, _)) = args.knobs.given().first() {
        return Err(Usage(format!(
            "{key} is a knob of two hosts: with --nic the settings are those that the interface has now"
        ))
        .into());
    }
    rights::check_of_settings()?;
    let quiet = args.quiet;
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
    let search = Search { args, dimensions: &dimensions, varies: true };
    let asked = experiment(args, name, &dimensions, &[])?;
    let clock = CpuClock::begin()?;
    let mut found_best = None;
    let outcome = record_by(
        |_, recording, save, _| {
            let mut place = OnNic {
                args,
                nic: &nic,
                dimensions: &dimensions,
                clock: &clock,
                // Not the recorder's, which does not know of a signal before it began.
                cancel: Arc::clone(&cancel),
                rounds: 0,
                tell: &mut tell,
            };
            let found = search.run(&mut place)?;
            let last = search.last(&found);
            let points: Vec<Point> = last.iter().map(|n| found.tried[*n].point.clone()).collect();
            let (runs, again) = place.runs(&points, CONFIRMING)?;
            let confirmed: Vec<SettingsBlocks> = again.iter().cloned().map(measured).collect();
            let stay = unbeaten(&args.hold, [0, found.best], &last, &confirmed);
            let (last, points) = (of_places(&stay, &last), of_places(&stay, &points));
            let (again, confirmed) = (of_places(&stay, &again), of_places(&stay, &confirmed));
            let kept = experiment(args, name, &dimensions, &points).map_err(odd)?;
            if let Ok(text) = kept.measured().to_toml() {
                recording.environment.insert(env::ASKED.into(), text);
            }
            record_nic(recording, &runs, &clock, kept.arms(), &again);
            save(recording).map_err(EngineError::Tuning)?;
            let at = Tried::Nic {
                command: printable(&args.command.join(" "), 80),
                peer: args.peer.map(|peer| peer.to_string()),
            };
            let left_out = LeftOut::before(left_out);
            found_best = Some(search.tuned(&found, &last, Some(&confirmed), at, name, left_out));
            Ok(())
        },
        (&asked, ""),
        &args.options(),
        cache,
    )?;
    if let Some(error) = outcome.error {
        return Err(error);
    }
    let mut tuned = found_best.ok_or_else(|| anyhow!("nothing was measured"))?;
    if args.keep && tuned.recommends() {
        let changes = changes(name, &tuned.best.settings)?;
        let undo = undo(&nic, &changes)?;
        keep(&changes)?;
        tuned.kept = Some(undo);
    }
    Ok((tuned, outcome.recording))
}

/// An error that can't be, since all levels were tried.
fn odd(error: anyhow::Error) -> EngineError {
    EngineError::Tuning(error.to_string())
}

fn measured(blocks: Vec<NicBlock>) -> SettingsBlocks {
    SettingsBlocks { blocks: blocks.into_iter().map(|ran| ran.figures).collect() }
}

/// An experiment of these points.
fn experiment(
    args: &TuneArgs,
    name: &str,
    dimensions: &[Dimension],
    points: &[Point],
) -> anyhow::Result<Experiment> {
    let mut workload = Workload::from_kind(Kind::Command);
    workload.command = args.command.clone();
    let arm = |point: &Point| arm_of(&chosen(dimensions, point)).map_err(Usage);
    Ok(Experiment {
        name: "tune".into(),
        lab: Lab::Host,
        workload,
        blocks: Blocks { count: Some(CONFIRMING), ..Blocks::default() },
        knobs: Knobs::from_pairs([("nic".to_string(), name.to_string())]).map_err(Usage)?,
        arms: points.iter().map(arm).collect::<Result<_, _>>()?,
        ..Experiment::default()
    })
}

/// An interface's abilities, as its driver reports them.
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
            _ => ["tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6"]
                .iter()
                .any(|feature| changeable(feature)),
        }
    };
    let offloads = [Offload::Tso, Offload::Gro, Offload::TxChecksum].into_iter();
    let offloads = offloads
        .filter(|which| can_change(*which))
        .filter_map(|which| Some((which, ethtool.offload(name, which).ok()?)));
    // Drivers that have none refuse the request.
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

/// The changes that settings make on this machine.
fn changes(name: &str, settings: &[Setting]) -> anyhow::Result<Vec<Change>> {
    let knobs = settings.iter().flat_map(|setting| setting.knobs.clone());
    let nic = ("nic".to_string(), name.to_string());
    let knobs = Knobs::from_pairs(knobs.chain([nic])).map_err(Usage)?;
    let mut arm = knobs.arm(String::new(), Lab::Host);
    arm.link = Link::Any;
    of_system(&MachinePlan::from_arm(&arm))
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
            Machine::Coalescing { which, .. } => ethtool("C", which),
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
    clock: &'a CpuClock,
    cancel: Arc<AtomicBool>,
    /// Each has another order of runs.
    rounds: u64,
    tell: &'a mut dyn FnMut(String),
}

impl OnNic<'_> {
    fn runs(
        &mut self,
        points: &[Point],
        blocks: u32,
    ) -> Result<(NicRuns, Vec<Vec<NicBlock>>), EngineError> {
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
        let measured = run_with_nic(&runs, self.clock, &self.cancel, &mut |_| {})?;
        Ok((runs, measured))
    }
}

impl Place for OnNic<'_> {
    fn measure(
        &mut self,
        points: &[Point],
        scale: u32,
    ) -> Result<Vec<Option<SettingsBlocks>>, EngineError> {
        let (_, blocks) = self.runs(points, RUNS << scale.min(MOST_SCALE))?;
        Ok(blocks.into_iter().map(measured).map(Some).collect())
    }
}
