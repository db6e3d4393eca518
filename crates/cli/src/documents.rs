//! Tests that the parser accepts all commands in the documents, and that all flags named in
//! sentences exist.
//!
//! Their output is checked in `tests/guests/documents`.

#[path = "../tests/guests/documents/markdown.rs"]
mod markdown;

use std::collections::BTreeSet;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use crate::Cli;
use markdown::calls;

/// Flags of other programs in sentences.
const FOREIGN: &[&str] =
    &["--children", "--interpreted-frames-native-stack", "--perf-basic-prof", "--separate-recs"];

/// The parser's error for a command line, if any.
fn refused(words: &[String]) -> Option<clap::Error> {
    match Cli::try_parse_from(words) {
        Ok(_) => None,
        Err(error) if !error.use_stderr() => None,
        Err(error) => Some(error),
    }
}

/// Whether the only error is that an example in a sentence is incomplete: missing subcommands or
/// arguments, or a word in capitals in place of a value.
fn is_named_only(error: &clap::Error) -> bool {
    match error.kind() {
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => true,
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            match error.get(ContextKind::InvalidValue) {
                Some(ContextValue::String(value)) => {
                    value.is_empty() || value.chars().all(|c| c.is_ascii_uppercase())
                }
                _ => false,
            }
        }
        _ => false,
    }
}

/// All flags of a command and its subcommands.
fn flags(command: &clap::Command, into: &mut BTreeSet<String>) {
    for argument in command.get_arguments() {
        into.extend(
            argument.get_long_and_visible_aliases().into_iter().flatten().map(|l| format!("--{l}")),
        );
        into.extend(argument.get_short().map(|short| format!("-{short}")));
    }
    for below in command.get_subcommands() {
        flags(below, into);
    }
}

/// Check that the parser accepts every command line in a block.
#[test]
fn commands_are_accepted() {
    let mut checked = 0;
    let mut wrong = Vec::new();
    for document in markdown::all() {
        for block in &document.blocks {
            // Usage errors are shown there with their message.
            if block.note("exit") == Some("2") {
                continue;
            }
            for (at, line) in block.command_lines() {
                let place = document.place(block.at.start + at);
                match calls(&line) {
                    Ok(calls) => {
                        checked += calls.len();
                        let refused = calls.iter().filter_map(|words| refused(words));
                        wrong.extend(refused.map(|e| format!("{place}: `{line}`\n{e}")));
                    }
                    Err(why) => wrong.push(format!("{place}: `{line}`: {why}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 80, "{checked}");
}

/// Check that commands and flags named in sentences exist.
#[test]
fn names_in_sentences_are_there() {
    let mut there = BTreeSet::from(["--help".into(), "--version".into(), "-h".into()]);
    flags(&Cli::command(), &mut there);
    let mut named = 0;
    let mut wrong = Vec::new();
    for document in markdown::all() {
        for words in &document.words {
            let place = format!("{}:{}: `{}`", document.name, words.line, words.text);
            let first = words.text.split([' ', '=']).next().unwrap_or_default();
            if first.starts_with("--") && first.len() > 2 {
                named += 1;
                if !there.contains(first) && !FOREIGN.contains(&first) {
                    wrong.push(format!("{place} is no flag of any command"));
                }
            }
            let Ok(calls) = calls(&words.text) else {
                continue;
            };
            named += calls.len();
            for error in calls.iter().filter_map(|words| refused(words)) {
                if !is_named_only(&error) {
                    wrong.push(format!("{place}\n{error}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(named > 150, "{named}");
}
