//! Where a function is in a file.

use std::fs;
use std::path::Path;

use netplumb_model::events::nearest;
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

/// Larger files are not read: few programs have more.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// The file offset of a function, for a probe.
///
/// # Errors
/// The file can't be read, or has no such function.
pub(super) fn offset(file: &Path, function: &str) -> Result<u64, String> {
    let shown = file.display();
    let unread = |error| format!("can't read {shown}: {error}");
    let found = fs::metadata(file).map_err(unread)?;
    if !found.is_file() {
        return Err(format!("{shown} is no file"));
    }
    if found.len() > MAX_FILE_BYTES {
        return Err(format!(
            "{shown} has more than {} MiB",
            MAX_FILE_BYTES >> 20
        ));
    }
    let bytes = fs::read(file).map_err(unread)?;
    if let Some(offset) = function.strip_prefix("0x") {
        return u64::from_str_radix(offset, 16)
            .ok()
            .filter(|offset| *offset < bytes.len() as u64)
            .ok_or_else(|| format!("{shown} has no offset {function}"));
    }
    let elf = object::File::parse(&*bytes).map_err(|_| format!("{shown} is no ELF file"))?;
    let is_function = |kind| kind == SymbolKind::Text;
    let all = || {
        let symbols = elf.symbols().chain(elf.dynamic_symbols());
        symbols.filter(|s| is_function(s.kind()) && s.is_definition())
    };
    let found = all().find(|symbol| symbol.name() == Ok(function));
    let Some(symbol) = found else {
        let meant = nearest(function, all().filter_map(|symbol| symbol.name().ok()));
        return Err(match (meant, all().next()) {
            (Some(meant), _) => {
                format!("{shown} has no function `{function}`; did you mean `{meant}`?")
            }
            (None, Some(_)) => format!(
                "{shown} has no function `{function}`: it may be inlined into its callers, or be in a \
                 library"
            ),
            (None, None) => format!("{shown} has no symbols: use a file that is not stripped"),
        });
    };
    let address = symbol.address();
    let within = elf.segments().find_map(|segment| {
        let at = address.checked_sub(segment.address())?;
        let (offset, bytes) = segment.file_range();
        (at < bytes).then_some(offset + at)
    });
    within.ok_or_else(|| format!("{shown}: function `{function}` is in no segment"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    /// Check that functions of a program are found, and that others offer the nearest, or say why there
    /// is none.
    #[test]
    fn of_a_program() {
        let place = tempfile::tempdir().unwrap();
        let own = place.path().join("program");
        let built = |more: &str| {
            let mut compiler = Command::new("cc")
                .args(["-x", "c", "-", more, "-o"])
                .arg(&own)
                .stdin(Stdio::piped())
                .spawn()
                .unwrap();
            let mut source = compiler.stdin.take().unwrap();
            source.write_all(b"int main(void) { return 0; }").unwrap();
            drop(source);
            assert!(compiler.wait().unwrap().success());
        };
        built("-static");
        assert!(offset(&own, "main").unwrap() > 0);
        let error = offset(&own, "mian").unwrap_err();
        assert!(error.contains("did you mean `main`?"), "{error}");
        let error = offset(&own, "nothing_that_is_called_like_this").unwrap_err();
        assert!(error.contains("inlined"), "{error}");
        assert_eq!(offset(&own, "0x10"), Ok(16));
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
        let error = offset(&own, "main").unwrap_err();
        assert!(error.contains("no symbols"), "{error}");
    }
}
