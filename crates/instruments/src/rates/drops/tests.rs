use std::os::fd::OwnedFd;

use super::super::sandbox::{FRAME, Sandbox, attached, wait, with, xdp};
use super::*;
use crate::capability::program::{insn, returning, run_live};

/// Fewer than fit into one run.
const FRAMES: u32 = 200;
const XDP_ABORTED: i32 = 0;
const XDP_DROP: i32 = 1;
/// `bpf_redirect` of include/uapi/linux/bpf.h.
const REDIRECT: i32 = 23;

/// Check that a key is described by what it stands for.
#[test]
fn causes() {
    let reasons = Reasons::default();
    assert_eq!(cause(1, 7, &reasons), "kfree_skb reason 7");
    assert_eq!(cause(2, 0, &reasons), "xdp_exception XDP_ABORTED");
    assert!(cause(2, 77, &reasons).contains("action 77"));
    assert_eq!(cause(3, 0, &reasons), "xdp_bulk_tx");
    assert_eq!(
        cause(4, libc::ENXIO as u32, &reasons),
        "xdp_devmap_xmit: the other end does not accept XDP frames (ENXIO)"
    );
    assert!(cause(5, 999, &reasons).ends_with("(errno 999)"));
    assert_eq!(cause(7, 0, &reasons), "xdp_cpumap_kthread");
    assert_eq!(cause(0, 0, &reasons), "event 0");
    assert_eq!(cause(99, 0, &reasons), "event 99");
}

/// Check how a place is described, with and without a name.
#[test]
fn places() {
    let mut place = Place {
        namespace_inode: 1,
        interface: 3,
        device: "rx0".into(),
        cause: "xdp_exception XDP_ABORTED".into(),
    };
    assert_eq!(place.to_string(), "at rx0: xdp_exception XDP_ABORTED");
    place.device.clear();
    assert_eq!(place.to_string(), "at device 3: xdp_exception XDP_ABORTED");
    place.interface = 0;
    assert_eq!(place.to_string(), "xdp_exception XDP_ABORTED");
}

/// Redirects to a device.
fn redirecting(device: u32) -> OwnedFd {
    xdp(&[
        insn(0xb7, 1, 0, 0, device as i32),
        insn(0xb7, 2, 0, 0, 0),
        insn(0x85, 0, 0, 0, REDIRECT),
        insn(0x95, 0, 0, 0, 0),
    ])
}

/// Check that exactly FRAMES frames are reported for this device and cause, in this
/// namespace, and none in another one.
fn all_went(drops: &Drops, sandbox: &Sandbox, device: &str, cause: &str) {
    let frames = u64::from(FRAMES);
    let read = || -> Vec<_> {
        let went = drops.read(&[sandbox.inode]).unwrap().into_iter();
        let here = went.filter(|(place, _)| place.cause.starts_with(cause));
        here.collect()
    };
    wait(|| read().iter().map(|(_, count)| count).sum::<u64>() >= frames);
    let went = read();
    let all = drops.read(&[]).unwrap();
    assert_eq!(went.len(), 1, "{all:?}");
    let (place, count) = &went[0];
    assert_eq!((place.device.as_str(), *count), (device, frames), "{all:?}");
    assert_eq!(place.namespace_inode, sandbox.inode);
    assert!(place.interface > 0);
    let other = drops.read(&[1]).unwrap();
    assert!(other.keys().all(|p| p.namespace_inode == 0), "{other:?}");
}

/// Check that packets that no protocol takes are reported with the stack's reason.
#[test]
fn as_root_nobody_takes_them() {
    with(|sandbox| {
        let drops = Drops::attach().unwrap();
        assert!(drops.without().is_empty(), "{:?}", drops.without());
        sandbox.send(FRAMES);
        all_went(&drops, &sandbox, "plumb1", "kfree_skb UNHANDLED_PROTO");
    });
}

/// Check that packets that an XDP program aborts are reported as aborted; and for drops,
/// if there was an skb, where the stack freed it.
#[test]
fn as_root_a_program_aborts() {
    with(|sandbox| {
        let drops = Drops::attach().unwrap();
        {
            let _dropping = attached(&xdp(&returning(XDP_DROP)), sandbox.pair.right);
            sandbox.send(FRAMES);
            all_went(&drops, &sandbox, "plumb1", "kfree_skb NOT_SPECIFIED in veth_");
        }
        let _aborting = attached(&xdp(&returning(XDP_ABORTED)), sandbox.pair.right);
        sandbox.send(FRAMES);
        all_went(&drops, &sandbox, "plumb1", "xdp_exception XDP_ABORTED");
    });
}

/// Check that frames are reported which vanish since the other end of a veth, having no NAPI, takes none from XDP: a
/// kernel that knows this reports it at the redirect (66c0e13ad236 "drivers: net: turn on XDP features", 6.3), an older
/// one at the device.
#[test]
fn as_root_the_other_end_takes_none() {
    with(|sandbox| {
        let drops = Drops::attach().unwrap();
        let source = redirecting(sandbox.pair.left);
        run_live(&source, &FRAME, FRAMES, sandbox.pair.right).unwrap();
        let (device, cause) = match drops.read(&[sandbox.inode]).unwrap() {
            went if went.keys().any(|p| p.cause.contains("xmit")) => {
                ("plumb0", "xdp_devmap_xmit: the other end does not accept XDP frames (ENXIO)")
            }
            _ => ("plumb1", "xdp_redirect_err: no XDP transmit on this device"),
        };
        all_went(&drops, &sandbox, device, cause);
    });
}

/// Check that frames are reported which a device took and could not hand on, since its
/// other end is down.
#[test]
fn as_root_the_other_end_is_down() {
    with(|sandbox| {
        let _there = attached(&xdp(&returning(XDP_DROP)), sandbox.pair.right);
        let down =
            std::process::Command::new("ip").args(["link", "set", "plumb1", "down"]).status();
        assert!(down.unwrap().success());
        let drops = Drops::attach().unwrap();
        let source = redirecting(sandbox.pair.left);
        run_live(&source, &FRAME, FRAMES, sandbox.pair.right).unwrap();
        all_went(
            &drops,
            &sandbox,
            "plumb0",
            "xdp_devmap_xmit: the other end does not accept XDP frames (ENXIO)",
        );
    });
}

/// Check that a redirect to a missing device is reported, at the device that the frames
/// came from.
#[test]
fn as_root_no_such_target() {
    with(|sandbox| {
        let drops = Drops::attach().unwrap();
        let source = redirecting(9999);
        run_live(&source, &FRAME, FRAMES, sandbox.pair.right).unwrap();
        all_went(&drops, &sandbox, "plumb1", "xdp_redirect_err: no such device (EINVAL)");
    });
}
