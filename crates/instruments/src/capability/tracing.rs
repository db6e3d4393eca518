//! Programs that the kernel calls by trampoline or from a tracepoint.

use libbpf_sys as sys;
use netplumb_model::capability::{Availability, Capability, Group};

use super::btf::TRACEPOINT;
use super::context::{Cap, Context};
use super::explain::{self, Need};
use super::program::{self, Failure, Kind};
use super::trial;

const TRACER: &[Cap] = &[Cap::Bpf, Cap::Perfmon];

const TRAMPOLINE: &[&str] = &[
    "CONFIG_BPF_EVENTS",
    "CONFIG_DEBUG_INFO_BTF",
    "CONFIG_FUNCTION_TRACER",
    "CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS",
];

/// Try every one of them.
pub(super) fn try_all(context: &Context) -> Vec<Capability> {
    vec![
        trial("btf", Group::Functions, "the kernel's own type information (BTF)", || btf(context)),
        function(
            context,
            "fentry",
            "a program on a function's entry",
            sys::BPF_TRACE_FENTRY,
            (5, 5),
        ),
        function(
            context,
            "fexit",
            "a program on a function's return",
            sys::BPF_TRACE_FEXIT,
            (5, 5),
        ),
        function(
            context,
            "fsession",
            "one program on entry and return",
            sys::BPF_TRACE_FSESSION,
            (7, 0),
        ),
        trial("tp-btf", Group::Stages, "a program on a typed tracepoint (tp_btf)", || {
            tp_btf(context)
        }),
        trial("raw-tp", Group::Stages, "a program on a raw tracepoint", || raw_tp(context)),
    ]
}

fn btf(context: &Context) -> Availability {
    match &context.targets {
        Ok(targets) => Availability::yes(format!("{} types", targets.types)),
        Err(missing) => {
            let need = Need { config: &["CONFIG_DEBUG_INFO_BTF"], ..Need::default() };
            explain::no(
                context,
                &need,
                &Failure::new("reading /sys/kernel/btf/vmlinux", missing.errno),
            )
        }
    }
}

/// The target's name and type number, or the reason why there is none.
fn target<T>(
    context: &Context,
    pick: impl Fn(&super::btf::Targets) -> Option<T>,
) -> Result<T, Availability> {
    match &context.targets {
        Err(_) => Err(btf(context)),
        Ok(targets) => pick(targets).ok_or_else(|| {
            Availability::no(
                "the kernel's type information (BTF) has no such function",
                explain::OTHER_KERNEL,
            )
        }),
    }
}

fn function(
    context: &Context,
    id: &'static str,
    what: &'static str,
    attach: sys::bpf_attach_type,
    since: (u32, u32),
) -> Capability {
    let need = Need { caps: TRACER, config: TRAMPOLINE, since: Some(since) };
    trial(id, Group::Functions, what, || {
        let (name, target) = match target(context, |t| t.function) {
            Ok(found) => found,
            Err(verdict) => return verdict,
        };
        let kind = Kind { program: sys::BPF_PROG_TYPE_TRACING, attach, target, ..Kind::default() };
        let attached = program::load(kind, &program::returning(0))
            .and_then(|loaded| program::attach_raw(&loaded, None));
        match attached {
            Ok(_) => Availability::yes(format!("attached to {}", name.to_string_lossy())),
            Err(failure) => explain::no(context, &need, &failure),
        }
    })
}

fn tp_btf(context: &Context) -> Availability {
    let need = Need {
        caps: TRACER,
        config: &["CONFIG_BPF_EVENTS", "CONFIG_DEBUG_INFO_BTF"],
        since: Some((5, 5)),
    };
    let target = match target(context, |t| t.tracepoint) {
        Ok(found) => found,
        Err(verdict) => return verdict,
    };
    let kind = Kind {
        program: sys::BPF_PROG_TYPE_TRACING,
        attach: sys::BPF_TRACE_RAW_TP,
        target,
        ..Kind::default()
    };
    let attached = program::load(kind, &program::returning(0))
        .and_then(|loaded| program::attach_raw(&loaded, None));
    said(context, &need, attached)
}

fn raw_tp(context: &Context) -> Availability {
    let need = Need { caps: TRACER, config: &["CONFIG_BPF_EVENTS"], since: Some((4, 17)) };
    let kind = Kind { program: sys::BPF_PROG_TYPE_RAW_TRACEPOINT, ..Kind::default() };
    let attached = program::load(kind, &program::returning(0))
        .and_then(|loaded| program::attach_raw(&loaded, Some(TRACEPOINT)));
    said(context, &need, attached)
}

fn said<T>(context: &Context, need: &Need, attached: Result<T, Failure>) -> Availability {
    match attached {
        Ok(_) => Availability::yes(format!("attached to {}", TRACEPOINT.to_string_lossy())),
        Err(failure) => explain::no(context, need, &failure),
    }
}
