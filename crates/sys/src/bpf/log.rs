//! Messages of libbpf, captured for the calling thread.

use std::cell::RefCell;
use std::sync::Once;

use libbpf_rs::{PrintLevel, set_print};

thread_local! {
    /// Warnings of the current call; none if they are not captured.
    static SAID: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Stop libbpf from printing to standard error: only the command prints.
pub fn quiet() {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        set_print(Some((PrintLevel::Warn, keep)));
    });
}

/// libbpf calls it on the thread that called libbpf.
fn keep(_: PrintLevel, text: String) {
    // It may be called when the thread-local variables are gone, or recursively.
    let _ = SAID.try_with(|said| {
        if let Ok(mut said) = said.try_borrow_mut()
            && let Some(lines) = said.as_mut()
        {
            let messages = text.lines().map(str::trim).filter(|line| !line.is_empty());
            lines.extend(messages.map(|line| line.trim_start_matches("libbpf: ").to_string()));
        }
    });
}

/// Run `f`, and capture libbpf's messages; the first one is the most specific.
pub(super) fn captured<T>(f: impl FnOnce() -> T) -> (T, Vec<String>) {
    quiet();
    SAID.with(|said| said.replace(Some(Vec::new())));
    let result = f();
    let said = SAID.with(|said| said.replace(None));
    (result, said.unwrap_or_default())
}

/// The program that could not be loaded: `prog 'NAME': BPF program load failed: ...`.
pub(super) fn program(said: &[String]) -> String {
    let name = |line: &String| {
        let (name, what) = line.strip_prefix("prog '")?.split_once("': ")?;
        what.contains("load failed").then(|| name.to_string())
    };
    said.iter().find_map(name).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that messages are captured only for the caller that captures them.
    #[test]
    fn warnings_are_kept() {
        let say = |text: &str| keep(PrintLevel::Warn, text.into());
        say("libbpf: before\n");
        let ((), said) = captured(|| {
            say("libbpf: prog 'enter': BPF program load failed: Invalid argument\n\n");
            say("libbpf: failed to load object\n");
        });
        say("libbpf: after\n");
        assert_eq!(said.len(), 2, "{said:?}");
        assert_eq!(said[1], "failed to load object");
        assert_eq!(program(&said), "enter");
        assert_eq!(program(&[]), "");
    }
}
