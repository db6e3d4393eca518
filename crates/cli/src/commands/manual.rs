//! `plumb completions` and `plumb man`: completion scripts and man pages, generated from the
//! declarations of the arguments.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use clap_complete::Shell;
use netplumb_report::printable;

use crate::output::print::print;

/// Arguments of `plumb completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell to generate the script for
    shell: Shell,
}

/// Arguments of `plumb man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Output directory; created if it does not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Print the completions for a shell.
pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    print(&completions_of(args.shell))
}

/// Write a page for each command.
pub(crate) fn man(args: &ManArgs) -> anyhow::Result<ExitCode> {
    write_pages(&args.folder).with_context(|| {
        let folder = printable(&args.folder.display().to_string(), 400);
        format!("can't write man pages to {folder}")
    })?;
    Ok(ExitCode::SUCCESS)
}

fn completions_of(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut crate::command(), "plumb", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

fn write_pages(folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(crate::command(), folder)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap_markdown::MarkdownOptions;
    use netplumb_testkit::golden;
    use tempfile::TempDir;

    use super::*;
    use crate::{Cli, help};

    /// All commands with the names of their pages, such as `plumb-kernel-add`.
    fn all() -> Vec<(String, clap::Command)> {
        fn add(command: &clap::Command, above: &str, all: &mut Vec<(String, clap::Command)>) {
            let name = match above {
                "" => command.get_name().to_string(),
                _ => format!("{above}-{}", command.get_name()),
            };
            for below in command.get_subcommands() {
                add(below, &name, all);
            }
            all.push((name, command.clone()));
        }
        let mut command = crate::command().disable_help_subcommand(true);
        command.build();
        let mut commands = Vec::new();
        add(&command, "", &mut commands);
        commands
    }

    /// The visible long flags of a command.
    fn long_flags(command: &clap::Command) -> impl Iterator<Item = &str> {
        let shown = command.get_arguments().filter(|a| !a.is_hide_set());
        shown.filter_map(|argument| argument.get_long())
    }

    /// Check that every command has a page, which names all of its long flags, and that
    /// there is no other page.
    #[test]
    fn every_command_has_a_page() {
        let folder = TempDir::new().unwrap();
        let pages = folder.path().join("new/man1");
        write_pages(&pages).unwrap();
        let commands = all();
        for (name, command) in &commands {
            let page = fs::read_to_string(pages.join(format!("{name}.1"))).unwrap();
            for flag in long_flags(command) {
                // Hyphens are escaped in roff.
                let written = format!("\\-\\-{}", flag.replace('-', "\\-"));
                assert!(page.contains(&written), "{name}: no {written}");
            }
        }
        assert_eq!(fs::read_dir(&pages).unwrap().count(), commands.len());
        assert!(commands.len() > 15, "{}", commands.len());
    }

    /// Check that shells complete the names of all commands and their long flags.
    #[test]
    fn shells_know_the_commands() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = completions_of(shell);
            for (name, command) in all() {
                let word = command.get_name();
                assert!(text.contains(word), "{shell}: no {name}");
                for flag in long_flags(&command) {
                    let written = match shell {
                        Shell::Fish => format!("-l {flag}"),
                        _ => format!("--{flag}"),
                    };
                    assert!(text.contains(&written), "{shell}: {name} --{flag}");
                }
            }
        }
    }

    /// Check that the reference of commands agrees with the declarations.
    #[test]
    fn the_reference_is_up_to_date() {
        let options = MarkdownOptions::new()
            .title("Commands and flags".into())
            .show_footer(false)
            .show_table_of_contents(true);
        let command = help::summarized(Cli::command());
        let mut text = clap_markdown::help_markdown_command_custom(&command, &options);
        text.truncate(text.trim_end().len());
        text.push('\n');
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/commands.md");
        golden(&path, &text);
    }
}
