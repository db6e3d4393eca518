//! Checks of claims about the course of a curve.

use super::super::error::Mistake;
use super::super::number_of;
use super::Claim;
use crate::class::words;
use crate::recording::Arm;

words! {
    /// Where a part of a curve goes.
    Leg, "leg",
    /// Down.
    Falls = "falls",
    /// Up.
    Rises = "rises",
}

/// Levels that make a curve.
const LEAST_LEVELS: usize = 3;

impl Claim {
    /// Check that a course goes one way and then the other, over a numeric knob; a scan may add levels.
    pub(super) fn check_course(&self, arms: &[Arm], scans: bool) -> Result<(), Mistake> {
        let Claim::Course { knob, is, beyond_percent, .. } = self else {
            return Ok(());
        };
        if is.is_empty() || is.windows(2).any(|two| two[0] == two[1]) {
            let why = "a course is of falls and rises in turns, like is = [\"falls\", \"rises\"]";
            return Err(("is", why.to_string()).into());
        }
        if !(0.0..100.0).contains(beyond_percent) {
            let why = format!("invalid beyond_percent `{beyond_percent}`; expected 0 to 100");
            return Err(("beyond_percent", why).into());
        }
        let levels = arms.iter().filter_map(|arm| arm.level_text(knob));
        if levels.filter_map(|level| number_of(knob, &level)).count() < LEAST_LEVELS && !scans {
            let why = format!(
                "a course takes {LEAST_LEVELS} arms with a number for `{knob}`; expected a knob of [vary], of arms or \
                 of a figure"
            );
            return Err(("knob", why).into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::experiment::Experiment;

    /// Check that a course over numbers is read, and that others are refused with the reason.
    #[test]
    fn courses() {
        let of = |knob: &str, rest: &str| {
            let text = format!(
                "name = \"x\"\nhosts = 2\n[workload]\nkind = \"stream\"\n[vary]\nbuffer = [\"4K\", \"8K\", \"64K\"]\n\
                 [[claim]]\nkind = \"course\"\nsays = \"x\"\nquantity = \"CPU use of receiver\"\nknob = \"{knob}\"\n\
                 {rest}\n"
            );
            Experiment::parse(&text).map_err(|error| error.to_string())
        };
        let is = "is = [\"falls\", \"rises\"]";
        of("buffer", is).unwrap();
        of("buffer", &format!("{is}\nbeyond_percent = 5")).unwrap();
        for (knob, rest, why) in [
            ("mtu", is, "3 arms with a number for `mtu`"),
            ("buffer", "is = []", "in turns"),
            ("buffer", "is = [\"falls\", \"falls\"]", "in turns"),
            ("buffer", "is = [\"sinks\"]", "sinks"),
            ("buffer", "is = [\"falls\"]\nbeyond_percent = 100", "beyond_percent `100`"),
        ] {
            let message = of(knob, rest).unwrap_err();
            assert!(message.contains(why), "{message}");
        }
    }
}
