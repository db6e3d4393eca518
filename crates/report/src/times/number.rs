//! Nanoseconds as people read them.

use crate::number::thousands;

/// A time: whole nanoseconds below ten thousand, then `12.3us`, `45.6ms`, `7.8s`.
pub(crate) fn ns(value: f64) -> String {
    if !value.is_finite() {
        return "?".into();
    }
    let sign = if value < 0.0 { "-" } else { "" };
    let size = value.abs();
    let scaled = |unit: f64, name: &str| {
        let scaled = size / unit;
        // Three digits or more.
        let text = if scaled < 99.95 {
            format!("{scaled:.1}")
        } else {
            thousands(scaled.round() as u64)
        };
        format!("{sign}{text}{name}")
    };
    match size {
        s if s < 9.95 => match format!("{s:.1}").strip_suffix(".0") {
            Some("0") => "0".into(),
            Some(whole) => format!("{sign}{whole}"),
            None => format!("{sign}{s:.1}"),
        },
        s if s < 9_999.5 => format!("{sign}{}", thousands(s.round() as u64)),
        s if s < 9_999_500.0 => scaled(1e3, "us"),
        s if s < 9_999_500_000.0 => scaled(1e6, "ms"),
        _ => scaled(1e9, "s"),
    }
}

/// A count per packet: whole where it is, else with as many decimals as tell it
/// from nothing.
pub(crate) fn rounded(value: f64) -> String {
    if !value.is_finite() {
        return "?".into();
    }
    if value.fract() == 0.0 || value >= 1_000.0 {
        return thousands(value.round() as u64);
    }
    if value < 10.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.1}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a time is as long as it takes to read it, with its unit.
    #[test]
    fn times() {
        let cases = [
            (0.0, "0"),
            (0.04, "0"),
            (4.0, "4"),
            (4.25, "4.2"),
            (9.96, "10"),
            (-3.26, "-3.3"),
            (9_999.4, "9,999"),
            (9_999.6, "10.0us"),
            (123_456.0, "123us"),
            (20_000_000.0, "20.0ms"),
            (3.2e10, "32.0s"),
            (f64::NAN, "?"),
        ];
        for (value, text) in cases {
            assert_eq!(ns(value), text, "{value}");
        }
        assert_eq!(rounded(2.0), "2");
        assert_eq!(rounded(0.125), "0.12");
        assert_eq!(rounded(12.34), "12.3");
        assert_eq!(rounded(1_234.5), "1,235");
    }
}
