//! The sampler: one BPF object, for packets' samples and for profiles alike.
//!
//! Perf's clock runs a program on every CPU, which counts stacks by a hash of them in a map and
//! reports a new stack by a ring once. Of two maps one is written to while the other is read:
//! what was taken is what is counted and what is lost.
//!
//! Without an NMI, which only a performance monitoring unit has, a timer's interrupt waits where
//! the kernel has interrupts off, and the sample is where it lets them come again: what it took is
//! charged to that place.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, RingBuffer, RingBufferBuilder};
use netplumb_sys::bpf::{Opened, drain, map, variables};
use netplumb_sys::plain::Plain;

use super::SAMPLES;
use super::arrived::Arrived;
use super::event::Event;
use super::layout::{Asleep, Config, Counts, Crossed, Known, Turn, USER_COPY};
use crate::live::LiveError;
use crate::own::monotonic_ns;

/// The programs, compiled from samples/samples.bpf.c.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/samples.bpf.o"));

/// A program that has chosen a map ends within microseconds, unless its CPU is not run.
const GRACE: Duration = Duration::from_millis(1);
/// Copies of stacks need more room: two seconds of a CPU.
const COPIES_RING_BYTES: u32 = 32 << 20;
/// Sets how many stacks are distinguished, for tests.
const KEYS_VARIABLE: &str = "PLUMB_TEST_SAMPLES_KEYS";

/// How to sample.
#[derive(Debug, Clone)]
pub(super) struct Setup<'a> {
    pub(super) cpus: &'a [u32],
    pub(super) event: Event,
    /// The programs' settings; their namespace is filled in.
    pub(super) config: Config,
    /// Programs that are loaded beside the clock's.
    pub(super) programs: Vec<&'a str>,
}

/// Samples CPUs once it has begun.
pub(super) struct Sampler {
    cpus: Vec<u32>,
    event: Event,
    arrived: Rc<RefCell<Arrived>>,
    // Before what they are links to, and read.
    ring: RingBuffer<'static>,
    links: Vec<Link>,
    known: [MapHandle; 2],
    asleep: MapHandle,
    settled: MapHandle,
    run_ns: MapHandle,
    turn: MapHandle,
    turns: u64,
    /// When this window began, and the one before.
    windows_ns: [u64; 2],
    object: Object,
}

impl std::fmt::Debug for Sampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sampler")
            .field("cpus", &self.cpus)
            .field("event", &self.event)
            .finish_non_exhaustive()
    }
}

impl Sampler {
    /// Load it.
    ///
    /// # Errors
    /// This user may not, or the kernel has no samples by clock.
    pub(super) fn load(setup: &Setup<'_>) -> Result<Sampler, LiveError> {
        let failed = || LiveError::programs(SAMPLES);
        let namespace = fs::metadata("/proc/self/ns/pid")
            .map_err(LiveError::system("read its PID namespace"))?;
        let mut open = Opened::new(OBJECT).map_err(failed())?;
        let config =
            Config { pidns_dev: namespace.dev(), pidns_inode: namespace.ino(), ..setup.config };
        open.set_constants(config.bytes()).map_err(failed())?;
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            let wanted = name == CLOCK || setup.programs.contains(&name.as_str());
            program.set_autoload(wanted);
        }
        let keys = std::env::var(KEYS_VARIABLE).ok();
        if let Some(keys) = keys.and_then(|keys| keys.parse().ok()) {
            let maps = open.maps_mut();
            for mut map in maps.filter(|m| m.name().to_string_lossy().starts_with("known")) {
                map.set_max_entries(keys).map_err(LiveError::system("size a map"))?;
            }
        }
        if setup.config.user as usize == USER_COPY {
            let mut maps = open.maps_mut();
            if let Some(mut ring) = maps.find(|m| m.name().to_string_lossy() == "ring") {
                ring.set_max_entries(COPIES_RING_BYTES).map_err(LiveError::system("size a map"))?;
            }
        }
        let object = open.load().map_err(failed())?;
        // What can't be sampled is an error at once.
        for cpu in setup.cpus {
            setup.event.open(*cpu)?;
        }
        let arrived = Rc::new(RefCell::new(Arrived::default()));
        let take = Rc::clone(&arrived);
        let ring = map(&object, "ring").map_err(failed())?;
        let mut builder = RingBufferBuilder::new();
        let built = builder.add(&ring, move |bytes| {
            take.borrow_mut().take(bytes);
            0
        });
        let doing = "read the samples of CPUs";
        built.map_err(LiveError::system(doing))?;
        Ok(Sampler {
            cpus: setup.cpus.to_vec(),
            event: setup.event,
            arrived,
            ring: builder.build().map_err(LiveError::system(doing))?,
            links: Vec::new(),
            known: [
                map(&object, "known_even").map_err(failed())?,
                map(&object, "known_odd").map_err(failed())?,
            ],
            asleep: map(&object, "asleep").map_err(failed())?,
            settled: map(&object, "settled").map_err(failed())?,
            run_ns: map(&object, "run_ns").map_err(failed())?,
            turn: map(&object, ".data").map_err(failed())?,
            turns: 0,
            windows_ns: [0; 2],
            object,
        })
    }

    /// Sample from now on.
    ///
    /// # Errors
    /// The kernel refuses the programs.
    pub(super) fn begin(&mut self) -> Result<(), LiveError> {
        self.windows_ns = [monotonic_ns(); 2];
        self.set_turn()?;
        for program in self.object.progs_mut() {
            if !program.autoload() {
                continue;
            }
            if program.name() != CLOCK {
                let link = program.attach();
                self.links.push(link.map_err(LiveError::system("attach to the scheduler"))?);
                continue;
            }
            for cpu in &self.cpus {
                let event = self.event.open(*cpu)?;
                let link = program.attach_perf_event(event.as_raw_fd());
                self.links.push(link.map_err(LiveError::system("sample CPUs"))?);
                // The link closes it.
                let _ = event.into_raw_fd();
            }
        }
        Ok(())
    }

    /// Sample no more.
    pub(super) fn stop(&mut self) {
        self.links.clear();
    }

    /// What the programs have counted so far.
    ///
    /// # Errors
    /// It can't be read.
    pub(super) fn counts(&self) -> Result<Counts, LiveError> {
        let all =
            variables::<Counts>(&self.object, ".bss").map_err(LiveError::programs(SAMPLES))?;
        Ok(all.first().copied().unwrap_or_default())
    }

    /// What has arrived by the ring since this was asked last.
    ///
    /// # Errors
    /// The ring can't be read.
    pub(super) fn poll(&mut self) -> Result<Arrived, LiveError> {
        let read = self.ring.consume();
        read.map_err(LiveError::system("read the samples of CPUs"))?;
        Ok(std::mem::take(&mut *self.arrived.borrow_mut()))
    }

    /// How often each stack was seen since this was asked last, by its hash. Its stack has arrived
    /// before: the ring is to be polled afterwards. Whether a window ends here, or it is only to
    /// make room, matters to those who are off the CPU.
    ///
    /// # Errors
    /// The maps can't be read.
    pub(super) fn drain(&mut self, window: bool) -> Result<BTreeMap<u64, Known>, LiveError> {
        let full = (self.turns & 1) as usize;
        self.turns += 1;
        if window {
            self.windows_ns = [monotonic_ns(), self.windows_ns[0]];
        }
        self.set_turn()?;
        if !self.links.is_empty() {
            thread::sleep(GRACE);
        }
        let failed = || LiveError::system("read the samples of CPUs");
        let mut counted = BTreeMap::new();
        for (key, value) in drain(&self.known[full]).map_err(failed())? {
            let hash = key.try_into().map(u64::from_ne_bytes);
            if let (Ok(hash), Some(known)) = (hash, Known::read(&value)) {
                counted.insert(hash, known);
            }
        }
        Ok(counted)
    }

    /// Tasks that are off the CPU since before this window began: as it was when the window before
    /// was closed. One that has come back since then has [crossed](Crossed) that moment, which is
    /// in the ring: it is to be polled afterwards.
    ///
    /// # Errors
    /// The map can't be read.
    pub(super) fn asleep(&self) -> Result<Vec<Crossed>, LiveError> {
        let window_ns = self.windows_ns[0];
        let batch = self
            .asleep
            // All at once: a batch may be short of what was asked for before the end (`drain()`).
            .lookup_batch(self.asleep.max_entries(), MapFlags::ANY, MapFlags::ANY);
        let all = batch.map_err(LiveError::system("read which tasks wait"))?;
        let crossed = all.filter_map(|(tid, value)| {
            let asleep = Asleep::read(&value)?;
            Some(Crossed {
                reason: asleep.reason,
                stack: asleep.hash,
                waker: asleep.waker,
                begin_ns: asleep.begin_ns,
                window_ns,
                tid: u32::from_ne_bytes(tid.try_into().ok()?),
                ..Crossed::default()
            })
        });
        Ok(crossed.filter(|wait| wait.begin_ns < window_ns).collect())
    }

    /// CPU time of the programs so far.
    ///
    /// # Errors
    /// It can't be read.
    pub(super) fn run_ns(&self) -> Result<u64, LiveError> {
        let first = 0_u32.to_ne_bytes();
        let cpus = self.run_ns.lookup_percpu(&first, MapFlags::ANY);
        let cpus = cpus.map_err(LiveError::system("read the time of programs"))?;
        let cpus = cpus.unwrap_or_default();
        let of_cpu = |cpu: &Vec<u8>| cpu.first_chunk().map(|ns| u64::from_ne_bytes(*ns));
        Ok(cpus.iter().filter_map(of_cpu).sum())
    }

    /// Copy this number of bytes of the user stacks of samples with these hashes from now on; none:
    /// as many as of others. Hashes not seen for long are forgotten.
    pub(super) fn copy(&self, bytes: impl Iterator<Item = (u64, Option<u32>)>) {
        for (hash, bytes) in bytes {
            let hash = hash.to_ne_bytes();
            let _ = match bytes {
                Some(bytes) => (self.settled).update(&hash, &bytes.to_ne_bytes(), MapFlags::ANY),
                None => self.settled.delete(&hash),
            };
        }
    }

    /// Whether something happened before maps were switched last.
    pub(super) fn is_before(&self, turn: u64) -> bool {
        turn < self.turns
    }

    /// When this window began.
    pub(super) fn window_ns(&self) -> u64 {
        self.windows_ns[0]
    }

    /// How long such a task was off the CPU in the window that has just been closed.
    pub(super) fn waited_ns(&self, wait: &Crossed) -> u64 {
        let since = wait.begin_ns.max(self.windows_ns[1]);
        wait.window_ns.saturating_sub(since)
    }

    fn set_turn(&self) -> Result<(), LiveError> {
        let turn = Turn { map: self.turns, window_ns: self.windows_ns[0] };
        let zero = 0_u32.to_ne_bytes();
        let written = self.turn.update(&zero, turn.bytes(), MapFlags::ANY);
        written.map_err(LiveError::system("switch the maps of samples"))
    }
}

/// The program of the clock.
const CLOCK: &str = "samples_take";
