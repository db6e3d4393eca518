//! Checks of claims about a turning point.

use super::super::error::Mistake;
use super::Claim;
use crate::recording::Arm;

impl Claim {
    /// Check that the ratio of a turning point is a gain, and that arms have both levels of its knob; a scan may add
    /// levels.
    pub(super) fn check_turning_point(&self, arms: &[Arm], scans: bool) -> Result<(), Mistake> {
        let Claim::TurningPoint { knob, level, against, at_least, at_most, .. } = self else {
            return Ok(());
        };
        match (at_least, at_most) {
            (Some(ratio), None) if ratio.is_finite() && *ratio > 1.0 => {}
            (Some(ratio), None) => {
                let why =
                    format!("invalid at_least `{ratio}`; expected a ratio above 1, like 1.01");
                return Err(("at_least", why).into());
            }
            (None, Some(ratio)) if *ratio > 0.0 && *ratio < 1.0 => {}
            (None, Some(ratio)) => {
                let why = format!("invalid at_most `{ratio}`; expected a ratio below 1, like 0.99");
                return Err(("at_most", why).into());
            }
            (Some(_), Some(_)) | (None, None) => {
                let why = "what a gain is takes one of at_least, where more is better, and at_most, \
                           where less is";
                return Err(("at_least", why.to_string()).into());
            }
        }
        if level == against {
            let why = format!("`{against}` is compared with itself");
            return Err(("against", why).into());
        }
        // The settings of a scan are unknown before they are listed.
        if scans && knob.starts_with("sysctl.") {
            return Ok(());
        }
        let mut known: Vec<String> = arms.iter().filter_map(|arm| arm.level_text(knob)).collect();
        known.sort_unstable();
        known.dedup();
        if known.is_empty() {
            let why = format!(
                "no arm has a level of `{knob}`; expected a knob of [vary], of arms or of a figure"
            );
            return Err(("knob", why).into());
        }
        for (key, level) in [("level", level), ("against", against)] {
            if !known.contains(level) {
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                return Err(Mistake::unknown(key, "level", level, &known));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::experiment::Experiment;

    fn claim(rest: &str) -> Result<Experiment, String> {
        let text = format!(
            "name = \"x\"\nhosts = 2\n[workload]\nkind = \"stream\"\n[vary]\ntx_shift = [0, 2]\n\
             offload.tso = [\"on\", \"off\"]\n[[claim]]\nkind = \"turning-point\"\nsays = \"x\"\n\
             quantity = \"throughput\"\nby = \"CPU use of sender\"\n{rest}\n"
        );
        Experiment::parse(&text).map_err(|error| error.to_string())
    }

    /// Check that a turning point of a knob that varies is read, and that others are refused with the reason.
    #[test]
    fn turning_points() {
        let of = |knob: &str, level: &str, against: &str, least: &str| {
            claim(&format!(
                "knob = \"{knob}\"\nlevel = \"{level}\"\nagainst = \"{against}\"\n{least}"
            ))
        };
        of("offload.tso", "on", "off", "at_least = 1.02").unwrap();
        of("offload.tso", "on", "off", "at_most = 0.98").unwrap();
        let at_least = "at_least = 1.02";
        for (knob, level, against, least, why) in [
            ("offload.gro", "on", "off", at_least, "no arm has a level"),
            ("offload.tso", "no", "off", at_least, "unknown level `no`"),
            ("offload.tso", "on", "of", at_least, "unknown level `of`"),
            ("offload.tso", "on", "on", at_least, "with itself"),
            ("offload.tso", "on", "off", "at_least = 1", "above 1"),
            ("offload.tso", "on", "off", "at_most = 1", "below 1"),
            ("offload.tso", "on", "off", "at_most = nan", "below 1"),
            ("offload.tso", "on", "off", "", "one of at_least"),
            ("offload.tso", "on", "off", "at_least = 1.1\nat_most = 0.9", "one of at_least"),
        ] {
            let message = of(knob, level, against, least).unwrap_err();
            assert!(message.contains(why), "{message}");
        }
        // A knob of a figure only.
        let claimed =
            "knob = \"offload.gro\"\nlevel = \"on\"\nagainst = \"off\"\nat_least = 1.02\n";
        let figure = "[[figure]]\nname = \"y\"\nx = \"tx_shift\"\ny = \"throughput\"\n\
                      vary = { offload.gro = [\"on\", \"off\"] }\n";
        claim(&format!("{claimed}{figure}")).unwrap();
    }
}
