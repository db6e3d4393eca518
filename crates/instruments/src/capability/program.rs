//! Hand-made BPF programs of a few instructions, and how they are loaded and attached.
//!
//! No compiler is needed, and nothing outlives its descriptor: a program, its link and its event
//! are gone when the values here are dropped, or when the process dies.

use std::ffi::{CStr, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libbpf_sys as sys;

use super::mounts::owned;

const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
const PERF_EVENT_IOC_SET_BPF: libc::c_ulong = 0x4004_2408;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// What the kernel said no to, and with which words.
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
        Self {
            doing,
            errno,
            log: None,
        }
    }

    /// A failure from an I/O error.
    pub(crate) fn io(doing: &'static str, error: &io::Error) -> Self {
        Self::new(doing, error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// One instruction: opcode, destination and source register, offset, immediate.
pub(crate) fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> sys::bpf_insn {
    let mut insn = sys::bpf_insn {
        code,
        off,
        imm,
        ..Default::default()
    };
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
        // SAFETY: no name and no options are allowed; the sizes are those of an array's key and
        // of the counter.
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
        from_libbpf(fd)
            .map(Self)
            .map_err(|e| Failure::new("making a BPF map", e))
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

/// What kind of program to load.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kind {
    pub(crate) program: sys::bpf_prog_type,
    pub(crate) attach: sys::bpf_attach_type,
    /// The BTF number of the target; zero if the kind has none.
    pub(crate) target: u32,
}

/// Load a program.
pub(crate) fn load(kind: Kind, insns: &[sys::bpf_insn]) -> Result<OwnedFd, Failure> {
    let mut opts = sys::bpf_prog_load_opts {
        sz: size_of::<sys::bpf_prog_load_opts>() as _,
        expected_attach_type: kind.attach,
        attach_btf_id: kind.target,
        attempts: 1,
        ..Default::default()
    };
    let first = try_load(kind, insns, &mut opts);
    let Err(errno) = first else {
        return first.map_err(|e| Failure::new("", e));
    };
    // Only a refused program is worth a log: with one, the verifier takes longer.
    let mut log = vec![0_u8; 16 * 1024];
    opts.log_level = 1;
    opts.log_size = log.len() as u32;
    opts.log_buf = log.as_mut_ptr().cast();
    let second = try_load(kind, insns, &mut opts);
    let log = match &second {
        Ok(_) => None,
        Err(_) => last_line(&log),
    };
    Err(Failure {
        doing: "loading the program",
        errno,
        log,
    })
}

fn try_load(
    kind: Kind,
    insns: &[sys::bpf_insn],
    opts: &mut sys::bpf_prog_load_opts,
) -> Result<OwnedFd, i32> {
    // SAFETY: the instructions, the names and the options (with the log that they point to)
    // outlive the call.
    from_libbpf(unsafe {
        sys::bpf_prog_load(
            kind.program,
            c"plumb_doctor".as_ptr(),
            c"GPL".as_ptr(),
            insns.as_ptr(),
            insns.len() as _,
            opts,
        )
    })
}

/// The last line that says something; the verifier ends with its statistics.
fn last_line(log: &[u8]) -> Option<String> {
    let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
    let text = String::from_utf8_lossy(&log[..end]);
    text.lines()
        .rev()
        .map(str::trim)
        .find(|l| !l.is_empty() && !l.starts_with("processed "))
        .map(str::to_owned)
}

/// Attach a raw tracepoint program, or (without a name) one whose target is fixed at load time.
pub(crate) fn attach_raw(program: &OwnedFd, name: Option<&CStr>) -> Result<OwnedFd, Failure> {
    let name = name.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: the name is NULL or NUL-terminated.
    from_libbpf(unsafe { sys::bpf_raw_tracepoint_open(name, program.as_raw_fd()) })
        .map_err(|e| Failure::new("attaching the program", e))
}

/// Attach a program to a target by a link. Whatever `opts` points to must be alive.
pub(crate) fn link(
    program: &OwnedFd,
    target: i32,
    attach: sys::bpf_attach_type,
    opts: &sys::bpf_link_create_opts,
) -> Result<OwnedFd, Failure> {
    // SAFETY: the caller keeps what the options point to alive.
    from_libbpf(unsafe { sys::bpf_link_create(program.as_raw_fd(), target, attach, opts) })
        .map_err(|e| Failure::new("attaching the program", e))
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
    attr.size = size_of::<sys::perf_event_attr>() as u32;
    let (pid, cpu) = cpu.map_or((0, -1), |cpu| (-1, cpu));
    // SAFETY: the attribute is alive, and its size is set.
    owned(unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const *attr,
            pid,
            cpu,
            -1,
            PERF_FLAG_FD_CLOEXEC,
        )
    })
    .map_err(|e| Failure::io("opening the event", &e))
}

/// Give a program to a perf event, and switch the event on.
pub(crate) fn perf_attach(event: &OwnedFd, program: &OwnedFd) -> Result<(), Failure> {
    for (request, value) in [
        (PERF_EVENT_IOC_SET_BPF, program.as_raw_fd()),
        (PERF_EVENT_IOC_ENABLE, 0),
    ] {
        // SAFETY: both requests take an integer.
        if unsafe { libc::ioctl(event.as_raw_fd(), request as _, value) } < 0 {
            return Err(Failure::io(
                "attaching the program",
                &io::Error::last_os_error(),
            ));
        }
    }
    Ok(())
}

/// Have the kernel run an XDP program over live frames, as if they had come in on a device.
pub(crate) fn run_live(
    program: &OwnedFd,
    frame: &[u8],
    frames: u32,
    device: u32,
) -> Result<(), Failure> {
    let context = sys::xdp_md {
        data_end: frame.len() as u32,
        ingress_ifindex: device,
        ..Default::default()
    };
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
    if result < 0 {
        Err(Failure::new("running the frames", -result))
    } else {
        Ok(())
    }
}

/// libbpf's low-level calls give a descriptor, or an errno with its sign turned.
fn from_libbpf(result: i32) -> Result<OwnedFd, i32> {
    if result < 0 {
        return Err(-result);
    }
    // SAFETY: a result that is not negative is a descriptor that has just been made for us.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the statistics at the end of a verifier log are not taken for its verdict.
    #[test]
    fn the_log_ends_with_a_verdict() {
        let log =
            b"0: R1=ctx\ninvalid mem access 'scalar'\nprocessed 3 insns (limit 1000000)\n\0\0";
        assert_eq!(
            last_line(log).as_deref(),
            Some("invalid mem access 'scalar'")
        );
        assert_eq!(last_line(b"\0"), None);
    }

    /// Check that the two-instruction program encodes as the kernel expects it.
    #[test]
    fn instructions_have_the_kernels_layout() {
        let program = returning(7);
        assert_eq!(size_of::<sys::bpf_insn>(), 8);
        assert_eq!(
            (program[0].code, program[0].imm, program[1].code),
            (0xb7, 7, 0x95)
        );
    }
}
