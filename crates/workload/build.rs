//! Compiles the frame generator's BPF programs, which the binary carries.

fn main() {
    netplumb_bpfc::compile("frames", "frames");
    netplumb_bpfc::twins("frames", "frames.h", "frames");
}
