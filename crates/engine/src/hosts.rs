//! Two hosts and a wire between them: each arm in two guests that start from saved states, and run
//! together in virtual time.

mod frames;

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

use netplumb_instruments::wire::{self, WireEnd};
use netplumb_lab::vm::kernels::{KernelEntry, KernelStore};
use netplumb_lab::vm::process::{self, Extra, VmError};
use netplumb_lab::vm::saved::Key;
use netplumb_lab::vm::{link, pair, trial};
use netplumb_model::experiment::{Load, buffer_of, link_of, module_options};
use netplumb_model::hosts::{self, HostBlock, HostLoad, HostOf, HostPlan, Latch, Side, Wire};
use netplumb_model::message::{Reply, Request, RunPlan};
use netplumb_model::quantity::{Declared, Figure, Item, Of};
use netplumb_model::recording::{Arm, Block, Ledger, Recording, env};

use crate::error::EngineError;
use crate::extras;
use crate::origin::{Boot, Origin};
use crate::plan::{GuestPlan, Plan};
use crate::run::{Options, Progress, Save, note_machine};
use crate::schedule::{Turn, whole};
use crate::site::{self, Alone, Ended, Keeper, OneAtATime, take_up};

/// The fact with the hash of every frame's time.
const FRAMES_HASH: &str = "wire.frames";

/// A run of two hosts.
#[derive(Debug, Clone)]
pub struct HostsRun {
    /// The arms and their blocks.
    pub plan: Plan,
    /// What is sent; the size of requests is that of the arm.
    pub load: HostLoad,
}

/// Run two hosts. What was measured before an error is in the recording.
///
/// # Errors
/// See [`EngineError`].
pub fn run_hosts(
    run: &HostsRun,
    options: &Options,
    recording: &mut Recording,
    save: Save<'_>,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(), EngineError> {
    let qemu = trial::find_qemu().map_err(VmError::QemuMissing)?;
    let store = KernelStore::new(&options.cache);
    let names = [hosts::INSTRUMENT];
    let done = take_up(recording, &run.plan.arms, &names, run.plan.blocks)?;
    recording.complete = false;
    note_machine(recording, options);
    for (key, value) in [
        (env::LAB, "vm"),
        (env::CLOCK, hosts::INSTRUMENT),
        (env::UNIT, "bytes"),
    ] {
        recording.environment.insert(key.into(), value.into());
    }
    // Looked up before the first boot, so that a wrong name is an error at once.
    for guest in run.plan.guests() {
        extras::check(&store.find(&guest.kernel)?, &guest)?;
    }
    let all = run.plan.arms.len() as u32 * run.plan.blocks;
    let turns = whole(run.plan.arms.len(), 1, 0..run.plan.blocks);
    let turns = turns.into_iter().filter(|t| !done.contains(&(t.arm, t.by)));
    let before = done.len() as u32 * run.plan.blocks;
    let mut keeper = Keeper::new(recording, save, &options.cancel);
    let mut site = OneAtATime::new(Hosts {
        run,
        options,
        progress,
        qemu: &qemu,
        store: &store,
        origins: Vec::new(),
    });
    site::run(&mut site, turns, &names, &mut keeper, &mut |_, over| {
        progress(Progress::Blocks(before + over, all));
    })?;
    keeper.recording.complete = true;
    keeper.keep()
}

/// The site: two guests for each arm.
struct Hosts<'a> {
    run: &'a HostsRun,
    options: &'a Options,
    progress: &'a (dyn Fn(Progress) + Sync),
    qemu: &'a Path,
    store: &'a KernelStore,
    /// Where guests start from, with what each is for.
    origins: Vec<(GuestPlan, Origin)>,
}

impl Alone for Hosts<'_> {
    fn turn(&mut self, turn: &Turn, keeper: &mut Keeper<'_>) -> Result<Ended, EngineError> {
        let arm = &self.run.plan.arms[turn.arm];
        let ends = [Side::Tx, Side::Rx].map(|side| End::of(self.run, arm, side));
        self.prepare(&ends)?;
        (self.progress)(Progress::Arm(arm.name.clone()));
        let origins = [self.origin(&ends[0])?, self.origin(&ends[1])?];
        let ran = run_pair(arm, &ends, origins, self.options)?;
        let recording = &mut *keeper.recording;
        for origin in origins {
            for (key, value) in &origin.facts {
                let facts = &mut recording.environment;
                facts.entry(key.clone()).or_insert_with(|| value.clone());
            }
            extras::note(recording, turn.arm, &origin.facts);
        }
        let facts = &mut recording.notes_of(turn.arm).facts;
        facts.extend(ran.notes);
        facts.insert(FRAMES_HASH.into(), ran.frames_hash);
        // One CPU each.
        extras::idle(recording, turn.arm, Load::Stream, 1);
        for (index, sides) in turn.blocks.clone().zip(ran.blocks) {
            add(recording, turn.arm, index, &ends, &sides);
        }
        Ok(Ended::Measured)
    }
}

impl Hosts<'_> {
    /// Find or make the saved states of both hosts; two boot at the same time.
    fn prepare(&mut self, ends: &[End; 2]) -> Result<(), EngineError> {
        let missing: Vec<&End> = (ends.iter())
            .filter(|end| self.origin(end).is_err())
            .collect();
        let made = thread::scope(|scope| {
            let threads: Vec<_> = (missing.iter())
                .map(|end| {
                    let (options, qemu, progress) = (self.options, self.qemu, self.progress);
                    let kernel = self.store.find(&end.guest.kernel);
                    scope.spawn(move || -> Result<Origin, EngineError> {
                        let kernel: KernelEntry = kernel?;
                        let boot = Boot {
                            guest: &end.guest,
                            kernel: &kernel,
                            options,
                            qemu,
                        };
                        boot.origin(&end.links, &|event| progress(event))
                    })
                })
                .collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect::<Vec<_>>()
        });
        for (end, origin) in missing.into_iter().zip(made) {
            self.origins.push((end.guest.clone(), origin?));
        }
        Ok(())
    }

    fn origin(&self, end: &End) -> Result<&Origin, EngineError> {
        let known = |(guest, origin): &&(GuestPlan, Origin)| {
            *guest == end.guest && origin.is_for(&end.links)
        };
        let found = self.origins.iter().find(known);
        let found = found.map(|(_, origin)| origin);
        found.ok_or(EngineError::OtherPlan("other arms"))
    }
}

/// One of the two hosts of an arm.
struct End {
    side: Side,
    guest: GuestPlan,
    links: RunPlan,
    plan: HostPlan,
}

impl End {
    fn of(run: &HostsRun, arm: &Arm, side: Side) -> End {
        let one = Plan {
            arms: vec![arm.clone()],
            ..run.plan.clone()
        };
        // One arm is one guest.
        let guest = one.guests().remove(0);
        let guest = GuestPlan {
            host: Some(HostOf {
                side,
                icount_shift: arm.read(shift_of(side)).unwrap_or(0),
                throttles: arm.level("throttle") != Some("off"),
            }),
            link: link_of(arm, side),
            module_options: module_options(arm, Some(side)),
            // Arms that differ in what a guest can change share a state.
            arms: Vec::new(),
            ..guest
        };
        let mut links = RunPlan {
            host: Some(side),
            link: link_of(arm, side),
            ..run.plan.run_plan(arm)
        };
        let within = arm.level("offload_in").unwrap_or("both");
        if within != "both" && within != side.as_str() {
            links.offload.clear();
        }
        let load = match run.load {
            HostLoad::Request { turns, .. } => HostLoad::Request {
                turns,
                size_bytes: arm.size_bytes,
            },
            stream @ HostLoad::Stream { .. } => stream,
        };
        let plan = HostPlan {
            links: links.clone(),
            load,
            buffer_bytes: buffer_of(arm, side),
            blocks: run.plan.blocks,
        };
        End {
            side,
            guest,
            links,
            plan,
        }
    }

    fn icount_shift(&self) -> u8 {
        self.guest.host.map_or(0, |host| host.icount_shift)
    }
}

fn shift_of(side: Side) -> &'static str {
    match side {
        Side::Tx => "tx_shift",
        Side::Rx => "rx_shift",
    }
}

/// The results of an arm.
struct Ran {
    /// The blocks, of the sender and the receiver.
    blocks: Vec<[HostBlock; 2]>,
    /// The guests' notes on knobs.
    notes: Vec<(String, String)>,
    /// The hash of the times of all frames.
    frames_hash: String,
}

/// What a guest told.
#[derive(Default)]
struct Told {
    blocks: Vec<HostBlock>,
    last: Latch,
    notes: Vec<(String, String)>,
}

/// Run both guests of an arm.
fn run_pair(
    arm: &Arm,
    ends: &[End; 2],
    origins: [&Origin; 2],
    options: &Options,
) -> Result<Ran, EngineError> {
    let wire = Wire::of(arm);
    let sockets = UnixStream::pair().map_err(EngineError::host("make a socket pair"))?;
    let sockets: [OwnedFd; 2] = [sockets.0.into(), sockets.1.into()];
    let mut guests = Vec::new();
    let mut logs = Vec::new();
    for ((end, origin), socket) in ends.iter().zip(origins).zip(sockets) {
        let (log, extra) = plug(arm, wire, end, socket, options)?;
        let requests = [Request::BeHost(end.plan.clone())];
        guests.push(origin.start(&requests, extra, options)?);
        logs.push(log);
    }
    let guests: [process::Guest; 2] = guests
        .try_into()
        .map_err(|_| EngineError::OtherPlan("other hosts"))?;
    let limit = options.timeout;
    let [tx, rx] = pair::together(guests, |_, guest| {
        let mut told = Told::default();
        guest.go_on()?;
        guest.answers(limit, |reply| {
            match reply {
                Reply::HostBlocks(blocks, last) => (told.blocks, told.last) = (blocks, last),
                Reply::Facts(notes) => told.notes.extend(notes),
                _ => {}
            }
            Ok(())
        })?;
        Ok(told)
    })
    .map_err(EngineError::of_start)?;
    check(&tx.last, &rx.last)?;
    check(&rx.last, &tx.last)?;
    let mut hash = Key::default();
    for (end, mut log) in ends.iter().zip(logs) {
        let mut entries = Vec::new();
        log.rewind()
            .and_then(|()| log.read_to_end(&mut entries))
            .map_err(EngineError::host("read the log of frames"))?;
        frames::check(&entries, wire)?;
        hash.add(end.side.as_str(), &entries);
    }
    Ok(Ran {
        blocks: (tx.blocks.into_iter().zip(rx.blocks))
            .map(|(tx, rx)| [tx, rx])
            .collect(),
        notes: tx.notes.into_iter().chain(rx.notes).collect(),
        frames_hash: hash.finish(),
    })
}

/// The plugin for one of the hosts, and the file with its log.
fn plug(
    arm: &Arm,
    wire: Wire,
    end: &End,
    socket: OwnedFd,
    options: &Options,
) -> Result<(File, Extra), EngineError> {
    let memfd = |name, bytes| {
        process::memfd(name, bytes).map_err(EngineError::host("hold the plugin of the wire"))
    };
    let plugin = memfd("netplumb-wire", wire::PLUGIN)?;
    let log = memfd("netplumb-frames", &[])?;
    let ours = log
        .try_clone()
        .map_err(EngineError::host("hold the log of frames"))?;
    let seed: u64 = arm.read("seed").unwrap_or(1);
    let end = WireEnd {
        wire,
        host: end.side.as_str(),
        nic: &link::port_of_host(end.side),
        mtu_bytes: arm.read("mtu_bytes"),
        // Each direction has losses of its own.
        seed: seed << 1 | end.side as u64,
        patience_s: options.timeout.as_secs(),
    };
    let fds = [plugin.as_raw_fd(), socket.as_raw_fd(), log.as_raw_fd()];
    let extra = Extra {
        args: wire::qemu_args(&end, fds[0], fds[1], fds[2]),
        fds: vec![plugin, socket, log],
    };
    Ok((File::from(ours), extra))
}

/// Check the ledger of the wire, in one direction.
fn check(from: &Latch, to: &Latch) -> Result<(), EngineError> {
    let accounted = to.arrived + to.under_way + from.lost + from.too_long;
    if from.late + to.late > 0 || accounted != from.frames {
        return Err(EngineError::Guest(format!(
            "the wire failed its check: {} frames sent, {accounted} accounted for, {} late",
            from.frames,
            from.late + to.late
        )));
    }
    Ok(())
}

/// Add a block.
fn add(recording: &mut Recording, arm: usize, index: u32, ends: &[End; 2], sides: &[HostBlock; 2]) {
    let [tx, rx] = sides;
    let begin = tx.begin.clock_ns;
    let is_stream = tx.turns_ns.is_empty();
    // The last byte of a stream is the receiver's, that of an answer the sender's.
    let over = if is_stream { rx } else { tx }.end.clock_ns;
    let duration_ns = over.saturating_sub(begin);
    let dropped = match tx.bytes.saturating_sub(rx.bytes) {
        0 => Default::default(),
        missing => [("unaccounted".to_string(), missing)].into(),
    };
    recording.blocks.push(Block {
        arm: arm as u32,
        instrument: hosts::INSTRUMENT.into(),
        index,
        ledger: Ledger {
            offered: tx.bytes,
            delivered: rx.bytes,
            dropped,
        },
        totals: Vec::new(),
        entered: 0,
        returned: 0,
        duration_ns,
    });
    let block = Of::Block(recording.blocks.len() as u32 - 1);
    let seconds = duration_ns as f64 / 1e9;
    let mut figure = |quantity: &Declared, item: Item, value: f64| {
        recording.add_figure(block, Figure::new(quantity, value).of(item));
    };
    if is_stream {
        let bits = rx.bytes as f64 * 8.0;
        figure(&hosts::THROUGHPUT, Item::ONLY, bits / seconds);
    } else {
        let turns = tx.turns_ns.len() as f64;
        figure(&hosts::TURNS, Item::ONLY, turns / seconds);
        for (label, value) in spread(&tx.turns_ns) {
            figure(&hosts::TURN, Item::label(label), value);
        }
    }
    let passed = |block: &HostBlock| (block.end.clock_ns - block.begin.clock_ns) as f64;
    let wire_use = (tx.end.busy_ns - tx.begin.busy_ns) as f64 / passed(tx);
    figure(&hosts::WIRE_USE, Item::ONLY, wire_use);
    let retransmitted = tx.retransmitted as f64;
    figure(&hosts::RETRANSMITTED, Item::ONLY, retransmitted);
    for (end, side) in ends.iter().zip(sides) {
        let HostBlock {
            begin, end: over, ..
        } = side;
        let instructions = over.instructions - begin.instructions;
        let busy_ns = instructions << end.icount_shift();
        let lost = (over.lost + over.too_long) - (begin.lost + begin.too_long);
        for (quantity, value) in [
            (&hosts::BUSY, busy_ns as f64 / passed(side)),
            (&hosts::INSTRUCTIONS, instructions as f64),
            (&hosts::INTERRUPTS, side.interrupts as f64),
            (&hosts::FRAMES, (over.frames - begin.frames) as f64),
            (&hosts::WIRE_BYTES, (over.bytes - begin.bytes) as f64),
            (&hosts::LOST, lost as f64),
            (&hosts::HELD, (over.held - begin.held) as f64),
            (&hosts::LONGEST_WAIT, over.longest_wait_ns as f64),
            (&hosts::BUFFER, side.buffer_bytes as f64),
        ] {
            figure(quantity, Item::label(end.side.called()), value);
        }
    }
}

/// Mean, and some of the sorted times.
fn spread(times_ns: &[u64]) -> Vec<(&'static str, f64)> {
    let mut sorted = times_ns.to_vec();
    sorted.sort_unstable();
    let Some(last) = sorted.len().checked_sub(1) else {
        return Vec::new();
    };
    let at = |share: f64| sorted[(last as f64 * share).round() as usize] as f64;
    let mean = sorted.iter().sum::<u64>() as f64 / sorted.len() as f64;
    vec![
        ("mean", mean),
        ("least", at(0.0)),
        ("median", at(0.5)),
        ("99%", at(0.99)),
        ("most", at(1.0)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a spread has the mean, and times that were measured.
    #[test]
    fn spreads() {
        assert_eq!(spread(&[]), []);
        let spread = spread(&[30, 10, 20]);
        assert_eq!(spread[0], ("mean", 20.0));
        assert_eq!(spread[1], ("least", 10.0));
        assert_eq!(spread[2], ("median", 20.0));
        assert_eq!(spread[4], ("most", 30.0));
    }

    /// Check that a wire which delivers more than was sent, or less, or late, is not believed, and that
    /// frames may be on their way or lost.
    #[test]
    fn ledgers() {
        let of = |frames, arrived, late| Latch {
            frames,
            arrived,
            late,
            ..Latch::default()
        };
        assert!(check(&of(10, 0, 0), &of(0, 10, 0)).is_ok());
        assert!(check(&of(10, 0, 0), &of(0, 9, 0)).is_err());
        let lost = Latch {
            lost: 1,
            ..of(10, 0, 0)
        };
        let under_way = Latch {
            under_way: 2,
            ..of(0, 7, 0)
        };
        assert!(check(&lost, &under_way).is_ok());
        assert!(check(&of(10, 0, 0), &of(0, 11, 0)).is_err());
        assert!(check(&of(10, 0, 1), &of(0, 10, 0)).is_err());
    }
}
