//! The trial of a wire between two hosts, of each architecture whose QEMU is there: it is believed only if
//! every frame came at its time.

#![allow(clippy::unwrap_used)]

use netplumb_instruments::wire;
use netplumb_lab::vm::trial::{self, WirePlugin};
use netplumb_model::arch::Arch;
use netplumb_model::hosts::{Side, Wire};

/// Check that a wire as requested passes, but not one of another rate, one that loses every frame, or a file that is
/// not a plugin.
#[test]
fn vm_trial() {
    let wrong_rate = |wire: Wire, side: Side, nic: &str, fds: [i32; 3]| {
        let rate_bps = wire.rate_bps / 2;
        wire::trial_args(Wire { rate_bps, ..wire }, side, nic, fds)
    };
    let no_frames = |wire: Wire, side: Side, nic: &str, fds: [i32; 3]| {
        let loss_ppb = 1_000_000_000;
        wire::trial_args(Wire { loss_ppb, ..wire }, side, nic, fds)
    };
    for arch in Arch::ALL {
        let Ok(qemu) = trial::find_qemu(*arch) else {
            netplumb_testkit::skip(&format!("no QEMU for guests of {arch}"));
            continue;
        };
        let plugin = |bytes, args| WirePlugin { bytes, args };
        let other = netplumb_testkit::other_qemu(arch.qemu());
        for qemu in std::iter::once(qemu).chain(other) {
            let good = trial::probe_wire(*arch, &qemu, &plugin(wire::PLUGIN, wire::trial_args));
            assert_eq!(good, Ok(()), "{}", qemu.display());
            for (bad, what) in [
                (plugin(wire::PLUGIN, wrong_rate), "half the rate"),
                (plugin(wire::PLUGIN, no_frames), "no frame"),
                (plugin(&b"no plugin"[..], wire::trial_args), "no plugin"),
            ] {
                let tried = trial::probe_wire(*arch, &qemu, &bad);
                assert!(tried.is_err(), "{}: {what}", qemu.display());
            }
        }
    }
}
