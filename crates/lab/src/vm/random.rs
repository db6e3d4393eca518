//! The guest's random numbers, which depend only on the plan's seed.
//!
//! A kernel mixes the time of each interrupt, to the cycle, into its entropy pool, and derives a
//! new key from it every few seconds. So a boot that took a little longer, because of a file of
//! another size or a jump of QEMU's clock, had other hash keys, and lookups walked other buckets.
//! Here the generator's key is overwritten, by DMA of the firmware device, with one from the host:
//! random numbers then depend only on how many were drawn since.

mod find;

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::sync::Mutex;

use netplumb_model::arch::Arch;

use super::dma::Dma;

/// Name of the item with the key.
const ITEM: &str = "opt/netplumb/random";
/// Size of a key of ChaCha20.
const KEY_BYTES: usize = 32;
/// Size of the number of keys drawn.
const GENERATION_BYTES: usize = 8;
/// `_IO('R', 7)` (include/uapi/linux/random.h): draw a new key, for all CPUs.
const RNDRESEEDCRNG: libc::Ioctl = 0x5207;
/// `struct base_crng` of drivers/char/random.c, which begins with the key: since Linux 5.18
/// (186873c549df), and 5.15.44 and 5.10.119.
const GENERATOR: &str = "base_crng";
/// Maximum number of tries: something else may draw numbers between the steps.
const TRIES: usize = 4;
/// The device to read random numbers from.
const DEVICE: &str = "/dev/urandom";

/// QEMU's arguments for a seed.
pub(super) fn qemu_args(seed: u32) -> [String; 2] {
    // Any 32 bytes are a key; these are printable.
    let key = format!("{seed:0width$}", width = KEY_BYTES);
    ["-fw_cfg".into(), format!("name={ITEM},string={key}")]
}

/// The generator of this kernel, and the numbers that it must return after its key was set.
#[derive(Debug)]
struct Generator {
    /// Of its key.
    physical: u64,
    /// Of the number of keys drawn, where it has to be set, too: arm64 draws a number at the end of each system call,
    /// to move the stack (`choose_random_kstack_offset`), so also for the one that draws the key. Then the CPU has a
    /// key of its own already, and takes another one only if the number is another.
    generation: Option<u64>,
    item: u16,
    first: Option<[u8; KEY_BYTES]>,
    /// Both are kept open: in a guest that resumes from a saved state QEMU has to translate all
    /// code again, and opening a file or allocating pages would take it longer than the rest.
    device: File,
    dma: Dma,
}

/// A kernel has one generator.
static GUESTS: Mutex<Option<Generator>> = Mutex::new(None);

/// Whether the host wants this guest to be the same as every other of its plan.
///
/// # Errors
/// The device can't be read.
pub(super) fn wanted() -> io::Result<bool> {
    Ok(Dma::open()?.find(ITEM)?.is_some())
}

/// Find the generator, and set its key for the first time. To be called once, by init.
///
/// # Errors
/// The kernel's generator is unknown, or can't be found.
pub(super) fn begin() -> io::Result<()> {
    let mut dma = Dma::open()?;
    let (item, bytes) = dma.find(ITEM)?.ok_or_else(|| io::Error::other("the host gives no key"))?;
    if bytes != KEY_BYTES {
        return Err(io::Error::other("the host's key is of another size"));
    }
    let symbols = BufReader::new(File::open("/proc/kallsyms")?);
    let map = fs::read_to_string("/proc/iomem")?;
    let device = File::open(DEVICE)?;
    let named = generator(symbols, &map)?;
    let mut generator = Generator {
        physical: named.unwrap_or_default(),
        generation: None,
        item,
        first: None,
        device,
        dma,
    };
    if named.is_none() || generator.set().is_err() {
        let found = find::by_drawing(&generator.device, &map)?.ok_or_else(|| {
            io::Error::other(format!("the kernel has no {GENERATOR}, or does not tell where"))
        })?;
        generator.physical = found.key;
        generator.first = None;
        if generator.set().is_err() {
            generator.generation = Some(found.generation);
            generator.first = None;
            generator.set()?;
        }
    }
    *lock() = Some(generator);
    Ok(())
}

/// Make all following random numbers depend on the seed, if `begin` succeeded.
///
/// # Errors
/// The key could not be set.
pub fn renew() -> io::Result<()> {
    match &mut *lock() {
        Some(generator) => generator.set(),
        None => Ok(()),
    }
}

/// Whether random numbers depend on the seed.
pub fn is_set() -> bool {
    lock().is_some()
}

fn lock() -> std::sync::MutexGuard<'static, Option<Generator>> {
    match GUESTS.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}

impl Generator {
    /// Set the key, and verify it by the resulting random numbers.
    fn set(&mut self) -> io::Result<()> {
        self.dma.take()?;
        let set = self.set_by_dma();
        self.dma.give();
        set
    }

    fn set_by_dma(&mut self) -> io::Result<()> {
        for _ in 0..TRIES {
            // SAFETY: the request takes no argument.
            if unsafe { libc::ioctl(self.device.as_raw_fd(), RNDRESEEDCRNG) } != 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the kernel's key, at its symbol's address, which it reads when it next draws; there is one CPU,
            // and it is here.
            unsafe {
                self.dma.fetch_to(self.item, KEY_BYTES, self.physical)?;
                // Any number does that is another one.
                if let Some(generation) = self.generation {
                    self.dma.fetch_to(self.item, GENERATION_BYTES, generation)?;
                }
            }
            let mut drawn = [0; KEY_BYTES];
            self.device.read_exact(&mut drawn)?;
            if self.first.replace(drawn) == Some(drawn) {
                return Ok(());
            }
        }
        Err(io::Error::other("its key can't be set"))
    }
}

/// The symbol where what /proc/iomem calls the kernel's code begins.
fn first_symbol(arch: Arch) -> &'static str {
    match arch {
        Arch::X86_64 => "_text",
        // Since Linux 5.10 (6cc9203b8ee9).
        Arch::Arm64 => "_stext",
    }
}

/// Where the generator's key is in memory, by /proc/kallsyms and /proc/iomem.
fn generator(symbols: impl BufRead, map: &str) -> io::Result<Option<u64>> {
    let start = map.lines().find_map(|line| {
        let (range, what) = line.trim().split_once(" : ")?;
        let from = (what == "Kernel code").then(|| range.split('-').next())??;
        u64::from_str_radix(from, 16).ok().filter(|at| *at != 0)
    });
    let mut text = None;
    for line in symbols.lines() {
        let line = line?;
        let mut words = line.split_whitespace();
        let (Some(address), Some(_), Some(name)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        if words.next().is_some() || ![first_symbol(Arch::OWN), GENERATOR].contains(&name) {
            continue;
        }
        let address = u64::from_str_radix(address, 16).ok().filter(|at| *at != 0);
        match (name, address, text, start) {
            (_, address, ..) if name != GENERATOR => text = address,
            (_, Some(address), Some(text), Some(start)) => {
                return Ok(address.checked_sub(text).map(|offset| start + offset));
            }
            _ => return Ok(None),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "00100000-0ffdffff : System RAM\n  01000000-020031d0 : Kernel code\n";

    /// Check that the key is found by the offset from the kernel's first symbol, and not if
    /// addresses are hidden, or the generator is missing or in a module.
    #[test]
    fn where_the_key_is() {
        let of = |text: &str, map| generator(text.as_bytes(), map).unwrap();
        let symbols = "ffffffff81000000 T _text\nffffffff84095d00 b base_crng\n";
        assert_eq!(of(symbols, MAP), Some(0x0409_5d00));
        let hidden = symbols.replace("ffffffff8", "000000000");
        assert_eq!(of(&hidden.replace("01000000", "00000000"), MAP), None, "hidden");
        assert_eq!(of(symbols, ""), None);
        assert_eq!(of("ffffffff81000000 T _text\n", MAP), None);
        let module = symbols.replace("base_crng", "base_crng [other]");
        assert_eq!(of(&module, MAP), None);
    }

    /// Check that each seed has a key, of the size of the kernel's.
    #[test]
    fn a_key_for_each_seed() {
        let key = |seed| {
            let [_, item] = qemu_args(seed);
            item.split_once("string=").unwrap().1.to_string()
        };
        assert_eq!([key(1).len(), key(u32::MAX).len()], [KEY_BYTES; 2]);
        assert_ne!(key(1), key(7));
    }
}
