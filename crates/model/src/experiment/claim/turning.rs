//! What a claim about a turning point has to say.

use super::super::error::Mistake;
use super::Claim;
use crate::recording::Arm;

impl Claim {
    /// Check that the ratio of a turning point is a gain, and that there are arms with both levels of its
    /// knob, of which a scan may have more.
    pub(super) fn check_turning_point(&self, arms: &[Arm], scans: bool) -> Result<(), Mistake> {
        let Claim::TurningPoint {
            knob,
            level,
            against,
            at_least,
            ..
        } = self
        else {
            return Ok(());
        };
        if !(at_least.is_finite() && *at_least > 1.0) {
            let why = format!("invalid at_least `{at_least}`; expected a ratio above 1, like 1.01");
            return Err(("at_least", why).into());
        }
        if level == against {
            let why = format!("`{against}` is compared with itself");
            return Err(("against", why).into());
        }
        // What a scan sets is not known before its settings are listed.
        if scans && knob.starts_with("sysctl.") {
            return Ok(());
        }
        let mut known: Vec<String> = arms.iter().filter_map(|arm| arm.told(knob)).collect();
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

    /// Check that a turning point of a knob that varies is read, and that others are refused by what is
    /// wrong.
    #[test]
    fn turning_points() {
        let of = |knob: &str, level: &str, against: &str, least: &str| {
            claim(&format!(
                "knob = \"{knob}\"\nlevel = \"{level}\"\nagainst = \"{against}\"\nat_least = {least}"
            ))
        };
        of("offload.tso", "on", "off", "1.02").unwrap();
        for (knob, level, against, least, why) in [
            ("offload.gro", "on", "off", "1.02", "no arm has a level"),
            ("offload.tso", "no", "off", "1.02", "unknown level `no`"),
            ("offload.tso", "on", "of", "1.02", "unknown level `of`"),
            ("offload.tso", "on", "on", "1.02", "with itself"),
            ("offload.tso", "on", "off", "1", "above 1"),
        ] {
            let told = of(knob, level, against, least).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
        // A knob of a figure only.
        let claimed =
            "knob = \"offload.gro\"\nlevel = \"on\"\nagainst = \"off\"\nat_least = 1.02\n";
        let figure = "[[figure]]\nname = \"y\"\nx = \"tx_shift\"\ny = \"throughput\"\n\
                      vary = { offload.gro = [\"on\", \"off\"] }\n";
        claim(&format!("{claimed}{figure}")).unwrap();
    }
}
