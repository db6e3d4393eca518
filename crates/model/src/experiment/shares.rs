//! Shares of functions in a path, by every instrument that has them, beside published ones.

use serde::{Deserialize, Serialize};

use super::Experiment;
use super::error::Mistake;
use crate::class::Class;

/// Shares to show.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shares {
    /// One line.
    #[serde(default)]
    pub title: String,
    /// A remark about them, such as the basis of published shares.
    #[serde(default)]
    pub note: String,
    /// The protocol and direction of the packets.
    pub class: Class,
    /// Functions, each with all below it: names from the outermost inwards, separated by `;`.
    pub of: Vec<String>,
    /// The whole that they are shares of: all below this function; none for the class.
    #[serde(default)]
    pub within: Option<String>,
    /// The arms; none for all that have the class.
    #[serde(default)]
    pub arms: Vec<String>,
    /// Published shares.
    #[serde(default)]
    pub published: Vec<PublishedShare>,
}

/// A published share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedShare {
    /// The arm that it belongs to.
    pub arm: String,
    /// One of the functions, as it is written there.
    pub of: String,
    /// The published share, in percent.
    pub percent: f64,
}

/// Check names of functions, from the outermost inwards.
pub(super) fn check_chain(key: &'static str, chain: &str) -> Result<(), (&'static str, String)> {
    match chain.split(';').any(|name| name.trim() != name || name.is_empty()) {
        true => Err((
            key,
            format!(
                "invalid {key} `{}`; expected a function, or several from the outermost inwards, \
                 like usbnet_bh;skb_dequeue",
                chain.chars().take(80).collect::<String>()
            ),
        )),
        false => Ok(()),
    }
}

impl Shares {
    fn check(&self, known: &[&str]) -> Result<(), Mistake> {
        if self.of.is_empty() {
            let why = "of is empty; expected functions, like [\"usbnet_bh\"]";
            return Err(("of", why.to_string()).into());
        }
        for chain in &self.of {
            check_chain("of", chain)?;
        }
        if let Some(within) = &self.within {
            check_chain("within", within)?;
        }
        for arm in &self.arms {
            if !known.contains(&arm.as_str()) {
                return Err(Mistake::unknown("arms", "arm", arm, known));
            }
        }
        for share in &self.published {
            if !known.contains(&share.arm.as_str()) {
                return Err(Mistake::unknown("published", "arm", &share.arm, known));
            }
            if !self.of.contains(&share.of) {
                let of: Vec<&str> = self.of.iter().map(String::as_str).collect();
                return Err(Mistake::unknown("published", "function", &share.of, &of));
            }
            if !(0.0..=100.0).contains(&share.percent) {
                let why = format!("invalid percent `{}`; expected 0 to 100", share.percent);
                return Err(("published", why).into());
            }
        }
        Ok(())
    }
}

impl Experiment {
    pub(super) fn check_shares(&self) -> Result<(), Mistake> {
        let arms = self.arms();
        let known: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
        for (n, shares) in self.shares.iter().enumerate() {
            (shares.check(&known)).map_err(Mistake::within("shares", n))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that shares of functions and arms that are not there are refused, with what is.
    #[test]
    fn only_what_is_there() {
        let parse = |keys: &str| {
            let text = format!(
                "name = \"x\"\n[[arm]]\nname = \"a\"\n[[shares]]\nclass = \"udp rx\"\n{keys}\n"
            );
            Experiment::parse(&text).map(drop).map_err(|e| e.to_string())
        };
        parse("of = [\"a;b\"]\npublished = [{ arm = \"a\", of = \"a;b\", percent = 1 }]").unwrap();
        for (keys, why) in [
            ("of = []", "of is empty"),
            ("of = [\"a;\"]", "invalid of `a;`"),
            ("of = [\"a\"]\nwithin = \"\"", "invalid within"),
            ("of = [\"a\"]\narms = [\"b\"]", "unknown arm `b`"),
            (
                "of = [\"a\"]\npublished = [{ arm = \"a\", of = \"b\", percent = 1 }]",
                "unknown function `b`",
            ),
            (
                "of = [\"a\"]\npublished = [{ arm = \"a\", of = \"a\", percent = 101 }]",
                "invalid percent `101`",
            ),
        ] {
            let error = parse(keys).unwrap_err();
            assert!(error.contains(why), "{keys}: {error}");
        }
    }
}
