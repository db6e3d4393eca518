//! Names of events, as people write them.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use super::declared::{EVENTS, Event, find};

/// A name is no longer than this.
const MAX_BYTES: usize = 4096;

/// In which mode of the CPU an event is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// In both.
    #[default]
    All,
    /// In the kernel: `:k`.
    Kernel,
    /// In programs: `:u`.
    User,
}

/// What a name asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventRequest {
    /// A declared event other than a tracepoint.
    Counter(&'static Event, Mode),
    /// A hardware event by the number that the CPU's manual has: `r1a8`.
    Raw(u64, Mode),
    /// Tracepoints: a subsystem and a name; both may have `*`.
    Tracepoint(String, String),
    /// Calls of a kernel function, or returns from it: `fentry:NAME`, `fexit:NAME`, or by another
    /// mechanism `kprobe:NAME`, `kretprobe:NAME`.
    Kernel {
        /// The kernel function's symbol.
        function: String,
        /// Whether returns are counted.
        returns: bool,
        /// Whether by a trampoline, where the kernel has them.
        trampoline: bool,
    },
    /// Calls of a function of a program or library, or returns from it: `uprobe:FILE:FUNCTION`,
    /// `uretprobe:FILE:FUNCTION`.
    User {
        /// The program or library.
        file: String,
        /// The function, or a file offset in hexadecimal.
        function: String,
        /// Whether returns are counted.
        returns: bool,
    },
}

/// Why a name asks for nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameError {
    /// The event is unknown; the nearest name, if any is near.
    Unknown {
        /// The given name.
        name: String,
        /// The probable intention.
        meant: Option<String>,
    },
    /// It is not written as any event.
    Invalid {
        /// The given name.
        name: String,
        /// The expected form.
        expected: &'static str,
    },
    /// It is not a ratio of two events.
    Ratio {
        /// The given name.
        text: String,
    },
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |name: &str| name.chars().take(80).collect::<String>();
        match self {
            NameError::Unknown { name, meant } => {
                write!(f, "no such event `{}`", short(name))?;
                match meant {
                    Some(meant) => write!(f, "; did you mean `{meant}`?"),
                    None => f.write_str("; see `plumb doctor --events`"),
                }
            }
            NameError::Invalid { name, expected } => {
                write!(f, "invalid event `{}`; expected {expected}", short(name))
            }
            NameError::Ratio { text } => write!(
                f,
                "invalid ratio `{}`; expected one like page-faults/task-clock, of two events without `*`",
                short(text)
            ),
        }
    }
}

impl std::error::Error for NameError {}

impl EventRequest {
    /// What a name asks for.
    ///
    /// # Errors
    /// It is not written as any event, or is the name of none.
    pub fn parse(name: &str) -> Result<EventRequest, NameError> {
        let invalid = |expected| NameError::Invalid { name: name.into(), expected };
        if name.is_empty() || name.len() > MAX_BYTES || name.contains(['\0', '\n']) {
            return Err(invalid("a name like page-faults or block:*"));
        }
        if let Some(event) = find(name) {
            return Ok(match event.source.is_tracepoint() {
                true => tracepoint(event.name).ok_or_else(|| invalid(TRACEPOINT))?,
                false => EventRequest::Counter(event, Mode::All),
            });
        }
        let Some((first, rest)) = name.split_once(':') else {
            return match raw(name) {
                Some(config) => Ok(EventRequest::Raw(config, Mode::All)),
                None => Err(unknown(name)),
            };
        };
        match first {
            "fentry" | "fexit" | "kprobe" | "kretprobe" => {
                let fits = |c: char| c.is_ascii_alphanumeric() || "_.$".contains(c);
                if rest.is_empty() || !rest.chars().all(fits) {
                    return Err(invalid(
                        "fentry:FUNCTION or kprobe:FUNCTION, a function of the kernel",
                    ));
                }
                return Ok(EventRequest::Kernel {
                    function: rest.into(),
                    returns: ["fexit", "kretprobe"].contains(&first),
                    trampoline: ["fentry", "fexit"].contains(&first),
                });
            }
            "uprobe" | "uretprobe" => {
                // A path may have colons; a C symbol has none, a C++ symbol two at a time.
                let rest_of = rest.find(':').map(|at| rest.split_at(at));
                return match rest_of {
                    Some((file, function)) if !file.is_empty() && function.len() > 1 => {
                        Ok(EventRequest::User {
                            file: file.into(),
                            function: function[1..].into(),
                            returns: first == "uretprobe",
                        })
                    }
                    _ => Err(invalid("uprobe:FILE:FUNCTION")),
                };
            }
            _ => {}
        }
        let counter = find(first).filter(|event| !event.source.is_tracepoint());
        let mode = match rest {
            "u" => Some(Mode::User),
            "k" => Some(Mode::Kernel),
            _ => None,
        };
        match (counter, raw(first), mode) {
            (Some(event), _, Some(mode)) => Ok(EventRequest::Counter(event, mode)),
            (_, Some(config), Some(mode)) => Ok(EventRequest::Raw(config, mode)),
            (Some(_), ..) => {
                Err(invalid("`:u` (only in programs) or `:k` (only in the kernel) after it"))
            }
            _ => tracepoint(name).ok_or_else(|| invalid(TRACEPOINT)),
        }
    }
}

/// The name of an event where the current directory is another: a program's file by its full path.
pub fn within(name: &str, folder: &Path) -> String {
    match EventRequest::parse(name) {
        Ok(EventRequest::User { file, function, .. }) => {
            let kind = name.split(':').next().unwrap_or_default();
            // As files are named in guests.
            let parts = folder.join(file);
            let mut path = PathBuf::new();
            for part in parts.components() {
                match part {
                    Component::CurDir => {}
                    Component::ParentDir => {
                        path.pop();
                    }
                    part => path.push(part),
                }
            }
            format!("{kind}:{}:{function}", path.display())
        }
        _ => name.into(),
    }
}

/// The declared event of a name, and the mode that is written after it.
pub fn with_mode(name: &str) -> Option<(&'static Event, Mode)> {
    if let Some(event) = find(name) {
        return Some((event, Mode::All));
    }
    match EventRequest::parse(name) {
        Ok(EventRequest::Counter(event, mode)) => Some((event, mode)),
        _ => None,
    }
}

const TRACEPOINT: &str = "SUBSYSTEM:TRACEPOINT, like block:block_rq_issue or block:*";

/// `r` and the number in hexadecimal, as in perf.
fn raw(name: &str) -> Option<u64> {
    let digits = name.strip_prefix('r')?;
    let hexadecimal = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_hexdigit());
    hexadecimal.then(|| u64::from_str_radix(digits, 16).ok())?
}

fn tracepoint(name: &str) -> Option<EventRequest> {
    let (subsystem, name) = name.split_once(':')?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-*?".contains(c);
    let good = |word: &str| !word.is_empty() && word.chars().all(fits);
    (good(subsystem) && good(name)).then(|| EventRequest::Tracepoint(subsystem.into(), name.into()))
}

fn unknown(name: &str) -> NameError {
    NameError::Unknown {
        name: name.into(),
        meant: nearest(name, EVENTS.iter().map(|event| event.name)),
    }
}

/// The name that was probably meant: a letter in three may be wrong, or the other part of a name that
/// has two.
pub fn nearest<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<String> {
    let mut best: Option<(usize, &str)> = None;
    for one in known {
        let after = one.rsplit_once(':').map_or(one, |(_, after)| after);
        // The subsystem may have been left out.
        let distance = match name.contains(':') {
            true => strsim::damerau_levenshtein(name, one),
            false => {
                strsim::damerau_levenshtein(name, one).min(strsim::damerau_levenshtein(name, after))
            }
        };
        if best.is_none_or(|(least, text)| (distance, one) < (least, text)) {
            best = Some((distance, one));
        }
    }
    let (distance, best) = best?;
    (3 * distance <= name.len().max(3)).then(|| best.to_string())
}

/// A ratio of two events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ratio {
    /// What is divided.
    pub over: String,
    /// By what.
    pub under: String,
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.over, self.under)
    }
}

impl Ratio {
    /// From `A/B`, both one event each.
    ///
    /// # Errors
    /// The syntax is wrong, or the event is unknown.
    pub fn parse(text: &str) -> Result<Ratio, NameError> {
        let invalid = || NameError::Ratio { text: text.into() };
        // Files of uprobes have slashes: the second event begins where both sides are events.
        let splits = text.match_indices('/').map(|(at, _)| text.split_at(at));
        let mut unknown = None;
        for (over, under) in splits {
            match (EventRequest::parse(over), EventRequest::parse(&under[1..])) {
                (Ok(a), Ok(b)) if a.is_one() && b.is_one() => {
                    return Ok(Ratio { over: canonical(over), under: canonical(&under[1..]) });
                }
                (Err(why @ NameError::Unknown { .. }), _)
                | (_, Err(why @ NameError::Unknown { .. })) => unknown = unknown.or(Some(why)),
                _ => {}
            }
        }
        Err(unknown.unwrap_or_else(invalid))
    }
}

impl EventRequest {
    /// Whether it is a single event.
    fn is_one(&self) -> bool {
        match self {
            EventRequest::Tracepoint(subsystem, name) => {
                !format!("{subsystem}{name}").contains(['*', '?'])
            }
            _ => true,
        }
    }
}

fn canonical(name: &str) -> String {
    find(name).map_or(name, |event| event.name).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every declared event is found by its name and its other names, and that these are of
    /// one event only.
    #[test]
    fn declared_events() {
        for event in EVENTS {
            for name in [event.name].iter().chain(event.also) {
                assert_eq!(find(name).map(|e| e.name), Some(event.name), "{name}");
                assert!(EventRequest::parse(name).is_ok(), "{name}");
            }
            assert!(!event.about.is_empty());
            assert_eq!(event.name.contains(':'), event.source.is_tracepoint());
        }
    }

    /// Check names of all kinds, with modes.
    #[test]
    fn names() {
        let counter = |name: &str, mode| match EventRequest::parse(name).unwrap() {
            EventRequest::Counter(event, found) => {
                assert_eq!(found, mode, "{name}");
                event.name
            }
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(counter("faults", Mode::All), "page-faults");
        assert_eq!(counter("cs", Mode::All), "context-switches");
        assert_eq!(counter("cycles:u", Mode::User), "cycles");
        assert_eq!(counter("minor-faults:k", Mode::Kernel), "minor-faults");
        for (name, mode) in [("cs", Mode::All), ("cs:u", Mode::User), ("cs:k", Mode::Kernel)] {
            let found = with_mode(name).map(|(event, mode)| (event.name, mode));
            assert_eq!(found, Some(("context-switches", mode)), "{name}");
        }
        for name in ["r1a8:u", "uprobe:./a:u", "block:block_rq_issue:u", "nothing:k"] {
            assert_eq!(with_mode(name), None, "{name}");
        }
        assert_eq!(EventRequest::parse("r1a8"), Ok(EventRequest::Raw(0x1a8, Mode::All)));
        assert_eq!(EventRequest::parse("r00c0:u"), Ok(EventRequest::Raw(0xc0, Mode::User)));
        let tracepoint = |s: &str, n: &str| Ok(EventRequest::Tracepoint(s.into(), n.into()));
        assert_eq!(EventRequest::parse("block:*"), tracepoint("block", "*"));
        assert_eq!(EventRequest::parse("*:*_issue"), tracepoint("*", "*_issue"));
        assert_eq!(EventRequest::parse("sched:sched_switch"), tracepoint("sched", "sched_switch"));
        let kernel = |function: &str, returns| {
            Ok(EventRequest::Kernel { function: function.into(), returns, trampoline: false })
        };
        assert_eq!(
            EventRequest::parse("fexit:tcp_sendmsg"),
            Ok(EventRequest::Kernel {
                function: "tcp_sendmsg".into(),
                returns: true,
                trampoline: true
            })
        );
        let folder = Path::new("/home/me/../you");
        assert_eq!(within("uprobe:./a/x:f", folder), "uprobe:/home/you/a/x:f");
        assert_eq!(within("uretprobe:/x:f", folder), "uretprobe:/x:f");
        assert_eq!(within("page-faults", folder), "page-faults");
        assert_eq!(EventRequest::parse("kprobe:tcp_sendmsg"), kernel("tcp_sendmsg", false));
        assert_eq!(EventRequest::parse("kretprobe:f.isra.0"), kernel("f.isra.0", true));
        assert_eq!(
            EventRequest::parse("uprobe:/lib/libc.so.6:malloc"),
            Ok(EventRequest::User {
                file: "/lib/libc.so.6".into(),
                function: "malloc".into(),
                returns: false
            })
        );
        assert_eq!(
            EventRequest::parse("uretprobe:a.out:std::f"),
            Ok(EventRequest::User {
                file: "a.out".into(),
                function: "std::f".into(),
                returns: true
            })
        );
    }

    /// Check that malformed names are refused with the expected form, and that an unknown event offers the nearest.
    #[test]
    fn wrong_names() {
        for wrong in [
            "",
            "a\0b",
            "cycles:x",
            "page-faults:*",
            "block:",
            ":x",
            "block:a b",
            "kprobe:",
            "kprobe:a b",
            "uprobe:",
            "uprobe:/bin/ls",
            "uprobe:/bin/ls:",
            "uprobe::f",
        ] {
            let error = EventRequest::parse(wrong).unwrap_err();
            assert!(matches!(error, NameError::Invalid { .. }), "{wrong}");
            assert!(error.to_string().contains("; expected"), "{wrong}");
        }
        for (wrong, meant) in [
            ("page-fualts", Some("page-faults")),
            ("contex-switches", Some("context-switches")),
            ("block_rq_isue", Some("block:block_rq_issue")),
            ("rzz", None),
            ("nothing-of-the-kind", None),
        ] {
            let error = EventRequest::parse(wrong).unwrap_err();
            let NameError::Unknown { meant: found, .. } = &error else {
                panic!("{wrong}: {error}");
            };
            assert_eq!(found.as_deref(), meant, "{wrong}");
        }
    }

    /// Check ratios, also of files with slashes, and malformed ones.
    #[test]
    fn ratios() {
        let ratio = Ratio::parse("faults/cs").unwrap();
        assert_eq!(ratio.to_string(), "page-faults/context-switches");
        let ratio = Ratio::parse("uprobe:/bin/ls:main/uprobe:/lib/a:b").unwrap();
        assert_eq!(
            (ratio.over.as_str(), ratio.under.as_str()),
            ("uprobe:/bin/ls:main", "uprobe:/lib/a:b")
        );
        let error = |text| Ratio::parse(text).unwrap_err().to_string();
        assert!(error("cycles").contains("invalid"), "{}", error("cycles"));
        assert!(error("block:*/cycles").contains("invalid"));
        assert!(error("cycels/instructions").contains("`cycles`"));
    }
}
