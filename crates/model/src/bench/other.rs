//! Other load on the machine during a bench, named by a root function for its samples that no
//! symbol has.

/// Other tasks, softirqs without packets, and interrupts.
const KINDS: [&str; 3] = ["task", "softirq", "interrupt"];

/// The kind of other load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Other<'a> {
    /// A task, by its name.
    Task(&'a str),
    /// A softirq; without a name if it is not known which.
    Softirq(&'a str),
    /// An interrupt, likewise.
    Interrupt(&'a str),
}

impl Other<'_> {
    /// The root function of its samples.
    pub fn function(self) -> String {
        let (kind, name) = match self {
            Other::Task(name) => (KINDS[0], name),
            Other::Softirq(name) => (KINDS[1], name),
            Other::Interrupt(name) => (KINDS[2], name),
        };
        match name {
            "" => format!("[{kind}]"),
            name => format!("[{kind} {name}]"),
        }
    }

    /// The description of such a root function, like "task cc1"; none for any other function.
    pub fn category(function: &str) -> Option<&str> {
        let inner = function.strip_prefix('[')?.strip_suffix(']')?;
        let kind = inner.split(' ').next()?;
        KINDS.contains(&kind).then_some(inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that names round-trip, and that other functions are not mistaken for them.
    #[test]
    fn names() {
        for (other, words) in [
            (Other::Task("cc1"), "task cc1"),
            (Other::Task("a ] b"), "task a ] b"),
            (Other::Softirq("timer"), "softirq timer"),
            (Other::Interrupt(""), "interrupt"),
        ] {
            assert_eq!(Other::category(&other.function()), Some(words));
        }
        for function in ["[user code]", "[unknown]", "task", "[]", ""] {
            assert_eq!(Other::category(function), None);
        }
    }
}
