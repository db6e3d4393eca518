//! BPF programs: loading, attaching, reading counters.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object};
use libbpf_sys as sys;
use netplumb_model::bench::Handled;
use netplumb_model::span::Times;
use netplumb_sys::bpf::{BpfError, Opened, raw};
use netplumb_sys::netns::Namespace;
use netplumb_sys::plain::Plain;

use crate::error::{Doing, PathError};
use crate::layout::{self, CPUS, Config, Counts, CpuTimes};

/// Maps that are always created; others only on request.
const ALWAYS: &[&str] = &["latency", ".rodata", ".bss.counts", ".bss.lost"];
/// `BPF_F_XDP_HAS_FRAGS`, from 5.18 (commit f45d5b6ce2e8 "bpf: generalise tail call map
/// compatibility check"; in include/uapi/linux/bpf.h).
const XDP_HAS_FRAGS: u32 = 1 << 5;

/// How a program is loaded.
#[derive(Debug, Default)]
pub(crate) struct Load<'a> {
    /// The compiled object.
    pub(crate) image: &'a [u8],
    /// The program to load; empty for all.
    pub(crate) program: &'a str,
    /// The values of its constants.
    pub(crate) constants: &'a [u8],
    /// Another map that it needs, with its number of entries.
    pub(crate) map: Option<(&'a str, u32)>,
    /// Whether it supports multi-buffer packets.
    pub(crate) multi_buffer: bool,
    /// Create all maps as the object defines them: it is not one of plumb's.
    pub(crate) all_maps: bool,
}

/// A loaded program.
#[derive(Debug)]
pub(crate) struct Program {
    object: Object,
    name: String,
    stamped: bool,
}

impl Load<'_> {
    pub(crate) fn load(&self) -> Result<Object, PathError> {
        let doing = || format!("load the program `{}`", self.program);
        if libbpf_rs::num_possible_cpus().doing(doing)? > CPUS {
            return Err(PathError::cannot(
                format!("this machine may have more than {CPUS} CPUs"),
                "the counters of Netplumb's programs have no room for them",
            ));
        }
        let mut open = Opened::new(self.image).doing(doing)?;
        for mut program in open.progs_mut() {
            let wanted = self.program.is_empty() || program.name() == self.program;
            program.set_autoload(wanted);
            if self.multi_buffer {
                program.set_flags(XDP_HAS_FRAGS);
            }
        }
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            match self.map {
                _ if self.all_maps => Ok(()),
                Some((wanted, entries)) if name == wanted => map.set_max_entries(entries),
                _ if ALWAYS.iter().any(|always| name.ends_with(always)) => Ok(()),
                _ => map.set_autocreate(false),
            }
            .doing(doing)?;
        }
        if !self.constants.is_empty() {
            open.set_constants(self.constants).doing(doing)?;
        }
        match open.load() {
            Err(BpfError::Refused(refusal)) => Err(PathError::Refused(refusal)),
            other => other.doing(doing),
        }
    }

    /// Load the one program that is wanted.
    pub(crate) fn program(&self) -> Result<Program, PathError> {
        let config = Config::read(self.constants);
        let stamped = config.is_some_and(|config| config.stamp_offset != 0);
        Ok(Program { object: self.load()?, name: self.program.to_string(), stamped })
    }
}

/// A map of an object, by the end of its name.
pub(crate) fn map(object: &Object, name: &str) -> Result<MapHandle, PathError> {
    netplumb_sys::bpf::map(object, name).doing(|| "find a program's maps".into())
}

/// The current contents of a section of variables.
pub(crate) fn variables<T: Plain>(object: &Object, section: &str) -> Result<Vec<T>, PathError> {
    netplumb_sys::bpf::variables(object, section).doing(|| "read a program's counters".into())
}

impl Program {
    pub(crate) fn fd(&self) -> Result<BorrowedFd<'_>, PathError> {
        let found = self.object.progs().find(|p| p.name() == self.name.as_str());
        let missing = || io::Error::other("the compiled object has no such program");
        let fd = found
            .map(|p| p.as_fd().as_raw_fd())
            .ok_or_else(missing)
            .doing(|| format!("find the program `{}`", self.name))?;
        // SAFETY: the descriptor is the object's, which is borrowed for as long.
        Ok(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Its id in the kernel, as shown by `bpftool prog`.
    pub(crate) fn id(&self) -> Option<u32> {
        libbpf_rs::Program::id_from_fd(self.fd().ok()?).ok()
    }

    pub(crate) fn map(&self, name: &str) -> Result<MapHandle, PathError> {
        map(&self.object, name)
    }

    /// The counters of each CPU.
    pub(crate) fn counts(&self) -> Result<Vec<Counts>, PathError> {
        variables(&self.object, ".bss.counts")
    }

    /// The packets that it handled.
    pub(crate) fn handled(&self) -> Result<Handled, PathError> {
        let mut handled = Handled::default();
        let mut unlisted = 0;
        for (cpu, counts) in (0_u32..).zip(self.counts()?) {
            if counts.packets > 0 {
                handled.packets.insert(cpu, counts.packets);
            }
            handled.bytes += counts.bytes;
            handled.foreign += counts.foreign;
            unlisted += counts.unlisted;
        }
        if unlisted > 0 {
            let cause = "the source is not on the list: passed to the kernel";
            handled.lost.insert(cause.into(), unlisted);
        }
        if self.stamped {
            let map = self.map("latency")?;
            let cpus = map
                .lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY)
                .doing(|| "read a program's times".into())?;
            let mut times = Times::default();
            for cpu in cpus.iter().flatten().filter_map(|cpu| CpuTimes::read(cpu)) {
                layout::add_times(&mut times, &cpu);
            }
            handled.latency = Some(times);
        }
        Ok(handled)
    }

    /// Frames that should have a timestamp and have none, or one in the future.
    pub(crate) fn unstamped(&self) -> u64 {
        let counts = self.counts().unwrap_or_default();
        counts.iter().map(|c| c.unstamped).sum()
    }
}

/// How an XDP program is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Native,
    Skb,
}

impl Mode {
    /// `XDP_FLAGS_DRV_MODE` and `XDP_FLAGS_SKB_MODE`, include/uapi/linux/if_link.h.
    fn flags(self) -> u32 {
        match self {
            Mode::Native => 1 << 2,
            Mode::Skb => 1 << 1,
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Mode::Native => "native",
            Mode::Skb => "skb",
        }
    }
}

/// A program attached to a device; detached when closed.
#[derive(Debug)]
pub(crate) struct Attached(OwnedFd);

impl Attached {
    /// Attach to a device of a namespace: XDP, or without mode tcx at ingress.
    pub(crate) fn attach(
        program: BorrowedFd<'_>,
        namespace: &Namespace,
        device: u32,
        mode: Option<Mode>,
    ) -> io::Result<Attached> {
        let options = sys::bpf_link_create_opts {
            sz: size_of::<sys::bpf_link_create_opts>() as _,
            flags: mode.map_or(0, Mode::flags),
            ..Default::default()
        };
        let hook = match mode {
            Some(_) => sys::BPF_XDP,
            None => sys::BPF_TCX_INGRESS,
        };
        namespace.inside(|| {
            // SAFETY: the descriptor is open, and the options live as long as the call.
            let fd =
                unsafe { sys::bpf_link_create(program.as_raw_fd(), device as i32, hook, &options) };
            raw::owned(fd).map(Attached)
        })
    }

    /// Replace the running program. The kernel does it by writing a pointer (`bpf_xdp_link_update`,
    /// net/core/dev.c).
    pub(crate) fn update(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: both descriptors are open; no options are allowed.
        let result = unsafe {
            sys::bpf_link_update(self.0.as_raw_fd(), program.as_raw_fd(), std::ptr::null())
        };
        raw::check(result).map(drop)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // Closing would detach it only when the last copy of the descriptor is closed: a child
        // process that is just being started may have one until it executes. SAFETY: the descriptor
        // is open.
        unsafe { sys::bpf_link_detach(self.0.as_raw_fd()) };
    }
}

/// The id of a device's XDP program in this thread's namespace; 0 if there is none.
pub(crate) fn xdp_id(device: u32) -> io::Result<u32> {
    let mut id = 0;
    // SAFETY: the number is written to a variable of ours.
    raw::check(unsafe { sys::bpf_xdp_query_id(device as i32, 0, &mut id) }).map(|_| id)
}

/// Detach a program that others have attached to a device of this thread's namespace.
pub(crate) fn xdp_off(device: u32) -> io::Result<()> {
    if xdp_id(device)? == 0 {
        return Ok(());
    }
    // SAFETY: takes numbers; no options are allowed.
    raw::check(unsafe { sys::bpf_xdp_detach(device as i32, 0, std::ptr::null()) }).map(drop)
}
