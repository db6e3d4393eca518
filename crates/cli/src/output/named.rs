//! Functions by name.

use netplumb_model::recording::{FunctionId, Recording};
use netplumb_model::symbol::base_name;
use netplumb_report::analysis::ClassView;
use netplumb_report::printable;

use crate::exit::Usage;

/// Names that an error suggests.
const NEAR: usize = 3;

/// The functions of a name in a calling context: by their symbols, or else by these without what
/// compilers add.
///
/// # Errors
/// No such function; the message has similar names.
pub(super) fn named(recording: &Recording, name: &str) -> anyhow::Result<Vec<FunctionId>> {
    let mut used = vec![false; recording.functions.len()];
    for node in &recording.nodes {
        if let Some(used) = used.get_mut(node.function as usize) {
            *used = true;
        }
    }
    let known: Vec<(FunctionId, &str)> = (0..)
        .zip(&recording.functions)
        .filter(|(id, _)| used[*id as usize])
        .map(|(id, function)| (id, function.name.as_str()))
        .collect();
    let called = |is: &dyn Fn(&str) -> bool| -> Vec<FunctionId> {
        let found = known.iter().filter(|(_, symbol)| is(symbol));
        found.map(|(id, _)| *id).collect()
    };
    let found = called(&|symbol| symbol == name);
    if !found.is_empty() {
        return Ok(found);
    }
    let found = called(&|symbol| base_name(symbol) == base_name(name));
    if !found.is_empty() {
        return Ok(found);
    }
    let mut near: Vec<(usize, &str)> = (known.iter())
        .map(|(_, symbol)| (strsim::damerau_levenshtein(name, symbol), *symbol))
        .collect();
    near.sort_unstable();
    near.dedup();
    let near = near.iter().take(NEAR).map(|(_, n)| printable(n, 80));
    let similar = match near.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "it has no call graph".into(),
        names => format!("similar names are {names}"),
    };
    Err(Usage(format!(
        "no such function in the recording: `{}`; {similar}",
        printable(name, 80)
    ))
    .into())
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
            out.push_str(&render(class, function));
            out.push('\n');
        }
    }
    Ok(out)
}
