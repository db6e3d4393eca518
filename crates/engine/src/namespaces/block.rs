//! A block of two namespaces: a thread for each host, on a CPU of its own.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use netplumb_instruments::rates::cpu::{self, CpuClock, Reading};
use netplumb_model::experiment::buffer_of;
use netplumb_model::hosts::{
    BUFFER, BUSY, CLOCKED, HostLoad, RETRANSMITTED, SEGMENTS, Side, THROUGHPUT, TURN, TURNS,
    clocked,
};
use netplumb_model::quantity::{Declared, Figure, FigureKey, Subject};
use netplumb_model::recording::{Arm, Block, Ledger, Recording};
use netplumb_sys::cpus::pin;
use netplumb_workload::ends::Ends;
use netplumb_workload::hosts::{Connections, Done, Edges, Receiver};
use netplumb_workload::peers::PeerRan;
use netplumb_workload::web::Clients;

use super::{Standing, failed};
use crate::error::EngineError;
use crate::hosts::figures::spread;

/// Results of a block, of both hosts.
#[derive(Debug, Default)]
pub(super) struct NetnsBlock {
    sent_bytes: u64,
    received_bytes: u64,
    /// Bytes that did not come as they should, by cause.
    failed: Vec<(String, u64)>,
    duration_ns: u64,
    /// Requests that were answered, and their times.
    turns: Option<u64>,
    turn_ns: Vec<(&'static str, f64)>,
    retransmitted: Option<u64>,
    /// The CPU use of the sender and the receiver.
    busy: Option<[f64; 2]>,
    segments: [Option<u64>; 2],
    buffers: [Option<u64>; 2],
}

impl From<PeerRan> for NetnsBlock {
    fn from(ran: PeerRan) -> NetnsBlock {
        let rest = ran.sent_bytes.saturating_sub(ran.received_bytes);
        let in_flight = (rest > 0).then(|| ("in flight at the end".to_string(), rest));
        NetnsBlock {
            sent_bytes: ran.sent_bytes,
            received_bytes: ran.received_bytes,
            failed: in_flight.into_iter().collect(),
            duration_ns: ran.duration_ns,
            turns: ran.turns,
            turn_ns: ran.turn_ns,
            retransmitted: ran.retransmitted,
            ..NetnsBlock::default()
        }
    }
}

/// The beginning and the end of a block.
#[derive(Debug, Default)]
struct Window {
    begin: Option<(Reading, Instant)>,
    end: Option<(Instant, Reading)>,
}

/// One host's part in the window.
struct Edge<'a> {
    window: &'a Mutex<Window>,
    clock: &'a CpuClock,
    begins: bool,
    ends: bool,
}

impl Edges for Edge<'_> {
    fn prepare(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn begin(&mut self) {
        if self.begins
            && let Ok(reading) = self.clock.read()
            && let Ok(mut window) = self.window.lock()
        {
            window.begin = Some((reading, Instant::now()));
        }
    }

    fn end(&mut self) {
        let now = Instant::now();
        if self.ends
            && let Ok(reading) = self.clock.read()
            && let Ok(mut window) = self.window.lock()
        {
            window.end = Some((now, reading));
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Results of a host's block.
struct Over {
    done: Done,
    retransmitted: Option<u64>,
    segments: Option<u64>,
    buffer: Option<u64>,
}

/// Run a block by our own programs.
pub(super) fn run(
    standing: &mut Standing,
    load: HostLoad,
    cpus: [u32; 2],
    clock: &Arc<CpuClock>,
) -> Result<NetnsBlock, EngineError> {
    let number = standing.blocks;
    standing.blocks += 1;
    let window = Mutex::new(Window::default());
    // The last byte of a stream or a file is the receiver's, the last byte of an answer the
    // sender's.
    let ends_at = match load {
        HostLoad::Stream { .. } | HostLoad::Web(_) => Side::Rx,
        HostLoad::Request { .. } | HostLoad::Echo { .. } => Side::Tx,
    };
    let edge = |side: Side| Edge {
        window: &window,
        clock,
        begins: side == Side::Tx,
        ends: side == ends_at,
    };
    let (ends, arm) = (&standing.ends, &standing.arm);
    let receiver =
        Receiver::open(ends.rx_namespace.as_fd(), ends.rx_address, buffer_of(arm, Side::Rx))
            .map_err(failed("listen"))?;
    let (sent, received) = thread::scope(|scope| {
        let rx = scope.spawn(|| {
            pin(0, cpus[1])?;
            receive(&receiver, load, ends, arm, edge(Side::Rx))
        });
        let tx = scope.spawn(|| {
            pin(0, cpus[0])?;
            send(ends, number, load, arm, edge(Side::Tx))
        });
        (join(tx), join(rx))
    });
    let sent = sent.map_err(failed("send"))?;
    let received = received.map_err(failed("receive"))?;
    let window = window.into_inner().unwrap_or_else(|held| held.into_inner());
    let (Some((before, begin)), Some((end, after))) = (&window.begin, &window.end) else {
        let none = io::Error::other("/proc/stat can't be read");
        return Err(failed("read the CPU time")(none));
    };
    let uses = cpu::since(before, after);
    let busy = cpus.map(|cpu| {
        let its = uses.iter().find(|one| one.cpu == cpu);
        its.map_or(0.0, |one| one.second.unwrap_or(one.busy))
    });
    let turns_ns = [&sent.done.turns_ns, &received.done.turns_ns];
    let turns_ns = turns_ns.into_iter().find(|turns| !turns.is_empty());
    Ok(NetnsBlock {
        sent_bytes: sent.done.bytes,
        received_bytes: received.done.bytes,
        duration_ns: end.duration_since(*begin).as_nanos() as u64,
        turns: turns_ns.map(|turns| turns.len() as u64),
        turn_ns: turns_ns.map_or_else(Vec::new, |turns| spread(turns)),
        retransmitted: sent.retransmitted,
        busy: Some(busy),
        segments: [sent.segments, received.segments],
        buffers: [sent.buffer, received.buffer],
        failed: received.done.failed,
    })
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn send(
    ends: &Ends,
    number: u32,
    load: HostLoad,
    arm: &Arm,
    mut edge: Edge<'_>,
) -> io::Result<Over> {
    // A web server's connections are its own.
    let is_web = matches!(load, HostLoad::Web(_));
    let buffer = buffer_of(arm, Side::Tx).filter(|_| !is_web);
    let mut connections = Connections::open(ends, number, load, buffer)?;
    let done = connections.send(load, &mut edge)?;
    let own = |value: io::Result<u64>| (!is_web).then_some(value).transpose();
    Ok(Over {
        retransmitted: own(connections.retransmitted())?,
        segments: own(connections.segments(true))?,
        buffer: own(connections.buffer_bytes(true))?,
        done,
    })
}

fn receive(
    receiver: &Receiver,
    load: HostLoad,
    ends: &Ends,
    arm: &Arm,
    mut edge: Edge<'_>,
) -> io::Result<Over> {
    let mut connections = receiver.accept(load)?;
    let (done, segments, buffer) = match load {
        HostLoad::Web(load) => {
            let mut clients = Clients::open(ends, load, buffer_of(arm, Side::Rx))?;
            let done = clients.fetch(&mut connections, load, &mut edge)?;
            (done, clients.segments()?, None)
        }
        _ => {
            let done = connections.receive(load, &mut edge)?;
            let buffer = connections.buffer_bytes(false)?;
            (done, connections.segments(false)?, Some(buffer))
        }
    };
    Ok(Over { retransmitted: None, segments: Some(segments), buffer, done })
}

/// Add a block to the recording.
pub(super) fn add(recording: &mut Recording, arm: u32, index: u32, ran: &NetnsBlock) {
    let mut dropped: BTreeMap<String, u64> = ran.failed.iter().cloned().collect();
    let known: u64 = dropped.values().sum();
    match ran.sent_bytes.saturating_sub(ran.received_bytes + known) {
        0 => {}
        missing => drop(dropped.insert("unaccounted".into(), missing)),
    }
    recording.blocks.push(Block {
        arm,
        instrument: CLOCKED.into(),
        index,
        ledger: Ledger { offered: ran.sent_bytes, delivered: ran.received_bytes, dropped },
        totals: Vec::new(),
        entered: 0,
        returned: 0,
        duration_ns: ran.duration_ns,
    });
    let block = Subject::Block(recording.blocks.len() as u32 - 1);
    let mut figure = |quantity: &Declared, item: FigureKey, value: f64| {
        recording.add_figure(block, Figure::new(&clocked(quantity), value).with_key(item));
    };
    let seconds = ran.duration_ns.max(1) as f64 / 1e9;
    // For requests between two hosts, one after the other, the rate of bytes means nothing.
    let is_web = ran.turns.is_some() && ran.retransmitted.is_none();
    if ran.turns.is_none() || is_web {
        let bits = ran.received_bytes as f64 * 8.0;
        figure(&THROUGHPUT, FigureKey::ONLY, bits / seconds);
    }
    if let Some(turns) = ran.turns {
        figure(&TURNS, FigureKey::ONLY, turns as f64 / seconds);
    }
    for (label, value) in &ran.turn_ns {
        figure(&TURN, FigureKey::label(*label), *value);
    }
    if let Some(retransmitted) = ran.retransmitted {
        figure(&RETRANSMITTED, FigureKey::ONLY, retransmitted as f64);
    }
    for (number, side) in Side::ALL.iter().enumerate() {
        for (quantity, value) in [
            (&BUSY, ran.busy.map(|busy| busy[number])),
            (&SEGMENTS, ran.segments[number].map(|n| n as f64)),
            (&BUFFER, ran.buffers[number].map(|n| n as f64)),
        ] {
            if let Some(value) = value {
                figure(quantity, FigureKey::label(side.called()), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use netplumb_model::hosts::ALL_CLOCKED;

    use super::*;

    /// Check that what another program has not yet received is accounted for, and that each
    /// quantity of a block is declared.
    #[test]
    fn blocks_of_others() {
        let mut recording = Recording::default();
        let ran = PeerRan {
            sent_bytes: 100,
            received_bytes: 90,
            duration_ns: 1000,
            retransmitted: Some(2),
            ..PeerRan::default()
        };
        add(&mut recording, 0, 0, &ran.into());
        let ledger = &recording.blocks[0].ledger;
        assert_eq!(ledger.dropped["in flight at the end"], 10);
        assert_eq!(ledger.dropped.len(), 1);
        let throughput: Vec<f64> =
            (recording.scalars_of(&clocked(&THROUGHPUT))).map(|scalar| scalar.value).collect();
        assert_eq!(throughput, [90.0 * 8.0 / 1e-6]);
        for quantity in &recording.quantities {
            let is_declared = |known: &Declared| known.name == quantity.name;
            assert!(ALL_CLOCKED.iter().any(is_declared), "{}", quantity.name);
        }
    }
}
