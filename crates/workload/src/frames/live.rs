//! Frames made and sent by the kernel: test runs of an XDP program with live frames.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use libbpf_rs::btf::types;
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object};
use libbpf_sys as sys;
use netplumb_model::bench::{FrameSize, Generated};
use netplumb_sys::bpf::{self, BpfError, Opened};
use netplumb_sys::errno;
use netplumb_sys::netns::inside;
use netplumb_sys::plain::Plain;

use super::error::{GeneratorError, doing};
use super::layout::{Mode, Slot};
use super::plan::GeneratorPlan;
use super::{headers, maker, system};

/// The programs, compiled from frames/frames.bpf.c.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/frames.bpf.o"));

/// The name of the generator program.
const GENERATE: &str = "frames_generate";
/// Prefix of the programs on tracepoints.
const PREFIX: &str = "frames_";
/// The tracepoint with the frames that the device accepted.
const SENT: &str = "xdp_devmap_xmit";
/// How long to try whether a device accepts frames.
const TRIAL: Duration = Duration::from_millis(300);
/// Frames per call: the maximum, since each call costs tens of ms.
const REPEAT: u32 = u32::MAX;

/// The programs in the kernel.
#[derive(Debug)]
pub(super) struct Live {
    program: OwnedFd,
    slots: MapHandle,
    /// The links of programs on tracepoints.
    links: Vec<OwnedFd>,
    /// Tracepoints that could not be attached to, with the reason.
    pub(super) unattached: BTreeMap<String, String>,
    frame: Vec<u8>,
    #[cfg(test)]
    header_bytes: usize,
    batch: u32,
    cpus: Vec<u32>,
    /// Length of each frame, if all are equal.
    size_bytes: Option<u32>,
    loop_only: bool,
}

impl Live {
    /// Load the programs, attach the observing ones, and assign each CPU its share.
    pub(super) fn load(plan: &GeneratorPlan, mode: Mode) -> Result<Live, GeneratorError> {
        let mut config = headers::config(plan)?;
        config.mode = mode as u32;
        config.device = plan.exit.device;
        config.net = inode(plan.exit.namespace.as_fd())
            .map_err(doing("identify the generator's network namespace"))?;

        let mut open = Opened::new(OBJECT).map_err(programs)?;
        let btf = bpf::types::of_kernel().ok();
        let mut unattached = BTreeMap::new();
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            if name == GENERATE {
                continue;
            }
            let tracepoint = name.strip_prefix(PREFIX).unwrap_or(&name).to_string();
            let has = (btf.as_ref()).map(|btf| bpf::types::has_tracepoint(btf, &tracepoint));
            let why = match has {
                Some(true) => continue,
                Some(false) => "the kernel has no such tracepoint",
                None => "the kernel has no type information (CONFIG_DEBUG_INFO_BTF)",
            };
            unattached.insert(tracepoint, why.to_string());
            program.set_autoload(false);
        }
        open.set_constants(config.bytes()).map_err(programs)?;
        for mut map in open.maps_mut().filter(|map| map.name() == "slots") {
            map.set_max_entries(system::cpus_room()).map_err(system("make room for every CPU"))?;
        }
        let object = open.load().map_err(refused)?;
        let map = |name: &str| bpf::map(&object, name).map_err(programs);
        let slots = map("slots")?;
        let (program, links) = attach(&object, &mut unattached)?;
        let live = Live {
            program,
            slots,
            links,
            unattached,
            frame: headers::longest(plan)?,
            #[cfg(test)]
            header_bytes: config.header_bytes as usize,
            batch: plan.batch,
            cpus: plan.cpus.clone(),
            size_bytes: match plan.frames.size {
                FrameSize::Bytes(bytes) => Some(bytes),
                FrameSize::Imix => None,
            },
            loop_only: mode == Mode::Loop,
        };
        // Check whether the kernel supports test runs.
        live.test_run(1)?;
        live.share(plan)?;
        Ok(live)
    }

    /// Without the observing programs.
    pub(super) fn unwatched(mut self) -> Live {
        self.links.clear();
        self
    }

    /// The counters, by CPU.
    pub(super) fn counts(&self) -> io::Result<Vec<Generated>> {
        let sees_sent = !self.unattached.contains_key(SENT);
        let count = |cpu: &u32| {
            let bytes =
                self.slots.lookup(&cpu.to_ne_bytes(), MapFlags::ANY).map_err(io::Error::other)?;
            let slot = bytes.as_deref().and_then(Slot::read);
            let slot = slot.ok_or_else(|| io::Error::other("no counts of this CPU"))?;
            let refused = slot.refused.iter().enumerate().filter(|(_, n)| **n > 0);
            Ok(Generated {
                cpu: *cpu,
                frames: slot.frames,
                sent: if sees_sent || self.loop_only { slot.sent } else { slot.frames },
                bytes: match self.size_bytes {
                    Some(bytes) => slot.frames * u64::from(bytes),
                    None => slot.bytes,
                },
                refused: refused.map(|(error, n)| (errno::of_frames(error as i32), *n)).collect(),
                idle: slot.idle,
                behind: slot.behind,
                batches: slot.batches,
            })
        };
        self.cpus.iter().map(count).collect()
    }

    /// Assign each CPU its share. Before that, a test run makes no frames.
    fn share(&self, plan: &GeneratorPlan) -> Result<(), GeneratorError> {
        for (index, cpu) in (0..).zip(&self.cpus) {
            let slot = maker::slot(plan, index);
            self.slots
                .update(&cpu.to_ne_bytes(), slot.bytes(), MapFlags::ANY)
                .map_err(system("set the frame generator's maps"))?;
        }
        Ok(())
    }

    /// Send frames until `stop` is set and this thread gets the signal. It has to be on its CPU and
    /// in the namespace.
    pub(super) fn run(&self, stop: &Arc<AtomicBool>) -> Result<(), GeneratorError> {
        while !stop.load(Ordering::Acquire) {
            self.test_run(REPEAT)?;
        }
        Ok(())
    }

    /// If the kernel can't tell whether the device transmits frames by XDP, send some and check;
    /// they are counted like all others.
    pub(super) fn try_out(&self, plan: &GeneratorPlan) -> Result<(), GeneratorError> {
        if tells() || self.loop_only {
            return Ok(());
        }
        let (Some(cpu), namespace) = (self.cpus.first(), &plan.exit.namespace) else {
            return Ok(());
        };
        let work = || {
            system::pin(*cpu)?;
            system::enter(namespace.as_fd())?;
            let begun = Instant::now();
            // There may be none due yet.
            while begun.elapsed() < TRIAL {
                self.test_run(self.batch)?;
                let counts = self.counts().map_err(doing("read the generator's counts"))?;
                let refused = counts.iter().flat_map(|count| &count.refused);
                let causes: Vec<&str> = refused.map(|(cause, _)| cause.as_str()).collect();
                if counts.iter().any(|count| count.sent > 0) {
                    return Ok(());
                }
                if !causes.is_empty() {
                    return Err(GeneratorError::CannotRun {
                        reason: format!(
                            "the device refused frames sent by XDP ({})",
                            causes.join("; ")
                        ),
                        remedy: "use packet sockets".into(),
                    });
                }
            }
            Ok(())
        };
        // A thread's CPU and namespace can't be changed back.
        std::thread::scope(|scope| scope.spawn(work).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Make a number of frames, or fewer if this thread gets the signal.
    pub(super) fn test_run(&self, repeat: u32) -> Result<(), GeneratorError> {
        let mut options = sys::bpf_test_run_opts {
            sz: size_of::<sys::bpf_test_run_opts>() as _,
            data_in: self.frame.as_ptr().cast(),
            data_size_in: self.frame.len() as u32,
            flags: sys::BPF_F_TEST_XDP_LIVE_FRAMES,
            batch_size: self.batch,
            repeat: i32::from_ne_bytes(repeat.to_ne_bytes()),
            ..Default::default()
        };
        // SAFETY: the frame outlives the call, which reads as much of it as there is.
        let error =
            unsafe { sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &raw mut options) };
        match -error {
            0 | libc::EINTR => Ok(()),
            e @ (libc::EINVAL | libc::EOPNOTSUPP) => Err(GeneratorError::CannotRun {
                reason: format!(
                    "XDP test runs with live frames are not supported by this kernel ({})",
                    io::Error::from_raw_os_error(e)
                ),
                remedy: "use Linux 5.18 or later, or packet sockets".into(),
            }),
            e => Err(doing("run the frame generator's program")(io::Error::from_raw_os_error(e))),
        }
    }

    /// Make one frame without sending it, from a buffer filled with `left`: for tests.
    #[cfg(test)]
    pub(super) fn make_one(&self, left: u8) -> Result<(u32, Vec<u8>), GeneratorError> {
        let mut out = vec![0; 2048];
        let mut frame = self.frame.clone();
        frame[..self.header_bytes].fill(left);
        let mut options = sys::bpf_test_run_opts {
            sz: size_of::<sys::bpf_test_run_opts>() as _,
            data_in: frame.as_ptr().cast(),
            data_size_in: frame.len() as u32,
            data_out: out.as_mut_ptr().cast(),
            data_size_out: out.len() as u32,
            repeat: 1,
            ..Default::default()
        };
        // SAFETY: both buffers outlive the call, and have the given lengths.
        let error =
            unsafe { sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &raw mut options) };
        if error != 0 {
            return Err(doing("make a frame")(io::Error::from_raw_os_error(-error)));
        }
        out.truncate(options.data_size_out as usize);
        Ok((options.retval, out))
    }
}

/// Whether the kernel reports XDP features of devices, from Linux 6.3 on.
fn tells() -> bool {
    bpf::types::of_kernel()
        .is_ok_and(|btf| btf.type_by_name::<types::Enum<'_>>("netdev_xdp_act").is_some())
}

/// Check that the device transmits redirected frames, if the kernel reports it; otherwise that is
/// [tried](Live::try_out).
pub(super) fn check_takes_xdp(plan: &GeneratorPlan) -> Result<(), GeneratorError> {
    /// include/uapi/linux/netdev.h, since Linux 6.3 (d3d854fd6a1d).
    const NETDEV_XDP_ACT_NDO_XMIT: u64 = 4;
    if !tells() {
        return Ok(());
    }
    let mut features = sys::bpf_xdp_query_opts {
        sz: size_of::<sys::bpf_xdp_query_opts>() as _,
        ..Default::default()
    };
    let device = plan.exit.device as i32;
    inside(plan.exit.namespace.as_fd(), || {
        // SAFETY: it fills in a structure whose size it has, and which outlives the call.
        let error = unsafe { sys::bpf_xdp_query(device, 0, &raw mut features) };
        if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-error)) }
    })
    .map_err(doing("query the XDP features of the generator's device"))?;
    if features.feature_flags & NETDEV_XDP_ACT_NDO_XMIT != 0 {
        return Ok(());
    }
    Err(GeneratorError::CannotRun {
        reason: "the device does not transmit frames that XDP redirects to it".into(),
        remedy: "attach an XDP program to the other end of a veth pair, or turn on GRO there; \
                 or use packet sockets"
            .into(),
    })
}

/// Load and attach: the generator program, and the links of the others.
fn attach(
    object: &Object,
    unattached: &mut BTreeMap<String, String>,
) -> Result<(OwnedFd, Vec<OwnedFd>), GeneratorError> {
    let (mut generate, mut links) = (None, Vec::new());
    for program in object.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        if name == GENERATE {
            let fd = program.as_fd().try_clone_to_owned();
            generate = Some(fd.map_err(doing("hold the frame generator's program"))?);
        } else if program.autoload() {
            let tracepoint = name.strip_prefix(PREFIX).unwrap_or(&name);
            match bpf::raw::attach(program.as_fd(), None) {
                Ok(link) => links.push(link),
                Err(why) => drop(unattached.insert(tracepoint.to_string(), why.to_string())),
            }
        }
    }
    let generate = generate.ok_or_else(|| GeneratorError::System {
        doing: "find the frame generator's program".into(),
        source: io::ErrorKind::NotFound.into(),
    })?;
    Ok((generate, links))
}

fn inode(namespace: BorrowedFd<'_>) -> io::Result<u32> {
    use std::os::unix::fs::MetadataExt;
    let inode = std::fs::File::from(namespace.try_clone_to_owned()?).metadata()?.ino();
    u32::try_from(inode).map_err(io::Error::other)
}

fn system(what: &str) -> impl FnOnce(libbpf_rs::Error) -> GeneratorError + '_ {
    move |error| {
        doing(what)(match errno::errno_in(&error) {
            // To recognise the error.
            Some(number) => io::Error::from_raw_os_error(number),
            None => io::Error::other(error.to_string()),
        })
    }
}

fn programs(error: BpfError) -> GeneratorError {
    match error {
        BpfError::NotPermitted(_) => GeneratorError::rights("load BPF programs"),
        other => GeneratorError::System {
            doing: "use the frame generator's programs".into(),
            source: io::Error::other(other),
        },
    }
}

fn refused(error: BpfError) -> GeneratorError {
    match error {
        BpfError::NotPermitted(_) => programs(error),
        _ => GeneratorError::CannotRun {
            reason: format!("the kernel rejected the frame generator ({error})"),
            remedy: "use Linux 5.18 or later, or packet sockets".into(),
        },
    }
}
