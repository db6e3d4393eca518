//! What is made of several quantities of a recording together, whichever of them is shown: to be
//! found before a part is chosen, and shown with it.

use std::collections::BTreeMap;

use netplumb_model::class::Direction;
use netplumb_model::experiment::Experiment;
use netplumb_model::recording::Recording;

use crate::analysis::ClassView;
use crate::events;
use crate::sampled::{self, Beside, Shares};
use crate::shares::{self, SharesOf};
use crate::threads::Threads;

/// The name of a function, and its module.
pub(crate) type Key<'a> = (&'a str, Option<&'a str>);

/// What several quantities say together.
#[derive(Debug, Default)]
pub struct Together<'a> {
    recording: Option<&'a Recording>,
    /// The arms that are asked for.
    arms: Vec<String>,
    /// Samples of guests, beside what they executed.
    pub sampled: Vec<Beside<'a>>,
    /// The shares that the experiment asks for.
    pub shares: Vec<SharesOf>,
    /// Beside counts of events, what `exact` counted: a line for each arm.
    pub exact: Vec<String>,
}

impl<'a> Together<'a> {
    /// Of all of a recording: of some directions and arms or, where none are named, all.
    pub fn of(
        recording: &'a Recording,
        experiment: Option<&Experiment>,
        directions: &[Direction],
        arms: &[String],
    ) -> Together<'a> {
        let shares = experiment.map(|e| shares::all(recording, e, directions, arms));
        Together {
            recording: Some(recording),
            arms: arms.to_vec(),
            sampled: sampled::beside(recording, directions, arms),
            shares: shares.unwrap_or_default(),
            exact: events::beside(recording),
        }
    }

    /// The threads of a part of the recording, of the arms that are asked for.
    pub fn threads<'p>(&self, part: &'p Recording) -> Option<Threads<'p>> {
        Threads::of(part, &self.arms)
    }

    /// Samples of one class beside what it executed, by the names and modules of functions; none
    /// where no guest was sampled.
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
