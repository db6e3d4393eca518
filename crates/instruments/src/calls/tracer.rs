//! The function_graph tracer: turned on for a function and what it calls, read, and restored.
//!
//! It runs in an instance of its own where the kernel has it there (Linux 6.11, commit c132be2c4fcc
//! "function_graph: Have the instances use their own ftrace_ops for filtering"), and else in the one
//! that all share, if nobody uses that. Which functions it begins at, and how deep it goes, is one
//! setting for all. The instance stands for these changes: it is made before them and removed after
//! they are restored, so one that a killed run left shows that they are to be restored.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use netplumb_sys::{cpus, proc};

use super::ring::{Pages, Record, page_bytes};
use crate::capability::{Tree, lockdown};
use crate::live::LiveError;
use crate::tracefs::Instance;

/// What the instance is for.
const PURPOSE: &str = "calls";
const TRACER: &str = "function_graph";
/// What to do where the kernel permits no tracing.
const REMEDY: &str = "trace in a guest (--lab vm --time), run as root, or boot without lockdown (Secure Boot \
                      turns it on); `plumb doctor` shows what works";
/// What to do where the kernel has no such tracer.
const OTHER_KERNEL: &str =
    "use a kernel with CONFIG_FUNCTION_GRAPH_TRACER=y, as in most distributions";
/// The depth without a limit.
pub(super) const ALL_LEVELS: u32 = 0;
/// Pages of a CPU that are read at once.
const PAGES: usize = 256;
/// Memory for records of a CPU.
const BUFFER_KB: std::ops::RangeInclusive<u64> = 256..=4 << 10;
/// The available memory is divided by this, for all CPUs' buffers.
const PART: u64 = 64;

/// A setting that is changed where others see it.
struct Setting {
    file: &'static str,
    /// The beginning of its text when unused; empty if that is not checked.
    unset: &'static str,
    /// What restores it.
    reset: &'static str,
}

const fn setting(file: &'static str, unset: &'static str, reset: &'static str) -> Setting {
    Setting { file, unset, reset }
}

/// Settings of all instances.
const OF_ALL: [Setting; 2] =
    [setting("set_graph_function", "####", "\n"), setting("max_graph_depth", "0", "0")];
/// Settings of the shared instance, in the order in which they are restored: the tracer first, which
/// without a function would trace all, and recording last, of nothing by then.
const OF_SHARED: [Setting; 10] = [
    setting("current_tracer", "nop", "nop"),
    setting("events/sched/sched_switch/enable", "0", "0"),
    setting("events/sched/sched_process_fork/enable", "0", "0"),
    setting("events/sched/sched_process_exec/enable", "0", "0"),
    setting("set_ftrace_pid", "no pid", "\n"),
    setting("set_ftrace_notrace_pid", "no pid", "\n"),
    setting("options/function-fork", "0", "0"),
    setting("set_ftrace_filter", "####", "\n"),
    setting("trace", "", "\n"),
    setting("tracing_on", "1", "1"),
];
/// Settings of all instances that are not changed, but would leave calls out or make their times wrong.
const NEEDED: [Setting; 3] = [
    setting("current_tracer", "nop", ""),
    setting("tracing_thresh", "0", ""),
    setting("set_graph_notrace", "####", ""),
];
/// The same for the shared instance.
const NEEDED_SHARED: [Setting; 5] = [
    setting("events/enable", "0", ""),
    setting("trace_clock", "[local]", ""),
    setting("set_ftrace_notrace", "####", ""),
    setting("options/sleep-time", "1", ""),
    setting("options/funcgraph-irqs", "1", ""),
];

/// Whose calls are traced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Whose {
    /// Calls of all tasks.
    All,
    /// Calls of these threads, and of what they start from now on.
    Threads(Vec<u32>),
}

/// The tracer, on as long as it lives.
#[derive(Debug)]
pub(super) struct Tracer {
    root: PathBuf,
    /// Where it runs.
    place: PathBuf,
    shared: bool,
    pipes: Vec<(u32, File)>,
    page: Vec<u8>,
    /// Records that were lost before.
    lost: u64,
    /// Removed after all is restored.
    _instance: Instance,
    _tree: Tree,
}

fn system(doing: &str, path: &Path, source: io::Error) -> LiveError {
    LiveError::System { doing: format!("{doing} {}", path.display()), source: Box::new(source) }
}

fn read(path: &Path) -> Result<String, LiveError> {
    fs::read_to_string(path).map_err(|error| system("read", path, error))
}

fn write(path: &Path, text: &str) -> Result<(), LiveError> {
    fs::write(path, text).map_err(|error| system("write", path, error))
}

/// Open tracefs.
pub(super) fn open() -> Result<(Tree, PathBuf), LiveError> {
    let tree = Tree::open(c"tracefs").map_err(|error| {
        let (reason, remedy) = match error.kind() {
            ErrorKind::PermissionDenied => ("tracefs can't be read by this user", "run as root"),
            _ => ("tracefs can't be opened", OTHER_KERNEL),
        };
        LiveError::CannotRun { reason: format!("{reason} ({error})"), remedy: remedy.into() }
    })?;
    let root = tree.path();
    Ok((tree, root))
}

/// Restore tracer settings that killed runs changed; returns which.
pub fn recover() -> Vec<String> {
    let Ok((_tree, root)) = open() else {
        return Vec::new();
    };
    let left = Instance::left(&root).into_iter();
    let left: Vec<Instance> =
        left.filter(|(purpose, _)| purpose == PURPOSE).map(|(_, instance)| instance).collect();
    if left.is_empty() {
        return Vec::new();
    }
    let is_shared = left.iter().any(|instance| !has_tracer(instance.path()));
    for instance in &left {
        let _ = instance.write("current_tracer", "nop");
    }
    let failed = restore(&root, is_shared);
    if failed.is_empty() {
        drop(left);
        return vec![format!("tracer {TRACER}, and the functions that it is set to")];
    }
    // They stay, so that the next start tries again.
    left.into_iter().for_each(std::mem::forget);
    failed
        .into_iter()
        .map(|file| format!("all of tracer {TRACER} but {file}, which can't be written"))
        .collect()
}

/// Restore settings, even if some fail; returns the ones that failed.
fn restore(root: &Path, shared: bool) -> Vec<&'static str> {
    let of_shared = OF_SHARED.iter().filter(|_| shared);
    let failed = of_shared.chain(&OF_ALL).filter(|setting| {
        let written = fs::write(root.join(setting.file), setting.reset);
        // Kernels that lack one have nothing to restore.
        written.is_err_and(|error| error.kind() != ErrorKind::NotFound)
    });
    failed.map(|setting| setting.file).collect()
}

fn has_tracer(place: &Path) -> bool {
    let all = fs::read_to_string(place.join("available_tracers")).unwrap_or_default();
    all.split_whitespace().any(|name| name == TRACER)
}

/// Check that settings have their defaults. Kernels that lack a setting make no use of it.
fn check_unused<'s>(
    root: &Path,
    settings: impl IntoIterator<Item = &'s Setting>,
) -> Result<(), LiveError> {
    for setting in settings.into_iter().filter(|setting| !setting.unset.is_empty()) {
        let path = root.join(setting.file);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            text => text.map_err(|error| system("read", &path, error))?,
        };
        if !text.trim_start().starts_with(setting.unset) {
            return Err(LiveError::CannotRun {
                reason: format!(
                    "the kernel's tracer is in use: {} is `{}`",
                    path.display(),
                    text.trim().chars().take(80).collect::<String>()
                ),
                remedy: "end the other tracing, or reset it with `trace-cmd reset`".into(),
            });
        }
    }
    Ok(())
}

/// Check that nobody else traces calls, in whatever instance: function and depth are one setting for all.
fn check_others(root: &Path, own: &Instance) -> Result<(), LiveError> {
    let others = fs::read_dir(root.join("instances"));
    let others = others.into_iter().flatten().flatten();
    for other in others.map(|other| other.path()).filter(|path| path != own.path()) {
        let tracer = fs::read_to_string(other.join("current_tracer")).unwrap_or_default();
        let is_ours = other
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(&Instance::prefix(PURPOSE)));
        if tracer.trim() == TRACER || is_ours {
            return Err(LiveError::CannotRun {
                reason: format!("{} traces calls already", other.display()),
                remedy:
                    "wait until it has ended, or remove that instance (rmdir) if nobody uses it"
                        .into(),
            });
        }
    }
    Ok(())
}

fn no_tracer() -> LiveError {
    LiveError::CannotRun {
        reason: format!("the kernel has no tracer {TRACER}"),
        remedy: OTHER_KERNEL.into(),
    }
}

/// Threads as the kernel reads them; none clears its list.
fn list(threads: &[u32]) -> String {
    let all: Vec<String> = threads.iter().map(ToString::to_string).collect();
    format!("{}\n", all.join(" "))
}

/// The functions that can be traced, by name.
pub(super) fn functions(root: &Path) -> Result<Vec<String>, LiveError> {
    if !has_tracer(root) {
        return Err(no_tracer());
    }
    let path = root.join("available_filter_functions");
    let text = fs::read_to_string(&path).map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => LiveError::CannotRun {
            reason: match lockdown() {
                Some(mode) if mode != "none" => {
                    format!("the kernel is locked down ({mode}), and lets no function be traced")
                }
                _ => format!("the kernel doesn't permit tracing functions ({error})"),
            },
            remedy: REMEDY.into(),
        },
        ErrorKind::NotFound => LiveError::CannotRun {
            reason: "the kernel has no function tracer".into(),
            remedy: OTHER_KERNEL.into(),
        },
        _ => system("read", &path, error),
    })?;
    let names = text.lines().filter_map(|line| line.split_whitespace().next());
    Ok(names.map(String::from).collect())
}

impl Tracer {
    /// Turn it on for these functions and all their callees; nothing is recorded yet.
    pub(super) fn start(
        (tree, root): (Tree, PathBuf),
        functions: &[String],
        whose: &Whose,
    ) -> Result<Tracer, LiveError> {
        if !has_tracer(&root) {
            return Err(no_tracer());
        }
        let instance = Instance::make(&root, PURPOSE).map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => LiveError::CannotRun {
                reason: format!("the kernel doesn't permit tracing ({error})"),
                remedy: REMEDY.into(),
            },
            _ => system("make an instance in", &root.join("instances"), error),
        })?;
        check_others(&root, &instance)?;
        check_unused(&root, OF_ALL.iter().chain(&NEEDED))?;
        let shared = !has_tracer(instance.path());
        let place = match shared {
            true => root.clone(),
            false => instance.path().to_path_buf(),
        };
        if shared {
            check_unused(&root, OF_SHARED.iter().chain(&NEEDED_SHARED))?;
        }
        let mut tracer = Tracer {
            page: vec![0; page_bytes(&read(&root.join("events/header_page"))?)],
            root,
            place,
            shared,
            pipes: Vec::new(),
            lost: 0,
            _instance: instance,
            _tree: tree,
        };
        tracer.set("tracing_on", "0")?;
        tracer.aim(functions, ALL_LEVELS)?;
        tracer.follow(whose)?;
        let online = cpus::online().map_err(LiveError::system("read which CPUs are online"))?;
        if !shared {
            let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
            let free = proc::number(&memory, "MemAvailable").unwrap_or(0);
            let each = free / PART / online.len().max(1) as u64;
            let kb = each.clamp(*BUFFER_KB.start(), *BUFFER_KB.end());
            tracer.set("buffer_size_kb", &kb.to_string())?;
        }
        tracer.set("current_tracer", TRACER).map_err(|error| LiveError::CannotRun {
            reason: format!("the kernel doesn't turn on {TRACER}: {error}"),
            remedy: REMEDY.into(),
        })?;
        for event in ["sched_switch", "sched_process_fork", "sched_process_exec"] {
            tracer.set(&format!("events/sched/{event}/enable"), "1")?;
        }
        for cpu in online {
            let path = tracer.place.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
            let mut options = OpenOptions::new();
            let pipe = options.read(true).custom_flags(libc::O_NONBLOCK);
            let pipe = pipe.open(&path).map_err(|error| system("open", &path, error))?;
            tracer.pipes.push((cpu, pipe));
        }
        tracer.lost = tracer.all_lost();
        Ok(tracer)
    }

    fn set(&self, file: &str, text: &str) -> Result<(), LiveError> {
        write(&self.place.join(file), text)
    }

    /// Set it to other functions.
    pub(super) fn aim(&self, functions: &[String], depth: u32) -> Result<(), LiveError> {
        write(&self.root.join("set_graph_function"), &functions.join(" "))?;
        self.limit(depth)
    }

    /// Record this number of levels, or all if 0.
    pub(super) fn limit(&self, depth: u32) -> Result<(), LiveError> {
        write(&self.root.join("max_graph_depth"), &depth.to_string())
    }

    /// Trace these tasks.
    pub(super) fn follow(&self, whose: &Whose) -> Result<(), LiveError> {
        let Whose::Threads(threads) = whose else {
            return Ok(());
        };
        self.set("set_ftrace_pid", &list(threads))?;
        self.set("options/function-fork", "1")
    }

    /// Don't trace these threads, though others may be.
    pub(super) fn leave_out(&self, threads: &[u32]) -> Result<(), LiveError> {
        self.set("set_ftrace_notrace_pid", &list(threads))
    }

    /// Record from now on, or no longer.
    pub(super) fn record(&self, on: bool) -> Result<(), LiveError> {
        self.set("tracing_on", if on { "1" } else { "0" })
    }

    /// Add what was recorded since the last time, or a part of it: then returns the time up to which it is complete.
    pub(super) fn read(
        &mut self,
        pages: &Pages,
        records: &mut Vec<Record>,
    ) -> Result<Option<u64>, LiveError> {
        let mut until_ns: Option<u64> = None;
        for (cpu, pipe) in &mut self.pipes {
            // Reading is work that may be traced itself: it has to have an end.
            for page in 0.. {
                if page == PAGES {
                    let last = records.last().filter(|record| record.cpu == *cpu);
                    let last = last.map_or(0, |record| record.ns);
                    let until = until_ns.get_or_insert(last);
                    *until = last.min(*until);
                    break;
                }
                let read = match pipe.read(&mut self.page) {
                    Ok(0) => break,
                    Ok(read) => read,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(system("read", &self.place, error)),
                };
                pages.read(&self.page[..read], *cpu, records);
            }
        }
        Ok(until_ns)
    }

    /// Records that were lost since this was asked last.
    pub(super) fn lost(&mut self) -> u64 {
        let all = self.all_lost();
        let lost = all.saturating_sub(self.lost);
        self.lost = all;
        lost
    }

    fn all_lost(&self) -> u64 {
        let of = |cpu: u32| {
            let stats = self.place.join(format!("per_cpu/cpu{cpu}/stats"));
            let text = fs::read_to_string(stats).unwrap_or_default();
            let counts = text.lines().filter_map(|line| line.split_once(':'));
            let lost = counts.filter(|(name, _)| {
                ["overrun", "commit overrun", "dropped events"].contains(&name.trim())
            });
            lost.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum::<u64>()
        };
        self.pipes.iter().map(|(cpu, _)| of(*cpu)).sum()
    }

    /// Whether it runs in the instance that all share.
    pub(super) fn is_shared(&self) -> bool {
        self.shared
    }

    /// The format of records of a kind.
    pub(super) fn format(root: &Path, of: &str) -> Result<String, LiveError> {
        read(&root.join("events").join(of).join("format"))
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // The tracer first: without a function it would trace all.
        let _ = self.set("current_tracer", "nop");
        self.pipes.clear();
        // What can't be restored now can't be reported from here; the next run refuses to start on it.
        let _ = restore(&self.root, self.shared);
    }
}
