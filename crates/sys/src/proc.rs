//! Parsers of files below /proc.

pub mod counters;
pub mod sockets;
pub mod stat;

/// The value of a field in a file with a name and a value per line, such as /proc/meminfo,
/// /proc/cpuinfo or /proc/self/status, without spaces around it.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    let mut found = fields.filter(|(key, _)| key.trim() == name);
    found.next().map(|(_, value)| value.trim())
}

/// The same for a number, without its unit: `MemTotal: 4000 kB`.
pub fn number(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.split_whitespace().next()?.parse().ok()
}

/// The process that a thread is of, by its number; none if there is no such thread.
pub fn process_of(thread: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    number(&status, "Tgid")?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that fields are found by their complete names, and numbers without their units.
    #[test]
    fn fields() {
        let text = "MemTotal:  4000 kB\nmodel name\t: Some: CPU\nHugePages_Free: 2\nodd\n";
        assert_eq!(number(text, "MemTotal"), Some(4000));
        assert_eq!(number(text, "HugePages_Free"), Some(2));
        assert_eq!(field(text, "model name"), Some("Some: CPU"));
        assert_eq!(number(text, "model name"), None);
        assert_eq!(field(text, "Mem"), None);
    }

    /// Check that a thread is of its process, also of which it is not the first.
    #[test]
    fn threads() {
        let own = std::process::id();
        let thread = std::thread::spawn(|| {
            // SAFETY: the call has no arguments and can't fail.
            let thread = unsafe { libc::gettid() } as u32;
            (thread, process_of(thread))
        });
        let (thread, process) = thread.join().unwrap();
        assert_ne!(thread, own);
        assert_eq!((process, process_of(own)), (Some(own), Some(own)));
        assert_eq!(process_of(0), None);
    }
}
