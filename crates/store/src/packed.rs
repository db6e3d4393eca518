//! Rows of numbers, packed in chunks: a zlib stream of columns, one after the other, of numbers in
//! LEB128. What is unpacked is bounded by the number of rows, whatever the stream has.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use rusqlite::Row;

use crate::row::{Wrong, count};

/// Rows of a chunk, at most.
pub(crate) const CHUNK: usize = 1 << 16;
/// Most bytes of a number in LEB128.
pub(crate) const NUMBER_BYTES: usize = 10;

/// Pack rows.
pub(crate) fn pack<const COLUMNS: usize>(
    rows: impl IntoIterator<Item = [u64; COLUMNS]>,
) -> rusqlite::Result<Vec<u8>> {
    let mut columns: [Vec<u8>; COLUMNS] = [const { Vec::new() }; COLUMNS];
    for row in rows {
        for (column, number) in columns.iter_mut().zip(row) {
            put_number(column, number);
        }
    }
    zlib(&columns)
}

/// Columns as one stream.
pub(crate) fn zlib(columns: &[Vec<u8>]) -> rusqlite::Result<Vec<u8>> {
    let packed = || {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        for column in columns {
            encoder.write_all(column)?;
        }
        encoder.finish()
    };
    packed().map_err(|e: std::io::Error| rusqlite::Error::ToSqlConversionFailure(e.into()))
}

/// A stream's contents, if at most `most` bytes.
pub(crate) fn unzlib(packed: &[u8], most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let decoder = ZlibDecoder::new(packed);
    decoder.take(most + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= most).then_some(bytes)
}

/// The rows of a chunk: their number is in the column `at`, and the next one has nothing else.
/// Errors name `what` they are.
pub(crate) fn chunk<const COLUMNS: usize>(
    row: &Row<'_>,
    (at, columns): (usize, usize),
    what: &str,
) -> Result<Vec<[u64; COLUMNS]>, Wrong> {
    let said = count(row, at)?;
    let fits = usize::try_from(said).ok();
    let Some(said) = fits.filter(|n| (1..=CHUNK).contains(n)) else {
        let why = format!("{said} {what}, expected 1 to {CHUNK}");
        return Err(Wrong::Found(why));
    };
    let packed = row.get_ref(columns)?.as_blob();
    let packed = packed.map_err(|e| Wrong::Found(e.to_string()))?;
    unpack(packed, said).ok_or_else(|| Wrong::Found(format!("no {said} {what} in it")))
}

/// Exactly `count` rows.
pub(crate) fn unpack<const COLUMNS: usize>(
    packed: &[u8],
    count: usize,
) -> Option<Vec<[u64; COLUMNS]>> {
    let most = count * COLUMNS * NUMBER_BYTES;
    let bytes = unzlib(packed, most as u64)?;
    let mut rest = bytes.as_slice();
    let mut rows = vec![[0; COLUMNS]; count];
    for column in 0..COLUMNS {
        for row in &mut rows {
            row[column] = number(&mut rest)?;
        }
    }
    rest.is_empty().then_some(rows)
}

/// Append a number in LEB128.
pub(crate) fn put_number(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// Take a number in LEB128.
pub(crate) fn number(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, rest) = from.split_first()?;
        *from = rest;
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has a single bit.
        if bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that rows round-trip, and that streams with more, less or longer numbers are refused.
    #[test]
    fn rows_round_trip() {
        let rows = vec![[0, u64::MAX, 127], [128, 1 << 63, 300]];
        let packed = pack(rows.iter().copied()).unwrap();
        assert_eq!(unpack::<3>(&packed, 2), Some(rows));
        assert_eq!(unpack::<3>(&packed, 1), None);
        assert_eq!(unpack::<3>(&packed, 3), None);
        assert_eq!(unpack::<2>(&packed, 2), None);
        assert_eq!(unpack::<3>(&packed[..packed.len() / 2], 2), None);
        assert_eq!(number(&mut &[0xff; 10][..]), None);
        assert_eq!(number(&mut &[0x80; 3][..]), None);
    }
}
