//! A run that saw no packet.

use netplumb_engine::EngineError;
use netplumb_model::experiment::Experiment;

/// That no packet was seen, and what it would take.
pub(super) fn nothing_seen(experiment: &Experiment) -> String {
    let filter = &experiment.filter;
    let mut filters: Vec<&str> = Vec::new();
    for (set, name) in [
        (!filter.proto.is_empty(), "--proto"),
        (filter.family.is_some(), "--family"),
        (filter.port.is_some(), "--port"),
        (filter.address.is_some(), "--address"),
        (filter.interface.is_some(), "--interface"),
        (filter.netns.is_some(), "--netns"),
        (filter.pid.is_some(), "--pid"),
        (filter.cgroup.is_some(), "--cgroup"),
    ] {
        if set {
            filters.push(name);
        }
    }
    let what = match filters.as_slice() {
        [] => "no packet was seen: there was no traffic".to_string(),
        names => format!(
            "no packet was seen that is as {} {}: widen {}, or wait for such traffic",
            names.join(" and "),
            if names.len() == 1 { "asks" } else { "ask" },
            if names.len() == 1 { "it" } else { "them" },
        ),
    };
    let take = match experiment.workload.command.is_empty() {
        true => {
            "make some while it measures, as with `-- ping -c 5 ADDRESS`, measure for longer \
             with --duration 60s, or let plumb send packets itself with --lab netns"
        }
        false => {
            "the command sent and received none before it ended: is it one that uses the network?"
        }
    };
    format!("{what}; {take}")
}

/// Whether a run ended with no packet seen.
pub(super) fn is_nothing_seen(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(EngineError::NothingSeen { .. }))
}
