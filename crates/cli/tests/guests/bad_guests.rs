//! Messages and exit codes where QEMU, a kernel or a guest is not as it has to be.

use std::fs;
use std::time::Duration;

use crate::common::{Place, Ran, Running, experiment};

/// A short run of one arm.
const SHORT: &str = "path --link lo --packets 20 --blocks 2";

/// Run in a guest with more words for its kernel.
fn with_cmdline(words: &str) -> Ran {
    let place = Place::new();
    let mut command = place.plumb(SHORT);
    let ran = Running::start(command.args(["--cmdline", words])).finish();
    assert_eq!(place.processes(), [""; 0]);
    assert_eq!(place.files(), [""; 0]);
    ran
}

// Errors of the machine's set-up.

/// Check that a missing QEMU is reported, with what to do about it.
#[test]
fn no_qemu() {
    let place = Place::new();
    let remedy = ["apt-get install qemu-system-x86", "$PLUMB_QEMU"];
    let mut command = place.plumb(SHORT);
    command.env_remove("PLUMB_QEMU").env("PATH", "");
    Running::start(&mut command).finish().code(3).says(&remedy);
    let mut command = place.plumb(SHORT);
    command.env("PLUMB_QEMU", "/nonexistent");
    Running::start(&mut command).finish().code(3).says(&["PLUMB_QEMU", "/nonexistent"]);
    assert_eq!(place.files(), [""; 0]);
}

// Kernels.

/// Check that an empty catalogue is reported, with what to do about it.
#[test]
fn no_kernel() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let mut command = place.plumb(SHORT);
    command.env("PLUMB_CACHE", place.path("cache"));
    Running::start(&mut command).finish().code(2).says(&["plumb kernel add debian"]);
    place.run("path --kernel 2.6.32").code(2).says(&[
        "2.6.32",
        "plumb kernel add",
        "there is",
        "debian",
    ]);
    assert_eq!(place.files(), [""; 0]);
}

/// Check the exit codes: 3 for kernels that guests can't boot, and 1 for files that are not
/// kernels.
#[test]
fn kernels_of_other_kinds() {
    let place = Place::new();
    // The header of an arm64 image (Documentation/arch/arm64/booting.rst), with these flags.
    let image = |flags: u8| {
        let mut image = vec![0; 4096];
        image[56..60].copy_from_slice(b"ARM\x64");
        image[24] = flags;
        image
    };
    place.write("big-endian", image(1));
    place.write("pages", image(2 << 1));
    place.write("larger-pages", image(3 << 1));
    place.write("no-kernel", image(1 << 1));
    place.write("program", fs::read("/proc/self/exe").unwrap());
    for (file, code, says) in [
        ("big-endian", 3, "build it with CONFIG_CPU_LITTLE_ENDIAN"),
        ("pages", 3, "has pages of 16 KiB"),
        ("larger-pages", 3, "has pages of 64 KiB"),
        ("no-kernel", 1, "give the vmlinuz, Image or vmlinux of a kernel"),
        ("program", 1, "give the vmlinuz, Image or vmlinux of a kernel"),
    ] {
        let mut command = place.plumb(&format!("kernel add {file}"));
        command.env("PLUMB_CACHE", place.path("cache"));
        Running::start(&mut command).finish().code(code).says(&[says]);
    }
}

/// Check that the error for a kernel that was not added gives the command that adds it, and comes
/// before anything is booted, also for the second arm.
#[test]
fn a_kernel_that_was_not_added() {
    if !crate::common::has_guests() {
        return;
    }
    for (name, remedy) in [
        ("debian:6.1.0-0", "plumb kernel add debian:6.1.0-0"),
        ("6.1.0-0-amd64", "plumb kernel add debian:6.1.0-0"),
        ("debian:6.1.0-0:arm64", "plumb kernel add debian:6.1.0-0:arm64"),
        ("6.1.0-0-arm64", "plumb kernel add debian:6.1.0-0:arm64"),
    ] {
        let ran = experiment(&format!("name = \"x\"\n[vary]\nkernel = [\"debian\", \"{name}\"]\n"));
        ran.code(2).says(&[name, remedy]);
        assert!(!ran.stderr.contains("boot"), "{}", ran.stderr);
    }
}

/// Check that a package that was cut off is refused, and leaves nothing behind.
#[test]
fn a_truncated_deb() {
    let place = Place::new();
    // The head of a package: the archive's magic, and a member that ends early.
    let mut deb = b"!<arch>\n".to_vec();
    deb.extend_from_slice(b"debian-binary   1700000000  0     0     100644  4         `\n2.0\n");
    deb.extend_from_slice(b"control.tar.xz  1700000000  0     0     100644  9000      `\n");
    deb.extend_from_slice(&[0xfd, b'7', b'z', b'X', b'Z', 0, 0, 4]);
    place.write("linux-image-6.1.deb", &deb);
    let ran = add_kernel(&place, "linux-image-6.1.deb");
    ran.code(1).says(&["linux-image-6.1.deb"]);
    place.write("empty.deb", "");
    add_kernel(&place, "empty.deb").code(1);
    add_kernel(&place, "missing.deb").code(2).says(&["missing.deb"]);
    assert_eq!(place.temporary_files(), [""; 0]);
    let kernels = place.path("cache/kernels");
    let left: Vec<_> = fs::read_dir(kernels)
        .map(|folder| folder.flatten().map(|e| e.file_name()).collect())
        .unwrap_or_default();
    // A lock may stay; unpacked files may not.
    assert!(left.iter().all(|n| n == "lock" || n == ".lock"), "{left:?}");
}

fn add_kernel(place: &Place, source: &str) -> Ran {
    let mut command = place.plumb("kernel add");
    command.arg(source).env("PLUMB_CACHE", place.path("cache"));
    Running::start(&mut command).finish()
}

/// Check that a module that the kernel lacks is named.
#[test]
fn a_missing_module() {
    if !crate::common::has_guests() {
        return;
    }
    let cache = crate::common::poorer_cache(&["kernel/drivers/virtio", "kernel/drivers/char"]);
    let place = Place::new();
    let mut command = place.plumb("path --link veth");
    command.env("PLUMB_CACHE", cache.path());
    Running::start(&mut command)
        .finish()
        .code(3)
        .says(&["no driver of link veth (module veth)", "--link with one that it has (lo"]);
    assert_eq!(place.files(), [""; 0]);
}

// Guests.

/// Check that a panic is reported as one, with the console's output.
#[test]
fn a_kernel_that_panics() {
    if !crate::common::has_guests() {
        return;
    }
    with_cmdline("init=/nonexistent rdinit=/nonexistent").code(1).says(&[
        "the guest's kernel panicked: VFS: Unable to mount root fs",
        "last console lines:",
        "Call Trace:",
    ]);
}

/// Check that a guest that runs out of memory is reported as such, though the trace pushes the
/// panic out of the last lines.
#[test]
fn a_guest_out_of_memory() {
    if !crate::common::has_guests() {
        return;
    }
    with_cmdline("hugepagesz=2M hugepages=80").code(1).says(&[
        "the guest's kernel panicked: ",
        "on memory",
        "the guest has 256 MiB",
        "last console lines:",
    ]);
}

/// Check that a guest that ends silently is distinguished from a QEMU that fails.
#[test]
fn a_guest_that_stops() {
    if !crate::common::has_guests() {
        return;
    }
    // Two that stand in for QEMU: what a guest's reset looks like from outside,
    // and what a failure of QEMU's own does.
    let place = Place::new();
    let ending = |end: &str| {
        let version = "[ \"$1\" = --version ] && exec echo QEMU emulator version 7.2.0";
        format!("#!/bin/sh\n{version}\n{end}\n")
    };
    place.write("qemu", ending("exit 0"));
    place.write("failing-qemu", ending("echo >&2 no luck today; exit 7"));
    for (qemu, words) in [
        ("qemu", &["the guest stopped early", "--cmdline"][..]),
        ("failing-qemu", &["QEMU failed", "7", "no luck today"]),
    ] {
        executable(&place, qemu);
        let mut command = place.plumb(SHORT);
        command.env("PLUMB_QEMU", place.path(qemu));
        Running::start(&mut command).finish().code(1).says(words);
    }
}

/// Check that a program that is not QEMU, whether it fails or not, is reported as such.
#[test]
fn a_qemu_that_is_none() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    for program in ["/bin/false", "/bin/true", "/etc/passwd"] {
        let mut command = place.plumb(SHORT);
        command.env("PLUMB_QEMU", program);
        let ran = Running::start(&mut command).finish();
        ran.code(3).says(&[&format!("{program} is not QEMU"), "$PLUMB_QEMU", "plumb doctor"]);
    }
    assert_eq!(place.files(), [""; 0]);
}

/// Check that a QEMU that can't do what is required is reported in one line, with a remedy and what works without: one
/// that is too old, made up, and by what QEMU prints of plugins.
#[test]
fn a_qemu_that_cannot() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    for (version, prints, says) in [
        ("6.2.0", "", &["is QEMU 6.2.0, and guests need 7.2 or newer", "--lab netns"][..]),
        (
            "10.0.0",
            "qemu-system-x86_64: -plugin file=x: invalid option",
            &["built without TCG plugins", "$PLUMB_QEMU", "--clock stages"],
        ),
        (
            "10.0.0",
            "Could not load plugin x: x: undefined symbol: qemu_plugin_reset",
            &["does not export its plugin interface", "$PLUMB_QEMU"],
        ),
        (
            "99.0.0",
            "Could not load plugin x: plugin requires API version 3, but this QEMU supports only a \
             minimum version of 9",
            &["uses version 3", "takes version 9", "PLUMB_QEMU"],
        ),
        (
            "10.0.0",
            "can't apply global base-x86_64-cpu.mpx=on: Property 'base-x86_64-cpu.mpx' not found",
            &["has no CPU feature `mpx`", "$PLUMB_QEMU"],
        ),
    ] {
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && exec echo QEMU emulator version {version}\n\
             case \"$*\" in *-append*) : >booted;; esac\n\
             echo >&2 \"{prints}\"; exit 1\n"
        );
        place.write("qemu", script);
        executable(&place, "qemu");
        let mut command = place.plumb(SHORT);
        command.env("PLUMB_QEMU", place.path("qemu")).env("PLUMB_CONFINE_QEMU", "0");
        Running::start(&mut command).finish().code(3).says(says);
        // One that was not tested is refused before a guest boots.
        let booted = place.path("booted");
        assert_eq!(booted.exists(), version == "10.0.0", "{version}: {prints}");
        let _ = fs::remove_file(booted);
    }
}

/// Check that doctor has a remedy for a QEMU that is too old, and reports one that is newer than the tested ones as
/// untested.
#[test]
fn doctor_of_other_qemus() {
    let place = Place::new();
    for (version, says) in [
        ("6.2.0", "is QEMU 6.2.0, and guests need 7.2 or newer"),
        ("99.0.0", "untested: 7.2, 10.0 and 11.1 were tested"),
    ] {
        place.write(
            "qemu",
            format!("#!/bin/sh\n[ \"$1\" = --version ] && exec echo QEMU emulator version {version}\nexit 1\n"),
        );
        executable(&place, "qemu");
        let mut command = place.plumb("doctor");
        command.env("PLUMB_QEMU", place.path("qemu"));
        let ran = Running::start(&mut command).finish();
        let words: Vec<&str> = ran.stdout.split_whitespace().collect();
        assert!(words.join(" ").contains(says), "{}", ran.stdout);
    }
}

fn executable(place: &Place, name: &str) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o755)).unwrap();
}

/// Check that a guest that never gets to its agent ends at the limit.
#[test]
fn a_guest_that_takes_too_long() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    // A saved state would spare it the boot.
    let ran = place.run(&format!("{SHORT} --cold --timeout 1"));
    ran.code(1).says(&["did not start its agent within 1 s", "--timeout"]);
    assert!(ran.took < Duration::from_secs(10), "{:?}", ran.took);
    assert_eq!(place.processes(), [""; 0]);
    assert_eq!(place.files(), [""; 0]);
}

/// Check that what fails in the guest is reported with the guest's own error.
#[test]
fn a_setting_that_there_is_not() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    place
        .run(&format!("{SHORT} --sysctl net.core.no_such=1"))
        .code(3)
        .says(&["in the guest", "net.core.no_such"]);
    assert_eq!(place.files(), [""; 0]);
}
