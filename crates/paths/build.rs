//! Compiles the data paths' BPF programs, which the binary carries.

fn main() {
    for name in ["xdp", "tc", "sink", "errors", "unsafe"] {
        netplumb_bpfc::compile("programs", name);
    }
}
