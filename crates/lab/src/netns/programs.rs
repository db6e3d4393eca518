//! BPF programs of the user's, attached to devices of a topology.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{Object, ProgramType, TC_EGRESS, TC_INGRESS, TcHookBuilder};
use libbpf_sys as sys;
use netplumb_model::experiment::{BpfHook, BpfProgram};
use netplumb_sys::bpf::{BpfError, Opened};
use netplumb_sys::netlink::Netlink;
use netplumb_sys::netns::Namespace;
use netplumb_sys::sysctl;

use super::making::find;
use super::plan::Refusal;

/// Where maps with `LIBBPF_PIN_BY_NAME` are pinned.
const BPFFS: &CStr = c"/sys/fs/bpf";
/// `XDP_FLAGS_DRV_MODE` and `XDP_FLAGS_SKB_MODE`, include/uapi/linux/if_link.h.
const DRIVER: u32 = 1 << 2;
const SKB: u32 = 1 << 1;

/// A program that is loaded, as long as this exists.
#[derive(Debug)]
pub(super) struct Loaded(#[allow(dead_code)] Object);

/// Load a program in a guest and attach it; returns what came of it, in words.
pub(super) fn attach(program: &BpfProgram, namespace: &Namespace) -> io::Result<(Loaded, String)> {
    mount_bpffs();
    // Their code has names then (kernel/bpf/core.c).
    let _ = sysctl::set("net.core.bpf_jit_kallsyms", "1");
    let (object, name) = load(program).map_err(of_bpf)?;
    let found = object.progs().find(|p| p.name().to_string_lossy() == name);
    let fd = found.map(|p| p.as_fd().as_raw_fd()).ok_or(io::ErrorKind::NotFound)?;
    let how = namespace.inside(|| {
        let index = find(&mut Netlink::open()?, &program.device)?.index as i32;
        match program.hook {
            BpfHook::Xdp => attach_xdp(fd, index),
            BpfHook::Tc => attach_tc(&object, &name, index, program.egress),
        }
    })?;
    Ok((Loaded(object), format!("{name}, {how}")))
}

fn mount_bpffs() {
    // SAFETY: strings that end with a zero; the kernel copies them. If it fails, it is mounted already or not there, and
    // only maps that are to be pinned miss it.
    unsafe {
        libc::mount(c"bpf".as_ptr(), BPFFS.as_ptr(), c"bpf".as_ptr(), 0, std::ptr::null());
    }
}

/// The type of programs for a hook.
fn kind(hook: BpfHook) -> ProgramType {
    match hook {
        BpfHook::Xdp => ProgramType::Xdp,
        BpfHook::Tc => ProgramType::SchedCls,
    }
}

/// Load the wanted program of an object, alone; returns its name, too.
fn load(program: &BpfProgram) -> Result<(Object, String), BpfError> {
    let wanted_kind = kind(program.hook);
    let mut open = Opened::new(&program.object)?;
    let mut all = Vec::new();
    let mut chosen = None;
    for one in open.progs() {
        let (name, section) = (one.name().to_string_lossy(), one.section().to_string_lossy());
        let fits = match &program.program {
            Some(wanted) => name == wanted.as_str() || section == wanted.as_str(),
            None => one.prog_type() == wanted_kind,
        };
        if fits && chosen.is_none() {
            chosen = Some(name.clone().into_owned());
        }
        all.push(format!("{name} ({section})"));
    }
    let Some(chosen) = chosen else {
        let what = match &program.program {
            Some(wanted) => format!("no program `{wanted}`"),
            None => format!("no program for {}", program.hook),
        };
        return Err(BpfError::Object(format!("it has {what}; it has {}", all.join(", "))));
    };
    for mut one in open.progs_mut() {
        let is_chosen = one.name().to_string_lossy() == chosen;
        one.set_autoload(is_chosen);
        if is_chosen {
            one.set_prog_type(wanted_kind);
        }
    }
    Ok((open.load()?, chosen))
}

fn attach_xdp(fd: i32, device: i32) -> io::Result<String> {
    let by = |flags| {
        // SAFETY: takes numbers; there are no options.
        match unsafe { sys::bpf_xdp_attach(device, fd, flags, std::ptr::null()) } {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(-errno)),
        }
    };
    match by(DRIVER) {
        Ok(()) => Ok("native".into()),
        Err(why) => by(SKB).map(|()| format!("skb; not native: {why}")),
    }
}

fn attach_tc(object: &Object, name: &str, device: i32, egress: bool) -> io::Result<String> {
    let other = |error: libbpf_rs::Error| io::Error::other(error.to_string());
    let found = object.progs().find(|p| p.name().to_string_lossy() == name);
    let program = found.ok_or(io::ErrorKind::NotFound)?;
    let (point, word) = if egress { (TC_EGRESS, "egress") } else { (TC_INGRESS, "ingress") };
    let mut builder = TcHookBuilder::new(program.as_fd());
    builder.ifindex(device).replace(true).handle(1).priority(1);
    let mut hook = builder.hook(point);
    hook.create().map_err(other)?;
    hook.attach().map_err(other)?;
    Ok(format!("clsact {word}"))
}

/// What the verifier refuses, or the object lacks, is the user's matter.
fn of_bpf(error: BpfError) -> io::Error {
    match error {
        BpfError::Refused(_) | BpfError::Object(_) => Refusal::Asked(error.to_string()).into(),
        BpfError::NoTypes(_) => io::Error::new(io::ErrorKind::Unsupported, error.to_string()),
        other => io::Error::other(other.to_string()),
    }
}
