//! What the names of events mean on this kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use libbpf_sys as sys;
use netplumb_model::events::{EventRequest, Mode, NameError, Source, is_time, nearest};
use netplumb_model::text::matches;

use super::{reasons, uprobe};
use crate::capability::Tree;
use crate::live::LiveError;

/// Events that are counted at once: each takes a descriptor for each CPU or thread.
const MOST: usize = 1_000;
/// Where sysfs describes perf's sources of events, probes included.
const SOURCES: &str = "/sys/bus/event_source/devices";

/// An event that can be opened.
pub(crate) struct Resolved {
    pub(crate) name: String,
    /// Whether it is a time.
    pub(super) is_time: bool,
    /// Whether the CPU counts it: with more events than counters, some are not counted all the time.
    pub(super) is_hardware: bool,
    /// The request, for the reason why it can't be opened.
    pub(crate) asked: EventRequest,
    attr: sys::perf_event_attr,
    /// What the attributes point to.
    text: Option<CString>,
}

impl fmt::Debug for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolved")
            .field("name", &self.name)
            .field("asked", &self.asked)
            .finish_non_exhaustive()
    }
}

impl Resolved {
    /// The attributes to open it with, valid as long as this lives.
    pub(crate) fn attr(&self) -> sys::perf_event_attr {
        let mut attr = self.attr;
        if let Some(text) = &self.text {
            attr.__bindgen_anon_3.config1 = text.as_ptr() as u64;
        }
        attr
    }

    /// An event that perf can't open: a function with a trampoline.
    pub(crate) fn named(name: &str, asked: EventRequest) -> Resolved {
        Resolved {
            name: name.into(),
            is_time: false,
            is_hardware: false,
            asked,
            attr: sys::perf_event_attr::default(),
            text: None,
        }
    }

    /// Whether it is a probe in a function. No thread may have it with what it starts: the kernel
    /// reads the name of the function again in the process that starts something
    /// (`perf_uprobe_event_init()` in kernel/events/core.c), where it is not, and refuses to fork.
    pub(super) fn is_probe(&self) -> bool {
        matches!(self.asked, EventRequest::Kernel { .. } | EventRequest::User { .. })
    }

    /// Whether it is a tracepoint.
    pub(super) fn is_tracepoint(&self) -> bool {
        matches!(self.asked, EventRequest::Tracepoint(..))
    }

    /// The function of the kernel, if a trampoline is asked for, and whether its returns are.
    pub(super) fn trampoline(&self) -> Option<(&str, bool)> {
        match &self.asked {
            EventRequest::Kernel { function, returns, trampoline: true } => {
                Some((function, *returns))
            }
            _ => None,
        }
    }

    /// Restrict it to user mode, which every user may count; returns whether that is possible.
    pub(super) fn user_only(&mut self) -> bool {
        let can = matches!(
            &self.asked,
            EventRequest::Counter(_, Mode::All) | EventRequest::Raw(_, Mode::All)
        );
        if can {
            self.attr.set_exclude_kernel(1);
            self.attr.set_exclude_hv(1);
            self.name.push_str(":u");
        }
        can
    }
}

/// Where tracepoints are listed.
#[derive(Debug)]
pub(crate) struct Tracepoints {
    tree: io::Result<Tree>,
    /// All of them, as `SUBSYSTEM:NAME`; read when they are first needed.
    all: Option<Vec<String>>,
}

impl Tracepoints {
    pub(crate) fn new() -> Tracepoints {
        Tracepoints { tree: Tree::open(c"tracefs"), all: None }
    }

    fn folder(&self) -> Result<PathBuf, String> {
        match &self.tree {
            Ok(tree) => Ok(tree.path().join("events")),
            Err(error) => Err(reasons::no_tracefs(error)),
        }
    }

    /// All tracepoints, in the order of their names.
    fn all(&mut self) -> Result<&[String], String> {
        if self.all.is_none() {
            let folder = self.folder()?;
            let subsystems = fs::read_dir(&folder).map_err(|e| reasons::no_tracefs(&e))?;
            let mut all = Vec::new();
            for subsystem in subsystems.flatten().filter(|e| e.path().is_dir()) {
                let of = subsystem.file_name().to_string_lossy().into_owned();
                let names = fs::read_dir(subsystem.path()).into_iter().flatten().flatten();
                let names = names.filter(|name| name.path().join("id").exists());
                all.extend(
                    names.map(|name| format!("{of}:{}", name.file_name().to_string_lossy())),
                );
            }
            all.sort();
            self.all = Some(all);
        }
        Ok(self.all.as_deref().unwrap_or_default())
    }

    /// Its format file in tracefs: the fields of its record.
    pub(crate) fn format(&self, subsystem: &str, name: &str) -> Result<String, String> {
        let file = self.folder()?.join(subsystem).join(name).join("format");
        fs::read_to_string(&file).map_err(|error| reasons::no_tracefs(&error))
    }

    /// A tracepoint's number for perf; none if it is not there.
    fn id(&self, subsystem: &str, name: &str) -> Result<Option<u64>, String> {
        let file = self.folder()?.join(subsystem).join(name).join("id");
        match fs::read_to_string(&file) {
            Ok(text) => Ok(text.trim().parse().ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(reasons::no_tracefs(&error)),
        }
    }
}

/// The events that names stand for, and why others can't be counted.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) found: Vec<Resolved>,
    pub(super) refused: BTreeMap<String, String>,
    /// Whether all refused names are unknown.
    pub(super) all_unknown: bool,
}

/// Look up names.
///
/// # Errors
/// They stand for too many events.
pub(super) fn names(asked: &[String]) -> Result<Names, LiveError> {
    let mut tracepoints = Tracepoints::new();
    let mut names = Names { all_unknown: true, ..Names::default() };
    for name in asked {
        let resolved = match EventRequest::parse(name) {
            Ok(asked) => one(name, asked, &mut tracepoints),
            Err(NameError::Unknown { name, meant }) => Err(Refusal::unknown(match meant {
                Some(meant) => format!("no such event; did you mean `{meant}`?"),
                None => unknown_tracepoint(&name, &mut tracepoints),
            })),
            Err(error) => return Err(LiveError::Asked(error.to_string())),
        };
        match resolved {
            Ok(found) => {
                for one in found {
                    if !names.found.iter().any(|known| known.name == one.name) {
                        names.found.push(one);
                    }
                }
            }
            Err(refusal) => {
                names.all_unknown &= refusal.unknown;
                names.refused.insert(name.clone(), refusal.why);
            }
        }
        if names.found.len() > MOST {
            return Err(LiveError::Asked(format!(
                "`{name}` stands for too many events ({}); expected at most {MOST} in all",
                names.found.len()
            )));
        }
    }
    Ok(names)
}

/// Why a name has no event.
pub(crate) struct Refusal {
    why: String,
    /// Whether the name is wrong: nothing has it.
    pub(crate) unknown: bool,
}

impl Refusal {
    fn unknown(why: String) -> Refusal {
        Refusal { why, unknown: true }
    }

    fn known(why: String) -> Refusal {
        Refusal { why, unknown: false }
    }

    /// Why the event can't be counted, in words for the user.
    pub(crate) fn why(self) -> String {
        self.why
    }
}

/// Why a name without a subsystem is not an event, with the nearest tracepoint.
fn unknown_tracepoint(name: &str, tracepoints: &mut Tracepoints) -> String {
    let all = tracepoints.all().unwrap_or_default();
    match nearest(name, all.iter().map(String::as_str)) {
        Some(meant) => format!("no such event; did you mean `{meant}`?"),
        None => "no such event; see `plumb doctor --events`".into(),
    }
}

/// Why a name or a pattern with a subsystem is not a tracepoint, with what was probably meant: another one, or
/// the same of another subsystem.
fn no_tracepoint(name: &str, all: &[String]) -> String {
    let (subsystem, of) = name.split_once(':').unwrap_or((name, "*"));
    let subsystems: BTreeSet<&str> = (all.iter())
        .filter_map(|one| one.split_once(':'))
        .map(|(subsystem, _)| subsystem)
        .collect();
    let is_pattern = |word: &str| word.contains(['*', '?']);
    let has_subsystem = is_pattern(subsystem) || subsystems.contains(subsystem);
    let near = || nearest(name, all.iter().map(String::as_str));
    let meant = near().filter(|_| !is_pattern(name)).or_else(|| {
        let subsystem = nearest(subsystem, subsystems).filter(|_| !has_subsystem)?;
        let same = format!("{subsystem}:{of}");
        let is_there = all.iter().any(|one| matches(&same, one));
        Some(if is_there { same } else { format!("{subsystem}:*") })
    });
    match (meant, has_subsystem) {
        (Some(meant), _) => format!("this kernel has no such tracepoint; did you mean `{meant}`?"),
        (None, true) => format!(
            "this kernel has no such tracepoint; `{subsystem}:*` stands for all of its subsystem"
        ),
        (None, false) => format!(
            "this kernel has no such tracepoint, and no subsystem `{subsystem}`; see `plumb doctor --events`"
        ),
    }
}

/// The events of a name.
pub(crate) fn one(
    name: &str,
    asked: EventRequest,
    tracepoints: &mut Tracepoints,
) -> Result<Vec<Resolved>, Refusal> {
    let base =
        |type_: u32, config: u64| sys::perf_event_attr { type_, config, ..Default::default() };
    let alone = |attr, text, is_hardware, is_time| Resolved {
        name: name.into(),
        is_time,
        is_hardware,
        asked: asked.clone(),
        attr,
        text,
    };
    match &asked {
        EventRequest::Counter(event, mode) => {
            let (type_, config) = match event.source {
                Source::Software(config) => (sys::PERF_TYPE_SOFTWARE, config),
                Source::Hardware(config) => (sys::PERF_TYPE_HARDWARE, config),
                Source::Cache(config) => (sys::PERF_TYPE_HW_CACHE, config),
                Source::Tracepoint => return Err(Refusal::unknown("no counter".into())),
            };
            let mut attr = base(type_, config);
            limit(&mut attr, *mode);
            let (hardware, time) = (event.source.is_hardware(), event.source.is_time());
            Ok(vec![alone(attr, None, hardware, time)])
        }
        EventRequest::Raw(config, mode) => {
            let mut attr = base(sys::PERF_TYPE_RAW, *config);
            limit(&mut attr, *mode);
            Ok(vec![alone(attr, None, true, false)])
        }
        EventRequest::Tracepoint(subsystem, of) => {
            let is_pattern = |word: &str| word.contains(['*', '?']);
            let wanted: Vec<String> = match is_pattern(subsystem) || is_pattern(of) {
                false => vec![name.into()],
                true => {
                    let all = tracepoints.all().map_err(Refusal::known)?;
                    let all = all.iter().filter(|one| matches(name, one));
                    all.cloned().collect()
                }
            };
            if wanted.is_empty() {
                let all = tracepoints.all().map_err(Refusal::known)?;
                return Err(Refusal::unknown(no_tracepoint(name, all)));
            }
            let mut found = Vec::new();
            for one in wanted {
                let (subsystem, of) = one.split_once(':').unwrap_or((&one, ""));
                let id = tracepoints.id(subsystem, of).map_err(Refusal::known)?;
                let Some(id) = id else {
                    let all = tracepoints.all().map_err(Refusal::known)?;
                    return Err(Refusal::unknown(no_tracepoint(&one, all)));
                };
                let attr = base(sys::PERF_TYPE_TRACEPOINT, id);
                found.push(Resolved {
                    name: one.clone(),
                    ..alone(attr, None, false, is_time(&one))
                });
            }
            Ok(found)
        }
        EventRequest::Kernel { function, returns, .. } => {
            // The name may be wrong, too.
            let (type_, config) = probe("kprobe", *returns).map_err(|why| {
                reasons::missing(function).map_or_else(|| Refusal::known(why), Refusal::unknown)
            })?;
            let text = CString::new(function.as_str()).ok();
            Ok(vec![alone(base(type_, config), text, false, false)])
        }
        EventRequest::User { file, function, returns } => {
            let (type_, config) = probe("uprobe", *returns).map_err(Refusal::known)?;
            let offset = uprobe::offset(Path::new(file), function).map_err(Refusal::unknown)?;
            let mut attr = base(type_, config);
            attr.__bindgen_anon_4.config2 = offset;
            let path = fs::canonicalize(file).unwrap_or_else(|_| file.into());
            let text = CString::new(path.as_os_str().as_encoded_bytes()).ok();
            Ok(vec![alone(attr, text, false, false)])
        }
    }
}

fn limit(attr: &mut sys::perf_event_attr, mode: Mode) {
    match mode {
        Mode::All => {}
        Mode::Kernel => attr.set_exclude_user(1),
        Mode::User => {
            attr.set_exclude_kernel(1);
            attr.set_exclude_hv(1);
        }
    }
}

/// The type of perf's probes of a kind, and the bits for entry or return.
fn probe(kind: &str, returns: bool) -> Result<(u32, u64), String> {
    let read = |name: &str| {
        let text = fs::read_to_string(format!("{SOURCES}/{kind}/{name}")).ok()?;
        text.trim().trim_start_matches("config:").parse::<u32>().ok()
    };
    match (read("type"), read("format/retprobe")) {
        (Some(type_), Some(bit)) => Ok((type_, u64::from(returns) << bit)),
        _ => Err(format!(
            "this kernel has no {kind}s for perf; use one with CONFIG_{}_EVENTS=y",
            kind.to_uppercase()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that for a missing tracepoint the nearest one is offered, the same in the nearest subsystem, or
    /// where to look.
    #[test]
    fn nearest_tracepoints() {
        let all = ["block:block_rq_issue", "irq:softirq_entry", "sched:sched_switch"];
        let all = all.map(String::from);
        for (name, says) in [
            ("block:block_rq_isue", "did you mean `block:block_rq_issue`?"),
            ("blok:block_rq_issue", "did you mean `block:block_rq_issue`?"),
            ("blok:*", "did you mean `block:*`?"),
            ("shed:nothing_like_it", "did you mean `sched:*`?"),
            ("block:nothing_like_it", "`block:*` stands for all"),
            ("nosuch:nosuch", "no subsystem `nosuch`; see `plumb doctor --events`"),
            ("nosuch:*", "no subsystem `nosuch`"),
        ] {
            let said = no_tracepoint(name, &all);
            assert!(said.contains(says), "{name}: {said}");
        }
    }
}
