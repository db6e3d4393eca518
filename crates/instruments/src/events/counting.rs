//! Counts events, window by window.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Instant;

use netplumb_model::events::{
    By, COUNT, ENABLED, EventsSpec, INSTRUMENT, NOT_BY_TASK, RUNNING, TASK_COUNT, TASK_TIME, TIME,
    Whose,
};
use netplumb_model::quantity::{Figure, FigureKey};
use netplumb_model::samples::Thread;
use netplumb_model::timing::{Attached, Filter, TimingSpec, Window};
use netplumb_sys::cpus;
use netplumb_sys::limits;
use netplumb_sys::perf::count::{self, Count, Counter, Target};

use super::calls::{self, Called, Calls};
use super::reasons;
use super::resolve::{Resolved, names};
use super::tasks::{self, ByTask, Tasks};
use crate::live::{self, Live, LiveError};
use crate::samples;

/// Maximum number of reasons in the error that nothing can be counted.
const MOST_REASONS: usize = 3;
/// The fact in the footer on whose events were counted.
pub(super) const SCOPE: &str = "events.scope";
/// The same for functions called, where it differs.
const PROBES: &str = "events.scope_of_functions";
/// Why functions have probes instead of trampolines.
pub(super) const PROBED: &str = "events.probed";

/// Processes that a command or process started, and that there was no room for.
pub(super) const NOT_FOLLOWED: &str = "new processes that were not followed";
/// Tasks that there was no room for.
const LOST_TASKS: &str = "[no room for more tasks]";

/// Whose events are counted, as this kernel knows them.
#[derive(Debug)]
enum Scope {
    Cpus,
    /// Programs that this thread starts.
    Started,
    /// This thread.
    Own,
    /// The threads of a process, by TID.
    Threads(Vec<u32>),
    Cgroup(File),
}

impl Scope {
    fn from_spec(spec: &TimingSpec, asked: &EventsSpec) -> Result<Scope, LiveError> {
        if let Some(pid) = spec.filter.pid {
            let threads = threads(pid)
                .map_err(|_| LiveError::Asked(format!("--pid {pid}: no such process")))?;
            return Ok(Scope::Threads(threads));
        }
        if let Some(path) = &asked.cgroup {
            let directory = File::open(path);
            return Ok(Scope::Cgroup(
                directory.map_err(LiveError::system("open the directory of the cgroup"))?,
            ));
        }
        Ok(match asked.whose {
            Whose::All => Scope::Cpus,
            Whose::Started => Scope::Started,
            Whose::Own => Scope::Own,
        })
    }

    /// Whether it counts threads, whose counters are inherited by what they start.
    fn is_of_threads(&self) -> bool {
        matches!(self, Scope::Started | Scope::Own | Scope::Threads(_))
    }

    fn name(&self) -> &'static str {
        match self {
            Scope::Cpus => "all CPUs",
            Scope::Started => "a command, from its exec, and what it starts",
            Scope::Own => "the threads that send and receive",
            Scope::Threads(_) => "a process, and what it starts from then on",
            Scope::Cgroup(_) => "a cgroup",
        }
    }

    /// Everything to open for counting an event, with its CPU; for an event that is counted everywhere
    /// or nowhere, all CPUs.
    fn targets(
        &self,
        cpus: &[u32],
        by: Option<By>,
        everywhere: bool,
    ) -> Vec<(Option<u32>, Target<'_>)> {
        let all = || cpus.iter().map(|c| (Some(*c), Target::Cpu(*c))).collect();
        if everywhere && self.is_of_threads() {
            return all();
        }
        let each = |thread: u32| match by {
            Some(By::Cpu) => {
                (cpus.iter()).map(|cpu| (Some(*cpu), Target::Thread(thread, Some(*cpu)))).collect()
            }
            // Counts by task are of CPUs.
            None | Some(_) => vec![(None, Target::Thread(thread, None))],
        };
        match self {
            Scope::Cpus => all(),
            Scope::Started | Scope::Own => each(0),
            Scope::Threads(threads) => threads.iter().flat_map(|thread| each(*thread)).collect(),
            Scope::Cgroup(directory) => (cpus.iter())
                .map(|cpu| (Some(*cpu), Target::Cgroup(directory.as_fd(), *cpu)))
                .collect(),
        }
    }
}

/// The threads of a process.
fn threads(pid: u32) -> io::Result<Vec<u32>> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"))?.flatten();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let threads: Vec<u32> = entries.filter_map(number).collect();
    match threads.is_empty() {
        true => Err(io::ErrorKind::NotFound.into()),
        false => Ok(threads),
    }
}

/// An event that is counted.
#[derive(Debug)]
struct Event {
    what: Resolved,
    counters: Vec<CounterPart>,
    /// If its calls are counted by a program: its number there, and the counts of CPUs as the window
    /// was opened.
    called: Option<(usize, Vec<u64>)>,
}

/// An event's counter on one CPU or of one thread.
#[derive(Debug)]
struct CounterPart {
    cpu: Option<u32>,
    counter: Counter,
    /// The count when the window was opened.
    before: Count,
}

/// Events that are counted.
#[derive(Debug)]
pub(super) struct Counting {
    scope: Scope,
    events: Vec<Event>,
    cpus: Vec<u32>,
    by: Option<By>,
    /// Counts calls of functions that have trampolines.
    calls: Option<Calls>,
    /// Processes so far whose calls are not among these.
    not_followed: u64,
    /// Counts by task, if requested.
    tasks: Option<Tasks>,
    attached: Attached,
    opened: Instant,
    /// Whether they are being counted.
    runs: bool,
    /// Whether these counters were used for a window that was closed.
    used: bool,
}

impl Counting {
    pub(super) fn attach(spec: &TimingSpec, asked: &EventsSpec) -> Result<Counting, LiveError> {
        let begun = Instant::now();
        // Each event takes a descriptor for each CPU or thread.
        limits::raise_open_files();
        let scope = Scope::from_spec(spec, asked)?;
        let cpus: Vec<u32> = cpus::online()
            .map_err(LiveError::system("read which CPUs are online"))?
            .into_iter()
            .collect();
        let names = names(&asked.names)?;
        let mut refused = names.refused;
        let mut all_unknown = names.all_unknown;
        let mut events = Vec::new();
        let calls = trampolines(&names.found, &scope, spec, asked.by);
        let mut probed = None;
        for mut what in names.found {
            let name = what.name.clone();
            let number = (calls.as_ref().ok()).and_then(|(_, called)| {
                let of = what.trampoline()?;
                called.iter().position(|one| one.is(of))
            });
            if let Some(number) = number {
                events.push(Event {
                    what,
                    counters: Vec::new(),
                    called: Some((number, Vec::new())),
                });
                continue;
            }
            match open(&mut what, &scope, &cpus, asked.by) {
                Ok(counters) => {
                    if let Some((function, _)) = what.trampoline() {
                        probed = Some(match &calls {
                            Err(why) => why.clone(),
                            Ok(_) => format!("{function} can't have a trampoline"),
                        });
                    }
                    events.push(Event { what, counters, called: None });
                }
                Err(error) => {
                    // A process may end at any time.
                    if let (Scope::Threads(_), Some(libc::ESRCH)) = (&scope, error.raw_os_error()) {
                        let pid = spec.filter.pid.unwrap_or_default();
                        return Err(LiveError::Asked(format!("--pid {pid}: no such process")));
                    }
                    all_unknown &= reasons::is_unknown(&what.asked, &error);
                    refused.insert(name, reasons::refused(&what.asked, &error));
                }
            }
        }
        if events.is_empty() {
            return Err(nothing(&refused, all_unknown));
        }
        let tasks = match asked.by {
            Some(By::Task) => Some(by_task(&scope, &cpus, &events)?),
            _ => None,
        };
        let mut facts = BTreeMap::from([(SCOPE.to_string(), scope.name().to_string())]);
        let by_perf = |event: &Event| event.called.is_none() && event.what.is_probe();
        if scope.is_of_threads() && events.iter().any(by_perf) {
            facts.insert(PROBES.into(), "all processes".into());
        }
        if let Some(why) = probed {
            facts.insert(PROBED.into(), why);
        }
        let attached = Attached {
            refused,
            attach_ns: begun.elapsed().as_nanos() as u64,
            facts,
            ..Attached::default()
        };
        Ok(Counting {
            scope,
            events,
            cpus,
            by: asked.by,
            calls: calls.ok().map(|(calls, _)| calls),
            not_followed: 0,
            tasks,
            attached,
            opened: begun,
            runs: false,
            used: false,
        })
    }

    /// Begin to count, or stop; programs are counted from their exec on.
    fn switch(&mut self, on: bool) -> io::Result<()> {
        let one = |part: &CounterPart| match on {
            true => part.counter.enable(),
            false => part.counter.disable(),
        };
        let own = matches!(self.scope, Scope::Started | Scope::Own);
        let mut each = self.events.iter().filter(|e| !own || e.what.is_probe());
        // The own thread, in one system call: only its end or beginning is counted.
        if let (Scope::Own, false) = (&self.scope, on) {
            count::disable_own()?;
        }
        each.try_for_each(|event| event.counters.iter().try_for_each(one))?;
        match (&self.scope, on) {
            (Scope::Own, true) => count::enable_own(),
            _ => Ok(()),
        }
    }

    /// Open counters of threads anew. What they start inherits them, and the kernel may let both
    /// change contexts as one is switched to the other (`perf_event_context_sched_out()` in
    /// kernel/events/core.c): then counters end with what was started, and inherit no more.
    fn reopen(&mut self) -> io::Result<()> {
        if !std::mem::replace(&mut self.used, false) || !self.scope.is_of_threads() {
            return Ok(());
        }
        for event in self.events.iter_mut().filter(|e| e.called.is_none()) {
            // The old ones are closed after that: when a tracepoint loses its last user, the kernel
            // waits for all CPUs, and again for the next user.
            event.counters = open(&mut event.what, &self.scope, &self.cpus, self.by)?;
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(), LiveError> {
        if let Some(tasks) = &mut self.tasks {
            // Earlier counts belong to no window.
            tasks.read()?;
        }
        let failed = || LiveError::system("read the counters");
        for event in &mut self.events {
            for part in &mut event.counters {
                part.before = part.counter.read().map_err(failed())?;
            }
            if let (Some(calls), Some((n, before))) = (&self.calls, &mut event.called) {
                *before = calls.read(*n)?;
            }
        }
        self.opened = Instant::now();
        Ok(())
    }

    /// Counts since the window was opened; the next one starts here.
    fn read(&mut self) -> Result<Window, LiveError> {
        let now = Instant::now();
        let not_followed = match &self.calls {
            Some(calls) => calls.not_followed()?,
            None => 0,
        };
        let losses = live::losses([(
            NOT_FOLLOWED,
            not_followed - self.not_followed,
            "calls of functions in them are missing",
        )]);
        self.not_followed = not_followed;
        let mut figures = Vec::new();
        let mut threads = Threads::default();
        let by_task = match &mut self.tasks {
            Some(tasks) => tasks.read()?,
            None => Vec::new(),
        };
        let failed = || LiveError::system("read the counters");
        for (number, event) in self.events.iter_mut().enumerate() {
            let mut by_cpu: BTreeMap<u32, Count> = BTreeMap::new();
            let mut all = Count::default();
            for part in &mut event.counters {
                let counted = part.counter.read().map_err(failed())?;
                let since = counted.since(part.before);
                part.before = counted;
                add(&mut all, since);
                if let Some(cpu) = part.cpu {
                    add(by_cpu.entry(cpu).or_default(), since);
                }
            }
            if let (Some(calls), Some((n, before))) = (&self.calls, &mut event.called) {
                let now = calls.read(*n)?;
                for (cpu, count) in (0_u32..).zip(&now) {
                    let earlier = before.get(cpu as usize).copied().unwrap_or(0);
                    let since = Count { value: count.saturating_sub(earlier), ..Count::default() };
                    add(&mut all, since);
                    if self.cpus.contains(&cpu) {
                        add(by_cpu.entry(cpu).or_default(), since);
                    }
                }
                *before = now;
            }
            let name = &event.what.name;
            let of = if event.what.is_time { &TIME } else { &COUNT };
            let figure = |quantity, value: u64| Figure::new(quantity, value as f64);
            let whole = || FigureKey::label(name);
            if let Some(of) = by_task.get(number) {
                // The sum of what tasks were charged, so that they add up.
                all.value = of.whole();
                figures.extend(parts(of, name, event.what.is_time, &mut threads));
            }
            figures.push(figure(of, all.value).with_key(whole()));
            // Others always count (`group_can_go_on()` in kernel/events/core.c).
            if event.what.is_hardware {
                if self.by == Some(By::Cpu) && self.scope.is_of_threads() {
                    all.enabled_ns = once(by_cpu.values());
                }
                figures.push(figure(&ENABLED, all.enabled_ns).with_key(whole()));
                figures.push(figure(&RUNNING, all.running_ns).with_key(whole()));
            }
            if self.by == Some(By::Cpu) {
                let each = by_cpu.into_iter();
                figures.extend(each.map(|(cpu, part)| {
                    figure(of, part.value).with_key(FigureKey::numbered(cpu, name))
                }));
            }
        }
        let duration_ns = (now - self.opened).as_nanos() as u64;
        self.opened = now;
        Ok(Window { duration_ns, figures, threads: threads.all, losses, ..Window::default() })
    }
}

/// Count calls by trampolines, with the functions that have one, in the order of their counts; or why there
/// are none.
fn trampolines(
    found: &[Resolved],
    scope: &Scope,
    spec: &TimingSpec,
    by: Option<By>,
) -> Result<(Calls, Vec<Called>), String> {
    let called = found.iter().filter_map(Resolved::trampoline);
    let mut called: Vec<Called> = called
        .take(calls::MOST)
        .map(|(function, returns)| Called { function: function.into(), returns })
        .collect();
    if called.is_empty() {
        return Err("no event asks for one".into());
    }
    // Only counters of perf's are per task.
    if by == Some(By::Task) {
        return Err("by task, events are counted by perf".into());
    }
    let own = matches!(scope, Scope::Own).then(std::process::id);
    let filter = Filter { pid: spec.filter.pid.or(own), ..spec.filter.clone() };
    let attach = |called: &[Called]| {
        let within = samples::Scope::new(matches!(scope, Scope::Started), &filter);
        Calls::attach(called, within).map_err(|error| error.to_string())
    };
    let why = match attach(&called) {
        Ok(calls) => return Ok((calls, called)),
        Err(why) => why,
    };
    // A function without a trampoline, or that does not exist, is not a reason to probe the others.
    if called.len() > 1 {
        called.retain(|one| attach(std::slice::from_ref(one)).is_ok());
    } else {
        called.clear();
    }
    match called.is_empty() {
        true => Err(why),
        false => attach(&called).map(|calls| (calls, called)),
    }
}

/// Tell tasks apart.
///
/// # Errors
/// Threads are counted, not CPUs; too many events; or programs can't be loaded.
fn by_task(scope: &Scope, cpus: &[u32], events: &[Event]) -> Result<Tasks, LiveError> {
    if scope.is_of_threads() {
        return Err(LiveError::Asked(NOT_BY_TASK.into()));
    }
    if events.len() > tasks::MOST {
        return Err(LiveError::Asked(format!(
            "by task, at most {} events are counted at once, not {}",
            tasks::MOST,
            events.len()
        )));
    }
    let counters: Vec<Vec<(u32, RawFd)>> = (events.iter())
        .map(|event| {
            let parts = event.counters.iter();
            parts.filter_map(|part| Some((part.cpu?, part.counter.as_fd().as_raw_fd()))).collect()
        })
        .collect();
    Tasks::attach(cpus, &counters)
}

/// The threads of a window.
#[derive(Debug, Default)]
struct Threads {
    all: Vec<Thread>,
    numbers: HashMap<Thread, u32>,
}

impl Threads {
    fn number(&mut self, thread: Thread) -> u32 {
        let next = self.all.len() as u32;
        *self.numbers.entry(thread).or_insert_with_key(|thread| {
            self.all.push(thread.clone());
            next
        })
    }
}

/// The parts of an event, by task; the threads are numbered.
fn parts(of: &ByTask, name: &str, is_time: bool, threads: &mut Threads) -> Vec<Figure> {
    let quantity = if is_time { &TASK_TIME } else { &TASK_COUNT };
    let lost = (of.lost > 0).then(|| {
        let thread = Thread { pid: 0, tid: 0, name: LOST_TASKS.into() };
        (thread, of.lost)
    });
    let each = of.tasks.iter();
    each.map(|(task, value)| (tasks::thread(task), *value))
        .chain(lost)
        .map(|(thread, value)| {
            let number = threads.number(thread);
            Figure::new(quantity, value as f64).with_key(FigureKey::numbered(number, name))
        })
        .collect()
}

fn add(sum: &mut Count, more: Count) {
    sum.value = sum.value.saturating_add(more.value);
    sum.enabled_ns = sum.enabled_ns.saturating_add(more.enabled_ns);
    sum.running_ns = sum.running_ns.saturating_add(more.running_ns);
}

/// How long threads were to be counted, by counters of the same threads on each CPU: all of these are
/// enabled while a thread runs, wherever that is, but only the one of the CPU where it is counts
/// (`event_filter_match()` in kernel/events/core.c).
fn once<'a>(cpus: impl Iterator<Item = &'a Count>) -> u64 {
    cpus.map(|cpu| cpu.enabled_ns).max().unwrap_or_default()
}

/// Open an event for its scope; in user mode only where a user may not count the kernel.
fn open(
    what: &mut Resolved,
    scope: &Scope,
    cpus: &[u32],
    by: Option<By>,
) -> io::Result<Vec<CounterPart>> {
    let everywhere = what.is_probe();
    let targets = scope.targets(cpus, by, everywhere);

    let started = matches!(scope, Scope::Started) && !everywhere;
    let all = |what: &Resolved| -> io::Result<Vec<CounterPart>> {
        let mut parts = Vec::new();
        for (cpu, target) in &targets {
            match Counter::open(&mut what.attr(), *target, started) {
                Ok(counter) => {
                    parts.push(CounterPart { cpu: *cpu, counter, before: Count::default() })
                }
                // One of several threads has ended.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) && targets.len() > 1 => {}
                Err(error) => return Err(error),
            }
        }
        match parts.is_empty() {
            true => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            false => Ok(parts),
        }
    };
    match all(what) {
        Err(error)
            if error.raw_os_error() == Some(libc::EACCES)
                && matches!(scope, Scope::Started | Scope::Own | Scope::Threads(_))
                && what.user_only() =>
        {
            all(what).map_err(|_| error)
        }
        opened => opened,
    }
}

/// The error that no event can be counted.
pub(super) fn nothing(refused: &BTreeMap<String, String>, all_unknown: bool) -> LiveError {
    let reasons = refused.iter().take(MOST_REASONS);
    let reasons: Vec<String> = reasons.map(|(name, why)| format!("{name}: {why}")).collect();
    let reasons = reasons.join("; ");
    match all_unknown {
        true => LiveError::Asked(reasons),
        false => LiveError::CannotRun {
            reason: format!("no event can be counted by `{INSTRUMENT}`"),
            remedy: reasons,
        },
    }
}

impl Live for Counting {
    fn attached(&self) -> &Attached {
        &self.attached
    }

    fn open(&mut self) -> Result<(), LiveError> {
        self.reopen().map_err(LiveError::system("open the counters"))?;
        self.begin()?;
        if !self.runs {
            if let Some(calls) = &self.calls {
                calls.switch(true)?;
            }
            let switched = self.switch(true);
            switched.map_err(LiveError::system("begin to count"))?;
            self.runs = true;
        }
        Ok(())
    }

    fn turn(&mut self) -> Result<Window, LiveError> {
        self.read()
    }

    fn stop(&mut self) {
        if std::mem::replace(&mut self.runs, false) {
            // Counters that can't be stopped are gone.
            let _ = self.switch(false);
            if let Some(calls) = &self.calls {
                let _ = calls.switch(false);
            }
        }
    }

    fn close(&mut self) -> Result<Window, LiveError> {
        self.stop();
        self.used = true;
        self.turn()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that an event that was enabled on two CPUs, and counted half of the time on each, was
    /// counted all the time.
    #[test]
    fn enabled_once() {
        let part = |running_ns| Count { value: 1, enabled_ns: 100, running_ns };
        let cpus = [part(60), part(40)];
        let mut all = Count::default();
        cpus.iter().for_each(|cpu| add(&mut all, *cpu));
        assert_eq!(all.enabled_ns, 200);
        assert_eq!((once(cpus.iter()), all.running_ns), (100, 100));
        assert_eq!(once([].iter()), 0);
    }
}
