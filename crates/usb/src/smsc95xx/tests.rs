use super::*;
use crate::frame::sum;
use crate::testing::{
    ADDRL, HW_CFG, MAC_CR, Pipe, Seeded, SmscDriver, fifo, frame, mutated, transmitted,
};

const MAC: [u8; 6] = [2, 0x4e, 0x50, 0, 0, 1];

fn bound(align: usize, rx_checksum: bool) -> Smsc95xx {
    let mut device = Smsc95xx::new(MAC);
    device.set_carrier(true);
    let mut driver = SmscDriver::new(&mut device);
    driver.align = align;
    driver.rx_checksum = rx_checksum;
    driver.bind();
    device
}

/// The transfers that a driver gets of frames, in a buffer of a size.
fn received(device: &mut Smsc95xx, fifo: &mut Fifo, room: usize) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| device.receive(fifo, room)).collect()
}

/// Check that the driver's steps find the address, the PHY and the link.
#[test]
fn binds_as_the_driver_does() {
    let mut device = Smsc95xx::new(MAC);
    device.set_carrier(true);
    let mut driver = SmscDriver::new(&mut device);
    driver.bind();
    assert_eq!(driver.mac, MAC);
    assert_eq!(driver.link(), Some((100, true)));
    assert_eq!(driver.read(ADDRL), 0x0050_4e02);
    assert!(device.sends());
}

/// Check that the PHY answers at its own address alone.
#[test]
fn the_phy_has_one_address() {
    let mut device = bound(0, true);
    let mut driver = SmscDriver::new(&mut device);
    assert_eq!(driver.mdio_read(1, 2), 7);
    for address in [0, 2, 31] {
        assert_eq!(driver.mdio_read(address, 2), 0xffff);
    }
    // Numbers, abilities and the partner's word are not written.
    driver.mdio_read(1, 1); // its bit of the link latches
    for register in [1, 2, 3, 5, 6] {
        let before = driver.mdio_read(1, register);
        driver.mdio_write(1, register, 0x1234);
        assert_eq!(driver.mdio_read(1, register), before, "{register}");
    }
}

/// Check that a cable pulled out is an interrupt, once, and clears the link until it is in.
#[test]
fn a_pulled_cable_interrupts() {
    let mut device = bound(0, true);
    let status = Some(0x8000u32.to_le_bytes().to_vec());
    assert_eq!(device.interrupt(), status, "negotiation is complete");
    assert_eq!(SmscDriver::new(&mut device).mdio_read(1, 29), 0x40);
    assert_eq!(device.interrupt(), None);

    device.set_carrier(false);
    assert_eq!(device.interrupt(), status);
    assert_eq!(device.interrupt(), None);
    let mut driver = SmscDriver::new(&mut device);
    assert_eq!(driver.read(0x08) & 0x8000, 0x8000);
    assert_eq!(driver.mdio_read(1, 29), 0x10, "link down");
    assert_eq!(driver.read(0x08) & 0x8000, 0);
    assert_eq!(driver.link(), None);
    assert!(!device.sends());

    device.set_carrier(true);
    assert_eq!(device.interrupt(), status);
    let mut driver = SmscDriver::new(&mut device);
    assert_eq!(driver.mdio_read(1, 29), 0xc0, "negotiated, energy on");
    // The link's bit shows first that it was down, then that it is up.
    assert_eq!(driver.mdio_read(1, 1) & 4, 0);
    assert_eq!(driver.mdio_read(1, 1) & 4, 4);
    assert_eq!(driver.link(), Some((100, true)));
}

/// Check that a PHY that is powered down has no link, as after `ip link set down`.
#[test]
fn a_phy_without_power_has_no_link() {
    let mut device = bound(0, true);
    let mut driver = SmscDriver::new(&mut device);
    driver.mdio_write(1, 0, 0x3900);
    assert_eq!(driver.link(), None);
    driver.mdio_write(1, 0, 0x3100);
    assert_eq!(driver.link(), Some((100, true)));
}

/// Check that the EEPROM keeps what is written, once writing is enabled.
#[test]
fn the_eeprom_is_written() {
    let mut device = bound(0, true);
    let mut driver = SmscDriver::new(&mut device);
    assert_eq!(driver.read_eeprom(0, 8), [0xa5, 2, 0x4e, 0x50, 0, 0, 1, 0xff]);
    driver.write(0x34, 0);
    driver.write(0x30, 3 << 28 | 1 << 31 | 1);
    assert_eq!(driver.read_eeprom(1, 1), [2], "writing is not enabled");
    driver.write_eeprom(0x1fe, &[1, 2]);
    assert_eq!(driver.read_eeprom(0x1fd, 3), [0xff, 1, 2]);
}

/// Check that requests which the chip doesn't have are refused, and that all registers of
/// `ethtool -d` are read.
#[test]
fn refuses_other_requests() {
    let mut device = bound(0, true);
    let read = Setup { request_type: 0xc0, request: 0xa1, value: 0, index: 0, length: 4 };
    for index in (0..=0x130).step_by(4) {
        assert_eq!(device.control(&Setup { index, ..read }, &[]).unwrap().len(), 4);
    }
    let invalid = [
        Setup { index: 2, ..read },
        Setup { index: 0x134, ..read },
        Setup { index: u16::MAX, ..read },
        Setup { request: 0xa2, ..read },
        Setup { request: 0xa0, ..read },
        Setup { request_type: 0xa1, ..read },
    ];
    for setup in invalid {
        assert_eq!(device.control(&setup, &[]), Err(Stall), "{setup:?}");
    }
    let write = Setup { request_type: 0x40, request: 0xa0, ..read };
    for bytes in [0, 3, 5] {
        let setup = Setup { length: bytes, ..write };
        let data = vec![0; usize::from(bytes)];
        assert_eq!(Pipe::request(&mut device, setup, &data), Err(Stall));
    }
    // Less than was announced.
    assert_eq!(Pipe::request(&mut device, write, &[0; 3]), Err(Stall));
}

/// Check that the descriptors have the length in them, and the driver's endpoints.
#[test]
fn descriptors_are_whole() {
    let device = Smsc95xx::new(MAC);
    let configuration = &device.descriptors().configuration;
    assert_eq!(usize::from(configuration[2]), configuration.len());
    let mut rest = &configuration[..];
    let mut endpoints = Vec::new();
    while let Some(&length) = rest.first() {
        let (descriptor, after) = rest.split_at(usize::from(length));
        if descriptor[1] == 5 {
            endpoints.push(descriptor[2]);
        }
        rest = after;
    }
    assert_eq!(endpoints, [0x81, 0x02, 0x83]);
}

/// Check that the hash is the driver's: its comment has the first address and its bit.
#[test]
fn hashes_as_the_driver() {
    assert_eq!(filter::hash(&[1, 0, 0x5e, 0, 0, 1]), 31);
}

/// Check that frames for this address, for all, and for the groups of the table are taken,
/// such as IPv6's, and no others.
#[test]
fn filters_by_address() {
    let mut device = bound(0, true);
    let all_nodes = [0x33, 0x33, 0, 0, 0, 1];
    let solicited = [0x33, 0x33, 0xff, 0, 0, 1];
    let takes = |device: &Smsc95xx, to| device.accepts(&Frame::good(frame(to, 60, 1)));
    assert_eq!(takes(&device, MAC), Ok(()));
    assert_eq!(takes(&device, [0xff; 6]), Ok(()));
    assert_eq!(takes(&device, [2, 0, 0, 0, 0, 9]), Err(Refusal::Filtered));
    assert_eq!(takes(&device, all_nodes), Err(Refusal::Filtered));

    let mut driver = SmscDriver::new(&mut device);
    driver.set_multicast(&[filter::hash(&all_nodes), filter::hash(&solicited)]);
    let receiving = driver.read(MAC_CR) | 4;
    driver.write(MAC_CR, receiving);
    assert_eq!(takes(&device, all_nodes), Ok(()));
    assert_eq!(takes(&device, solicited), Ok(()));
    assert_eq!(takes(&device, [1, 0, 0x5e, 0, 0, 1]), Err(Refusal::Filtered));

    let mut driver = SmscDriver::new(&mut device);
    driver.write(MAC_CR, 0x0004_0004);
    assert_eq!(takes(&device, [2, 0, 0, 0, 0, 9]), Ok(()), "promiscuous");
    SmscDriver::new(&mut device).write(MAC_CR, 0);
    assert_eq!(takes(&device, MAC), Err(Refusal::NotReceiving));
    device.set_carrier(false);
    assert_eq!(takes(&device, MAC), Err(Refusal::LinkDown));
}

/// Check that frames come out as the driver sent them, padded to the shortest.
#[test]
fn transmits_frames() {
    let mut device = bound(0, true);
    for bytes in [14, 42, 59, 60, 61, 1514, 1518] {
        let sent = frame([0xff; 6], bytes, 3);
        let transfer = SmscDriver::tx_fixup(&sent, None);
        let mut expected = sent;
        expected.resize(bytes.max(60), 0);
        assert_eq!(transmitted(&mut device, &transfer), [expected]);
    }
}

/// Check that a transfer may have several frames, each from a multiple of four on.
#[test]
fn transmits_several_frames() {
    let mut device = bound(0, true);
    let frames: Vec<Vec<u8>> = (60..65).map(|bytes| frame(MAC, bytes, 1)).collect();
    let mut transfer: Vec<u8> = Vec::new();
    for frame in &frames {
        transfer.resize(transfer.len().next_multiple_of(4), 0);
        transfer.extend(SmscDriver::tx_fixup(frame, None));
    }
    assert_eq!(transmitted(&mut device, &transfer), frames);
}

/// Check that a frame may begin behind its command words, and come in segments.
#[test]
fn transmits_segments() {
    let mut device = bound(0, true);
    let sent = frame(MAC, 64, 1);
    let mut transfer = Vec::new();
    for (flags, offset, part) in [(0x2000u32, 3u32, &sent[..21]), (0x1000, 0, &sent[21..])] {
        transfer.resize(transfer.len().next_multiple_of(4), 0);
        let a = flags | offset << 16 | part.len() as u32;
        transfer.extend_from_slice(&a.to_le_bytes());
        transfer.extend_from_slice(&64u32.to_le_bytes());
        transfer.resize(transfer.len() + offset as usize, 0xee);
        transfer.extend_from_slice(part);
    }
    assert_eq!(transmitted(&mut device, &transfer), [sent]);
}

/// Check that the checksum of a preamble is what a receiver finds right.
#[test]
fn transmits_checksums() {
    let mut device = bound(0, true);
    for bytes in [64, 65, 1514] {
        let mut sent = frame(MAC, bytes, 5);
        sent[50..52].copy_from_slice(&[0x12, 0x34]); // the sum of the pseudo header
        let transfer = SmscDriver::tx_fixup(&sent, Some((34, 50)));
        let [got] = &transmitted(&mut device, &transfer)[..] else {
            panic!("one frame");
        };
        assert_eq!((&got[..50], &got[52..]), (&sent[..50], &sent[52..]));
        // What was in the field is part of the sum, so the frame adds up to it.
        let check = u32::from(sum(&got[34..])) + 0x1234;
        assert_eq!((check & 0xffff) + (check >> 16), 0xffff, "{bytes}");
        SmscDriver::new(&mut device).write(0x130, 0);
        assert_eq!(transmitted(&mut device, &transfer), [sent]);
        SmscDriver::new(&mut device).write(0x130, 0x0001_0001);
    }
}

/// Check that a transfer that is cut short, or whose lengths don't fit, is refused as a
/// whole, with what is wrong.
#[test]
fn refuses_malformed_transfers() {
    let mut device = bound(0, true);
    let mut frames = Vec::new();
    let one = SmscDriver::tx_fixup(&frame(MAC, 60, 1), None);
    let two = [&one[..], &one[..]].concat();
    for cut in 1..two.len() {
        if cut != one.len() {
            assert!(device.transmit(&two[..cut], &mut frames).is_err(), "{cut}");
        }
    }
    assert_eq!(frames, []);
    let error = device.transmit(&one[..40], &mut frames).unwrap_err();
    assert_eq!(error.to_string(), "invalid TX buffer size 60 at byte 0 of a transfer of 40 bytes");
    for (a, b) in [(0x1000 | 60, 60), (0x2000 | 60, 60), (0x3000 | 60, 61), (0x3000 | 60, 59)] {
        let mut transfer = one.clone();
        transfer[..4].copy_from_slice(&u32::to_le_bytes(a));
        transfer[4..8].copy_from_slice(&u32::to_le_bytes(b));
        assert!(device.transmit(&transfer, &mut frames).is_err(), "{a:x} {b:x}");
    }
    for bytes in [13, 1519] {
        let transfer = SmscDriver::tx_fixup(&vec![0; bytes], None);
        assert!(device.transmit(&transfer, &mut frames).is_err());
    }
    // A checksum that is to be outside of the frame.
    for (from, at) in [(61, 20), (20, 60), (20, 59), (u16::MAX, u16::MAX)] {
        let transfer = SmscDriver::tx_fixup(&frame(MAC, 60, 1), Some((from, at)));
        assert!(device.transmit(&transfer, &mut frames).is_err(), "{from} {at}");
    }
    assert_eq!(frames, []);
}

/// Check that the driver gets the frames that came, with the offset and the checksums that
/// it has asked for, whatever the lengths.
#[test]
fn the_driver_receives_frames() {
    for (align, checksum) in [(0, true), (0, false), (2, true), (2, false)] {
        let mut device = bound(align, checksum);
        let frames: Vec<Vec<u8>> =
            [60, 61, 62, 63, 64, 1513, 1514].map(|bytes| frame(MAC, bytes, 9)).to_vec();
        let sums: Vec<u16> = frames.iter().map(|frame| sum(&frame[14..])).collect();
        let frames_ref: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        let mut fifo = fifo(&frames_ref);
        let transfers = received(&mut device, &mut fifo, 18944);
        assert_eq!(transfers.len(), 1, "all in one");
        let mut driver = SmscDriver::new(&mut device);
        driver.align = align;
        driver.rx_checksum = checksum;
        let got = driver.rx_fixup(&transfers[0]).unwrap();
        assert_eq!(got.frames, frames, "{align} {checksum}");
        assert_eq!(got.sums, if checksum { sums } else { vec![] });
        assert_eq!(got.errors, 0);
    }
}

/// Check that two bytes too many keep the driver in its loop: what a device that ignores the
/// offset in HW_CFG does to a kernel whose NET_IP_ALIGN is 0.
#[test]
#[should_panic(expected = "the kernel would stay here for good")]
fn another_offset_locks_the_driver() {
    let mut device = bound(2, false);
    let mut fifo = fifo(&[&frame(MAC, 60, 1)]);
    let transfer = device.receive(&mut fifo, 18944).unwrap();
    let mut driver = SmscDriver::new(&mut device);
    driver.align = 0;
    driver.rx_checksum = false;
    driver.rx_fixup(&transfer);
}

/// Check that a transfer has one frame if the driver wants it so, or we do, and is no longer
/// than the burst cap and the driver's buffer.
#[test]
fn transfers_are_bounded() {
    let frames = [frame(MAC, 1514, 1), frame(MAC, 1514, 2), frame(MAC, 1514, 3)];
    let all: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    let lengths = |device: &mut Smsc95xx, room| {
        let mut fifo = fifo(&all);
        received(device, &mut fifo, room).iter().map(Vec::len).collect::<Vec<_>>()
    };
    let one = 4 + 1514 + 4 + 2;
    let mut device = bound(0, true);
    assert_eq!(lengths(&mut device, 18944), [3 * one]);
    assert_eq!(lengths(&mut device, 2 * one), [2 * one, one]);
    assert_eq!(lengths(&mut device, 2 * one - 1), [one, one, one]);
    // A buffer that none fits gets none, and they don't stay in the way.
    assert!(lengths(&mut device, one - 1).is_empty());
    SmscDriver::new(&mut device).write(0x38, 6); // 3072 bytes
    assert_eq!(lengths(&mut device, 18944), [2 * one, one]);
    SmscDriver::new(&mut device).write(HW_CFG, 0x1000); // neither multiple frames nor cap
    assert_eq!(lengths(&mut device, 18944), [one, one, one]);
    let mut device = bound(0, true).max_frames(2);
    assert_eq!(lengths(&mut device, 18944), [2 * one, one]);
}

/// Check that the driver waits for frames, or gets an empty transfer if it wants to.
#[test]
fn an_empty_fifo_is_waited_for() {
    let mut device = bound(0, true);
    assert_eq!(device.receive(&mut Fifo::default(), 18944), None);
    SmscDriver::new(&mut device).write(HW_CFG, 0x22);
    assert_eq!(device.receive(&mut Fifo::default(), 18944), Some(vec![]));
}

/// Check that the driver drops frames with an error, and refuses frames of bad size,
/// which have a transfer of their own.
#[test]
fn faults_are_dropped_by_the_driver() {
    let mut device = bound(0, true);
    let mut fifo = Fifo::default();
    let frames = [Fault::None, Fault::ErrorBit, Fault::BadSize, Fault::None];
    for fault in frames {
        let bytes = frame(MAC, 60, 1);
        fifo.push(Frame { bytes, fault });
    }
    let transfers = received(&mut device, &mut fifo, 18944);
    assert_eq!(transfers.len(), 3);
    let driver = SmscDriver::new(&mut device);
    let first = driver.rx_fixup(&transfers[0]).unwrap();
    assert_eq!((first.frames.len(), first.errors), (1, 1));
    assert_eq!(driver.rx_fixup(&transfers[1]), None);
    assert_eq!(driver.rx_fixup(&transfers[2]).unwrap().frames.len(), 1);
    // The bits of a wrong check sequence, and of all errors.
    let second = u32::from_le_bytes(*transfers[0][72..].first_chunk().unwrap());
    assert_eq!(second & 0x8002, 0x8002);
}

/// Check that no transfer and no request makes the device panic, and that every frame that
/// comes of one is one that an Ethernet has.
#[test]
fn takes_any_bytes() {
    let mut seeded = Seeded::new(2);
    let mut device = bound(0, true);
    let sent = frame(MAC, 64, 1);
    let valid =
        [SmscDriver::tx_fixup(&sent, None), SmscDriver::tx_fixup(&sent, Some((34, 50)))].concat();
    for _ in 0..20_000 {
        let bytes = mutated(&valid, &mut seeded);
        let mut frames = Vec::new();
        let _ = device.transmit(&bytes, &mut frames);
        assert!(frames.iter().all(|frame| (60..=1518).contains(&frame.bytes.len())));
        let setup: [u8; 8] = seeded.bytes(8).try_into().unwrap();
        let _ = Pipe::request(&mut device, Setup::parse(setup), &bytes);
        let register = (seeded.below(0x134) & !3) as u16;
        let value = seeded.next() as u32;
        SmscDriver::new(&mut device).write(register, value);
        let mut fifo = fifo(&[&sent, &sent]);
        let room = seeded.below(400);
        if let Some(transfer) = device.receive(&mut fifo, room) {
            assert!(transfer.len() <= room);
        }
    }
}
