//! Typed messages over a stream of bytes that may begin with noise.
//!
//! A frame is `NPLB`, length (u32, little-endian), CRC-32 of the payload, and the payload in
//! postcard format. A reader skips to the next valid frame, since a serial port may carry output of
//! firmware or a kernel from before the agent ran.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

const MAGIC: [u8; 4] = *b"NPLB";
const HEADER_BYTES: usize = 12;
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
    let mut frame = Vec::with_capacity(HEADER_BYTES + payload.len());
    frame.extend_from_slice(&MAGIC);
    frame.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    frame.extend_from_slice(&crc32fast::hash(&payload).to_le_bytes());
    frame.extend_from_slice(&payload);
    stream.write_all(&frame)?;
    stream.flush()
}

/// Decodes messages from bytes as they arrive.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
}

impl Decoder {
    /// Add what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete message, if there is one.
    ///
    /// # Errors
    /// It arrived whole, and is not one of these: the other side writes another format. Waiting for one
    /// that can be read would be waiting forever.
    pub fn take<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            let start = find(&self.bytes, &MAGIC);
            match start {
                Some(at) => drop(self.bytes.drain(..at)),
                None => {
                    // Keep a possible beginning of the magic.
                    let keep = self.bytes.len().min(MAGIC.len() - 1);
                    self.bytes.drain(..self.bytes.len() - keep);
                    return Ok(None);
                }
            }
            if self.bytes.len() < HEADER_BYTES {
                return Ok(None);
            }
            let word = |at: usize| {
                let mut four = [0; 4];
                four.copy_from_slice(&self.bytes[at..at + 4]);
                u32::from_le_bytes(four)
            };
            let (length, crc) = (word(4) as usize, word(8));
            if length > MAX_PAYLOAD_BYTES {
                self.bytes.drain(..MAGIC.len());
                continue;
            }
            if self.bytes.len() < HEADER_BYTES + length {
                return Ok(None);
            }
            let payload = &self.bytes[HEADER_BYTES..HEADER_BYTES + length];
            if crc32fast::hash(payload) != crc {
                self.bytes.drain(..MAGIC.len());
                continue;
            }
            let message = postcard::from_bytes(payload);
            self.bytes.drain(..HEADER_BYTES + length);
            return message.map(Some).map_err(|e| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("a message of {length} bytes can't be read: {e}"),
                )
            });
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
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
        let skips = Skips {
            first: None,
            second: "text".into(),
        };
        send(&mut bytes, &skips).unwrap();
        send(&mut bytes, &"next".to_string()).unwrap();
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        let error = decoder.take::<Skips>().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        let next = decoder.take::<String>().unwrap();
        assert_eq!(next.as_deref(), Some("next"));
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
