//! Settings of two hosts: guests in virtual time, or namespaces of this machine.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::anyhow;
use netplumb_engine::run::Save;
use netplumb_engine::{EngineError, HostsRun, Options, Plan, run_hosts, run_namespaces};
use netplumb_lab::vm::kernels::KernelStore;
use netplumb_lab::vm::trial;
use netplumb_model::experiment::{
    Blocks, Experiment, FileSize, Kind, Knobs, Lab, Workload, link_of,
};
use netplumb_model::hosts::{BUSY, Side, THROUGHPUT, TURN, clocked};
use netplumb_model::quantity::Declared;
use netplumb_model::recording::{Arm, Recording, env};
use netplumb_model::tune::{
    Dimension, Figures, Goal, SettingsBlocks, Tried, Tuned, arm_of, chosen, of_guests,
    of_namespaces,
};
use netplumb_stats::halving::Point;

use super::TuneArgs;
use super::search::{LeftOut, Place, Search, of_places, unbeaten};
use crate::exit::Usage;
use crate::files::Out;
use crate::progress::Teller;
use crate::recorder::record_by;
use crate::rights;

/// Size of a combination's loads in guests at scale 0: bytes of a stream, and turns; twice as much
/// at the next.
const STREAM_BYTES: u32 = 1 << 20;
const TURNS: u32 = 40;
/// The scale at which a stream has 64 MiB: longer ones show nothing more.
const MOST_SCALE: u32 = 6;

/// A block of namespaces, the number of them at scale 0, and the scale from which there are no more.
const BLOCK_BYTES: u32 = 32 << 20;
const BLOCK_TURNS: u32 = 400;
const BLOCKS: u32 = 3;
const MOST_BLOCKS_SCALE: u32 = 2;
/// Blocks of points that are measured once more.
const CONFIRMING: u32 = 10;

/// Whether interrupts of e1000 can be let through at once, by the QEMU of an arm's guests.
fn e1000_is_unthrottled(arm: &Arm, cache: &Path) -> bool {
    let kernel = arm.level("kernel").unwrap_or("debian");
    let arch = arm.level("arch").and_then(|arch| arch.parse().ok());
    let kernel = KernelStore::new(cache).find_for(kernel, arch);
    // Without the kernel or QEMU there is an error later that reports it.
    let qemu = kernel.ok().map(|kernel| trial::find_qemu(kernel.arch));
    qemu.and_then(Result::ok)
        .is_none_or(|qemu| trial::e1000_is_unthrottled(&qemu, &AtomicBool::new(false)))
}

/// Search, and write the recording of the last ones.
pub(super) fn run(
    args: &TuneArgs,
    cache: &Path,
    file: Option<&Out>,
) -> anyhow::Result<(Tuned, Recording)> {
    let in_netns = args.lab == Lab::Netns;
    if in_netns {
        rights::check(args.lab)?;
    }
    let fixed = args.knobs.given();
    if let Some((key, _)) =
        fixed.iter().find(|(key, _)| fixed.iter().filter(|(k, _)| k == key).count() > 1)
    {
        return Err(Usage(format!("{key}: give one value, which all combinations have")).into());
    }
    let given = Knobs::from_pairs(fixed.iter().cloned()).map_err(Usage)?;
    let pair_of = |dimensions| Pair { args, fixed: given.clone(), dimensions };
    // Both loads with only the given settings, which the search depends on.
    for kind in [Kind::Stream, Kind::Request] {
        let all = pair_of(&[]).experiment(kind, &[Vec::new()], 0)?;
        all.check().map_err(|(_, why)| Usage(why))?;
    }
    // The load that the goal is of is recorded.
    let (kept, other) = match args.goal {
        Goal::Latency => (Kind::Request, Kind::Stream),
        Goal::Throughput | Goal::Cpu => (Kind::Stream, Kind::Request),
    };
    let asked = pair_of(&[]).experiment(kept, &[Vec::new()], 0)?;
    // Given settings are the situation, and not searched.
    let is_free = |dimension: &Dimension| {
        let mut keys = dimension.iter().flat_map(|setting| &setting.knobs);
        !keys.any(|(key, _)| args.knobs.has(key))
    };
    let all = match (args.lab, asked.arms().first()) {
        (Lab::Vm, Some(arm)) => {
            let links = [Side::Tx, Side::Rx].map(|side| link_of(arm, side));
            of_guests(links, e1000_is_unthrottled(arm, cache))
        }
        _ => of_namespaces(),
    };
    let dimensions: Vec<Dimension> = all.into_iter().filter(is_free).collect();
    if dimensions.is_empty() {
        return Err(Usage("all settings that could be searched are given".into()).into());
    }
    let search = Search { args, dimensions: &dimensions, varies: in_netns };
    let pair = pair_of(&dimensions);
    let mut tuned = None;
    let mut finalists = None;
    let outcome = record_by(
        |engine, recording, save, teller| {
            let mut place = Measuring { pair: &pair, engine, teller, left_out: LeftOut::default() };
            let found = search.run(&mut place)?;
            let left_out = place.left_out;
            let mut last = search.last(&found);
            let points: Vec<Point> = last.iter().map(|n| found.tried[*n].point.clone()).collect();
            // The recording is a run of two hosts at these points.
            let mut experiment = pair.experiment(kept, &points, found.scale).map_err(odd)?;
            if in_netns {
                experiment.blocks.count = Some(CONFIRMING);
            }
            let again = match in_netns {
                true => {
                    // Which of them are kept is known when both loads have been measured.
                    let nowhere = &mut |_: &Recording| Ok(());
                    pair.carry_out(&experiment, engine, recording, nowhere, teller)?;
                    let mut of_other = pair.experiment(other, &points, 0).map_err(odd)?;
                    of_other.blocks.count = Some(CONFIRMING);
                    let mut beside = Recording::default();
                    pair.carry_out(&of_other, engine, &mut beside, nowhere, teller)?;
                    let (stream, requests) = match kept {
                        Kind::Request => (&beside, &*recording),
                        _ => (&*recording, &beside),
                    };
                    let all = (0..points.len()).map(|arm| pair.figures(stream, requests, arm));
                    let all = all.collect::<Result<Vec<_>, _>>()?;
                    let stay = unbeaten(&args.hold, [0, found.best], &last, &all);
                    recording.keep_arms(&stay);
                    experiment.arms = of_places(&stay, &experiment.arms);
                    last = of_places(&stay, &last);
                    note_asked(recording, &experiment);
                    save(recording).map_err(EngineError::Tuning)?;
                    Some(of_places(&stay, &all))
                }
                false => {
                    note_asked(recording, &experiment);
                    pair.carry_out(&experiment, engine, recording, save, teller)?;
                    None
                }
            };
            let at = if in_netns { Tried::Namespaces } else { Tried::Guests };
            let nic = &args.print_nic;
            tuned = Some(search.tuned(&found, &last, again.as_deref(), at, nic, left_out));
            finalists = Some(experiment);
            Ok(())
        },
        (&asked, ""),
        &args.options(),
        cache,
    )?;
    if let Some(error) = outcome.error {
        return Err(error);
    }
    if let (Some(file), Some(experiment)) = (file, &finalists) {
        file.write(experiment.to_toml()?.as_bytes())?;
    }
    let tuned = tuned.ok_or_else(|| anyhow!("nothing was measured"))?;
    Ok((tuned, outcome.recording))
}

/// Note the experiment in the recording.
fn note_asked(recording: &mut Recording, experiment: &Experiment) {
    if let Ok(text) = experiment.measured().to_toml() {
        recording.environment.insert(env::ASKED.into(), text);
    }
}

/// An error that can't be, since all combinations were checked.
fn odd(error: anyhow::Error) -> EngineError {
    EngineError::Guest(error.to_string())
}

/// Two hosts.
struct Pair<'a> {
    args: &'a TuneArgs,
    /// Knobs that all combinations share.
    fixed: Knobs,
    dimensions: &'a [Dimension],
}

impl Pair<'_> {
    /// A run of these points.
    fn experiment(&self, kind: Kind, points: &[Point], scale: u32) -> anyhow::Result<Experiment> {
        let in_netns = self.args.lab == Lab::Netns;
        let mut workload = Workload::from_kind(kind);
        let (bytes, turns, blocks) = match in_netns {
            true => {
                let blocks = BLOCKS << scale.min(MOST_BLOCKS_SCALE);
                (BLOCK_BYTES, BLOCK_TURNS, blocks)
            }
            false => {
                let scale = scale.min(MOST_SCALE);
                (STREAM_BYTES << scale, TURNS << scale, 1)
            }
        };
        match kind {
            Kind::Request => workload.turns = Some(turns),
            _ => workload.bytes = Some(FileSize(bytes)),
        }
        let arm = |point: &Point| arm_of(&chosen(self.dimensions, point)).map_err(Usage);
        Ok(Experiment {
            name: "tune".into(),
            lab: self.args.lab,
            hosts: Some(self.args.hosts),
            workload,
            blocks: Blocks { count: Some(blocks), ..Blocks::default() },
            knobs: self.fixed.clone(),
            arms: points.iter().map(arm).collect::<Result<_, _>>()?,
            ..Experiment::default()
        })
    }

    fn carry_out(
        &self,
        experiment: &Experiment,
        engine: &Options,
        recording: &mut Recording,
        save: Save<'_>,
        teller: &Teller,
    ) -> Result<(), EngineError> {
        let run = HostsRun {
            plan: Plan::from_experiment(experiment),
            load: experiment.host_load(),
            counts: false,
        };
        let tell = |event| teller.tell(event);
        match self.args.lab {
            Lab::Netns => run_namespaces(&run, engine, recording, save, &tell),
            _ => run_hosts(&run, engine, recording, save, &tell),
        }
    }

    /// The blocks of an arm: of a stream, and as many of requests.
    fn figures(
        &self,
        stream: &Recording,
        requests: &Recording,
        arm: usize,
    ) -> Result<SettingsBlocks, EngineError> {
        let in_netns = self.args.lab == Lab::Netns;
        let of = |recording: &Recording, quantity: &Declared, label: Option<&str>| {
            let clocked = clocked(quantity);
            let quantity = if in_netns { &clocked } else { quantity };
            values(recording, arm, quantity, label)
        };
        let busy = Side::ALL.iter().map(|side| of(stream, &BUSY, Some(side.called())));
        let busy: Vec<Vec<f64>> = busy.collect::<Result<_, _>>()?;
        let throughput = of(stream, &THROUGHPUT, None)?;
        let turns = of(requests, &TURN, Some("median"))?;
        let blocks = throughput.iter().zip(&turns).zip(busy[0].iter().zip(&busy[1]));
        let blocks = blocks.map(|((throughput, turn), (tx, rx))| Figures {
            throughput_bps: *throughput,
            latency_ns: *turn,
            busy: [*tx, *rx],
            cpus: 1.0,
        });
        Ok(SettingsBlocks { blocks: blocks.collect() })
    }
}

/// Measures points by runs of two hosts that nobody keeps.
struct Measuring<'m, 'a> {
    pair: &'m Pair<'a>,
    engine: &'m Options,
    teller: &'m Teller,
    /// Settings that the NICs or the kernel refused.
    left_out: LeftOut,
}

impl Measuring<'_, '_> {
    /// Measure points that take turns.
    fn together(&self, points: &[Point], scale: u32) -> Result<Vec<SettingsBlocks>, EngineError> {
        let run = |kind: Kind| -> Result<Recording, EngineError> {
            let experiment = self.pair.experiment(kind, points, scale).map_err(odd)?;
            let mut recording = Recording::default();
            let nowhere = &mut |_: &Recording| Ok(());
            self.pair.carry_out(&experiment, self.engine, &mut recording, nowhere, self.teller)?;
            Ok(recording)
        };
        let (stream, requests) = (run(Kind::Stream)?, run(Kind::Request)?);
        let all = (0..points.len()).map(|arm| self.pair.figures(&stream, &requests, arm));
        all.collect()
    }

    /// Leave out the points that are refused, by measuring each alone.
    ///
    /// # Errors
    /// It was the default, or none of them is refused: then it was something else.
    fn leave_out(&mut self, points: &[Point], error: EngineError) -> Result<(), EngineError> {
        let before = self.left_out.why.len();
        for point in points {
            if self.left_out.has(point) {
                continue;
            }
            match self.together(std::slice::from_ref(point), 0) {
                Ok(_) => self.left_out.accept(point),
                Err(refused) if refused.is_of_settings() && point.iter().any(|l| *l != 0) => {
                    let why = refused.to_string();
                    let why = why.lines().next().unwrap_or_default();
                    (self.left_out).refuse(self.pair.dimensions, point, why);
                }
                Err(error) => return Err(error),
            }
        }
        match self.left_out.why.len() > before {
            true => Ok(()),
            false => Err(error),
        }
    }
}

impl Place for Measuring<'_, '_> {
    fn measure(
        &mut self,
        points: &[Point],
        scale: u32,
    ) -> Result<Vec<Option<SettingsBlocks>>, EngineError> {
        loop {
            let left = points.iter().filter(|point| !self.left_out.has(point));
            let left: Vec<Point> = left.cloned().collect();
            if left.is_empty() {
                return Ok(vec![None; points.len()]);
            }
            match self.together(&left, scale) {
                Ok(measured) => {
                    left.iter().for_each(|point| self.left_out.accept(point));
                    let mut measured = measured.into_iter();
                    let all = points.iter().map(|point| match self.left_out.has(point) {
                        true => None,
                        false => measured.next(),
                    });
                    return Ok(all.collect());
                }
                Err(error) if error.is_of_settings() => self.leave_out(&left, error)?,
                Err(error) => return Err(error),
            }
        }
    }
}

/// The figures of an arm's blocks.
fn values(
    recording: &Recording,
    arm: usize,
    quantity: &Declared,
    label: Option<&str>,
) -> Result<Vec<f64>, EngineError> {
    let of_arm = |block: u32| {
        let block = recording.blocks.get(block as usize);
        block.is_some_and(|block| block.arm as usize == arm)
    };
    let its = recording.scalars_of(quantity).filter(|scalar| {
        scalar.block().is_some_and(of_arm) && scalar.item.label.as_deref() == label
    });
    let values: Vec<f64> = its.map(|scalar| scalar.value).collect();
    match values.is_empty() {
        true => Err(EngineError::Guest(format!("no {} was measured", quantity.name))),
        false => Ok(values),
    }
}
