//! Functions by name.

use std::collections::BTreeSet;

use netplumb_model::chain;
use netplumb_model::recording::{FunctionId, Recording};
use netplumb_report::analysis::ClassView;
use netplumb_report::printable;

use crate::exit::Usage;

/// Names that an error suggests.
const NEAR: usize = 3;

/// The functions that a name means, as [`chain::functions`] has it.
///
/// # Errors
/// No such function; the message has similar names.
pub(super) fn named(recording: &Recording, name: &str) -> anyhow::Result<Vec<FunctionId>> {
    match chain::functions(recording, name) {
        none if none.is_empty() => Err(unknown(&[recording], name)),
        found => Ok(found),
    }
}

/// The error that no function of some recordings has a name; with similar names.
pub(super) fn unknown(recordings: &[&Recording], name: &str) -> anyhow::Error {
    let called = |recording: &&'_ Recording| -> BTreeSet<FunctionId> {
        recording.nodes.iter().map(|node| node.function).collect()
    };
    let known = recordings.iter().flat_map(|recording| {
        let called = called(recording).into_iter();
        called.filter_map(|id| Some(recording.functions.get(id as usize)?.name.as_str()))
    });
    let mut near: Vec<(usize, &str)> =
        known.map(|symbol| (strsim::damerau_levenshtein(name, symbol), symbol)).collect();
    near.sort_unstable();
    near.dedup();
    let near = near.iter().take(NEAR).map(|(_, n)| printable(n, 80));
    let similar = match &near.collect::<Vec<_>>()[..] {
        [] => "there is no call graph".into(),
        [one] => format!("a similar name is {one}"),
        several => format!("similar names are {}", several.join(", ")),
    };
    let place = match recordings.len() {
        1 => "the recording",
        _ => "either recording",
    };
    Usage(format!(
        "no such function in {place}: `{}`; {similar}. One that the compiler inlined is part of its callers, \
         and its lines are theirs",
        printable(name, 80)
    ))
    .into()
}

/// Render the functions of a name with `render`, in each class.
///
/// # Errors
/// No such function.
pub(super) fn around(
    recording: &Recording,
    views: &[ClassView<'_>],
    name: &str,
    render: impl Fn(&ClassView<'_>, FunctionId) -> String,
) -> anyhow::Result<String> {
    let mut out = String::new();
    for function in named(recording, name)? {
        for class in views {
            let text = render(class, function);
            if !text.is_empty() {
                out.push_str(&text);
                out.push('\n');
            }
        }
    }
    Ok(out)
}
