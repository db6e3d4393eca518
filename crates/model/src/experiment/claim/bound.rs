//! Bounds of a ratio, fixed before it is measured.

use super::Claim;

/// A range that the ratio of two costs is claimed to be in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// The smallest ratio in the range.
    pub least: f64,
    /// The largest ratio in the range.
    pub most: f64,
}

impl Bound {
    /// Whether a ratio is in it.
    pub fn has(self, ratio: f64) -> bool {
        (self.least..=self.most).contains(&ratio)
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.least > 0.0, self.most.is_finite()) {
            (true, true) => write!(f, "{} to {} times", self.least, self.most),
            (true, false) => write!(f, "at least {} times", self.least),
            _ => write!(f, "at most {} times", self.most),
        }
    }
}

impl Claim {
    /// The claimed ratio of two arms; none if nothing is claimed.
    pub fn bound(&self) -> Option<Bound> {
        let (at_least, at_most, percent) = match self {
            Claim::Compare { at_least, at_most, within_percent, .. } => {
                (*at_least, *at_most, *within_percent)
            }
            Claim::Unchanged { within_percent, .. } => (None, None, *within_percent),
            Claim::TurningPoint { at_least, at_most, .. } => (*at_least, *at_most, None),
            _ => (None, None, None),
        };
        if let Some(percent) = percent {
            // In steps of a millionth: 1.02, not 1.0200000000000002.
            let rounded = |ratio: f64| (ratio * 1e6).round() / 1e6;
            return Some(Bound {
                least: rounded(1.0 - percent / 100.0),
                most: rounded(1.0 + percent / 100.0),
            });
        }
        (at_least.is_some() || at_most.is_some()).then(|| Bound {
            least: at_least.unwrap_or(0.0),
            most: at_most.unwrap_or(f64::INFINITY),
        })
    }

    /// Check that bounds are ratios, and that nothing else limits the same ratio.
    pub(super) fn check_bound(&self) -> Result<(), (&'static str, String)> {
        let (is, at_least, at_most, within) = match self {
            Claim::Compare { is, at_least, at_most, within_percent, .. } => {
                (*is, *at_least, *at_most, *within_percent)
            }
            Claim::Unchanged { within_percent, .. } => (None, None, None, *within_percent),
            _ => return Ok(()),
        };
        for (key, ratio) in [("at_least", at_least), ("at_most", at_most)] {
            if let Some(ratio) = ratio.filter(|r| !(r.is_finite() && *r > 0.0)) {
                let why = format!("invalid {key} `{ratio}`; expected a ratio above 0, like 1.5");
                return Err((key, why));
            }
        }
        if let Some(percent) = within.filter(|p| !(0.0..=100.0).contains(p)) {
            let why = format!("invalid within_percent `{percent}`; expected 0 to 100");
            return Err(("within_percent", why));
        }
        let bounds = at_least.is_some() || at_most.is_some();
        let said = [is.is_some(), bounds, within.is_some()];
        if said.into_iter().filter(|said| *said).count() > 1 {
            let why = "a claim says one of: is, at_least with or without at_most, within_percent";
            return Err(("is", why.into()));
        }
        if let (Some(least), Some(most)) = (at_least, at_most)
            && least > most
        {
            let why = format!("at_least `{least}` is above at_most `{most}`");
            return Err(("at_least", why));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::experiment::Experiment;

    fn claim(rest: &str) -> Result<Experiment, String> {
        let text = format!(
            "name = \"x\"\n[vary]\nproto = [\"udp\", \"tcp\"]\n[[claim]]\nkind = \"compare\"\nsays = \"x\"\n\
             classes = [\"udp tx\"]\narm = \"tcp\"\nagainst = \"udp\"\n{rest}\n"
        );
        Experiment::parse(&text).map_err(|error| error.to_string())
    }

    /// Check that bounds are read, in words and as a range, and that other texts are refused.
    #[test]
    fn bounds() {
        for (rest, words, inside, outside) in [
            ("at_least = 1.5", "at least 1.5 times", 1.5, 1.49),
            ("at_most = 0.7", "at most 0.7 times", 0.7, 0.71),
            ("within_percent = 2", "0.98 to 1.02 times", 0.98, 1.021),
            ("at_least = 1\nat_most = 2", "1 to 2 times", 2.0, 2.1),
        ] {
            let bound = claim(rest).unwrap().claims[0].bound().unwrap();
            assert_eq!(bound.to_string(), words);
            assert!(bound.has(inside) && !bound.has(outside), "{rest}");
        }
        assert_eq!(claim("is = \"less\"").unwrap().claims[0].bound(), None);
        for (rest, why) in [
            ("at_least = 0", "above 0"),
            ("at_most = -1", "above 0"),
            ("within_percent = 101", "0 to 100"),
            ("is = \"more\"\nat_least = 2", "says one of"),
            ("within_percent = 1\nat_most = 2", "says one of"),
            ("at_least = 3\nat_most = 2", "above at_most"),
        ] {
            let message = claim(rest).unwrap_err();
            assert!(message.contains(why), "{rest}: {message}");
        }
    }
}
