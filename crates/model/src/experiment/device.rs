//! A sender other than a socket: the receiver's emulated device, which hands its driver frames as if from its cable.

use serde::{Deserialize, Serialize};

use crate::class::{Family, Link, Proto, words};
use crate::recording::Arm;

words! {
    /// The sender of an arm's packets.
    Sender, "sender",
    /// A socket, at the other end of the link.
    Socket = "socket",
    /// The device that receives: it hands frames to its driver.
    Device = "device",
}

words! {
    /// A defect of the frames that a device hands to its driver.
    RxFault, "fault",
    /// Nothing: the driver passes them on.
    None = "none",
    /// A length that no frame has: the driver refuses the transfer.
    BadSize = "bad-size",
    /// The bits of a wrong check sequence in the status that the device reports with each frame.
    ErrorBit = "error-bit",
}

/// Most frames in a transfer: a LAN9512 holds some 20 KiB of them.
pub(super) const MAX_PER_TRANSFER: u32 = 16;

/// Check that an arm whose device does not send lacks its settings.
pub(super) fn check_without(arm: &Arm) -> Result<(), (&'static str, String)> {
    let is_fault = arm.read("rx_fault").unwrap_or(RxFault::None) != RxFault::None;
    match is_fault {
        true => Err(("rx_fault", "rx_fault needs sender = \"device\"".into())),
        false => Ok(()),
    }
}

/// Payload of a datagram that fills a frame: 1,500 bytes less 20 of IPv4 and 8 of UDP; the header of
/// IPv6 is 20 bytes longer.
const MAX_PAYLOAD_BYTES: u32 = 1_472;

/// Frames that a device hands to its driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FromDevice {
    /// The defect of the frames.
    pub fault: RxFault,
    /// How many there are in one USB transfer.
    pub per_transfer: u32,
}

impl FromDevice {
    /// The frames of an arm, if its device sends.
    pub fn from_arm(arm: &Arm) -> Option<FromDevice> {
        let sender = arm.read("sender").unwrap_or(Sender::Socket);
        (sender == Sender::Device).then(|| FromDevice {
            fault: arm.read("rx_fault").unwrap_or(RxFault::None),
            per_transfer: arm.read("per_transfer").unwrap_or(1),
        })
    }

    /// Check that the arm has such a device.
    pub(super) fn check(self, arm: &Arm) -> Result<(), (&'static str, String)> {
        if !arm.link.declared().emulated {
            let links = Link::listed(|link| link.declared().emulated);
            let why = format!(
                "sender = \"device\" is not supported by link {}, only by {links}",
                arm.link
            );
            return Err(("sender", why));
        }
        if arm.proto != Proto::Udp {
            let why = format!("sender = \"device\" sends udp only, not {}", arm.proto);
            return Err(("sender", why));
        }
        let most = MAX_PAYLOAD_BYTES - if arm.family == Family::V6 { 20 } else { 0 };
        if arm.size_bytes > most {
            let why = format!(
                "invalid size_bytes `{}`; expected at most {most} over {} with sender = \"device\": \
                 one frame",
                arm.size_bytes, arm.family
            );
            return Err(("size_bytes", why));
        }
        if arm.forward || arm.is_on("bridge") {
            let why = "sender = \"device\" can't be used with forward or bridge";
            return Err(("sender", why.into()));
        }
        if self.fault == RxFault::ErrorBit && arm.link == Link::CdcNcm {
            let why = "rx_fault = \"error-bit\" is not supported by link cdc-ncm, whose transfers \
                       have no status for each frame; use bad-size, or link smsc95xx";
            return Err(("rx_fault", why.into()));
        }
        if self.fault == RxFault::BadSize && self.per_transfer > 1 {
            let why = "rx_fault = \"bad-size\" and per_transfer can't be used together: the driver \
                       refuses a whole transfer";
            return Err(("per_transfer", why.into()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::experiment::Experiment;

    /// Check that what no device can send is refused with the reason, and the rest is taken.
    #[test]
    fn what_devices_send() {
        let parse = |knobs: &str| {
            let text = format!("name = \"x\"\n[knobs]\n{knobs}\n");
            Experiment::parse(&text).map(drop).map_err(|e| e.to_string())
        };
        let device = "sender = \"device\"\nlink = \"smsc95xx\"\n";
        for more in [
            "",
            "rx_fault = \"bad-size\"",
            "rx_fault = \"error-bit\"\nper_transfer = 4",
            "family = \"ipv6\"\nsize_bytes = 1452",
            "size_bytes = 1472",
        ] {
            parse(&format!("{device}{more}")).unwrap();
        }
        for more in ["per_transfer = 16", "rx_fault = \"bad-size\""] {
            parse(&format!("sender = \"device\"\nlink = \"cdc-ncm\"\n{more}")).unwrap();
        }
        for (knobs, why) in [
            ("sender = \"device\"", "not supported by link veth, only by smsc95xx and cdc-ncm"),
            ("rx_fault = \"bad-size\"", "rx_fault needs sender"),
            (
                "sender = \"device\"\nlink = \"cdc-ncm\"\nrx_fault = \"error-bit\"",
                "\"error-bit\" is not supported by link cdc-ncm",
            ),
            (&format!("{device}proto = \"tcp\""), "sends udp only, not tcp"),
            (&format!("{device}forward = \"on\""), "forward or bridge"),
            (&format!("{device}family = \"ipv6\"\nsize_bytes = 1453"), "at most 1452 over ipv6"),
            (&format!("{device}per_transfer = 17"), "expected 1 to 16"),
            (
                &format!("{device}rx_fault = \"bad-size\"\nper_transfer = 2"),
                "refuses a whole transfer",
            ),
        ] {
            let error = parse(knobs).unwrap_err();
            assert!(error.contains(why), "{knobs}: {error}");
        }
        let timed = format!("name = \"x\"\ninstruments = [\"functions\"]\n[knobs]\n{device}");
        let error = Experiment::parse(&timed).unwrap_err().to_string();
        assert!(error.contains("measured by `exact` and `samples`"), "{error}");
    }
}
