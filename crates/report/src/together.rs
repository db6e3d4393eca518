//! Results across several quantities of a recording, whichever of them is shown: computed before a
//! part is chosen, and shown with it.

use std::collections::BTreeMap;

use netplumb_model::class::Direction;
use netplumb_model::experiment::Experiment;
use netplumb_model::recording::Recording;

use crate::analysis::ClassView;
use crate::events::exact::beside;
use crate::sampled::{self, ArmSamples, Shares};
use crate::shares::{self, SharesOf};
use crate::threads::Threads;

/// The name of a function, and its module.
pub(crate) type Key<'a> = (&'a str, Option<&'a str>);

/// Results across several quantities.
#[derive(Debug, Default)]
pub struct CrossQuantity<'a> {
    recording: Option<&'a Recording>,
    /// The names of the selected arms; all if empty.
    arms: Vec<String>,
    /// Samples of guests, compared to their executed instructions.
    pub sampled: Vec<ArmSamples<'a>>,
    /// The shares that the experiment asks for.
    pub shares: Vec<SharesOf>,
    /// Counts of `exact` beside counts of events: a line for each arm.
    pub exact: Vec<String>,
}

impl<'a> CrossQuantity<'a> {
    /// From a whole recording, for some directions and arms or, where none are named, all.
    pub fn from_recording(
        recording: &'a Recording,
        experiment: Option<&Experiment>,
        directions: &[Direction],
        arms: &[String],
    ) -> CrossQuantity<'a> {
        let shares = experiment.map(|e| shares::all(recording, e, directions, arms));
        CrossQuantity {
            recording: Some(recording),
            arms: arms.to_vec(),
            sampled: sampled::beside(recording, directions, arms),
            shares: shares.unwrap_or_default(),
            exact: beside(recording),
        }
    }

    /// The threads of a part of the recording, in the selected arms.
    pub fn threads<'p>(&self, part: &'p Recording) -> Option<Threads<'p>> {
        Threads::from_recording(part, &self.arms)
    }

    /// Samples of one class compared to its executed instructions, by the names and modules of functions;
    /// empty where no guest was sampled.
    pub(crate) fn of_class(&self, class: &ClassView<'_>) -> BTreeMap<Key<'a>, Shares> {
        let arm = [class.arm().name.clone()];
        let found = self
            .recording
            .map(|recording| sampled::beside(recording, &[class.class.direction], &arm));
        let functions = found.into_iter().flatten().flat_map(|b| b.functions);
        functions
            .map(|(function, shares)| ((&*function.name, function.module.as_deref()), shares))
            .collect()
    }
}
