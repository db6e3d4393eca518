//! Compiles the data paths' BPF programs, which the binary carries, and makes Rust of what
//! their headers declare.

fn main() {
    for name in ["xdp", "tc", "sink", "errors", "unsafe"] {
        netplumb_bpfc::compile("programs", name);
    }
    netplumb_bpfc::twins("programs", "paths.h", "paths");
    netplumb_bpfc::twins("programs", "errors.h", "errors");
}
