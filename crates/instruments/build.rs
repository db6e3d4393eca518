//! Compiles what runs elsewhere, so that it is carried inside the binary: the
//! QEMU plugin, and the BPF programs.

use std::env;
use std::path::Path;
use std::process::Command;

use netplumb_bpfc::{compile, run, twins, variable};

fn main() {
    let root = variable("CARGO_MANIFEST_DIR");
    let out = variable("OUT_DIR");
    plugin(&root.join("../../plugins/qemu"), &out.join("exact.so"));
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

fn plugin(folder: &Path, out: &Path) {
    let sources = ["exact.c", "clock.c", "values.c"];
    let headers = ["exact.h", "clock.h", "values.h", "plugin_api.h"];
    for file in sources.iter().chain(&headers) {
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
    compiler.arg("-o").arg(out);
    compiler.args(sources.map(|file| folder.join(file)));
    run(
        compiler,
        "the QEMU plugin does not compile: is a C compiler installed?",
    );
}
