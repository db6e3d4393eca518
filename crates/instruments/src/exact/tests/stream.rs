//! The stream, word by word.

use std::io::{self, Read};

use super::super::stream::{Kind, StackPointer};
use super::super::{Change, Mark, Record, StreamError, StreamReader};

const HELLO: u32 = 0x8100_0006;

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn read(bytes: &[u8]) -> Result<Vec<Record>, StreamError> {
    let mut reader = StreamReader::new(bytes);
    let mut records = Vec::new();
    while let Some(record) = reader.next()? {
        records.push(record);
    }
    Ok(records)
}

#[track_caller]
fn damage(words: &[u32]) -> String {
    match read(&bytes(words)) {
        Err(StreamError::Damaged(how)) => how,
        other => panic!("{other:?}"),
    }
}

/// A block `id` of three instructions, of 1, 2 and 3 bytes, the last of a kind.
fn block(id: u32, kind: u32) -> Vec<u32> {
    // Sizes, then code: 9 bytes, padded to 12.
    vec![
        0x8200_0007,
        id,
        0x8100_0010,
        0xffff_ffff,
        kind << 16 | 3,
        u32::from_le_bytes([1, 2, 3, 0x90]),
        u32::from_le_bytes([0x66, 0x90, 0x0f, 0x1f]),
        u32::from_le_bytes([0x00, 0, 0, 0]),
    ]
}

/// One of everything, as the plugin would write it.
fn everything() -> (Vec<u32>, Vec<Record>) {
    let mut words = vec![HELLO];
    let mut records = Vec::new();
    let kinds = [Kind::Other, Kind::Call, Kind::Ret, Kind::Iret, Kind::Sysret];
    for (id, kind) in (0..).zip(kinds) {
        words.extend(block(id, id));
        records.push(Record::Block {
            id,
            address: 0xffff_ffff_8100_0010,
            kind,
            sizes: vec![1, 2, 3],
            code: vec![0x90, 0x66, 0x90, 0x0f, 0x1f, 0x00],
            changes: Vec::new(),
        });
    }
    words.extend([4, 0x8300_0002]);
    records.extend([Record::Exec(4), Record::Partial(2)]);
    words.extend([1, 0x8400_c900, 0x1234_5678]);
    records.extend([Record::Exec(1), Record::Call(0xffff_c900_1234_5678)]);
    words.extend([2, 0x8500_c900, 0x1234_5678]);
    records.extend([Record::Exec(2), Record::Ret(0xffff_c900_1234_5678)]);
    words.push(0x8b00_0001);
    words.extend([1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 0x1234_5678, 0xffff_c900]);
    words.extend([7, 0, 8, 0]);
    words.extend([0x8d01_0005, 0x6461_6d61, 0x61, 0x8d00_0000]);
    words.extend([0x8c00_0000, 0xffff_fffe, u32::MAX, 0x8800_0002, 1]);
    records.extend([
        Record::Arguments {
            checked: true,
            registers: [1, 2, 3, 4, 5, 0xffff_c900_1234_5678, 7, 8],
        },
        Record::Text(1, b"amada".to_vec()),
        Record::Text(0, Vec::new()),
        Record::Returned(-2_i64 as u64),
        Record::NoRegisters,
    ]);
    words.extend([0x8e00_0001, 0x8e00_0000]);
    records.extend([Record::Masked(true), Record::Masked(false)]);
    words.push(0x8600_0000);
    records.push(Record::User);
    let marks = [
        Mark::Arm,
        Mark::WindowBegin,
        Mark::WindowEnd,
        Mark::TxBegin,
        Mark::TxEnd,
        Mark::RxBegin,
        Mark::RxEnd,
        Mark::RunBegin,
    ];
    for (number, mark) in (1..).zip(marks) {
        words.extend([0x8700_0000 | number, 7, 1]);
        records.push(Record::Mark(mark, 1 << 32 | 7));
    }
    words.extend([0x8800_0001, 9]);
    records.push(Record::Loss(9));
    // User code: with a hash of its page, and its frame.
    words.extend([0x8900_000a, 5, 0x5555_1000, 0x5555, 1 << 16 | 2, 0x89ab, 0x4567, 0x1234]);
    words.extend([[4, 5, 1, 2], [3, 4, 5, 6], [7, 8, 9, 0]].map(u32::from_le_bytes));
    records.push(Record::UserBlock {
        id: 5,
        address: 0x5555_5555_1000,
        kind: Kind::Call,
        sizes: vec![4, 5],
        code: vec![1, 2, 3, 4, 5, 6, 7, 8, 9],
        page: 0x4567_0000_89ab,
        frame: 0x1234,
    });
    words.extend([5, 0x8f00_7fff, 0xffff_d000, 7, 0xc0]);
    records.extend([
        Record::Exec(5),
        Record::Stack(StackPointer {
            begins: 0x7fff_ffff_d000,
            returned: 0x7fff_ffff_cff8,
            goroutine: 0xc0_0000_0007,
        }),
    ]);
    words.extend([5, 0x8401_7fff, 0xffff_e000]);
    records.extend([Record::Exec(5), Record::Call(0x7fff_ffff_e000)]);
    words.extend([0x8501_7fff, 0xffff_e000]);
    records.push(Record::Ret(0x7fff_ffff_e000));
    words.extend([0x8a00_c900, 0x1234_5678]);
    records.push(Record::Store(0xffff_c900_1234_5678));
    (words, records)
}

/// Check that every record is read as what was written.
#[test]
fn every_record() {
    let (words, records) = everything();
    assert_eq!(read(&bytes(&words)).unwrap(), records);
}

/// A pipe that gives one byte at a time, and is interrupted before each.
struct Trickle<'a>(&'a [u8], bool);

impl Read for Trickle<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.1 = !self.1;
        if self.1 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let n = self.0.len().min(1);
        into[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        Ok(n)
    }
}

/// Check that it does not matter in which pieces a stream comes.
#[test]
fn piece_by_piece() {
    let (words, records) = everything();
    let bytes = bytes(&words);
    let mut reader = StreamReader::new(Trickle(&bytes, false));
    for record in records {
        assert_eq!(reader.next().unwrap(), Some(record));
    }
    assert_eq!(reader.next().unwrap(), None);
    assert_eq!(reader.next().unwrap(), None);
}

/// Check that a stream longer than the reader's buffer is read whole.
#[test]
fn longer_than_the_buffer() {
    let mut words = vec![HELLO];
    words.extend(block(0, 0));
    let mut long = bytes(&words);
    // An odd number of words between, so that records straddle the border.
    for _ in 0..100_000 {
        long.extend(bytes(&[0, 0x8400_c900, 1]));
    }
    assert_eq!(read(&long).unwrap().len(), 1 + 200_000);
}

/// Check that a stream that ends anywhere is read up to there, and reported as damaged
/// if that is within a record.
#[test]
fn cut_at_every_byte() {
    let (words, records) = everything();
    let bytes = bytes(&words);
    let mut clean = 0;
    for end in 0..bytes.len() {
        let mut reader = StreamReader::new(&bytes[..end]);
        let mut n = 0;
        let ended = loop {
            match reader.next() {
                Ok(Some(record)) => {
                    assert_eq!(record, records[n], "cut at {end}");
                    n += 1;
                }
                Ok(None) => break true,
                Err(StreamError::Damaged(_)) => break false,
                Err(e) => panic!("cut at {end}: {e}"),
            }
        };
        assert!(!ended || end % 4 == 0, "cut at {end}");
        clean += u32::from(ended);
    }
    // Before the greeting, after it, and after every record but the last.
    assert_eq!(clean as usize, 1 + records.len());
}

/// Check that a stream of another version is refused, and its version reported.
#[test]
fn wrong_version() {
    assert_eq!(damage(&[0x8100_0001]), "its version is 1, not 6");
}

/// Check that bytes which are `cli` on x86-64 change nothing on arm64, and that an unknown architecture
/// is refused.
#[test]
fn architectures() {
    let changes = |hello: u32| {
        // `cli` thrice, or nothing.
        let block = [0x8200_0006, 0, 0x1000, 0xffff_0000, 3, 0xfa01_0101, 0xfafa];
        let records = read(&bytes(&[&[hello][..], &block].concat())).unwrap();
        match &records[..] {
            [Record::Block { changes, .. }] => changes.len(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(changes(HELLO), 3);
    assert_eq!(changes(HELLO | 1 << 16), 0);
    assert_eq!(damage(&[HELLO | 2 << 16]), "architecture 2");
}

/// Check that a stream without the greeting is refused, whatever it begins with: a
/// record, or text, whose words look like blocks.
#[test]
fn no_greeting() {
    for first in [0, 0x8600_0000, u32::from_le_bytes(*b"QEMU")] {
        assert_eq!(damage(&[first]), "it does not begin with a header");
    }
}

/// Check that unknown records and kinds are refused, and marks of a later workload
/// passed over.
#[test]
fn unknown_types() {
    for kind in [0, 16, 0x7f] {
        let message = damage(&[HELLO, 0x8000_0000 | kind << 24]);
        assert_eq!(message, format!("a record of type {kind}"));
    }
    let mut words = vec![HELLO];
    words.extend(block(0, 5));
    assert_eq!(damage(&words), "an instruction of kind 5");
    let records = read(&bytes(&[HELLO, 0x8700_0063, 1, 2, 0x8600_0000])).unwrap();
    assert_eq!(records, [Record::User]);
}

/// Check that a block of no size that a block can have is refused before room is
/// made for it.
#[test]
fn sizes_of_blocks() {
    for words in [0, 3, 4 + 2048 + 1, 0x00ff_ffff] {
        let message = damage(&[HELLO, 0x8200_0000 | words]);
        assert_eq!(message, format!("a block of {words} words"));
    }
    for count in [0, 13, 0xffff] {
        let mut words = vec![HELLO];
        words.extend(block(0, 0));
        words[5] = count;
        assert_eq!(damage(&words), format!("a block of {count} instructions"));
    }
}

/// Check that numbers of blocks that are out of turn, and blocks that run but were
/// never described, are damage: neither is given room, or passed over in silence.
#[test]
fn numbers_of_blocks() {
    let mut words = vec![HELLO];
    words.extend(block(0x7fff_ffff, 0));
    assert_eq!(damage(&words), "block 2147483647 where 0 was next");
    let mut words = vec![HELLO];
    words.extend(block(0, 0));
    words.extend(block(0, 0));
    assert_eq!(damage(&words), "block 0 where 1 was next");
    let mut words = vec![HELLO];
    words.extend(block(0, 0));
    words.push(1);
    assert_eq!(damage(&words), "block 1 ran, but was not described");
}

/// Check that noise of any kind ends in records or an error, and in no panic.
#[test]
fn noise() {
    let mut state = 1u64;
    for _ in 0..2_000 {
        let mut words = vec![HELLO];
        words.extend(block(0, 0));
        for _ in 0..20 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let word = (state >> 32) as u32;
            // Mostly small payloads, so that records are met and not just refused.
            words.push(if word & 3 == 0 { word } else { word & 0x8f00_000f });
        }
        let _ = read(&bytes(&words));
    }
}

/// Check that instructions that change whether interrupts come are found, by their numbers, and
/// that what only looks like one within another is not.
#[test]
fn changes_of_blocks() {
    // nop; mov $0xfb,%al; cli; sti; popf: sizes 1, 2, 1, 1, 1.
    let code = [1, 2, 1, 1, 1, 0x90, 0xb0, 0xfb, 0xfa, 0xfb, 0x9d, 0];
    let mut words = vec![HELLO, 0x8200_0007, 0, 0x8100_0010, 0xffff_ffff, 5];
    let four = code.chunks(4).map(|b| [b[0], b[1], b[2], b[3]]);
    words.extend(four.map(u32::from_le_bytes));
    match read(&bytes(&words)).unwrap().as_slice() {
        [Record::Block { changes, .. }] => {
            assert_eq!(changes, &[(2, Change::Off), (3, Change::On), (4, Change::Restore)])
        }
        other => panic!("{other:?}"),
    }
}
