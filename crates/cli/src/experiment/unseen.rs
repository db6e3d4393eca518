//! The error of a run without packets.

use netplumb_engine::EngineError;
use netplumb_model::experiment::{Experiment, Kind};

use crate::args::live::EVENTS;

/// The message that no packet was seen, and what to do about it.
pub(super) fn nothing_seen(experiment: &Experiment) -> String {
    let filter = &experiment.filter;
    let counts = |name: &String| name == EVENTS;
    if experiment.instruments.iter().flatten().any(counts) {
        return "nothing was counted: the run ended before its first window did".into();
    }
    if experiment.workload.kind == Kind::Work {
        let more = match experiment.samples.off_cpu {
            true => "",
            false => "; if it waits all the time, --off-cpu shows for what",
        };
        return format!(
            "no samples: nothing of it ran on a CPU when one was sampled; sample longer with \
             --duration 60s, or more often with --frequency 5000{more}"
        );
    }
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
        [] => "no packets were seen".to_string(),
        names => format!("no packets matched {}", names.join(" and "),),
    };
    let take = match experiment.workload.command.is_empty() {
        true => {
            "generate traffic while it measures, as with `-- ping -c 5 ADDRESS`, measure longer \
             with --duration 60s, or use --lab netns, where plumb sends packets"
        }
        false => "the command exited without sending or receiving any",
    };
    format!("{what}; {take}")
}

/// Whether a run ended with no packet seen.
pub(super) fn is_nothing_seen(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(EngineError::NothingSeen { .. }))
}
