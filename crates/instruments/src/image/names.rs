//! Names of functions as people write them.

/// Longer names are cut.
const MAX_NAME_CHARS: usize = 500;

/// A symbol without the mangling of Rust or C++, and without the version that a
/// dynamic one may carry.
pub fn readable(symbol: &str) -> String {
    let name = demangled(symbol).unwrap_or_else(|| symbol.to_string());
    if name.chars().count() <= MAX_NAME_CHARS {
        return name;
    }
    name.chars().take(MAX_NAME_CHARS - 1).chain(['…']).collect()
}

fn demangled(symbol: &str) -> Option<String> {
    // `foo@plt` is foo's stub.
    if let Some(of) = symbol.strip_suffix("@plt") {
        return Some(format!("{}@plt", demangled(of)?));
    }
    if let Ok(rust) = rustc_demangle::try_demangle(symbol) {
        return Some(format!("{rust:#}"));
    }
    if !symbol.starts_with("_Z") {
        return None;
    }
    cpp_demangle::Symbol::new(symbol).ok()?.demangle().ok()
}

/// The name of a function without one: the address in its file.
pub(crate) fn at_address(start: u64) -> String {
    format!("[{start:#x}]")
}

/// Whether a name is one of those.
pub(crate) fn is_at_address(name: &str) -> bool {
    name.starts_with("[0x")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check names of C, C++ and Rust, and that what only looks mangled is kept.
    #[test]
    fn names() {
        assert_eq!(readable("main"), "main");
        assert_eq!(readable("_ZN3foo3barEi"), "foo::bar(int)");
        assert_eq!(readable("_ZN3foo3barEi@plt"), "foo::bar(int)@plt");
        assert_eq!(readable("_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
        assert_eq!(readable("_Znonsense"), "_Znonsense");
        let long = "x".repeat(2_000);
        assert_eq!(readable(&long).chars().count(), MAX_NAME_CHARS);
    }
}
