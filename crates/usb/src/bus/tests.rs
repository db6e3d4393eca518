use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::*;
use crate::ncm::Ncm;
use crate::smsc95xx::Smsc95xx;
use crate::testing::{Host, NcmDriver, Received, SmscDriver, frame};
use crate::wire::{Fault, Tally};

const ONE: [u8; 6] = [2, 0x4e, 0x50, 0, 0, 1];
const OTHER: [u8; 6] = [2, 0x4e, 0x50, 0, 0, 2];
const ROOM: usize = 18944;

/// A bus that is served by a thread of its own, until it is dropped.
struct Served {
    handle: Handle,
    ports: Vec<Port>,
    counters: Vec<Arc<Counters>>,
    thread: Option<JoinHandle<Result<(), BusError>>>,
}

impl Served {
    fn start(mut bus: Bus, sockets: Vec<(UnixStream, Box<dyn Device>)>, is_wire: bool) -> Served {
        let ports: Vec<Port> =
            sockets.into_iter().map(|(socket, device)| bus.add(socket, device)).collect();
        match is_wire {
            true => bus.connect(ports[0], ports[1]),
            false => bus.load(ports[0]),
        }
        let counters = ports.iter().map(|&port| bus.counters(port)).collect();
        let handle = bus.handle();
        let thread = Some(thread::spawn(move || bus.serve()));
        Served { handle, ports, counters, thread }
    }

    fn join(&mut self) -> Result<(), BusError> {
        self.thread.take().unwrap().join().unwrap()
    }

    fn frames(&self, port: usize, kind: Kind) -> u64 {
        self.counters[port].get(kind).frames
    }

    /// Counters are read by another thread than the one that counts.
    fn wait(&self, port: usize, kind: Kind, frames: u64) {
        let begin = Instant::now();
        while self.frames(port, kind) < frames {
            assert!(begin.elapsed() < Duration::from_secs(20), "{kind:?}");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn pair(device: Box<dyn Device>) -> (Host, (UnixStream, Box<dyn Device>)) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Host::new(ours), (theirs, device))
}

/// Two devices on a wire, with their drivers bound.
fn wired() -> (Served, Host, Host) {
    let (mut one, first) = pair(Box::new(Smsc95xx::new(ONE)));
    let (mut other, second) = pair(Box::new(Smsc95xx::new(OTHER)));
    let served = Served::start(Bus::new().unwrap(), vec![first, second], true);
    for host in [&mut one, &mut other] {
        let mut driver = SmscDriver::new(host);
        driver.bind();
        assert_eq!(driver.link(), Some((100, true)));
    }
    (served, one, other)
}

/// One device with loads, its driver bound.
fn loaded() -> (Served, Host) {
    let (mut host, first) = pair(Box::new(Smsc95xx::new(ONE)));
    let served = Served::start(Bus::new().unwrap(), vec![first], false);
    SmscDriver::new(&mut host).bind();
    (served, host)
}

fn rx_fixup(transfer: &[u8]) -> Option<Received> {
    let mut unbound = Smsc95xx::new(ONE);
    SmscDriver::new(&mut unbound).rx_fixup(transfer)
}

/// Check that a frame which one driver sends is what the other receives, both ways, also
/// between devices of different kinds.
#[test]
fn frames_go_both_ways() {
    let (mut smsc, first) = pair(Box::new(Smsc95xx::new(ONE)));
    let (mut ncm, second) = pair(Box::new(Ncm::new(OTHER)));
    let served = Served::start(Bus::new().unwrap(), vec![first, second], true);
    SmscDriver::new(&mut smsc).bind();
    NcmDriver::new(&mut ncm).bind();
    let (to_smsc, to_ncm) = (frame(ONE, 500, 1), frame(OTHER, 600, 2));
    let (smsc_in, ncm_in) = (smsc.ask(ROOM), ncm.ask(16384));
    smsc.sync();
    ncm.sync();

    let transfer = SmscDriver::tx_fixup(&to_ncm, None);
    let out = smsc.send(&transfer);
    assert_eq!(smsc.wait(out).actual, transfer.len());
    let ntb = ncm.wait(ncm_in).data;
    let mut driver = NcmDriver::new(&mut ncm);
    driver.rx_max = 16384;
    assert_eq!(driver.rx_fixup(&ntb).unwrap().1, [to_ncm]);

    let out = ncm.send(&NcmDriver::tx_fixup(&[&to_smsc], 0));
    assert_eq!(ncm.wait(out).status, 0);
    let transfer = smsc.wait(smsc_in).data;
    assert_eq!(rx_fixup(&transfer).unwrap().frames, [to_smsc]);
    for (port, sent, good) in [(0, 600, 500), (1, 500, 600)] {
        let tally = |bytes| Tally { frames: 1, bytes };
        assert_eq!(served.counters[port].get(Kind::Sent), tally(sent));
        assert_eq!(served.counters[port].get(Kind::Good), tally(good));
    }
}

/// Check that a transfer taken back is answered as such and never filled, and one that was
/// answered is not.
#[test]
fn requests_are_taken_back() {
    let (_served, mut one, mut other) = wired();
    let (first, second, third) = (other.ask(ROOM), other.ask(ROOM), other.ask(ROOM));
    let interrupt = other.ask_interrupt();
    assert_eq!(other.wait(interrupt).actual, 4, "negotiated");
    let interrupt = other.ask_interrupt();
    assert_eq!(other.unlink(second), -libc::ECONNRESET);
    assert_eq!(other.unlink(interrupt), -libc::ECONNRESET);
    assert_eq!(other.unlink(4711), 0, "unknown");
    for _ in 0..2 {
        let out = one.send(&SmscDriver::tx_fixup(&frame(OTHER, 60, 1), None));
        one.wait(out);
    }
    other.wait(first);
    other.wait(third);
    assert_eq!(other.unlink(third), 0, "answered");
    assert!(!other.has(second));
}

/// Check that nothing is kept for a driver that doesn't ask for frames, and that a frame is
/// counted where it goes.
#[test]
fn drops_are_counted() {
    let (served, mut one, mut other) = wired();
    let mut send = |to| {
        let out = one.send(&SmscDriver::tx_fixup(&frame(to, 60, 1), None));
        one.wait(out);
    };
    send(OTHER);
    assert_eq!(served.frames(1, Kind::NotReceiving), 1, "not asked yet");
    let asked = other.ask(ROOM);
    other.sync();
    send([2, 0, 0, 0, 0, 9]);
    assert_eq!(served.frames(1, Kind::Filtered), 1);
    send(OTHER);
    other.wait(asked);
    send(OTHER); // is kept
    let asked = other.ask(ROOM);
    other.wait(asked);
    let asked = other.ask(ROOM);
    assert_eq!(other.unlink(asked), -libc::ECONNRESET);
    send(OTHER);
    assert_eq!(served.frames(1, Kind::NotReceiving), 2, "not any more");
    let malformed = one.send(&[1, 2, 3]);
    assert_eq!(one.wait(malformed).actual, 3);
    assert_eq!(served.frames(0, Kind::Malformed), 1);
    assert_eq!(served.frames(0, Kind::Sent), 5);
    assert_eq!(served.frames(1, Kind::Good), 2);
}

/// Check that the sender waits while the other driver is slow, and no frame is lost.
#[test]
fn the_sender_waits_for_room() {
    let (served, mut one, mut other) = wired();
    let asked = other.ask(ROOM);
    other.sync();
    let transfer = SmscDriver::tx_fixup(&frame(OTHER, 1514, 1), None);
    let sent: Vec<u32> = (0..40).map(|_| one.send(&transfer)).collect();
    one.sync();
    let answered = sent.iter().filter(|&&seqnum| one.has(seqnum)).count();
    // One went at once, and 14 more are 20 KiB.
    assert_eq!(answered, 1 + 14);
    assert_eq!(one.unlink(sent[39]), -libc::ECONNRESET);
    let mut frames = rx_fixup(&other.wait(asked).data).unwrap().frames.len();
    while frames < 39 {
        let asked = other.ask(ROOM);
        frames += rx_fixup(&other.wait(asked).data).unwrap().frames.len();
    }
    for seqnum in &sent[..39] {
        assert_eq!(one.wait(*seqnum).status, 0);
    }
    assert_eq!(served.frames(0, Kind::Sent), 39);
    assert_eq!(served.frames(1, Kind::Good), 39);
}

/// Check that a driver whose interface goes down while it has asked for nothing holds up no
/// sender: it takes back its request for changes.
#[test]
fn a_closed_interface_holds_up_no_sender() {
    let (served, mut one, mut other) = wired();
    let negotiated = other.ask_interrupt();
    other.wait(negotiated);
    SmscDriver::new(&mut other).mdio_read(1, 29);
    let (changes, asked) = (other.ask_interrupt(), other.ask(ROOM));
    other.sync();
    let transfer = SmscDriver::tx_fixup(&frame(OTHER, 1514, 1), None);
    let sent: Vec<u32> = (0..20).map(|_| one.send(&transfer)).collect();
    other.wait(asked);
    one.sync();
    assert!(!one.has(sent[19]));
    assert_eq!(other.unlink(changes), -libc::ECONNRESET);
    for seqnum in sent {
        one.wait(seqnum);
    }
    assert_eq!(served.frames(1, Kind::Good), 1);
    assert_eq!(served.frames(1, Kind::NotReceiving), 19);
}

/// Check that endpoints and requests that no device has are refused.
#[test]
fn unknown_endpoints_stall() {
    let (_served, mut one, _other) = wired();
    for (endpoint, direction) in [(1, Direction::Out), (2, Direction::In), (5, Direction::In)] {
        let seqnum = one.submit(endpoint, direction, 0, [0; 8], &[]);
        assert_eq!(one.wait(seqnum).status, -libc::EPIPE);
    }
    // GET_DESCRIPTOR of a device qualifier, which devices of one speed don't have.
    let setup = [0x80, 6, 0, 6, 0, 0, 10, 0];
    let seqnum = one.submit(0, Direction::In, 10, setup, &[]);
    assert_eq!(one.wait(seqnum).status, -libc::EPIPE);
}

/// Check that an answer is no longer than the host's buffer, nor than it has asked for.
#[test]
fn descriptors_are_cut_to_the_buffer() {
    let (_served, mut one, _other) = wired();
    for (asked, room, expected) in [(64, 64, 18), (8, 64, 8), (64, 8, 8)] {
        let setup = [0x80, 6, 0, 1, 0, 0, asked, 0];
        let seqnum = one.submit(0, Direction::In, room, setup, &[]);
        assert_eq!(one.wait(seqnum).actual, expected);
    }
}

/// Check that a device that is detached takes the other's link with it, and that the loop
/// ends with the last one.
#[test]
fn ends_with_the_sockets() {
    let (mut served, one, mut other) = wired();
    let interrupt = other.ask_interrupt();
    other.wait(interrupt);
    SmscDriver::new(&mut other).mdio_read(1, 29);
    let interrupt = other.ask_interrupt();
    drop(one);
    assert_eq!(other.wait(interrupt).data, 0x8000u32.to_le_bytes());
    assert_eq!(SmscDriver::new(&mut other).link(), None);
    let out = other.send(&SmscDriver::tx_fixup(&frame(ONE, 60, 1), None));
    other.wait(out);
    assert_eq!(served.frames(1, Kind::LinkDown), 1);
    drop(other);
    served.join().unwrap();
}

/// Check that both drivers hear of a cable that is pulled out and plugged in again.
#[test]
fn a_cable_has_two_ends() {
    let (served, one, other) = wired();
    let mut hosts = [one, other];
    for host in &mut hosts {
        let negotiated = host.ask_interrupt();
        host.wait(negotiated);
        SmscDriver::new(host).mdio_read(1, 29);
    }
    for (up, link) in [(false, None), (true, Some((100, true)))] {
        let asked = hosts.each_mut().map(Host::ask_interrupt);
        hosts.iter_mut().for_each(Host::sync);
        served.handle.set_carrier(served.ports[0], up);
        for (host, asked) in hosts.iter_mut().zip(asked) {
            assert_eq!(host.wait(asked).actual, 4);
            assert_eq!(SmscDriver::new(host).link(), link);
            SmscDriver::new(host).mdio_read(1, 29);
        }
    }
}

/// Check that the loop ends on request, and closes the sockets.
#[test]
fn ends_when_asked() {
    let (mut served, mut one, _other) = wired();
    served.handle.stop();
    served.join().unwrap();
    assert_eq!(one.socket.read(&mut [0; 1]).unwrap(), 0);
    let load = Load::new(&frame(ONE, 60, 1), Fault::None, 1).unwrap();
    let error = served.handle.offer(served.ports[0], load).unwrap_err();
    assert_eq!(error.to_string(), "the emulated USB bus has stopped");
}

/// Check that a request which vhci_hcd would not send ends the loop, with the port and why.
#[test]
fn refuses_what_is_no_request() {
    let (mut served, mut one, _other) = wired();
    one.socket.write_all(&[0xee; 48]).unwrap();
    assert_eq!(
        served.join().unwrap_err().to_string(),
        "cannot serve USB port 0: unknown USB/IP command 0xeeeeeeee; expected 1 (submit) or 2 (unlink)"
    );
}

/// Check that a load is given as fast as the driver asks, by kind, and then ends.
#[test]
fn loads_are_given_out() {
    let (served, mut host) = loaded();
    let bytes = frame(ONE, 60, 1);
    let load = |fault, frames| Load::new(&bytes, fault, frames).unwrap();
    let offer = |load| served.handle.offer(served.ports[0], load).unwrap();
    offer(load(Fault::None, 5).per_transfer(2).unwrap());
    offer(load(Fault::BadSize, 2).per_transfer(2).unwrap());
    offer(load(Fault::ErrorBit, 1));
    let asked: Vec<u32> = (0..7).map(|_| host.ask(ROOM)).collect();
    let got: Vec<Option<(usize, usize)>> = asked[..6]
        .iter()
        .map(|&seqnum| rx_fixup(&host.wait(seqnum).data))
        .map(|got| got.map(|got| (got.frames.len(), got.errors)))
        .collect();
    let expected = [Some((2, 0)), Some((2, 0)), Some((1, 0)), None, None, Some((0, 1))];
    assert_eq!(got, expected);
    host.sync();
    assert!(!host.has(asked[6]));
    let kinds = [(Kind::Good, 5), (Kind::BadSize, 2), (Kind::ErrorBit, 1)];
    for (kind, frames) in kinds {
        let tally = Tally { frames, bytes: frames * 60 };
        assert_eq!(served.counters[0].get(kind), tally);
    }
    assert_eq!(served.counters[0].transfers_in(), 6);
}

/// Check that a load waits while there is no link, and drops what is for others.
#[test]
fn a_load_waits_for_the_link() {
    let (served, mut host) = loaded();
    served.handle.set_carrier(served.ports[0], false);
    let good = Load::new(&frame(ONE, 60, 1), Fault::None, 2).unwrap();
    served.handle.offer(served.ports[0], good).unwrap();
    let asked = [host.ask(ROOM), host.ask(ROOM)];
    host.sync();
    assert!(!host.has(asked[0]));
    served.handle.set_carrier(served.ports[0], true);
    host.wait(asked[0]);
    host.wait(asked[1]);
    let others = Load::new(&frame(OTHER, 60, 1), Fault::None, 1000).unwrap();
    served.handle.offer(served.ports[0], others).unwrap();
    host.ask(ROOM);
    served.wait(0, Kind::Filtered, 1000);
}

/// Check that an impossible load is refused with the reason.
#[test]
fn refuses_other_loads() {
    let of = |bytes| Load::new(&vec![0; bytes], Fault::None, 1).map(|_load| ());
    assert_eq!(of(13), Err(LoadError::Frame(13)));
    assert_eq!(of(1519), Err(LoadError::Frame(1519)));
    let load = Load::new(&frame(ONE, 60, 1), Fault::ErrorBit, 1).unwrap();
    assert!(load.clone().per_transfer(0).is_err());
    let (_host, first) = pair(Box::new(Ncm::new(ONE)));
    let served = Served::start(Bus::new().unwrap(), vec![first], false);
    assert_eq!(
        served.handle.offer(served.ports[0], load).unwrap_err().to_string(),
        "unavailable: this device can't report ErrorBit to its driver; use smsc95xx"
    );
}

/// Check that a device which is connected with another can have loads, too, and gets the frames of both.
#[test]
fn load_beside_a_cable() {
    let (served, mut one, mut other) = wired();
    let load = Load::new(&frame(OTHER, 60, 7), Fault::BadSize, 2).unwrap();
    served.handle.offer(served.ports[1], load).unwrap();
    let asked = [other.ask(ROOM), other.ask(ROOM), other.ask(ROOM)];
    other.wait(asked[0]);
    other.wait(asked[1]);
    let out = one.send(&SmscDriver::tx_fixup(&frame(OTHER, 60, 1), None));
    one.wait(out);
    other.wait(asked[2]);
    served.wait(1, Kind::BadSize, 2);
    served.wait(1, Kind::Good, 1);
}

/// Check that the same requests in the same order have the same answers, to the byte.
#[test]
fn answers_depend_on_the_requests_alone() {
    let run = || {
        let (_served, mut one, mut other) = wired();
        for seed in 0..50 {
            let asked = [other.ask(ROOM), one.ask(ROOM)];
            other.sync();
            one.sync();
            let there = frame(OTHER, 60 + seed * 29, seed as u64);
            let back = frame(ONE, 60 + seed * 17, seed as u64);
            let out = one.send(&SmscDriver::tx_fixup(&there, None));
            one.wait(out);
            other.wait(asked[0]);
            let out = other.send(&SmscDriver::tx_fixup(&back, Some((34, 40))));
            other.wait(out);
            one.wait(asked[1]);
        }
        (one.log, other.log)
    };
    let first = run();
    for _ in 0..3 {
        assert!(run() == first, "answers differ");
    }
}
