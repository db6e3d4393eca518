//! Names of functions in the symbol table, with the suffixes that compilers add.

/// Suffixes that a compiler appends, after a dot, to the name of a clone of a function: GCC's
/// (`gcc/cgraphclones.cc`, `gcc/ipa-cp.cc`, `gcc/lto`) and Clang's
/// (`-funique-internal-linkage-names`, ThinLTO). A number may follow each.
const CLONES: [&str; 7] =
    ["isra", "constprop", "clone", "llvm", "lto_priv", "localalias", "__uniq"];
/// Suffixes of a part that was split off; the rest of the function has the plain name.
const PARTS: [&str; 2] = ["part", "cold"];

/// A function's name without the suffixes that the compiler gives to clones and parts: `handle_softirqs` of
/// `handle_softirqs.constprop.0.cold`.
pub fn base_name(symbol: &str) -> &str {
    split(symbol).0
}

/// Whether a symbol is a part that the compiler split off a function (`f.part.0`, `f.cold`).
pub fn is_part(symbol: &str) -> bool {
    split(symbol).1
}

/// The suffix of functions that allocate, from 6.10 on: the plain name is a macro that counts
/// allocations by call site (commit 22d407b164ff, "lib: add allocation tagging support").
const TAGGED: &str = "_noprof";

/// Functions with several implementations on x86, one of them selected at boot by CPU features (arch/x86/lib/:
/// memset_64.S, memcpy_64.S, memmove_64.S, clear_page_64.S, copy_user_64.S), with the names of all of them.
const IMPLEMENTATIONS: &[(&str, &[&str])] = &[
    ("memset", &["memset", "__memset", "memset_orig", "memset_erms"]),
    ("memcpy", &["memcpy", "__memcpy", "memcpy_orig", "memcpy_erms"]),
    ("memmove", &["memmove", "__memmove", "memmove_erms"]),
    ("clear_page", &["clear_page_rep", "clear_page_orig", "clear_page_erms"]),
    (
        "copy_user_generic",
        &[
            "copy_user_generic_unrolled",
            "copy_user_generic_string",
            "copy_user_enhanced_fast_string",
            "copy_user_short_string",
            // 6.4, commit 427fda2c8a49.
            "rep_movs_alternative",
        ],
    ),
    (
        "clear_user",
        &[
            "clear_user_original",
            "clear_user_rep_good",
            "clear_user_erms",
            // 6.4, commit 8c9b6a88b7e2.
            "rep_stos_alternative",
        ],
    ),
];

/// The name of a function in the source: without the suffixes of the compiler and of the kernel's
/// macros.
pub fn source_name(symbol: &str) -> &str {
    let name = base_name(symbol);
    match name.strip_suffix(TAGGED) {
        Some(plain) if !plain.is_empty() => plain,
        _ => name,
    }
}

/// The function that a symbol is an implementation of, if it has several.
pub fn implementation_of(symbol: &str) -> Option<&'static str> {
    let name = base_name(symbol);
    let has = |(_, names): &&(&str, &[&str])| names.contains(&name);
    IMPLEMENTATIONS.iter().find(has).map(|(function, _)| *function)
}

/// Whether a name matches a C++ or Rust function's full name: `ns::Shape::area(int) const` is also `ns::Shape::area`,
/// `Shape::area` and `area`, and `int ns::twice<int>(int)` is `twice`.
pub fn is_called(whole: &str, name: &str) -> bool {
    let path = path_of(whole);
    let plain = without_generics(path);
    let ends = |path: &str| {
        path.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with("::"))
    };
    !name.is_empty() && (whole == name || ends(path) || ends(plain))
}

/// A function's name without its parameters, what follows them, and the type that it returns.
fn path_of(whole: &str) -> &str {
    const NAMELESS: &str = "(anonymous namespace)";
    let (mut depth, mut begin) = (0_u32, 0);
    for (at, c) in whole.char_indices() {
        match c {
            '<' => depth += 1,
            // `->` and `operator>` close nothing.
            '>' => depth = depth.saturating_sub(1),
            '(' if depth == 0 && !whole[at..].starts_with(NAMELESS) => return &whole[begin..at],
            // The space in `(anonymous namespace)` does not end a return type.
            ' ' if depth == 0 && !whole[at..].starts_with(" namespace)") => begin = at + 1,
            _ => {}
        }
    }
    // Names of Rust have no parameters.
    whole
}

/// Without the arguments of a template, or of a generic function, at its end.
fn without_generics(path: &str) -> &str {
    if !path.ends_with('>') {
        return path;
    }
    let mut depth = 0_u32;
    for (at, c) in path.char_indices().rev() {
        match c {
            '>' => depth += 1,
            '<' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            let before = &path[..at];
            return before.strip_suffix("::").unwrap_or(before);
        }
    }
    path
}

fn split(symbol: &str) -> (&str, bool) {
    let mut name = symbol;
    let mut part = false;
    while let Some((rest, suffix)) = name.rsplit_once('.') {
        let number = !suffix.is_empty() && suffix.bytes().all(|b| b.is_ascii_digit());
        let of_part = PARTS.contains(&suffix);
        if rest.is_empty() || !(number || of_part || CLONES.contains(&suffix)) {
            break;
        }
        part |= of_part;
        name = rest;
    }
    (name, part)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check which names match functions of C++ and Rust, and which don't.
    #[test]
    fn other_names() {
        for (whole, names) in [
            ("ns::S::add(int) const", &["ns::S::add", "S::add", "add"][..]),
            (
                "int ns::tmpl<int>(int, ns::Col)",
                &["ns::tmpl<int>", "tmpl<int>", "ns::tmpl", "tmpl"],
            ),
            ("(anonymous namespace)::hidden(char)", &["(anonymous namespace)::hidden", "hidden"]),
            ("<rs::Ci as rs::Shape>::area", &["area"]),
            ("rs::gen::<u32>", &["rs::gen", "gen"]),
            ("main", &["main"]),
        ] {
            assert!(is_called(whole, whole), "{whole}");
            for name in names {
                assert!(is_called(whole, name), "{whole}: {name}");
            }
        }
        for (whole, name) in [
            ("ns::S::add(int)", "dd"),
            ("ns::S::add(int)", "S"),
            ("ns::S::add(int)", ""),
            ("main", "ain"),
        ] {
            assert!(!is_called(whole, name), "{whole}: {name}");
        }
    }

    /// Check names of one function that differ between kernels and CPUs.
    #[test]
    fn one_function_of_several_names() {
        assert_eq!(source_name("kmem_cache_alloc_node_noprof"), "kmem_cache_alloc_node");
        assert_eq!(source_name("__kmalloc_noprof.isra.0"), "__kmalloc");
        assert_eq!(source_name("_noprof"), "_noprof");
        for (symbol, function) in [
            ("__memset", Some("memset")),
            ("memset_orig", Some("memset")),
            ("rep_movs_alternative", Some("copy_user_generic")),
            ("memset_io", None),
        ] {
            assert_eq!(implementation_of(symbol), function, "{symbol}");
        }
    }

    /// Check that suffixes of compilers are removed, and nothing else.
    #[test]
    fn clones_and_parts() {
        for (symbol, base, part) in [
            ("ip_rcv", "ip_rcv", false),
            ("ip_rcv.isra.0", "ip_rcv", false),
            ("handle_softirqs.constprop.0", "handle_softirqs", false),
            ("handle_softirqs.constprop.0.cold", "handle_softirqs", true),
            ("do_softirq.part.0", "do_softirq", true),
            ("ip_rcv.constprop.0.isra.12", "ip_rcv", false),
            ("ip_rcv.llvm.1234567890", "ip_rcv", false),
            ("ip_rcv.__uniq.123.llvm.456", "ip_rcv", false),
            ("ip_rcv.cold.1", "ip_rcv", true),
            ("ip_rcv.lto_priv.0", "ip_rcv", false),
            ("ip_rcv.17", "ip_rcv", false),
            ("ip_rcv_7", "ip_rcv_7", false),
            ("ip.handler", "ip.handler", false),
            (".cold", ".cold", false),
            (".constprop.0", ".constprop", false),
            ("", "", false),
            ("a..0", "a.", false),
        ] {
            assert_eq!((base_name(symbol), is_part(symbol)), (base, part), "{symbol}");
        }
    }
}
