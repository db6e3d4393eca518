//! Packages that broke.

use std::fs;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{Random, bounded};
use crate::common::Place;

const BROKEN: usize = 40;

/// A member of an `ar` archive.
fn member(name: &str, data: &[u8]) -> Vec<u8> {
    let size = data.len();
    let mut out = format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 100644);
    if size % 2 == 1 {
        out.push('\n');
    }
    let (head, pad) = out.split_at(60);
    [head.as_bytes(), data, pad.as_bytes()].concat()
}

/// An archive of `tar`, by the format of 1988.
fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, data) in files {
        let mut header = [0_u8; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..108].copy_from_slice(b"0000644\0");
        header[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
        header[136..148].copy_from_slice(b"00000000000\0");
        header[148..156].fill(b' ');
        header[156] = b'0';
        header[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        out.extend_from_slice(&header);
        out.extend_from_slice(data);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}

fn gz(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// A package as Debian's kernels are, but for its size.
fn package() -> Vec<u8> {
    let control = "Package: linux-image-6.1.0-9-amd64\nVersion: 6.1.27-1\nDepends: kmod\n";
    let image = [b"MZ".as_slice(), &[0; 0x1f0], b"\x55\xaa\0\0HdrS", &[7; 6000]].concat();
    let data = tar(&[
        ("./boot/vmlinuz-6.1.0-9-amd64", &image),
        ("./boot/config-6.1.0-9-amd64", b"CONFIG_NET=y\n"),
        ("./lib/modules/6.1.0-9-amd64/kernel/a.ko", &[b"\x7fELF".as_slice(), &[1; 900]].concat()),
        ("./lib/modules/6.1.0-9-amd64/modules.dep", b"kernel/a.ko:\n"),
    ]);
    [
        b"!<arch>\n".to_vec(),
        member("debian-binary", b"2.0\n"),
        member("control.tar.gz", &gz(&tar(&[("./control", control.as_bytes())]))),
        member("data.tar.gz", &gz(&data)),
    ]
    .concat()
}

/// Check that a broken package is refused, with its name, and leaves nothing behind.
#[test]
fn broken_packages() {
    let place = Place::new();
    let whole = package();
    let mut random = Random(3);
    for n in 0..BROKEN {
        let mut bytes = whole.clone();
        for _ in 0..1 + random.below(3) {
            let at = random.below(bytes.len());
            match n % 5 {
                0 => bytes.truncate(at),
                // In the headers of members.
                1 => bytes[8 + at % 180] ^= 1 << random.below(8),
                2 => bytes[at] ^= 1 << random.below(8),
                3 => {
                    let end = (at + random.below(400)).min(bytes.len());
                    drop(bytes.drain(at..end));
                }
                _ => {
                    let copy = bytes[at..(at + 300).min(bytes.len())].to_vec();
                    bytes.splice(at..at, copy);
                }
            }
            if bytes.is_empty() {
                bytes.push(b'!');
            }
        }
        place.write("broken.deb", &bytes);
        let mut command = place.plumb("kernel add broken.deb");
        command.env("PLUMB_CACHE", place.path("cache"));
        let ran = bounded(&mut command, &format!("package {n}"));
        assert_eq!(ran.status.code(), Some(1), "package {n}: {ran:#?}");
        assert!(ran.stderr.contains("broken.deb") || ran.stderr.contains("kernel"), "{ran:#?}");
        assert_eq!(place.temporary_files(), [""; 0], "package {n}");
        let kernels: Vec<_> = fs::read_dir(place.path("cache/kernels"))
            .map(|folder| folder.flatten().map(|e| e.file_name()).collect())
            .unwrap_or_default();
        let left = |name: &std::ffi::OsString| name != "lock" && name != ".lock";
        assert!(!kernels.iter().any(left), "package {n}: {kernels:?}");
    }
}
