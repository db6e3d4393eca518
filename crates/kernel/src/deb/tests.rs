use std::os::unix::fs::PermissionsExt;

use super::archive::AR_MAGIC;
use super::*;
use crate::testing::{self, pack};

const RELEASE: &str = "6.1.0-54-amd64";
const CONTROL: &str = "Package: linux-image-6.1.0-54-amd64\nVersion: 6.1.190-1\nDepends: kmod\n";

fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, data) in files {
        let mut header = tar::Header::new_gnu();
        // Written past the builder, which would refuse the names that the tests need.
        if name.len() <= 100 {
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        } else {
            let mut long = tar::Header::new_gnu();
            long.as_old_mut().name[..13].copy_from_slice(b"././@LongLink");
            long.set_entry_type(tar::EntryType::GNULongName);
            long.set_size(name.len() as u64 + 1);
            long.set_cksum();
            builder.append(&long, &[name.as_bytes(), b"\0"].concat()[..]).unwrap();
            header.as_old_mut().name.copy_from_slice(&name.as_bytes()[..100]);
        }
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append(&header, *data).unwrap();
    }
    builder.into_inner().unwrap()
}

fn link(from: &str, to: &str, then: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    builder.append_link(&mut header, from, to).unwrap();
    let mut out = builder.into_inner().unwrap();
    out.truncate(512);
    out.extend_from_slice(&tar(then));
    out
}

fn deb(ending: &str, data: &[u8]) -> Vec<u8> {
    let mut out = AR_MAGIC.to_vec();
    let control = pack("control.gz", &tar(&[("./control", CONTROL.as_bytes())]));
    let packed = pack(&format!("data.tar{ending}"), data);
    let data_name = format!("data.tar{ending}");
    let members: [(&str, &[u8]); 3] =
        [("debian-binary", b"2.0\n"), ("control.tar.gz", &control), (&data_name, &packed)];
    for (name, data) in members {
        let size = data.len();
        out.extend(
            format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 100644).bytes(),
        );
        out.extend_from_slice(data);
        out.resize(out.len().next_multiple_of(2), b'\n');
    }
    out
}

/// Writes the package and unpacks it; the folder holds `x.deb` and what came out in `out/`.
fn try_unpack(package: &[u8]) -> (tempfile::TempDir, Result<UnpackedKernel, DebError>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.deb");
    fs::write(&path, package).unwrap();
    let result = unpack(&path, &folder.path().join("out"), &|| false);
    (folder, result)
}

fn good_files() -> Vec<u8> {
    let module = testing::module_elf("depends=\0");
    tar(&[
        ("./boot/System.map-6.1.0-54-amd64", b"stub"),
        ("./boot/config-6.1.0-54-amd64", b"CONFIG_NET=y\n"),
        ("./boot/vmlinuz-6.1.0-54-amd64", b"the image"),
        ("./lib/modules/6.1.0-54-amd64/kernel/net/a.ko", &module),
        ("./lib/modules/6.1.0-54-amd64/modules.builtin", b"kernel/b.ko\n"),
        ("./usr/share/doc/linux-image/copyright", b"text"),
    ])
}

/// Check that the kernel's files come out, and no others, from each form of package.
#[test]
fn unpacks() {
    for ending in ["", ".gz", ".xz", ".zst"] {
        let (folder, result) = try_unpack(&deb(ending, &good_files()));
        let kernel = result.unwrap();
        assert_eq!(kernel.release, RELEASE);
        assert_eq!(kernel.control.package, "linux-image-6.1.0-54-amd64");
        assert_eq!(kernel.control.version, "6.1.190-1");
        assert_eq!(fs::read(&kernel.vmlinuz).unwrap(), b"the image");
        assert_eq!(fs::read(kernel.config.unwrap()).unwrap(), b"CONFIG_NET=y\n");
        let tree = crate::modules::ModuleTree::open(&kernel.modules.unwrap()).unwrap();
        assert_eq!(tree.names().collect::<Vec<_>>(), ["a"]);
        assert!(tree.is_builtin("b"));
        assert_eq!(fs::read_dir(folder.path().join("out")).unwrap().count(), 3);
    }
}

/// Check that the merged-/usr layout and a long path work.
#[test]
fn usr_layout_and_long_path() {
    let long = format!("./usr/lib/modules/{RELEASE}/kernel/{}/a.ko", "d".repeat(120));
    let (_folder, result) = try_unpack(&deb(
        ".xz",
        &tar(&[("usr/lib/modules/6.1.0-54-amd64/vmlinuz", b"image"), (&long, b"module")]),
    ));
    let kernel = result.unwrap();
    let module = kernel.modules.unwrap().join("kernel").join("d".repeat(120)).join("a.ko");
    assert_eq!(fs::read(module).unwrap(), b"module");
    assert_eq!(kernel.config, None);
}

/// Check that a package cut at any place is a distinct error.
#[test]
fn truncated() {
    for ending in ["", ".gz", ".xz", ".zst"] {
        let whole = deb(ending, &good_files());
        for end in (8..whole.len() - 1).step_by(101) {
            let (_folder, result) = try_unpack(&whole[..end]);
            assert!(matches!(result, Err(DebError::Truncated { .. })), "{ending} {end}");
        }
    }
}

/// Check that a stream that is damaged within a whole package is an error.
#[test]
fn damaged() {
    for ending in [".gz", ".xz", ".zst"] {
        let mut whole = deb(ending, &good_files());
        let middle = whole.len() - 60;
        whole[middle..middle + 20].fill(0x55);
        let (_folder, result) = try_unpack(&whole);
        assert!(
            matches!(result, Err(DebError::Damaged { .. } | DebError::Unpack { .. })),
            "{ending} {result:?}"
        );
    }
}

/// Check that other files are refused as not a package.
#[test]
fn not_a_deb() {
    for data in [
        &b""[..],
        b"garbage",
        b"\x7fELF and so on",
        b"!<arch>\nnot a member header, is it; this one is long enough to hold one of sixty bytes",
    ] {
        let (_folder, result) = try_unpack(data);
        assert!(matches!(result, Err(DebError::NotADeb { .. })), "{result:?}");
    }
    let error = control(Path::new("/")).unwrap_err();
    assert!(matches!(error, DebError::NotADeb { .. }), "{error}");
    let error = control(Path::new("/nonexistent.deb")).unwrap_err();
    assert!(matches!(error, DebError::Read { .. }), "{error}");
}

/// Check that the error about a package with no kernel, or with two, has the package's name.
#[test]
fn no_kernel_or_two() {
    let (_folder, result) = try_unpack(&deb(".xz", &tar(&[("./usr/bin/tool", b"x")])));
    let error = result.unwrap_err();
    assert!(matches!(error, DebError::NoKernel { .. }));
    assert!(error.to_string().contains("linux-image-6.1.0-54-amd64"), "{error}");
    let two = tar(&[("./boot/vmlinuz-1.0", b"x"), ("./boot/vmlinuz-2.0", b"y")]);
    let (_folder, result) = try_unpack(&deb(".xz", &two));
    assert!(matches!(result, Err(DebError::SeveralKernels { .. })));
}

/// Check that no name and no link leads out of the folder.
#[test]
fn traversal() {
    let names = [
        "../../evil",
        "./lib/modules/1/../../../../evil",
        "/lib/modules/1/evil",
        "./lib/modules/../../evil",
    ];
    for name in names {
        let (folder, result) =
            try_unpack(&deb(".gz", &tar(&[("./boot/vmlinuz-1", b"x"), (name, b"evil")])));
        assert!(matches!(result, Err(DebError::Escapes { .. })), "{name}: {result:?}");
        assert!(!folder.path().join("evil").exists());
    }
    let outside = tempfile::tempdir().unwrap();
    let data = link(
        "lib/modules/1/kernel",
        outside.path().to_str().unwrap(),
        &[("boot/vmlinuz-1", b"x"), ("lib/modules/1/kernel/evil.ko", b"evil")],
    );
    let (folder, result) = try_unpack(&deb(".gz", &data));
    result.unwrap();
    assert!(!outside.path().join("evil.ko").exists());
    assert!(folder.path().join("out/modules/kernel/evil.ko").exists());
}

/// Check that a file that comes twice does not overwrite itself.
#[test]
fn twice() {
    let data = tar(&[("./boot/vmlinuz-1", b"x"), ("./boot/vmlinuz-1", b"y")]);
    let (_folder, result) = try_unpack(&deb(".gz", &data));
    assert!(matches!(result, Err(DebError::Write { .. })), "{result:?}");
}

/// A package whose member is as these bytes are, packed already.
fn deb_of_packed(ending: &str, packed: &[u8]) -> Vec<u8> {
    let plain = deb(".raw", packed);
    let [from, to] = ["data.tar.raw", &format!("data.tar{ending}")].map(|n| format!("{n:<16}"));
    let at = plain.windows(16).position(|w| w == from.as_bytes()).unwrap();
    let mut out = plain;
    out[at..at + 16].copy_from_slice(to.as_bytes());
    out
}

/// Check that a member in several streams is read to its end, wherever the cut between them
/// is, and that an archive or anything else behind the first is refused, not left out.
#[test]
fn several_streams() {
    let files = good_files();
    for (name, ending) in [("a.gz", ".gz"), ("a.xz", ".xz"), ("a.zst", ".zst")] {
        // In the midst of an entry, and at its end.
        for cut in [700, 1024, files.len() - 1024] {
            let mut packed = pack(name, &files[..cut]);
            packed.extend(pack(name, &files[cut..]));
            let (_folder, result) = try_unpack(&deb_of_packed(ending, &packed));
            let kernel = result.unwrap_or_else(|e| panic!("{name} cut at {cut}: {e}"));
            assert!(kernel.modules.is_some(), "{name} cut at {cut}");
            assert!(kernel.config.is_some());
        }
        for behind in [pack(name, &files), b"not a stream of any kind".to_vec()] {
            let mut packed = pack(name, &files);
            packed.extend(behind);
            let (_folder, result) = try_unpack(&deb_of_packed(ending, &packed));
            let error = result.unwrap_err();
            assert!(matches!(error, DebError::Damaged { .. }), "{name}: {error}");
        }
    }
}

/// Check that the requested files come out of a package, executable where they were, and that a link comes only if it
/// leads to somewhere within.
#[test]
fn asked_for() {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, mode) in [("./usr/src/a/tool", 0o755), ("./usr/src/a/text", 0o644), ("./no", 0o644)]
    {
        let mut header = tar::Header::new_gnu();
        header.set_size(2);
        header.set_mode(mode);
        header.set_cksum();
        builder.append_data(&mut header, name, &b"ab"[..]).unwrap();
    }
    for (name, target) in [("./usr/src/a/near", "text"), ("./usr/src/a/far", "/etc/passwd")] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        builder.append_link(&mut header, name, target).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.deb");
    fs::write(&path, deb(".xz", &builder.into_inner().unwrap())).unwrap();
    let out = folder.path().join("out");
    let done = files(&path, &out, &|name| name.starts_with("usr/src"), &|| false).unwrap();
    assert_eq!((done.files, done.bytes), (4, 4));
    let mode = |name: &str| fs::metadata(out.join(name)).unwrap().permissions().mode() & 0o100;
    assert_eq!((mode("usr/src/a/tool"), mode("usr/src/a/text")), (0o100, 0));
    assert_eq!(fs::read(out.join("usr/src/a/near")).unwrap(), b"ab");
    assert!(fs::symlink_metadata(out.join("usr/src/a/far")).is_err());
    assert!(!out.join("no").exists());
    let error = files(&path, &out, &|_| true, &|| true).unwrap_err();
    assert!(matches!(error, DebError::Cancelled), "{error}");
}
