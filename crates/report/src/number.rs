//! Numbers as people read them.

pub(crate) use netplumb_model::text::{counted, plural, thousands};

/// A total shared by packets: without decimals if it is whole, else with one, or two
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
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// Whether a character does more than print itself: a control character, including the
/// upper half (C1, which some terminals obey), a bidirectional control, an invisible
/// character, or a line break.
pub fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

/// Text of several lines, safe for a terminal: only its line breaks are kept.
pub fn printable_lines(text: &str) -> String {
    let clean = |c: char| if c != '\n' && is_active(c) { '?' } else { c };
    text.chars().map(clean).collect()
}

/// JSON that is safe for a terminal: active characters in its strings are escaped, so
/// that nothing is lost.
pub(crate) fn json_text(json: String) -> String {
    let active = |c: char| c != '\n' && is_active(c);
    if !json.contains(active) {
        return json;
    }
    let mut out = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        if active(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Text from a guest or a file, safe for a terminal: on one line, without active
/// characters, and no longer than `limit` characters.
pub fn printable(text: &str, limit: usize) -> String {
    let clean = |c: char| if is_active(c) { '?' } else { c };
    if text.chars().count() <= limit {
        return text.chars().map(clean).collect();
    }
    let mut out: String = text.chars().take(limit.saturating_sub(1)).map(clean).collect();
    out.push('…');
    out
}

/// A rate, in the unit that leaves it one to three digits before the point.
pub(crate) fn rate(pps: f64) -> String {
    match pps {
        p if p >= 1e6 => format!("{:.2} M", p / 1e6),
        p if p >= 1e3 => format!("{:.1} k", p / 1e3),
        p => format!("{p:.0}"),
    }
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
        assert_eq!(
            printable("\u{9b}1m\u{9d}0;t\u{202e}x\u{2066}y\u{200f}\u{feff}é", 80),
            "?1m?0;t?x?y??é"
        );
        assert_eq!(printable_lines("a\nb\r\x1b[A"), "a\nb??[A");
    }

    /// Check that escaped JSON has the same content, without active characters.
    #[test]
    fn json_is_tamed_and_whole() {
        let names = ["a\u{9b}2J", "\x1b]0;t\x07", "\u{202e}gnp\u{e0001}", "é\n"];
        let tame = json_text(serde_json::to_string_pretty(&names).unwrap());
        assert!(!tame.contains(|c: char| c != '\n' && is_active(c)), "{tame}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&tame).unwrap(), names);
    }
}
