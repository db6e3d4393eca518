//! The rate at which frames are offered, and how it is written.

use serde::{Deserialize, Serialize};

/// The offered load of all CPUs together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Offered {
    /// The maximum of the generator.
    Most,
    /// Frames per second.
    Pps(f64),
}

/// A rate as text: `max`, or packets per second.
pub fn rate_word(offered: Offered) -> String {
    match offered {
        Offered::Most => "max".into(),
        Offered::Pps(pps) if pps >= 1e6 => format!("{}M", rounded(pps / 1e6)),
        Offered::Pps(pps) if pps >= 1e3 => format!("{}k", rounded(pps / 1e3)),
        Offered::Pps(pps) => rounded(pps),
    }
}

fn rounded(value: f64) -> String {
    format!("{}", (value * 1e3).round() / 1e3)
}

/// Parse a rate.
///
/// # Errors
/// It is not a number of at least 1.
pub fn rate_of(word: &str) -> Result<Offered, String> {
    if word == "max" {
        return Ok(Offered::Most);
    }
    let (digits, factor) = match word.char_indices().last() {
        Some((at, 'k' | 'K')) => (&word[..at], 1e3),
        Some((at, 'M')) => (&word[..at], 1e6),
        Some((at, 'G')) => (&word[..at], 1e9),
        _ => (word, 1.0),
    };
    let pps = digits.parse::<f64>().ok().map(|n| n * factor);
    match pps {
        Some(pps) if (1.0..=1e12).contains(&pps) => Ok(Offered::Pps(pps)),
        _ => Err(format!(
            "invalid rate `{}`; expected packets per second like 250k or 1.5M, or max",
            word.chars().take(40).collect::<String>()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check rates, from words and back.
    #[test]
    fn rates() {
        for (word, pps) in [("1.5M", 1.5e6), ("250k", 250e3), ("999", 999.0)] {
            assert_eq!(rate_of(word), Ok(Offered::Pps(pps)));
            assert_eq!(rate_word(Offered::Pps(pps)), word);
        }
        assert_eq!(rate_of("max"), Ok(Offered::Most));
        for word in ["0", "-1", "nan", "inf", "", "M", "1e99", "0.5", "1 M", "é"] {
            let error = rate_of(word).unwrap_err();
            assert!(error.contains(&format!("`{word}`")), "{error}");
        }
    }
}
