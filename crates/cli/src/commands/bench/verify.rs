//! `plumb bench verify`: what the kernel's verifier says of programs.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use netplumb_paths::PathError;
use netplumb_report::printable;

use crate::exit::CannotHere;
use crate::files;
use crate::output::print::print;
use crate::rights::{NO_ROOT, is_root};

/// Compiled programs are some kilobytes, with debug information some hundred.
const MAX_OBJECT_BYTES: u64 = 64 << 20;
/// What is shown of what the verifier says.
const MAX_SAID: usize = 2_000;

/// Offer the kernel the programs of a file.
///
/// # Errors
/// It can't be read, or is no object of BPF programs; not root.
pub(super) fn file(file: &Path) -> anyhow::Result<ExitCode> {
    let object = files::read(file, MAX_OBJECT_BYTES, "an object of BPF programs")?;
    if !is_root() {
        return Err(CannotHere(NO_ROOT.into()).into());
    }
    let offered = netplumb_paths::verify(&object).with_context(|| file.display().to_string())?;
    let mut text = String::new();
    let mut refused = 0;
    for one in &offered {
        match &one.refused {
            None => text.push_str(&format!("`{}`: taken\n", printable(&one.program, 80))),
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

/// Show that the kernel takes no unsafe program.
///
/// # Errors
/// It does, or can't be asked.
pub(super) fn refusal() -> anyhow::Result<ExitCode> {
    if !is_root() {
        return Err(CannotHere(NO_ROOT.into()).into());
    }
    match netplumb_paths::refusal() {
        Err(why @ PathError::Refused(_)) => {
            let text = format!(
                "{}As it should be: a frame can end before what this reads. `plumb bench verify \
                 FILE` asks about programs of yours.\n",
                said(&why)
            );
            print(&text)
        }
        Err(other) => Err(other.into()),
        Ok(()) => anyhow::bail!("the kernel took a program that reads beyond a frame's end"),
    }
}

/// What a refusal says, line by line.
fn said(why: &PathError) -> String {
    let text = why.to_string();
    let lines = text.lines().map(|line| printable(line, MAX_SAID) + "\n");
    lines.collect()
}
