//! Releases of QEMU: those that were tested, and those that are too old.

/// The oldest in which guests are the same as in all later ones: before, its TCG lacks features of their CPU.
const OLDEST: (u32, u32) = (7, 2);
/// Those in which guests, the plugins and wires were tested.
const TESTED: [(u32, u32); 3] = [OLDEST, (10, 0), (11, 1)];

/// How well a release is supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// It is older than any in which guests are the same.
    TooOld,
    /// It was tested.
    Tested,
    /// It was not, and may do.
    Untested,
}

impl Release {
    /// Of a version such as `7.2.22`. One that can't be read is not tested.
    pub fn from_version(version: &str) -> Release {
        let mut numbers = version.split('.').map_while(|word| word.parse().ok());
        match (numbers.next(), numbers.next()) {
            (Some(major), Some(minor)) if (major, minor) < OLDEST => Release::TooOld,
            (Some(major), Some(minor)) if TESTED.contains(&(major, minor)) => Release::Tested,
            _ => Release::Untested,
        }
    }
}

/// The oldest, as people write it.
pub fn oldest() -> String {
    named(OLDEST)
}

/// Those that were tested, as people write them, with "and" or "or" before the last.
pub fn tested(conjunction: &str) -> String {
    let [others @ .., last] = TESTED.map(named);
    format!("{} {conjunction} {last}", others.join(", "))
}

fn named((major, minor): (u32, u32)) -> String {
    format!("{major}.{minor}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that releases are recognised by their first two numbers.
    #[test]
    fn releases() {
        for (version, release) in [
            ("6.2.0", Release::TooOld),
            ("7.1.91", Release::TooOld),
            ("7.2.22", Release::Tested),
            ("8.2.2", Release::Untested),
            ("10.0.13", Release::Tested),
            ("10.1.0-rc2", Release::Untested),
            ("11.1.3", Release::Tested),
            ("unknown", Release::Untested),
        ] {
            assert_eq!(Release::from_version(version), release, "{version}");
        }
        assert_eq!(tested("or"), "7.2, 10.0 or 11.1");
    }
}
