//! Single files out of a large `.tar.xz`, without unpacking the rest.
//!
//! `xz` with threads writes blocks that can be unpacked each by itself, and an index of them at the end of the file
//! (<https://tukaani.org/xz/xz-file-format.txt>). The positions of all files are listed once, which unpacks the whole
//! archive; after that, reading a file unpacks its block.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::DebError;
use super::archive::UNPACKED_MAX_BYTES;
use super::files::write;
use crate::compression::{self, Compression};

/// The prefix of a list's first line: its format.
const FORMAT: &str = "netplumb list 2";
/// Size of a stream's header, and of its footer.
const EDGE_BYTES: u64 = 12;
/// The last bytes of a footer.
const FOOTER_MAGIC: &[u8; 2] = b"YZ";
/// The largest index that is read.
const INDEX_MAX_BYTES: u64 = 64 << 20;
/// Most files of an archive.
const FILES_MAX: usize = 1 << 20;

/// A `.tar.xz`, with the places of its files.
#[derive(Debug)]
pub struct SparseTar {
    path: PathBuf,
    files: Vec<Listed>,
}

/// A plain file in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Listed {
    /// Its path, without the archive's one folder at the top.
    name: PathBuf,
    /// Where its content begins in the unpacked archive.
    at: u64,
    bytes: u64,
}

impl SparseTar {
    /// Open an archive, with the list of its files that is kept in `list`, or is written there.
    ///
    /// # Errors
    /// It is damaged, the list can't be written, or `cancelled` is set.
    pub fn open(
        path: &Path,
        list: &Path,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<SparseTar, DebError> {
        let files = match read_list(list) {
            Some(files) => files,
            None => {
                let files = all(path, cancelled)?;
                write_list(list, &files)
                    .map_err(|source| DebError::Write { path: list.to_owned(), source })?;
                files
            }
        };
        Ok(SparseTar { path: path.to_owned(), files })
    }

    /// The paths of all files, without the archive's one folder at the top.
    pub fn names(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| file.name.as_path())
    }

    /// Unpack the files that `wanted` returns true for, below `into`.
    ///
    /// # Errors
    /// The archive is damaged, or a file can't be written or is there already.
    pub fn unpack(
        &self,
        into: &Path,
        wanted: &dyn Fn(&Path) -> bool,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<(), DebError> {
        let mut files: Vec<&Listed> = self.files.iter().filter(|f| wanted(&f.name)).collect();
        if files.is_empty() {
            return Ok(());
        }
        files.sort_unstable_by_key(|file| file.at);
        let mut reader = Blocks::open(&self.path)?;
        let mut written = 0;
        for file in files {
            if cancelled() {
                return Err(DebError::Cancelled);
            }
            reader.go_to(file.at).map_err(damaged(&self.path))?;
            let mut data = (&mut reader).take(file.bytes);
            let target = into.join(&file.name);
            let bytes = write(&self.path, &mut data, &target, written)?;
            if bytes != file.bytes {
                return Err(damaged(&self.path)(io::ErrorKind::UnexpectedEof.into()));
            }
            written += bytes;
        }
        Ok(())
    }
}

fn damaged(path: &Path) -> impl Fn(io::Error) -> DebError {
    move |source| DebError::Damaged { path: path.to_owned(), source }
}

/// All plain files of an archive, but those outside of its folder at the top.
fn all(path: &Path, cancelled: &dyn Fn() -> bool) -> Result<Vec<Listed>, DebError> {
    let mut archive = tar::Archive::new(Blocks::open(path)?.take(UNPACKED_MAX_BYTES));
    let mut files = Vec::new();
    for entry in archive.entries().map_err(damaged(path))? {
        if cancelled() {
            return Err(DebError::Cancelled);
        }
        let entry = entry.map_err(damaged(path))?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let name = entry.path().map_err(damaged(path))?;
        if let Some(name) = below_top(&name) {
            files.push(Listed { name, at: entry.raw_file_position(), bytes: entry.size() });
        }
        if files.len() > FILES_MAX {
            return Err(DebError::TooLarge {
                path: path.to_owned(),
                limit: format!("{FILES_MAX} files"),
            });
        }
    }
    Ok(files)
}

/// A path without its first part, if the rest is a plain path that fits in a line of a list.
fn below_top(name: &Path) -> Option<PathBuf> {
    use std::path::Component;
    let mut parts = name.components().skip_while(|part| *part == Component::CurDir);
    parts.next()?;
    let mut inner = PathBuf::new();
    for part in parts {
        match part {
            Component::Normal(part) => inner.push(part),
            _ => return None,
        }
    }
    let text = inner.to_str()?;
    (!text.is_empty() && !text.contains('\n')).then_some(inner)
}

/// A list that was written before; none if it is not there, damaged or of another format.
fn read_list(list: &Path) -> Option<Vec<Listed>> {
    let text = fs::read_to_string(list).ok()?;
    let (first, lines) = text.split_once('\n')?;
    if first != first_line(lines) {
        return None;
    }
    let file = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let (at, bytes) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let name = below_top(&Path::new("top").join(words.next()?))?;
        Some(Listed { name, at, bytes })
    };
    lines.lines().map(file).collect()
}

/// The first line of a list: the format, and the checksum of the others.
fn first_line(lines: &str) -> String {
    format!("{FORMAT} {:08x}", crc32fast::hash(lines.as_bytes()))
}

fn write_list(list: &Path, files: &[Listed]) -> io::Result<()> {
    let beside = list.with_extension(format!("new-{}", std::process::id()));
    let lines: String = (files.iter())
        .map(|Listed { name, at, bytes }| format!("{at} {bytes} {}\n", name.display()))
        .collect();
    let text = format!("{}\n{lines}", first_line(&lines));
    let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, list));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

/// A block: where it begins in the file, and where its content does in the unpacked stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Block {
    packed_at: u64,
    at: u64,
    bytes: u64,
}

/// The unpacked stream, read from any place.
struct Blocks {
    path: PathBuf,
    /// The stream's header, for each block to begin with; empty if the index is not understood.
    header: Vec<u8>,
    /// At least one; a file whose index is not understood is a single one.
    blocks: Vec<Block>,
    /// Where the next byte is from.
    at: u64,
    /// The number of the block that is open.
    open: Option<(usize, Box<dyn Read>)>,
}

impl Blocks {
    fn open(path: &Path) -> Result<Blocks, DebError> {
        let failed = |source| DebError::Read { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(failed)?;
        let (header, blocks) = match index(&mut file).map_err(failed)? {
            Some((header, blocks)) => (header, blocks),
            None => {
                let whole = Block { packed_at: 0, at: 0, bytes: u64::MAX };
                (Vec::new(), vec![whole])
            }
        };
        Ok(Blocks { path: path.to_owned(), header, blocks, at: 0, open: None })
    }

    /// Read on from there.
    fn go_to(&mut self, at: u64) -> io::Result<()> {
        let wanted = self.block_of(at);
        let is_ahead =
            self.open.as_ref().is_some_and(|(open, _)| wanted == Some(*open) && self.at <= at);
        if !is_ahead {
            self.open = None;
            self.at = wanted.map_or(at, |wanted| self.blocks[wanted].at);
        }
        let skip = at - self.at;
        let skipped = io::copy(&mut self.by_ref().take(skip), &mut io::sink())?;
        match skipped == skip {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn block_of(&self, at: u64) -> Option<usize> {
        let after = self.blocks.partition_point(|block| block.at <= at);
        let block = after.checked_sub(1)?;
        (at - self.blocks[block].at < self.blocks[block].bytes).then_some(block)
    }

    fn decoder(&self, block: Block) -> io::Result<Box<dyn Read>> {
        // Of its own: descriptors that are clones share their place in the file.
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(block.packed_at))?;
        let packed = io::Cursor::new(self.header.clone()).chain(file);
        let source = BufReader::with_capacity(1 << 18, packed);
        let data = match self.header.is_empty() {
            true => compression::whole(Compression::Xz, source),
            // Of one block: what follows it is not read.
            false => compression::reader(Compression::Xz, source),
        };
        let data = data.map_err(io::Error::other)?;
        Ok(Box::new(data.take(block.bytes)))
    }
}

impl Read for Blocks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let (number, data) = match &mut self.open {
                Some(open) => open,
                None => {
                    let Some(number) = self.block_of(self.at) else {
                        return Ok(0);
                    };
                    let data = self.decoder(self.blocks[number])?;
                    self.open.insert((number, data))
                }
            };
            let count = data.read(buffer)?;
            self.at += count as u64;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let block = self.blocks[*number];
            let is_whole = self.at - block.at == block.bytes;
            self.open = None;
            match is_whole {
                true => {}
                // The end of a file without an index.
                false if self.header.is_empty() => return Ok(0),
                false => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }
}

/// The header of a stream and its blocks, by the index at its end; none if the file is not one stream
/// with such an index.
fn index(file: &mut File) -> io::Result<Option<(Vec<u8>, Vec<Block>)>> {
    let size = file.seek(SeekFrom::End(0))?;
    if size < 2 * EDGE_BYTES {
        return Ok(None);
    }
    let mut read = |at: u64, bytes: u64| -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; bytes as usize];
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut buffer)?;
        Ok(buffer)
    };
    let header = read(0, EDGE_BYTES)?;
    let footer = read(size - EDGE_BYTES, EDGE_BYTES)?;
    if compression::sniff(&header) != Some(Compression::Xz) || !footer.ends_with(FOOTER_MAGIC) {
        return Ok(None);
    }
    let stored = u32::from_le_bytes([footer[4], footer[5], footer[6], footer[7]]);
    let bytes = (u64::from(stored) + 1) * 4;
    let Some(at) = (size - EDGE_BYTES).checked_sub(bytes) else {
        return Ok(None);
    };
    if bytes > INDEX_MAX_BYTES {
        return Ok(None);
    }
    let blocks = blocks(&read(at, bytes)?, at);
    Ok(blocks.map(|blocks| (header, blocks)))
}

/// The blocks of an index that begins at this place of the file.
fn blocks(index: &[u8], index_at: u64) -> Option<Vec<Block>> {
    let mut rest = index.strip_prefix(&[0])?;
    let count = number(&mut rest)?;
    let (mut packed_at, mut at) = (EDGE_BYTES, 0_u64);
    let mut blocks = Vec::new();
    for _ in 0..count {
        let packed = number(&mut rest)?;
        let bytes = number(&mut rest)?;
        blocks.push(Block { packed_at, at, bytes });
        packed_at = packed_at.checked_add(packed.checked_next_multiple_of(4)?)?;
        at = at.checked_add(bytes)?;
    }
    (packed_at == index_at && !blocks.is_empty()).then_some(blocks)
}

/// A number of an index: seven bits in each byte, the least significant first.
fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..63).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use liblzma::stream::{Action, Check, Status, Stream};

    /// Files of an archive: a name, and what its content repeats.
    const FILES: [(&str, u8, usize); 4] = [
        ("linux/net/core/dev.c", b'd', 70_000),
        ("linux/drivers/net/veth.c", b'v', 3),
        ("linux/drivers/net/usb/usbnet.c", b'u', 200_000),
        ("linux/Makefile", b'M', 0),
    ];

    /// An archive in blocks of this many bytes, or in one.
    fn write_archive(path: &Path, block_bytes: Option<usize>) {
        let mut tar = tar::Builder::new(Vec::new());
        for (name, byte, bytes) in FILES {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes as u64);
            header.set_mode(0o644);
            let content = vec![byte; bytes];
            tar.append_data(&mut header, name, &content[..]).unwrap();
        }
        let tar = tar.into_inner().unwrap();
        let mut stream = Stream::new_easy_encoder(1, Check::Crc64).unwrap();
        let mut packed = Vec::with_capacity(tar.len() + (64 << 10));
        // A full flush ends a block.
        for chunk in tar.chunks(block_bytes.unwrap_or(tar.len())) {
            let mut rest = chunk;
            loop {
                let before = stream.total_in();
                let action = match block_bytes {
                    Some(_) => Action::FullFlush,
                    None => Action::Run,
                };
                let status = stream.process_vec(rest, &mut packed, action).unwrap();
                rest = &rest[(stream.total_in() - before) as usize..];
                if rest.is_empty() && (block_bytes.is_none() || status == Status::StreamEnd) {
                    break;
                }
            }
        }
        while stream.process_vec(&[], &mut packed, Action::Finish).unwrap() != Status::StreamEnd {}
        fs::write(path, packed).unwrap();
    }

    /// Check that single files come out as they went in, of an archive in many blocks and in one, by a new list and by
    /// an existing one; and that a damaged list is made again.
    #[test]
    fn files_by_their_places() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("source.tar.xz");
        let list = folder.path().join("source.list");
        let go_on = || false;
        for block_bytes in [Some(10_000), Some(65_536), None] {
            write_archive(&path, block_bytes);
            let count = Blocks::open(&path).unwrap().blocks.len();
            assert_eq!(count > 1, block_bytes.is_some(), "{count}");
            let _ = fs::remove_file(&list);
            let listed = SparseTar::open(&path, &list, &go_on).unwrap().files;
            for (again, &(name, byte, bytes)) in FILES.iter().rev().enumerate() {
                let archive = SparseTar::open(&path, &list, &go_on).unwrap();
                assert_eq!(archive.files, listed);
                let name = name.strip_prefix("linux/").unwrap();
                let into = folder.path().join(format!("{block_bytes:?}{again}"));
                let wanted = |of: &Path| of == Path::new(name);
                archive.unpack(&into, &wanted, &go_on).unwrap();
                assert_eq!(fs::read(into.join(name)).unwrap(), vec![byte; bytes]);
            }
            let into = folder.path().join(format!("{block_bytes:?}"));
            let archive = SparseTar::open(&path, &list, &go_on).unwrap();
            archive.unpack(&into, &|_| true, &go_on).unwrap();
            for (name, byte, bytes) in FILES {
                let name = name.strip_prefix("linux/").unwrap();
                assert_eq!(fs::read(into.join(name)).unwrap(), vec![byte; bytes]);
            }
            let text = fs::read_to_string(&list).unwrap();
            let last = text.trim_end().rfind('\n').unwrap();
            let first = text.find('\n').unwrap() + 1;
            let changed = format!("{}9{}", &text[..first], &text[first..]);
            for damaged in [&text[..=last], &text[..first], "", &changed] {
                fs::write(&list, damaged).unwrap();
                let again = SparseTar::open(&path, &list, &go_on).unwrap();
                assert_eq!(again.files, listed);
                assert_eq!(fs::read_to_string(&list).unwrap(), text);
            }
        }
    }

    /// Check that a damaged archive is an error, and an inconsistent index is not.
    #[test]
    fn damaged_archives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("source.tar.xz");
        write_archive(&path, Some(10_000));
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0xff;
        fs::write(&path, &bytes).unwrap();
        let list = folder.path().join("list");
        assert!(SparseTar::open(&path, &list, &|| false).is_err());
        assert!(!list.exists());
        assert_eq!(blocks(&[0, 1, 40, 100, 0, 0], 51), None);
        assert_eq!(blocks(&[0, 1, 40, 100, 0, 0], 52).map(|b| b.len()), Some(1));
        assert_eq!(blocks(&[0, 0xff], 12), None);
    }

    /// Check that a list is not written if it was cancelled, and that names which lead elsewhere are in
    /// none.
    #[test]
    fn cancelled_and_odd_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("source.tar.xz");
        write_archive(&path, None);
        let list = folder.path().join("list");
        let cancelled = SparseTar::open(&path, &list, &|| true);
        assert!(matches!(cancelled, Err(DebError::Cancelled)));
        assert!(!list.exists());
        for odd in ["linux", "linux/../x", "linux/a\nb"] {
            assert_eq!(below_top(Path::new(odd)), None, "{odd:?}");
        }
        assert_eq!(below_top(Path::new("./linux/a")), Some("a".into()));
    }
}
