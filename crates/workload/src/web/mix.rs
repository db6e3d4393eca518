//! The files of a web server, and in which order they are asked for, as SPECweb99 has it: four classes
//! of nine sizes in each directory, chosen in shares of 35, 50, 14 and 1%; within a class, and among
//! directories, by Zipf's law (SPEC, "The Workload for the SPECweb99 Benchmark").
//!
//! Requests for dynamic pages, which are 30% there, are left out.

use std::sync::LazyLock;

use netplumb_model::web::WebLoad;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// The requests of each class, of a hundred.
const SHARES: [usize; CLASSES] = [35, 50, 14, 1];
const CLASSES: usize = 4;
const SIZES: usize = 9;
/// How often each size of a class is asked for, in thousandths: 1/1 to 1/9, the most for the middle.
const POPULARITY: [u32; SIZES] = [39, 59, 88, 178, 353, 118, 71, 50, 44];
/// Period in bytes of the contents of all files, a prime: each file begins at another place.
const PERIOD: usize = 65_521;

/// A file, as SPECweb99 numbers them: directory, class and size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileOf {
    directory: u32,
    class: usize,
    size: usize,
}

/// All files of some directories.
pub fn files(directories: u32) -> impl Iterator<Item = FileOf> {
    (0..directories).flat_map(|directory| {
        (0..CLASSES)
            .flat_map(move |class| (0..SIZES).map(move |size| FileOf { directory, class, size }))
    })
}

impl FileOf {
    /// Its path below the server's root, without a slash before it.
    pub fn path(&self) -> String {
        format!("{}/class{}_{}", self.folder(), self.class, self.size.saturating_add(1))
    }

    /// The directory that it is in.
    pub fn folder(&self) -> String {
        format!("dir{:05}", self.directory)
    }

    /// Its size: multiples of 102.4, 1,024, 10,240 and 102,400 bytes.
    pub fn size_bytes(&self) -> u64 {
        let unit_tenths = 1024 * 10_u64.pow(self.class as u32);
        (self.size as u64 + 1) * unit_tenths / 10
    }

    /// Offset of its contents in the period.
    fn begins(&self) -> usize {
        let number = (self.directory as usize * CLASSES + self.class) * SIZES + self.size;
        number * 7_919 % PERIOD
    }

    /// Up to `bytes` bytes of its contents, at most a period, from offset `at` on.
    pub fn contents(&self, at: u64, bytes: usize) -> &'static [u8] {
        let from = (self.begins() + (at % PERIOD as u64) as usize) % PERIOD;
        &CONTENTS[from..from + bytes.min(PERIOD)]
    }

    /// Whether these are its contents from `at` on.
    pub fn has(&self, at: u64, bytes: &[u8]) -> bool {
        let pieces = (0_u64..).zip(bytes.chunks(PERIOD));
        let mut pieces = pieces.map(|(n, piece)| (at + n * PERIOD as u64, piece));
        pieces.all(|(at, piece)| self.contents(at, piece.len()) == piece)
    }
}

/// Two periods, so that a period from any of the first is in one piece.
static CONTENTS: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut random = Pcg64Mcg::seed_from_u64(99);
    let mut contents = vec![0; PERIOD];
    random.fill_bytes(&mut contents);
    contents.extend_from_within(..);
    contents
});

/// Which files are asked for: the same for the same load.
#[derive(Debug)]
pub struct Requests {
    load: WebLoad,
    random: Pcg64Mcg,
    drawn: u32,
    /// The classes that are left of a hundred requests.
    classes: Vec<usize>,
}

impl Requests {
    /// The sequence of requests of a load.
    pub fn from_load(load: WebLoad) -> Requests {
        Requests {
            load,
            random: Pcg64Mcg::seed_from_u64(u64::from(load.seed)),
            drawn: 0,
            classes: Vec::new(),
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        // The bias of a remainder is below 1e-12 for such limits.
        (self.random.next_u64() % limit.max(1) as u64) as usize
    }

    /// The number of one item, drawn by weight.
    fn weighted(&mut self, weights: impl Iterator<Item = u32> + Clone) -> usize {
        let sum: u32 = weights.clone().sum();
        let mut left = self.below(sum as usize) as u32;
        for (number, weight) in weights.enumerate() {
            if left < weight {
                return number;
            }
            left -= weight;
        }
        0
    }
}

impl Iterator for Requests {
    type Item = FileOf;

    fn next(&mut self) -> Option<FileOf> {
        if self.drawn == self.load.requests {
            return None;
        }
        self.drawn += 1;
        if self.classes.is_empty() {
            // In shares that are exact for each hundred: with few requests, whether one of the
            // largest is among them would matter more than the settings.
            self.classes = (SHARES.iter().enumerate())
                .flat_map(|(class, share)| vec![class; *share])
                .collect();
        }
        let at = self.below(self.classes.len());
        let class = self.classes.swap_remove(at);
        let size = self.weighted(POPULARITY.into_iter());
        let directories = self.load.directories;
        let directory = self.weighted((1..=directories).map(|rank| 1_000_000 / rank)) as u32;
        Some(FileOf { directory, class, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(requests: u32) -> WebLoad {
        WebLoad { requests, connections: 1, directories: 3, seed: 1 }
    }

    /// Check the sizes of files, and that a directory has the published 5 MB of them.
    #[test]
    fn sizes() {
        let all: Vec<FileOf> = files(1).collect();
        assert_eq!(all.len(), 36);
        let of = |n: usize| (all[n].path(), all[n].size_bytes());
        assert_eq!(of(0), ("dir00000/class0_1".into(), 102));
        assert_eq!(of(8), ("dir00000/class0_9".into(), 921));
        assert_eq!(of(9), ("dir00000/class1_1".into(), 1_024));
        assert_eq!(of(35), ("dir00000/class3_9".into(), 921_600));
        let sum: u64 = all.iter().map(FileOf::size_bytes).sum();
        assert!(sum <= netplumb_model::web::DIRECTORY_BYTES, "{sum}");
    }

    /// Check that classes come in their shares, the middle size and the first directory most often,
    /// in the same order each time, and in another with another seed.
    #[test]
    fn shares() {
        let drawn: Vec<FileOf> = Requests::from_load(load(10_000)).collect();
        for (class, share) in SHARES.iter().enumerate() {
            let of = drawn.iter().filter(|file| file.class == class).count();
            assert_eq!(of, share * 100);
        }
        let share = |is: &dyn Fn(&FileOf) -> bool| {
            drawn.iter().filter(|file| is(file)).count() as f64 / drawn.len() as f64
        };
        assert!((share(&|file| file.size == 4) - 0.353).abs() < 0.02);
        assert!((share(&|file| file.size == 8) - 0.044).abs() < 0.01);
        assert!((share(&|file| file.directory == 0) - 6.0 / 11.0).abs() < 0.02);
        assert_eq!(drawn, Requests::from_load(load(10_000)).collect::<Vec<_>>());
        let other = WebLoad { seed: 2, ..load(10_000) };
        assert_ne!(drawn, Requests::from_load(other).collect::<Vec<_>>());
    }

    /// Check that contents differ from another file's, and from another offset's.
    #[test]
    fn contents() {
        let all: Vec<FileOf> = files(2).collect();
        let (one, other) = (all[35], all[71]);
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < one.size_bytes() {
            let left = one.size_bytes() as usize - bytes.len();
            bytes.extend_from_slice(one.contents(bytes.len() as u64, left));
        }
        assert!(one.has(0, &bytes));
        assert!(one.has(100_000, &bytes[100_000..]));
        assert!(!one.has(1, &bytes));
        assert!(!other.has(0, &bytes));
        bytes[500_000] ^= 1;
        assert!(!one.has(0, &bytes));
    }
}
