//! Versions of packages, and a package's dependencies.

use std::cmp::Ordering;

/// Compare two versions as dpkg does (deb-version(7)): epochs, then the upstream version, up to the last hyphen, then
/// the revision.
pub fn compare(a: &str, b: &str) -> Ordering {
    let ((epoch_a, upstream_a, revision_a), (epoch_b, upstream_b, revision_b)) =
        (parts(a), parts(b));
    compare_part(epoch_a, epoch_b)
        .then_with(|| compare_part(upstream_a, upstream_b))
        .then_with(|| compare_part(revision_a, revision_b))
}

/// A version's epoch, upstream version and revision, which may be empty.
fn parts(version: &str) -> (&str, &str, &str) {
    let (epoch, rest) = version.split_once(':').unwrap_or(("", version));
    let (upstream, revision) = rest.rsplit_once('-').unwrap_or((rest, ""));
    (epoch, upstream, revision)
}

/// Compare non-digits and numbers in turns.
fn compare_part(mut a: &str, mut b: &str) -> Ordering {
    while !(a.is_empty() && b.is_empty()) {
        let (text_a, text_b) = (
            split(&mut a, |byte| !byte.is_ascii_digit()),
            split(&mut b, |byte| !byte.is_ascii_digit()),
        );
        let length = text_a.len().max(text_b.len());
        let order = |text: &str, at: usize| text.as_bytes().get(at).map_or(0, |byte| weight(*byte));
        let differ = (0..length)
            .map(|at| order(text_a, at).cmp(&order(text_b, at)))
            .find(|order| order.is_ne());
        if let Some(differ) = differ {
            return differ;
        }
        let number = |rest: &mut &str| {
            let digits = split(rest, |byte| byte.is_ascii_digit());
            digits.trim_start_matches('0').to_owned()
        };
        let (number_a, number_b) = (number(&mut a), number(&mut b));
        let by_value = (number_a.len().cmp(&number_b.len())).then_with(|| number_a.cmp(&number_b));
        if by_value.is_ne() {
            return by_value;
        }
    }
    Ordering::Equal
}

/// Cut off the prefix that consists of such bytes.
fn split<'a>(text: &mut &'a str, is_of: impl Fn(u8) -> bool) -> &'a str {
    let end = text.bytes().position(|byte| !is_of(byte));
    let (head, rest) = text.split_at(end.unwrap_or(text.len()));
    *text = rest;
    head
}

/// A tilde sorts before the end, letters before other characters.
fn weight(byte: u8) -> i32 {
    match byte {
        b'~' => -1,
        byte if byte.is_ascii_alphabetic() => i32::from(byte),
        byte => i32::from(byte) + 256,
    }
}

/// A package that another one depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    /// The package's name.
    pub package: String,
    /// Which of its versions; any, if none.
    pub bound: Option<Bound>,
}

/// Versions that a dependency allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    relation: &'static str,
    version: String,
}

/// The relations, each before those that it begins with; the last two are old names of `<=` and `>=`.
const RELATIONS: [&str; 7] = ["<<", "<=", "=", ">=", ">>", "<", ">"];

impl Dependency {
    /// Any version of a package.
    pub fn on(package: &str) -> Self {
        Self { package: package.to_owned(), bound: None }
    }

    /// This version of the package, and no other.
    #[must_use]
    pub fn exactly(self, version: &str) -> Self {
        let bound = Bound { relation: "=", version: version.to_owned() };
        Self { bound: Some(bound), ..self }
    }

    /// Whether a version will do.
    pub fn allows(&self, version: &str) -> bool {
        let Some(Bound { relation, version: limit }) = &self.bound else {
            return true;
        };
        let order = compare(version, limit);
        match *relation {
            "<<" => order.is_lt(),
            "<" | "<=" => order.is_le(),
            "=" => order.is_eq(),
            ">>" => order.is_gt(),
            _ => order.is_ge(),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (name, bound) = match text.split_once('(') {
            Some((name, bound)) => (name, Some(bound.split_once(')')?.0.trim())),
            None => (text, None),
        };
        // `python3:any` accepts any architecture.
        let package = name.split(':').next()?.trim();
        let bound = match bound {
            Some(bound) => {
                let relation = RELATIONS.iter().find(|relation| bound.starts_with(**relation))?;
                Some(Bound { relation, version: bound.get(relation.len()..)?.trim().to_owned() })
            }
            None => None,
        };
        (!package.is_empty()).then(|| Self { package: package.to_owned(), bound })
    }
}

impl std::fmt::Display for Dependency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.bound {
            None => write!(f, "{}", self.package),
            Some(bound) => write!(f, "{} ({} {})", self.package, bound.relation, bound.version),
        }
    }
}

/// The value of a field such as `Depends`: all are needed, each by one of its alternatives.
pub fn dependencies(field: &str) -> Vec<Vec<Dependency>> {
    let all = field.split(',').map(|alternatives| {
        let alternatives = alternatives.split('|');
        alternatives.filter_map(|one| Dependency::parse(one.trim())).collect()
    });
    all.filter(|alternatives: &Vec<_>| !alternatives.is_empty()).collect()
}

/// How near a version is to another: the longer their numbers are the same the nearer, then the smaller
/// the first difference, then rather a newer one than an older one. What is smaller is nearer.
pub fn distance(version: &str, wanted: &str) -> impl Ord + use<> {
    let numbers = |version: &str| -> Vec<u64> {
        let numbers = version.split(|byte: char| !byte.is_ascii_digit());
        let numbers = numbers.filter(|digits| !digits.is_empty());
        numbers.map(|digits| digits.parse().unwrap_or(u64::MAX)).collect()
    };
    let (found, wanted_numbers) = (numbers(version), numbers(wanted));
    let at = |numbers: &[u64], n: usize| numbers.get(n).copied().unwrap_or(0);
    let length = found.len().max(wanted_numbers.len());
    let alike = (0..length).take_while(|n| at(&found, *n) == at(&wanted_numbers, *n)).count();
    let differ = at(&found, alike).abs_diff(at(&wanted_numbers, alike));
    (
        version != wanted,
        std::cmp::Reverse(alike.min(length)),
        differ,
        compare(version, wanted).is_lt(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that versions are in dpkg's order.
    #[test]
    fn order_of_versions() {
        let sorted = [
            "0~rc1",
            "0",
            "1.0~~",
            "1.0~",
            "1.0",
            "1.0-1",
            "1.0a",
            "1.0+b",
            "1.9",
            "1.10",
            "6.1.192-1",
            "6.1.192-2",
            "6.1.192-3",
            "6.1.192-10",
            "6.12.117-1~bpo12+1",
            "6.12.117-1~deb12u1",
            "6.12.117-1",
            "12.2.0-14",
            "12.2.0-14+deb12u1",
            "1:0.1",
        ];
        for (a, first) in sorted.iter().enumerate() {
            for (b, second) in sorted.iter().enumerate() {
                assert_eq!(compare(first, second), a.cmp(&b), "{first} {second}");
            }
        }
        for (a, b) in [("1.0", "1.00"), ("0:1", "1"), ("1-0", "1"), ("01", "1")] {
            assert_eq!(compare(a, b), Ordering::Equal, "{a} {b}");
        }
    }

    /// Check which versions each relation allows, and that names come without qualifiers of architecture.
    #[test]
    fn relations() {
        let field = "linux-headers-6.1.0-56-common (= 6.1.192-2), linux-kbuild-6.1 (>= 6.1.192-2), a | b:any \
                     (<< 2) [amd64], c (<= 2), d (>> 2), e (> 2), f (< 2), g (!! 2)";
        let all = dependencies(field);
        let allowed = |n: usize, last: usize| -> Vec<&str> {
            let version = ["1", "2", "3"];
            let asked = &all[n][last];
            version.into_iter().filter(|version| asked.allows(version)).collect()
        };
        assert_eq!(all[0][0].to_string(), "linux-headers-6.1.0-56-common (= 6.1.192-2)");
        let kbuild = &all[1][0];
        for (version, good) in [("6.1.192-3", true), ("6.1.192-2", true), ("6.1.176-1", false)] {
            assert_eq!(kbuild.allows(version), good, "{version}");
        }
        assert_eq!(all[2][1].package, "b");
        assert_eq!((allowed(2, 0).len(), allowed(2, 1)), (3, vec!["1"]));
        assert_eq!(allowed(3, 0), ["1", "2"]);
        assert_eq!(allowed(4, 0), ["3"]);
        assert_eq!(allowed(5, 0), ["2", "3"]);
        assert_eq!(allowed(6, 0), ["1", "2"]);
        assert_eq!(all.len(), 7);
    }

    /// Check which of several versions is the nearest.
    #[test]
    fn nearest_version() {
        for (wanted, there, nearest) in [
            ("6.1.192-2", &["6.1.192-3", "6.1.192-2", "6.1.192-1"][..], "6.1.192-2"),
            ("6.1.192-2", &["6.1.192-3", "6.1.192-1", "6.1.190-1"], "6.1.192-3"),
            ("6.1.192-2", &["6.1.210-1", "6.1.192-1"], "6.1.192-1"),
            ("6.1.192-2", &["6.1.199-1", "6.1.190-1", "6.1.9-1"], "6.1.190-1"),
            ("6.1.192-2", &["6.12.117-1", "6.1.300-1"], "6.1.300-1"),
            ("12.2.0-14+deb12u1", &["12.2.0-14", "12.2.0-14+deb12u2"], "12.2.0-14+deb12u2"),
            ("1.0", &["1.0+b", "1.0"], "1.0"),
        ] {
            let found = there.iter().min_by_key(|version| distance(version, wanted));
            assert_eq!(found, Some(&nearest), "{wanted}");
        }
    }
}
