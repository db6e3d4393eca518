//! What a killed run leaves on this machine until the next run.

use std::path::PathBuf;

use super::Place;

const NAMESPACES: &str = "/run/netns";
const JOURNAL: &str = "/run/netplumb";

/// The namespaces whose names begin so.
pub(crate) fn namespaces(run: &str) -> Vec<PathBuf> {
    starting_with(NAMESPACES, run)
}

/// The name of the run of a process, from its entry in the journal.
pub(crate) fn name_of_run(pid: u32) -> String {
    let entries = starting_with(JOURNAL, "plumb-").into_iter();
    let mut names = entries.map(|path| path.file_name().unwrap().to_owned());
    let owner = format!(".{pid}.");
    let entry = names.find(|name| name.to_string_lossy().contains(&owner)).unwrap();
    entry.to_string_lossy().split('.').next().unwrap().to_string()
}

/// Check that the next run, with these words, removes what a killed run left.
pub(crate) fn nothing_left(place: &Place, run: &str, next: &str) {
    // A run of another test may have removed it already.
    place.run(next).code(0);
    for folder in [NAMESPACES, JOURNAL] {
        assert_eq!(starting_with(folder, run), [""; 0].map(PathBuf::from));
    }
    place.nothing_runs();
}

fn starting_with(folder: &str, name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let is_named = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(name);
    paths.filter(is_named).collect()
}
