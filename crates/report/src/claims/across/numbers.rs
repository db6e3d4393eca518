//! Numbers as claims write them.

use crate::number::thousands;

/// A number that need not be whole, with as many places as it takes, up to three.
pub(super) fn decimal(value: f64) -> String {
    let thousandths = (value.abs() * 1_000.0).round() as u64;
    let sign = if value < 0.0 && thousandths > 0 { "-" } else { "" };
    let (whole, rest) = (thousands(thousandths / 1_000), thousandths % 1_000);
    let rest = format!("{rest:03}");
    match rest.trim_end_matches('0') {
        "" => format!("{sign}{whole}"),
        rest => format!("{sign}{whole}.{rest}"),
    }
}

pub(super) fn signed(value: f64) -> String {
    let sign = if value >= 0.0 { "+" } else { "" };
    let value = if value.abs() < 10.0 {
        (value * 100.0).round() / 100.0
    } else {
        (value * 10.0).round() / 10.0
    };
    format!("{sign}{}", decimal(value))
}

pub(super) fn number(n: i64) -> String {
    let sign = if n < 0 { "-" } else { "" };
    format!("{sign}{}", thousands(n.unsigned_abs()))
}
