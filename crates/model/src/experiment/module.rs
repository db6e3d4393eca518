//! The levels of the knob `module`: a file, or a module to be built.

/// Ends of the names of patches.
const PATCHES: [&str; 2] = [".patch", ".diff"];

/// The separator between a module's name and changes to its source.
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
        /// Patches of its source, in this order.
        patches: Vec<&'a str>,
    },
}

impl Module<'_> {
    /// From one file of a level: `usbnet`, or `usbnet+fix.patch` with patches, is to be built. Anything else is a file:
    /// a module's file has a `.` or a `/` in its name.
    pub fn parse(text: &str) -> Module<'_> {
        let mut parts = text.split(BETWEEN);
        let name = parts.next().unwrap_or_default();
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if name.is_empty() || !name.chars().all(fits) {
            return Module::File(text);
        }
        let patches: Vec<&str> = parts.collect();
        let is_patch = |file: &&str| PATCHES.iter().any(|end| file.ends_with(end));
        match patches.iter().all(is_patch) {
            true => Module::Built { name, patches },
            false => Module::File(text),
        }
    }

    /// The file's name; for a module to be built, the name of the resulting file, after the module and the patches.
    pub fn title(&self) -> String {
        let last = |file: &str| file.rsplit('/').next().unwrap_or(file).to_string();
        match self {
            Module::File(file) => last(file),
            Module::Built { name, patches } => {
                let patches = patches.iter().map(|file| last(file));
                let all: Vec<String> = std::iter::once((*name).into()).chain(patches).collect();
                all.join("+") + ".ko"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that modules to be built are distinguished from files, and the names of both.
    #[test]
    fn files_and_builds() {
        let built =
            |name, patches: &[&'static str]| Module::Built { name, patches: patches.to_vec() };
        assert_eq!(Module::parse("usbnet"), built("usbnet", &[]));
        let of_two = Module::parse("snd-pcm+sub/a.patch+b.diff");
        assert_eq!(of_two, built("snd-pcm", &["sub/a.patch", "b.diff"]));
        assert_eq!(of_two.title(), "snd-pcm+a.patch+b.diff.ko");
        for file in ["usbnet.ko", "./usbnet", "a/usbnet+x.patch", "usbnet+x.cocci", ""] {
            assert_eq!(Module::parse(file), Module::File(file), "{file}");
        }
        // The result is in a file of the same name, so that arms keep their names.
        let file = "/c/k/usbnet+a.patch.ko";
        assert_eq!(Module::parse(file), Module::File(file));
        assert_eq!(Module::parse(file).title(), Module::parse("usbnet+a.patch").title());
    }
}
