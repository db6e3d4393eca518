//! For tests: a veth pair in a namespace that ends with its thread.

use std::os::fd::OwnedFd;

use libbpf_sys as sys;
use netplumb_sys::netns::{self, Namespace};

use crate::capability::program::{self, Kind};
use crate::capability::sandbox::{self, FrameSocket, Pair};

/// A frame of the experimental EtherType: no protocol takes it for its own.
pub(super) const FRAME: [u8; 64] = {
    let mut frame = [0; 64];
    let mut at = 0;
    while at < 6 {
        frame[at] = 0xff;
        at += 1;
    }
    frame[6] = 2;
    frame[12] = 0x88;
    frame[13] = 0xb5;
    frame
};

/// A namespace, and the two devices in it: `plumb0` and `plumb1`.
pub(super) struct Sandbox {
    pub(super) namespace: Namespace,
    pub(super) inode: u32,
    pub(super) pair: Pair,
    pub(super) socket: FrameSocket,
}

impl Sandbox {
    /// Send some from `plumb0`.
    pub(super) fn send(&self, frames: u32) {
        for _ in 0..frames {
            self.socket.send(self.pair.left, &FRAME).unwrap();
        }
    }
}

/// Run a test in a sandbox, on a thread of its own; report if none can be made.
pub(super) fn with(test: impl FnOnce(Sandbox) + Send) {
    let run = move || {
        if let Err(error) = netns::enter_new() {
            netplumb_testkit::skip(&format!("a namespace needs root ({error})"));
            return;
        }
        // The kernel's own words on a new link would be counted.
        for name in ["all", "default"] {
            let file = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
            let _ = std::fs::write(file, "1");
        }
        let pair = sandbox::make_pair().unwrap();
        let namespace = Namespace::current().unwrap();
        test(Sandbox {
            inode: namespace.inode().unwrap(),
            namespace,
            pair,
            socket: FrameSocket::open().unwrap(),
        });
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap());
}

/// A program of XDP.
pub(super) fn xdp(instructions: &[sys::bpf_insn]) -> OwnedFd {
    let kind = Kind { program: sys::BPF_PROG_TYPE_XDP, attach: sys::BPF_XDP, ..Kind::default() };
    program::load(kind, instructions).unwrap()
}

/// Have one in a device's driver, for as long as what is returned lives.
pub(super) fn attached(program: &OwnedFd, device: u32) -> OwnedFd {
    let opts = program::link_opts(sys::XDP_FLAGS_DRV_MODE);
    program::link(program, device as i32, sys::BPF_XDP, &opts).unwrap()
}

/// Wait until something is so, up to some seconds.
pub(super) fn wait(so: impl Fn() -> bool) -> bool {
    let began = std::time::Instant::now();
    while began.elapsed() < std::time::Duration::from_secs(5) {
        if so() {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    so()
}
