//! Files below /proc: one reader of each.

pub mod counters;
pub mod sockets;
pub mod stat;

/// A field of a file that has a name and a value a line, such as /proc/meminfo,
/// /proc/cpuinfo or /proc/self/status: its value, without blanks around it.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    let mut found = fields.filter(|(key, _)| key.trim() == name);
    found.next().map(|(_, value)| value.trim())
}

/// The same of one that is a number, whatever its unit: `MemTotal: 4000 kB`.
pub fn number(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that fields are found by their whole names, and numbers without their units.
    #[test]
    fn fields() {
        let text = "MemTotal:  4000 kB\nmodel name\t: Some: CPU\nHugePages_Free: 2\nodd\n";
        assert_eq!(number(text, "MemTotal"), Some(4000));
        assert_eq!(number(text, "HugePages_Free"), Some(2));
        assert_eq!(field(text, "model name"), Some("Some: CPU"));
        assert_eq!(number(text, "model name"), None);
        assert_eq!(field(text, "Mem"), None);
    }
}
