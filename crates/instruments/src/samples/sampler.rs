//! What CPUs do, every so often (samples.bpf.c).
//!
//! A timer of each CPU samples it. Code that keeps interrupts off is sampled when it lets
//! them come again: what it took is charged to that place.

use std::fs;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object};
use libbpf_sys as sys;

use netplumb_sys::bpf::{Opened, map};
use netplumb_sys::perf;
use netplumb_sys::plain::Plain;

use super::SAMPLES;
use super::layout::{FOREIGN, IDLE, Key, STACKS};
use crate::live::LiveError;
use crate::own::Programs;

/// The program, compiled from samples/samples.bpf.c.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/samples.bpf.o"));

/// Time between samples of a CPU, with no other period that it could beat with.
pub(super) const PERIOD_NS: u64 = 499_979;

/// Who was on the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Who {
    /// Nobody: the idle task.
    Idle,
    /// A task of this process (thread group), by its number in our namespace.
    Process(u32),
    /// A task that has no number in our namespace.
    Foreign,
}

/// Samples that are alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sampled {
    /// Whose task was on the CPU; an interrupt may have been on top of it.
    pub(super) who: Who,
    /// The name of that task.
    pub(super) name: String,
    /// Whether it was user code.
    pub(super) user: bool,
    /// Addresses of the kernel's code, where it was first, who called that next; empty for
    /// user code, and where the stack is not known.
    pub(super) stack: Vec<u64>,
    /// How many.
    pub(super) samples: u64,
}

/// All samples of a window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// By stack and task.
    pub(super) all: Vec<Sampled>,
    /// Those that there was no room for.
    pub(super) lost: u64,
    /// Of those in `all`, the ones in the kernel whose stack is not known.
    pub(super) stackless: u64,
}

/// Samples CPUs once it has begun.
#[derive(Debug)]
pub(super) struct Sampler {
    cpus: Vec<u32>,
    samples: MapHandle,
    stacks: [MapHandle; 2],
    lost: MapHandle,
    // Before what they are links to.
    links: Vec<Link>,
    object: Object,
}

impl Sampler {
    /// Load it, for these CPUs.
    ///
    /// # Errors
    /// This user may not, or the kernel has no samples by clock.
    pub(super) fn load(cpus: &[u32]) -> Result<Sampler, LiveError> {
        let namespace = fs::metadata("/proc/self/ns/pid")
            .map_err(LiveError::system("read its PID namespace"))?;
        let mut open = Opened::new(OBJECT).map_err(LiveError::programs(SAMPLES))?;
        let settings = [namespace.dev(), namespace.ino()].map(u64::to_ne_bytes);
        open.set_constants(settings.as_flattened())
            .map_err(LiveError::programs(SAMPLES))?;
        let object = open.load().map_err(LiveError::programs(SAMPLES))?;
        // What can't be sampled is an error at once.
        for cpu in cpus {
            event(*cpu)?;
        }
        Ok(Sampler {
            cpus: cpus.to_vec(),
            samples: map(&object, "samples").map_err(LiveError::programs(SAMPLES))?,
            stacks: [
                map(&object, "stacks").map_err(LiveError::programs(SAMPLES))?,
                map(&object, "stacks_spilt").map_err(LiveError::programs(SAMPLES))?,
            ],
            lost: map(&object, ".bss").map_err(LiveError::programs(SAMPLES))?,
            links: Vec::new(),
            object,
        })
    }

    /// Sample from now on.
    ///
    /// # Errors
    /// The kernel refuses the program on its clock.
    pub(super) fn begin(&mut self) -> Result<(), LiveError> {
        for program in self.object.progs_mut() {
            for cpu in &self.cpus {
                let event = event(*cpu)?;
                let link = program.attach_perf_event(event.as_raw_fd());
                self.links
                    .push(link.map_err(LiveError::system("sample CPUs"))?);
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

    /// CPU time of the program so far, if the kernel counts it.
    pub(super) fn run_ns(&self) -> u64 {
        Programs::of(&self.object).totals().run_ns
    }

    /// What was seen from when it began until it was stopped.
    ///
    /// # Errors
    /// The maps can't be read.
    pub(super) fn read(&mut self) -> Result<Seen, LiveError> {
        self.stop();
        let failed = || LiveError::system("read the samples of CPUs");
        let mut out = Seen::default();
        let keys: Vec<Vec<u8>> = self.samples.keys().collect();
        for key in keys {
            let value = self.samples.lookup(&key, MapFlags::ANY).map_err(failed())?;
            let (Some(count), Some((stack, mut sampled))) =
                (value.as_deref().and_then(number), parse(&key))
            else {
                continue;
            };
            sampled.samples = count;
            if let Ok(id) = u32::try_from(stack) {
                let (map, id) = match id.checked_sub(STACKS) {
                    None => (&self.stacks[0], id),
                    Some(id) => (&self.stacks[1], id),
                };
                let stack = (map.lookup(&id.to_ne_bytes(), MapFlags::ANY))
                    .map_err(failed())?
                    .unwrap_or_default();
                let frames = stack.chunks_exact(8).filter_map(number);
                sampled.stack = frames.take_while(|address| *address != 0).collect();
            }
            if !sampled.user && sampled.stack.is_empty() {
                out.stackless += count;
            }
            out.all.push(sampled);
            self.samples.delete(&key).map_err(failed())?;
        }
        // Else a table fills with stacks that nobody asks for any more.
        for stacks in &self.stacks {
            let ids: Vec<Vec<u8>> = stacks.keys().collect();
            for id in ids {
                stacks.delete(&id).map_err(failed())?;
            }
        }
        let zero = 0_u32.to_ne_bytes();
        let lost = self.lost.lookup(&zero, MapFlags::ANY).map_err(failed())?;
        out.lost = lost.as_deref().and_then(number).unwrap_or_default();
        let none = vec![0; lost.map_or(0, |bytes| bytes.len())];
        if out.lost > 0 {
            (self.lost.update(&zero, &none, MapFlags::ANY)).map_err(failed())?;
        }
        Ok(out)
    }
}

/// The clock of a CPU; it runs when a program is attached.
fn event(cpu: u32) -> Result<OwnedFd, LiveError> {
    let mut attr = sys::perf_event_attr {
        type_: sys::PERF_TYPE_SOFTWARE,
        config: u64::from(sys::PERF_COUNT_SW_CPU_CLOCK),
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = PERIOD_NS;
    attr.set_disabled(1);
    perf::open(&mut attr, Some(cpu as i32)).map_err(|error| match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => LiveError::CannotRun {
            reason: "sampling CPUs is not permitted for this user".into(),
            remedy: "run as root, or with CAP_PERFMON (see `plumb doctor`)".into(),
        },
        Some(libc::ENOSYS | libc::ENOENT | libc::EOPNOTSUPP) => LiveError::CannotRun {
            reason: "the kernel has no cpu-clock event".into(),
            remedy: "use a kernel with CONFIG_PERF_EVENTS".into(),
        },
        _ => LiveError::system("sample CPUs")(error),
    })
}

/// What a key stands for: the stack's number, and the rest.
fn parse(key: &[u8]) -> Option<(i32, Sampled)> {
    let key = Key::read(key)?;
    let name = key.name.split(|byte| *byte == 0).next();
    let sampled = Sampled {
        who: match key.tgid {
            IDLE => Who::Idle,
            FOREIGN => Who::Foreign,
            tgid => Who::Process(tgid),
        },
        name: String::from_utf8_lossy(name.unwrap_or_default()).into_owned(),
        user: key.user != 0,
        stack: Vec::new(),
        samples: 0,
    };
    Some((key.stack, sampled))
}

fn number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// Check what the key of the map means.
    #[test]
    fn keys() {
        let mut key = Vec::new();
        for number in [7_u32, 42, 0] {
            key.extend(number.to_ne_bytes());
        }
        key.extend(*b"reader-1\0garbage");
        let (stack, sampled) = parse(&key).unwrap();
        assert_eq!((stack, sampled.who), (7, Who::Process(42)));
        assert_eq!((sampled.name.as_str(), sampled.user), ("reader-1", false));
        key[..4].copy_from_slice(&(-17_i32).to_ne_bytes());
        key[4..8].copy_from_slice(&[0xff; 4]);
        let (stack, sampled) = parse(&key).unwrap();
        assert_eq!((stack, sampled.who), (-17, Who::Foreign));
        assert!(parse(&key[..8]).is_none());
    }

    /// Check that what this very thread does is seen: in user code, and in the kernel with
    /// the way there; and that the samples of all tasks are the time that went by.
    #[test]
    fn as_root_own_work() {
        // SAFETY: takes nothing and cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            netplumb_testkit::skip("not root");
            return;
        }
        // SAFETY: takes nothing.
        let cpu = unsafe { libc::sched_getcpu() } as u32;
        netplumb_sys::cpus::pin(0, cpu as u32).unwrap();
        let mut sampler = Sampler::load(&[cpu]).unwrap();
        let begun = Instant::now();
        sampler.begin().unwrap();
        let mut zero = vec![0_u8; 1 << 20];
        while begun.elapsed() < Duration::from_millis(400) {
            use std::io::Read;
            // Nearly all of it is in the kernel, clearing memory.
            fs::File::open("/dev/zero")
                .and_then(|mut f| f.read_exact(&mut zero))
                .unwrap();
        }
        sampler.stop();
        let samples = sampler.read().unwrap();
        let elapsed_ns = begun.elapsed().as_nanos() as f64;
        let own: Vec<&Sampled> = (samples.all.iter())
            .filter(|s| s.who == Who::Process(std::process::id()))
            .collect();
        let deep = own.iter().filter(|s| !s.user && s.stack.len() > 2);
        assert!(deep.map(|s| s.samples).sum::<u64>() > 0, "{samples:#?}");
        let all: u64 = samples.all.iter().map(|s| s.samples).sum();
        let share = (all * PERIOD_NS) as f64 / elapsed_ns;
        // Never more than there was; fewer where the machine itself did not run.
        assert!((0.2..1.05).contains(&share), "{share} of the time");
        assert_eq!(samples.lost, 0);
    }
}
