use super::*;
use crate::testing::{Seeded, mutated};

/// Messages of usbip_protocol.rst's example: an interrupt transfer in, and its answer.
const IN: [u32; 12] = [1, 0xd05, 0x1000f, 1, 1, 0x200, 0x40, !0, 0, 4, 0, 0];

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// The example with one of its numbers changed. The document has -1 packets at the seventh
/// in its example, and at the eighth in its table, where the kernel has it.
fn with(changed: &[(usize, u32)]) -> Vec<u8> {
    let mut words = IN;
    words[7] = 0;
    words[8] = !0;
    for &(at, word) in changed {
        words[at] = word;
    }
    bytes(&words)
}

fn submit(data: &[u8]) -> Submit<'_> {
    Submit {
        seqnum: 7,
        devid: 65538,
        direction: Direction::Out,
        endpoint: 2,
        length: data.len(),
        setup: [1, 2, 3, 4, 5, 6, 7, 8],
        data,
    }
}

/// Check that requests are read as they are written.
#[test]
fn requests_round_trip() {
    let requests = [
        Request::Submit(submit(b"hello")),
        Request::Submit(Submit { direction: Direction::In, length: 18944, ..submit(&[]) }),
        Request::Unlink { seqnum: 9, unlinked: 7 },
    ];
    for request in requests {
        let mut written = Vec::new();
        request.write(&mut written);
        let length = written.len();
        assert_eq!(Request::parse(&written), Ok(Some((request, length))));
    }
}

/// Check that replies are read as they are written.
#[test]
fn replies_round_trip() {
    let replies = [
        Reply::Submit { seqnum: 7, status: 0, actual: 5, data: b"hello" },
        Reply::Submit { seqnum: 7, status: -32, actual: 0, data: &[] },
        Reply::Unlink { seqnum: 9, status: -104 },
    ];
    for reply in replies {
        let mut written = Vec::new();
        reply.write(&mut written);
        let length = written.len();
        assert_eq!(Reply::parse(&written, |_| true), Ok(Some((reply, length))));
    }
}

/// Check that a transfer of the kernel's document is read.
#[test]
fn reads_the_documents_example() {
    let message = with(&[]);
    let expected = Request::Submit(Submit {
        seqnum: 0xd05,
        devid: 0x1000f,
        direction: Direction::In,
        endpoint: 1,
        length: 0x40,
        setup: [0; 8],
        data: &[],
    });
    assert_eq!(Request::parse(&message), Ok(Some((expected, 48))));
}

/// Check that a message which is not there as a whole is waited for, wherever it is cut.
#[test]
fn waits_for_all_of_a_message() {
    let mut message = Vec::new();
    Request::Submit(submit(b"hello")).write(&mut message);
    for cut in 0..message.len() {
        assert_eq!(Request::parse(&message[..cut]), Ok(None), "{cut} bytes");
    }
    let mut message = Vec::new();
    let data: &[u8] = b"hello";
    Reply::Submit { seqnum: 1, status: 0, actual: data.len(), data }.write(&mut message);
    for cut in 0..message.len() {
        assert_eq!(Reply::parse(&message[..cut], |_| true), Ok(None));
    }
}

/// Check that each field out of its range is refused with what is wrong.
#[test]
fn refuses_invalid_requests() {
    let limit = MAX_TRANSFER_BYTES as u32;
    let cases = [
        (0, 3, UsbipError::Command(3)),
        (3, 2, UsbipError::Direction(2)),
        (4, 16, UsbipError::Endpoint(16)),
        (4, u32::MAX, UsbipError::Endpoint(u32::MAX)),
        (6, limit + 1, UsbipError::Length(limit as i32 + 1)),
        (6, !0, UsbipError::Length(-1)),
        (8, 1, UsbipError::Isochronous(1)),
        (8, i32::MIN as u32, UsbipError::Isochronous(i32::MIN)),
    ];
    for (at, word, expected) in cases {
        assert_eq!(Request::parse(&with(&[(at, word)])), Err(expected));
    }
    // What vhci_hcd sends for every transfer, and the longest one.
    assert!(Request::parse(&with(&[(8, 0), (6, limit)])).is_ok());
    let reply = bytes(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Reply::parse(&reply, |_| true), Err(UsbipError::Reply(2)));
    let reply = bytes(&[3, 0, 0, 0, 0, 0, limit + 1, 0, 0, 0, 0, 0]);
    let expected = UsbipError::Length(limit as i32 + 1);
    assert_eq!(Reply::parse(&reply, |_| true), Err(expected));
}

/// Check that errors have what was wrong and what is expected.
#[test]
fn errors_say_what_was_wrong() {
    assert_eq!(
        UsbipError::Length(-1).to_string(),
        "invalid transfer length -1; expected at most 65536 bytes"
    );
    assert_eq!(
        UsbipError::Isochronous(4).to_string(),
        "isochronous transfer of 4 packets; only control, bulk and interrupt are supported"
    );
}

/// A reader that gives few bytes at a time.
struct Drops<'a>(&'a [u8], usize);

impl Read for Drops<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let n = self.1.min(self.0.len()).min(to.len());
        to[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        Ok(n)
    }
}

/// Check that requests are the same however a socket cuts them.
#[test]
fn requests_arrive_in_pieces() {
    let mut stream = Vec::new();
    for seqnum in 0..20 {
        let data = vec![seqnum as u8; seqnum as usize * 7];
        let request = Submit { seqnum, ..submit(&data) };
        Request::Submit(request).write(&mut stream);
    }
    for piece in [1, 7, 47, 48, 49, 1000, 1 << 20] {
        let mut drops = Drops(&stream, piece);
        let mut requests = Requests::default();
        let mut seen = 0;
        while requests.read(&mut drops).unwrap() > 0 {
            while let Some(request) = requests.next_request().unwrap() {
                let Request::Submit(submit) = request else {
                    panic!("{request:?}");
                };
                assert_eq!(submit.seqnum, seen);
                assert_eq!(submit.data, vec![seen as u8; seen as usize * 7]);
                seen += 1;
            }
        }
        assert_eq!(seen, 20, "in pieces of {piece}");
    }
}

/// Check that a connection that ends in the middle of a message is an error, and one that
/// ends behind it is not.
#[test]
fn a_message_is_not_cut_short() {
    let mut stream = Vec::new();
    Request::Submit(submit(b"hello")).write(&mut stream);
    let mut drops = Drops(&stream[..50], 64);
    let mut requests = Requests::default();
    assert_eq!(requests.read(&mut drops).unwrap(), 50);
    assert_eq!(requests.next_request(), Ok(None));
    let error = requests.read(&mut drops).unwrap_err();
    assert_eq!(error.to_string(), "the connection ended after 50 bytes of a message");
}

/// Check that no bytes make the parser panic, or take more than there are.
#[test]
fn takes_any_bytes() {
    let mut seeded = Seeded::new(1);
    let mut valid = Vec::new();
    Request::Submit(submit(b"hello")).write(&mut valid);
    for _ in 0..50_000 {
        let bytes = mutated(&valid, &mut seeded);
        if let Ok(Some((_, taken))) = Request::parse(&bytes) {
            assert!(taken <= bytes.len());
        }
        if let Ok(Some((_, taken))) = Reply::parse(&bytes, |_| true) {
            assert!(taken <= bytes.len());
        }
        let count = seeded.below(100);
        let _ = Request::parse(&seeded.bytes(count));
    }
}
