//! The layers of the kernel that functions belong to, as in kernel/rules/layers.toml.

/// The layer of user code, which no rule assigns.
pub const APPLICATION: &str = "application";

/// Layers in the order of the path, from the application down.
pub const PATH: [&str; 11] = [
    APPLICATION,
    "syscall",
    "filesystem",
    "block",
    "socket",
    "transport",
    "network",
    "netfilter",
    "link",
    "driver",
    "bus",
];

/// Layers that the whole path shares.
pub const SHARED: [&str; 11] = [
    "memory",
    "copy",
    "locking",
    "scheduling",
    "timer",
    "interrupt",
    "security",
    "bpf",
    "tracing",
    "mitigation",
    "library",
];

/// All of them.
pub const LAYERS: &[&str] = {
    const ALL: [&str; PATH.len() + SHARED.len()] = {
        let mut all = [""; PATH.len() + SHARED.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = if at < PATH.len() { PATH[at] } else { SHARED[at - PATH.len()] };
            at += 1;
        }
        all
    };
    &ALL
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that all layers are the path's, followed by the shared ones.
    #[test]
    fn in_order() {
        let both: Vec<&str> = PATH.iter().chain(&SHARED).copied().collect();
        assert_eq!(LAYERS, both);
    }
}
