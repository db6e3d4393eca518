//! The files that user code comes from.
//!
//! A block of user code is known by its page: the plugin reports a hash of it, and the
//! files that a command can run are at hand, so their pages can be hashed, too. The
//! hash identifies the file and the place in it, whatever process runs it and at which
//! address. Where several files have such a page, its page frame decides: the guest's
//! agent reports the frames of these pages in its cache, where they stay, since the
//! files are in its memory.

mod debug;
mod dwarf;
mod elf;
mod find;
mod functions;
mod lines;
mod names;
mod relocated;

pub use debug::debug_file;
pub use dwarf::{LinesError, debug_link, debug_link_checksum, has_lines};
pub use elf::{ImageError, build_id};
pub use find::{FileFunction, Finder};
pub(crate) use functions::inlined_in_words;
pub use functions::{inlined_into, listed, prototypes};
pub use lines::{FileLine, Lines, lines, loss_of};
pub use names::readable;
pub(crate) use names::{at_address, is_at_address};
pub use relocated::relocated;

use rustc_hash::FxHashMap;

/// A page of a file, and of the guest.
pub(crate) const PAGE_BYTES: usize = 4096;
/// EXACT_HASH_FACTOR of plugins/qemu/exact.h.
const HASH_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A function of a file, by the file's own addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFunction {
    /// Its first byte.
    pub start: u64,
    /// The address after its last byte.
    pub end: u64,
    /// Its symbol, as the file has it.
    pub name: String,
}

/// A part of a file that is mapped where it is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Where in the file it begins.
    pub offset: u64,
    /// Its address in the file's own terms.
    pub address: u64,
    /// How much of it is in the file.
    pub size_bytes: u64,
}

/// An ELF file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    /// The file's name.
    pub name: String,
    /// Where it starts if it is a program. Linkers give libraries one, too: the
    /// beginning of their code.
    pub entry: u64,
    /// Whether it is a program: not a library, nor what loads these.
    pub program: bool,
    /// By address, none over another.
    pub functions: Vec<ImageFunction>,
    /// Segments with code.
    pub segments: Vec<Segment>,
}

impl Image {
    /// Read an ELF file, called `name`; `debug` is a file with its symbols, if there is one.
    ///
    /// # Errors
    /// It is not an ELF file, or damaged.
    pub fn read(name: &str, file: &[u8], debug: Option<&[u8]>) -> Result<Image, ImageError> {
        elf::image(name, file, debug)
    }

    /// The address of the code at an offset of the file, if code is there.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        address_of(&self.segments, offset)
    }

    /// Whether functions have names: not only those that were found without symbols.
    pub fn has_symbols(&self) -> bool {
        let found = |name: &str| name.starts_with('[') || name.ends_with("@plt");
        self.functions.iter().any(|function| !found(&function.name))
    }

    /// The function at an address of the file.
    pub fn function(&self, address: u64) -> Option<usize> {
        let after = self.functions.partition_point(|f| f.start <= address);
        let index = after.checked_sub(1)?;
        (address < self.functions[index].end).then_some(index)
    }
}

/// The address of the code at an offset of a file, if code is there.
fn address_of(segments: &[Segment], offset: u64) -> Option<u64> {
    let within = |segment: &&Segment| {
        (segment.offset..segment.offset.saturating_add(segment.size_bytes)).contains(&offset)
    };
    let segment = segments.iter().find(within)?;
    Some((offset - segment.offset).wrapping_add(segment.address))
}

/// Where a page begins.
fn page_of(address: u64) -> u64 {
    address & !(PAGE_BYTES as u64 - 1)
}

/// The offset in its file of a page with code.
fn offset_of(segments: &[Segment], page: u64) -> Option<u64> {
    let has = |segment: &&Segment| {
        (page_of(segment.address)..segment.address.saturating_add(segment.size_bytes))
            .contains(&page)
    };
    let segment = segments.iter().find(has)?;
    Some(page_of(segment.offset) + (page - page_of(segment.address)))
}

/// Whether code is at an offset of an ELF file.
pub(crate) fn code_at(file: &[u8], offset: u64) -> bool {
    let Ok(elf) = elf::Elf::parse(file) else {
        return false;
    };
    // Executable segments may have headers, too, which only sections separate from code.
    let sections = elf::code(&elf);
    let address = address_of(&elf::segments(&elf), offset);
    address.is_some_and(|address| {
        sections.is_empty() || sections.iter().any(|(a, b)| (*a..*b).contains(&address))
    })
}

/// Where a block of code is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Index of the image.
    pub(crate) image: u32,
    /// What to subtract from the guest's address for the file's.
    pub(crate) bias: u64,
}

/// A page of the guest that code is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Page {
    /// [`page_hash`] of its content.
    pub(crate) hash: u64,
    /// The number of its frame; 0 if it is not known.
    pub(crate) frame: u32,
}

/// All files that a command's code may come from.
#[derive(Debug, Default)]
pub struct Images {
    images: Vec<Image>,
    /// By hash: images with such a page, and its address in them.
    pages: FxHashMap<u64, Vec<(u32, u64)>>,
    /// By page frame, where hashes are ambiguous: the image, and its page.
    frames: FxHashMap<u32, (u32, u64)>,
    /// Places that were found, for the next look-up.
    places: Vec<Place>,
}

impl Images {
    /// Add an ELF file, called `name`; `debug` is a file with its symbols, if there
    /// is one.
    ///
    /// # Errors
    /// It is not an ELF file, or damaged.
    pub fn add(&mut self, name: &str, file: &[u8], debug: Option<&[u8]>) -> Result<(), ImageError> {
        let image = Image::read(name, file, debug)?;
        let pages = elf::pages(name, file)?;
        let index = self.images.len() as u32;
        for (address, hash) in pages {
            self.pages.entry(hash).or_default().push((index, address));
        }
        self.images.push(image);
        Ok(())
    }

    /// Add a file that a test made up, with its pages: addresses and hashes.
    #[cfg(test)]
    pub(crate) fn add_made(&mut self, image: Image, pages: &[(u64, u64)]) {
        let index = self.images.len() as u32;
        for (address, hash) in pages {
            self.pages.entry(*hash).or_default().push((index, *address));
        }
        self.images.push(image);
    }

    /// All of them.
    pub fn images(&self) -> &[Image] {
        &self.images
    }

    /// Pages that the hash does not identify, since others are equal: image, and offset in its
    /// file.
    pub fn equal_pages(&self) -> Vec<(u32, u64)> {
        let equal = self.pages.values().filter(|pages| pages.len() > 1);
        let offset = |&(image, page): &(u32, u64)| {
            let segments = &self.images.get(image as usize)?.segments;
            Some((image, offset_of(segments, page)?))
        };
        let mut all: Vec<_> = equal.flatten().filter_map(offset).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The page of an image at an offset of its file is in this frame of the guest's memory.
    pub fn add_frame(&mut self, image: u32, offset: u64, frame: u32) {
        let Some(of) = self.images.get(image as usize) else {
            return;
        };
        let into = |segment: &&Segment| {
            let first = page_of(segment.offset);
            (first..segment.offset.saturating_add(segment.size_bytes)).contains(&offset)
        };
        for segment in of.segments.iter().filter(into) {
            let page = page_of(segment.address) + (offset - page_of(segment.offset));
            self.frames.insert(frame, (image, page));
        }
    }

    /// The hash of the page that code of an image is in.
    pub(crate) fn hash_at(&self, image: u32, address: u64) -> Option<u64> {
        let page = address & !(PAGE_BYTES as u64 - 1);
        let has = |all: &Vec<(u32, u64)>| all.contains(&(image, page));
        self.pages.iter().find(|(_, all)| has(all)).map(|(hash, _)| *hash)
    }

    /// Where the code at `address` comes from, in this page; and whether another file is as likely.
    pub(crate) fn place(&mut self, address: u64, page: Page) -> Option<(Place, bool)> {
        let start = page_of(address);
        let of = |&(image, at): &(u32, u64)| Place { image, bias: start.wrapping_sub(at) };
        let found = self.pages.get(&page.hash)?;
        let framed = self.frames.get(&page.frame).filter(|at| found.contains(at));
        // One page may be in several files; code beside already known code is in the
        // same file.
        let known = || found.iter().map(of).find(|p| self.places.contains(p));
        let place = framed.map(of).or_else(known);
        let place = place.or_else(|| found.first().map(of))?;
        if !self.places.contains(&place) {
            self.places.push(place);
        }
        let guessed = framed.is_none() && found.iter().any(|(image, _)| *image != place.image);
        Some((place, guessed))
    }
}

/// The hash of a page, as the plugin makes it; what is missing at its end is zero.
pub fn page_hash(page: &[u8]) -> u64 {
    let mut hash = 0u64;
    for n in 0..PAGE_BYTES / 8 {
        let mut word = [0; 8];
        let at = (n * 8).min(page.len());
        let rest = &page[at..page.len().min(at + 8)];
        word[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(HASH_FACTOR);
        hash ^= hash >> 32;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a page's hash is the plugin's: worked out once by its C.
    #[test]
    fn hashes() {
        assert_eq!(page_hash(&[]), 0);
        let page: Vec<u8> = (0..PAGE_BYTES).map(|n| n as u8).collect();
        assert_eq!(page_hash(&page), 0x99cf31599b4b400a);
        let mut cut = page.clone();
        cut[4000..].fill(0);
        assert_eq!(page_hash(&cut), page_hash(&page[..4000]));
    }

    const fn page(hash: u64, frame: u32) -> Page {
        Page { hash, frame }
    }

    /// Check that a page which two files share belongs to the one beside it, where its frame is not
    /// known.
    #[test]
    fn shared_pages() {
        let mut images = Images::default();
        images.add_made(Image::default(), &[(0x1000, 1)]);
        images.add_made(Image::default(), &[(0x5000, 1), (0x6000, 2)]);
        assert_eq!(images.place(0x7f00_0123, page(9, 0)), None);
        let (second, guessed) = images.place(0x7f00_6123, page(2, 0)).unwrap();
        assert_eq!((second.image, second.bias, guessed), (1, 0x7f00_0000, false));
        assert_eq!(images.place(0x7f00_5010, page(1, 0)), Some((second, true)));
        let (first, guessed) = images.place(0x1010, page(1, 0)).unwrap();
        assert_eq!((first.image, first.bias, guessed), (0, 0, true));
    }

    /// Check that equal pages are distinguished by their frames, also where the files take
    /// each other's place at an address, and that a frame with other content is ignored.
    #[test]
    fn frames() {
        let image = Image {
            segments: vec![Segment { offset: 0x1040, address: 0x2040, size_bytes: 0x1800 }],
            ..Image::default()
        };
        let mut images = Images::default();
        images.add_made(image.clone(), &[(0x2000, 1), (0x3000, 3)]);
        images.add_made(image, &[(0x2000, 1), (0x3000, 4)]);
        assert_eq!(images.equal_pages(), [(0, 0x1000), (1, 0x1000)]);
        images.add_frame(0, 0x1000, 70);
        images.add_frame(1, 0x1000, 80);
        for (frame, hash, image) in [(70, 1, 0), (80, 1, 1), (70, 1, 0), (80, 3, 0), (90, 4, 1)] {
            let (place, guessed) = images.place(0x7f00_0000, page(hash, frame)).unwrap();
            assert_eq!((place.image, guessed), (image, false), "{frame}");
        }
    }
}
