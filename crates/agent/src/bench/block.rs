//! A block: set-up, measurement, teardown.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use netplumb_instruments::live::LiveError;
use netplumb_instruments::rates::cpu::{self, CpuClock, Reading};
use netplumb_instruments::rates::drops::Drops;
use netplumb_knobs::Applied;
use netplumb_lab::cancel::Cancel;
use netplumb_model::bench::{
    Bench, BenchArm, BlockRates, DataPath, Fault, Generated, Handled, Hop, Limit, Offered, Planted,
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

use super::changes;
use super::ground::{Cpus, Ground, online};
use super::ledger;
use super::nics::Own;
use super::watch::{Watch, WatchResult};
use crate::error::{BlockError, NicError};

/// The result of a block.
pub enum BlockResult {
    /// Figures, and facts about the set-up.
    Measured(Box<BlockRates>, BTreeMap<String, String>),
    /// The path is not supported: the reason and a remedy.
    CannotHere(String),
}

/// The topology counts as quiet if no counter changed for this long.
const QUIET: Duration = Duration::from_millis(30);
const LOOK: Duration = Duration::from_millis(10);
/// Maximum time to wait for that.
const DRAIN_MOST: Duration = Duration::from_secs(2);
/// Drivers of NICs update their counters at least this often: e1000 every two seconds
/// (e1000_watchdog, drivers/net/ethernet/intel/e1000/e1000_main.c).
const CATCH_UP: Duration = Duration::from_millis(2_500);
/// Duration of the run that traces missing packets.
const DIAGNOSIS: Duration = Duration::from_millis(200);
/// Maximum number of places to list.
const PLACES_TOLD: usize = 6;
/// A MAC address that no device has, of the locally administered range.
const NOBODY: [u8; 6] = [0x02, 0, 0, 0xde, 0xad, 0x01];
/// Polling interval while waiting.
const NAP: Duration = Duration::from_millis(50);

/// Everything that is set up for a block.
pub struct Stand {
    ground: Ground,
    cpus: Cpus,
    /// Threads that poll an interface of this machine; stopped before the path is torn down.
    _threads: Option<Applied>,
    path: Box<dyn Standing>,
    sink: Option<Sink>,
    /// Counters of the kernel before the first packet.
    before: Counters,
}

/// Where all packets of a block went.
struct Ways {
    hops: Vec<Hop>,
    /// By receive queue of the path's device.
    queues: BTreeMap<u32, u64>,
    /// Received packets that are not from the generator, where there may be some.
    foreign: Option<u64>,
}

/// Counters at a moment while packets run.
struct CounterReading {
    at: Instant,
    generated: Vec<Generated>,
    handled: Handled,
    cpus: Reading,
}

/// Set up, measure, and tear down, with a window and a warm-up of these durations.
pub fn measure(
    arm: &BenchArm,
    own: Option<&Own>,
    [window, warmup]: [Duration; 2],
    limit: Limit,
    cancel: &Cancel,
) -> Result<BlockResult, BlockError> {
    Ok(measure_by(arm, own, [window, warmup], limit, cancel, None)?.0)
}

/// The same, while an instrument measures the window.
pub fn measure_watched(
    arm: &BenchArm,
    own: Option<&Own>,
    times: [Duration; 2],
    cancel: &Cancel,
) -> Result<(BlockResult, Option<WatchResult>), BlockError> {
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
) -> Result<(BlockResult, Option<WatchResult>), BlockError> {
    let mut stand = match Stand::build(arm, own) {
        Ok(stand) => stand,
        Err(error) => return Ok((cannot(error)?, None)),
    };
    let clock = CpuClock::begin().map_err(BlockError::host("read how busy CPUs are"))?;
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
    let measured = BlockRates {
        window_ns: (ended.at - begun.at).as_nanos() as u64,
        generated: generated.collect(),
        handled,
        hops: ways.hops,
        queues: ways.queues,
        cpus: cpu::since(&begun.cpus, &ended.cpus),
        limit,
        of_run,
    };
    Ok((BlockResult::Measured(Box::new(measured), facts), seen))
}

/// Run again, and trace where packets go.
pub fn diagnose(arm: &BenchArm, own: Option<&Own>, cancel: &Cancel) -> Result<String, BlockError> {
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
    let places = went.iter().take(PLACES_TOLD);
    let texts: Vec<String> = places.map(|(place, n)| format!("{n} {place}")).collect();
    Ok(format!("in another run, of {frames}: {}", texts.join("; ")))
}

/// An unsupported path is not an error of the run.
fn cannot(error: BlockError) -> Result<BlockResult, BlockError> {
    why_not(error).map(BlockResult::CannotHere)
}

/// Why a path is not supported, if that is the error.
pub fn why_not(error: BlockError) -> Result<String, BlockError> {
    match error {
        BlockError::Path(PathError::CannotRun { reason, remedy })
        | BlockError::Live(LiveError::CannotRun { reason, remedy })
        | BlockError::Nic(NicError::CannotRun { reason, remedy })
        | BlockError::Generator(GeneratorError::CannotRun { reason, remedy }) => {
            Ok(format!("{reason}: {remedy}"))
        }
        BlockError::Generator(GeneratorError::Input(what)) => Ok(what),
        other => Err(other),
    }
}

/// The rate of the generator alone, sending to a device whose far end drops at once. There is no
/// such limit if the kernel can't generate frames.
pub fn calibrate_for(arm: &BenchArm) -> Result<Limit, BlockError> {
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
        // The path has its own CPUs.
        true => calibration.full_pps,
        // Generator and path share a CPU.
        false => calibration.loop_pps,
    })
}

fn cpus(arm: &BenchArm) -> Result<Cpus, BlockError> {
    let online = online()?;
    Cpus::from_arm(arm, &online).ok_or(BlockError::TooFewCpus {
        asked: arm.cores * if arm.apart { 2 } else { 1 },
        there: online.len(),
    })
}

fn plan_of(ground: &Ground, arm: &BenchArm, cpus: &Cpus) -> Result<GeneratorPlan, BlockError> {
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
        // It would detect that the device accepts no frames by XDP.
        method: (fault == Some(Fault::NoNapi)).then_some(Method::Xdp),
    })
}

/// Wait, unless the run is stopped.
fn rest(time: Duration, cancel: &Cancel) -> Result<(), BlockError> {
    let end = Instant::now() + time;
    loop {
        if cancel.load(Ordering::Relaxed) {
            return Err(BlockError::Interrupted);
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
    pub fn build(arm: &BenchArm, own: Option<&Own>) -> Result<Stand, BlockError> {
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
        // The sink first: the device that receives XDP frames has to poll.
        let sink = match &ground.sink {
            Some(site) => Some(Sink::set_up(site, arm.stamped)?),
            None => None,
        };
        let path = set_up(&way, &ground.site)?;
        if let Some(list) = path.blocklist() {
            changes::fill(&list, ground.site.source, arm.sources)
                .map_err(BlockError::host("fill the list of sources"))?;
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
                .map_err(BlockError::host("put the path on CPUs of its own"))?;
        }
        if fault == Some(Fault::NoNapi) {
            (namespace.set_offload(device, Offload::Gro, false))
                .map_err(BlockError::host("turn GRO off"))?;
        }
        let mut stand =
            Stand { before: Counters::default(), ground, cpus, path, sink, _threads: own_threads };
        stand.before = stand.counters()?;
        Ok(stand)
    }

    /// Run the window, with the changes that the arm makes meanwhile.
    fn window(
        &mut self,
        arm: &BenchArm,
        window: Duration,
        cancel: &Cancel,
    ) -> Result<Vec<Figure>, BlockError> {
        let mut figures = Vec::new();
        match self.path.blocklist() {
            Some(list) => {
                let source = self.ground.site.source;
                let (updates, waited) =
                    changes::churn(&list, source, arm.sources, || rest(window, cancel));
                waited?;
                let updates = updates.map_err(BlockError::host("change the list of sources"))?;
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

    /// Load a generator that sends a given number of frames.
    pub fn bounded(&self, arm: &BenchArm) -> Result<Bounded, BlockError> {
        let plan = plan_of(&self.ground, arm, &self.cpus)?;
        Ok(Bounded::new(&plan)?)
    }

    /// Start the generator.
    fn generator(&self, arm: &BenchArm) -> Result<Generator, BlockError> {
        Ok(Generator::start(plan_of(&self.ground, arm, &self.cpus)?)?)
    }

    /// Counters of the kernel in the namespace under test.
    fn counters(&self) -> Result<Counters, BlockError> {
        let site = &self.ground.site;
        let mut devices = vec![site.ingress.name.as_str()];
        devices.extend(site.egress.iter().map(|d| d.name.as_str()));
        if self.ground.is_shared() {
            // All NICs are in one namespace.
            devices.push(&self.ground.devices[0]);
            let sink = self.ground.sink.as_ref();
            devices.extend(sink.map(|site| site.ingress.name.as_str()));
            devices.sort_unstable();
            devices.dedup();
        }
        Counters::read_all(site.namespace.as_fd(), &devices)
            .map_err(BlockError::host("read the kernel's counters"))
    }

    /// Final counters: the sink's, if packets are forwarded.
    pub fn handled(&mut self) -> Result<Handled, BlockError> {
        Ok(match &mut self.sink {
            Some(sink) => {
                let polls = self.path.handled()?.polls;
                Handled { polls, ..sink.handled()? }
            }
            None => self.path.handled()?,
        })
    }

    fn count(
        &mut self,
        generator: &mut Generator,
        clock: &CpuClock,
    ) -> Result<CounterReading, BlockError> {
        let cpus = clock.read().map_err(BlockError::host("read how busy CPUs are"))?;
        let generated =
            generator.counts().map_err(BlockError::host("read the generator's counts"))?;
        let at = Instant::now();
        Ok(CounterReading { at, generated, handled: self.handled()?, cpus })
    }

    /// Wait until no counter changes any more.
    fn quiet(&mut self) -> Result<(), BlockError> {
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

    /// The hops of all packets, and packets by receive queue, when all is quiet; on shared
    /// interfaces, also the number of received packets that are not from the generator.
    fn hops(&mut self, arm: &BenchArm, generated: &[Generated]) -> Result<Ways, BlockError> {
        self.quiet()?;
        let begun = Instant::now();
        loop {
            let settled = begun.elapsed() > CATCH_UP;
            let ways = self.hops_now(arm, generated, settled)?;
            let closes = ways.hops.iter().all(|hop| hop.missing() == 0);
            // Counters of veth are always up to date.
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
    ) -> Result<Ways, BlockError> {
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

    /// How many of the replaced programs handled packets.
    fn met(&mut self, arm: &BenchArm) -> Result<Option<Figure>, BlockError> {
        if arm.swaps == 0 {
            return Ok(None);
        }
        let each = self.path.by_version()?;
        let some = each.iter().filter(|handled| handled.total() > 0).count();
        Ok(Some(Figure::new(&q::PROGRAMS_MET, some as f64)))
    }

    /// Facts about the path's set-up, under its name, to keep paths apart.
    pub fn facts(&mut self, arm: &BenchArm) -> Result<BTreeMap<String, String>, BlockError> {
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
