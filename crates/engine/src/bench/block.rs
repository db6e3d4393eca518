//! One block: all is set up, runs, and is taken down.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use netplumb_instruments::live::LiveError;
use netplumb_instruments::rates::cpu::{self, CpuClock, Reading};
use netplumb_instruments::rates::drops::Drops;
use netplumb_knobs::Applied;
use netplumb_lab::cancel::Cancel;
use netplumb_lab::vm::process::VmError;
use netplumb_model::bench::{
    Bench, BenchArm, DataPath, Fault, Generated, Handled, Hop, Limit, Measured, Offered, Planted,
    Since, quantities as q,
};
use netplumb_model::experiment::Offload;
use netplumb_model::quantity::Figure;
use netplumb_paths::{PathError, Sink, Standing, Way, set_up};
use netplumb_sys::napi;
use netplumb_sys::proc::counters::Counters;
use netplumb_workload::frames::{
    Bounded, Generator, GeneratorError, GeneratorPlan, Method, TTL, calibrate,
};

use super::ground::{Cpus, Ground, online};
use super::ledger;
use super::nics::Own;
use super::watch::{Seen, Watch};
use super::{Run, changes};
use crate::error::{EngineError, NicError};

/// What came of a block.
pub(crate) enum Ran {
    /// Figures, and facts about how they came about.
    Measured(Box<Measured>, BTreeMap<String, String>),
    /// The path can't be here: why, and what to do about it.
    CannotHere(String),
}

/// Nothing moves any more if nothing did for so long.
const QUIET: Duration = Duration::from_millis(30);
const LOOK: Duration = Duration::from_millis(10);
/// No longer than this is that waited for.
const DRAIN_MOST: Duration = Duration::from_secs(2);
/// Drivers of NICs bring what they count up to date no less often: e1000 every two seconds
/// (e1000_watchdog, drivers/net/ethernet/intel/e1000/e1000_main.c).
const CATCH_UP: Duration = Duration::from_millis(2_500);
/// How long packets run to find out where they go.
const DIAGNOSIS: Duration = Duration::from_millis(200);
/// Of the places that packets went to, so many are told.
const PLACES_TOLD: usize = 6;
/// The link-layer address of nobody: one of those that anyone may use.
const NOBODY: [u8; 6] = [0x02, 0, 0, 0xde, 0xad, 0x01];
/// What waits looks at the wish to stop so often.
const NAP: Duration = Duration::from_millis(50);

/// All that stands for a block.
pub(crate) struct Stand {
    ground: Ground,
    cpus: Cpus,
    /// Threads that poll one of the user's own interfaces: no more, before the path goes.
    _threads: Option<Applied>,
    path: Box<dyn Standing>,
    sink: Option<Sink>,
    /// Counters of the kernel before the first packet.
    before: Counters,
}

/// Which ways all packets of a block took.
struct Ways {
    hops: Vec<Hop>,
    /// By receive queue of the path's device.
    queues: BTreeMap<u32, u64>,
    /// Packets that came in and were not the generator's, where there may be such.
    foreign: Option<u64>,
}

/// What was counted at a moment, while all runs.
struct Counted {
    at: Instant,
    generated: Vec<Generated>,
    handled: Handled,
    cpus: Reading,
}

impl Run<'_, '_> {
    /// Set up, measure, and take down.
    pub(super) fn block(&mut self, arm: &BenchArm) -> Result<Ran, EngineError> {
        self.block_of(arm, self.plan.window)
    }

    /// The same with a window of this length.
    pub(super) fn block_of(
        &mut self,
        arm: &BenchArm,
        window: Duration,
    ) -> Result<Ran, EngineError> {
        let fault = arm.planted.fault;
        let several = (fault == Some(Fault::Mtu) && arm.multi_buffer)
            .then_some("its program supports multi-buffer frames");
        if let Some(why) = several.or_else(|| fault.and_then(|f| f.spares(arm.bench, arm.path))) {
            return Ok(Ran::CannotHere(format!(
                "the fault has no effect on {}: {why}",
                arm.path
            )));
        }
        let limit = match (arm.offered, self.has_nics()) {
            (Offered::Most, false) => match self.limit(arm)? {
                Ok(limit) => limit,
                Err(why) => return Ok(Ran::CannotHere(why)),
            },
            _ => Limit::NotAsked,
        };
        let times = [window, self.plan.warmup];
        match &mut self.guest {
            Some(guest) => guest.block(arm, times, limit),
            None => measure(arm, self.own, times, limit, self.options.cancel),
        }
    }

    /// Run once more, and see where packets go.
    pub(super) fn diagnose(&mut self, arm: &BenchArm) -> Result<String, EngineError> {
        match &mut self.guest {
            Some(guest) => guest.diagnose(arm),
            None => diagnose(arm, self.own, self.options.cancel),
        }
    }
}

/// Set up, measure, and take down: a window so long, after packets ran so long.
pub(crate) fn measure(
    arm: &BenchArm,
    own: Option<&Own>,
    [window, warmup]: [Duration; 2],
    limit: Limit,
    cancel: &Cancel,
) -> Result<Ran, EngineError> {
    Ok(measure_by(arm, own, [window, warmup], limit, cancel, None)?.0)
}

/// The same, while what CPUs do is sampled.
pub(super) fn measure_watched(
    arm: &BenchArm,
    own: Option<&Own>,
    times: [Duration; 2],
    cancel: &Cancel,
) -> Result<(Ran, Option<Seen>), EngineError> {
    let watch = match Watch::attach() {
        Ok(watch) => watch,
        Err(error) => return Ok((cannot(error)?, None)),
    };
    measure_by(arm, own, times, Limit::NotAsked, cancel, Some(watch))
}

fn measure_by(
    arm: &BenchArm,
    own: Option<&Own>,
    [window, warmup]: [Duration; 2],
    limit: Limit,
    cancel: &Cancel,
    mut watch: Option<Watch>,
) -> Result<(Ran, Option<Seen>), EngineError> {
    let mut stand = match Stand::build(arm, own) {
        Ok(stand) => stand,
        Err(error) => return Ok((cannot(error)?, None)),
    };
    let clock = CpuClock::begin().map_err(EngineError::host("read how busy CPUs are"))?;
    let mut generator = match stand.generator(arm) {
        Ok(generator) => generator,
        Err(error) => return Ok((cannot(error)?, None)),
    };
    rest(warmup, cancel)?;
    let begun = stand.count(&mut generator, &clock)?;
    if let Some(watch) = &mut watch {
        watch.begin()?;
    }
    let mut of_run = stand.window(arm, window, cancel)?;
    if let Some(watch) = &mut watch {
        watch.stop();
    }
    let ended = stand.count(&mut generator, &clock)?;
    let seen = watch.map(Watch::read).transpose()?;
    let mut facts = BTreeMap::new();
    facts.extend(generator.facts().clone());
    if let Some(why) = clock.without_second() {
        facts.insert("cpu.second".into(), format!("none: {why}"));
    } else {
        facts.insert("cpu.second".into(), "time between tracepoints".into());
    }
    let all = generator.stop()?;
    let ways = stand.hops(arm, &all)?;
    let mut handled = ended.handled.since(&begun.handled);
    if let Some(foreign) = ways.foreign {
        handled.foreign = foreign;
    }
    facts.extend(stand.facts(arm)?);
    of_run.extend(stand.met(arm)?);
    let generated = ended.generated.iter().map(|now| {
        let before = begun.generated.iter().find(|b| b.cpu == now.cpu);
        before.map_or_else(|| now.clone(), |before| now.since(before))
    });
    let measured = Measured {
        window_ns: (ended.at - begun.at).as_nanos() as u64,
        generated: generated.collect(),
        handled,
        hops: ways.hops,
        queues: ways.queues,
        cpus: cpu::since(&begun.cpus, &ended.cpus),
        limit,
        of_run,
    };
    Ok((Ran::Measured(Box::new(measured), facts), seen))
}

/// Run once more, and see where packets go.
pub(crate) fn diagnose(
    arm: &BenchArm,
    own: Option<&Own>,
    cancel: &Cancel,
) -> Result<String, EngineError> {
    let mut stand = Stand::build(arm, own)?;
    let drops = match Drops::attach() {
        Ok(drops) => drops,
        Err(error) => return Ok(format!("unavailable: {error}")),
    };
    let inodes = stand.ground.inodes()?;
    let generator = stand.generator(arm)?;
    rest(DIAGNOSIS, cancel)?;
    let all = generator.stop()?;
    stand.quiet()?;
    let mut went: Vec<_> = drops.read(&inodes)?.into_iter().collect();
    went.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let frames: u64 = all.iter().map(|g| g.frames).sum();
    if went.is_empty() {
        return Ok(format!("the kernel reported no drops for {frames}"));
    }
    let told = went.iter().take(PLACES_TOLD);
    let told: Vec<String> = told.map(|(place, n)| format!("{n} {place}")).collect();
    Ok(format!("in another run, of {frames}: {}", told.join("; ")))
}

/// What a path can't do is no error of the run.
fn cannot(error: EngineError) -> Result<Ran, EngineError> {
    why_not(error).map(Ran::CannotHere)
}

/// Why a path can't be here, if that is what an error says.
pub(crate) fn why_not(error: EngineError) -> Result<String, EngineError> {
    match error {
        EngineError::Path(PathError::CannotRun { reason, remedy })
        | EngineError::Live(LiveError::CannotRun { reason, remedy })
        | EngineError::Nic(NicError::CannotRun { reason, remedy })
        | EngineError::Generator(GeneratorError::CannotRun { reason, remedy }) => {
            Ok(format!("{reason}: {remedy}"))
        }
        EngineError::Generator(GeneratorError::Input(what)) => Ok(what),
        other => Err(other),
    }
}

/// What the generator makes by itself: sent to a device whose far end drops at once.
/// There is no such limit where the kernel makes no frames by itself.
pub(crate) fn calibrate_for(arm: &BenchArm) -> Result<Limit, EngineError> {
    let plain = BenchArm {
        planted: Planted::default(),
        bench: Bench::Drop,
        path: DataPath::Xdp,
        offered: Offered::Most,
        apart: false,
        ..*arm
    };
    let ground = Ground::build(&plain, None)?;
    let cpus = cpus(&plain)?;
    let plan = plan_of(&ground, &plain, &cpus)?;
    let _dropping = set_up(&Way::new(plain.path, plain.bench), &ground.site)?;
    let calibration = match calibrate(&plan) {
        Ok(calibration) => calibration,
        Err(GeneratorError::CannotRun { .. }) => return Ok(Limit::NotAsked),
        Err(other) => return Err(other.into()),
    };
    Ok(match arm.apart {
        // On CPUs of its own, the path has no part in it.
        true => calibration.full_pps,
        // What is left of the CPU is the path's.
        false => calibration.loop_pps,
    })
}

fn cpus(arm: &BenchArm) -> Result<Cpus, EngineError> {
    let online = online()?;
    Cpus::of(arm, &online).ok_or(EngineError::TooFewCpus {
        asked: arm.cores * if arm.apart { 2 } else { 1 },
        there: online.len(),
    })
}

fn plan_of(ground: &Ground, arm: &BenchArm, cpus: &Cpus) -> Result<GeneratorPlan, EngineError> {
    let fault = arm.planted.fault;
    let mut exit = ground.exit(arm.path)?;
    if fault == Some(Fault::WrongMac) {
        exit.to_mac = NOBODY;
    }
    Ok(GeneratorPlan {
        exit,
        ttl: if fault == Some(Fault::Ttl) { 1 } else { TTL },
        frames: arm.frames,
        flow_ports: 0,
        offered: arm.offered,
        cpus: cpus.send.clone(),
        batch: arm.batch,
        stamped: arm.stamped,
        // It would find out that a device takes no frames by XDP.
        method: (fault == Some(Fault::NoNapi)).then_some(Method::Xdp),
    })
}

/// Wait, unless somebody wants to stop.
fn rest(time: Duration, cancel: &Cancel) -> Result<(), EngineError> {
    let end = Instant::now() + time;
    loop {
        if cancel.load(Ordering::Relaxed) {
            return Err(VmError::Interrupted.into());
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(NAP));
    }
}

impl Stand {
    /// Set it up.
    pub(crate) fn build(arm: &BenchArm, own: Option<&Own>) -> Result<Stand, EngineError> {
        let ground = Ground::build(arm, own)?;
        let cpus = cpus(arm)?;
        let way = Way {
            cpus: cpus.handle.clone(),
            stamped: arm.stamped && arm.bench == Bench::Drop,
            blocklist: (arm.sources > 0).then_some(arm.sources),
            lookups: arm.planted.lookups,
            multi_buffer: arm.multi_buffer,
            ..Way::new(arm.path, arm.bench)
        };
        // The sink first: a device that XDP frames are sent to has to poll.
        let sink = match &ground.sink {
            Some(site) => Some(Sink::set_up(site, arm.stamped)?),
            None => None,
        };
        let path = set_up(&way, &ground.site)?;
        if let Some(list) = path.blocklist() {
            changes::fill(&list, ground.site.source, arm.sources)
                .map_err(EngineError::host("fill the list of sources"))?;
        }
        let fault = arm.planted.fault;
        let polls_on = match (arm.apart, fault) {
            (_, Some(Fault::FullRing)) => Some(&cpus.send),
            (true, _) => Some(&cpus.handle),
            _ => None,
        };
        let own_threads = match (own, polls_on) {
            (Some(own), Some(cpus)) => Some(own.put_on(cpus)?),
            _ => None,
        };
        let (namespace, device) = (ground.tested(), &ground.devices[1]);
        if let (None, Some(cpus)) = (own, polls_on) {
            napi::put_on(namespace, device, cpus)
                .map_err(EngineError::host("put the path on CPUs of its own"))?;
        }
        if fault == Some(Fault::NoNapi) {
            (namespace.set_offload(device, Offload::Gro, false))
                .map_err(EngineError::host("turn GRO off"))?;
        }
        let mut stand = Stand {
            before: Counters::default(),
            ground,
            cpus,
            path,
            sink,
            _threads: own_threads,
        };
        stand.before = stand.counters()?;
        Ok(stand)
    }

    /// The window: nothing happens but what the arm has changed meanwhile.
    fn window(
        &mut self,
        arm: &BenchArm,
        window: Duration,
        cancel: &Cancel,
    ) -> Result<Vec<Figure>, EngineError> {
        let mut figures = Vec::new();
        match self.path.blocklist() {
            Some(list) => {
                let source = self.ground.site.source;
                let (updates, waited) =
                    changes::churn(&list, source, arm.sources, || rest(window, cancel));
                waited?;
                let updates = updates.map_err(EngineError::host("change the list of sources"))?;
                let per_s = updates as f64 / window.as_secs_f64();
                figures.push(Figure::new(&q::LIST_UPDATES, per_s));
            }
            None if arm.swaps > 0 => {
                let each = window / arm.swaps;
                for _ in 0..arm.swaps {
                    rest(each, cancel)?;
                    self.path.replace_program()?;
                }
                figures.push(Figure::new(&q::PROGRAMS, f64::from(arm.swaps + 1)));
            }
            None => rest(window, cancel)?,
        }
        Ok(figures)
    }

    /// What is loaded to send so many frames and no more.
    pub(crate) fn bounded(&self, arm: &BenchArm) -> Result<Bounded, EngineError> {
        let plan = plan_of(&self.ground, arm, &self.cpus)?;
        Ok(Bounded::new(&plan)?)
    }

    /// Begin to send.
    fn generator(&self, arm: &BenchArm) -> Result<Generator, EngineError> {
        Ok(Generator::start(plan_of(&self.ground, arm, &self.cpus)?)?)
    }

    /// Counters of the kernel in the namespace under test.
    fn counters(&self) -> Result<Counters, EngineError> {
        let site = &self.ground.site;
        let mut devices = vec![site.ingress.name.as_str()];
        devices.extend(site.egress.iter().map(|d| d.name.as_str()));
        if self.ground.is_shared() {
            // All are in one namespace.
            devices.push(&self.ground.devices[0]);
            let sink = self.ground.sink.as_ref();
            devices.extend(sink.map(|site| site.ingress.name.as_str()));
            devices.sort_unstable();
            devices.dedup();
        }
        Counters::read_all(site.namespace.as_fd(), &devices)
            .map_err(EngineError::host("read the kernel's counters"))
    }

    /// What came of packets in the end: at the sink, where they go on.
    pub(crate) fn handled(&mut self) -> Result<Handled, EngineError> {
        Ok(match &mut self.sink {
            Some(sink) => {
                let polls = self.path.handled()?.polls;
                Handled {
                    polls,
                    ..sink.handled()?
                }
            }
            None => self.path.handled()?,
        })
    }

    fn count(
        &mut self,
        generator: &mut Generator,
        clock: &CpuClock,
    ) -> Result<Counted, EngineError> {
        let cpus = clock
            .read()
            .map_err(EngineError::host("read how busy CPUs are"))?;
        let generated = generator
            .counts()
            .map_err(EngineError::host("read the generator's counts"))?;
        let at = Instant::now();
        Ok(Counted {
            at,
            generated,
            handled: self.handled()?,
            cpus,
        })
    }

    /// Wait until nothing moves any more.
    fn quiet(&mut self) -> Result<(), EngineError> {
        let begun = Instant::now();
        let mut last = self.handled()?;
        let mut since = Instant::now();
        while since.elapsed() < QUIET && begun.elapsed() < DRAIN_MOST {
            std::thread::sleep(LOOK);
            let now = self.handled()?;
            if (now.total(), &now.lost) != (last.total(), &last.lost) {
                since = Instant::now();
            }
            last = now;
        }
        Ok(())
    }

    /// The way of all packets, and by which queues they came, once nothing moves; and
    /// where others may send as well, how many came in that were not the generator's.
    fn hops(&mut self, arm: &BenchArm, generated: &[Generated]) -> Result<Ways, EngineError> {
        self.quiet()?;
        let begun = Instant::now();
        loop {
            let settled = begun.elapsed() > CATCH_UP;
            let ways = self.hops_now(arm, generated, settled)?;
            let closes = ways.hops.iter().all(|hop| hop.missing() == 0);
            // Counters of namespaces' veth are those of now.
            if closes || settled || !self.ground.is_shared() {
                return Ok(ways);
            }
            std::thread::sleep(LOOK);
        }
    }

    fn hops_now(
        &mut self,
        arm: &BenchArm,
        generated: &[Generated],
        settled: bool,
    ) -> Result<Ways, EngineError> {
        let path = self.path.handled()?;
        let sink = match &mut self.sink {
            Some(sink) => Some(sink.handled()?),
            None => None,
        };
        let grew = self.counters()?.since(&self.before);
        let [from, to] = &self.ground.devices;
        let site = &self.ground.site;
        let way = ledger::Way {
            bench: arm.bench,
            devices: [from, to],
            path: arm.path.as_str(),
            shared: self.ground.is_shared(),
            sink: (self.ground.sink.as_ref()).map(|site| site.ingress.name.as_str()),
            threaded: arm.apart || arm.planted.fault == Some(Fault::FullRing),
            egress: site.egress.as_ref().map(|device| device.name.as_str()),
            settled,
        };
        let foreign = self.ground.is_shared().then(|| {
            let came = grew.get(&format!("{to} rx_packets"));
            let sent: u64 = generated.iter().map(|g| g.sent).sum();
            path.foreign.max(came.saturating_sub(sent))
        });
        Ok(Ways {
            hops: way.hops(generated, &path, sink.as_ref(), grew.all()),
            queues: ledger::queues(to, grew.all()),
            foreign,
        })
    }

    /// How many of the programs that took turns met packets.
    fn met(&mut self, arm: &BenchArm) -> Result<Option<Figure>, EngineError> {
        if arm.swaps == 0 {
            return Ok(None);
        }
        let each = self.path.by_version()?;
        let some = each.iter().filter(|handled| handled.total() > 0).count();
        Ok(Some(Figure::new(&q::PROGRAMS_MET, some as f64)))
    }

    /// How the path is set up, under its name: such facts are not another path's.
    pub(crate) fn facts(
        &mut self,
        arm: &BenchArm,
    ) -> Result<BTreeMap<String, String>, EngineError> {
        let mut facts = self.path.facts();
        if let Some(sink) = &self.sink {
            facts.extend(sink.facts());
        }
        let named = facts.into_iter().map(|(key, value)| {
            let key = format!("{}.{}", arm.path, key.trim_start_matches("path."));
            (key, value)
        });
        Ok(named.collect())
    }
}
