//! Compression formats of kernels, modules and packages, recognised by their first bytes and
//! unpacked with a limit on the size.

use std::fmt;
use std::io::{self, BufRead, Read};

/// Maximum window of a zstd stream, as needed for `zstd --ultra -22`, which the kernel's build
/// uses.
const ZSTD_WINDOW_MAX_BYTES: u64 = 1 << 27;

/// Maximum memory of an xz or lzma stream.
const LZMA_MEMORY_MAX_BYTES: u64 = 1 << 28;

/// Maximum size of a block in a legacy lz4 frame.
const LZ4_LEGACY_BLOCK_BYTES: usize = 8 << 20;

/// A compression format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// gzip.
    Gzip,
    /// xz.
    Xz,
    /// The older "lzma alone" format.
    Lzma,
    /// zstd.
    Zstd,
    /// The legacy lz4 frame, as written by the kernel's build.
    Lz4Legacy,
    /// bzip2, recognised for the error, not unpacked.
    Bzip2,
    /// lzop, recognised for the error, not unpacked.
    Lzo,
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Lzma => "lzma",
            Self::Zstd => "zstd",
            Self::Lz4Legacy => "lz4",
            Self::Bzip2 => "bzip2",
            Self::Lzo => "lzo",
        })
    }
}

/// Why bytes could not be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The stream ends early or is damaged.
    #[error("the {form} data is damaged or cut short: {source}")]
    Damaged {
        /// The format that was recognised.
        form: Compression,
        /// The decoder's message.
        source: io::Error,
    },
    /// The unpacked size exceeds the limit.
    #[error("the {form} data unpacks to more than {limit_bytes} bytes, more than any kernel has")]
    TooLarge {
        /// The format that was recognised.
        form: Compression,
        /// The maximum size when unpacked.
        limit_bytes: u64,
    },
    /// A format that is recognised and not supported.
    #[error(
        "{form} compression is not supported; unpack it first, or use a kernel built with CONFIG_KERNEL_GZIP, _XZ, _ZSTD or _LZ4"
    )]
    Unsupported {
        /// The format that was recognised.
        form: Compression,
    },
}

/// Recognise the format by the first bytes; `None` for anything else, such as an ELF file.
pub fn sniff(data: &[u8]) -> Option<Compression> {
    const MAGICS: [(&[u8], Compression); 7] = [
        (&[0x1f, 0x8b, 0x08], Compression::Gzip),
        (&[0xfd, b'7', b'z', b'X', b'Z', 0x00], Compression::Xz),
        (&[0x28, 0xb5, 0x2f, 0xfd], Compression::Zstd),
        (&[0x02, 0x21, 0x4c, 0x18], Compression::Lz4Legacy),
        (b"BZh", Compression::Bzip2),
        (&[0x89, b'L', b'Z', b'O'], Compression::Lzo),
        (&[0x5d, 0x00, 0x00], Compression::Lzma),
    ];
    MAGICS.iter().find(|(magic, _)| data.starts_with(magic)).map(|&(_, form)| form)
}

/// A reader that unpacks `source` on the fly.
///
/// The legacy lz4 frame is not for streaming: see [`unpack`].
pub(crate) fn reader<'a, R: Read + 'a>(
    form: Compression,
    mut source: R,
) -> Result<Box<dyn Read + 'a>, UnpackError> {
    let damaged = |source: io::Error| UnpackError::Damaged { form, source };
    Ok(match form {
        Compression::Gzip => Box::new(flate2::read::GzDecoder::new(source)),
        Compression::Xz => {
            let stream = liblzma::stream::Stream::new_stream_decoder(LZMA_MEMORY_MAX_BYTES, 0)
                .map_err(|e| damaged(e.into()))?;
            Box::new(liblzma::read::XzDecoder::new_stream(source, stream))
        }
        Compression::Lzma => {
            let stream = liblzma::stream::Stream::new_lzma_decoder(LZMA_MEMORY_MAX_BYTES)
                .map_err(|e| damaged(e.into()))?;
            Box::new(liblzma::read::XzDecoder::new_stream(source, stream))
        }
        Compression::Zstd => Box::new(
            ruzstd::decoding::StreamingDecoder::new_with_max_window_size(
                source,
                ZSTD_WINDOW_MAX_BYTES,
            )
            .map_err(|e| damaged(io::Error::other(e)))?,
        ),
        Compression::Lz4Legacy => {
            let mut data = Vec::new();
            source.read_to_end(&mut data).map_err(damaged)?;
            Box::new(io::Cursor::new(unpack_lz4_legacy(&data, u64::MAX)?))
        }
        Compression::Bzip2 | Compression::Lzo => return Err(UnpackError::Unsupported { form }),
    })
}

/// The same for a completely compressed file, which may consist of several consecutive streams: all
/// are read, and trailing data is an error.
pub(crate) fn whole<'a, R: BufRead + 'a>(
    form: Compression,
    source: R,
) -> Result<Box<dyn Read + 'a>, UnpackError> {
    let damaged = |source: io::Error| UnpackError::Damaged { form, source };
    Ok(match form {
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(source)),
        Compression::Xz => {
            let concatenated = liblzma::stream::CONCATENATED;
            let stream =
                liblzma::stream::Stream::new_stream_decoder(LZMA_MEMORY_MAX_BYTES, concatenated)
                    .map_err(|e| damaged(e.into()))?;
            Box::new(liblzma::bufread::XzDecoder::new_stream(source, stream))
        }
        Compression::Lzma => {
            let stream = liblzma::stream::Stream::new_lzma_decoder(LZMA_MEMORY_MAX_BYTES)
                .map_err(|e| damaged(e.into()))?;
            let decoder = liblzma::bufread::XzDecoder::new_stream(source, stream);
            Box::new(OneLzma(decoder))
        }
        Compression::Zstd => Box::new(ZstdFrames::Between(source)),
        Compression::Lz4Legacy | Compression::Bzip2 | Compression::Lzo => {
            return Err(UnpackError::Unsupported { form });
        }
    })
}

/// The older format has one stream.
struct OneLzma<R: BufRead>(liblzma::bufread::XzDecoder<R>);

impl<R: BufRead> Read for OneLzma<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(buffer)?;
        if count == 0 && !buffer.is_empty() && !self.0.get_mut().fill_buf()?.is_empty() {
            let why = "trailing data after the end of its stream";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(count)
    }
}

type ZstdDecoder<R> = ruzstd::decoding::StreamingDecoder<R, ruzstd::decoding::FrameDecoder>;

/// Frames of zstd, one after the other (RFC 8878, 3).
enum ZstdFrames<R: BufRead> {
    /// At the start of a frame, or at the end.
    Between(R),
    Within(Box<ZstdDecoder<R>>),
    /// After an error.
    Broken,
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match std::mem::replace(self, ZstdFrames::Broken) {
                ZstdFrames::Between(mut source) => {
                    if source.fill_buf()?.is_empty() {
                        *self = ZstdFrames::Between(source);
                        return Ok(0);
                    }
                    let frame =
                        ZstdDecoder::new_with_max_window_size(source, ZSTD_WINDOW_MAX_BYTES)
                            .map_err(io::Error::other)?;
                    *self = ZstdFrames::Within(Box::new(frame));
                }
                ZstdFrames::Within(mut frame) => {
                    let count = frame.read(buffer)?;
                    let is_over = count == 0 && !buffer.is_empty();
                    *self = match is_over {
                        true => ZstdFrames::Between(frame.into_inner()),
                        false => ZstdFrames::Within(frame),
                    };
                    if !is_over {
                        return Ok(count);
                    }
                }
                ZstdFrames::Broken => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "damaged before"));
                }
            }
        }
    }
}

/// Unpack `data`; bytes after the end of the stream are ignored.
pub fn unpack(form: Compression, data: &[u8], limit_bytes: u64) -> Result<Vec<u8>, UnpackError> {
    if form == Compression::Lz4Legacy {
        return unpack_lz4_legacy(data, limit_bytes);
    }
    let mut out = Vec::new();
    reader(form, data)?
        .take(limit_bytes.saturating_add(1))
        .read_to_end(&mut out)
        .map_err(|source| UnpackError::Damaged { form, source })?;
    if out.len() as u64 > limit_bytes {
        return Err(UnpackError::TooLarge { form, limit_bytes });
    }
    Ok(out)
}

/// A legacy frame is its magic, then blocks that each begin with their packed size, without an end
/// mark: it ends where no further block fits.
fn unpack_lz4_legacy(data: &[u8], limit_bytes: u64) -> Result<Vec<u8>, UnpackError> {
    let form = Compression::Lz4Legacy;
    let mut out = Vec::new();
    let mut rest = data.get(4..).unwrap_or_default();
    while let Some((size, tail)) = rest.split_first_chunk::<4>() {
        // The last four bytes of a kernel's payload are its unpacked size, not a block's.
        if tail.is_empty() {
            break;
        }
        let size = u32::from_le_bytes(*size) as usize;
        let Some((block, after)) = tail.split_at_checked(size) else {
            return Err(UnpackError::Damaged {
                form,
                source: io::Error::new(io::ErrorKind::UnexpectedEof, "a block is truncated"),
            });
        };
        let plain = lz4_flex::block::decompress(block, LZ4_LEGACY_BLOCK_BYTES)
            .map_err(|e| UnpackError::Damaged { form, source: io::Error::other(e) })?;
        out.extend_from_slice(&plain);
        if out.len() as u64 > limit_bytes {
            return Err(UnpackError::TooLarge { form, limit_bytes });
        }
        rest = after;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn lz4_legacy(data: &[u8]) -> Vec<u8> {
        let mut out = vec![0x02, 0x21, 0x4c, 0x18];
        for chunk in data.chunks(LZ4_LEGACY_BLOCK_BYTES) {
            let block = lz4_flex::block::compress(chunk);
            out.extend_from_slice(&(block.len() as u32).to_le_bytes());
            out.extend_from_slice(&block);
        }
        out
    }

    /// Check that each supported format round-trips, and that the size appended by the kernel's
    /// build is ignored.
    #[test]
    fn round_trips() {
        let plain: Vec<u8> = (0..2_200_000u32).flat_map(|i| (i / 977).to_le_bytes()).collect();
        let size = (plain.len() as u32).to_le_bytes();
        let xz = liblzma::encode_all(&plain[..], 0).unwrap();
        let zstd = ruzstd::encoding::compress_to_vec(
            &plain[..],
            ruzstd::encoding::CompressionLevel::Fastest,
        );
        let forms = [
            (Compression::Gzip, gzip(&plain)),
            (Compression::Xz, xz),
            (Compression::Zstd, zstd),
            (Compression::Lz4Legacy, lz4_legacy(&plain)),
        ];
        for (form, mut packed) in forms {
            assert_eq!(sniff(&packed), Some(form));
            assert_eq!(unpack(form, &packed, 1 << 30).unwrap(), plain, "{form}");
            packed.extend_from_slice(&size);
            assert_eq!(unpack(form, &packed, 1 << 30).unwrap(), plain, "{form} with its size");
        }
    }

    /// Check that a truncated stream is an error for every format.
    #[test]
    fn cut_short() {
        let plain: Vec<u8> =
            (0..200_000u32).flat_map(|i| i.wrapping_mul(i).to_le_bytes()).collect();
        let zstd = ruzstd::encoding::compress_to_vec(
            &plain[..],
            ruzstd::encoding::CompressionLevel::Fastest,
        );
        let xz = liblzma::encode_all(&plain[..], 0).unwrap();
        for packed in [gzip(&plain), xz, zstd, lz4_legacy(&plain)] {
            let form = sniff(&packed).unwrap();
            let error = unpack(form, &packed[..packed.len() / 2], 1 << 30).unwrap_err();
            assert!(matches!(error, UnpackError::Damaged { .. }), "{form}: {error}");
        }
    }

    /// Check that the limit stops a decompression bomb.
    #[test]
    fn bounded() {
        let packed = gzip(&vec![0; 1 << 20]);
        let error = unpack(Compression::Gzip, &packed, 1 << 10).unwrap_err();
        assert!(matches!(error, UnpackError::TooLarge { limit_bytes: 1024, .. }));
    }

    /// Check the error of unsupported formats.
    #[test]
    fn unsupported() {
        let error = unpack(sniff(b"BZh91AY").unwrap(), b"BZh91AY", 10).unwrap_err();
        assert!(error.to_string().starts_with("bzip2 compression is not supported"));
    }
}
