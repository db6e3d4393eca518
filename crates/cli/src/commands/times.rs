//! Recordings of times, printed.

use std::process::ExitCode;

use netplumb_model::class::Direction;
use netplumb_model::recording::Recording;
use netplumb_report::printable;
use netplumb_report::terminal::View;
use netplumb_report::times::{TimedClass, classes, terminal};

use super::report::{ShowArgs, columns, print};
use crate::exit::Usage;

/// Show a recording of times.
///
/// # Errors
/// Something was asked for that is not in it.
pub(super) fn show(
    recording: &Recording,
    args: &ShowArgs,
    directions: &[Direction],
) -> anyhow::Result<ExitCode> {
    let views = asked(recording, directions, &args.arm)?;
    let view = View {
        layer: args.layer.clone(),
        top: args.top,
        tree: args.tree,
        columns: columns(),
    };
    print(&terminal::render(recording, &views, &view))
}

/// The classes that are to be shown: those of some directions and arms, or all.
fn asked<'a>(
    recording: &'a Recording,
    directions: &[Direction],
    arms: &[String],
) -> anyhow::Result<Vec<TimedClass<'a>>> {
    let mut views = classes(recording);
    let has = |views: &[TimedClass<'_>], name: fn(&TimedClass<'_>) -> String| {
        let mut names: Vec<String> = views.iter().map(name).collect();
        names.sort();
        names.dedup();
        names.join(", ")
    };
    for arm in arms {
        if !views.iter().any(|v| v.arm().name == *arm) {
            return Err(Usage(format!(
                "no arm is called `{}`: there are {}",
                printable(arm, 80),
                has(&views, |v| printable(&v.arm().name, 80))
            ))
            .into());
        }
    }
    if !arms.is_empty() {
        views.retain(|v| arms.contains(&v.arm().name));
    }
    if !directions.is_empty() {
        let told = has(&views, |v| v.class.to_string());
        views.retain(|v| directions.contains(&v.class.direction));
        if views.is_empty() {
            let words: Vec<&str> = directions.iter().map(|d| d.as_str()).collect();
            return Err(Usage(format!(
                "nothing in the recording is {}: it has {told}",
                words.join(" or ")
            ))
            .into());
        }
    }
    Ok(views)
}
