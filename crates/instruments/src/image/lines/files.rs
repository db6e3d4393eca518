//! Paths of source files, as debug information has them.

use std::collections::HashMap;

use gimli::{Dwarf, LineProgramHeader, Unit};

use super::super::dwarf::Slice;

/// PATH_MAX of Linux: no file has a longer name.
const MAX_PATH_BYTES: usize = 4096;

/// Paths, each once.
#[derive(Default)]
pub(super) struct Files {
    pub(super) names: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Files {
    fn number(&mut self, path: String) -> u32 {
        if let Some(number) = self.numbers.get(&path) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.names.push(path.clone());
        self.numbers.insert(path, number);
        number
    }
}

/// The overall numbers of a unit's files.
#[derive(Default)]
pub(super) struct UnitFiles {
    known: HashMap<u64, Option<u32>>,
}

impl UnitFiles {
    pub(super) fn number(
        &mut self,
        dwarf: &Dwarf<Slice<'_>>,
        unit: &Unit<Slice<'_>>,
        header: &LineProgramHeader<Slice<'_>>,
        file: u64,
        files: &mut Files,
    ) -> Option<u32> {
        *self.known.entry(file).or_insert_with(|| {
            let path = path(dwarf, unit, header, file)?;
            Some(files.number(path))
        })
    }
}

/// The path of a unit's file: its name, below its folder, below the compiler's folder.
fn path(
    dwarf: &Dwarf<Slice<'_>>,
    unit: &Unit<Slice<'_>>,
    header: &LineProgramHeader<Slice<'_>>,
    file: u64,
) -> Option<String> {
    let file = header.file(file)?;
    let mut path = String::new();
    if let Some(folder) = &unit.comp_dir {
        push(&mut path, &folder.to_string_lossy());
    }
    // The first is the compiler's folder again.
    if file.directory_index() != 0
        && let Some(folder) = file.directory(header)
    {
        push(&mut path, &dwarf.attr_string(unit, folder).ok()?.to_string_lossy());
    }
    let name = dwarf.attr_string(unit, file.path_name()).ok()?;
    push(&mut path, &name.to_string_lossy());
    (!path.is_empty() && path.len() <= MAX_PATH_BYTES).then_some(path)
}

/// Go to `next` from `path`.
pub(super) fn push(path: &mut String, next: &str) {
    if next.starts_with('/') {
        path.clear();
        path.push('/');
    }
    // `..` stays: what is before it may have been a link.
    for part in next.split('/').filter(|p| !matches!(*p, "" | ".")) {
        if !path.is_empty() && !path.ends_with('/') {
            path.push('/');
        }
        path.push_str(part);
        if path.len() > MAX_PATH_BYTES {
            return;
        }
    }
}
