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
        let text =
            if scaled < 99.95 { format!("{scaled:.1}") } else { thousands(scaled.round() as u64) };
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

/// Two times, and one unit for both: "1,002 to 1,181 ns", "5.48us to 208us". The larger one
/// chooses it.
pub(crate) fn ns_range(from: f64, to: f64) -> String {
    if !from.is_finite() || !to.is_finite() {
        return format!("{} to {}", ns(from), ns(to));
    }
    let (unit, name) = match from.abs().max(to.abs()) {
        s if s < 9_999.5 => return format!("{} to {} ns", ns(from), ns(to)),
        s if s < 9_999_500.0 => (1e3, "us"),
        s if s < 9_999_500_000.0 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    // Three digits, so that a small end is not lost beside a large one.
    let scaled = |value: f64| {
        let size = value.abs() / unit;
        let sign = if value < 0.0 { "-" } else { "" };
        let text = match size {
            0.0 => "0".into(),
            s if s >= 99.95 => thousands(s.round() as u64),
            s if s >= 9.995 => format!("{s:.1}"),
            s if s >= 0.9995 => format!("{s:.2}"),
            s if s >= 0.0995 => format!("{s:.3}"),
            s => format!("{s:.4}"),
        };
        format!("{sign}{text}")
    };
    format!("{}{name} to {}{name}", scaled(from), scaled(to))
}

/// A count per packet: without decimals if it is whole, else with as many as
/// distinguish it from 0.
pub(crate) fn rounded(value: f64) -> String {
    if !value.is_finite() {
        return "?".into();
    }
    if value.fract() == 0.0 || value >= 1_000.0 {
        return thousands(value.round() as u64);
    }
    if value < 10.0 { format!("{value:.2}") } else { format!("{value:.1}") }
}

/// A share of a whole.
pub(crate) fn share(part: f64, whole: f64) -> String {
    match whole > 0.0 {
        true => format!("{:.1}%", part * 100.0 / whole),
        false => "-".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that both ends of a range have one unit.
    #[test]
    fn ranges() {
        for (from, to, text) in [
            (1_002.0, 1_181.0, "1,002 to 1,181 ns"),
            (5_481.0, 208_000.0, "5.48us to 208us"),
            (208_000.0, 5_481.0, "208us to 5.48us"),
            (12_300.0, 15_640.0, "12.3us to 15.6us"),
            (40.0, 3_200_000.0, "0.0400us to 3,200us"),
            (0.0, 20_000_000.0, "0ms to 20.0ms"),
            (-3.0, 9.0, "-3 to 9 ns"),
        ] {
            assert_eq!(ns_range(from, to), text);
        }
        assert_eq!(ns_range(f64::NAN, 1.0), "? to 1");
    }

    /// Check that a time has few digits, and its unit.
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
