//! For tests: the kernel's counters of frames, compared with the number sent.

use std::os::fd::AsFd;

use netplumb_sys::proc::counters::Counters;

use super::sandbox::{attached, wait, with, xdp};
use crate::capability::program::returning;

/// Check that frames are counted by both devices and by the driver, to the packet; and
/// that a device which is not there is named.
#[test]
fn as_root_frames_are_counted() {
    const FRAMES: u32 = 200;
    with(|sandbox| {
        let _dropping = attached(&xdp(&returning(1)), sandbox.pair.right);
        let read = || Counters::read_all(sandbox.namespace.as_fd(), &["plumb0", "plumb1"]).unwrap();
        let before = read();
        sandbox.send(FRAMES);
        let grown = || read().since(&before);
        wait(|| grown().get("plumb1 rx_packets") == u64::from(FRAMES));
        let grown = grown();
        let sum = |part: &str| -> u64 {
            let named = grown.all().iter().filter(|(name, _)| name.contains(part));
            named.map(|(_, n)| n).sum()
        };
        let frames = u64::from(FRAMES);
        assert_eq!(sum("plumb0 tx_packets"), frames, "{grown:?}");
        assert_eq!(sum("plumb1 rx_packets"), frames, "{grown:?}");
        assert_eq!(sum("_xdp_drops"), frames, "{grown:?}");
        let error = Counters::read_all(sandbox.namespace.as_fd(), &["plumb9"]).unwrap_err();
        assert!(error.to_string().contains("plumb9"), "{error}");
    });
}
