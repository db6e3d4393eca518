//! Selects the functions to time.

use std::collections::{BTreeMap, HashSet};
use std::fs;

use netplumb_model::text::matches;
use netplumb_model::timing::Selection;

use super::types::{Described, Types};
use crate::live::LiveError;

/// The default maximum number of functions.
const DEFAULT_MAX: u32 = 128;

/// Functions that the probes call, or that are called on the way to them: timing these would
/// recurse endlessly. Newer kernels refuse some (`btf_id_deny` in kernel/bpf/verifier.c); 6.1
/// hangs.
const NEVER: &[&str] = &[
    "__rcu_read_lock",
    "__rcu_read_unlock",
    "rcu_read_unlock_strict",
    "rcu_read_unlock_special",
    "migrate_disable",
    "migrate_enable",
    "preempt_count_add",
    "preempt_count_sub",
    "ktime_get_mono_fast_ns",
    "ktime_get_boot_fast_ns",
    "copy_from_kernel_nofault",
    "copy_from_kernel_nofault_allowed",
    // Stack boundaries, which have hooks.
    "__do_softirq",
    "handle_softirqs",
    "irq_enter_rcu",
    "irq_exit_rcu",
    // Functions of the calibration.
    "bpf_prog_test_run_tracing",
];
/// The same, by prefix.
const NEVER_PREFIXES: &[&str] = &["__bpf_", "bpf_", "__bpf", "ftrace_", "trace_", "__traceiter_"];

/// The network layers in order of relevance, for discovery.
const LAYERS: &[&str] =
    &["transport", "network", "socket", "link", "driver", "application", "netfilter"];

#[derive(Debug, Default)]
pub(super) struct Chosen<'a> {
    /// The functions, the most relevant first.
    pub(super) functions: Vec<&'a Described>,
    /// Functions that can't be timed, with the reason.
    pub(super) refused: BTreeMap<String, String>,
    /// Left out, since there is a limit.
    pub(super) over_budget: Vec<String>,
}

/// Information about symbols, in addition to BTF.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    /// Names of functions of the running kernel; empty if they are not known.
    present: HashSet<String>,
    /// Functions that can be traced; empty if they are not known.
    traceable: HashSet<String>,
}

impl Symbols {
    /// Read it from the running kernel.
    pub(super) fn load() -> Symbols {
        let present = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let traceable = [
            "/sys/kernel/tracing/available_filter_functions",
            "/sys/kernel/debug/tracing/available_filter_functions",
        ]
        .iter()
        .find_map(|path| fs::read_to_string(path).ok())
        .unwrap_or_default();
        Symbols::parse(&present, &traceable)
    }

    fn parse(kallsyms: &str, filter_functions: &str) -> Symbols {
        let present = kallsyms
            .lines()
            .filter_map(|line| {
                let mut words = line.split_ascii_whitespace().skip(1);
                let kind = words.next()?;
                let name = words.next()?;
                matches!(kind, "t" | "T" | "w" | "W").then(|| name.to_string())
            })
            .collect();
        let traceable = filter_functions
            .lines()
            .filter_map(|line| Some(line.split_ascii_whitespace().next()?.to_string()))
            .collect();
        Symbols { present, traceable }
    }

    /// Why a function can't be timed, if that is known beforehand.
    fn refuse(&self, name: &str) -> Option<String> {
        if never(name) {
            return Some("needed by the probe itself".into());
        }
        if !self.present.is_empty() && !self.present.contains(name) {
            let clone = format!("{name}.");
            let cloned = self.present.iter().any(|s| s.starts_with(&clone));
            return Some(if cloned {
                "the compiler replaced it by a clone with other arguments".into()
            } else {
                "inlined into its callers, or not loaded".into()
            });
        }
        if !self.traceable.is_empty() && !self.traceable.contains(name) {
            return Some("marked notrace by the kernel".into());
        }
        None
    }
}

fn never(name: &str) -> bool {
    NEVER.contains(&name) || NEVER_PREFIXES.iter().any(|p| name.starts_with(p))
}

/// Choose functions.
///
/// # Errors
/// A function or layer does not exist in this kernel.
pub(super) fn choose<'a>(
    selection: &Selection,
    types: &'a Types,
    symbols: &Symbols,
    layer: &dyn Fn(&str, Option<&str>) -> Option<String>,
) -> Result<Chosen<'a>, LiveError> {
    let mut chosen = Chosen::default();
    let mut seen = HashSet::new();
    let mut take = |function: &'a Described, chosen: &mut Chosen<'a>| {
        if !seen.insert((function.name.as_str(), function.module)) {
            return;
        }
        match symbols.refuse(&function.name) {
            Some(why) => {
                chosen.refused.insert(function.name.clone(), why);
            }
            None => chosen.functions.push(function),
        }
    };
    let of = |f: &Described| layer(&f.name, types.module_name(f));
    for name in &selection.recorded {
        match types.find(name) {
            Some(function) => take(function, &mut chosen),
            None => {
                let why = "not in the kernel's type information (BTF)";
                chosen.refused.insert(name.clone(), why.into());
            }
        }
    }
    for pattern in &selection.patterns {
        let mut any = false;
        for function in &types.functions {
            if matches(pattern, &function.name) {
                any = true;
                take(function, &mut chosen);
            }
        }
        if !any {
            return Err(LiveError::Asked(format!(
                "no such function `{pattern}` in this kernel; it may be inlined, or in a module that is not loaded (`*` matches any letters)"
            )));
        }
    }
    for wanted in &selection.layers {
        let mut any = false;
        for function in &types.functions {
            if of(function).as_deref() == Some(wanted) {
                any = true;
                // Functions without a packet have the class of their callers.
                take(function, &mut chosen);
            }
        }
        if !any {
            return Err(LiveError::Asked(format!(
                "no function of this kernel is in the layer `{wanted}`"
            )));
        }
    }
    let nothing_else = selection.recorded.is_empty()
        && selection.patterns.is_empty()
        && selection.layers.is_empty();
    if nothing_else && !selection.discover {
        // First the functions that decide forwarding and echo.
        let deciding = super::types::FORWARD.iter().chain(super::types::ECHO);
        let usual = netplumb_kernel::path_rules::common_path();
        for function in deciding.copied().chain(usual).filter_map(|name| types.find(name)) {
            if symbols.refuse(&function.name).is_none() {
                take(function, &mut chosen);
            }
        }
    }
    if selection.discover || nothing_else {
        discover(types, &of, &mut |f| {
            // These were not requested by name: leave them out silently.
            if symbols.refuse(&f.name).is_none() {
                take(f, &mut chosen);
            }
        });
    }
    let max = match selection.max_functions {
        0 => DEFAULT_MAX,
        max => max,
    } as usize;
    if chosen.functions.len() > max {
        let over_budget = chosen.functions.split_off(max);
        chosen.over_budget = over_budget.iter().rev().map(|f| f.name.clone()).collect();
    }
    Ok(chosen)
}

/// Functions with an skb as a parameter, by layer, and in each first those whose names show what
/// they do with it.
fn discover<'a>(
    types: &'a Types,
    layer: &dyn Fn(&Described) -> Option<String>,
    take: &mut dyn FnMut(&'a Described),
) {
    let mut found: Vec<_> = types
        .functions
        .iter()
        .filter(|f| f.takes_skb)
        .filter_map(|f| {
            let layer = layer(f)?;
            let rank = LAYERS.iter().position(|l| *l == layer)?;
            let quiet = super::types::hint(&f.name) == 0;
            Some((quiet, rank, f.name.len(), f))
        })
        .collect();
    found.sort_by_key(|(quiet, rank, length, f)| (*quiet, *rank, *length, &f.name));
    for (.., function) in found {
        take(function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check what a pattern matches.
    #[test]
    fn patterns_match() {
        for (pattern, name, fits) in [
            ("ip_rcv", "ip_rcv", true),
            ("ip_rcv", "ip_rcv_core", false),
            ("ip_*", "ip_rcv", true),
            ("*_rcv", "ip_rcv", true),
            ("udp*skb*", "udp_queue_rcv_one_skb", true),
            ("a*b*a", "aba", true),
            ("a*a", "a", false),
            ("*", "anything", true),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }

    fn described(name: &str, id: u32) -> Described {
        Described {
            name: name.into(),
            module: None,
            id,
            arguments: 1,
            packet: None,
            takes_skb: true,
        }
    }

    fn types(names: &[&str]) -> Types {
        Types::from_functions(names.iter().zip(1..).map(|(n, id)| described(n, id)).collect())
    }

    fn no_layer(_: &str, _: Option<&str>) -> Option<String> {
        None
    }

    /// Check that what can't be timed is reported with the reason, and that a
    /// recording's least useful functions are shed first.
    #[test]
    fn refused_and_shed() {
        let types = types(&["a", "b", "c", "inlined", "cloned", "untraced", "__rcu_read_lock"]);
        let symbols = Symbols::parse(
            "0 T a\n0 t b\n0 T c\n0 t cloned.isra.0\n0 T untraced\n0 T __rcu_read_lock\n0 D inlined\n",
            "a\nb\nc [mod]\n",
        );
        let selection = Selection {
            recorded: ["c", "inlined", "cloned", "a", "untraced", "b", "__rcu_read_lock", "absent"]
                .map(String::from)
                .to_vec(),
            max_functions: 2,
            ..Default::default()
        };
        let chosen = choose(&selection, &types, &symbols, &no_layer).unwrap();
        let names: Vec<_> = chosen.functions.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["c", "a"]);
        assert_eq!(chosen.over_budget, ["b"]);
        let refused: Vec<_> = chosen.refused.keys().map(String::as_str).collect();
        assert_eq!(refused, ["__rcu_read_lock", "absent", "cloned", "inlined", "untraced"]);
    }

    /// Check that where nothing is asked for the usual way comes first, and what takes
    /// packets follows; that discovery alone adds no others.
    #[test]
    fn the_usual_way_first() {
        let types = types(&["tcp_x_rcv", "ip_output", "udp_sendmsg"]);
        let layer = |_: &str, _: Option<&str>| Some("transport".to_string());
        let names = |selection: &Selection| -> Vec<String> {
            let chosen = choose(selection, &types, &Symbols::default(), &layer).unwrap();
            chosen.functions.iter().map(|f| f.name.clone()).collect()
        };
        let usual = names(&Selection::default());
        assert_eq!(usual, ["ip_output", "udp_sendmsg", "tcp_x_rcv"]);
        let discovered = names(&Selection { discover: true, ..Default::default() });
        assert_eq!(discovered.len(), 3);
        assert_ne!(discovered, usual);
    }

    /// Check that discovery prefers network functions whose names show what they do.
    #[test]
    fn discovery_prefers_the_path() {
        let types = types(&["skb_set_owner", "ip_rcv", "e1000_xmit_frame", "aa_sk", "udp_rcv"]);
        let layer = |name: &str, _: Option<&str>| {
            Some(
                match name {
                    "udp_rcv" => "transport",
                    "ip_rcv" => "network",
                    "e1000_xmit_frame" => "driver",
                    "skb_set_owner" => "socket",
                    _ => "security",
                }
                .to_string(),
            )
        };
        let selection = Selection { discover: true, ..Default::default() };
        let chosen = choose(&selection, &types, &Symbols::default(), &layer).unwrap();
        let names: Vec<_> = chosen.functions.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["udp_rcv", "ip_rcv", "e1000_xmit_frame", "skb_set_owner"]);
    }

    /// Check that a pattern or layer without a match is an error.
    #[test]
    fn nothing_fits() {
        let types = types(&["a"]);
        for selection in [
            Selection { patterns: vec!["b*".into()], ..Default::default() },
            Selection { layers: vec!["network".into()], ..Default::default() },
        ] {
            let chosen = choose(&selection, &types, &Symbols::default(), &no_layer);
            let error = chosen.err().unwrap();
            assert!(matches!(error, LiveError::Asked(_)), "{error}");
        }
    }
}
