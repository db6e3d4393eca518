//! Compiles what runs elsewhere, so that it is carried inside the binary: the
//! QEMU plugin, and the BPF programs.

use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::{env, fs};

/// Names the clang to use.
const CLANG: &str = "CLANG";

fn main() {
    let root = variable("CARGO_MANIFEST_DIR");
    let out = variable("OUT_DIR");
    plugin(&root.join("../../plugins/qemu"), &out.join("exact.so"));
    programs(
        &root.join("src/functions/functions.bpf.c"),
        &out.join("functions.bpf.o"),
    );
    programs(
        &root.join("src/stages/stages.bpf.c"),
        &out.join("stages.bpf.o"),
    );
}

fn plugin(folder: &Path, out: &Path) {
    for file in ["exact.c", "exact.h", "plugin_api.h"] {
        println!("cargo::rerun-if-changed={}", folder.join(file).display());
    }
    // The plugin lives in QEMU's process, not in ours: a shared object, whatever
    // our own binary is.
    let mut compiler = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.args([
        "-O2",
        "-fPIC",
        "-std=gnu11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fvisibility=hidden",
    ]);
    compiler.arg("-o").arg(out).arg(folder.join("exact.c"));
    run(
        compiler,
        "the QEMU plugin does not compile: is a C compiler installed?",
    );
}

/// Compile BPF programs; their headers lie beside them.
fn programs(source: &Path, out: &Path) {
    println!("cargo::rerun-if-env-changed={CLANG}");
    let folder = source.parent().unwrap_or(Path::new("."));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        println!("cargo::rerun-if-changed={}", entry.path().display());
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

fn variable(name: &str) -> PathBuf {
    PathBuf::from(env::var_os(name).unwrap_or_default())
}

fn run(mut command: Command, failure: &str) {
    if !command.status().is_ok_and(|s| s.success()) {
        println!("cargo::error={failure}");
        process::exit(1);
    }
}
