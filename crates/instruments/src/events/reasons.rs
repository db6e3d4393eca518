//! Why an event can't be counted, and what to do about it.

use std::fs;
use std::io;
use std::path::Path;

use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_model::events::{EventRequest, Source, nearest};
use netplumb_sys::guest;

use crate::capability::lockdown;

const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
const SOURCES: &str = "/sys/bus/event_source/devices";

/// Errors for a probe in a function that the kernel lacks, or can't probe.
const NO_FUNCTION: [i32; 3] = [libc::ENOENT, libc::EINVAL, libc::EADDRNOTAVAIL];

/// The reason if the list of tracepoints can't be read.
pub(super) fn no_tracefs(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "tracefs can't be read by this user: run as root, or with CAP_DAC_READ_SEARCH".into()
        }
        _ => format!(
            "tracefs is not mounted ({error}): mount -t tracefs tracefs /sys/kernel/tracing"
        ),
    }
}

/// Why an event could not be opened.
pub(crate) fn refused(asked: &EventRequest, error: &io::Error) -> String {
    let code = error.raw_os_error().unwrap_or_default();
    match (asked, code) {
        (_, libc::EMFILE | libc::ENFILE) => {
            "too many events for the limit of open files: count fewer, or raise it (ulimit -n)"
                .into()
        }
        (EventRequest::Kernel { .. }, libc::EPERM | libc::EACCES) => match locked_down() {
            Some(mode) => {
                format!("kernel lockdown ({mode}) forbids kprobes: boot without lockdown")
            }
            None => not_permitted(),
        },
        (EventRequest::Kernel { function, .. }, code) if NO_FUNCTION.contains(&code) => {
            no_function(function)
        }
        (_, libc::EPERM | libc::EACCES) => not_permitted(),
        (EventRequest::Counter(event, _), _) if event.source.is_hardware() => {
            no_counter(event.source)
        }
        (EventRequest::Raw(..), _) => no_counter(Source::Hardware(0)),
        _ => format!("the kernel refuses it: {error}"),
    }
}

fn locked_down() -> Option<String> {
    lockdown().filter(|mode| mode != "none")
}

fn not_permitted() -> String {
    let level = fs::read_to_string(PARANOID).unwrap_or_default();
    let setting = match level.trim() {
        "" => String::new(),
        level => format!(" (kernel.perf_event_paranoid is {level})"),
    };
    format!("not permitted{setting}: run as root, or with CAP_PERFMON")
}

/// The reason if a CPU has no counter for something.
fn no_counter(source: Source) -> String {
    let devices = fs::read_dir(SOURCES).into_iter().flatten().flatten();
    let has_cpu = devices.into_iter().any(|device| {
        let name = device.file_name().to_string_lossy().into_owned();
        name.starts_with("cpu") || name.starts_with("armv")
    });
    match (has_cpu, source) {
        (true, Source::Cache(_)) => "this CPU has no counter of it".into(),
        (true, _) => "this CPU does not count it".into(),
        (false, _) => no_pmu(guest::is_init()).into(),
    }
}

/// The reason if there are no counters, here or in a guest of ours, whose CPU can't have any.
fn no_pmu(own_guest: bool) -> &'static str {
    match own_guest {
        true => "guests have no counters (PMU); their instructions are counted by `exact`",
        false => {
            "no counters (PMU); a virtual machine needs a virtual one (QEMU: -cpu host,pmu=on)"
        }
    }
}

/// Whether an event was refused with this error since the kernel lacks the function.
pub(crate) fn is_unknown(asked: &EventRequest, error: &io::Error) -> bool {
    let EventRequest::Kernel { function, .. } = asked else {
        return false;
    };
    let code = error.raw_os_error().unwrap_or_default();
    NO_FUNCTION.contains(&code) && is_missing(function)
}

/// Whether the kernel lacks a function.
fn is_missing(function: &str) -> bool {
    let symbols = symbols();
    !symbols.symbols().is_empty() && symbols.by_name(function).is_empty()
}

/// The reason if the kernel lacks the function; none if it has it.
pub(super) fn missing(function: &str) -> Option<String> {
    is_missing(function).then(|| no_function(function))
}

fn symbols() -> SymbolTable {
    let text = fs::read(Path::new("/proc/kallsyms")).unwrap_or_default();
    SymbolTable::parse(&text).unwrap_or_default()
}

/// The reason if a function of the kernel can't be probed.
fn no_function(function: &str) -> String {
    let blacklist = fs::read_to_string("/sys/kernel/debug/kprobes/blacklist").unwrap_or_default();
    let is_it = |line: &str| line.split('\t').nth(1).is_some_and(|name| name == function);
    if blacklist.lines().any(is_it) {
        return "the kernel allows no probe in this function".into();
    }
    let symbols = symbols();
    let names = || symbols.symbols().iter().map(|symbol| symbol.name.as_str());
    if !symbols.by_name(function).is_empty() {
        return "it can't be traced: it is marked notrace, or no function".into();
    }
    let inlined = "it may be inlined into its callers, which `plumb trace` names in a guest whose kernel \
                   was added with `plumb kernel add --debug`";
    match nearest(function, names()) {
        Some(meant) => {
            format!("the kernel has no such function; did you mean `{meant}`? Or {inlined}")
        }
        None => format!("the kernel has no such function: {inlined}"),
    }
}

#[cfg(test)]
mod tests {
    use netplumb_model::events::{Mode, find};

    use super::*;

    /// Check that each refusal names its remedy.
    #[test]
    fn remedies() {
        let of = |asked: &EventRequest, code| refused(asked, &io::Error::from_raw_os_error(code));
        let counter = |name| EventRequest::Counter(find(name).unwrap(), Mode::All);
        assert!(of(&counter("page-faults"), libc::EACCES).contains("CAP_PERFMON"));
        assert!(of(&counter("page-faults"), libc::EMFILE).contains("ulimit -n"));
        let text = of(&counter("cycles"), libc::ENOENT);
        assert!(text.contains("PMU") || text.contains("CPU"), "{text}");
        // In a guest of ours, the remedy is another.
        assert!(no_pmu(false).contains("pmu=on"));
        assert!(no_pmu(true).contains("`exact`") && !no_pmu(true).contains("pmu=on"));
        let kernel = EventRequest::Kernel {
            function: "tcp_sendmsgg".into(),
            returns: false,
            trampoline: false,
        };
        let text = of(&kernel, libc::ENOENT);
        assert!(text.contains("no such function"), "{text}");
        let kernel = EventRequest::Kernel {
            function: "no_function_has_a_name_like_this".into(),
            returns: false,
            trampoline: false,
        };
        let missing = io::Error::from_raw_os_error(libc::ENOENT);
        let forbidden = io::Error::from_raw_os_error(libc::EPERM);
        assert!(!is_unknown(&kernel, &forbidden));
        assert!(!is_unknown(&counter("cycles"), &missing));
        let text = of(&kernel, libc::ENOENT);
        assert!(text.contains("plumb kernel add --debug"), "{text}");
        let error = io::Error::from_raw_os_error(libc::ENODEV);
        assert!(no_tracefs(&error).contains("mount -t tracefs"));
    }
}
