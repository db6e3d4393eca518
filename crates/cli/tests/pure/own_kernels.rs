//! Kernels of one's own: a made-up build directory, with an image that nobody boots, and messages about its
//! configuration.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::common::{Place, Ran, Running, prints, skip, vmlinux};

/// A place with a build directory, `linux`, and a cache of its own.
struct Own {
    place: Place,
}

impl Own {
    fn new() -> Self {
        let place = Place::new();
        fs::create_dir(place.path("linux")).unwrap();
        Self { place }
    }

    /// Have the build directory hold a kernel with this configuration.
    fn build(&self, config: &str) {
        let banner = "6.1.0-mine (builder) #1";
        self.place.write("linux/vmlinux", vmlinux(banner));
        self.place.write("linux/.config", config);
    }

    fn run(&self, words: &str) -> Ran {
        let mut command = self.place.plumb(words);
        command.env("PLUMB_CACHE", self.place.path("cache"));
        // The directory has no kernel that could be booted.
        command.env("PLUMB_QEMU", "/nonexistent");
        Running::start(&mut command).finish()
    }

    fn git(&self, words: &[&str]) -> bool {
        let mut command = Command::new("git");
        command.current_dir(self.place.path("linux"));
        command.args(["-c", "user.name=a", "-c", "user.email=a@example.org"]);
        let output = command.args(words).output();
        output.is_ok_and(|output| output.status.success())
    }
}

/// The options that a line with `scripts/config` sets; none of another line.
fn set_by(line: &str) -> Vec<&str> {
    let words = line.trim().strip_prefix("scripts/config");
    let words = words.into_iter().flat_map(str::split_whitespace);
    words.filter(|word| *word != "-e").collect()
}

/// A configuration with these options.
fn config<'a>(options: impl Iterator<Item = &'a str>) -> String {
    options
        .map(|name| format!("CONFIG_{name}=y\n"))
        .chain(["# CONFIG_SMP is not set\n".to_owned()])
        .collect()
}

/// Check that the configuration in the guide is what tinyconfig is reported to lack, as it has none of these options;
/// and that nothing is reported for a kernel that has them.
#[test]
fn the_small_configuration_of_the_guide() {
    let own = Own::new();
    own.build(&config([].into_iter()));
    let ran = own.run("kernel add linux");
    ran.code(0);
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/kernels.md");
    let guide = fs::read_to_string(path).unwrap();
    let (_, block) = guide.split_once("make tinyconfig\n").unwrap();
    let (block, _) = block.split_once("make olddefconfig\n").unwrap();
    let block = block.replace("\\\n", " ");
    let documented: Vec<Vec<&str>> = block.lines().map(set_by).collect();
    let lines = ran.stdout.lines().map(set_by);
    let said: Vec<Vec<&str>> = lines.filter(|set| !set.is_empty()).collect();
    assert_eq!(documented, said, "{ran:?}");
    assert_eq!(said.len(), 2);

    own.build(&config(said.concat().into_iter()));
    let ran = own.run("kernel add linux");
    ran.code(0);
    assert!(!ran.stdout.contains("lack"), "{ran:?}");
}

/// Check the report on a build directory that lacks two options, with what these need themselves, and that the kernel
/// has its label and is found by it.
#[test]
fn two_options_are_missing() {
    let own = Own::new();
    own.build(&config([].into_iter()));
    let all = own.run("kernel add linux");
    let all: Vec<&str> = all.stdout.lines().flat_map(set_by).collect();
    let lacking = ["MULTIUSER", "NAMESPACES", "NET_NS", "NET_CORE", "VETH"];
    let has = all.iter().copied().filter(|name| !lacking.contains(name));
    own.build(&config(has));
    let ran = own.run("kernel add linux --label before");
    ran.code(0);
    let (added, rest) = ran.stdout.split_once('\n').unwrap();
    assert!(added.starts_with("Added 6.1.0-mine as "), "{added}");
    assert_eq!(
        rest,
        "Its label is before: `--kernel before`\n\
         Guests don't work without these options, which it lacks:\n  \
           NET_NS  the two ends of a link\n  \
           scripts/config -e MULTIUSER -e NAMESPACES -e NET_NS\n\
         It also lacks options that guests can use:\n  \
           VETH  link veth\n  \
           scripts/config -e NET_CORE -e VETH\n\
         After `make olddefconfig`, build it and add it again.\n\
         It has no modules: a guest has only drivers that are built in.\n"
    );
    let list = own.run("kernel list");
    list.code(0);
    let mut rows = list.stdout.lines().take(3);
    assert!(rows.next().unwrap().trim_end().ends_with("LABEL"));
    let mut ends = rows.filter(|row| row.trim_end().ends_with("before"));
    assert!(ends.next().is_some() && ends.next().is_none(), "{list:?}");
    prints(own.run("kernel show before").code(0), &[", label before\n"]);

    // The kernel is found, QEMU isn't; no kernel has the other label.
    let path = "path -q --packets 10 --blocks 1 --kernel";
    own.run(&format!("{path} before")).code(3).says(&["/nonexistent"]);
    own.run(&format!("{path} after"))
        .code(2)
        .says(&["no such kernel \"after\"", "linux, label before\n"]);
    own.run("kernel add linux --label debian").code(2).says(&["debian"]);
    assert_eq!(own.place.files(), ["cache", "linux"]);
}

/// Check that a build directory in a git repository has the label that `git describe` gives it, and that each of two
/// builds has its own.
#[test]
fn labels_of_a_repository() {
    let own = Own::new();
    own.place.write("linux/.gitignore", "vmlinux\n.config\n");
    own.place.write("linux/Makefile", "VERSION = 6\n");
    let commit = |name| own.git(&["add", "."]) && own.git(&["commit", "-qm", name]);
    if !(own.git(&["init", "-q"]) && commit("first") && own.git(&["tag", "v6.1"])) {
        return skip("no git");
    }
    own.build(&config(["NET"].into_iter()));
    prints(own.run("kernel add linux").code(0), &["Its label is v6.1: `--kernel v6.1`\n"]);
    own.place.write("linux/Makefile", "VERSION = 6\nPATCHLEVEL = 1\n");
    own.build(&config(["NET", "INET"].into_iter()));
    prints(own.run("kernel add linux").code(0), &["`--kernel v6.1-dirty`"]);
    assert!(commit("second"));
    own.build(&config(["NET", "INET", "VETH"].into_iter()));
    let ran = own.run("kernel add linux");
    prints(ran.code(0), &["Its label is v6.1-1-g"]);
    let list = own.run("kernel list");
    let labels: Vec<&str> = list
        .stdout
        .lines()
        .filter(|row| row.starts_with("6.1.0-mine"))
        .filter_map(|row| row.split_whitespace().next_back())
        .collect();
    assert_eq!(labels.len(), 3, "{list:?}");
    assert_eq!(labels[..2], ["v6.1", "v6.1-dirty"]);
    for label in labels {
        own.run(&format!("kernel show {label}")).code(0);
    }
}
