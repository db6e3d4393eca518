//! Which CPUs work for the queues of a device: the files of /sys/class/net/DEV/queues
//! (Documentation/networking/scaling.rst).

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use netplumb_model::experiment::{NO_CPUS, Steering, listed};

use crate::cpus;
use crate::netns::Namespace;

/// Bits of each number of a mask.
const BITS: u32 = 32;

/// The names of a device's queues that have a setting.
///
/// # Errors
/// The device does not exist.
pub fn queues(namespace: &Namespace, device: &str, which: Steering) -> io::Result<Vec<String>> {
    let folder = folder(device)?;
    let names = namespace.with_sysfs(|| {
        let names = fs::read_dir(&folder)?.flatten();
        let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        Ok(names.collect::<Vec<String>>())
    })?;
    let mut queues: Vec<String> =
        (names.into_iter()).filter(|name| name.starts_with(which.queues())).collect();
    queues.sort_by_key(|name| (name.len(), name.clone()));
    Ok(queues)
}

/// The CPUs of a queue, as a list.
///
/// # Errors
/// The queue or the setting does not exist: xps_cpus of a device with a single queue.
pub fn read(
    namespace: &Namespace,
    device: &str,
    queue: &str,
    which: Steering,
) -> io::Result<String> {
    let path = path(device, queue, which)?;
    let mask = namespace.with_sysfs(|| fs::read_to_string(&path));
    let mask = mask.map_err(|error| why(which, error))?;
    let cpus = of_mask(&mask).ok_or_else(|| io::Error::other("the mask of CPUs can't be read"))?;
    Ok(listed(&cpus))
}

/// Set the CPUs of a queue.
///
/// # Errors
/// As [`read`], or the CPU does not exist.
pub fn write(
    namespace: &Namespace,
    device: &str,
    queue: &str,
    which: Steering,
    list: &str,
) -> io::Result<()> {
    let path = path(device, queue, which)?;
    let cpus = match list == NO_CPUS {
        true => BTreeSet::new(),
        false => cpus::parse(list).ok_or(ErrorKind::InvalidInput)?,
    };
    let mask = mask(&cpus);
    let written = namespace.with_sysfs(|| fs::write(&path, &mask));
    written.map_err(|error| why(which, error))
}

/// netif_set_xps_queue refuses devices with one queue (xps_cpus_show in net/core/net-sysfs.c: ENOENT).
fn why(which: Steering, error: io::Error) -> io::Error {
    match (which, error.kind()) {
        (Steering::Xps, ErrorKind::NotFound) => io::Error::new(
            ErrorKind::Unsupported,
            "a device with a single queue to send by has none; more come with `ethtool -L`",
        ),
        (_, ErrorKind::NotFound) => {
            io::Error::new(ErrorKind::Unsupported, "this kernel has none (CONFIG_RPS, CONFIG_XPS)")
        }
        _ => error,
    }
}

fn folder(device: &str) -> io::Result<PathBuf> {
    // Not a valid device name (dev_valid_name, net/core/dev.c).
    if device.contains('/') || [".", "..", ""].contains(&device) {
        return Err(ErrorKind::InvalidInput.into());
    }
    Ok(PathBuf::from(format!("/sys/class/net/{device}/queues")))
}

fn path(device: &str, queue: &str, which: Steering) -> io::Result<PathBuf> {
    let number = queue.strip_prefix(which.queues());
    let is_queue = number.is_some_and(|n| n.parse::<u32>().is_ok());
    if !is_queue {
        return Err(ErrorKind::InvalidInput.into());
    }
    Ok(folder(device)?.join(queue).join(which.as_str()))
}

/// A mask in the kernel's format: numbers in hexadecimal, the highest CPUs first.
fn mask(cpus: &BTreeSet<u32>) -> String {
    let words = cpus.last().map_or(1, |last| last / BITS + 1);
    let word = |n: u32| {
        let own = cpus.range(n * BITS..(n + 1) * BITS);
        own.fold(0_u32, |word, cpu| word | 1 << (cpu % BITS))
    };
    let words: Vec<String> = (0..words).rev().map(|n| format!("{:x}", word(n))).collect();
    // All but the first have their zeros.
    let mut text = words.first().cloned().unwrap_or_default();
    for word in words.iter().skip(1) {
        text.push_str(&format!(",{word:0>8}"));
    }
    text
}

fn of_mask(mask: &str) -> Option<BTreeSet<u32>> {
    let mut cpus = BTreeSet::new();
    for (n, word) in mask.trim().split(',').rev().enumerate() {
        let word = u32::from_str_radix(word, 16).ok()?;
        let first = u32::try_from(n).ok()?.checked_mul(BITS)?;
        cpus.extend((0..BITS).filter(|bit| word & 1 << bit != 0).map(|bit| first + bit));
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::as_root;

    /// Check that masks are written as the kernel reads them, and read as it writes them.
    #[test]
    fn masks() {
        for (list, text) in [
            (vec![], "0"),
            (vec![0], "1"),
            (vec![0, 1, 3], "b"),
            (vec![32], "1,00000000"),
            (vec![1, 33, 64], "1,00000002,00000002"),
        ] {
            let cpus: BTreeSet<u32> = list.into_iter().collect();
            assert_eq!(mask(&cpus), text);
            assert_eq!(of_mask(text), Some(cpus));
        }
        assert_eq!(of_mask("00,00000003\n"), Some([0, 1].into()));
        assert_eq!(of_mask("x"), None);
        assert!(path("eth0", "rx-0/../..", Steering::Rps).is_err());
        assert!(path("../eth0", "rx-0", Steering::Rps).is_err());
    }

    /// Check that CPUs of a veth's queues are set and read back, and that a CPU that is not there is
    /// refused.
    #[test]
    fn as_root_a_veth() {
        as_root(|| {
            let namespace = Namespace::new().unwrap();
            let [left, right] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
            namespace.add_veth(("a0", left), ("a1", right), &namespace, Some(2)).unwrap();
            assert_eq!(queues(&namespace, "a0", Steering::Rps).unwrap(), ["rx-0", "rx-1"]);
            for which in Steering::ALL.iter().copied() {
                let queue = format!("{}1", which.queues());
                for list in ["0", NO_CPUS] {
                    write(&namespace, "a0", &queue, which, list).unwrap();
                    assert_eq!(read(&namespace, "a0", &queue, which).unwrap(), list);
                }
            }
            assert!(write(&namespace, "a0", "rx-0", Steering::Rps, "9999").is_err());
            assert!(read(&namespace, "a0", "rx-7", Steering::Rps).is_err());
        });
    }
}
