//! Durations and percentages, as people write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration: a number with a unit ("500ms", "10s", "2m", "12h").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Duration);

/// The shortest and the longest duration that is accepted.
const BOUNDS_S: std::ops::RangeInclusive<f64> = 0.01..=604_800.0;

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Time, String> {
        let wrong = || {
            let text: String = text.chars().filter(|c| !c.is_control()).take(40).collect();
            format!("invalid duration `{text}`; expected like 10s or 500ms")
        };
        let at = text.find(|c: char| c.is_ascii_alphabetic());
        let (number, unit) = text.split_at(at.unwrap_or(text.len()));
        let factor = match unit {
            "s" => 1.0,
            "ms" => 1e-3,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            _ => return Err(wrong()),
        };
        let seconds = number.trim().parse::<f64>().map_err(|_| wrong())? * factor;
        match BOUNDS_S.contains(&seconds) {
            true => Ok(Time(Duration::from_secs_f64(seconds))),
            false => Err(format!("invalid duration `{text}`; expected 10ms to 168h")),
        }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0.as_secs_f64() * 1e3)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A percentage ("5%"), or the same as a number up to 1 ("0.05").
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Share(pub f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let (number, factor) = match text.strip_suffix('%') {
            Some(number) => (number, 0.01),
            None => (text, 1.0),
        };
        let share = number.trim().parse::<f64>().ok().map(|n| n * factor);
        let share = share.filter(|s| *s > 0.0 && *s <= 1.0).map(Share);
        share.ok_or_else(|| {
            let text: String = text.chars().filter(|c| !c.is_control()).take(40).collect();
            format!("invalid percentage `{text}`; expected like 5% or 0.05")
        })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Share, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that times and shares are read with their units, that nothing else is accepted, and
    /// that they round-trip.
    #[test]
    fn units() {
        let time = |text: &str| text.parse::<Time>();
        assert_eq!(time("10s"), Ok(Time(Duration::from_secs(10))));
        assert_eq!(time("1.5s"), Ok(Time(Duration::from_millis(1500))));
        assert_eq!(time("500ms"), Ok(Time(Duration::from_millis(500))));
        assert_eq!(time("2m"), Ok(Time(Duration::from_secs(120))));
        assert_eq!(time(&time("1.5s").unwrap().to_string()), time("1.5s"));
        for wrong in ["", "s", "10", "1.5", "10x", "-1", "0", "nan", "inf", "1e9h"] {
            // An example, or the bounds.
            assert!(time(wrong).unwrap_err().contains("10"), "{wrong}");
        }
        assert_eq!(time("5").unwrap_err(), "invalid duration `5`; expected like 10s or 500ms");
        let share = |text: &str| text.parse::<Share>().map(|share| share.0);
        assert_eq!(share("5%"), Ok(0.05));
        assert_eq!(share("0.2"), Ok(0.2));
        assert_eq!(share("100%"), Ok(1.0));
        for wrong in ["", "%", "0", "101%", "2", "-5%"] {
            assert!(share(wrong).unwrap_err().contains("5%"), "{wrong}");
        }
    }
}
