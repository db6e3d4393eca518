//! Where a function is in a file.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use netplumb_model::events::nearest;
use netplumb_model::symbol::is_called;
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

use crate::image::{code_at, inlined_in_words, readable};

/// Larger files are not read: few programs have more.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// Maximum time to read the debug information of a file.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether a file has a function of this name.
pub fn has_function(file: &Path, function: &str) -> bool {
    let Ok(bytes) = read(file) else { return false };
    let elf = object::File::parse(&*bytes);
    elf.is_ok_and(|elf| matches!(named(&elf, function)[..], [_]))
}

/// The functions of this name: the one with this symbol, or C++ and Rust functions that demangle to it.
fn named<'f>(elf: &'f object::File<'f>, function: &str) -> Vec<object::Symbol<'f, 'f>> {
    if let Some(symbol) = functions(elf).find(|symbol| symbol.name() == Ok(function)) {
        return vec![symbol];
    }
    let mut found: Vec<object::Symbol<'_, '_>> = Vec::new();
    for symbol in functions(elf) {
        let is_it = |name: &str| is_called(&readable(name), function);
        let known = found.iter().any(|other| other.address() == symbol.address());
        if !known && symbol.name().is_ok_and(is_it) {
            found.push(symbol);
        }
    }
    found
}

/// The functions that a file has.
fn functions<'f>(elf: &'f object::File<'f>) -> impl Iterator<Item = object::Symbol<'f, 'f>> {
    let symbols = elf.symbols().chain(elf.dynamic_symbols());
    symbols.filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
}

/// The content of a file.
fn read(file: &Path) -> Result<Vec<u8>, String> {
    let shown = file.display();
    let unread = |error| format!("can't read {shown}: {error}");
    let found = fs::metadata(file).map_err(unread)?;
    if !found.is_file() {
        return Err(format!("{shown} is no file"));
    }
    if found.len() > MAX_FILE_BYTES {
        return Err(format!("{shown} has more than {} MiB", MAX_FILE_BYTES >> 20));
    }
    fs::read(file).map_err(unread)
}

/// The file offset of a function, for a probe.
///
/// # Errors
/// The file can't be read, or lacks the function.
pub(super) fn offset(file: &Path, function: &str) -> Result<u64, String> {
    let shown = file.display();
    let bytes = read(file)?;
    let elf = object::File::parse(&*bytes).map_err(|_| format!("{shown} is no ELF file"))?;
    if let Some(digits) = function.strip_prefix("0x") {
        let offset = u64::from_str_radix(digits, 16).ok();
        // The kernel takes a probe anywhere, but never reaches one outside of code.
        return match offset.filter(|offset| code_at(&bytes, *offset)) {
            Some(offset) => Ok(offset),
            None => Err(format!("{shown} has no code at offset {function}")),
        };
    }
    let found = named(&elf, function);
    let symbol = match &found[..] {
        [] => return Err(missing(file, &bytes, &elf, function)),
        [one] => one,
        several => return Err(ambiguous(file, several, function)),
    };
    let address = symbol.address();
    let within = elf.segments().find_map(|segment| {
        let at = address.checked_sub(segment.address())?;
        let (offset, bytes) = segment.file_range();
        (at < bytes).then_some(offset + at)
    });
    within.ok_or_else(|| format!("{shown}: function `{function}` is in no segment"))
}

/// The error for a name that several functions have.
fn ambiguous(file: &Path, several: &[object::Symbol<'_, '_>], function: &str) -> String {
    const SHOWN: usize = 4;
    let names = several.iter().filter_map(|symbol| symbol.name().ok());
    let names = names.map(|name| format!("{} ({name})", readable(name)));
    let shown: Vec<String> = names.take(SHOWN).collect();
    let more = match several.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "{} has several functions `{function}`: {}{more}; name one by what is in brackets",
        file.display(),
        shown.join(", ")
    )
}

/// Why a file lacks the function.
fn missing(file: &Path, bytes: &[u8], elf: &object::File<'_>, function: &str) -> String {
    let shown = file.display();
    if functions(elf).next().is_none() {
        return format!("{shown} has no symbols: use a file that is not stripped");
    }
    let until = Instant::now() + PATIENCE;
    let inlined = inlined_in_words(Some(file), bytes, function, &|| Instant::now() < until);
    if let Some(into) = inlined {
        return format!("{shown} has no function `{function}`: it was inlined into {into}");
    }
    let names: Vec<String> =
        (functions(elf)).filter_map(|of| of.name().ok().map(readable)).collect();
    match nearest(function, names.iter().map(String::as_str)) {
        Some(meant) => format!("{shown} has no function `{function}`; did you mean `{meant}`?"),
        None => format!(
            "{shown} has no function `{function}`: it may be inlined into its callers, or be in a library"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    const SOURCE: &str = "
        static inline __attribute__((always_inline)) int inlined_away(int n)
        { __asm__ volatile(\"\" : \"+r\"(n)); return n * 3; }
        int main(int argc, char **argv) { return inlined_away(argc); }";

    /// Check that Rust functions are found by their source names, and that an ambiguous name is refused.
    #[test]
    fn of_a_program_of_rust() {
        const SOURCE: &str = "
            mod shapes { pub struct S; impl S { #[inline(never)] pub fn area(&self) -> u32 { std::hint::black_box(3) } } }
            mod other { #[inline(never)] pub fn area() -> u32 { std::hint::black_box(4) }
                        #[inline(never)] pub fn alone() -> u32 { std::hint::black_box(5) } }
            fn main() { println!(\"{}\", shapes::S.area() + other::area() + other::alone()); }";
        let place = tempfile::tempdir().unwrap();
        let (source, own) = (place.path().join("own.rs"), place.path().join("own"));
        fs::write(&source, SOURCE).unwrap();
        let compiler =
            Command::new("rustc").args(["-C", "opt-level=1", "-o"]).args([&own, &source]).status();
        assert!(compiler.unwrap().success());
        let whole = offset(&own, "own::other::alone").unwrap();
        assert_eq!(offset(&own, "other::alone"), Ok(whole));
        assert_eq!(offset(&own, "alone"), Ok(whole));
        assert!(has_function(&own, "alone"));
        let error = offset(&own, "area").unwrap_err();
        assert!(error.contains("own::other::area") && error.contains("several"), "{error}");
        assert!(offset(&own, "other::area").is_ok());
    }

    /// Check that functions of a program are found, and that for others the nearest is offered, or the
    /// reason why there is none.
    #[test]
    fn of_a_program() {
        let place = tempfile::tempdir().unwrap();
        let own = place.path().join("program");
        let built = |more: &str| {
            let mut compiler = Command::new("cc")
                .args(["-x", "c", "-", "-g", more, "-o"])
                .arg(&own)
                .stdin(Stdio::piped())
                .spawn()
                .unwrap();
            let mut source = compiler.stdin.take().unwrap();
            source.write_all(SOURCE.as_bytes()).unwrap();
            drop(source);
            assert!(compiler.wait().unwrap().success());
        };
        built("-static");
        assert!(offset(&own, "main").unwrap() > 0);
        let error = offset(&own, "mian").unwrap_err();
        assert!(error.contains("did you mean `main`?"), "{error}");
        let error = offset(&own, "nothing_that_is_called_like_this").unwrap_err();
        assert!(error.contains("inlined"), "{error}");
        let error = offset(&own, "inlined_away").unwrap_err();
        assert!(error.contains("it was inlined into main"), "{error}");
        // The file's header is never executed.
        let of_main = offset(&own, "main").unwrap();
        assert_eq!(offset(&own, &format!("{of_main:#x}")), Ok(of_main));
        let error = offset(&own, "0x1").unwrap_err();
        assert!(error.contains("no code at offset 0x1"), "{error}");
        assert!(has_function(&own, "main") && !has_function(&own, "inlined_away"));
        assert!(offset(&own, "0xffffffffffff").is_err());
        let error = offset(Path::new("/proc/self/status"), "main").unwrap_err();
        assert!(error.contains("no ELF file"), "{error}");
        assert!(offset(Path::new("/nowhere"), "main").is_err());
        // It has no end.
        let error = offset(Path::new("/dev/zero"), "main").unwrap_err();
        assert!(error.contains("is no file"), "{error}");
        let large = place.path().join("large");
        let sparse = fs::File::create(&large).unwrap();
        sparse.set_len(MAX_FILE_BYTES + 1).unwrap();
        let error = offset(&large, "main").unwrap_err();
        assert!(error.contains("more than 1024 MiB"), "{error}");
        built("-s");
        assert!(!has_function(&own, "main"));
        let error = offset(&own, "main").unwrap_err();
        assert!(error.contains("no symbols"), "{error}");
    }
}
