use std::fs;
use std::process::Command;

use super::*;

/// Check that stubs, functions with a symbol and functions without one are
/// distinguished in a file from the compiler, with and without its symbols.
#[test]
fn what_a_compiler_makes() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(
        path("x.c"),
        "#include <stdlib.h>\n\
         static __attribute__((noinline)) int hidden(int n) { return n * 3 + rand(); }\n\
         int open_to_all(int n) { return hidden(n) + hidden(n + 1); }\n",
    )
    .unwrap();
    let make = |words: &[&str], out: &str| {
        let done = Command::new("cc")
            .args(["-O1", "-shared", "-fPIC", "-o"])
            .arg(path(out))
            .args(words)
            .arg(path("x.c"))
            .status()
            .unwrap();
        assert!(done.success());
        fs::read(path(out)).unwrap()
    };
    let whole = make(&[], "whole.so");
    let stripped = make(&["-s"], "stripped.so");
    let image = image("whole.so", &whole, None).unwrap();
    let pages = pages("whole.so", &whole).unwrap();
    assert!(!image.program, "a library");
    let own = fs::read("/proc/self/exe").unwrap();
    assert!(super::image("self", &own, None).unwrap().program);
    let find = |image: &Image, name: &str| {
        image
            .functions
            .iter()
            .find(|f| f.name == name)
            .cloned()
            .unwrap_or_else(|| panic!("{name}: {:#?}", image.functions))
    };
    let hidden = find(&image, "hidden");
    let open = find(&image, "open_to_all");
    find(&image, "rand@plt");
    assert!(pages.iter().any(|(a, _)| (*a..a + 4096).contains(&open.start)));

    let bare = super::image("stripped.so", &stripped, None).unwrap();
    assert_eq!(find(&bare, "open_to_all").end, open.end);
    let nameless = find(&bare, &at_address(hidden.start));
    assert_eq!(nameless.end, hidden.end);
    let without = Image { functions: vec![nameless, find(&bare, "rand@plt")], ..Image::default() };
    assert!(image.has_symbols() && !without.has_symbols());
    // Its symbols from elsewhere.
    let again = super::image("stripped.so", &stripped, Some(&whole)).unwrap();
    assert_eq!(find(&again, "hidden"), hidden);
    for image in [&image, &bare, &again] {
        for pair in image.functions.windows(2) {
            assert!(pair[0].end <= pair[1].start, "{pair:?}");
        }
        assert_eq!(image.function(open.start), image.function(open.end - 1));
        assert_ne!(image.function(open.start), image.function(open.end));
        assert_eq!(image.function(u64::MAX), None);
    }
}

/// Check that damaged files are errors or have no functions, and nothing worse.
#[test]
fn damage() {
    let whole = fs::read("/proc/self/exe").unwrap();
    for no_elf in [&b""[..], b"#!/bin/sh\n"] {
        let error = image("x", no_elf, None).unwrap_err();
        assert_eq!(error.name, "x");
        assert!(!error.why.is_empty());
    }
    for cut in [64, 1000, 4096] {
        if let Ok(image) = super::image("x", &whole[..cut], None) {
            assert!(image.functions.len() < 1000);
        }
    }
    let mut wild = whole[..whole.len().min(1 << 20)].to_vec();
    for n in (64..wild.len()).step_by(97) {
        wild[n] = wild[n].wrapping_mul(31).wrapping_add(7);
    }
    let _ = super::image("x", &wild, None);
}

/// Check that a symbol without a size ends where the next one begins, that a place is
/// ignored where there is a function, and that the plainest of several names is taken.
#[test]
fn sizes_and_aliases() {
    let named = |start, size_bytes, function, name: &str| CodeSymbol {
        start,
        size_bytes,
        function,
        name: name.into(),
        limit: 0x200,
    };
    let mut functions = Functions::default();
    functions.add_symbols(
        vec![
            named(0x100, 0x10, true, "__write"),
            named(0x100, 0x20, true, "write"),
            named(0x108, 0, false, "inside"),
            named(0x140, 0, true, "asm_start"),
            named(0x160, 0, false, "place"),
            named(0x180, 0x400, true, "last"),
        ],
        &[],
    );
    functions.fill(0x118, 0x130, "[0x118]".into());
    functions.fill(0x120, 0x150, "[0x120]".into());
    let found: Vec<(u64, u64, String)> =
        functions.sorted().into_iter().map(|f| (f.start, f.end, f.name)).collect();
    assert_eq!(
        found,
        [
            (0x100, 0x120, "write".to_string()),
            (0x120, 0x140, "[0x120]".to_string()),
            (0x140, 0x180, "asm_start".to_string()),
            (0x180, 0x200, "last".to_string()),
        ]
    );
}
