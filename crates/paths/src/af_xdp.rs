//! AF_XDP: a process that receives frames, and drops or forwards them.
//!
//! Each queue of the ingress device has a socket and memory for frames; a thread on each given CPU
//! serves some of the queues. It sleeps when there are no frames.

mod ring;
mod socket;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags};
use netplumb_model::bench::{Bench, Handled, STAMP_BYTES, Stamp};
use netplumb_model::span::Times;
use netplumb_sys::cpus;
use netplumb_sys::plain::Plain;
use netplumb_sys::proc::counters::Counters;
use netplumb_workload::drops;
use netplumb_workload::mark::{self, mark};

use self::ring::Ring;
use self::socket::{FRAME_BYTES, FRAMES, Queue, Socket};
use crate::bpf::{Attached, Load, Mode, Program};
use crate::changes::Changes;
use crate::error::{Doing, PathError};
use crate::layout::Config;
use crate::reader::{Read, bump, cpu_error, monotonic_ns};
use crate::{Device, Site, Standing, Way, xdp};

pub(crate) use self::socket::supported;

/// Frames per batch.
const BATCH: usize = 64;
/// Timeout without frames after which a thread checks whether to stop.
const PATIENCE_MS: i32 = 50;
/// How long the kernel may take to free the queue of a closed socket.
const RELEASE: Duration = Duration::from_secs(1);
/// Entries in the program's map of sockets.
const QUEUES: u32 = 64;

/// A queue, and where its frames go.
#[derive(Debug)]
struct Wire {
    out: Option<Socket>,
    come: Socket,
    /// Frames owned by the device.
    under_way: u64,
    stamp_offset: usize,
}

struct Worker {
    cpu: u32,
    read: Arc<Read>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// Sockets with their threads.
pub(crate) struct AfXdp {
    // Dropped in this order: first frames stop arriving.
    link: Option<Attached>,
    program: Program,
    workers: Vec<Worker>,
    stop: Arc<AtomicBool>,
    /// The receiving sockets, to read their drops.
    sockets: Vec<OwnedFd>,
    changes: Changes,
    before: Counters,
    egress: Option<Device>,
    without_copies: bool,
    stamped: bool,
}

impl AfXdp {
    pub(crate) fn set_up(way: &Way, site: &Site) -> Result<AfXdp, PathError> {
        if way.cpus.is_empty() {
            return Err(PathError::Asked("no CPU given for the reader".into()));
        }
        let egress = match way.bench {
            Bench::Forward => Some(site.egress()?.clone()),
            Bench::Drop => None,
        };
        let stamped = way.stamped && egress.is_none();
        let config = Config::new(site, stamped);
        // The process reads timestamps.
        let program = Load {
            image: xdp::IMAGE,
            program: "xdp_socket",
            constants: Config { stamp_offset: 0, ..config }.bytes(),
            map: Some(("sockets", QUEUES)),
            multi_buffer: way.multi_buffer,
            ..Load::default()
        }
        .program()?;
        let changes = Changes::at(site)?;
        let queues = |device: &Device| {
            let queues = changes.namespace.queues(&device.name);
            queues.doing(|| format!("query the queues of {}", device.name))
        };
        let receive = queues(&site.ingress)?.receive.clamp(1, QUEUES);
        let send = match &egress {
            Some(egress) => queues(egress)?.send.max(1),
            None => 1,
        };
        let mut path = AfXdp {
            link: None,
            program,
            workers: Vec::new(),
            stop: Arc::new(AtomicBool::new(false)),
            sockets: Vec::new(),
            before: changes.counters()?,
            changes,
            egress,
            without_copies: true,
            stamped,
        };
        let mut wires = Vec::new();
        for queue in 0..receive {
            wires.push(path.wire(site, queue, queue % send, config.stamp_offset)?);
        }
        // If the program were attached before the sockets are in its map, it would drop frames.
        path.enter(&wires)?;
        let link = xdp::attach(&path.program, &path.changes, &site.ingress, Mode::Native)?;
        path.link = Some(link);
        let mut shares: Vec<Vec<Wire>> = way.cpus.iter().map(|_| Vec::new()).collect();
        for (i, wire) in wires.into_iter().enumerate() {
            shares[i % way.cpus.len()].push(wire);
        }
        for (cpu, wires) in way.cpus.iter().zip(shares) {
            path.start(*cpu, wires)?;
        }
        Ok(path)
    }

    /// The sockets of one queue.
    fn wire(&mut self, site: &Site, from: u32, to: u32, offset: u16) -> Result<Wire, PathError> {
        let at = Queue { device: site.ingress.index, queue: from };
        let namespace = &self.changes.namespace;
        let name = &site.ingress.name;
        let bind = |copy| once_released(|| namespace.inside(|| Socket::receiving(at, copy)));
        let bound = bind(false).or_else(|_| bind(true));
        let mut come = bound.map_err(|error| refused(error, name, from))?;
        let without_copies = come.is_without_copies().unwrap_or(false);
        let out = match &self.egress {
            Some(egress) => {
                let at = Queue { device: egress.index, queue: to };
                let out = once_released(|| namespace.inside(|| Socket::sending(at, &come)));
                Some(out.map_err(|error| refused(error, &egress.name, to))?)
            }
            None => None,
        };
        let frames: Vec<u64> =
            (0..u64::from(FRAMES)).map(|frame| frame * FRAME_BYTES as u64).collect();
        come.fill.produce(&frames);
        self.without_copies &= without_copies;
        let fd = come.fd().try_clone_to_owned();
        self.sockets.push(fd.doing(|| "hold a socket".into())?);
        Ok(Wire { come, out, under_way: 0, stamp_offset: offset.into() })
    }

    fn enter(&self, wires: &[Wire]) -> Result<(), PathError> {
        let map = self.program.map("sockets")?;
        for (queue, wire) in (0_u32..).zip(wires) {
            let fd = wire.come.fd().as_raw_fd();
            map.update(&queue.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
                .doing(|| "name the sockets to the program".into())?;
        }
        Ok(())
    }

    fn start(&mut self, cpu: u32, mut wires: Vec<Wire>) -> Result<(), PathError> {
        let read = Arc::new(Read::new());
        let (counts, stop) = (read.clone(), self.stop.clone());
        let (ready, pinned) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(format!("af-xdp-{cpu}"))
            .spawn(move || {
                let done = cpus::pin(0, cpu);
                let failed = done.is_err();
                let _ = ready.send(done);
                if failed {
                    return Ok(());
                }
                work(&mut wires, &counts, &stop)
            })
            .doing(|| "start a reader".into())?;
        let pinned = pinned.recv().unwrap_or(Ok(()));
        self.workers.push(Worker { cpu, read, thread: Some(thread) });
        pinned.map_err(|error| cpu_error(cpu, error))
    }
}

/// A socket that `bind` makes, as soon as its queue is free.
///
/// The kernel frees the queue of a socket that was closed, or whose process was killed, in a work
/// item some time later (`xp_put_pool` in net/xdp/xsk_buff_pool.c).
fn once_released(mut bind: impl FnMut() -> io::Result<Socket>) -> io::Result<Socket> {
    let end = Instant::now() + RELEASE;
    loop {
        let bound = bind();
        let busy = matches!(&bound, Err(error) if error.raw_os_error() == Some(libc::EBUSY));
        if !busy || Instant::now() >= end {
            return bound;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The error of a socket for a queue.
fn refused(error: io::Error, device: &str, queue: u32) -> PathError {
    match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => PathError::cannot(
            "AF_XDP is not supported by this kernel",
            "use a kernel with CONFIG_XDP_SOCKETS=y, as distributions have it",
        ),
        Some(libc::EBUSY) => PathError::cannot(
            format!("queue {queue} of {device} already has an AF_XDP socket"),
            "end the process that has it",
        ),
        Some(libc::EINVAL | libc::EOPNOTSUPP) => PathError::cannot(
            format!("can't bind an AF_XDP socket to queue {queue} of {device} ({error})"),
            "the device must be up and have that queue; forwarding between two devices needs Linux 5.10",
        ),
        Some(libc::ENOBUFS | libc::ENOMEM) => PathError::cannot(
            "not enough memory for frames",
            "raise the limit of locked memory (`ulimit -l`), or free some",
        ),
        _ => PathError::System {
            doing: format!("open an AF_XDP socket at queue {queue} of {device}"),
            source: error.into(),
        },
    }
}

/// Serve queues until asked to stop.
fn work(wires: &mut [Wire], counts: &Read, stop: &AtomicBool) -> io::Result<()> {
    let mut descriptors = Vec::with_capacity(BATCH);
    let mut addresses = Vec::with_capacity(BATCH);
    let mut polled: Vec<libc::pollfd> = wires
        .iter()
        .map(|wire| libc::pollfd {
            fd: wire.come.fd().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    while !stop.load(Ordering::Relaxed) {
        mark::<{ mark::RX_BEGIN }>();
        let mut found = false;
        for wire in wires.iter_mut() {
            descriptors.clear();
            if let Some(ring) = &mut wire.come.receive {
                ring.consume(&mut descriptors);
            }
            found |= !descriptors.is_empty();
            match wire.out {
                Some(_) => wire.send_on(&descriptors, &mut addresses, counts)?,
                None => wire.drop(&descriptors, &mut addresses, counts),
            }
        }
        bump(&counts.looks, 1);
        if found {
            bump(&counts.found, 1);
            continue;
        }
        let busy = wires.iter().any(|wire| wire.under_way > 0);
        let wait = if busy { 1 } else { PATIENCE_MS };
        // SAFETY: as many entries as are named, of ours.
        let polled = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, wait) };
        if polled < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
    Ok(())
}

impl Wire {
    /// Return frames to the fill ring, which has room for all of them.
    fn recycle(&mut self, addresses: &[u64]) {
        self.come.fill.produce(addresses);
    }

    fn drop(&mut self, descriptors: &[libc::xdp_desc], addresses: &mut Vec<u64>, counts: &Read) {
        if descriptors.is_empty() {
            return;
        }
        let now = if self.stamp_offset > 0 { monotonic_ns() } else { 0 };
        let mut bytes = 0;
        addresses.clear();
        for descriptor in descriptors {
            bytes += u64::from(descriptor.len);
            addresses.push(descriptor.addr);
            if self.stamp_offset > 0 {
                let at = descriptor.addr + self.stamp_offset as u64;
                let stamp = self.come.bytes(at, STAMP_BYTES as usize);
                match stamp.and_then(Stamp::read) {
                    Some(stamp) if stamp.due_ns <= now => counts.time(now - stamp.due_ns),
                    _ => bump(&counts.unstamped, 1),
                }
            }
        }
        self.recycle(addresses);
        bump(&counts.bytes, bytes);
        bump(&counts.packets, descriptors.len() as u64);
    }

    fn send_on(
        &mut self,
        descriptors: &[libc::xdp_desc],
        addresses: &mut Vec<u64>,
        counts: &Read,
    ) -> io::Result<()> {
        let Some(out) = &mut self.out else {
            return Ok(());
        };
        // First collect frames that the device has completed.
        addresses.clear();
        out.completion.consume(addresses);
        let done = addresses.len() as u64;
        self.under_way -= done.min(self.under_way);
        bump(&counts.packets, done);
        let given = match &mut out.transmit {
            Some(ring) => ring.produce(descriptors),
            None => 0,
        };
        self.under_way += given as u64;
        bump(&counts.bytes, descriptors[..given].iter().map(|d| u64::from(d.len)).sum());
        let left = &descriptors[given..];
        bump(&counts.lost, left.len() as u64);
        let wanted = out.transmit.as_ref().is_some_and(Ring::wants_wakeup);
        if self.under_way > 0 && wanted {
            out.kick()?;
        }
        let left: Vec<u64> = left.iter().map(|d| d.addr).collect();
        self.recycle(&left);
        self.recycle(addresses);
        Ok(())
    }
}

impl Standing for AfXdp {
    fn handled(&mut self) -> Result<Handled, PathError> {
        let mut handled = Handled::default();
        let mut times = Times::default();
        let mut polls = (0, 0);
        let mut no_room = 0;
        for worker in &mut self.workers {
            if worker.thread.as_ref().is_some_and(JoinHandle::is_finished)
                && let Some(thread) = worker.thread.take()
            {
                let ended = thread.join();
                ended
                    .unwrap_or_else(|_| Err(io::Error::other("it has crashed")))
                    .doing(|| format!("go on reading on CPU {}", worker.cpu))?;
            }
            let read = &worker.read;
            let packets = read.packets.load(Ordering::Relaxed);
            if packets > 0 {
                *handled.packets.entry(worker.cpu).or_default() += packets;
            }
            handled.bytes += read.bytes.load(Ordering::Relaxed);
            no_room += read.lost.load(Ordering::Relaxed);
            polls.0 += read.looks.load(Ordering::Relaxed);
            polls.1 += read.found.load(Ordering::Relaxed);
            read.add_times(&mut times);
        }
        let (mut no_memory, mut full) = (0, 0);
        for socket in &self.sockets {
            let lost = Socket::lost(socket.as_fd());
            let (dropped, ring) = lost.doing(|| "read a socket's drops".into())?;
            no_memory += dropped;
            full += ring;
        }
        let mut refused = (String::new(), 0);
        if let Some(egress) = &self.egress {
            let counted = self.changes.counters()?.since(&self.before);
            refused = drops::not_sent(&egress.name, &counted);
            if let Some(most) = handled.packets.values_mut().max() {
                *most = most.saturating_sub(refused.1);
            }
        }
        for (cause, packets) in [
            ("no frame was free for it: the reader is too slow", no_memory),
            ("the socket's ring was full: the reader is too slow", full),
            ("the ring to send by was full", no_room),
            (&refused.0, refused.1),
        ] {
            if packets > 0 {
                handled.lost.insert(cause.into(), packets);
            }
        }
        handled.foreign = self.program.handled()?.foreign;
        handled.polls = Some(polls);
        handled.latency = self.stamped.then_some(times);
        Ok(handled)
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let mut facts = self.changes.facts.clone();
        let mut fact = |key: &str, value: String| facts.insert(format!("path.{key}"), value);
        fact("attached", "af_xdp, xdp native".into());
        let copies = if self.without_copies {
            "none: the driver writes to the process's memory"
        } else {
            "one: the driver does not write to the process's memory by itself"
        };
        fact("copies", copies.into());
        fact("sockets", self.sockets.len().to_string());
        if let Some(id) = self.program.id() {
            fact("program_ids", id.to_string());
        }
        if self.stamped {
            let reads: Vec<&Read> = self.workers.iter().map(|w| &*w.read).collect();
            let unstamped = Read::sum(&reads, |r| &r.unstamped);
            fact("unstamped", unstamped.to_string());
        }
        facts
    }
}

impl Drop for AfXdp {
    fn drop(&mut self) {
        self.link = None;
        self.stop.store(true, Ordering::Relaxed);
        for worker in &mut self.workers {
            if let Some(thread) = worker.thread.take() {
                let _ = thread.join();
            }
        }
    }
}
