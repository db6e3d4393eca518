//! A pair of veth devices, each in its own namespace, and XDP programs for its ends.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use libbpf_sys as sys;
use netplumb_model::bench::{FrameKind, FrameSize, Frames, Generated, Offered};
use netplumb_model::class::Family;
use netplumb_sys::netns::{Namespace, inside};
use netplumb_workload::frames::{BATCH, Exit, Generator, GeneratorPlan, TTL};

pub(crate) const MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];
pub(crate) const TO_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x02];
pub(crate) const PORT: u16 = 4000;
pub(crate) const TO_PORT: u16 = 9;

/// Nothing else of this file runs meanwhile: all of them want the same CPUs.
pub(crate) fn turn() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    if netplumb_testkit::is_root() {
        return Some(TURN.lock().unwrap_or_else(PoisonError::into_inner));
    }
    netplumb_testkit::skip("frames between namespaces need root");
    None
}

/// Two devices, `tx0` and `rx0`, each in its own namespace.
pub(crate) struct Pair {
    pub(crate) tx: OwnedFd,
    pub(crate) rx: OwnedFd,
}

impl Pair {
    pub(crate) fn new() -> Pair {
        let pair = Pair { tx: namespace(), rx: namespace() };
        let rx = format!("/proc/self/fd/{}", pair.rx.as_raw_fd());
        // `ip` opens the file by itself, in its own process, where it has the same number.
        // SAFETY: it changes a flag of a descriptor that is ours.
        unsafe { libc::fcntl(pair.rx.as_raw_fd(), libc::F_SETFD, 0) };
        let lines = [
            "link set lo up".to_string(),
            format!(
                "link add tx0 address 02:00:00:00:00:01 type veth peer name rx0 \
                 address 02:00:00:00:00:02 netns {rx}"
            ),
        ];
        for line in lines {
            pair.ip(&pair.tx, &line);
        }
        for (namespace, device, host) in [(&pair.tx, "tx0", 1), (&pair.rx, "rx0", 2)] {
            pair.ip(namespace, "link set lo up");
            pair.ip(namespace, &format!("link set {device} up"));
            pair.ip(namespace, &format!("address add 10.77.0.{host}/16 dev {device}"));
            let line = format!("address add fd77::{host}/64 dev {device} nodad");
            pair.ip(namespace, &line);
        }
        pair
    }

    pub(crate) fn ip(&self, namespace: &OwnedFd, line: &str) {
        let status =
            inside(namespace.as_fd(), || Command::new("ip").args(line.split_whitespace()).status());
        assert!(status.unwrap().success(), "ip {line}");
    }

    pub(crate) fn exit(&self, family: Family) -> Exit {
        let (source, destination) = match family {
            Family::V4 => ("10.77.1.0", "10.77.0.2"),
            Family::V6 => ("fd77::1:0:0", "fd77::2"),
        };
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        Exit {
            namespace: self.tx.try_clone().unwrap(),
            device: index(&self.tx, c"tx0"),
            mac: MAC,
            to_mac: TO_MAC,
            source: address(source),
            destination: address(destination),
            source_port: PORT,
            destination_port: TO_PORT,
        }
    }

    pub(crate) fn plan(&self, frames: Frames) -> GeneratorPlan {
        GeneratorPlan {
            exit: self.exit(frames.family),
            frames,
            flow_ports: 0,
            ttl: TTL,
            offered: Offered::Pps(20_000.0),
            cpus: vec![0],
            batch: BATCH,
            stamped: false,
            method: None,
        }
    }

    /// Something of `/proc/net/snmp` or `snmp6` where frames arrive.
    pub(crate) fn counter(&self, family: Family, name: &str) -> u64 {
        let file = match family {
            Family::V4 => "/proc/thread-self/net/snmp",
            Family::V6 => "/proc/thread-self/net/snmp6",
        };
        let text = inside(self.rx.as_fd(), || std::fs::read_to_string(file)).unwrap();
        let (prefix, key) = name.split_once('.').unwrap();
        if family == Family::V6 {
            let name = format!("{prefix}{key}");
            let mut found = text.lines().filter_map(|l| l.split_once(char::is_whitespace));
            let (_, value) = found.find(|(n, _)| *n == name).unwrap();
            return value.trim().parse().unwrap();
        }
        let of = |prefix: &str| -> Vec<Vec<&str>> {
            let lines = text.lines().filter_map(|l| l.strip_prefix(prefix));
            lines.map(|l| l.split_whitespace().collect()).collect()
        };
        let lines = of(&format!("{prefix}:"));
        let at = lines[0].iter().position(|k| *k == key).unwrap();
        lines[1][at].parse().unwrap()
    }
}

pub(crate) fn frames(kind: FrameKind, family: Family, size: FrameSize, flows: u32) -> Frames {
    Frames { kind, family, size, flows }
}

pub(crate) fn udp() -> Frames {
    frames(FrameKind::Udp, Family::V4, FrameSize::Bytes(60), 1)
}

fn namespace() -> OwnedFd {
    Namespace::new().unwrap().try_clone().unwrap()
}

pub(crate) fn index(namespace: &OwnedFd, name: &std::ffi::CStr) -> u32 {
    inside(namespace.as_fd(), || netplumb_sys::links::index_of(name)).unwrap()
}

/// Wait until it is so, or a second has passed: softirqs run when others let them.
pub(crate) fn within_a_second(mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(1);
    while !is_so() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Let it send for a while; where others have the CPU, until it has sent something.
pub(crate) fn let_run(generator: &Generator, time: Duration) {
    const ENOUGH: u64 = 200;
    std::thread::sleep(time);
    let until = Instant::now() + Duration::from_secs(20);
    while total(&generator.counts().unwrap(), |g| g.frames) < ENOUGH && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn refused(counts: &[Generated]) -> u64 {
    counts.iter().flat_map(|g| g.refused.values()).sum()
}

pub(crate) fn total(counts: &[Generated], of: impl Fn(&Generated) -> u64) -> u64 {
    counts.iter().map(of).sum()
}

/// An XDP program at `rx0` that counts frames and decides what becomes of them.
pub(crate) struct Sink {
    map: OwnedFd,
    _program: OwnedFd,
    _link: OwnedFd,
}

pub(crate) const XDP_DROP: i32 = 1;
pub(crate) const XDP_PASS: i32 = 2;

impl Sink {
    pub(crate) fn new(pair: &Pair, verdict: i32) -> Sink {
        // SAFETY: there are no options.
        let map = owned(unsafe {
            sys::bpf_map_create(
                sys::BPF_MAP_TYPE_ARRAY,
                c"count".as_ptr(),
                4,
                8,
                1,
                std::ptr::null(),
            )
        });
        let program = program(&[
            // r2 = data, r3 = data_end; past both, unless there is a link header
            (0x61, 2, 1, 0, 0),
            (0x61, 3, 1, 4, 0),
            (0xbf, 4, 2, 0, 0),
            (0x07, 4, 0, 0, 14),
            (0x2d, 4, 3, 6, 0),
            // and unless it goes to us: a kernel also sends multicast
            (0x71, 4, 2, 0, 0),
            (0x55, 4, 0, 4, TO_MAC[0].into()),
            // r1 = &count (BPF_PSEUDO_MAP_VALUE), r2 = 1, lock *r1 += r2
            (0x18, 1, 2, 0, map.as_raw_fd()),
            (0, 0, 0, 0, 0),
            (0xb7, 2, 0, 0, 1),
            (0xdb, 1, 2, 0, 0),
            // r0 = verdict, exit
            (0xb7, 0, 0, 0, verdict),
            (0x95, 0, 0, 0, 0),
        ]);
        Sink::attached(pair, map, program)
    }

    /// One that drops and does not count, which is the least that there can be.
    pub(crate) fn bare(pair: &Pair) -> Sink {
        let drops = program(&[(0xb7, 0, 0, 0, XDP_DROP), (0x95, 0, 0, 0, 0)]);
        let map = drops.try_clone().unwrap();
        Sink::attached(pair, map, drops)
    }

    fn attached(pair: &Pair, map: OwnedFd, program: OwnedFd) -> Sink {
        let device = index(&pair.rx, c"rx0") as i32;
        let link = inside(pair.rx.as_fd(), || {
            let options = sys::bpf_link_create_opts {
                sz: size_of::<sys::bpf_link_create_opts>() as _,
                // XDP_FLAGS_DRV_MODE
                flags: 1 << 2,
                ..Default::default()
            };
            // SAFETY: the options outlive the call.
            Ok(unsafe {
                sys::bpf_link_create(program.as_raw_fd(), device, sys::BPF_XDP, &raw const options)
            })
        });
        Sink { map, _program: program, _link: owned(link.unwrap()) }
    }

    pub(crate) fn count(&self) -> u64 {
        let (key, mut value) = (0_u32, 0_u64);
        // SAFETY: key and value are as long as the map has them.
        let done = unsafe {
            sys::bpf_map_lookup_elem(
                self.map.as_raw_fd(),
                (&raw const key).cast(),
                (&raw mut value).cast(),
            )
        };
        assert_eq!(done, 0);
        value
    }
}

fn owned(fd: i32) -> OwnedFd {
    assert!(fd >= 0, "{}", io::Error::from_raw_os_error(-fd));
    // SAFETY: the descriptor is new and nobody else's.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// An XDP program of instructions: code, registers to and from, offset, number.
pub(crate) fn program(instructions: &[(u8, u8, u8, i16, i32)]) -> OwnedFd {
    let instructions: Vec<sys::bpf_insn> = instructions
        .iter()
        .map(|(code, to, from, off, number)| {
            let mut instruction =
                sys::bpf_insn { code: *code, imm: *number, off: *off, ..Default::default() };
            instruction.set_dst_reg(*to);
            instruction.set_src_reg(*from);
            instruction
        })
        .collect();
    // SAFETY: the count of instructions is right, and there are no options.
    owned(unsafe {
        sys::bpf_prog_load(
            sys::BPF_PROG_TYPE_XDP,
            c"sink".as_ptr(),
            c"GPL".as_ptr(),
            instructions.as_ptr(),
            instructions.len() as _,
            std::ptr::null_mut(),
        )
    })
}
