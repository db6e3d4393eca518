//! Hand-made BPF programs of a few instructions, and how they are loaded and attached.
//!
//! No compiler is needed, and nothing outlives its descriptor: a program, its link and its event
//! are gone when the values here are dropped, or when the process dies.

use std::ffi::{CStr, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libbpf_sys as sys;
use netplumb_sys::bpf::raw;
pub(crate) use netplumb_sys::bpf::raw::Kind;
use netplumb_sys::perf;

/// What the kernel refused, and its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What was being done: "loading the program".
    pub(crate) doing: &'static str,
    /// The error number.
    pub(crate) errno: i32,
    /// The last line of the verifier's log, if there was one.
    pub(crate) log: Option<String>,
}

impl Failure {
    /// A failure with its number.
    pub(crate) fn new(doing: &'static str, errno: i32) -> Self {
        Self { doing, errno, log: None }
    }

    /// A failure from an I/O error.
    pub(crate) fn io(doing: &'static str, error: &io::Error) -> Self {
        Self::new(doing, error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// One instruction: opcode, destination and source register, offset, immediate.
pub(crate) fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> sys::bpf_insn {
    let mut insn = sys::bpf_insn { code, off, imm, ..Default::default() };
    insn.set_dst_reg(dst);
    insn.set_src_reg(src);
    insn
}

/// `r0 = value; exit`
pub(crate) fn returning(value: i32) -> Vec<sys::bpf_insn> {
    vec![insn(0xb7, 0, 0, 0, value), insn(0x95, 0, 0, 0, 0)]
}

/// Count one in the first entry of the map, then return a value.
pub(crate) fn counting(map: &Counter, value: i32) -> Vec<sys::bpf_insn> {
    // BPF_PSEUDO_MAP_VALUE: the address of the entry itself, so no helper is called.
    let mut program = vec![
        insn(0x18, 1, 2, 0, map.0.as_raw_fd()),
        insn(0x00, 0, 0, 0, 0),
        insn(0xb7, 2, 0, 0, 1),
        insn(0xdb, 1, 2, 0, 0),
    ];
    program.extend(returning(value));
    program
}

/// A map with one 64-bit counter.
#[derive(Debug)]
pub(crate) struct Counter(OwnedFd);

impl Counter {
    pub(crate) fn new() -> Result<Self, Failure> {
        // SAFETY: no name and no options are allowed; the sizes are an array key's and the
        // counter's.
        let fd = unsafe {
            sys::bpf_map_create(
                sys::BPF_MAP_TYPE_ARRAY,
                std::ptr::null(),
                4,
                8,
                1,
                std::ptr::null(),
            )
        };
        raw::owned(fd).map(Self).map_err(|e| Failure::io("making a BPF map", &e))
    }

    pub(crate) fn read(&self) -> u64 {
        let (key, mut value) = (0_u32, 0_u64);
        // SAFETY: both pointers are to values of the sizes that the map was made with.
        unsafe {
            sys::bpf_map_lookup_elem(
                self.0.as_raw_fd(),
                (&raw const key).cast::<c_void>(),
                (&raw mut value).cast::<c_void>(),
            )
        };
        value
    }
}

/// Load a program.
pub(crate) fn load(kind: Kind, insns: &[sys::bpf_insn]) -> Result<OwnedFd, Failure> {
    raw::load("plumb_doctor", kind, insns).map_err(|refused| Failure {
        doing: "loading the program",
        errno: refused.errno,
        log: refused.said,
    })
}

/// Attach a raw tracepoint program, or (without a name) one whose target is fixed at load time.
pub(crate) fn attach_raw(program: &OwnedFd, name: Option<&CStr>) -> Result<OwnedFd, Failure> {
    raw::attach(program.as_fd(), name).map_err(|e| Failure::io("attaching the program", &e))
}

/// Attach a program to a target by a link. Whatever `opts` points to must be alive.
pub(crate) fn link(
    program: &OwnedFd,
    target: i32,
    attach: sys::bpf_attach_type,
    opts: &sys::bpf_link_create_opts,
) -> Result<OwnedFd, Failure> {
    // SAFETY: the caller keeps what the options point to alive.
    raw::owned(unsafe { sys::bpf_link_create(program.as_raw_fd(), target, attach, opts) })
        .map_err(|e| Failure::io("attaching the program", &e))
}

/// Options for [`link`], empty but for their size and flags.
pub(crate) fn link_opts(flags: u32) -> sys::bpf_link_create_opts {
    sys::bpf_link_create_opts {
        sz: size_of::<sys::bpf_link_create_opts>() as _,
        flags,
        ..Default::default()
    }
}

/// Open a perf event; `cpu` 0 means the whole of the first processor, nothing means this process.
pub(crate) fn perf_open(
    attr: &mut sys::perf_event_attr,
    cpu: Option<i32>,
) -> Result<OwnedFd, Failure> {
    perf::open(attr, cpu).map_err(|e| Failure::io("opening the event", &e))
}

/// Give a program to a perf event, and switch the event on.
pub(crate) fn perf_attach(event: &OwnedFd, program: &OwnedFd) -> Result<(), Failure> {
    perf::attach(event.as_fd(), program.as_fd())
        .map_err(|e| Failure::io("attaching the program", &e))
}

/// Have the kernel run an XDP program over live frames, as if they had come in on a device.
pub(crate) fn run_live(
    program: &OwnedFd,
    frame: &[u8],
    frames: u32,
    device: u32,
) -> Result<(), Failure> {
    let context =
        sys::xdp_md { data_end: frame.len() as u32, ingress_ifindex: device, ..Default::default() };
    let mut opts = sys::bpf_test_run_opts {
        sz: size_of::<sys::bpf_test_run_opts>() as _,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        ctx_in: (&raw const context).cast(),
        ctx_size_in: size_of::<sys::xdp_md>() as u32,
        repeat: frames as i32,
        batch_size: frames,
        flags: sys::BPF_F_TEST_XDP_LIVE_FRAMES,
        ..Default::default()
    };
    // SAFETY: the frame, the context and the options outlive the call.
    let result = unsafe { sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut opts) };
    if result < 0 { Err(Failure::new("running the frames", -result)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the two-instruction program encodes as the kernel expects it.
    #[test]
    fn instructions_have_the_kernels_layout() {
        let program = returning(7);
        assert_eq!(size_of::<sys::bpf_insn>(), 8);
        assert_eq!((program[0].code, program[0].imm, program[1].code), (0xb7, 7, 0x95));
    }
}
