//! `plumb`: where a packet's time goes in the Linux kernel, function by function.

fn main() {}
