use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use super::super::Image;
use super::Finder;

/// Check that a file's functions are found at each of their first and last bytes, and around them,
/// as they are when all of it is read: one batch of addresses at a time, and one by one.
fn check(path: &Path, step: usize) {
    let bytes = fs::read(path).unwrap();
    let image = Image::read("x", &bytes, None).unwrap();
    let finders = [
        Finder::of_file(&File::open(path).unwrap().into(), path).unwrap(),
        Finder::of_bytes(bytes).unwrap(),
    ];
    let around = |f: &super::ImageFunction| {
        [f.start.wrapping_sub(1), f.start, f.start.midpoint(f.end), f.end - 1, f.end]
    };
    let asked: Vec<u64> = image.functions.iter().flat_map(around).collect();
    assert!(asked.len() > 20);
    for finder in &finders {
        let found = finder.functions(&asked);
        for (address, found) in asked.iter().zip(&found) {
            let known = image.function(*address).map(|at| &image.functions[at]);
            assert_eq!(found.as_ref(), known, "{address:#x} of {}", path.display());
        }
        for at in (0..asked.len()).step_by(step) {
            assert_eq!(finder.functions(&asked[at..=at])[0], found[at]);
        }
        let segment = image.segments[0];
        assert_eq!(finder.address_of(segment.offset + 1), image.address_of(segment.offset + 1));
    }
}

/// Check this very program, which has some ten thousand functions, aliases and assembly.
#[test]
fn own_program() {
    check(&std::env::current_exe().unwrap(), 9_973);
}

/// Check a library with stubs, with and without its symbols, and with an unwind table that has no
/// index.
#[test]
fn what_a_compiler_makes() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(
        path("x.c"),
        "#include <stdlib.h>\n\
         static __attribute__((noinline)) int hidden(int n) { return n * 3 + rand(); }\n\
         int open_to_all(int n) { return hidden(n) + hidden(n + 1); }\n\
         int alias(int n) __attribute__((alias(\"open_to_all\")));\n\
         asm(\".text\\nplace: .skip 24\\n\");\n",
    )
    .unwrap();
    for (name, words) in [
        ("whole.so", &[][..]),
        ("stripped.so", &["-s"][..]),
        ("no-index.so", &["-s", "-Wl,--no-eh-frame-hdr"][..]),
    ] {
        let done = Command::new("cc")
            .args(["-O1", "-shared", "-fPIC", "-o"])
            .arg(path(name))
            .args(words)
            .arg(path("x.c"))
            .status()
            .unwrap();
        assert!(done.success());
        check(&path(name), 1);
    }
}

/// Check that damaged files have no functions, and nothing worse, also if they are cut short after
/// they were opened.
#[test]
fn damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program");
    let whole = fs::read(std::env::current_exe().unwrap()).unwrap();
    fs::write(&path, &whole).unwrap();
    let finder = Finder::of_file(&File::open(&path).unwrap().into(), &path).unwrap();
    let at = Image::read("x", &whole, None).unwrap().functions[0].start;
    assert!(finder.functions(&[at])[0].is_some());
    for length in [0, 64, 4_096, whole.len() as u64 / 2] {
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(length).unwrap();
        assert_eq!(finder.functions(&[at, u64::MAX, 0])[1..], [None, None]);
    }
    for no_elf in [&b""[..], b"#!/bin/sh\n", &whole[..100]] {
        let finder = Finder::of_bytes(no_elf.to_vec());
        assert!(finder.is_none_or(|f| f.functions(&[at]) == [None]));
    }
    let mut wild = whole[..whole.len().min(1 << 20)].to_vec();
    for n in (64..wild.len()).step_by(97) {
        wild[n] = wild[n].wrapping_mul(31).wrapping_add(7);
    }
    if let Some(finder) = Finder::of_bytes(wild) {
        finder.functions(&[at]);
    }
}
