//! Numbers as people read them.

/// With a comma for each thousand: 1,234,567.
pub(crate) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A total shared by packets: whole where it is, else to one decimal, or to two
/// below ten.
pub(crate) fn per_packet(total: u64, packets: u64) -> String {
    if packets == 0 {
        return "-".into();
    }
    if total.is_multiple_of(packets) {
        return thousands(total / packets);
    }
    let value = total as f64 / packets as f64;
    if value < 10.0 {
        return format!("{value:.2}");
    }
    let tenths = (value * 10.0).round() as u64;
    format!("{}.{}", thousands(tenths / 10), tenths % 10)
}

/// A part of a whole, in percent.
pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 * 100.0 / whole as f64
    }
}

/// Text from a guest or a file, safe for a terminal: no control characters, and
/// no longer than `limit` characters.
pub fn printable(text: &str, limit: usize) -> String {
    let clean = |c: char| if c.is_control() { '?' } else { c };
    if text.chars().count() <= limit {
        return text.chars().map(clean).collect();
    }
    let mut out: String = text
        .chars()
        .take(limit.saturating_sub(1))
        .map(clean)
        .collect();
    out.push('…');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that numbers are grouped, and fractions shown only where there are.
    #[test]
    fn numbers() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(per_packet(843_400, 200), "4,217");
        assert_eq!(per_packet(843_450, 200), "4,217.3");
        assert_eq!(per_packet(1, 200), "0.01");
        assert_eq!(per_packet(1, 0), "-");
    }

    /// Check that nothing of a guest can move the cursor or fill the screen.
    #[test]
    fn guest_text_is_tamed() {
        assert_eq!(printable("a\x1b[2Jb", 80), "a?[2Jb");
        assert_eq!(printable(&"x".repeat(10_000), 5), "xxxx…");
    }
}
