//! Two hosts as namespaces of this machine, joined by veth: the loads of two guests, by this machine's clock and its
//! own accounting of CPU time, with other programs running.

mod block;

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use netplumb_instruments::rates::cpu::{self, CpuClock};
use netplumb_lab::netns::Topology;
use netplumb_lab::vm::files::{FilesError, Program};
use netplumb_model::experiment::{Load, buffer_of};
use netplumb_model::hosts::{CLOCKED, Client, HostLoad, Side};
use netplumb_model::recording::{Arm, Recording, env};
use netplumb_model::web::{WebLoad, WebPlan};
use netplumb_sys::cpus::allowed;
use netplumb_sys::netns::with_own_memory;
use netplumb_workload::ends::Ends;
use netplumb_workload::peers::{self, PeerError, StreamOf};
use netplumb_workload::web::Server;

use crate::error::EngineError;
use crate::extras;
use crate::hosts::{HostsRun, load_of};
use crate::outside::clean_up;
use crate::run::{Options, Progress, Save};
use crate::schedule::{Turn, interleaved};
use crate::site::{self, Alone, Ended, Keeper, OneAtATime, take_up};
use netplumb_agent::ends::{ends_of, topology_of};

/// Seed of the order of blocks.
const SEED: u64 = 1;

/// Run both hosts as namespaces, all arms in turns. Results from before an error are in the recording.
///
/// # Errors
/// See [`EngineError`].
pub fn run_namespaces(
    run: &HostsRun,
    options: &Options,
    recording: &mut Recording,
    save: Save<'_>,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(), EngineError> {
    let done = take_up(recording, &run.plan.arms, &[CLOCKED], run.plan.blocks)?;
    recording.complete = false;
    clean_up(&mut |note| progress(Progress::Note(note)));
    let cpus = two_cpus();
    let clock = CpuClock::begin().map_err(EngineError::host("read the CPU time"))?;
    let by = match clock.without_second() {
        None => "tracepoints".to_string(),
        Some(_) => "/proc/stat".to_string(),
    };
    let facts = &mut recording.environment;
    facts.extend(netplumb_agent::facts::machine());
    facts.extend(cpu::facts());
    for (key, value) in [
        (env::LAB, "netns".to_string()),
        (env::CLOCK, CLOCKED.to_string()),
        (env::UNIT, "bytes".to_string()),
        (env::HOSTS_CPUS, format!("{} {}", cpus[0], cpus[1])),
        (env::HOSTS_CPU_USE, by),
    ] {
        facts.insert(key.into(), value);
    }
    progress(Progress::Step("setting up network namespaces".into()));
    let mut arms = Vec::new();
    for (number, arm) in run.plan.arms.iter().enumerate() {
        let host = match Standing::build(run, arm, cpus) {
            Ok(host) => host,
            Err(error) if run.plan.arms.len() > 1 && error.is_of_one_arm() => {
                let failed = &mut recording.notes_of(number).failed;
                failed.insert(CLOCKED.into(), error.to_string());
                arms.push(None);
                continue;
            }
            Err(error) => return Err(error.of_arm(number, &run.plan.arms)),
        };
        let prefix = format!("net.{}.{}", arm.link, arm.family);
        for (key, value) in netplumb_agent::facts::topology(&prefix, &host.topology) {
            recording.environment.entry(key).or_insert(value);
        }
        let notes = &host.topology.notes;
        extras::note(recording, number, notes);
        recording.notes_of(number).facts.extend(notes.clone());
        let count = if cpus[0] == cpus[1] { 1 } else { 2 };
        extras::idle(recording, number, (Load::Stream, count), None);
        arms.push(Some(host));
    }
    let built: Vec<bool> = arms.iter().map(Option::is_some).collect();
    let all = run.plan.arms.len() as u32 * run.plan.blocks;
    let before = done.len() as u32 * run.plan.blocks;
    let turns = interleaved(arms.len(), 1, 0..run.plan.blocks, SEED);
    let turns = turns.filter(|turn| built[turn.arm] && !done.contains(&(turn.arm, turn.by)));
    let mut site = OneAtATime::new(Namespaces {
        has_failed: built.contains(&false),
        arms,
        cpus,
        clock: Arc::new(clock),
        progress,
    });
    let mut keeper = Keeper::new(recording, save, &options.cancel);
    site::run(&mut site, turns, &[CLOCKED], &mut keeper, &mut |_, over| {
        progress(Progress::Blocks(before + over, all));
    })?;
    keeper.recording.complete = true;
    keeper.keep()?;
    match site.site.has_failed {
        true => site::failed(keeper.recording),
        // What can't be measured here is not a failure.
        false => Ok(()),
    }
}

/// The CPUs of the sender and the receiver: two, or the only one.
fn two_cpus() -> [u32; 2] {
    let mut all = allowed().unwrap_or_default().into_iter();
    let first = all.next().unwrap_or(0);
    [first, all.next().unwrap_or(first)]
}

/// The namespaces of an arm.
struct Standing {
    arm: Arm,
    load: HostLoad,
    client: Client,
    /// Its web server, which runs as long as this; it ends before its namespaces go.
    _server: Option<Serving>,
    topology: Topology,
    ends: Ends,
    /// Blocks so far: each has connections of its own.
    blocks: u32,
}

impl Standing {
    fn build(run: &HostsRun, arm: &Arm, cpus: [u32; 2]) -> Result<Standing, EngineError> {
        let topology = Topology::build_named(&topology_of(&run.plan.run_plan(arm)))?;
        let ends = ends_of(&topology).map_err(EngineError::host("open a network namespace"))?;
        let load = load_of(run.load, arm);
        let server = match load {
            HostLoad::Web(load) => Some(serve(arm, load, &ends, cpus[0])?),
            _ => None,
        };
        Ok(Standing {
            arm: arm.clone(),
            load,
            client: arm.read("client").unwrap_or_default(),
            _server: server,
            topology,
            ends,
            blocks: 0,
        })
    }
}

/// Start the web server of an arm.
fn serve(arm: &Arm, load: WebLoad, ends: &Ends, cpu: u32) -> Result<Serving, EngineError> {
    if let Some(bytes) = buffer_of(arm, Side::Tx) {
        // nginx can't exceed it, and it applies to the whole machine.
        let most = std::fs::read_to_string("/proc/sys/net/core/wmem_max").unwrap_or_default();
        if let Ok(most) = most.trim().parse::<u32>()
            && most < bytes
        {
            return Err(EngineError::Guest(format!(
                "the web server can't have a send buffer of {bytes} bytes: this machine allows {most}; raise it by \
                 sysctl -w net.core.wmem_max={bytes}"
            )));
        }
    }
    let (plan, buffer) = (WebPlan::from_arm(arm), buffer_of(arm, Side::Tx));
    let ends = ends.try_clone().map_err(EngineError::host("duplicate a network namespace"))?;
    let started = Serving::start(move || {
        with_own_memory(FOLDER)?;
        let folder = Path::new(OsStr::from_bytes(FOLDER.to_bytes()));
        Server::start(
            "nginx".as_ref(),
            &folder.join("nginx"),
            &folder.join("www"),
            (&plan, load.directories),
            buffer,
            &ends,
            Some(cpu),
        )
    });
    started.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => FilesError::Missing(Program::Nginx.missing()).into(),
        _ => failed("start the web server")(source),
    })
}

/// Where a web server has its files: in memory that only it sees, so that nothing of it is left.
const FOLDER: &CStr = c"/run";

/// A web server, and the thread that started it, with which it would end.
struct Serving {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    fn start(server: impl FnOnce() -> io::Result<Server> + Send + 'static) -> io::Result<Serving> {
        let (started, has_started) = channel();
        let (end, has_ended) = channel();
        let thread = thread::spawn(move || match server() {
            Ok(server) => {
                // Nobody waits any more where this can't be sent: then it ends at once.
                let _ = started.send(Ok(()));
                let _ = has_ended.recv();
                drop(server);
            }
            Err(error) => drop(started.send(Err(error))),
        });
        let serving = Serving { end: Some(end), thread: Some(thread) };
        match has_started.recv() {
            Ok(Ok(())) => Ok(serving),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::Error::other("the thread of the web server ended")),
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // If it panicked, the server has ended with it.
            let _ = thread.join();
        }
    }
}

/// An error of a workload.
fn failed(doing: &'static str) -> impl Fn(io::Error) -> EngineError {
    move |source| EngineError::Workload { doing, source }
}

/// The site: pairs of namespaces, one busy at a time.
struct Namespaces<'a> {
    /// None for arms that could not be set up.
    arms: Vec<Option<Standing>>,
    /// Whether the settings or the packets of an arm failed.
    has_failed: bool,
    cpus: [u32; 2],
    clock: Arc<CpuClock>,
    progress: &'a (dyn Fn(Progress) + Sync),
}

impl Alone for Namespaces<'_> {
    fn turn(&mut self, turn: &Turn, keeper: &mut Keeper<'_>) -> Result<Ended, EngineError> {
        let ended = self.blocks(turn, keeper.recording);
        let others = self.arms.len() > 1 && !keeper.is_cancelled();
        ended
            .or_else(|error| {
                self.has_failed = true;
                Ended::by(error, others)
            })
            .map_err(|error| error.of_arm(turn.arm, &keeper.recording.arms))
    }
}

impl Namespaces<'_> {
    /// The blocks of a turn.
    fn blocks(&mut self, turn: &Turn, recording: &mut Recording) -> Result<Ended, EngineError> {
        let Some(standing) = &mut self.arms[turn.arm] else {
            return Ok(Ended::Measured);
        };
        if standing.blocks == 0 {
            (self.progress)(Progress::Arm(standing.arm.name.clone()));
        }
        for index in turn.blocks.clone() {
            let ran = match standing.client {
                Client::Plumb => {
                    if standing.blocks == 0 {
                        let warm_up = standing.load.warm_up();
                        block::run(standing, warm_up, self.cpus, &self.clock)?;
                    }
                    block::run(standing, standing.load, self.cpus, &self.clock)?
                }
                client => {
                    standing.blocks += 1;
                    match by_other(client, standing, self.cpus) {
                        Ok(ran) => ran.into(),
                        Err(missing @ PeerError::Missing(_)) => {
                            return Ok(Ended::CannotHere(missing.to_string()));
                        }
                        Err(why) => return Err(EngineError::Peer(why)),
                    }
                }
            };
            block::add(recording, turn.arm as u32, index, &ran);
        }
        Ok(Ended::Measured)
    }
}

/// A block by another program.
fn by_other(
    client: Client,
    standing: &Standing,
    cpus: [u32; 2],
) -> Result<peers::PeerRan, PeerError> {
    let ends = &standing.ends;
    match (client, standing.load) {
        (Client::Wrk, HostLoad::Web(load)) => peers::wrk(load, ends, cpus[1]),
        (Client::Iperf3, HostLoad::Stream { bytes, write_bytes, connections }) => {
            let stream = StreamOf {
                bytes,
                write_bytes,
                connections,
                buffer_bytes: buffer_of(&standing.arm, Side::Tx),
            };
            peers::iperf3(stream, ends, cpus)
        }
        // An experiment of another kind has no such client, which its check ensures.
        (client, _) => Err(PeerError::Failed(client.as_str(), "no such load".to_string())),
    }
}
