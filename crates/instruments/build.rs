//! Compiles the QEMU plugin, so that it is carried inside the binary.

use std::path::PathBuf;
use std::{env, process};

fn main() {
    let folder = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap_or_default())
        .join("../../plugins/qemu");
    for file in ["exact.c", "exact.h", "plugin_api.h"] {
        println!("cargo::rerun-if-changed={}", folder.join(file).display());
    }
    let out = PathBuf::from(env::var("OUT_DIR").unwrap_or_default()).join("exact.so");
    // The plugin lives in QEMU's process, not in ours: a shared object, whatever
    // our own binary is.
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = process::Command::new(compiler)
        .args(["-O2", "-fPIC", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fvisibility=hidden"])
        .arg("-o")
        .arg(&out)
        .arg(folder.join("exact.c"))
        .status();
    if !status.is_ok_and(|s| s.success()) {
        println!("cargo::error=the QEMU plugin does not compile: is a C compiler installed?");
        process::exit(1);
    }
}
