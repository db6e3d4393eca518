//! Settings of the devices of a namespace: features, channels, rings, coalescing, which CPUs work for their queues, and
//! how they are polled. Each is read back; notes have the result, and where nothing changed.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;

use netplumb_model::experiment::{Channel, Coalescing, NicSettings, Ring, Steering};
use netplumb_sys::ethnl::EthtoolNetlink;
use netplumb_sys::ethtool::{Ethtool, is_in};
use netplumb_sys::napi::File;
use netplumb_sys::netlink::Netlink;
use netplumb_sys::netns::Namespace;
use netplumb_sys::steering;

use super::plan::Refusal;

/// Notes, by name.
type Notes = BTreeMap<String, String>;

/// Make the settings of every device of a namespace; of `lo` only if it is the link.
///
/// # Errors
/// A device has no such setting, or its driver refuses it: with its reason.
pub(super) fn set_all(namespace: &Namespace, wanted: &NicSettings, lo: bool) -> io::Result<Notes> {
    let mut notes = Notes::new();
    let devices = namespace.inside(|| Netlink::open()?.devices())?;
    // Tunnels' fallback devices come with a namespace and stay down.
    for device in devices.iter().filter(|d| d.up && (d.name == "lo") == lo) {
        let name = &device.name;
        namespace.inside(|| {
            // Channels create and remove queues: settings of queues come after them.
            if !wanted.channels.is_empty() {
                channels(name, &wanted.channels, &mut notes)?;
            }
            if !wanted.features.is_empty() {
                features(name, &wanted.features, &mut notes)?;
            }
            if !wanted.rings.is_empty() {
                rings(name, &wanted.rings, &mut notes)?;
            }
            if !wanted.coalesce.is_empty() {
                coalesce(name, &wanted.coalesce, &mut notes)?;
            }
            Ok(())
        })?;
        for (which, list) in &wanted.steering {
            steer(namespace, name, *which, list, &mut notes)?;
        }
        let polling = &wanted.polling;
        for (file, number) in [
            (File::GroFlushTimeout, polling.gro_flush_timeout_ns),
            (File::NapiDeferHardIrqs, polling.napi_defer_hard_irqs.map(u64::from)),
            (File::Threaded, polling.threaded.map(u64::from)),
        ] {
            if let Some(number) = number {
                of_file(namespace, name, file, number, &mut notes)?;
            }
        }
    }
    Ok(notes)
}

/// A setting of a device before and after it was set, and what it was set to.
struct Set<'a, T> {
    device: &'a str,
    setting: &'a str,
    before: T,
    wanted: T,
    now: T,
}

impl<T: Display + PartialEq> Set<'_, T> {
    /// Note the result.
    ///
    /// # Errors
    /// Nothing: the driver kept what was there.
    fn note(self, notes: &mut Notes) -> io::Result<()> {
        let Set { device, setting, before, wanted, now } = self;
        if now != wanted && now == before {
            return Err(not_taken(&format!(
                "{setting} of {device} is still {now} after it was set to {wanted}: not supported by the driver"
            )));
        }
        notes.insert(format!("nic.{device}.{setting}"), now.to_string());
        if now != wanted {
            notes.insert(
                format!("rounded.{setting}.{device}"),
                format!("{setting} of {device} is {now}: the driver rounded {wanted} to it"),
            );
        } else if before == wanted {
            notes.insert(
                format!("no_effect.{setting}.{device}"),
                format!("{setting} of {device} was already {wanted}"),
            );
        }
        Ok(())
    }
}

fn refused<'a>(
    device: &str,
    settings: impl Iterator<Item = &'a str>,
    error: &io::Error,
) -> io::Error {
    let all: Vec<&str> = settings.collect();
    let said = format!("the driver of {device} refuses {}: {error}", all.join(" "));
    match error.kind() {
        // No matter of the driver.
        kind @ (io::ErrorKind::PermissionDenied
        | io::ErrorKind::OutOfMemory
        | io::ErrorKind::Interrupted) => io::Error::new(kind, said),
        _ => not_taken(&said),
    }
}

/// The error of a file in sysfs, which the kernel may lack.
fn refused_by_file(device: &str, words: &str, error: &io::Error) -> io::Error {
    match error.kind() {
        _ if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Refusal::NotTaken(format!(
            "{words} of {device}: it has no NAPI; a veth has it with offload gro on, others may have none"
        ))
        .into(),
        io::ErrorKind::Unsupported => {
            Refusal::NotTaken(format!("{words} of {device}: {error}; leave it out")).into()
        }
        _ => refused(device, std::iter::once(words), error),
    }
}

/// The error of a setting that the driver of a device does not take.
pub(super) fn not_taken(what: &str) -> io::Error {
    let what = format!("{what}; leave it out, or try a link with another driver");
    Refusal::NotTaken(what).into()
}

fn features(device: &str, wanted: &BTreeMap<String, bool>, notes: &mut Notes) -> io::Result<()> {
    let word = |on: bool| if on { "on" } else { "off" };
    let ethtool = Ethtool::open()?;
    let names = ethtool.feature_names(device)?;
    for (feature, on) in wanted {
        let number = names.iter().position(|name| name == feature);
        let number = number.ok_or_else(|| {
            Refusal::Asked(format!(
                "{device} has no feature `{feature}`; names are those of `ethtool -k`, like rx-gro"
            ))
        })?;
        let before = ethtool.features(device)?;
        if is_in(&before.active, number) != *on && !is_in(&before.changeable, number) {
            return Err(not_taken(&format!(
                "{feature} of {device} is {}, and its driver allows no other [fixed]",
                word(!*on)
            )));
        }
        ethtool
            .set_feature(device, number, *on)
            .map_err(|error| refused(device, std::iter::once(feature.as_str()), &error))?;
        let now = ethtool.features(device)?;
        if is_in(&now.active, number) != *on {
            return Err(not_taken(&format!(
                "{feature} of {device} is still {} after it was set {}",
                word(!*on),
                word(*on)
            )));
        }
        Set {
            device,
            setting: feature,
            before: word(is_in(&before.active, number)),
            wanted: word(*on),
            now: word(is_in(&now.active, number)),
        }
        .note(notes)?;
    }
    Ok(())
}

/// Settings with a name and a number, before, wanted and now.
fn numbers<K: Copy + Ord + Display>(
    device: &str,
    [before, wanted, now]: [&BTreeMap<K, u32>; 3],
    called: impl Fn(K) -> String,
    level: impl Fn(K, u32) -> String,
    notes: &mut Notes,
) -> io::Result<()> {
    for (key, number) in wanted {
        let setting = called(*key);
        // A driver that does not report a setting lacks it.
        let (Some(before), Some(now)) = (before.get(key), now.get(key)) else {
            return Err(not_taken(&format!("the driver of {device} has no {setting}")));
        };
        Set {
            device,
            setting: &setting,
            before: level(*key, *before),
            wanted: level(*key, *number),
            now: level(*key, *now),
        }
        .note(notes)?;
    }
    Ok(())
}

fn rings(device: &str, wanted: &BTreeMap<Ring, u32>, notes: &mut Notes) -> io::Result<()> {
    let called = |ring: Ring| format!("rings.{ring}");
    let words: Vec<String> =
        wanted.iter().map(|(ring, n)| format!("{}={n}", called(*ring))).collect();
    let why = |error: io::Error| refused(device, words.iter().map(String::as_str), &error);
    let mut netlink = EthtoolNetlink::open()?;
    let before = netlink.rings(device).map_err(why)?;
    if let Err(error) = netlink.set_rings(device, wanted) {
        let most = netlink.largest_rings(device).unwrap_or_default();
        return Err(why(with_most(error, wanted, &most, called)));
    }
    let now = netlink.rings(device).map_err(why)?;
    numbers(device, [&before, wanted, &now], called, as_number, notes)
}

fn as_number<K>(_: K, number: u32) -> String {
    number.to_string()
}

/// An error, with the largest numbers that a driver takes if more were wanted.
fn with_most<K: Copy + Ord>(
    error: io::Error,
    wanted: &BTreeMap<K, u32>,
    most: &BTreeMap<K, u32>,
    called: impl Fn(K) -> String,
) -> io::Error {
    let beyond = (wanted.iter()).filter_map(|(key, number)| {
        let most = most.get(key).filter(|most| number > *most)?;
        Some(format!("{}={most}", called(*key)))
    });
    let beyond: Vec<String> = beyond.collect();
    match beyond.is_empty() {
        true => error,
        false => {
            io::Error::new(error.kind(), format!("{error}; it takes at most {}", beyond.join(" ")))
        }
    }
}

fn coalesce(device: &str, wanted: &BTreeMap<Coalescing, u32>, notes: &mut Notes) -> io::Result<()> {
    let word = |(key, n): (&Coalescing, &u32)| format!("{key}={}", key.level(*n));
    let words: Vec<String> = wanted.iter().map(word).collect();
    let why = |error: io::Error| refused(device, words.iter().map(String::as_str), &error);
    let mut netlink = EthtoolNetlink::open()?;
    let before = netlink.coalescing(device).map_err(why)?;
    netlink
        .set_coalescing(device, wanted)
        .map_err(|error| why(with_taken(error, device, wanted)))?;
    let now = netlink.coalescing(device).map_err(why)?;
    numbers(device, [&before, wanted, &now], |key| key.to_string(), Coalescing::level, notes)
}

/// An error, with the numbers that a driver accepts, unless they are a range from 0.
fn with_taken(error: io::Error, device: &str, wanted: &BTreeMap<Coalescing, u32>) -> io::Error {
    let driver = Ethtool::open().map(|ethtool| ethtool.driver(device));
    let is_intel =
        driver.is_ok_and(|name| ["e1000", "e1000e"].map(Some).contains(&name.as_deref()));
    match is_intel && wanted.contains_key(&Coalescing::RxUsecs) {
        // e1000_set_coalesce() in drivers/net/ethernet/intel/{e1000/e1000,e1000e/}ethtool.c.
        true => io::Error::new(
            error.kind(),
            format!("{error}; it takes rx-usecs=0, 1, 3, 4, and 10 to 10000"),
        ),
        false => error,
    }
}

fn channels(device: &str, wanted: &BTreeMap<Channel, u32>, notes: &mut Notes) -> io::Result<()> {
    let called = |channel: Channel| format!("channels.{channel}");
    let words: Vec<String> =
        wanted.iter().map(|(channel, n)| format!("{}={n}", called(*channel))).collect();
    let why = |error: io::Error| refused(device, words.iter().map(String::as_str), &error);
    let mut netlink = EthtoolNetlink::open()?;
    let before = netlink.channels(device).map_err(why)?;
    netlink.set_channels(device, wanted).map_err(why)?;
    let now = netlink.channels(device).map_err(why)?;
    numbers(device, [&before, wanted, &now], called, as_number, notes)
}

/// The CPUs of all queues of a kind.
fn steer(
    namespace: &Namespace,
    device: &str,
    which: Steering,
    wanted: &str,
    notes: &mut Notes,
) -> io::Result<()> {
    let words = format!("{which}={wanted}");
    let why = |error: io::Error| refused_by_file(device, &words, &error);
    for queue in steering::queues(namespace, device, which).map_err(why)? {
        let before = steering::read(namespace, device, &queue, which).map_err(why)?;
        steering::write(namespace, device, &queue, which, wanted)
            .map_err(|error| without_cpu(error, device, &words))?;
        let now = steering::read(namespace, device, &queue, which).map_err(why)?;
        Set {
            device,
            setting: &format!("{queue}.{which}"),
            before: before.as_str(),
            wanted,
            now: now.as_str(),
        }
        .note(notes)?;
    }
    Ok(())
}

/// An error of steering: the kernel, and no driver, refuses CPUs that there are not.
fn without_cpu(error: io::Error, device: &str, words: &str) -> io::Error {
    // bitmap_parse (lib/bitmap-str.c): the mask has more bits than there may be CPUs.
    if error.raw_os_error() != Some(libc::EOVERFLOW) {
        return refused_by_file(device, words, &error);
    }
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let there = match possible.trim() {
        "" => "this kernel has fewer".to_string(),
        "0" => "a guest has one, 0, and lab netns has all of this machine".to_string(),
        all => format!("this kernel has {all}"),
    };
    Refusal::Asked(format!("{words} of {device}: there is no such CPU: {there}")).into()
}

fn of_file(
    namespace: &Namespace,
    device: &str,
    file: File,
    wanted: u64,
    notes: &mut Notes,
) -> io::Result<()> {
    let setting = file.name();
    let words = format!("{setting}={wanted}");
    let why = |error: io::Error| refused_by_file(device, &words, &error);
    let before = file.read(namespace, device).map_err(why)?;
    file.write(namespace, device, wanted).map_err(why)?;
    let now = file.read(namespace, device).map_err(why)?;
    Set { device, setting, before, wanted, now }.note(notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that errors about rings that are too large have the driver's maximum, and other errors don't; and that a
    /// missing CPU is not blamed on a driver.
    #[test]
    fn limits_are_said() {
        let all = |rx, tx| BTreeMap::from([(Ring::Rx, rx), (Ring::Tx, tx)]);
        let refuse = |wanted: &BTreeMap<Ring, u32>| {
            let error = io::Error::other("requested ring size exceeds maximum");
            with_most(error, wanted, &all(256, 512), |ring| format!("rings.{ring}")).to_string()
        };
        let message = refuse(&all(1024, 512));
        assert!(message.ends_with("it takes at most rings.rx=256"), "{message}");
        assert!(!refuse(&all(256, 512)).contains("at most"));
        let of =
            |code| without_cpu(io::Error::from_raw_os_error(code), "tx0", "rps_cpus=1").to_string();
        let message = of(libc::EOVERFLOW);
        assert!(message.contains("no such CPU") && !message.contains("driver"), "{message}");
        assert!(of(libc::EINVAL).contains("refuses rps_cpus=1"));
    }

    /// Check that a value that a driver kept is an error, and that rounded and unchanged values are noted.
    #[test]
    fn what_came_of_it() {
        let notes_of = |before, wanted, now| {
            let mut notes = Notes::new();
            let set = Set { device: "rx0", setting: "rx-usecs", before, wanted, now };
            set.note(&mut notes).map(|()| notes).map_err(|e| e.to_string())
        };
        let kept = notes_of(3, 5, 3).unwrap_err();
        assert!(kept.contains("still 3"), "{kept}");
        let set = notes_of(3, 100, 100).unwrap();
        assert_eq!(set.len(), 1, "{set:?}");
        assert_eq!(set["nic.rx0.rx-usecs"], "100");
        let rounded = notes_of(3, 7_000, 7_042).unwrap();
        assert!(rounded["rounded.rx-usecs.rx0"].contains("7042"), "{rounded:?}");
        let same = notes_of(3, 3, 3).unwrap();
        assert!(same["no_effect.rx-usecs.rx0"].contains("already"), "{same:?}");
    }
}
