//! Where a module is in the kernel's source.

use std::path::{Path, PathBuf};

use super::error::ModuleBuildError;

/// Where a module is in the kernel's source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// Its name, as the kernel shows it.
    pub(super) name: String,
    /// Its file, without `.ko`: as the name, but for `-`.
    pub(super) stem: String,
    /// Its folder: `drivers/net/usb`.
    pub(super) folder: PathBuf,
}

/// Where a module's source is, by the place of its file among the kernel's.
pub(super) fn place_of(file: &Path, root: &Path) -> Result<Place, ModuleBuildError> {
    let not_in_tree = || ModuleBuildError::NotInTree { path: file.to_owned() };
    let inner = file.strip_prefix(root).map_err(|_| not_in_tree())?;
    let inner = inner.strip_prefix("kernel").map_err(|_| not_in_tree())?;
    let name = inner.file_name().and_then(|name| name.to_str());
    let stem = name.and_then(|name| Some(name.split_once(".ko")?.0));
    let (Some(stem), Some(folder)) = (stem, inner.parent()) else {
        return Err(not_in_tree());
    };
    Ok(Place { name: stem.replace('-', "_"), stem: stem.to_owned(), folder: folder.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a module's folder is its file's, and that a module which did not come with the kernel has none.
    #[test]
    fn places() {
        let root = Path::new("/k/modules");
        let place = |file: &str| place_of(&root.join(file), root);
        let found = place("kernel/sound/core/snd-pcm.ko.xz").unwrap();
        assert_eq!((found.name.as_str(), found.stem.as_str()), ("snd_pcm", "snd-pcm"));
        assert_eq!(found.folder, Path::new("sound/core"));
        for odd in ["updates/x.ko", "kernel/drivers/x.o"] {
            assert!(matches!(place(odd), Err(ModuleBuildError::NotInTree { .. })), "{odd}");
        }
    }
}
