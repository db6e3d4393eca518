//! Compiles BPF programs, for the build scripts of the crates that carry some.

use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::{env, fs};

/// Names the clang to use.
const CLANG: &str = "CLANG";
/// Headers of all programs: `kernel/` has the kernel's own structures, each once.
const SHARED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sys/bpf");

/// Compile `src/FOLDER/NAME.bpf.c` of the crate that is built to `NAME.bpf.o` in its
/// output folder; the programs' headers lie beside them, and those that all share in
/// crates/sys/bpf. The build ends where that fails. The crate has to depend on libbpf-sys, whose headers are used.
pub fn compile(folder: &str, name: &str) {
    let folder = variable("CARGO_MANIFEST_DIR").join("src").join(folder);
    let source = folder.join(format!("{name}.bpf.c"));
    programs(&source, &variable("OUT_DIR").join(format!("{name}.bpf.o")));
}

fn programs(source: &Path, out: &Path) {
    tell(&format!("rerun-if-env-changed={CLANG}"));
    let folder = source.parent().unwrap_or(Path::new("."));
    let shared = Path::new(SHARED);
    for folder in [folder, &shared.join("kernel")] {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            tell(&format!("rerun-if-changed={}", entry.path().display()));
        }
    }
    let mut clang = Command::new(env::var_os(CLANG).unwrap_or_else(|| "clang".into()));
    // -g is for the BTF that libbpf makes the maps from.
    clang.args([
        "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror",
    ]);
    // The programs' context is there whether they read it or not.
    clang.arg("-Wno-unused-parameter");
    // bpf/bpf_helpers.h as of the libbpf that is linked in.
    clang.arg("-I").arg(variable("DEP_BPF_INCLUDE"));
    clang.arg("-I").arg(shared);
    // asm/types.h: for clang the target is BPF, so it does not look where the
    // distribution keeps the headers of this machine's kind.
    let machine = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    clang
        .arg("-idirafter")
        .arg(format!("/usr/include/{machine}-linux-gnu"));
    clang.arg("-c").arg(source).arg("-o").arg(out);
    run(
        clang,
        "the BPF programs do not compile: are clang and the kernel's headers for user space \
         (linux-libc-dev) installed?",
    );
}

/// Run a compiler; the build ends with `failure` where it fails.
pub fn run(mut command: Command, failure: &str) {
    if !command.status().is_ok_and(|s| s.success()) {
        tell(&format!("error={failure}"));
        process::exit(1);
    }
}

/// What cargo tells a build script, as a path.
pub fn variable(name: &str) -> PathBuf {
    PathBuf::from(env::var_os(name).unwrap_or_default())
}

/// Tell cargo something: a build script's standard output is for that.
#[expect(clippy::print_stdout, reason = "cargo reads it")]
fn tell(what: &str) {
    println!("cargo::{what}");
}
