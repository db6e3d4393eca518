//! The part of a path that a claim is about, and the arms.

use netplumb_model::chain;
use netplumb_model::class::{Class, Context, Softirq};
use netplumb_model::recording::NodeId;

use crate::analysis::ClassView;
use crate::number::printable;
use crate::seeds;

/// Letters of a name.
pub(super) const NAME_CHARACTERS: usize = 60;

/// A whole path, or a part of it.
pub(super) struct PathPart<'a> {
    layer: Option<&'a str>,
    function: Option<&'a str>,
    below: Option<&'a str>,
}

impl PathPart<'_> {
    pub(super) fn insns(&self, view: &ClassView<'_>) -> u64 {
        if let Some(chain) = self.below {
            return self.insns_below(view, chain);
        }
        match (self.function, self.layer) {
            (Some(name), _) => {
                let own = chain::functions(view.recording, name);
                let own = view.functions.iter().filter(|f| own.contains(&f.function));
                own.map(|f| f.self_insns).sum()
            }
            (None, Some(layer)) => view.layer_insns(layer),
            (None, None) => view.total,
        }
    }

    /// Below a chain of functions.
    fn insns_below(&self, view: &ClassView<'_>, chain: &str) -> u64 {
        let below = chain::below(view.recording, chain);
        let own = self.function.map(|name| chain::functions(view.recording, name));
        let is_part = |node: NodeId| {
            let function = view.recording.nodes[node as usize].function;
            match (&own, self.layer) {
                (Some(own), _) => own.contains(&function),
                (None, Some(layer)) => view.layer(function) == layer,
                (None, None) => true,
            }
        };
        let nodes = view.nodes.iter();
        nodes
            .filter(|(node, _)| below[**node as usize] && is_part(**node))
            .map(|(_, costs)| costs.self_insns)
            .sum()
    }

    /// Without what interrupts and other softirqs do, which may differ with the moment:
    /// for claims to the instruction.
    pub(super) fn steady_insns(&self, view: &ClassView<'_>) -> u64 {
        match self {
            PathPart { layer: None, function: None, below: None } => steady(view),
            _ => self.insns(view),
        }
    }

    /// After a class: "", " in nft_do_chain", " in the network layer", " below usbnet_bh".
    pub(super) fn within(&self) -> String {
        let part = match (self.function, self.layer) {
            (Some(function), _) => format!(" in {}", printable(function, NAME_CHARACTERS)),
            (None, Some(layer)) => format!(" in the {} layer", printable(layer, NAME_CHARACTERS)),
            (None, None) => String::new(),
        };
        let below = self.below.map(chain::chain_text).unwrap_or_default();
        match below.is_empty() {
            true => part,
            false => format!("{part} below {}", printable(&below, NAME_CHARACTERS)),
        }
    }
}

/// Instructions in the contexts that are the same in every run.
pub(crate) fn steady(view: &ClassView<'_>) -> u64 {
    [Context::Task, Context::Softirq(Softirq::NetRx)]
        .iter()
        .filter_map(|context| view.contexts.get(context))
        .sum()
}

pub(super) fn part<'a>(
    layer: &'a Option<String>,
    function: &'a Option<String>,
    below: &'a Option<String>,
) -> PathPart<'a> {
    PathPart { layer: layer.as_deref(), function: function.as_deref(), below: below.as_deref() }
}

/// The views of a class in the arms that a claim names, or in all.
pub(super) fn of_arms<'c, 'r>(
    class: Class,
    arms: &'c [String],
    classes: &'c [ClassView<'r>],
) -> impl Iterator<Item = &'c ClassView<'r>> {
    classes.iter().filter(move |view| {
        let named = || arms.iter().any(|arm| seeds::name(view.arm()) == arm);
        view.class == class && (arms.is_empty() || named())
    })
}

/// The level of a knob that is a number.
pub(super) fn level(view: &ClassView<'_>, knob: &str) -> Option<i64> {
    view.recording.level(view.arm, knob)?.parse().ok()
}
