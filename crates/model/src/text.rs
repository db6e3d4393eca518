//! Numbers in sentences, and patterns of names.

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
    if n == 1 {
        return noun.into();
    }
    let before = |stem: &str| !stem.ends_with(['a', 'e', 'o', 'u']);
    if let Some(stem) = noun.strip_suffix('y').filter(|stem| before(stem)) {
        return format!("{stem}ies");
    }
    let ending = match noun {
        noun if noun.ends_with('s') || noun.ends_with('x') || noun.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{noun}{ending}")
}

/// Nanoseconds of "50us", "3.3ms", "800ns" or "1s", which are not negative.
pub fn nanoseconds(text: &str) -> Option<f64> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic())?);
    let factor = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    let ns = number.trim().parse::<f64>().ok()? * factor;
    (ns >= 0.0 && ns.is_finite()).then_some(ns)
}

/// Whether a name matches a pattern with `*`, for any letters, and `?`, for one.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    // Where the last star was, and how much of the name it stood for: it never helps to go back to
    // one before.
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(letter) if *letter == name[n] || *letter == b'?' => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    n = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|letter| *letter == b'*')
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

    /// Check globs: letters, stars anywhere, and no time without bound.
    #[test]
    fn globs() {
        for (pattern, name, fits) in [
            ("*", "", true),
            ("block_*", "block_rq_issue", true),
            ("*issue", "block_rq_issue", true),
            ("b*_*e", "block_rq_issue", true),
            ("b*_*x", "block_rq_issue", false),
            ("block_rq_issu?", "block_rq_issue", true),
            ("block_rq_issue?", "block_rq_issue", false),
            ("block", "block_rq", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
        let many = "*a".repeat(200);
        assert!(!matches(&many, &format!("{}b", "a".repeat(400))));
    }
}
