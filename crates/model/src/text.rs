//! Numbers in sentences.

/// With a comma for each thousand: 1,234,567.
pub fn thousands(n: u64) -> String {
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

/// A number with its noun: "1 block", "1,200 blocks", "3 classes". The noun is given in the
/// singular.
pub fn counted(n: usize, noun: &str) -> String {
    format!("{} {}", thousands(n as u64), plural(n, noun))
}

/// The noun for a number.
pub fn plural(n: usize, noun: &str) -> String {
    let ending = match noun {
        _ if n == 1 => "",
        noun if noun.ends_with('s') || noun.ends_with('x') || noun.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{noun}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check singular and plural.
    #[test]
    fn one_or_several() {
        for (n, noun, text) in [
            (0, "block", "0 blocks"),
            (1, "run", "1 run"),
            (2, "class", "2 classes"),
            (1_200, "packet", "1,200 packets"),
            (3, "CPU", "3 CPUs"),
            (1, "class", "1 class"),
        ] {
            assert_eq!(counted(n, noun), text);
        }
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(thousands(999), "999");
    }
}
