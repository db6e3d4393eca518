//! A BPF program of ours: loaded, attached, its counters read.

use std::ffi::c_char;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::{AsRawLibbpf, MapCore, MapFlags, MapHandle, Object, ObjectBuilder};
use libbpf_sys as sys;
use netplumb_model::bench::Handled;
use netplumb_model::timing::Times;
use netplumb_sys::netns::Namespace;

use crate::error::{Doing, PathError};
use crate::layout::{self, COUNT_WORDS, CPUS, Config, Counts};

/// The object has these maps; others are made only if asked for.
const ALWAYS: &[&str] = &["latency", ".rodata", ".bss.counts", ".bss.lost"];
/// Room for what the verifier says of programs as small as ours.
const LOG_BYTES: usize = 64 << 10;
/// Lines of it that are kept.
const LOG_LINES: usize = 12;
/// `BPF_F_XDP_HAS_FRAGS`, from 5.18 (commit f45d5b6ce2e8 "bpf: generalise tail call map
/// compatibility check"; in include/uapi/linux/bpf.h).
const XDP_HAS_FRAGS: u32 = 1 << 5;

/// How a program is loaded.
#[derive(Debug, Default)]
pub(crate) struct Load<'a> {
    /// The compiled object.
    pub(crate) image: &'a [u8],
    /// The one of its programs that is wanted; all, where it is empty.
    pub(crate) program: &'a str,
    /// What its constants are set to.
    pub(crate) constants: &'a [u8],
    /// A map that it needs besides, and how many entries that has.
    pub(crate) map: Option<(&'a str, u32)>,
    /// It takes packets in several buffers.
    pub(crate) multi_buffer: bool,
    /// Make all maps that the object has, as it has them: it is not one of ours.
    pub(crate) all_maps: bool,
}

/// A program in the kernel.
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
        // libelf wants it aligned, as the allocator has it.
        let image = self.image.to_vec();
        let mut open = ObjectBuilder::default().open_memory(&image).doing(doing)?;
        let mut log = vec![0_u8; LOG_BYTES];
        for mut program in open.progs_mut() {
            let wanted = self.program.is_empty() || program.name() == self.program;
            program.set_autoload(wanted);
            if self.multi_buffer {
                program.set_flags(XDP_HAS_FRAGS);
            }
            // SAFETY: the program is of an open object, and the buffer outlives the
            // load, after which libbpf writes to it no more.
            unsafe {
                sys::bpf_program__set_log_buf(
                    program.as_libbpf_object().as_ptr(),
                    log.as_mut_ptr().cast::<c_char>(),
                    log.len() as _,
                )
            };
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
            if name.ends_with(".rodata") && !self.constants.is_empty() {
                match map.initial_value_mut() {
                    Some(value) if value.len() == self.constants.len() => {
                        value.copy_from_slice(self.constants);
                    }
                    _ => {
                        let error = io::Error::other("its settings are not where they should be");
                        return Err(error).doing(doing);
                    }
                }
            }
        }
        // What it has to say is in the log; only the command prints.
        let printer = libbpf_rs::set_print(None);
        let loaded = open.load();
        libbpf_rs::set_print(printer);
        loaded.map_err(|error| {
            let end = log.iter().position(|b| *b == 0).unwrap_or(0);
            let text = String::from_utf8_lossy(&log[..end]);
            if let Some(refused) = refused(self.program, &text) {
                return refused;
            }
            match Err::<(), _>(error).doing(doing) {
                Err(told) => told,
                Ok(()) => unreachable!("an error stays one"),
            }
        })
    }

    /// Load the one program that is wanted.
    pub(crate) fn program(&self) -> Result<Program, PathError> {
        let stamped = self.constants.len() == size_of::<Config>()
            && self.constants[18..20].iter().any(|b| *b != 0);
        Ok(Program {
            object: self.load()?,
            name: self.program.to_string(),
            stamped,
        })
    }
}

/// What the verifier says in its log, if it says why it refused a program.
///
/// Its last lines before the statistics are the reason, and the line of the source is
/// the last one that begins with a semicolon (print_verifier_state and
/// bpf_verbose_linfo, kernel/bpf/).
pub(crate) fn refused(program: &str, log: &str) -> Option<PathError> {
    let statistics = |line: &&str| {
        line.starts_with("processed ")
            || line.starts_with("verification time")
            || line.starts_with("stack depth")
    };
    let lines: Vec<&str> = log
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty())
        .take_while(|line| !statistics(line))
        .collect();
    // An instruction begins with its number.
    let is_state = |line: &str| {
        line.starts_with(';')
            || line.starts_with("from ")
            || line
                .split_once(':')
                .is_some_and(|(number, _)| number.bytes().all(|b| b.is_ascii_digit()))
    };
    let told = lines.iter().rposition(|line| is_state(line));
    let reason = lines.get(told.map_or(0, |at| at + 1)..)?.join("; ");
    if reason.is_empty() {
        return None;
    }
    let line = lines
        .iter()
        .rev()
        .find_map(|line| line.strip_prefix(';'))
        .map(|line| line.trim().to_string());
    let from = lines.len().saturating_sub(LOG_LINES);
    Some(PathError::Refused {
        program: program.to_string(),
        reason,
        line,
        log: lines[from..].join("\n"),
    })
}

/// A map of an object, by the end of its name.
pub(crate) fn map(object: &Object, name: &str) -> Result<MapHandle, PathError> {
    let found = object
        .maps()
        .find(|m| m.name().to_string_lossy().ends_with(name));
    let missing = || io::Error::other(format!("the compiled programs have no `{name}`"));
    let map = found
        .ok_or_else(missing)
        .doing(|| "find a program's maps".into())?;
    MapHandle::try_from(&map).doing(|| format!("hold the map `{name}`"))
}

/// What is in a section of variables right now, in 64-bit words: libbpf has the map in
/// memory, so no system call is made.
pub(crate) fn words(object: &Object, section: &str) -> Result<Vec<u64>, PathError> {
    let found = object
        .maps()
        .find(|m| m.name().to_string_lossy().ends_with(section));
    let mut bytes = 0;
    let first = found.map_or(std::ptr::null_mut(), |map| {
        // SAFETY: the map is of a loaded object, and the size is written to a variable.
        unsafe { sys::bpf_map__initial_value(map.as_libbpf_object().as_ptr(), &mut bytes) }
    });
    if first.is_null() || !first.cast::<u64>().is_aligned() {
        let error = io::Error::other(format!("`{section}` is not in memory"));
        return Err(error).doing(|| "read a program's counters".into());
    }
    let word = |i: usize| {
        // SAFETY: `i` is below the section's length in words. It is mapped for as long
        // as the object, which is borrowed, lives; programs write to it meanwhile, and
        // so it is read as they do: a word at a time.
        let word = unsafe { AtomicU64::from_ptr(first.cast::<u64>().add(i)) };
        word.load(Ordering::Relaxed)
    };
    Ok((0..bytes as usize / 8).map(word).collect())
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

    /// Its number in the kernel, as `bpftool prog` shows it.
    pub(crate) fn id(&self) -> Option<u32> {
        libbpf_rs::Program::id_from_fd(self.fd().ok()?).ok()
    }

    pub(crate) fn map(&self, name: &str) -> Result<MapHandle, PathError> {
        map(&self.object, name)
    }

    /// What each CPU counted.
    pub(crate) fn counts(&self) -> Result<Vec<Counts>, PathError> {
        let words = words(&self.object, ".bss.counts")?;
        Ok(words.chunks(COUNT_WORDS).map(Counts::from_words).collect())
    }

    /// What it handled.
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
            for cpu in cpus.unwrap_or_default() {
                layout::add_times(&mut times, &cpu);
            }
            handled.latency = Some(times);
        }
        Ok(handled)
    }

    /// Stamped frames without a stamp, or with one of the future.
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

/// A program attached to a device. Closed, it is detached.
#[derive(Debug)]
pub(crate) struct Attached(OwnedFd);

impl Attached {
    /// Attach to a device of a namespace: XDP, or tcx at ingress where there is no
    /// mode.
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
            if fd < 0 {
                return Err(io::Error::from_raw_os_error(-fd));
            }
            // SAFETY: the kernel has just made it for us alone.
            Ok(Attached(unsafe { OwnedFd::from_raw_fd(fd) }))
        })
    }

    /// Put another program in the place of the one that runs. The kernel does it by one
    /// write of a pointer (`bpf_xdp_link_update`, net/core/dev.c).
    pub(crate) fn update(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: both descriptors are open; no options are allowed.
        let result = unsafe {
            sys::bpf_link_update(self.0.as_raw_fd(), program.as_raw_fd(), std::ptr::null())
        };
        match result {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // Closed, it would be detached once the last copy of the descriptor is: a child
        // that is just being started may have one until it executes.
        // SAFETY: the descriptor is open.
        unsafe { sys::bpf_link_detach(self.0.as_raw_fd()) };
    }
}

/// The XDP program of a device of this thread's namespace; 0 where there is none.
pub(crate) fn xdp_id(device: u32) -> io::Result<u32> {
    let mut id = 0;
    // SAFETY: the number is written to a variable of ours.
    match unsafe { sys::bpf_xdp_query_id(device as i32, 0, &mut id) } {
        0 => Ok(id),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// Detach what others have attached to a device of this thread's namespace.
pub(crate) fn xdp_off(device: u32) -> io::Result<()> {
    if xdp_id(device)? == 0 {
        return Ok(());
    }
    // SAFETY: takes numbers; no options are allowed.
    match unsafe { sys::bpf_xdp_detach(device as i32, 0, std::ptr::null()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the reason and the line of the source are found in a log, as several
    /// kernels write it, and that a log without a reason is none.
    #[test]
    fn the_verifiers_reason() {
        let log = "0: R1=ctx() R10=fp0\n\
            ; const __u8 *data = (const __u8 *)(long)ctx->data; @ unsafe.bpf.c:12\n\
            0: (61) r1 = *(u32 *)(r1 +0)          ; R1=pkt(r=0)\n\
            ; __u8 protocol = data[23]; @ unsafe.bpf.c:13\n\
            1: (71) r1 = *(u8 *)(r1 +23)\n\
            invalid access to packet, off=23 size=1, R1(id=0,off=23,r=0)\n\
            R1 offset is outside of the packet\n\
            processed 2 insns (limit 1000000) max_states_per_insn 0 total_states 0\n";
        let Some(PathError::Refused {
            reason, line, log, ..
        }) = refused("xdp_unsafe", log)
        else {
            panic!("not seen");
        };
        assert_eq!(
            reason,
            "invalid access to packet, off=23 size=1, R1(id=0,off=23,r=0); \
             R1 offset is outside of the packet"
        );
        assert_eq!(line.unwrap(), "__u8 protocol = data[23]; @ unsafe.bpf.c:13");
        assert!(log.contains("(71)"));

        // Before 6.9 there was no file.
        let old = "; __u8 protocol = data[23];\n1: (71) r1 = *(u8 *)(r1 +23)\n\
            R1 invalid mem access 'inv'\nverification time 40 usec\n";
        let Some(PathError::Refused { reason, line, .. }) = refused("x", old) else {
            panic!("not seen");
        };
        assert_eq!(reason, "R1 invalid mem access 'inv'");
        assert_eq!(line.unwrap(), "__u8 protocol = data[23];");

        assert!(refused("x", "").is_none());
        assert!(refused("x", "processed 2 insns\n").is_none());
    }
}
