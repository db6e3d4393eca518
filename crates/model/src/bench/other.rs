//! What runs beside a bench and is none of its own: named by the outermost function of
//! its samples, which no symbol has.

/// Tasks of others, softirqs that are not packets', and interrupts.
const KINDS: [&str; 3] = ["task", "softirq", "interrupt"];

/// What ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Other<'a> {
    /// A task, by its name.
    Task(&'a str),
    /// A softirq; without a name if it is not known which.
    Softirq(&'a str),
    /// An interrupt, the same way.
    Interrupt(&'a str),
}

impl Other<'_> {
    /// The function that its samples are below.
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

    /// What such a function stands for, in words: "task cc1"; none of any other function.
    pub fn of(function: &str) -> Option<&str> {
        let inner = function.strip_prefix('[')?.strip_suffix(']')?;
        let kind = inner.split(' ').next()?;
        KINDS.contains(&kind).then_some(inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check names, there and back, and that no other function is taken for one.
    #[test]
    fn names() {
        for (other, words) in [
            (Other::Task("cc1"), "task cc1"),
            (Other::Task("a ] b"), "task a ] b"),
            (Other::Softirq("timer"), "softirq timer"),
            (Other::Interrupt(""), "interrupt"),
        ] {
            assert_eq!(Other::of(&other.function()), Some(words));
        }
        for function in ["[user code]", "[unknown]", "task", "[]", ""] {
            assert_eq!(Other::of(function), None);
        }
    }
}
