//! Functions by name.

use netplumb_model::recording::Recording;
use netplumb_model::symbol::base_name;
use netplumb_report::analysis::ClassView;
use netplumb_report::printable;

use crate::exit::Usage;

/// Render the functions of a name with `render`, in each class.
///
/// # Errors
/// No such function.
pub(super) fn around(
    recording: &Recording,
    views: &[ClassView<'_>],
    name: &str,
    render: impl Fn(&ClassView<'_>, u32) -> String,
) -> anyhow::Result<String> {
    let called = |is: &dyn Fn(&str) -> bool| -> Vec<u32> {
        (0..recording.functions.len() as u32)
            .filter(|f| is(&recording.functions[*f as usize].name))
            .collect()
    };
    let mut matching = called(&|symbol| symbol == name);
    if matching.is_empty() {
        matching = called(&|symbol| base_name(symbol) == name);
    }
    if matching.is_empty() {
        let mut near: Vec<(usize, &str)> = recording
            .functions
            .iter()
            .map(|f| (strsim::damerau_levenshtein(name, &f.name), f.name.as_str()))
            .collect();
        near.sort_unstable();
        near.dedup();
        let near: Vec<String> = near.iter().take(3).map(|(_, n)| printable(n, 80)).collect();
        return Err(Usage(format!(
            "no such function in the recording: `{}`; similar names are {}",
            printable(name, 80),
            near.join(", ")
        ))
        .into());
    }
    let mut out = String::new();
    for function in matching {
        for class in views {
            out.push_str(&render(class, function));
            out.push('\n');
        }
    }
    Ok(out)
}
