//! What a claim or a figure is about.

use netplumb_model::class::Class;
use netplumb_model::experiment::Claim;

/// A quantity, and the part of it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct What<'w> {
    /// The quantity; none for the instrument's first.
    pub(crate) quantity: Option<&'w str>,
    /// Of this class, where the quantity is one of classes.
    pub(crate) class: Option<Class>,
    /// Of this layer.
    pub(crate) layer: Option<&'w str>,
    /// Of this function, its own.
    pub(crate) function: Option<&'w str>,
    /// Only the part below this chain of functions.
    pub(crate) below: Option<&'w str>,
    /// Of this stage.
    pub(crate) stage: Option<&'w str>,
}

/// What a claim is about, in a class.
pub(super) fn what(claim: &Claim, class: Option<Class>) -> What<'_> {
    let (layer, function, below, stage) = match claim {
        Claim::Linear { layer, function, stage, .. } => (layer, function, &None, stage),
        Claim::Compare { layer, function, below, stage, .. }
        | Claim::Unchanged { layer, function, below, stage, .. }
        | Claim::Ranking { layer, function, below, stage, .. } => (layer, function, below, stage),
        _ => (&None, &None, &None, &None),
    };
    What {
        quantity: claim.quantity(),
        class,
        layer: layer.as_deref(),
        function: function.as_deref(),
        below: below.as_deref(),
        stage: stage.as_deref(),
    }
}
