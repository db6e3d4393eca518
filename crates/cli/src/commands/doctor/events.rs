//! `plumb doctor --events`: by subsystem, each event, tried.

use std::process::ExitCode;

use anyhow::Context;
use netplumb_instruments::events::{EventSupport, Extent, map};
use netplumb_model::events::Focus;
use serde_json::{Value, json};

use crate::output::columns::write_columns;
use crate::output::print::print;

/// The exit code if nothing can be counted.
const NONE: u8 = 3;

/// Try all events and print the results.
pub(super) fn run(json: bool) -> anyhow::Result<ExitCode> {
    let all = map();
    let text = match json {
        true => {
            let out: Vec<Value> = all.iter().map(out).collect();
            serde_json::to_string_pretty(&out).context("can't write JSON")? + "\n"
        }
        false => text(&all)?,
    };
    print(&text)?;
    let any = all.iter().any(|found| found.counted.is_ok());
    Ok(if any { ExitCode::SUCCESS } else { ExitCode::from(NONE) })
}

/// An event, for programs.
fn out(found: &EventSupport) -> Value {
    let of = match found.counted {
        Ok(Extent::All) => Some("all"),
        Ok(extent) => Some(extent.as_str()),
        Err(_) => None,
    };
    json!({
        "focus": found.event.focus.as_str(),
        "event": found.event.name,
        "about": found.event.about,
        "counted": found.counted.is_ok(),
        "of": of,
        "why_not": found.counted.as_ref().err(),
    })
}

fn text(all: &[EventSupport]) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    for focus in Focus::ALL {
        let of: Vec<&EventSupport> = all.iter().filter(|f| f.event.focus == *focus).collect();
        let counted = of.iter().filter(|found| found.counted.is_ok()).count();
        bytes.extend(format!("{focus}: {counted} of {} can be counted\n", of.len()).bytes());
        let row = |found: &&EventSupport| {
            let (verdict, rest) = match &found.counted {
                Ok(extent) => (extent.as_str(), found.event.about),
                Err(why) => ("no", why.as_str()),
            };
            vec![format!("  {}", found.event.name), verdict.to_string(), rest.to_string()]
        };
        let rows: Vec<Vec<String>> = of.iter().map(row).collect();
        write_columns(&rows, &[], &mut bytes)?;
        bytes.push(b'\n');
    }
    let any = "Any other tracepoint can be counted by its name (SUBSYSTEM:NAME), and functions by \
               kprobe:FUNCTION and uprobe:FILE:FUNCTION.\n";
    bytes.extend(any.bytes());
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
