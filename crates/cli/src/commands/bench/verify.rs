//! `plumb bench verify`: the verifier's errors, by source line.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use netplumb_paths::PathError;
use netplumb_report::printable;

use crate::files;
use crate::output::print::print;
use crate::rights;

/// Compiled programs are some kilobytes, with debug information some hundred.
const MAX_OBJECT_BYTES: u64 = 64 << 20;
/// Maximum length of a line of the verifier's log.
const MAX_SAID: usize = 2_000;

/// Load the programs of a file.
///
/// # Errors
/// It can't be read, or is not a BPF object file; missing rights.
pub(super) fn file(file: &Path) -> anyhow::Result<ExitCode> {
    let object = files::read(file, MAX_OBJECT_BYTES, "a BPF object file")?;
    rights::check_of_verifying()?;
    let offered = netplumb_paths::verify(&object).with_context(|| file.display().to_string())?;
    let mut text = String::new();
    let mut refused = 0;
    for one in &offered {
        match &one.refused {
            None => text.push_str(&format!("`{}`: accepted\n", printable(&one.program, 80))),
            Some(why) => {
                refused += 1;
                text.push_str(&said(why));
            }
        }
    }
    print(&text)?;
    Ok(match refused {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Show that the verifier rejects an unsafe program.
///
/// # Errors
/// It accepts it, or the program can't be loaded.
pub(super) fn refusal() -> anyhow::Result<ExitCode> {
    rights::check_of_verifying()?;
    match netplumb_paths::refusal() {
        Err(why @ PathError::Refused(_)) => {
            let text = format!(
                "{}As expected: the program reads packet data without a bounds check. Use `plumb \
                 bench verify FILE` to check your own programs.\n",
                said(&why)
            );
            print(&text)
        }
        Err(other) => Err(other.into()),
        Ok(()) => {
            anyhow::bail!("the verifier accepted a program that reads beyond the end of the packet")
        }
    }
}

/// The verifier's message, by line.
fn said(why: &PathError) -> String {
    let text = why.to_string();
    let lines = text.lines().map(|line| printable(line, MAX_SAID) + "\n");
    lines.collect()
}
