//! Downloads from an archive that has moved on: a made-up one, with packages whose files are marks, and requested by
//! the real apt.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Place, Ran, Running, skip, vmlinux};
use netplumb_lab::vm::kernels::{KernelEntry, KernelStore};

/// A package: its name, version, architecture, and dependencies.
type Package<'a> = (&'a str, &'a str, &'a str, &'a str);

/// The packages of a kernel and its modules, all of one version; kbuild's as asked for.
fn kernel<'a>(release: &str, version: &'a str) -> Vec<(String, &'a str, &'static str, String)> {
    let image = format!("linux-image-{release}-amd64");
    let common = format!("linux-headers-{release}-common");
    let needs = format!(
        "{common} (= {version}), linux-kbuild-6.1 (>= {version}), linux-compiler-gcc-12-x86"
    );
    vec![
        (format!("{image}-dbg"), version, "amd64", String::new()),
        (image, version, "amd64", String::new()),
        (format!("linux-headers-{release}-amd64"), version, "amd64", needs),
        (common, version, "all", String::new()),
        ("linux-kbuild-6.1".to_owned(), version, "amd64", String::new()),
        ("linux-source-6.1".to_owned(), version, "all", String::new()),
    ]
}

/// The metapackage of the current kernel.
fn current(release: &str, version: &'static str) -> (String, &'static str, &'static str, String) {
    let needs = format!("linux-image-{release}-amd64 (= {version})");
    ("linux-image-amd64".to_owned(), version, "amd64", needs)
}

/// A raw image of arm64 with its header, and the banner after it.
fn arm64_image(release: &str) -> Vec<u8> {
    let mut out = vec![0; 0x40];
    out[0x18] = 0b1010;
    out[0x38..0x3c].copy_from_slice(b"ARM\x64");
    out.extend_from_slice(format!("Linux version {release} (builder)\n\0").as_bytes());
    out
}

/// An archive, a machine whose apt knows no other, and a cache.
struct Archive {
    place: Place,
}

impl Archive {
    /// An empty one; none, with a skip, where there is no apt.
    fn new() -> Option<Self> {
        let installed = |program| Command::new(program).arg("--version").output().is_ok();
        if !["apt-get", "dpkg-deb"].into_iter().all(installed) {
            skip("no apt");
            return None;
        }
        let place = Place::new();
        for folder in ["repo", "state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(place.path(folder)).unwrap();
        }
        let top = place.path("").display().to_string();
        let top = top.trim_end_matches('/');
        let config = format!(
            "Dir::Etc::main \"/dev/null\";\nDir::Etc::parts \"/dev/null\";\n\
             Dir::Etc::sourcelist \"{top}/sources.list\";\nDir::Etc::sourceparts \"/dev/null\";\n\
             Dir::Etc::preferencesparts \"/dev/null\";\nDir::State \"{top}/state\";\n\
             Dir::State::status \"/dev/null\";\nDir::Cache \"{top}/cache\";\n\
             APT::Architecture \"amd64\";\nAPT::Sandbox::User \"root\";\n"
        );
        place.write("apt.conf", config);
        place.write("sources.list", format!("deb [trusted=yes] copy:{top}/repo ./\n"));
        Some(Self { place })
    }

    /// Have it hold these packages and no others.
    fn holds(&self, packages: &[Vec<(String, &str, &str, String)>]) {
        let repo = self.place.path("repo");
        fs::remove_dir_all(&repo).unwrap();
        fs::create_dir(&repo).unwrap();
        let mut index = String::new();
        for (name, version, arch, depends) in packages.iter().flatten() {
            index += &self.listed(&self.build((name, version, arch, depends)));
        }
        fs::write(repo.join("Packages"), index).unwrap();
    }

    /// Have it hold a kernel that boots, and its metapackage.
    fn packs(&self, kernel: &KernelEntry) {
        let (release, version) = (&kernel.release, "6.1.192-2");
        self.holds(&[vec![current(release.trim_end_matches("-amd64"), version)]]);
        let name = format!("linux-image-{release}");
        let tree = self.begin((&name, version, "amd64", ""));
        let copy = |from: PathBuf, to: String| {
            let to = tree.join(to);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            let copied = Command::new("cp").arg("-r").args([from, to]).status();
            assert!(copied.unwrap().success());
        };
        copy(kernel.boot_image(), format!("boot/vmlinuz-{release}"));
        copy(kernel.config().unwrap(), format!("boot/config-{release}"));
        copy(kernel.modules_dir(), format!("lib/modules/{release}"));
        let listed = self.listed(&self.pack((&name, version, "amd64", "")));
        let index = self.place.path("repo/Packages");
        let others = fs::read_to_string(&index).unwrap();
        fs::write(index, others + &listed).unwrap();
    }

    /// The archive's list entry for the package that was built last.
    fn listed(&self, built: &Path) -> String {
        let sum = Command::new("sha256sum").arg(built).output().unwrap().stdout;
        let sum = String::from_utf8(sum).unwrap();
        let size = fs::metadata(built).unwrap().len();
        let file = built.file_name().unwrap().to_string_lossy().into_owned();
        let control = fs::read_to_string(self.place.path("tree/DEBIAN/control")).unwrap();
        format!(
            "{control}Filename: ./{file}\nSize: {size}\nSHA256: {}\n\n",
            sum.split_whitespace().next().unwrap()
        )
    }

    /// Begin the tree of a package, with what describes it.
    fn begin(&self, (name, version, arch, depends): Package<'_>) -> PathBuf {
        let tree = self.place.path("tree");
        let _ = fs::remove_dir_all(&tree);
        fs::create_dir_all(tree.join("DEBIAN")).unwrap();
        let depends = match depends {
            "" => String::new(),
            depends => format!("Depends: {depends}\n"),
        };
        let control = format!(
            "Package: {name}\nVersion: {version}\nArchitecture: {arch}\nMaintainer: A <a@example.org>\n\
             {depends}Section: {}\nDescription: made up\n",
            if name.ends_with("-base") { "libs" } else { "kernel" }
        );
        fs::write(tree.join("DEBIAN/control"), control).unwrap();
        tree
    }

    /// Build a package, with the files that are looked for in one of its name.
    fn build(&self, package: Package<'_>) -> PathBuf {
        let (name, version, arch, depends) = package;
        let tree = self.begin(package);
        let write = |path: &str, data: &[u8]| {
            let path = tree.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, data).unwrap();
        };
        let mark = format!("{name} {version}\n");
        if let Some(release) = name.strip_prefix("linux-image-").filter(|_| depends.is_empty()) {
            let (release, image) = match release.strip_suffix("-dbg") {
                Some(release) => (release, "usr/lib/debug/boot/vmlinux"),
                None => (release, "boot/vmlinuz"),
            };
            let banner = format!("{release} (builder) #1 SMP Debian {version}");
            write(&format!("{image}-{release}"), &vmlinux(&banner));
            if arch == "arm64" {
                write(&format!("{image}-{release}"), &arm64_image(release));
                let config =
                    "CONFIG_CC_VERSION_TEXT=\"gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0\"\n";
                write(&format!("boot/config-{release}"), config.as_bytes());
                let module = format!("lib/modules/{release}/kernel/drivers/net/usb/usbnet.ko");
                write(&module, &fs::read(self.place.path("usbnet.o")).unwrap());
            }
        } else if name.starts_with("cpp-") {
            write("usr/lib/gcc/aarch64-linux-gnu/12/cc1", mark.as_bytes());
        } else if name.starts_with("linux-source-") {
            write(&format!("usr/src/{name}.tar.xz"), mark.as_bytes());
        } else {
            write(&format!("usr/src/{name}/mark"), mark.as_bytes());
        }
        self.pack(package)
    }

    /// Make the package of its tree.
    fn pack(&self, (name, version, arch, _): Package<'_>) -> PathBuf {
        let tree = self.place.path("tree");
        let deb = self.place.path("repo").join(format!("{name}_{version}_{arch}.deb"));
        let built = Command::new("dpkg-deb")
            .args(["-Znone", "--root-owner-group", "--build"])
            .args([&tree, &deb])
            .output()
            .unwrap();
        assert!(built.status.success(), "{built:?}");
        deb
    }

    /// What the machine's administrator does once in a while.
    fn update(&self) {
        let mut command = self.place.command("apt-get");
        command.args(["-qq", "update"]).env("APT_CONFIG", self.place.path("apt.conf"));
        assert!(command.status().unwrap().success());
    }

    /// Run the program.
    fn plumb(&self, words: &str) -> Ran {
        let mut command = self.place.plumb(words);
        command
            .env("APT_CONFIG", self.place.path("apt.conf"))
            .env("PLUMB_CACHE", self.place.path("plumb"));
        Running::start(&mut command).finish()
    }

    fn entry(&self, name: &str) -> KernelEntry {
        KernelStore::new(&self.place.path("plumb")).find(name).unwrap()
    }

    /// The packages that a kernel's modules would be built from, which are not of its version.
    fn others(&self, kernel: &KernelEntry) -> String {
        let source = self.place.path("plumb/sources").join(&kernel.hash);
        assert!(source.join("source.tar.xz").is_file());
        fs::read_to_string(source.join("packages")).unwrap()
    }

    /// Do what an error advises, in all of its commands.
    fn heed(&self, ran: &Ran) {
        let commands: Vec<&str> = ran.stderr.split('`').skip(1).step_by(2).collect();
        assert!(!commands.is_empty(), "{ran:#?}");
        for command in commands {
            let words = command.strip_prefix("plumb ");
            if let Some(words) = words {
                self.plumb(words).code(0);
            }
        }
    }
}

/// Check that a kernel's headers and source are of its own version where the archive has that, and that kbuild,
/// headers and source of another version serve where their dependencies allow it, the nearest first.
#[test]
fn packages_that_moved_on() {
    for (gone, come, others) in [
        // All of one version.
        (&[][..], &[][..], ""),
        // kbuild alone is newer, as headers allow it.
        (
            &["linux-kbuild-6.1"],
            &[("linux-kbuild-6.1", "6.1.192-3")],
            "linux-kbuild-6.1 6.1.192-3\n",
        ),
        // The source of this version is gone.
        (
            &["linux-source-6.1"],
            &[
                ("linux-source-6.1", "6.1.190-1"),
                ("linux-source-6.1", "6.1.192-3"),
                ("linux-source-6.1", "6.1.195-1"),
            ],
            "linux-source-6.1 6.1.192-3\n",
        ),
        (
            &["linux-source-6.1"],
            &[("linux-source-6.1", "6.1.191-1"), ("linux-source-6.1", "6.1.210-1")],
            "linux-source-6.1 6.1.191-1\n",
        ),
    ] {
        let Some(archive) = Archive::new() else {
            return;
        };
        let mut packages = kernel("6.1.0-56", "6.1.192-2");
        packages.retain(|(name, ..)| !gone.contains(&name.as_str()));
        let come = come
            .iter()
            .map(|(name, version)| ((*name).to_owned(), *version, "amd64", String::new()));
        packages.extend(come);
        archive.holds(&[packages, vec![current("6.1.0-56", "6.1.192-2")]]);
        archive.update();
        archive.plumb("kernel add debian --debug").code(0);
        assert_eq!(archive.others(&archive.entry("debian")), others);
    }
}

/// Check that headers of another revision are taken with their dependencies of that revision.
#[test]
fn headers_of_another_revision() {
    let Some(archive) = Archive::new() else {
        return;
    };
    archive.holds(&[kernel("6.1.0-56", "6.1.192-2")]);
    archive.update();
    archive.plumb("kernel add debian:6.1.0-56").code(0);
    let mut packages = kernel("6.1.0-56", "6.1.192-3");
    packages.retain(|(name, ..)| !name.contains("image"));
    let image = kernel("6.1.0-56", "6.1.192-2");
    let image = image.into_iter().filter(|(name, ..)| name.contains("image"));
    archive.holds(&[packages, image.collect()]);
    // The machine's lists are old: newer ones are fetched.
    archive.plumb("kernel add debian:6.1.0-56 --debug").code(0);
    let others = archive.others(&archive.entry("debian:6.1.0-56"));
    let mut names: Vec<&str> = others.lines().collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "linux-headers-6.1.0-56-amd64 6.1.192-3",
            "linux-headers-6.1.0-56-common 6.1.192-3",
            "linux-kbuild-6.1 6.1.192-3",
            "linux-source-6.1 6.1.192-3"
        ]
    );
}

/// Check that missing packages are named with their alternatives, and that the remedies work: of headers that are gone,
/// kbuild that is too old, and debug information of another build.
#[test]
fn what_is_missing() {
    let Some(archive) = Archive::new() else {
        return;
    };
    archive.holds(&[kernel("6.1.0-56", "6.1.192-2")]);
    archive.update();
    archive.plumb("kernel add debian:6.1.0-56 --debug").code(0);
    let sources = archive.place.path("plumb/sources");

    // A newer ABI only, but for a kernel without its headers.
    fs::remove_dir_all(&sources).unwrap();
    let mut older = kernel("6.1.0-55", "6.1.190-1");
    older.retain(|(name, ..)| !name.contains("headers"));
    archive.holds(&[kernel("6.1.0-57", "6.1.195-1"), older]);
    let ran = archive.plumb("kernel add debian:6.1.0-56 --debug");
    assert_ne!(ran.status.code(), Some(0));
    ran.says(&["no linux-headers-6.1.0-56-amd64", "`plumb kernel add debian:6.1.0-57`"]);
    archive.heed(&ran);

    // kbuild is too old for the headers.
    let mut packages = kernel("6.1.0-56", "6.1.192-2");
    packages.retain(|(name, ..)| name != "linux-kbuild-6.1");
    packages.push(("linux-kbuild-6.1".into(), "6.1.176-1", "amd64", String::new()));
    archive.holds(&[packages, kernel("6.1.0-47", "6.1.170-1")]);
    let again = || {
        let _ = fs::remove_dir_all(archive.place.path("plumb/apt"));
        archive.plumb("kernel add debian:6.1.0-56 --debug")
    };
    let ran = again();
    assert_ne!(ran.status.code(), Some(0));
    ran.says(&[
        "no linux-kbuild-6.1 (>= 6.1.192-2): it has 6.1.176-1, 6.1.170-1",
        "`plumb kernel add debian:6.1.0-47`",
    ]);
    archive.heed(&ran);

    // The debug information is from a later build of the same release.
    let old = archive.entry("debian:6.1.0-56");
    fs::remove_dir_all(old.folder.join("debug")).unwrap();
    archive.holds(&[kernel("6.1.0-56", "6.1.192-3")]);
    let ran = again();
    ran.code(1).says(&[
        "no linux-image-6.1.0-56-amd64-dbg (= 6.1.192-2): it has 6.1.192-3",
        &format!("`plumb kernel rm {}`", old.short()),
        "`plumb kernel add debian:6.1.0-56 --debug`",
    ]);
    archive.heed(&ran);
    let new = archive.entry("debian:6.1.0-56");
    assert!(new.hash != old.hash && new.debug_vmlinux().is_some());
}

/// Check that a kernel is found whatever of the archive's names have moved: lists older than the archive, a series
/// or a current kernel without its metapackage, a release that is gone.
#[test]
fn kernels_that_moved_on() {
    let Some(archive) = Archive::new() else {
        return;
    };
    archive.holds(&[kernel("6.1.0-56", "6.1.192-2"), vec![current("6.1.0-56", "6.1.192-2")]]);
    archive.update();
    // The file that the machine's lists name is gone.
    let backport = kernel("6.12.9+deb12", "6.12.9-1~deb12u1");
    let new = kernel("6.1.0-57", "6.1.195-1");
    archive.holds(&[new, backport, vec![current("6.1.0-57", "6.1.195-1")]]);
    archive.plumb("kernel add debian").code(0);
    assert_eq!(archive.entry("debian").release, "6.1.0-57-amd64");
    for (asked, release) in [("6.12", "6.12.9+deb12-amd64"), ("6.1", "6.1.0-57-amd64")] {
        archive.plumb(&format!("kernel add debian:{asked}")).code(0);
        assert_eq!(archive.entry(&format!("debian:{asked}")).release, release);
    }
    let ran = archive.plumb("kernel add debian:6.1.0-56");
    ran.code(1).says(&[
        "no linux-image-6.1.0-56-amd64: it has debian:6.1.0-57, debian:6.12.9+deb12",
        "`plumb kernel add debian:6.1.0-57`",
    ]);
    archive.heed(&ran);
    archive.plumb("kernel add debian:6.16").code(1).says(&["debian:6.12.9+deb12"]);
    // The metapackage is ahead of its kernel.
    archive.holds(&[kernel("6.1.0-58", "6.1.196-1"), vec![current("6.1.0-59", "6.1.199-1")]]);
    let _ = fs::remove_dir_all(archive.place.path("plumb"));
    archive.plumb("kernel add debian").code(0);
    assert_eq!(archive.entry("debian").release, "6.1.0-58-amd64");
    archive.place.nothing_runs();
}

/// Check that a damaged kernel of the archive is fetched again before anything boots, and keeps its label; that the error
/// names the other build if the archive has one now, which the next run boots; and that damage to a kernel from a file is an error.
#[test]
fn damaged_kernels() {
    let Some(archive) = Archive::new() else {
        return;
    };
    let at = |version: &'static str| {
        archive.holds(&[kernel("6.1.0-56", version), vec![current("6.1.0-56", version)]]);
    };
    // It stops after the kernel was looked up.
    let run = |kernel: &str| {
        let ran = archive.plumb(&format!("path --kernel {kernel} --load no_such_module"));
        ran.code(1);
        ran
    };
    at("6.1.192-2");
    archive.plumb("kernel add debian --label mine").code(0);
    let entry = archive.entry("mine");
    let image = entry.folder.join("vmlinux");
    let whole = fs::read(&image).unwrap();
    for (name, file, marks) in [
        ("mine", &image, ["vmlinux", "fetching it again from debian:6.1.0-56"]),
        ("debian", &entry.folder.join("kernel.toml"), ["kernel.toml", "removed"]),
    ] {
        fs::write(file, "").unwrap();
        run(name).says(&marks).says(&["no_such_module"]);
        assert_eq!(archive.entry(name), archive.entry(&entry.hash));
        assert_eq!(fs::read(&image).unwrap(), whole);
        assert!(!run(name).stderr.contains("removed"));
    }
    at("6.1.192-3");
    archive.update();
    fs::write(&image, "").unwrap();
    let ran = run("debian");
    ran.says(&["was damaged (vmlinux"]);
    let other = archive.entry("debian");
    assert!(other.hash != entry.hash && !entry.folder.exists());
    ran.says(&[entry.short(), "was damaged (vmlinux", &format!("--kernel {}", other.short())]);

    fs::write(other.folder.join("vmlinux"), "").unwrap();
    fs::remove_dir_all(archive.place.path("repo")).unwrap();
    run("debian").says(&["removed", "fetching it again", "could not download"]);
    let file = archive.place.path("vmlinux");
    fs::write(&file, vmlinux("6.2.0-test")).unwrap();
    let file = file.display().to_string();
    archive.plumb(&format!("kernel add {file}")).code(0);
    fs::write(archive.entry(&file).folder.join("vmlinux"), "").unwrap();
    run(&file).says(&["is damaged (vmlinux", &format!("`plumb kernel add {file}` replaces it")]);
}

/// Check that a guest boots a kernel whose image and modules were damaged where their lengths don't show it, since they
/// are fetched again, and that packets cost what they did.
#[test]
fn vm_damaged_kernels_are_fetched_again() {
    let real = match crate::common::kernel() {
        Ok(kernel) => kernel,
        Err(why) => return skip(&why),
    };
    let Some(archive) = Archive::new() else {
        return;
    };
    archive.packs(&real);
    archive.plumb("kernel add debian").code(0);
    let entry = archive.entry("debian");
    assert_eq!(entry.hash, real.hash);
    const RUN: &str = "path --cold --link veth --packets 20 --blocks 1 -o";
    archive.plumb(&format!("{RUN} before.plumb")).code(0);
    let veth = entry.module_tree().unwrap().find("veth").unwrap().path.clone();
    for damaged in [entry.boot_image(), veth] {
        let bytes = fs::read(&damaged).unwrap();
        fs::write(&damaged, vec![0; bytes.len()]).unwrap();
        let ran = archive.plumb(&format!("{RUN} after.plumb"));
        let name = damaged.file_name().unwrap().to_string_lossy();
        ran.code(0).says(&["was damaged", &name, "fetching it again"]);
        let costs = |file: &str| archive.place.recording(file).costs.clone();
        assert_eq!(costs("before.plumb"), costs("after.plumb"), "{name}");
        assert_eq!(fs::read(&damaged).unwrap(), bytes);
    }
}

/// Check that an unreachable archive is reported as such, with what the machine's own lists have.
#[test]
fn archive_out_of_reach() {
    let Some(archive) = Archive::new() else {
        return;
    };
    archive.holds(&[kernel("6.1.0-56", "6.1.192-2"), vec![current("6.1.0-56", "6.1.192-2")]]);
    archive.update();
    fs::remove_dir_all(archive.place.path("repo")).unwrap();
    archive.plumb("kernel add debian:6.1.0-57").code(1).says(&[
        "no linux-image-6.1.0-57-amd64: it has debian:6.1.0-56",
        "newer package lists can't be fetched",
    ]);
}

/// Check that the compiler of a kernel of arm64 is the nearest that the archive has after it was rebuilt, with the
/// libraries of its own version; and that kbuild's programs are this machine's.
#[test]
fn compiler_that_was_rebuilt() {
    const COMPILER: &str = "aarch64-linux-gnu-gcc-12";
    let Some(archive) = Archive::new() else {
        return;
    };
    archive
        .place
        .write("usbnet.c", "static const char magic[] __attribute__((section(\".modinfo\"), used)) = \"vermagic=6.1.0-56-arm64 \";\n\
         int usbnet(void) { return 0; }\n");
    let mut compile = archive.place.command(COMPILER);
    let compiled = compile.args(["-c", "usbnet.c"]).status();
    let emulated = Command::new("qemu-aarch64").arg("--version").output();
    if compiled.is_err() || emulated.is_err() {
        return skip("no cross compiler or no qemu-aarch64 (scripts/setup.sh arm64)");
    }
    assert!(compiled.unwrap().success());
    let [old, new] = ["12.2.0-14", "12.2.0-14+deb12u2"];
    let of_arm64 = |name: &str, version, depends: &str| {
        (name.to_owned(), version, "arm64", depends.to_owned())
    };
    let base = |version| format!("gcc-12-base (= {version})");
    let headers = "linux-kbuild-6.1 (>= 6.1.192-2)";
    archive.holds(&[
        vec![
            of_arm64("linux-image-6.1.0-56-arm64", "6.1.192-2", ""),
            of_arm64("linux-headers-6.1.0-56-arm64", "6.1.192-2", headers),
            of_arm64("cpp-12", old, &base(old)),
            of_arm64("cpp-12", new, &base(new)),
            of_arm64("gcc-12-base", new, ""),
            // The package that apt would install.
            of_arm64("gcc-12-base", "12.2.0-15", ""),
        ],
        vec![
            ("linux-kbuild-6.1".to_owned(), "6.1.192-3", "amd64", String::new()),
            ("linux-source-6.1".to_owned(), "6.1.192-2", "all", String::new()),
        ],
    ]);
    archive.update();
    archive.plumb("kernel add debian:6.1.0-56:arm64").code(0);
    // There is no source to build.
    archive.plumb("module build usbnet --kernel debian:6.1.0-56:arm64").code(1);
    let kernel = archive.entry("debian:6.1.0-56:arm64");
    assert_eq!(archive.others(&kernel), "linux-kbuild-6.1 6.1.192-3\n");
    let compilers = archive.place.path("plumb/sources/compilers");
    let kept = compilers.join("gcc-12_12.2.0-14+deb12u1_arm64");
    assert_eq!(fs::read_to_string(kept.join("version")).unwrap(), new);
    let mark = fs::read_to_string(kept.join("root/usr/src/gcc-12-base/mark")).unwrap();
    assert_eq!(mark, format!("gcc-12-base {new}\n"));
}
