//! Whether this process is init in a guest of ours.

/// Set in the environment of init in our guests, by their kernel's command line, and nowhere else: PID 1
/// elsewhere is not a guest's.
pub const VARIABLE: &str = "PLUMB_GUEST";

/// Whether it is.
pub fn is_init() -> bool {
    std::process::id() == 1 && std::env::var_os(VARIABLE).is_some()
}
