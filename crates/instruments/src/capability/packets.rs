//! XDP, netfilter and generated frames, tried on a veth pair in a namespace of their own.

use std::io;
use std::os::fd::OwnedFd;
use std::thread::Builder;
use std::time::{Duration, Instant};

use libbpf_sys as sys;
use netplumb_model::capability::{Availability, Capability, Group};
use netplumb_sys::netns;

use super::context::{Cap, Context};
use super::explain::{self, Need};
use super::program::{self, Counter, Failure, Kind};
use super::sandbox::{self, FrameSocket, Pair};
use super::trial;

const XDP_DROP: i32 = 1;
const XDP_TX: i32 = 3;
const NF_ACCEPT: i32 = 1;
const NFPROTO_IPV4: u32 = 2;

/// How many frames a trial sends.
const FRAMES: u32 = 64;

/// How long they may take to come out. It takes them a millisecond; on a machine with few
/// processors, all busy, some hundred.
const DELIVERY: Duration = Duration::from_secs(1);
/// How long to wait before they are sent again.
const RETRY: Duration = Duration::from_millis(100);

const NAMESPACE: Need =
    Need { caps: &[Cap::SysAdmin, Cap::NetAdmin], config: &["CONFIG_NET_NS"], since: None };

const VETH: Need = Need { caps: &[Cap::NetAdmin], config: &["CONFIG_VETH"], since: None };

const XDP: Need = Need {
    caps: &[Cap::SysAdmin, Cap::NetAdmin, Cap::NetRaw, Cap::Bpf],
    config: &["CONFIG_BPF_SYSCALL", "CONFIG_VETH"],
    since: Some((5, 9)),
};

const NETFILTER: Need = Need {
    caps: &[Cap::SysAdmin, Cap::NetAdmin, Cap::Bpf],
    config: &["CONFIG_NETFILTER_BPF_LINK"],
    since: Some((6, 4)),
};

const LIVE: Need = Need {
    caps: &[Cap::SysAdmin, Cap::NetAdmin, Cap::Bpf],
    config: &["CONFIG_BPF_SYSCALL", "CONFIG_VETH"],
    since: Some((5, 18)),
};

/// A frame of the experimental EtherType, so that no protocol takes it for its own.
fn frame() -> [u8; 64] {
    let mut frame = [0; 64];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// Try every one of them, on a thread whose namespace goes with it.
pub(super) fn try_all(context: &Context) -> Vec<Capability> {
    std::thread::scope(|scope| {
        let thread = Builder::new().spawn_scoped(scope, || once_in(context, netns::enter_new()));
        match thread {
            Ok(thread) => thread.join().unwrap_or_default(),
            Err(refused) => once_in(context, Err(refused)),
        }
    })
}

/// Try them in the namespace that was `entered`, or report for each why it can't be tried.
fn once_in(context: &Context, entered: io::Result<()>) -> Vec<Capability> {
    let group = Group::Packets;
    let mut found = vec![trial("netns", group, "a new network namespace", || match &entered {
        Ok(()) => Availability::yes("created and removed"),
        Err(e) => no_namespace(context, &Failure::io("creating a network namespace", e)),
    })];

    let mut pair = None;
    let what = "a veth pair in it";
    found.push(trial("veth", group, what, || match &entered {
        // Without a namespace of our own a pair would be made in the machine's: never.
        Err(e) => explain::no(context, &NAMESPACE, &Failure::io("creating a network namespace", e)),
        Ok(()) => match sandbox::make_pair() {
            Ok(made) => {
                pair = Some(made);
                Availability::yes("both ends up")
            }
            Err(e) => explain::no(context, &VETH, &Failure::io("creating a veth pair", &e)),
        },
    }));

    type Try = fn(Pair) -> Result<Availability, Failure>;
    let trials: [(&str, &str, &Need, Try); 4] = [
        ("xdp-native", "XDP in the driver", &XDP, native),
        ("xdp-skb", "XDP in the stack (skb mode)", &XDP, skb),
        ("netfilter-bpf", "a BPF program on a netfilter hook", &NETFILTER, netfilter),
        ("live-frames", "frames made by XDP test runs", &LIVE, live),
    ];
    for (id, what, need, attempt) in trials {
        found.push(trial(id, group, what, || match pair {
            Some(pair) => {
                attempt(pair).unwrap_or_else(|failure| explain::no(context, need, &failure))
            }
            None => {
                let errno = entered.as_ref().err().and_then(std::io::Error::raw_os_error);
                explain::no(
                    context,
                    need,
                    &Failure::new("creating a veth pair", errno.unwrap_or(libc::ENODEV)),
                )
            }
        }));
    }
    found
}

fn no_namespace(context: &Context, failure: &Failure) -> Availability {
    let refused = explain::no(context, &NAMESPACE, failure);
    match refused {
        Availability::No { reason, remedy } if netns::user_namespaces_work() => Availability::no(
            format!("{reason}; a user namespace is available, but BPF can't be used inside one"),
            remedy,
        ),
        other => other,
    }
}

fn xdp_link(program: &OwnedFd, device: u32, flags: u32) -> Result<OwnedFd, Failure> {
    program::link(program, device as i32, sys::BPF_XDP, &program::link_opts(flags))
}

fn load_xdp(insns: &[sys::bpf_insn]) -> Result<OwnedFd, Failure> {
    let kind = Kind { program: sys::BPF_PROG_TYPE_XDP, attach: sys::BPF_XDP, ..Kind::default() };
    program::load(kind, insns)
}

fn native(pair: Pair) -> Result<Availability, Failure> {
    xdp(pair, sys::XDP_FLAGS_DRV_MODE)
}

fn skb(pair: Pair) -> Result<Availability, Failure> {
    xdp(pair, sys::XDP_FLAGS_SKB_MODE)
}

/// Attach a counting program to one end, and send frames into the other.
fn xdp(pair: Pair, mode: u32) -> Result<Availability, Failure> {
    let counter = Counter::new()?;
    let program = load_xdp(&program::counting(&counter, XDP_DROP))?;
    let _link = xdp_link(&program, pair.right, mode)?;
    let sending = |e: &std::io::Error| Failure::io("sending a frame", e);
    let socket = FrameSocket::open().map_err(|e| sending(&e))?;
    // A link that has just come up may lose what is sent in its first milliseconds, on
    // a busy machine above all, with or without XDP. Frames are sent again until as
    // many came through as were sent once.
    let start = Instant::now();
    while counter.read() < u64::from(FRAMES) && start.elapsed() < DELIVERY {
        for _ in 0..FRAMES {
            socket.send(pair.left, &frame()).map_err(|e| sending(&e))?;
        }
        let sent = Instant::now();
        while counter.read() < u64::from(FRAMES) && sent.elapsed() < RETRY {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(delivered(&counter))
}

/// Send frames by test runs. Both ends need a program of their own: on veth that is what switches
/// NAPI on, without which frames sent this way vanish with no error.
fn live(pair: Pair) -> Result<Availability, Failure> {
    let counter = Counter::new()?;
    let sink = load_xdp(&program::counting(&counter, XDP_DROP))?;
    let source = load_xdp(&program::returning(XDP_TX))?;
    let _sink = xdp_link(&sink, pair.right, sys::XDP_FLAGS_DRV_MODE)?;
    let _source = xdp_link(&source, pair.left, sys::XDP_FLAGS_DRV_MODE)?;
    program::run_live(&source, &frame(), FRAMES, pair.left)?;
    Ok(delivered(&counter))
}

/// Wait for the frames at the other end, and report how many arrived. The kernel's own
/// chatter (IPv6 announcing itself on a new link) may add a few.
fn delivered(counter: &Counter) -> Availability {
    let sent = u64::from(FRAMES);
    let start = Instant::now();
    while counter.read() < sent && start.elapsed() < DELIVERY {
        std::thread::sleep(Duration::from_millis(1));
    }
    match counter.read().min(sent) {
        0 => Availability::no(
            format!("the program attached, but none of {sent} frames reached it"),
            explain::OTHER_KERNEL,
        ),
        all if all == sent => Availability::yes(format!("the program saw {all} of {sent} frames")),
        some => Availability::partly(
            format!("the program saw {some} of {sent} frames"),
            "the others were lost on the way",
            explain::OTHER_KERNEL,
        ),
    }
}

fn netfilter(_: Pair) -> Result<Availability, Failure> {
    let kind = Kind {
        program: sys::BPF_PROG_TYPE_NETFILTER,
        attach: sys::BPF_NETFILTER,
        ..Kind::default()
    };
    let program = program::load(kind, &program::returning(NF_ACCEPT))?;
    let mut opts = program::link_opts(0);
    // The whole union first: whatever is not set here must be zero.
    opts.__bindgen_anon_1.netfilter = sys::bpf_link_create_opts__bindgen_ty_1__bindgen_ty_5 {
        pf: NFPROTO_IPV4,
        hooknum: 0,
        priority: -128,
        flags: 0,
    };
    program::link(&program, 0, sys::BPF_NETFILTER, &opts)?;
    Ok(Availability::yes("attached to prerouting"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the frame is one that no protocol of the kernel takes.
    #[test]
    fn the_frame_belongs_to_nobody() {
        let frame = frame();
        assert_eq!(u16::from_be_bytes([frame[12], frame[13]]), 0x88b5);
        assert_eq!(frame[6] & 1, 0, "the sender's address must not be multicast");
    }
}
