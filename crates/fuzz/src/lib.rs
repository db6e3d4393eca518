//! Targets for fuzzing: each reads what somebody else wrote, and does with it what plumb does.
//!
//! `fuzz/` makes a program of libFuzzer of them, which `make fuzz` builds and runs; inputs that were found are in
//! `corpus/TARGET/`, and a test reads each again.

mod files;
mod guests;
mod texts;

/// A parser, by a name.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The name of its corpus.
    pub name: &'static str,
    /// What it reads.
    pub reads: &'static str,
    /// Reads an input, and returns whether it was valid: it must neither panic nor take much memory or time.
    pub run: fn(&[u8]) -> bool,
}

const fn target(name: &'static str, reads: &'static str, run: fn(&[u8]) -> bool) -> Target {
    Target { name, reads, run }
}

/// All of them.
pub const TARGETS: [Target; 16] = [
    target("recording", "recordings", files::recording),
    target("experiment", "experiment files", texts::experiment),
    target("deb", "packages of Debian", files::deb),
    target("image", "kernel images: ELF, bzImage, compressed ones", files::image),
    target("elf", "programs and modules: ELF with DWARF", files::elf),
    target("btf", "types of kernels", files::btf),
    target("kallsyms", "symbols of kernels", texts::kallsyms),
    target("config", "options of kernels", texts::config),
    target("perf-data", "files of perf", files::perf_data),
    target("plugin", "what a plugin of QEMU writes of a guest", guests::plugin),
    target("frames", "frames of messages, in noise", guests::frames),
    target("replies", "messages of a guest", guests::replies),
    target("requests", "messages to a guest", guests::requests),
    target("usbip", "USB/IP", guests::usbip),
    target("names", "events, ratios and knobs, as on command lines", texts::names),
    target("rules", "rules of layers and paths", texts::rules),
];

/// The one of a name.
pub fn named(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}
