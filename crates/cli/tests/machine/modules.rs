//! Modules built from the source of a guest's kernel: the packages are fetched from Debian's
//! archive where apt can.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Place, skip, tell};
use netplumb_kernel::code;
use netplumb_lab::vm::kernels::KernelEntry;
use netplumb_model::class::Direction;
use netplumb_report::analysis::{ClassView, classes};

/// The kernel, and a module of it as its package has it; none, with a skip, where modules
/// can't be built.
fn kernel(place: &Place, module: &str) -> Option<KernelEntry> {
    let kernel = match crate::common::kernel() {
        Ok(kernel) => kernel,
        Err(why) => {
            skip(&why);
            return None;
        }
    };
    let built = place.run(&format!("module build {module} -o tried.ko"));
    match built.status.code() {
        Some(0) => Some(kernel),
        // Nothing to build in this kernel, as crc64 in Debian 13's.
        Some(2) if built.stderr.contains("is built into the kernel") => {
            tell(built.stderr.trim());
            None
        }
        // No apt, no compiler, or only another version in the archive.
        Some(3) => {
            skip(built.stderr.trim());
            None
        }
        _ => panic!("{built:#?}"),
    }
}

/// The source of the module, as the program keeps it.
fn source(kernel: &KernelEntry, file: &str) -> PathBuf {
    let kept = crate::common::cache().join("sources").join(&kernel.hash).join("trees");
    kept.join("drivers-net-usb").join("drivers/net/usb").join(file)
}

/// A patch of a file, by `diff`.
fn write_patch(place: &Path, original: &Path, change: impl Fn(&str) -> String) -> PathBuf {
    let text = fs::read_to_string(original).unwrap();
    let changed = change(&text);
    assert_ne!(text, changed);
    let (file, patch) = (place.join("changed.c"), place.join("change.patch"));
    fs::write(&file, changed).unwrap();
    let names = ["a", "b"].map(|side| format!("{side}/drivers/net/usb/usbnet.c"));
    let output = std::process::Command::new("diff")
        .args(["-u", "--label", &names[0], "--label", &names[1]])
        .args([original, &file])
        .output()
        .unwrap();
    fs::write(&patch, output.stdout).unwrap();
    patch
}

/// Check that the unmodified source gives the code of the kernel's own module, that a patch changes
/// only its function, and that one that does not apply, does not compile or is not a patch is
/// refused, with nothing written and nothing left behind.
#[test]
fn unmodified_and_patched() {
    let place = Place::new();
    let Some(kernel) = kernel(&place, "usbnet") else {
        return;
    };
    let own = kernel.module_tree().unwrap().require("usbnet").unwrap().read().unwrap();
    let built = fs::read(place.path("tried.ko")).unwrap();
    let (own, built) = (code::code(&own).unwrap(), code::code(&built).unwrap());
    let difference = code::compare(&own, &built);
    assert!(difference.is_empty(), "{difference:#?}");
    // No name but the user's.
    let nowhere = place.run("module build usbnet -o nowhere/usbnet.ko");
    nowhere.code(1).says(&["can't write nowhere/usbnet.ko: No such file or directory"]);
    assert!(!nowhere.stderr.contains(".tmp"), "{nowhere:#?}");
    assert_eq!(own.text_bytes, built.text_bytes);

    let original = source(&kernel, "usbnet.c");
    let patch = write_patch(&place.path(""), &original, |text| {
        text.replace("clear_bit(EVENT_RX_KILL, &dev->flags);", "")
    });
    let patched = place.run("module build usbnet --patch change.patch -o patched.ko");
    assert!(patched.status.success(), "{patched:#?}");
    assert!(patched.stdout.contains("drivers/net/usb/usbnet.c"), "{patched:#?}");
    let changed = code::code(&fs::read(place.path("patched.ko")).unwrap()).unwrap();
    let names: Vec<String> = code::compare(&built, &changed)
        .functions
        .into_iter()
        .map(|function| function.name)
        .collect();
    assert_eq!(names, ["usbnet_bh", "usbnet_open", "usbnet_open.cold"]);

    let cocci = "@@\nexpression e;\n@@\n- clear_bit(EVENT_RX_KILL, e);\n";
    fs::write(place.path("change.cocci"), cocci).unwrap();
    let matched = place.run("module build usbnet --cocci change.cocci -o matched.ko");
    if matched.status.code() == Some(3) {
        skip(matched.stderr.trim());
    } else {
        assert!(matched.status.success(), "{matched:#?}");
        let matched = code::code(&fs::read(place.path("matched.ko")).unwrap()).unwrap();
        assert!(code::compare(&changed, &matched).is_empty());
        fs::write(place.path("change.cocci"), cocci.replace("KILL", "NONE")).unwrap();
        let nothing = place.run("module build usbnet --cocci change.cocci -o refused.ko");
        assert_eq!(nothing.status.code(), Some(1), "{nothing:#?}");
        assert!(nothing.stderr.contains("matches nothing in usbnet.c"), "{nothing:#?}");
        for (text, says) in [
            ("@@\nexpression e;\n@\n- foo(e);\n", "change.cocci: line 3, column 0"),
            ("", "change.cocci: it has no rule"),
        ] {
            fs::write(place.path("change.cocci"), text).unwrap();
            let refused = place.run("module build usbnet --cocci change.cocci -o refused.ko");
            refused.code(1).says(&["spatch can't apply", says]);
        }
    }

    for (text, code, says) in [
        ("no patch at all\n".to_owned(), 2, "not a patch"),
        (
            fs::read_to_string(&patch).unwrap().replace("clear_bit(EVENT", "clear_bet(EVENT"),
            1,
            "rebase it on Linux ",
        ),
        (
            "--- a/net/core/dev.c\n+++ b/net/core/dev.c\n@@ -1 +1 @@\n-a\n+b\n".into(),
            1,
            "net/core/dev.c",
        ),
    ] {
        fs::write(&patch, text).unwrap();
        let refused = place.run("module build usbnet --patch change.patch -o refused.ko");
        assert_eq!(refused.status.code(), Some(code), "{refused:#?}");
        assert!(refused.stderr.contains(says), "{refused:#?}");
        if says.starts_with("rebase") {
            let kept = original.ancestors().nth(4).unwrap();
            refused.says(&["does not apply", &format!("which is in {}", kept.display())]);
        }
        assert!(!place.path("refused.ko").exists());
    }
    write_patch(&place.path(""), &original, |text| {
        text.replacen("clear_bit(EVENT_RX_KILL", "clear_nothing(EVENT_RX_KILL", 1)
    });
    let broken = place.run("module build usbnet --patch change.patch -o refused.ko");
    assert_eq!(broken.status.code(), Some(1), "{broken:#?}");
    assert!(broken.stderr.contains("clear_nothing"), "{broken:#?}");
    let left = fs::read_dir(crate::common::cache().join("sources")).unwrap();
    let left: Vec<String> = left
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(".adding"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Check that a file that is not a module, or a module built into the kernel, is refused, and that
/// a file that is not a module is not overwritten.
#[test]
fn refused() {
    let place = Place::new();
    if crate::common::kernel().is_err() {
        return skip("no kernel");
    }
    for (name, says) in [("usbnt", "usbnet"), ("ipv6", "built into the kernel")] {
        let refused = place.run(&format!("module build {name}"));
        assert_eq!(refused.status.code(), Some(2), "{refused:#?}");
        assert!(refused.stderr.contains(says), "{refused:#?}");
    }
    fs::write(place.path("notes.ko"), "notes").unwrap();
    let refused = place.run("module build usbnet -o notes.ko");
    if refused.status.code() == Some(3) {
        return skip(refused.stderr.trim());
    }
    assert_eq!(refused.status.code(), Some(2), "{refused:#?}");
    assert_eq!(fs::read(place.path("notes.ko")).unwrap(), b"notes");
}

/// Check that a guest with the unmodified build executes the same as with the kernel's own module, to the instruction
/// and in every function, of datagrams and of a stream, that two modules of one arm are both loaded, and that the
/// report names the files.
#[test]
fn measured() {
    let place = Place::new();
    if kernel(&place, "usbnet").is_none() {
        return;
    }
    let built = place.run("module build cdc_ether -o other.ko");
    assert!(built.status.success(), "{built:#?}");
    let folder = source(&crate::common::kernel().unwrap(), "");
    let folder = format!("source      {}", folder.display());
    assert!(built.stdout.contains(folder.trim_end_matches('/')), "{built:#?}");
    let experiment = "name = \"aa\"\nlab = \"vm\"\ninstruments = [\"exact\"]\n[workload]\n\
                      kind = \"packets\"\npackets = 100\n[knobs]\nlink = \"usb-net\"\nproto = \
                      \"udp\"\n[vary]\nmodule = [\"\", \"tried.ko\", [\"tried.ko\", \"other.ko\"]]\n";
    fs::write(place.path("aa.toml"), experiment).unwrap();
    let ran = place.run("run aa.toml -o aa.plumb --quiet");
    assert!(ran.status.success(), "{ran:#?}");
    let recording = place.recording("aa.plumb");
    let names: Vec<&str> = recording.arms.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!(names, ["module=own", "module=tried.ko", "module=tried.ko+other.ko"]);
    for module in ["tried.ko", "tried.ko+other.ko"] {
        same(&place, "aa.plumb", module);
    }
}

/// Check the same of a link whose packets wait for interrupts, in replies and a stream too: the receiver's
/// neighbour is in a bucket of its own, whatever was loaded before.
#[test]
fn measured_of_replies() {
    let place = Place::new();
    if kernel(&place, "virtio_net").is_none() {
        return;
    }
    let experiment = "name = \"aa\"\nlab = \"vm\"\ninstruments = [\"exact\"]\n[workload]\n\
                      kind = \"packets\"\npackets = 100\n[knobs]\nlink = \"virtio-net\"\n[vary]\n\
                      proto = [\"raw\", \"tcp\"]\nmodule = [\"\", \"tried.ko\"]\n";
    fs::write(place.path("aa.toml"), experiment).unwrap();
    place.run("run aa.toml -o aa.plumb --quiet").code(0);
    same(&place, "aa.plumb", "tried.ko");
}

/// Check that arms with the kernel's own module and with a build of it are the same in every class.
#[track_caller]
fn same(place: &Place, file: &str, module: &str) {
    // Either may be the worse one.
    for (before, after) in [("own", module), (module, "own")] {
        let arms = format!("{file}:module={before} {file}:module={after}");
        let compared = place.run(&format!("diff {arms} --fail-if-worse 0"));
        compared.code(0);
    }
    let recording = place.recording(file);
    let classes = classes(&recording);
    let of = |module: &str| -> Vec<_> {
        let name = format!("module={module}");
        let views = classes.iter().filter(|view| {
            view.class.direction != Direction::Other
                && recording.arms[view.arm].name.ends_with(&name)
        });
        let views = views.map(|view| (format!("{:?}", view.class), view.total, view.packets));
        views.collect()
    };
    let (own, built) = (of("own"), of(module));
    assert!(!own.is_empty() && own.len() == built.len(), "{own:?}, {built:?}");
    for (own, built) in own.iter().zip(&built) {
        // An interrupt may set a timer of the kernel's random numbers, once a second of the guest's
        // clock, and acknowledgements of a stream differ by a few in a million: see docs/limits.md.
        let apart = own.1.abs_diff(built.1);
        assert!(own.0 == built.0 && own.2 == built.2, "{own:?}, {built:?}");
        assert!(apart * 10_000 <= own.1, "{own:?}, {built:?}");
    }
}

/// Check that modules of the command line are built and compared, an unmodified one being the same as
/// the kernel's own; and that the labs of this machine's kernel refuse them.
#[test]
fn of_the_command_line() {
    let place = Place::new();
    if kernel(&place, "usbnet").is_none() {
        return;
    }
    let words =
        "path -q --link smsc95xx --sender device --rx-fault bad-size --packets 50 --blocks 1";
    place.run(&format!("{words} --module= --module usbnet -o a.plumb")).code(0);
    let recording = place.recording("a.plumb");
    // Of the module itself: a guest into which it was loaded from memory has other free pages.
    let of_usbnet = |view: &ClassView<'_>| -> u64 {
        let functions = view.functions.iter().filter(|f| {
            let module = recording.functions[f.function as usize].module.as_deref();
            module == Some("usbnet")
        });
        functions.map(|f| f.self_insns).sum()
    };
    let dropped: Vec<u64> = (classes(&recording).iter())
        .filter(|view| view.class.direction == Direction::Drop)
        .map(of_usbnet)
        .collect();
    assert_eq!(recording.arms.len(), 2, "{:?}", recording.arms);
    assert!(dropped.len() == 2 && dropped[0] > 0, "{dropped:?}");
    assert_eq!(dropped[0], dropped[1]);
    let refused = place.run("path --lab netns --clock stages --module usbnet");
    refused.code(2);
    let refused = place.run("path --link smsc95xx --module usbnet+none.patch");
    assert!(refused.stderr.contains("none.patch: can't read the patch"), "{refused:#?}");
}

/// Check that a module which the kernel refuses is reported with its file, the kernel's reason and a
/// remedy; and that one of another configuration is refused before a guest boots.
#[test]
fn not_loaded() {
    let place = Place::new();
    if kernel(&place, "veth").is_none() {
        return;
    }
    let built = fs::read(place.path("tried.ko")).unwrap();
    // In `__versions`, a symbol's name is after its version, and filled up with zeros.
    let entry = [&b"register_netdevice"[..], &[0; 38]].concat();
    let mut other = built.clone();
    let at = place_of(&other, &entry);
    other[at - 8] ^= 1;
    fs::write(place.path("crc.ko"), other).unwrap();
    let words = "path -q --link veth --proto udp --packets 10 --blocks 1 --module";
    let refused = place.run(&format!("{words} ./crc.ko"));
    refused.code(1).says(&[
        "crc.ko does not load",
        "disagrees about version of symbol register_netdevice",
        "plumb module build",
    ]);
    assert!(!refused.stderr.contains("-veth"), "{refused:#?}");
    assert_eq!(refused.stderr.lines().count(), 1, "{refused:#?}");
    let mut other = built;
    let at = place_of(&other, b"mod_unload modversions");
    other[at..at + 3].copy_from_slice(b"MOD");
    fs::write(place.path("flags.ko"), other).unwrap();
    let refused = place.run(&format!("{words} ./flags.ko"));
    refused.says(&["flags.ko", "MOD_unload", "another configuration"]);
    assert!(!refused.stderr.contains("in the guest"), "{refused:#?}");
}

/// Where bytes are in others.
fn place_of(bytes: &[u8], wanted: &[u8]) -> usize {
    let mut windows = bytes.windows(wanted.len());
    windows.position(|window| window == wanted).unwrap()
}

/// Check that a module that is given with a command is loaded where that runs, and that without it is an
/// arm of its own.
#[test]
fn loaded_for_a_command() {
    let place = Place::new();
    if kernel(&place, "usbnet").is_none() {
        return;
    }
    let mut command = place.plumb("path -q -o work.plumb --module tried.ko");
    command.args(["--module", "", "--", "cat", "/proc/modules"]);
    let ran = crate::common::Running::start(&mut command).finish();
    ran.code(0);
    let loaded = ran.stdout.lines().filter(|l| l.starts_with("usbnet "));
    // O, from outside of the kernel's tree; E, without its signature.
    assert_eq!(loaded.filter(|l| l.ends_with("(OE)")).count(), 1, "{ran:#?}");
    let recording = place.recording("work.plumb");
    assert_eq!(recording.arms.len(), 2);
}

/// A program of kbuild's own that tries to leave the build, and reports whether it could.
const ESCAPE: &str = r#"
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
__attribute__((constructor)) static void escape(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	const char *out = 0;

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (open("PLACE/escaped", O_CREAT | O_WRONLY, 0666) >= 0) out = "wrote";
	if (open("PLACE/secret", O_RDONLY) >= 0 || open("/etc/shadow", O_RDONLY) >= 0) out = "read";
	if (!connect(socket(AF_INET, SOCK_STREAM, 0), (void *)&at, sizeof at)) out = "connected";
	if (!kill(PROCESS, 0)) out = "signalled";
	if (!geteuid() || !setuid(0)) out = "was root";
	if (out) { dprintf(2, "error: escaped: %s\n", out); exit(1); }
}
"#;

/// Check that a program that a patch has kbuild run, or a file that it has compilers read, can't reach
/// anything outside of the build; and that an experiment's patches can change no such program at all.
#[test]
fn patches_stay_inside() {
    let place = Place::new();
    let Some(kernel) = kernel(&place, "crc64") else {
        return;
    };
    let trees = crate::common::cache().join("sources").join(&kernel.hash).join("trees");
    let original = trees.join("lib/lib/gen_crc64table.c");
    fs::write(place.path("secret"), "#error a secret\n").unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let escape = ESCAPE
        .replace("PORT", &port.to_string())
        .replace("PLACE", &place.path("").display().to_string())
        .replace("PROCESS", &std::process::id().to_string());
    let patch = write_patch(&place.path(""), &original, |text| format!("{text}{escape}"));
    let text = fs::read_to_string(&patch).unwrap();
    fs::write(&patch, text.replace("drivers/net/usb/usbnet.c", "lib/gen_crc64table.c")).unwrap();
    // Whoever types a patch may change such programs: they run, and get nowhere.
    let built = place.run("module build crc64 --patch change.patch -o changed.ko");
    built.code(0).says(&[]);
    assert!(!place.path("escaped").exists());

    let experiment = "name = \"x\"\n[knobs]\nlink = \"lo\"\nmodule = \"crc64+change.patch\"\n";
    fs::write(place.path("x.toml"), experiment).unwrap();
    let refuse = |says: &[&str]| {
        place.run("run -q x.toml").code(2).says(says);
    };
    refuse(&["lib/gen_crc64table.c", "crc64 is not compiled from"]);
    for file in ["lib/Makefile", "scripts/kallsyms.c"] {
        fs::write(&patch, text.replace("drivers/net/usb/usbnet.c", file)).unwrap();
        let refused = place.run("run -q x.toml");
        assert!([Some(1), Some(2)].contains(&refused.status.code()), "{refused:#?}");
        assert!(refused.stderr.contains(file), "{refused:#?}");
    }
    // Of another module in the same folder.
    let other = trees.join("lib/lib/crc32.c");
    write_patch(&place.path(""), &other, |text| format!("{text}\nint x;\n"));
    let text = fs::read_to_string(&patch).unwrap();
    fs::write(&patch, text.replace("drivers/net/usb/usbnet.c", "lib/crc32.c")).unwrap();
    refuse(&["lib/crc32.c", "crc64 is not compiled from"]);
    fs::write(&patch, "--- /dev/null\n+++ b/lib/stdio.h\n@@ -0,0 +1 @@\n+int x;\n").unwrap();
    refuse(&["--- /dev/null"]);
    let own = trees.join("lib/lib/crc64.c");
    for line in ["#include \"SECRET\"", "asm(\".incbin \\\"SECRET\\\"\");"] {
        let line = line.replace("SECRET", &place.path("secret").display().to_string());
        let patch = write_patch(&place.path(""), &own, |text| format!("{text}\n{line}\n"));
        let text = fs::read_to_string(&patch).unwrap();
        fs::write(&patch, text.replace("drivers/net/usb/usbnet.c", "lib/crc64.c")).unwrap();
        let refused = place.run("run -q x.toml");
        refused.code(1).says(&["does not build", "secret"]);
        assert!(!refused.stderr.contains("a secret"), "{refused:#?}");
    }
}
