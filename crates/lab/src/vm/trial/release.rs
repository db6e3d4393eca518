//! Releases of QEMU: those that were tested, and those that are too old.

/// The oldest in which guests are the same as in all later ones: before, its TCG lacks features of their CPU.
const OLDEST: (u32, u32) = (7, 2);
/// Those in which guests, the plugins and wires were tested.
const TESTED: [(u32, u32); 2] = [OLDEST, (10, 0)];

/// What is known of a release.
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
    pub fn of(version: &str) -> Release {
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

/// Those that were tested, as people write them, joined by "and" or "or".
pub fn tested(conjunction: &str) -> String {
    TESTED.map(named).join(&format!(" {conjunction} "))
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
            ("unknown", Release::Untested),
        ] {
            assert_eq!(Release::of(version), release, "{version}");
        }
        assert_eq!(tested("or"), "7.2 or 10.0");
    }
}
