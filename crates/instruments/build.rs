//! Compiles what runs elsewhere, so that it is carried inside the binary: the
//! QEMU plugins, and the BPF programs.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use netplumb_bpfc::{compile, run, twins, variable};

fn main() {
    let root = variable("CARGO_MANIFEST_DIR");
    let out = variable("OUT_DIR");
    let folder = root.join("../../plugins/qemu");
    let arch = ["arch.c", "arch_arm64.c", "arch_x86.c", "clock.c", "plugin_api.c"];
    let counter = [&arch[..], &["exact.c", "registers.c", "values.c"]].concat();
    let wire = ["wire.c", "wire_end.c", "wire_line.c", "wire_peer.c", "wire_qemu.c"];
    let wire = [&arch[..], &wire].concat();
    plugin(&folder, &counter, &out.join("exact.so"));
    plugin(&folder, &wire, &out.join("wire.so"));
    for name in ["functions", "samples", "single", "spans", "stages"] {
        compile(name, name);
        twins(name, &format!("{name}.h"), name);
    }
    for name in ["callers", "calls", "tasks"] {
        compile("events", name);
        twins("events", &format!("{name}.h"), name);
    }
    for name in ["busy", "drops"] {
        compile("rates", name);
        twins("rates", &format!("{name}.h"), name);
    }
}

fn plugin(folder: &Path, sources: &[&str], out: &Path) {
    const HEADERS: &[&str] = &[
        "arch.h",
        "clock.h",
        "exact.h",
        "plugin_api.h",
        "registers.h",
        "values.h",
        "wire.h",
        "wire_end.h",
        "wire_line.h",
        "wire_peer.h",
        "wire_qemu.h",
    ];
    for file in sources.iter().chain(HEADERS) {
        println!("cargo::rerun-if-changed={}", folder.join(file).display());
    }
    // The plugin lives in QEMU's process, not in ours: a shared object, whatever
    // our own binary is.
    let mut compiler = Command::new(c_compiler());
    compiler.args([
        "-O2",
        "-fPIC",
        "-std=gnu11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fvisibility=hidden",
        // It is the same wherever it was built.
        "-Wl,--build-id=none",
    ]);
    compiler.arg(format!("-ffile-prefix-map={}=plugins/qemu", folder.display()));
    compiler.arg("-o").arg(out);
    compiler.args(sources.iter().map(|file| folder.join(file)));
    run(compiler, "a QEMU plugin does not compile: is a C compiler installed?");
}

/// The C compiler for the machine that the program is built for, whose QEMU loads the plugin.
fn c_compiler() -> OsString {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let (target, host) = (variable("TARGET"), variable("HOST"));
    let named = match target == host {
        true => "CC".to_owned(),
        false => format!("CC_{}", target.replace('-', "_")),
    };
    println!("cargo::rerun-if-env-changed={named}");
    let default = match target == host {
        true => "cc".to_owned(),
        // As Debian names its cross compilers.
        false => format!("{}-linux-gnu-gcc", variable("CARGO_CFG_TARGET_ARCH")),
    };
    env::var_os(named).unwrap_or_else(|| default.into())
}
