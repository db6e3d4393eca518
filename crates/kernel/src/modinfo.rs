//! A module's `.modinfo` section: NUL-separated `key=value` strings with its dependencies and
//! aliases.

use std::collections::BTreeSet;

use object::{Object, ObjectSection};

/// The information of a module that is needed for loading it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModuleInfo {
    /// Its name (`name=`), with `_` for every `-`; absent in modules of before Linux 4.16.
    pub name: Option<String>,
    /// The modules it cannot be loaded without (`depends=`).
    pub depends: Vec<String>,
    /// The modules or aliases to load before it if possible (`softdep=pre:`).
    pub soft_before: Vec<String>,
    /// Its other names (`alias=`).
    pub aliases: Vec<String>,
    /// The kernel it was built for (`vermagic=`): the release, then flags.
    pub vermagic: Option<String>,
    /// The names of its options (`parmtype=`).
    pub options: Vec<String>,
}

/// Reads the section out of a module's ELF bytes; the error describes what is wrong with them.
pub(crate) fn read(elf: &[u8]) -> Result<ModuleInfo, String> {
    let file = object::File::parse(elf).map_err(|e| format!("it is not a valid ELF file ({e})"))?;
    let section = file.section_by_name(".modinfo").ok_or("it has no .modinfo section")?;
    let data = section.data().map_err(|e| format!("its .modinfo section is damaged ({e})"))?;
    Ok(parse(data))
}

fn parse(section: &[u8]) -> ModuleInfo {
    let mut info = ModuleInfo::default();
    for (key, value) in pairs(section) {
        match key {
            "name" => info.name = Some(value.replace('-', "_")),
            "depends" => info
                .depends
                .extend(value.split(',').filter(|name| !name.is_empty()).map(str::to_owned)),
            "softdep" => info.soft_before.extend(soft_before(value)),
            "alias" => info.aliases.push(value.to_owned()),
            "parmtype" => {
                let name = value.split_once(':').map_or(value, |(name, _)| name);
                info.options.push(name.to_owned());
            }
            "vermagic" => info.vermagic = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    info
}

/// The names after `pre:` in a `softdep`, up to `post:`.
fn soft_before(value: &str) -> impl Iterator<Item = String> {
    let mut before = false;
    value.split_whitespace().filter_map(move |word| match word {
        "pre:" => {
            before = true;
            None
        }
        "post:" => {
            before = false;
            None
        }
        name => before.then(|| name.to_owned()),
    })
}

/// The aliases of built-in modules, from `modules.builtin.modinfo`, whose keys begin with the module's name and a dot.
pub(crate) fn builtin_aliases(list: &[u8]) -> BTreeSet<String> {
    pairs(list)
        .filter(|(key, _)| key.ends_with(".alias"))
        .map(|(_, value)| value.to_owned())
        .collect()
}

fn pairs(data: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    data.split(|&byte| byte == 0)
        .filter_map(|entry| std::str::from_utf8(entry).ok())
        .filter_map(|entry| entry.split_once('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that repeated keys add up and that `post:` is left out.
    #[test]
    fn parses_entries() {
        let info = parse(
            b"license=GPL\0name=a-b\0depends=usbcore,mii\0softdep=pre: crc32c sha256 post: late\0\
              alias=one\0alias=two\0vermagic=6.1.0 SMP \0softdep=pre: more\0\
              parmtype=TxIntDelay:array of int\0parm=TxIntDelay:Transmit Interrupt Delay\0",
        );
        assert_eq!(info.options, ["TxIntDelay"]);
        assert_eq!(info.name.as_deref(), Some("a_b"));
        assert_eq!(info.depends, ["usbcore", "mii"]);
        assert_eq!(info.soft_before, ["crc32c", "sha256", "more"]);
        assert_eq!(info.aliases, ["one", "two"]);
        assert_eq!(info.vermagic.as_deref(), Some("6.1.0 SMP"));
    }

    /// Check that an empty list of dependencies is empty, without an empty name in it.
    #[test]
    fn empty_depends() {
        assert_eq!(parse(b"depends=\0"), ModuleInfo::default());
    }

    /// Check that built-in aliases are distinguished from a built-in module's other entries.
    #[test]
    fn builtin() {
        let aliases = builtin_aliases(b"crc32c.alias=crc32c\0crc32c.license=GPL\0");
        assert_eq!(aliases.into_iter().collect::<Vec<_>>(), ["crc32c"]);
    }

    /// Check that bytes other than a module's are refused with the reason.
    #[test]
    fn not_elf() {
        assert!(read(b"garbage").unwrap_err().contains("ELF"));
    }
}
