use super::*;
use crate::testing::{NcmDriver, Pipe, Seeded, fifo, frame, mutated, transmitted};

const MAC: [u8; 6] = [2, 0x4e, 0x50, 0, 0, 0xab];

fn bound() -> Ncm {
    let mut device = Ncm::new(MAC);
    device.set_carrier(true);
    NcmDriver::new(&mut device).bind();
    device
}

/// Check that the driver's steps find the interfaces, the parameters and the address.
#[test]
fn binds_as_the_driver_does() {
    let mut device = Ncm::new(MAC);
    let mut driver = NcmDriver::new(&mut device);
    driver.bind();
    assert_eq!(driver.mac, "024E500000AB");
    assert_eq!((driver.rx_max, driver.tx_max), (16384, 16384));
    assert_eq!(device.alternate(1), Ok(1));
    assert_eq!(device.set_alternate(1, 2), Err(Stall));
    assert_eq!(device.set_alternate(2, 0), Err(Stall));
    assert_eq!(device.alternate(2), Err(Stall));
}

/// Check that the driver hears of the speed, and then of the link, when it opens the
/// interface and when the cable is pulled.
#[test]
fn notifies_of_the_link() {
    let speed = [0xa1, 0x2a, 0, 0, 0, 0, 8, 0, 0, 0xe1, 0xf5, 5, 0, 0xe1, 0xf5, 5];
    let connected = |up| vec![0xa1, 0, up, 0, 0, 0, 0, 0];
    let mut device = Ncm::new(MAC);
    device.set_carrier(true);
    assert_eq!(device.interrupt(), None, "closed");
    NcmDriver::new(&mut device).bind();
    assert_eq!(device.interrupt(), Some(speed.to_vec()));
    assert_eq!(device.interrupt(), Some(connected(1)));
    assert_eq!(device.interrupt(), None);
    device.set_carrier(true);
    assert_eq!(device.interrupt(), None, "nothing has changed");
    device.set_carrier(false);
    assert!(!device.sends());
    assert_eq!(device.interrupt(), Some(speed.to_vec()));
    assert_eq!(device.interrupt(), Some(connected(0)));
}

/// Check that the host sets the size of NTBs, within limits, and until it closes the
/// interface.
#[test]
fn the_host_sets_the_input_size() {
    let mut device = bound();
    let mut driver = NcmDriver::new(&mut device);
    let mut set = |bytes: u32| {
        driver
            .class(0x86, false, 4, &bytes.to_le_bytes())
            .map(|_nothing| driver.class(0x85, true, 4, &[]).unwrap())
    };
    assert_eq!(set(2048), Ok(vec![0, 8, 0, 0]));
    assert_eq!(set(2047), Err(Stall));
    assert_eq!(set(16385), Err(Stall));
    let frames = [&frame(MAC, 1514, 1)[..], &frame(MAC, 1514, 2)];
    let mut two = fifo(&frames);
    assert!(device.receive(&mut two, 16384).unwrap().len() <= 2048);
    assert!(!two.is_empty());
    device.set_alternate(1, 0).unwrap();
    device.set_alternate(1, 1).unwrap();
    assert!(device.receive(&mut fifo(&frames), 16384).unwrap().len() > 3000);
}

/// Check that requests that the capabilities leave out are refused.
#[test]
fn refuses_other_requests() {
    let mut device = bound();
    let mut driver = NcmDriver::new(&mut device);
    for request in [0x43, 0x81, 0x82, 0x87, 0x88, 0x89, 0x8a] {
        assert_eq!(driver.class(request, true, 4, &[]), Err(Stall));
        assert_eq!(driver.class(request, false, 0, &[]), Err(Stall));
    }
    assert_eq!(driver.class(0x83, true, 2, &[]), Ok(vec![0, 0]));
    assert_eq!(driver.class(0x84, false, 0, &[]), Ok(vec![]));
    assert_eq!(driver.class(0x86, false, 3, &[0; 3]), Err(Stall));
}

/// Check that frames come out of NTBs as the driver put them in, padded to the shortest.
#[test]
fn transmits_frames() {
    let mut device = bound();
    let frames: Vec<Vec<u8>> =
        (14..54).map(|n| frame([0xff; 6], n * 7 % 1400 + 14, n as u64)).collect();
    for count in [1, 2, 10, 40] {
        let sent: Vec<&[u8]> = frames[..count].iter().map(Vec::as_slice).collect();
        let expected: Vec<Vec<u8>> = sent.iter().map(|frame| crate::frame::padded(frame)).collect();
        let ntb = NcmDriver::tx_fixup(&sent, 7);
        assert_eq!(transmitted(&mut device, &ntb), expected);
        // A block that the driver fills up to its size, and one whose length is left open.
        let mut full = ntb.clone();
        full.resize(16384, 0);
        full[8..10].copy_from_slice(&16384u16.to_le_bytes());
        assert_eq!(transmitted(&mut device, &full), expected);
        full[8..10].copy_from_slice(&[0, 0]);
        assert_eq!(transmitted(&mut device, &full), expected);
    }
}

/// Check that a second table is followed, and that no table takes us in a circle.
#[test]
fn follows_tables() {
    let mut device = bound();
    let sent = frame(MAC, 60, 1);
    let mut ntb = NcmDriver::tx_fixup(&[&sent], 0);
    let second = ntb.len().next_multiple_of(4);
    ntb.resize(second, 0);
    ntb.extend_from_slice(b"NCM0\x10\0\0\0");
    let entry = ntb[20..24].to_vec();
    ntb.extend_from_slice(&entry);
    ntb.extend_from_slice(&[0; 4]);
    let length = (ntb.len() as u16).to_le_bytes();
    ntb[8..10].copy_from_slice(&length);
    ntb[18..20].copy_from_slice(&(second as u16).to_le_bytes());
    assert_eq!(transmitted(&mut device, &ntb), [&sent[..], &sent[..]]);
    ntb[second + 6..second + 8].copy_from_slice(&12u16.to_le_bytes());
    let mut frames = Vec::new();
    let error = device.transmit(&ntb, &mut frames).unwrap_err();
    assert_eq!(error.what, "number of tables");
    assert_eq!(frames, []);
}

/// Check that a table can't give the same bytes again and again.
#[test]
fn datagrams_are_bounded() {
    let mut ntb = b"NCMH\x0c\0\0\0\0\0\x0c\0NCM0".to_vec();
    ntb.extend_from_slice(&(8 + 4 * 1026u16).to_le_bytes());
    ntb.extend_from_slice(&[0, 0]);
    for _ in 0..1025 {
        ntb.extend_from_slice(&[12, 0, 60, 0]);
    }
    ntb.extend_from_slice(&[0; 4]);
    let mut frames = Vec::new();
    let error = bound().transmit(&ntb, &mut frames).unwrap_err();
    assert_eq!((error.what, error.value), ("number of datagrams", 1025));
    assert_eq!(frames, []);
}

/// Check that an NTB that is cut short, or whose fields don't fit, is refused as a whole, with
/// what is wrong.
#[test]
fn refuses_malformed_ntbs() {
    let mut device = bound();
    let sent = frame(MAC, 60, 1);
    let ntb = NcmDriver::tx_fixup(&[&sent, &sent], 0);
    let mut frames = Vec::new();
    for cut in 0..ntb.len() {
        assert!(device.transmit(&ntb[..cut], &mut frames).is_err(), "{cut}");
    }
    let cases = [
        (0, b'X', "NTH16 signature"),
        (4, 13, "NTH16 length"),
        (9, 0xff, "block length"),
        (10, 8, "NDP16 index"),
        (10, 14, "NDP16 index"),
        (11, 0xff, "NDP16 signature"),
        (12, b'X', "NDP16 signature"),
        (15, b'1', "NDP16 signature"),
        (16, 12, "NDP16 length"),
        (16, 18, "NDP16 length"),
        (21, 0xff, "datagram length"),
        (22, 13, "datagram length"),
        (23, 0xff, "datagram length"),
    ];
    for (at, byte, what) in cases {
        let mut ntb = ntb.clone();
        ntb[at] = byte;
        let error = device.transmit(&ntb, &mut frames).unwrap_err();
        assert_eq!(error.what, what, "byte {at}: {error}");
    }
    assert_eq!(frames, []);
    let error = device.transmit(&ntb[..100], &mut frames).unwrap_err();
    let expected =
        format!("invalid block length {} at byte 8 of a transfer of 100 bytes", ntb.len());
    assert_eq!(error.to_string(), expected);
}

/// Check that the driver gets the frames that came, with numbers that go up by one.
#[test]
fn the_driver_receives_frames() {
    let mut device = bound();
    let frames: Vec<Vec<u8>> = [60, 61, 62, 63, 1514].map(|bytes| frame(MAC, bytes, 4)).to_vec();
    let all: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    for sequence in 0..3 {
        let ntb = device.receive(&mut fifo(&all), 16384).unwrap();
        let mut driver = NcmDriver::new(&mut device);
        driver.rx_max = 16384;
        assert_eq!(driver.rx_fixup(&ntb), Some((sequence, frames.clone())));
    }
}

/// Check that an NTB has no more frames than we want, and is no longer than the driver's
/// buffer.
#[test]
fn ntbs_are_bounded() {
    let bytes = frame(MAC, 1514, 1);
    let counts = |mut device: Ncm, room| {
        let mut fifo = fifo(&[&bytes, &bytes, &bytes]);
        std::iter::from_fn(|| device.receive(&mut fifo, room))
            .map(|ntb| {
                assert!(ntb.len() <= room);
                let mut unbound = Ncm::new(MAC);
                let mut driver = NcmDriver::new(&mut unbound);
                driver.rx_max = 16384;
                driver.rx_fixup(&ntb).unwrap().1.len()
            })
            .collect::<Vec<_>>()
    };
    let two = 12 + 8 + 4 * 3 + 2 * 1516;
    assert_eq!(counts(bound(), 16384), [3]);
    assert_eq!(counts(bound(), two), [2, 1]);
    assert_eq!(counts(bound(), two - 1), [1, 1, 1]);
    assert!(counts(bound(), 1500).is_empty());
    assert_eq!(counts(bound().max_frames(2), 16384), [2, 1]);
    assert_eq!(counts(bound().max_frames(0), 16384), [1, 1, 1]);
}

/// Check that the driver refuses an NTB of bad size, which has one frame, and takes the next.
#[test]
fn a_bad_size_is_refused_by_the_driver() {
    let mut device = bound();
    let mut fifo = Fifo::default();
    for fault in [Fault::None, Fault::BadSize, Fault::None] {
        let bytes = frame(MAC, 60, 1);
        fifo.push(Frame { bytes, fault });
    }
    let ntbs: Vec<Vec<u8>> = std::iter::from_fn(|| device.receive(&mut fifo, 16384)).collect();
    let mut driver = NcmDriver::new(&mut device);
    driver.rx_max = 16384;
    let frames = ntbs.iter().map(|ntb| driver.rx_fixup(ntb));
    let frames: Vec<Option<usize>> = frames.map(|got| got.map(|got| got.1.len())).collect();
    assert_eq!(frames, [Some(1), None, Some(1)]);
    assert!(!device.supports(Fault::ErrorBit));
}

/// Check that no transfer and no request makes the device panic, and that every frame that
/// comes of one is one that an Ethernet has.
#[test]
fn takes_any_bytes() {
    let mut seeded = Seeded::new(3);
    let mut device = bound();
    let sent = frame(MAC, 64, 1);
    let valid = NcmDriver::tx_fixup(&[&sent, &sent], 0);
    for _ in 0..20_000 {
        let bytes = mutated(&valid, &mut seeded);
        let mut frames = Vec::new();
        let _ = device.transmit(&bytes, &mut frames);
        assert!(frames.iter().all(|frame| (60..=1518).contains(&frame.bytes.len())));
        let setup: [u8; 8] = seeded.bytes(8).try_into().unwrap();
        let _ = Pipe::request(&mut device, Setup::parse(setup), &bytes);
        let mut fifo = fifo(&[&sent, &sent]);
        let room = seeded.below(400);
        if let Some(ntb) = device.receive(&mut fifo, room) {
            assert!(ntb.len() <= room);
        }
    }
}
