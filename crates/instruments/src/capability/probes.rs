//! Programs on breakpoints: kprobes on kernel functions, uprobes on our own.

use std::ffi::{CStr, CString};
use std::fs;

use libbpf_sys as sys;
use netplumb_model::capability::{Availability, Capability, Group};

use super::btf::FUNCTIONS;
use super::context::{Cap, Context};
use super::explain::{self, Need};
use super::program::{self, Failure, Kind};
use super::trial;

const TRACER: &[Cap] = &[Cap::Bpf, Cap::Perfmon];

const KPROBE: Need = Need {
    caps: TRACER,
    config: &["CONFIG_KPROBES", "CONFIG_KPROBE_EVENTS", "CONFIG_BPF_EVENTS"],
    since: Some((4, 17)),
};

const FPROBE: &[&str] = &["CONFIG_FPROBE", "CONFIG_BPF_EVENTS"];

const UPROBE: Need = Need {
    caps: TRACER,
    config: &["CONFIG_UPROBES", "CONFIG_UPROBE_EVENTS", "CONFIG_BPF_EVENTS"],
    since: Some((4, 17)),
};

/// Try every one of them.
pub(super) fn try_all(context: &Context) -> Vec<Capability> {
    let multi = |attach, since| {
        let need = Need { caps: TRACER, config: FPROBE, since: Some(since) };
        let tried = kprobe_multi(context, attach);
        verdict(context, &need, tried)
    };
    vec![
        trial("kprobe", Group::Functions, "a program on a kprobe", || {
            verdict(context, &KPROBE, kprobe(context))
        }),
        trial(
            "kprobe-multi",
            Group::Functions,
            "one program on many functions (kprobe.multi)",
            || multi(sys::BPF_TRACE_KPROBE_MULTI, (5, 18)),
        ),
        trial(
            "kprobe-session",
            Group::Functions,
            "one program on entries and returns (kprobe.session)",
            || multi(sys::BPF_TRACE_KPROBE_SESSION, (6, 10)),
        ),
        trial("uprobe", Group::Stages, "a program on a function of a process (uprobe)", || {
            verdict(context, &UPROBE, uprobe())
        }),
    ]
}

fn verdict(context: &Context, need: &Need, tried: Result<String, Failure>) -> Availability {
    match tried {
        Ok(detail) => Availability::yes(detail),
        Err(failure) => explain::no(context, need, &failure),
    }
}

/// The function to probe: one that the kernel is known to have, else one that any should have.
fn function(context: &Context) -> &'static CStr {
    let known = context.targets.as_ref().ok().and_then(|t| t.function);
    known.map_or(FUNCTIONS[2], |(name, _)| name)
}

fn kprobe(context: &Context) -> Result<String, Failure> {
    let name = function(context);
    let mut attr = sys::perf_event_attr { type_: event_source("kprobe")?, ..Default::default() };
    attr.__bindgen_anon_3.kprobe_func = name.as_ptr() as u64;
    let program = load(Kind::default().attach)?;
    let event = program::perf_open(&mut attr, Some(0))?;
    program::perf_attach(&event, &program)?;
    Ok(format!("attached to {}", name.to_string_lossy()))
}

fn kprobe_multi(context: &Context, attach: sys::bpf_attach_type) -> Result<String, Failure> {
    let name = function(context);
    let mut names = [name.as_ptr()];
    let program = load(attach)?;
    let mut opts = program::link_opts(0);
    opts.__bindgen_anon_1.kprobe_multi.cnt = 1;
    opts.__bindgen_anon_1.kprobe_multi.syms = names.as_mut_ptr();
    program::link(&program, 0, attach, &opts)?;
    Ok(format!("attached to {}", name.to_string_lossy()))
}

/// What the uprobe is put on. Not inlined, and it does what no other function does, so that the
/// compiler gives it an address of its own.
#[inline(never)]
extern "C" fn probed(value: u64) -> u64 {
    std::hint::black_box(value ^ 0x706c_756d_6200)
}

fn uprobe() -> Result<String, Failure> {
    let (path, offset) = locate(probed as *const () as u64)
        .ok_or_else(|| Failure::new("finding our own code", libc::ENOENT))?;
    let mut attr = sys::perf_event_attr { type_: event_source("uprobe")?, ..Default::default() };
    attr.__bindgen_anon_3.uprobe_path = path.as_ptr() as u64;
    attr.__bindgen_anon_4.probe_offset = offset;
    let counter = program::Counter::new()?;
    let kind = Kind { program: sys::BPF_PROG_TYPE_KPROBE, ..Kind::default() };
    let program = program::load(kind, &program::counting(&counter, 0))?;
    let event = program::perf_open(&mut attr, None)?;
    program::perf_attach(&event, &program)?;
    for turn in 0..3 {
        std::hint::black_box(probed(turn));
    }
    let hits = counter.read();
    drop(event);
    match hits {
        0 => Err(Failure::new("calling the probed function (no hits)", libc::EIO)),
        hits => Ok(format!("attached to our own binary, {hits} of 3 calls seen")),
    }
}

fn load(attach: sys::bpf_attach_type) -> Result<std::os::fd::OwnedFd, Failure> {
    let kind = Kind { program: sys::BPF_PROG_TYPE_KPROBE, attach, ..Kind::default() };
    program::load(kind, &program::returning(0))
}

/// The number by which perf knows a source of events; kernels without it have no such folder.
fn event_source(name: &str) -> Result<u32, Failure> {
    fs::read_to_string(format!("/sys/bus/event_source/devices/{name}/type"))
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .ok_or(Failure::new("looking for the kernel's probe events", libc::ENOENT))
}

/// The file and the offset in it of an address of ours.
fn locate(address: u64) -> Option<(CString, u64)> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let (path, offset) = locate_in(&maps, address)?;
    // The name may have been replaced on disk since we started; this always leads to the file.
    let own = fs::read_link("/proc/self/exe").ok()?;
    let path = if own.to_str() == Some(path) { "/proc/self/exe" } else { path };
    Some((CString::new(path).ok()?, offset))
}

fn locate_in(maps: &str, address: u64) -> Option<(&str, u64)> {
    maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        let end = u64::from_str_radix(end, 16).ok()?;
        let offset = u64::from_str_radix(words.nth(1)?, 16).ok()?;
        let path = line.find('/').map(|at| &line[at..])?;
        (start..end).contains(&address).then_some((path, address - start + offset))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that an address is turned into an offset in its file.
    #[test]
    fn addresses_become_offsets() {
        let maps = "55d0a000-55d0b000 r-xp 00002000 08:01 131 /usr/bin/plumb\n\
                    7ffd0000-7ffd1000 rw-p 00000000 00:00 0 [stack]\n";
        assert_eq!(locate_in(maps, 0x55d0_a010), Some(("/usr/bin/plumb", 0x2010)));
        assert_eq!(locate_in(maps, 0x7ffd_0000), None);
    }

    /// Check that our own function is found in our own file.
    #[test]
    fn our_own_code_is_found() {
        let (path, offset) = locate(probed as *const () as u64).unwrap();
        assert_eq!(path.to_str(), Ok("/proc/self/exe"));
        assert!(offset > 0);
    }
}
