//! Typed messages over a stream of bytes that may begin with noise.
//!
//! A frame is `NPLB`, length and CRC-32 of the payload and CRC-32 of these twelve bytes (all u32, little-endian), and
//! the payload in postcard format. A reader skips to the next valid header, since a serial port may carry output of
//! firmware or a kernel from before the agent ran. A valid header is trusted: a frame with a damaged payload is skipped
//! as a whole. So no byte is read more than a few times, whatever the other side sends.

use std::io::{self, Read, Write};

use memchr::memmem;
use serde::Serialize;
use serde::de::DeserializeOwned;

const MAGIC: [u8; 4] = *b"NPLB";
const HEADER_BYTES: usize = 16;
/// Larger than any chunk that either side sends.
const MAX_PAYLOAD_BYTES: usize = 4 << 20;

/// Bytes of a file in one message.
pub const CHUNK_BYTES: usize = 256 << 10;

/// Write one message.
///
/// # Errors
/// The stream failed.
pub fn send<T: Serialize>(stream: &mut impl Write, message: &T) -> io::Result<()> {
    let payload = postcard::to_stdvec(message).map_err(io::Error::other)?;
    // The reader would take it for noise.
    if payload.len() > MAX_PAYLOAD_BYTES {
        return Err(io::Error::other(format!(
            "a message of {} bytes is too long; at most {MAX_PAYLOAD_BYTES} are sent",
            payload.len()
        )));
    }
    let header = Header { length: payload.len(), crc: crc32fast::hash(&payload) };
    let mut frame = Vec::with_capacity(HEADER_BYTES + payload.len());
    frame.extend_from_slice(&header.bytes());
    frame.extend_from_slice(&payload);
    stream.write_all(&frame)?;
    stream.flush()
}

/// The header of a payload.
#[derive(Debug, Clone, Copy)]
struct Header {
    length: usize,
    crc: u32,
}

impl Header {
    fn bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&(self.length as u32).to_le_bytes());
        bytes[8..12].copy_from_slice(&self.crc.to_le_bytes());
        let own = crc32fast::hash(&bytes[..12]);
        bytes[12..].copy_from_slice(&own.to_le_bytes());
        bytes
    }

    /// The header at the beginning of these bytes; none if they are noise.
    fn read(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let word = |at: usize| {
            let mut four = [0; 4];
            four.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(four)
        };
        let header = Header { length: word(4) as usize, crc: word(8) };
        (header.bytes() == *bytes && header.length <= MAX_PAYLOAD_BYTES).then_some(header)
    }
}

/// Decodes messages from bytes as they arrive.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// The number of bytes taken.
    taken: usize,
    /// How many bytes were looked at, each time that one was.
    #[cfg(test)]
    work: usize,
}

impl Decoder {
    /// Add what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        // Only once as much was taken as is left: every byte is moved once then, on average.
        if self.taken > self.bytes.len() / 2 {
            self.count(self.bytes.len() - self.taken);
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete message, if there is one.
    ///
    /// # Errors
    /// It arrived whole, but does not decode: the other side writes another format, so that waiting for more would take
    /// forever.
    pub fn take<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            let rest = &self.bytes[self.taken..];
            // Without one, keep a possible beginning of it.
            let noise = memmem::find(rest, &MAGIC)
                .unwrap_or_else(|| rest.len() - rest.len().min(MAGIC.len() - 1));
            self.count(noise);
            self.taken += noise;
            let Some(header) = self.bytes[self.taken..].first_chunk::<HEADER_BYTES>() else {
                return Ok(None);
            };
            let header = Header::read(header);
            self.count(HEADER_BYTES);
            let Some(header) = header else {
                self.taken += MAGIC.len();
                continue;
            };
            let start = self.taken + HEADER_BYTES;
            let Some(payload) = self.bytes.get(start..start + header.length) else {
                return Ok(None);
            };
            let message =
                (crc32fast::hash(payload) == header.crc).then(|| postcard::from_bytes(payload));
            self.taken = start + header.length;
            self.count(header.length);
            let Some(message) = message else {
                continue;
            };
            return message.map(Some).map_err(|e| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("a message of {} bytes can't be read: {e}", header.length),
                )
            });
        }
    }

    /// Count work, for a test.
    fn count(&mut self, _bytes: usize) {
        #[cfg(test)]
        {
            self.work += _bytes;
        }
    }
}

/// Read a message; the end of the stream is an error.
///
/// # Errors
/// The stream failed or ended, or a message can't be read.
pub fn receive<T: DeserializeOwned>(
    stream: &mut impl Read,
    decoder: &mut Decoder,
) -> io::Result<T> {
    let mut buffer = [0; 64 << 10];
    loop {
        if let Some(message) = decoder.take()? {
            return Ok(message);
        }
        match stream.read(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => decoder.push(&buffer[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Vec<u8> {
        let mut bytes = b"SeaBIOS NPL noise NPLB".to_vec();
        send(&mut bytes, &"first".to_string()).unwrap();
        bytes.extend_from_slice(b"printk: NPLB\x05\0\0\0");
        send(&mut bytes, &"second".to_string()).unwrap();
        bytes
    }

    /// Check that messages are found between noise, however the bytes are divided.
    #[test]
    fn noise_and_any_cut() {
        let bytes = frames();
        for cut in 1..bytes.len() {
            let mut decoder = Decoder::default();
            let mut got: Vec<String> = Vec::new();
            for piece in bytes.chunks(cut) {
                decoder.push(piece);
                while let Some(message) = decoder.take().unwrap() {
                    got.push(message);
                }
            }
            assert_eq!(got, ["first", "second"], "cut every {cut}");
        }
    }

    /// Check that a damaged frame is skipped and the next one found.
    #[test]
    fn damage_is_skipped() {
        let mut bytes = Vec::new();
        send(&mut bytes, &"first".to_string()).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        send(&mut bytes, &"second".to_string()).unwrap();
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        let taken = decoder.take::<String>().unwrap();
        assert_eq!(taken.as_deref(), Some("second"));
        assert_eq!(decoder.take::<String>().unwrap(), None);
    }

    /// Check that a message whose fields are skipped is an error at once, for the format has no names, and
    /// that the next one is found.
    #[test]
    fn another_format_is_an_error() {
        #[derive(Debug, Serialize, serde::Deserialize)]
        struct Skips {
            #[serde(skip_serializing_if = "Option::is_none")]
            first: Option<u32>,
            second: String,
        }
        let mut bytes = Vec::new();
        let skips = Skips { first: None, second: "text".into() };
        send(&mut bytes, &skips).unwrap();
        send(&mut bytes, &"next".to_string()).unwrap();
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        let error = decoder.take::<Skips>().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        let next = decoder.take::<String>().unwrap();
        assert_eq!(next.as_deref(), Some("next"));
    }

    /// Check that whatever is sent is decoded with work in proportion to it: false headers that each
    /// claim all that follows, valid ones with a damaged payload, noise, and many small messages.
    #[test]
    fn work_is_linear() {
        let most = MAX_PAYLOAD_BYTES;
        let false_header = [&MAGIC[..], &(most as u32).to_le_bytes(), &[0; 4]].concat();
        let valid = |length| Header { length, crc: 1 }.bytes();
        let mut message = Vec::new();
        send(&mut message, &7_u8).unwrap();
        let kinds = [
            ("false headers", false_header, 0),
            ("headers of the largest payload", valid(most).to_vec(), 0),
            ("headers without a payload", valid(0).to_vec(), 0),
            ("beginnings of a header", b"NPL".to_vec(), 0),
            ("messages", message, 1),
        ];
        for (what, piece, messages) in kinds {
            let count = (4 << 20) / piece.len();
            let bytes = piece.repeat(count);
            for cut in [64, 256 << 10, bytes.len()] {
                let mut decoder = Decoder::default();
                let mut got = 0;
                for part in bytes.chunks(cut) {
                    decoder.push(part);
                    while decoder.take::<u8>().unwrap().is_some() {
                        got += 1;
                    }
                }
                assert_eq!(got, messages * count, "{what}");
                // Each byte as noise, in a header or a payload, and moved once.
                let per_byte = decoder.work as f64 / bytes.len() as f64;
                assert!(per_byte < 5.0, "{what}, {cut} at a time: {per_byte}");
            }
        }
    }

    /// Check that the end of a stream is an error.
    #[test]
    fn the_end_is_an_error() {
        let mut bytes = Vec::new();
        send(&mut bytes, &7_u32).unwrap();
        let mut stream = &bytes[..bytes.len() - 1];
        let error = receive::<u32>(&mut stream, &mut Decoder::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
