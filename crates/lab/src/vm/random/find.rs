//! Where the generator's key is, in a kernel without a symbol for it: `/proc/kallsyms` has data only with
//! CONFIG_KALLSYMS_ALL, which Debian's kernels of arm64 lack.
//!
//! Each time that a new key is requested, one place of the kernel's data gets 32 other bytes, and the number behind
//! them goes up by one (`struct base_crng`). It is found by that, twice.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use object::Endianness;
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};

use super::{KEY_BYTES, RNDRESEEDCRNG};

/// The kernel's memory, as an ELF file.
const MEMORY: &str = "/proc/kcore";
/// Its headers are within these.
const HEADER_BYTES: usize = 64 << 10;
/// The names of the kernel's data in /proc/iomem.
const DATA: [&str; 2] = ["Kernel data", "Kernel bss"];
/// A kernel's data is at most this large.
const MAX_BYTES: u64 = 256 << 20;
/// Keys that are drawn, at most: something else may draw one meanwhile.
const ROUNDS: usize = 6;
/// Offsets from the key to the number of keys drawn: behind it, or behind the time of the last (Linux
/// 5.18).
const GENERATIONS: [usize; 2] = [32, 40];
const WORD_BYTES: usize = 8;

/// Physical ranges of the kernel's data, by /proc/iomem: first and last address.
fn ranges(map: &str) -> Vec<(u64, u64)> {
    let range = |line: &str| {
        let (range, what) = line.trim().split_once(" : ")?;
        let (from, to) = range.split_once('-').filter(|_| DATA.contains(&what))?;
        let from = u64::from_str_radix(from, 16).ok().filter(|at| *at != 0)?;
        let to = u64::from_str_radix(to, 16).ok()?;
        (from..from + MAX_BYTES).contains(&to).then_some((from, to))
    };
    map.lines().filter_map(range).collect()
}

/// Where a physical address is in the kernel's memory as a file, by that file's headers.
fn offset_of(headers: &[u8], physical: u64) -> Option<u64> {
    let header = FileHeader64::<Endianness>::parse(headers).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, headers).ok()?;
    segments.iter().find_map(|segment| {
        let into = physical.checked_sub(segment.p_paddr(endian))?;
        let is_within = segment.p_type(endian) == PT_LOAD && into < segment.p_memsz(endian);
        is_within.then(|| segment.p_offset(endian) + into)
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let eight = bytes.get(at..at + WORD_BYTES)?;
    eight.try_into().ok().map(u64::from_le_bytes)
}

/// If the key may be at an offset, by the bytes before and after one was drawn: where its number is.
fn may_be(before: &[u8], after: &[u8], at: usize) -> Option<usize> {
    let words = (at..at + KEY_BYTES).step_by(WORD_BYTES);
    let drawn = |at| word(before, at) != word(after, at);
    let counted = |at: &usize| match (word(before, *at), word(after, *at)) {
        (Some(before), Some(after)) => before < u64::from(u32::MAX) && after == before + 1,
        _ => false,
    };
    let mut numbers = GENERATIONS.into_iter().map(|offset| at + offset);
    let number = numbers.find(counted);
    number.filter(|_| words.into_iter().all(drawn))
}

/// Physical addresses of the generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GeneratorAddresses {
    pub(super) key: u64,
    /// The number of keys drawn.
    pub(super) generation: u64,
}

/// Without those a word behind another one: that has the time of the last key as a part of it.
fn first_of_each(found: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    let is_first = |(place, at): &(usize, usize)| {
        let before = at.checked_sub(WORD_BYTES);
        before.is_none_or(|before| !found.contains(&(*place, before)))
    };
    found.iter().copied().filter(is_first).collect()
}

/// Where the generator of this kernel is, if it is found.
///
/// # Errors
/// The kernel denies access to its memory, or draws no key.
pub(super) fn by_drawing(device: &File, map: &str) -> io::Result<Option<GeneratorAddresses>> {
    let memory = File::open(MEMORY)?;
    let mut headers = vec![0; HEADER_BYTES];
    let filled = memory.read_at(&mut headers, 0)?;
    headers.truncate(filled);
    let of = |(from, to): (u64, u64)| {
        let offset = offset_of(&headers, from);
        offset.map(|offset| (from, offset, (to - from + 1) as usize))
    };
    let places: Vec<(u64, u64, usize)> = ranges(map).into_iter().filter_map(of).collect();
    let read = || -> io::Result<Vec<Vec<u8>>> {
        let each = places.iter().map(|(_, offset, bytes)| {
            let mut copy = vec![0; *bytes];
            memory.read_exact_at(&mut copy, *offset)?;
            Ok(copy)
        });
        each.collect()
    };
    let mut before = read()?;
    let mut left: Option<Vec<(usize, usize)>> = None;
    for _ in 0..ROUNDS {
        // SAFETY: the request takes no argument.
        if unsafe { libc::ioctl(device.as_raw_fd(), RNDRESEEDCRNG) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let after = read()?;
        let number = |place: usize, at| may_be(&before[place], &after[place], at);
        let is_drawn = |(place, at): &(usize, usize)| number(*place, *at).is_some();
        let found: Vec<(usize, usize)> = match &left {
            Some(left) => left.iter().copied().filter(is_drawn).collect(),
            None => {
                let all = after.iter().enumerate().flat_map(|(place, bytes)| {
                    let offsets = (0..bytes.len()).step_by(WORD_BYTES);
                    offsets.map(move |at| (place, at))
                });
                all.filter(is_drawn).collect()
            }
        };
        let found = first_of_each(found);
        match (&left, found.as_slice()) {
            (Some(_), [(place, at)]) => {
                let physical = |at: usize| places[*place].0 + at as u64;
                return Ok(number(*place, *at).map(|generation| GeneratorAddresses {
                    key: physical(*at),
                    generation: physical(generation),
                }));
            }
            // Another one was drawn meanwhile: begin anew.
            (_, []) => left = None,
            _ => left = Some(found),
        }
        before = after;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only the kernel's data is looked at.
    #[test]
    fn where_to_look() {
        let map = "40000000-4fffffff : System RAM\n  40210000-4185ffff : Kernel code\n  \
                   41eb0000-4220ffff : Kernel data\n";
        assert_eq!(ranges(map), [(0x41eb_0000, 0x4220_ffff)]);
        assert!(ranges("00000000-00000000 : Kernel data\n").is_empty());
        assert!(ranges("1000-ffffffffffff : Kernel bss\n").is_empty());
        assert_eq!(offset_of(b"\x7fELF", 1), None);
    }

    /// Check that a key is known by both, the bytes and their number, and that neither is enough.
    #[test]
    fn what_a_key_does() {
        let memory = |key: u8, number: u64| {
            let mut memory = vec![7; 16];
            memory.extend([key; KEY_BYTES]);
            memory.extend(number.to_le_bytes());
            memory.extend([0; 16]);
            memory
        };
        let found = |before: &[u8], after: &[u8]| -> Vec<usize> {
            let offsets = (0..before.len()).step_by(WORD_BYTES);
            offsets.filter(|at| may_be(before, after, *at).is_some()).collect()
        };
        assert_eq!(found(&memory(1, 4), &memory(2, 5)), [16_usize]);
        assert!(found(&memory(1, 4), &memory(1, 5)).is_empty());
        assert!(found(&memory(1, 4), &memory(2, 4)).is_empty());
        assert!(found(&memory(1, 4), &memory(2, 6)).is_empty());
        // With the time of the last one before the number.
        let timed = |key: u8, time: u64, number: u64| {
            let mut memory = memory(key, time);
            memory[16 + KEY_BYTES + WORD_BYTES..][..WORD_BYTES]
                .copy_from_slice(&number.to_le_bytes());
            memory
        };
        let both = found(&timed(1, 700, 4), &timed(2, 723, 5));
        assert_eq!(both, [16, 24]);
        assert_eq!(may_be(&timed(1, 700, 4), &timed(2, 723, 5), 16), Some(56));
        let both = both.into_iter().map(|at| (0, at)).collect();
        assert_eq!(first_of_each(both), [(0, 16)]);
        let mut half = memory(2, 5);
        half[24..32].fill(1);
        assert!(found(&memory(1, 4), &half).is_empty());
    }
}
