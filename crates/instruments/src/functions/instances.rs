//! Copies of the templates: the probes of each function, and the hooks at stack boundaries.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use libbpf_sys as sys;
use netplumb_model::timing::Mechanism;

use super::layout::{COOKIE_ABOUT_SHIFT, COOKIE_ARGUMENT_SHIFT, HINT_SHIFT, magic};
use netplumb_sys::bpf::raw::Kind;
use netplumb_sys::errno;

use super::object::{Program, Template, Templates};
use super::runtime::Shape;
use super::types::{Described, Types, hint};
use super::{kprobe, session};
use crate::live::LiveError;

/// Probes on one function, or on several that share a program. The entry goes first
/// when it is dropped, so that exits find what was entered.
#[derive(Debug)]
pub(super) struct Probe(Vec<Attachment>);

#[derive(Debug)]
struct Attachment {
    /// Dropped first: it detaches.
    link: OwnedFd,
    program: Program,
}

impl Probe {
    /// Missed entries and exits: the program was already running on that CPU, or the kernel had no
    /// free return instance.
    pub(super) fn missed(&self) -> u64 {
        let of = |a: &Attachment| {
            // This can't fail for a loaded program; not every link counts.
            a.program.missed().unwrap_or(0) + session::missed(&a.link).unwrap_or(0)
        };
        self.0.iter().map(of).sum()
    }
}

/// One of many functions that share a program.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    name: String,
    cookie: u64,
}

impl Shared {
    /// A function by the number `id`, for a program by fprobe.
    pub(super) fn new(function: &Described, id: u32) -> Shared {
        let (about, argument) = match function.packet {
            Some((at, takes)) if kprobe::register(at).is_some() => (takes as u32, at),
            _ => (0, 0),
        };
        let about = about | hint(&function.name) << HINT_SHIFT;
        Shared {
            name: function.name.clone(),
            cookie: u64::from(id)
                | u64::from(about) << COOKIE_ABOUT_SHIFT
                | u64::from(argument) << COOKIE_ARGUMENT_SHIFT,
        }
    }

    /// The function's number in the programs' tables.
    pub(super) fn id(&self) -> u32 {
        (self.cookie & 0xffff) as u32
    }
}

/// The templates of a pair.
#[derive(Debug)]
struct Pair {
    enter: Template,
    leave: Template,
}

/// Makes probes.
#[derive(Debug)]
pub(super) struct Maker {
    /// With all of the code.
    whole: Pair,
    /// Programs whose exits call helpers for rare work, and the helpers' programs; if supported.
    asking: Option<(Pair, Answers)>,
    session: Template,
    numbers: BTreeMap<i32, i32>,
}

impl Maker {
    /// From the templates; if `telling`, from those that also record single calls.
    pub(super) fn new(
        templates: &Templates,
        shape: Shape,
        types: &Types,
        telling: bool,
    ) -> Result<Maker, LiveError> {
        let template = |name: &str| match telling {
            true => templates.template(&format!("{name}_steps")),
            false => templates.template(name),
        };
        let pair = |kind: &str| -> Result<Pair, LiveError> {
            Ok(Pair { enter: template("enter_copy")?, leave: template(&format!("{kind}_leave"))? })
        };
        let asking = match Answers::attach(templates, shape, types) {
            Ok(answers) => Some((pair("asking")?, answers)),
            // Then each program has that code itself: attaching takes longer.
            Err(_) => None,
        };
        Ok(Maker {
            whole: pair("whole")?,
            asking,
            session: template("session")?,
            numbers: shape.numbers(),
        })
    }

    /// The templates of one function's programs.
    fn pair(&self) -> &Pair {
        self.asking.as_ref().map_or(&self.whole, |(pair, _)| pair)
    }

    /// A program whose test run calls the kernel's empty functions; it is never
    /// attached.
    pub(super) fn runner(&self, function: &Described) -> io::Result<Program> {
        let mut copy = self.pair().enter.clone();
        copy.patch(&self.with(&[(magic::FUNCTION, 0), (magic::ABOUT, 0)]), 0)?;
        copy.load("runner", tracing(sys::BPF_TRACE_FENTRY, function.id, 0))
    }

    /// Whether the kernel takes programs for a newer way to attach to a function.
    pub(super) fn accepts(&self, attach: u32, function: &Described) -> io::Result<()> {
        let mut copy = self.pair().enter.clone();
        copy.patch(&self.with(&[(magic::FUNCTION, 0), (magic::ABOUT, 0)]), 0)?;
        copy.load("trial", tracing(attach, function.id, 0))?;
        Ok(())
    }

    fn with(&self, more: &[(i32, i32)]) -> BTreeMap<i32, i32> {
        let mut numbers = self.numbers.clone();
        numbers.extend(more.iter().copied());
        numbers
    }

    /// Attach one program to all these functions.
    pub(super) fn share(&self, functions: &[Shared]) -> io::Result<Probe> {
        let mut copy = self.session.clone();
        copy.patch(&self.numbers, 0)?;
        let how = Kind {
            program: sys::BPF_PROG_TYPE_KPROBE,
            attach: sys::BPF_TRACE_KPROBE_SESSION,
            target: 0,
            module: 0,
        };
        let program = copy.load("session", how)?;
        let each = functions.iter().map(|f| (f.name.as_str(), f.cookie));
        let link = session::attach(&program, sys::BPF_TRACE_KPROBE_SESSION, each)?;
        Ok(Probe(vec![Attachment { link, program }]))
    }

    /// Attach to a function, with the number `id`.
    pub(super) fn attach(
        &self,
        types: &Types,
        function: &Described,
        id: u32,
        mechanism: Mechanism,
    ) -> io::Result<Probe> {
        let by_kprobe = match mechanism {
            Mechanism::FentryFexit => false,
            Mechanism::Kretprobe => true,
            Mechanism::KprobeSession => return self.share(&[Shared::new(function, id)]),
            _ => return Err(io::Error::other(format!("{mechanism} is not supported"))),
        };
        let (about, argument) = match function.packet {
            Some((at, takes)) if by_kprobe => match kprobe::register(at) {
                Some(offset) => (takes as u32, offset),
                None => (0, 0),
            },
            Some((at, takes)) => (takes as u32, i16::from(at) * 8),
            None => (0, 0),
        };
        // Without a packet there is no hint about one.
        let about = match about {
            0 => 0,
            takes => takes | hint(&function.name) << HINT_SHIFT,
        };
        let numbers = self.with(&[(magic::FUNCTION, id as i32), (magic::ABOUT, about as i32)]);
        let pair = self.pair();
        let load = |template: &Template, attach| {
            let mut copy = template.clone();
            copy.patch(&numbers, argument)?;
            let how = match by_kprobe {
                true => {
                    Kind { program: sys::BPF_PROG_TYPE_KPROBE, attach: 0, target: 0, module: 0 }
                }
                false => tracing(attach, function.id, types.module_fd(function)),
            };
            copy.load(&function.name, how)
        };
        let leave = load(&pair.leave, sys::BPF_TRACE_FEXIT)?;
        let enter = load(&pair.enter, sys::BPF_TRACE_FENTRY)?;
        // Exits without an entry are passed over; entries would wait for exits that
        // nobody sees.
        let attach = |program: &Program, on_return| match by_kprobe {
            true => kprobe::attach(program, &function.name, on_return),
            false => program.attach(),
        };
        let leave = Attachment { link: attach(&leave, true)?, program: leave };
        let enter = Attachment { link: attach(&enter, false)?, program: enter };
        Ok(Probe(vec![enter, leave]))
    }
}

/// The type of a program on a trampoline.
fn tracing(attach: u32, target: u32, module: i32) -> Kind {
    Kind { program: sys::BPF_PROG_TYPE_TRACING, attach, target, module }
}

/// The programs for rare work, shared by all, on helpers that are called for it: see
/// lookup.h.
#[derive(Debug)]
struct Answers {
    _hooks: Vec<Attachment>,
}

impl Answers {
    fn attach(templates: &Templates, shape: Shape, types: &Types) -> io::Result<Answers> {
        let mut hooks = Vec::new();
        for (helper, program) in [
            ("bpf_get_numa_node_id", "answer_tasks"),
            ("bpf_ktime_get_boot_ns", "answer_interrupts"),
        ] {
            let absent = || io::Error::other(format!("this kernel has no `{helper}`"));
            let function = types.find(helper).ok_or_else(absent)?;
            hooks.push(hook(templates, shape, program, sys::BPF_TRACE_FENTRY, function.id)?);
        }
        Ok(Answers { _hooks: hooks })
    }
}

/// Load a template for a function or tracepoint, and attach it.
fn hook(
    templates: &Templates,
    shape: Shape,
    program: &str,
    kind: u32,
    target: u32,
) -> io::Result<Attachment> {
    let mut template = templates.template(program).map_err(|e| io::Error::other(e.to_string()))?;
    template.patch(&shape.numbers(), 0)?;
    let program = template.load(program, tracing(kind, target, 0))?;
    let link = program.attach()?;
    Ok(Attachment { link, program })
}

/// The hooks at stack boundaries.
#[derive(Debug, Default)]
pub(super) struct Boundaries {
    hooks: Vec<Attachment>,
    /// The hooked functions and tracepoints.
    pub(super) watched: Vec<&'static str>,
    /// Functions and tracepoints that could not be hooked, and why.
    pub(super) refused: BTreeMap<String, String>,
}

impl Boundaries {
    pub(super) fn attach(
        templates: &Templates,
        shape: Shape,
        types: &Types,
        traced: bool,
    ) -> Result<Boundaries, LiveError> {
        let mut all = Boundaries::default();
        let load = |name: &str, kind, target| hook(templates, shape, name, kind, target);
        let absent = || io::Error::other("this kernel has none");
        let function = |name: &str, program: &str, kind| {
            let found = types.find(name).ok_or_else(absent)?;
            load(program, kind, found.id)
        };
        let tracepoint = |name: &str, program: &str| {
            let id = types.tracepoint(name).ok_or_else(absent)?;
            load(program, sys::BPF_TRACE_RAW_TP, id)
        };
        // Ends before beginnings: an end alone is passed over.
        let pair = |begin: (&str, &str), end: (&str, &str)| -> io::Result<[Attachment; 2]> {
            let end = function(end.0, end.1, sys::BPF_TRACE_FEXIT)?;
            Ok([end, function(begin.0, begin.1, sys::BPF_TRACE_FENTRY)?])
        };
        let points = |begin: (&str, &str), end: (&str, &str)| -> io::Result<[Attachment; 2]> {
            let end = tracepoint(end.0, end.1)?;
            Ok([end, tracepoint(begin.0, begin.1)?])
        };
        // Renamed in 6.10, commit 1dd1eff161bd.
        let softirqs = ["handle_softirqs", "__do_softirq"];
        let mut done = false;
        if traced {
            for name in softirqs {
                if let Ok(hooks) = pair((name, "softirqs_begin"), (name, "softirqs_end")) {
                    all.hooks.extend(hooks);
                    all.hooks.push(tracepoint("softirq_entry", "softirq_vector").map_err(refused)?);
                    all.watched.push(name);
                    done = true;
                    break;
                }
            }
        }
        if !done {
            let hooks = points(("softirq_entry", "softirq_begin"), ("softirq_exit", "softirq_end"));
            all.hooks.extend(hooks.map_err(refused)?);
            all.watched.push("softirq_entry");
        }
        let interrupts =
            pair(("irq_enter_rcu", "interrupt_begin"), ("irq_exit_rcu", "interrupt_end"));
        match interrupts {
            Ok(hooks) if traced => {
                all.hooks.extend(hooks);
                all.watched.push("irq_enter_rcu");
            }
            other => {
                if let Err(why) = other {
                    all.refused.insert("irq_enter_rcu".into(), explain(&why));
                }
                let hooks = points(
                    ("irq_handler_entry", "handler_begin"),
                    ("irq_handler_exit", "handler_end"),
                );
                all.hooks.extend(hooks.map_err(refused)?);
                all.watched.push("irq_handler_entry");
            }
        }
        all.hooks.push(tracepoint("sched_switch", "task_switch").map_err(refused)?);
        all.watched.push("sched_switch");
        Ok(all)
    }

    /// Missed boundaries.
    pub(super) fn missed(&self) -> u64 {
        self.hooks.iter().map(|h| h.program.missed().unwrap_or(0)).sum()
    }
}

/// The error if the hooks can't be attached.
/// Why a function that bounds interruptions has no programs.
fn explain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(errno::ENOTSUPP) => {
            "this kernel attaches no programs to functions (ftrace has no direct calls \
                                  here; on arm64 from Linux 6.4 on)"
                .into()
        }
        Some(number) => errno::words(number),
        None => error.to_string(),
    }
}

fn refused(error: io::Error) -> LiveError {
    LiveError::System {
        doing: "watch softirqs, interrupts and task switches".into(),
        source: Box::new(error),
    }
}

/// A pair of boundary hooks on one function, to see what they cost.
pub(super) fn boundary_on(
    templates: &Templates,
    shape: Shape,
    function: &Described,
) -> Result<impl Sized, LiveError> {
    let one = |name: &str, kind| hook(templates, shape, name, kind, function.id);
    let end = one("softirqs_end", sys::BPF_TRACE_FEXIT).map_err(refused)?;
    let begin = one("softirqs_begin", sys::BPF_TRACE_FENTRY).map_err(refused)?;
    Ok((begin, end))
}

/// A program for test runs that calls a function within an RCU read section.
pub(super) fn caller_in_rcu(templates: &Templates) -> Result<Program, LiveError> {
    let how = Kind { program: sys::BPF_PROG_TYPE_RAW_TRACEPOINT, attach: 0, target: 0, module: 0 };
    (templates.template("call_in_rcu")?).load("call_in_rcu", how).map_err(refused)
}
