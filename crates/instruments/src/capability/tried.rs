//! Results of trials, for checks that depend on several.

use netplumb_model::capability::{Availability, Capability};

/// The results of all trials.
#[derive(Debug, Clone, Copy)]
pub struct Tried<'a>(pub &'a [Capability]);

impl Tried<'_> {
    /// The result of a trial.
    pub fn verdict(&self, id: &str) -> Availability {
        let found = self.0.iter().find(|c| c.id == id).map(|c| c.verdict.clone());
        // Only a crashed trial has no result.
        found.unwrap_or_else(|| {
            Availability::no(
                format!("the check `{id}` gave no result"),
                "report it with the output of `plumb doctor --json`",
            )
        })
    }

    /// Whether it worked.
    pub fn works(&self, id: &str) -> bool {
        self.verdict(id).works()
    }

    /// The first failed one of several.
    pub fn obstacle(&self, ids: &[&str]) -> Option<Availability> {
        ids.iter().map(|id| self.verdict(id)).find(|v| !v.works())
    }

    /// The result of the first alternative that works, or the reasons of all.
    pub fn any(&self, ways: &[(&[&str], &str)]) -> Availability {
        let mut refusals: Vec<(String, String)> = Vec::new();
        for (needs, detail) in ways {
            match self.obstacle(needs) {
                None => return Availability::yes(*detail),
                Some(Availability::No { reason, remedy }) => {
                    if !refusals.iter().any(|(r, _)| *r == reason) {
                        refusals.push((reason, remedy));
                    }
                }
                Some(_) => (),
            }
        }
        let reasons: Vec<&str> = refusals.iter().map(|(r, _)| r.as_str()).collect();
        let remedy = refusals.first().map_or("", |(_, remedy)| remedy.as_str());
        Availability::no(reasons.join("; and "), remedy)
    }
}
