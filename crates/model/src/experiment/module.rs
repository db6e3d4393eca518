//! What a level of the knob `module` names: a file, or a module to be built.

/// Ends of the names of changes to a module's source.
const PATCHES: [&str; 2] = [".patch", ".diff"];
const COCCI: &str = ".cocci";

/// What separates a module's name and changes to its source.
const BETWEEN: char = '+';

/// A module of an arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Module<'a> {
    /// The file of a module.
    File(&'a str),
    /// One to be built of the kernel's source.
    Built {
        /// Its name, like `usbnet`.
        name: &'a str,
        /// Changes to its source, in this order.
        changes: Vec<Changed<'a>>,
    },
}

/// A file with changes to a module's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed<'a> {
    /// A patch.
    Patch(&'a str),
    /// A semantic patch.
    Cocci(&'a str),
}

impl<'a> Changed<'a> {
    /// The file.
    pub fn file(self) -> &'a str {
        match self {
            Changed::Patch(file) | Changed::Cocci(file) => file,
        }
    }
}

impl Module<'_> {
    /// From one file of a level: `usbnet`, or `usbnet+fix.patch` with changes, is to be built.
    /// Anything else is a file: that of a module has a `.` or a `/` in its name.
    pub fn of(text: &str) -> Module<'_> {
        let mut parts = text.split(BETWEEN);
        let name = parts.next().unwrap_or_default();
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if name.is_empty() || !name.chars().all(fits) {
            return Module::File(text);
        }
        let changed = |file| match file {
            file if PATCHES.iter().any(|end| str::ends_with(file, end)) => {
                Some(Changed::Patch(file))
            }
            file if str::ends_with(file, COCCI) => Some(Changed::Cocci(file)),
            _ => None,
        };
        match parts.map(changed).collect() {
            Some(changes) => Module::Built { name, changes },
            None => Module::File(text),
        }
    }

    /// What it is called: the file's name; of one to be built, its own and those of the changes.
    pub fn title(&self) -> String {
        let last = |file: &str| file.rsplit('/').next().unwrap_or(file).to_string();
        match self {
            Module::File(file) => last(file),
            Module::Built { name, changes } => {
                let changes = changes.iter().map(|change| last(change.file()));
                let all: Vec<String> = std::iter::once((*name).into()).chain(changes).collect();
                all.join("+")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what is to be built is told from a file, and what both are called.
    #[test]
    fn files_and_builds() {
        let built = |name, changes: &[Changed<'static>]| Module::Built {
            name,
            changes: changes.to_vec(),
        };
        assert_eq!(Module::of("usbnet"), built("usbnet", &[]));
        let two = [Changed::Patch("sub/a.patch"), Changed::Cocci("b.cocci")];
        let of_two = Module::of("snd-pcm+sub/a.patch+b.cocci");
        assert_eq!(of_two, built("snd-pcm", &two));
        assert_eq!(of_two.title(), "snd-pcm+a.patch+b.cocci");
        for file in ["usbnet.ko", "./usbnet", "a/usbnet+x.patch", "usbnet+x", ""] {
            assert_eq!(Module::of(file), Module::File(file), "{file}");
        }
        // What was built is in a file of the same name, so that arms are called the same.
        assert_eq!(Module::of("/c/k/usbnet+a.patch").title(), "usbnet+a.patch");
    }
}
