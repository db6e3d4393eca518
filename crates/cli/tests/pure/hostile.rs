//! Files that are not what they claim to be: recordings that were changed, databases made to keep a
//! reader busy, bytes that flipped, experiments and packages that broke on their way. Each is read,
//! or refused with an error that gives the reason; nothing else happens, within bounds on processor
//! time and memory. Randomness comes from seeds, so each run is the same.

mod databases;
mod experiments;
mod flips;
mod made;
mod names;
mod packages;
mod tampered;

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;

use crate::common::{Place, Ran, Running};

/// Processor time that any one command may take: a busy machine makes it no longer.
const CPU_SECONDS: u64 = 60;
/// Address space that it may have.
const MEMORY_BYTES: u64 = 2 << 30;

/// Run a command within bounds, and check that it ends as a command ends: by itself, with a
/// code of ours, and no panic.
fn bounded(command: &mut Command, what: &str) -> Ran {
    let limits = || {
        for (resource, most) in [
            (libc::RLIMIT_CPU, CPU_SECONDS),
            (libc::RLIMIT_AS, MEMORY_BYTES),
            (libc::RLIMIT_CORE, 0),
        ] {
            let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
            // SAFETY: a limit of this process's, from a struct that lives.
            if unsafe { libc::setrlimit(resource, &limit) } != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: what runs between fork and exec allocates nothing and takes no lock.
    unsafe { command.pre_exec(limits) };
    let ran = Running::start(command).finish();
    assert_eq!(ran.status.signal(), None, "{what}: {ran:#?}");
    let code = ran.status.code();
    assert!(matches!(code, Some(0..=4)), "{what}: {ran:#?}");
    assert!(!ran.stderr.contains("panicked"), "{what}: {ran:#?}");
    if code != Some(0) {
        assert!(!ran.stderr.trim().is_empty(), "{what}: nothing said");
    }
    ran
}

/// The same of `plumb`, with words that hold no blanks.
fn plumb(place: &Place, words: &str, what: &str) -> Ran {
    bounded(&mut place.plumb(words), &format!("{what}: plumb {words}"))
}

/// How a report can be rendered.
const FORMATS: [&str; 12] = [
    "",
    "--tree --top 0",
    "--csv",
    "--json",
    "--folded",
    "--callgrind",
    "--pprof",
    "--speedscope",
    "--svg",
    "--markdown",
    "--openmetrics",
    "--html out.html",
];

/// Numbers that look random, from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}
