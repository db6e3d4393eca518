use std::os::unix::fs::symlink;
use std::process::Command;

use super::*;

/// A small machine in a directory, made with a C compiler.
struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Fixture {
        let fixture = Fixture { folder: tempfile::tempdir().unwrap() };
        for folder in ["usr/bin", "usr/lib/x86_64-linux-gnu", "usr/lib64", "etc", "opt/x/lib"] {
            fs::create_dir_all(fixture.folder.path().join(folder)).unwrap();
        }
        for (link, target) in [("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")] {
            symlink(target, fixture.folder.path().join(link)).unwrap();
        }
        fixture.write("/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", b"\x7fnot read", 0o755);
        fixture
            .link("/usr/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2");
        fixture
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path.trim_start_matches('/'))
    }

    fn write(&self, path: &str, bytes: &[u8], mode: u32) {
        let to = self.path(path);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::write(&to, bytes).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        symlink(target, self.path(path)).unwrap();
    }

    /// Link an ELF file that needs nothing of the machine that the test runs on.
    fn elf(&self, path: &str, words: &[&str]) {
        let source = self.path("/source.c");
        fs::write(&source, "void _start(void) { for (;;); }\n").unwrap();
        let to = self.path(path);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        let done = Command::new("cc")
            .args(["-nostdlib", "-nostartfiles", "-Wl,--no-as-needed"])
            .args(words)
            .arg("-o")
            .args([&to, &source])
            .current_dir(self.folder.path())
            .status()
            .unwrap();
        assert!(done.success(), "cc {words:?}");
    }

    fn library(&self, path: &str, words: &[&str]) {
        let name = path.rsplit('/').next().unwrap();
        let soname = format!("-Wl,-soname,{name}");
        self.elf(path, &[&["-shared", "-fPIC", &soname], words].concat());
    }

    fn bundle(&self) -> Bundle {
        Bundle::new(Host::at(self.folder.path()))
    }
}

fn files(bundle: &Bundle) -> Vec<String> {
    bundle
        .entries()
        .iter()
        .filter(|(_, e)| e.kind != Kind::Folder)
        .map(|(path, entry)| match &entry.kind {
            Kind::Link(target) => format!("{} -> {}", path.display(), target.display()),
            _ => path.display().to_string(),
        })
        .collect()
}

const INTERPRETER: [&str; 2] = ["-pie", "-Wl,--dynamic-linker=/lib64/ld-linux-x86-64.so.2"];

/// Check that a program brings its interpreter, its libraries and theirs, each where
/// it is looked up, with the links on the way as links.
#[test]
fn libraries_of_libraries() {
    let f = Fixture::new();
    f.library("/usr/lib/x86_64-linux-gnu/libinner.so.1.2", &["-Wl,-soname,libinner.so.1"]);
    f.link("/usr/lib/x86_64-linux-gnu/libinner.so.1", "libinner.so.1.2");
    f.library("/usr/lib/x86_64-linux-gnu/libouter.so", &["usr/lib/x86_64-linux-gnu/libinner.so.1"]);
    f.elf(
        "/usr/bin/program-1",
        &[
            &INTERPRETER[..],
            &["usr/lib/x86_64-linux-gnu/libouter.so", "-Wl,-rpath-link,lib/x86_64-linux-gnu"],
        ]
        .concat(),
    );
    f.link("/usr/bin/program", "program-1");
    let mut bundle = f.bundle();
    let path = bundle.add_program("program").unwrap();
    assert_eq!(path, Path::new("/usr/bin/program"));
    assert_eq!(
        files(&bundle),
        [
            "/lib -> usr/lib",
            "/lib64 -> usr/lib64",
            "/usr/bin/program -> program-1",
            "/usr/bin/program-1",
            "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
            "/usr/lib/x86_64-linux-gnu/libinner.so.1 -> libinner.so.1.2",
            "/usr/lib/x86_64-linux-gnu/libinner.so.1.2",
            "/usr/lib/x86_64-linux-gnu/libouter.so",
            "/usr/lib64/ld-linux-x86-64.so.2 -> /lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
        ]
    );
    let program = &bundle.entries()[Path::new("/usr/bin/program-1")];
    assert_eq!(program.read().unwrap(), fs::read(f.path("/usr/bin/program-1")).unwrap());
    assert_eq!(program.mode, 0o755);
    let sum: u64 = bundle.entries().values().map(|e| e.read().unwrap().len() as u64).sum();
    assert_eq!(bundle.size_bytes(), sum);
}

/// Check that a version manager's shim is skipped in favour of the program, and used as a last resort.
#[test]
fn a_shim_is_passed_over() {
    let f = Fixture::new();
    f.write("/opt/v/shims/tool", b"#!/bin/sh\nexec manager", 0o755);
    f.write("/usr/bin/tool", b"#!/bin/sh\n", 0o755);
    f.write("/opt/v/shims/only", b"#!/bin/sh\nexec manager", 0o755);
    f.write("/opt/v/shims/elf", b"\x7fELF", 0o755);
    f.write("/usr/bin/elf", b"\x7fELF", 0o755);
    let mut host = Host::at(f.folder.path());
    host.path.insert(0, "/opt/v/shims".into());
    let bundle = Bundle::new(host);
    assert_eq!(bundle.find("tool").unwrap(), Path::new("/usr/bin/tool"));
    assert_eq!(bundle.find("only").unwrap(), Path::new("/opt/v/shims/only"));
    assert_eq!(bundle.find("elf").unwrap(), Path::new("/opt/v/shims/elf"));
}

/// Check that DT_RPATH counts for the libraries of libraries, and DT_RUNPATH only for its own file; and that $ORIGIN is
/// where the program really is.
#[test]
fn rpath_and_runpath() {
    let f = Fixture::new();
    f.library("/opt/x/lib/libinner.so", &[]);
    f.library("/opt/x/lib/libouter.so", &["opt/x/lib/libinner.so"]);
    let program = |tags: &str| {
        let tags = format!("-Wl,{tags},-rpath,$ORIGIN/../lib");
        f.elf(
            "/opt/x/bin/program",
            &[&INTERPRETER[..], &["opt/x/lib/libouter.so", "-Wl,-rpath-link,opt/x/lib", &tags]]
                .concat(),
        );
    };
    f.link("/usr/bin/program", "/opt/x/bin/program");
    program("--disable-new-dtags");
    let mut bundle = f.bundle();
    bundle.add_program("program").unwrap();
    assert!(files(&bundle).contains(&"/opt/x/lib/libinner.so".to_string()));

    program("--enable-new-dtags");
    let error = f.bundle().add_program("program").unwrap_err();
    let said = error.to_string();
    assert!(matches!(error, BundleError::MissingLibrary { .. }), "{said}");
    assert!(said.contains("`libinner.so`") && said.contains("libouter.so"), "{said}");
    assert!(said.contains("--with"), "{said}");
}

/// Check that the loader's cache is asked before its folders, goes along, and that an
/// entry for a CPU that can do more does too.
#[test]
fn the_cache_counts() {
    let f = Fixture::new();
    f.library("/opt/x/lib/libc1.so", &[]);
    f.library("/opt/x/lib/v3/libc1.so", &[]);
    f.library("/usr/lib/x86_64-linux-gnu/libc1.so", &[]);
    f.elf("/usr/bin/program", &[&INTERPRETER[..], &["opt/x/lib/libc1.so"]].concat());
    // Linked by its path, but requested by its name.
    let cache = loader::make_cache(&[
        ("libc1.so", "/opt/x/lib/v3/libc1.so"),
        ("libc1.so", "/opt/x/lib/libc1.so"),
        ("libc1.so", "/gone/libc1.so"),
    ]);
    f.write("/etc/ld.so.cache", &cache, 0o644);
    let mut bundle = f.bundle();
    bundle.add_program("program").unwrap();
    let files = files(&bundle);
    for there in ["/opt/x/lib/v3/libc1.so", "/opt/x/lib/libc1.so", "/etc/ld.so.cache"] {
        assert!(files.contains(&there.to_string()), "{files:?}");
    }
    assert!(!files.contains(&"/usr/lib/x86_64-linux-gnu/libc1.so".to_string()));
    // Without the cache, the folder.
    fs::remove_file(f.path("/etc/ld.so.cache")).unwrap();
    let mut bundle = f.bundle();
    bundle.add_program("program").unwrap();
    assert!(bundle.entries().contains_key(Path::new("/usr/lib/x86_64-linux-gnu/libc1.so")));
}

/// Check that a static program needs nothing, and that a script needs its
/// interpreter, by `env` too.
#[test]
fn static_programs_and_scripts() {
    let f = Fixture::new();
    f.elf("/usr/bin/static", &["-static"]);
    f.elf("/usr/bin/env", &["-static"]);
    f.write("/usr/bin/direct", b"#!/bin/static -x\n", 0o755);
    f.write("/usr/bin/by-env", b"#! /usr/bin/env -S A=b direct\n", 0o755);
    let mut bundle = f.bundle();
    bundle.add_program("/usr/bin/static").unwrap();
    assert_eq!(files(&bundle), ["/usr/bin/static"]);
    let mut bundle = f.bundle();
    bundle.add_program("by-env").unwrap();
    assert_eq!(
        files(&bundle),
        [
            "/bin -> usr/bin",
            "/usr/bin/by-env",
            "/usr/bin/direct",
            "/usr/bin/env",
            "/usr/bin/static"
        ]
    );
    f.write("/usr/bin/orphan", b"#!/usr/bin/perl\n", 0o755);
    f.write("/usr/bin/orphan2", b"#!/usr/bin/env perl\n", 0o755);
    for orphan in ["orphan", "orphan2"] {
        let said = f.bundle().add_program(orphan).unwrap_err().to_string();
        assert!(said.contains("perl") && said.contains(orphan), "{said}");
    }
    f.write("/usr/bin/round", b"#!/usr/bin/round\n", 0o755);
    assert!(matches!(f.bundle().add_program("round"), Err(BundleError::ScriptsWithoutEnd(_))));
}

/// Check the errors for programs that are missing, not executable, not programs, cut short or for other machines.
#[test]
fn what_is_no_program() {
    let f = Fixture::new();
    f.write("/usr/bin/text", b"echo hello\n", 0o755);
    f.write("/usr/bin/plain", b"#!/bin/sh\n", 0o644);
    f.write("/usr/bin/empty", b"", 0o755);
    f.write("/usr/bin/short", b"\x7fELF", 0o755);
    let mut arm = vec![0; 64];
    arm[..6].copy_from_slice(b"\x7fELF\x02\x01");
    arm[18] = 183;
    f.write("/usr/bin/arm", &arm, 0o755);
    arm[4] = 1;
    arm[18] = 3;
    f.write("/usr/bin/i386", &arm, 0o755);
    f.link("/usr/bin/round", "round");
    let said = |name: &str| f.bundle().add_program(name).unwrap_err().to_string();
    assert!(said("nothing").contains("no such program `nothing` in $PATH"), "{}", said("nothing"));
    assert!(said("/usr/bin/nothing").contains("No such file"));
    assert!(said("text").contains("is not a program"));
    assert!(said("empty").contains("is not a program"));
    assert!(said("plain").contains("chmod +x"));
    assert!(said("short").contains("cut short"));
    assert!(said("arm").contains("64-bit ARM"));
    assert!(said("i386").contains("32-bit x86"));
    assert!(said("/usr/bin").contains("is a directory"));
    assert!(said("/usr/bin/round").contains("symbolic links"), "{}", said("/usr/bin/round"));
}

/// Check that files and folders are brought along, to places of their own or others,
/// and that a library brought by hand is found.
#[test]
fn with_more() {
    let f = Fixture::new();
    f.library("/home/me/libmine.so", &[]);
    f.elf("/usr/bin/program", &[&INTERPRETER[..], &["home/me/libmine.so"]].concat());
    let error = f.bundle().add_program("program").unwrap_err();
    assert!(matches!(error, BundleError::MissingLibrary { .. }), "{error}");
    let mut bundle = f.bundle();
    bundle.add_with(Path::new("/home/me/libmine.so"), Some(Path::new("/lib/libmine.so"))).unwrap();
    bundle.add_program("program").unwrap();
    let listed = files(&bundle);
    assert!(listed.contains(&"/usr/lib/libmine.so".to_string()), "{listed:?}");
    assert!(listed.contains(&"/lib -> usr/lib".to_string()));

    f.write("/data/one", b"1", 0o600);
    f.write("/data/deep/two", b"22", 0o644);
    f.write("/elsewhere/three", b"333", 0o644);
    f.link("/data/three", "../elsewhere/three");
    f.link("/data/nowhere", "gone");
    let mut bundle = f.bundle();
    bundle.add_with(Path::new("/data"), None).unwrap();
    bundle.add_with(Path::new("/data/deep"), Some(Path::new("srv/x"))).unwrap();
    assert_eq!(
        files(&bundle),
        [
            "/data/deep/two",
            "/data/nowhere -> gone",
            "/data/one",
            "/data/three -> ../elsewhere/three",
            "/elsewhere/three",
            "/srv/x/two",
        ]
    );
    assert_eq!(bundle.entries()[Path::new("/data/one")].mode, 0o600);
    assert_eq!(bundle.size_bytes(), 1 + 2 + 3 + 2);
    // A library that something in a folder needs may be missing.
    let mut bundle = f.bundle();
    f.elf("/plugins/program", &[&INTERPRETER[..], &["home/me/libmine.so"]].concat());
    bundle.add_with(Path::new("/plugins"), None).unwrap();
    let missing: Vec<&str> = bundle.missing().map(|m| m.library.as_str()).collect();
    assert_eq!(missing, ["libmine.so"]);
}

/// Check that oversized bundles are refused with the largest files named, and so are the guest's own paths.
#[test]
fn limits() {
    let f = Fixture::new();
    f.write("/data/large", &vec![0; 3 << 20], 0o644);
    f.write("/data/small", b"x", 0o644);
    let mut bundle = f.bundle();
    bundle.add_with(Path::new("/data"), None).unwrap();
    bundle.check_size(4 << 20).unwrap();
    let said = bundle.check_size(2 << 20).unwrap_err().to_string();
    assert!(said.contains("are 4 MiB, more than the limit of 2 MiB"), "{said}");
    assert!(said.contains("/data/large (3 MiB)"), "{said}");
    let huge = File::create(f.path("/data/huge")).unwrap();
    huge.set_len(MAX_BYTES + 1).unwrap();
    assert!(matches!(
        f.bundle().add_with(Path::new("/data"), None),
        Err(BundleError::TooLarge { .. })
    ));
    let reserved = f.bundle().add_with(Path::new("/data/small"), Some(Path::new("/proc/../init")));
    assert!(matches!(reserved, Err(BundleError::Reserved { own: "/init", .. })));
}

/// Check that a file that grew since it was seen is an error, not half a file.
#[test]
fn a_file_that_changes() {
    let f = Fixture::new();
    f.write("/data/one", b"1", 0o644);
    let mut bundle = f.bundle();
    bundle.add_with(Path::new("/data/one"), None).unwrap();
    f.write("/data/one", b"12", 0o644);
    let said = bundle.entries()[Path::new("/data/one")].read().unwrap_err();
    assert!(said.to_string().contains("changed"), "{said}");
}

/// Check on this machine's own programs that the libraries match its loader's output.
#[test]
fn as_the_loader_says() {
    for program in ["sh", "awk", "cc"] {
        let mut bundle = Bundle::new(Host::here().unwrap());
        let path = bundle.add_program(program).unwrap();
        let output = Command::new("ldd").arg(&path).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut seen = 0;
        for line in text.lines() {
            let Some(library) = line.split_whitespace().find(|w| w.starts_with('/')) else {
                continue; // The vDSO.
            };
            let place = fs::canonicalize(library).unwrap();
            assert!(bundle.entries().contains_key(&place), "{program}: {line}");
            seen += 1;
        }
        assert!(seen >= 2, "{program}: {text}");
    }
}
