//! Recordings without what identifies people and machines, to be given to others.

mod text;

use std::collections::{BTreeMap, BTreeSet};

use self::text::Words;
use super::{Arm, ArmNotes, Derivation, MadeBy, Recording, env};
use crate::experiment::Experiment;
use crate::span::SpanOf;

/// What is taken out of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Secret {
    /// Names of machines.
    Hosts,
    /// Names of users.
    Users,
    /// Addresses of networks and of devices, URLs, and where the kernel was loaded.
    Addresses,
    /// Arguments of commands.
    Commands,
    /// Directories of files.
    Paths,
    /// The command line of the kernel.
    KernelCmdline,
    /// The text of source files.
    Source,
}

impl Secret {
    /// All of them.
    pub const ALL: [Secret; 7] = [
        Secret::Hosts,
        Secret::Users,
        Secret::Addresses,
        Secret::Commands,
        Secret::Paths,
        Secret::KernelCmdline,
        Secret::Source,
    ];

    /// Its name on command lines.
    pub fn as_str(self) -> &'static str {
        match self {
            Secret::Hosts => "hosts",
            Secret::Users => "users",
            Secret::Addresses => "addresses",
            Secret::Commands => "commands",
            Secret::Paths => "paths",
            Secret::KernelCmdline => "kernel-cmdline",
            Secret::Source => "source",
        }
    }
}

/// Facts that are such a secret as a whole.
const SECRET_FACTS: [(&str, Secret); 6] = [
    (env::ARGV, Secret::Commands),
    (env::TUNED_COMMAND, Secret::Commands),
    (env::TUNED_PEER, Secret::Commands),
    (env::IMPORTED_LINE, Secret::Commands),
    (env::IMPORTED_HOST, Secret::Hosts),
    (env::CMDLINE, Secret::KernelCmdline),
];
/// Knobs and keys of experiment files that have commands.
const COMMANDS: [&str; 4] = ["command", "peer", "commands", "client"];
/// Where the kernel is linked to be loaded (`Documentation/arch/x86/x86_64/mm.rst`).
const KERNEL_TEXT: u64 = 0xffff_ffff_8100_0000;
/// The kernel is loaded at a multiple of this.
const KERNEL_ALIGNMENT: u64 = 0x20_0000;

/// What to take out, and names that are known to identify.
#[derive(Debug, Clone, Default)]
pub struct Redaction {
    /// What stays.
    pub keep: BTreeSet<Secret>,
    /// Names of machines, beside those that the recording has.
    pub hosts: BTreeSet<String>,
    /// Names of users, beside those whose home directories the recording names.
    pub users: BTreeSet<String>,
}

impl Redaction {
    fn takes(&self, secret: Secret) -> bool {
        !self.keep.contains(&secret)
    }
}

impl Recording {
    /// The recording without secrets. Figures are as they were; names that were equal still are, so that an experiment's
    /// claims are about the same arms.
    pub fn redacted(&self, redaction: &Redaction) -> Recording {
        let mut words = Words::new(redaction.clone());
        for (_, text) in self.texts() {
            words.learn(&text);
        }
        words.learn_hosts(self.environment.get(env::IMPORTED_HOST).map(String::as_str));
        for command in self.commands() {
            words.learn_command(&command);
        }
        let mut made = self.clone();
        made.visit_texts(&mut |_, text| *text = words.redacted(text));
        for (key, secret) in SECRET_FACTS {
            if redaction.takes(secret) {
                made.environment.remove(key);
            }
        }
        if redaction.takes(Secret::Source) {
            made.source_texts.clear();
        }
        if redaction.takes(Secret::Addresses) {
            made.move_kernel();
        }
        made.experiment_toml = self.experiment_without(&words);
        made
    }

    /// All texts, each with what it is; without the experiment's.
    pub fn texts(&self) -> Vec<(&'static str, String)> {
        let mut texts = Vec::new();
        self.clone().visit_texts(&mut |what, text| texts.push((what, text.clone())));
        texts
    }

    /// The commands of its arms.
    fn commands(&self) -> BTreeSet<String> {
        let of_knobs = self.arms.iter().flat_map(|arm| &arm.knobs);
        let mut commands: BTreeSet<String> = of_knobs
            .filter(|(key, _)| COMMANDS.contains(&key.as_str()))
            .map(|(_, value)| value.clone())
            .collect();
        if let Ok(file) = self.experiment_toml.parse::<toml::Table>() {
            commands_of(&toml::Value::Table(file), &mut commands);
        }
        commands
    }

    /// The experiment file with redacted words; empty if it would not be one any more.
    fn experiment_without(&self, words: &Words) -> String {
        let Ok(file) = self.experiment_toml.parse::<toml::Table>() else {
            return String::new();
        };
        let file = redacted_value("", toml::Value::Table(file), words);
        let text = toml::to_string(&file).unwrap_or_default();
        // Paths and commands may have had to be as they were.
        if Experiment::parse(&text).is_ok() { text } else { String::new() }
    }

    /// Take where the kernel was loaded out of addresses of its code: distances stay.
    fn move_kernel(&mut self) {
        let is_kernel = |address: &u64| *address >= 1 << 63;
        let functions = self.functions.iter().map(|f| f.address);
        let all = functions.chain(self.code.iter().map(|code| code.address));
        let Some(least) = all.filter(is_kernel).min() else {
            return;
        };
        let by = (least & !(KERNEL_ALIGNMENT - 1)).wrapping_sub(KERNEL_TEXT);
        let addresses = self.functions.iter_mut().map(|f| &mut f.address);
        for address in addresses.chain(self.code.iter_mut().map(|code| &mut code.address)) {
            if is_kernel(address) {
                *address = address.wrapping_sub(by);
            }
        }
    }

    /// Visit all texts, each with what it is; without the experiment's.
    fn visit_texts(&mut self, visit: &mut dyn FnMut(&'static str, &mut String)) {
        // Every field is named: a new one has to be thought of here.
        let Recording {
            environment,
            experiment_toml: _,
            quantities: _,
            arms,
            notes,
            blocks: _,
            functions,
            source_files,
            source_texts: _,
            nodes: _,
            costs: _,
            samples: _,
            threads,
            spans,
            groups,
            slices: _,
            attachments: _,
            calibration: _,
            scalars,
            hops,
            traces: _,
            trace_texts,
            line_costs: _,
            code: _,
            losses,
            not_measured,
            over_budget,
            not_tried,
            complete: _,
        } = self;
        environment.values_mut().for_each(|text| visit("fact", text));
        not_tried.values_mut().for_each(|text| visit("setting", text));
        for text in not_measured.values_mut().flat_map(BTreeMap::values_mut) {
            visit("reason", text);
        }
        for arm in arms {
            let Arm { name, knobs, made, .. } = arm;
            visit("arm", name);
            knobs.values_mut().for_each(|level| visit("setting", level));
            if let Some(Derivation { from, by }) = made {
                visit("arm", from);
                if let MadeBy::Scan { setting, .. } = by {
                    visit("setting", setting);
                }
            }
        }
        for notes in notes.values_mut() {
            let ArmNotes { failed, facts, inert, diagnosis, irregular } = notes;
            facts.values_mut().for_each(|text| visit("fact", text));
            let reasons = failed.values_mut().chain(inert.values_mut()).chain(diagnosis);
            reasons.chain(irregular.values_mut()).for_each(|text| visit("reason", text));
        }
        for function in functions {
            visit("function", &mut function.name);
            function.module.iter_mut().for_each(|module| visit("program or module", module));
        }
        over_budget.values_mut().flatten().for_each(|name| visit("function", name));
        source_files.iter_mut().for_each(|name| visit("source file", name));
        trace_texts.iter_mut().for_each(|text| visit("traced call", text));
        threads.iter_mut().for_each(|thread| visit("thread", &mut thread.name));
        for span in spans {
            if let SpanOf::Stage(stage) = &mut span.of {
                visit("event", &mut stage.name);
            }
        }
        groups.iter_mut().for_each(|group| visit("group", &mut group.name));
        for label in scalars.iter_mut().filter_map(|scalar| scalar.item.label.as_mut()) {
            visit("label", label);
        }
        hops.iter_mut().for_each(|of| visit("hop", &mut of.hop.name));
        for loss in losses.values_mut().flatten() {
            visit("loss", &mut loss.cause);
            visit("loss", &mut loss.meaning);
        }
    }
}

/// Commands in an experiment file: words, or lines of words.
fn commands_of(value: &toml::Value, commands: &mut BTreeSet<String>) {
    let toml::Value::Table(table) = value else {
        if let toml::Value::Array(all) = value {
            all.iter().for_each(|value| commands_of(value, commands));
        }
        return;
    };
    for (key, value) in table {
        match value {
            toml::Value::String(line) if COMMANDS.contains(&key.as_str()) => {
                commands.insert(line.clone());
            }
            toml::Value::Array(all) if COMMANDS.contains(&key.as_str()) => {
                let lines = all.iter().filter_map(toml::Value::as_array).chain([all]);
                for words in lines {
                    let words: Option<Vec<&str>> = words.iter().map(toml::Value::as_str).collect();
                    // The words of one command, or the commands that arms have instead of each other.
                    let Some(words) = words else { continue };
                    commands.insert(words.join(" "));
                    let lines = words.iter().filter(|word| word.contains(' '));
                    commands.extend(lines.map(|line| (*line).to_string()));
                }
            }
            _ => commands_of(value, commands),
        }
    }
}

/// A value of an experiment file. The words of a command are its program alone.
fn redacted_value(key: &str, value: toml::Value, words: &Words) -> toml::Value {
    let is_command = COMMANDS.contains(&key) && words.takes(Secret::Commands);
    match value {
        toml::Value::String(text) => toml::Value::String(words.redacted(&text)),
        toml::Value::Array(all) if is_command && all.iter().all(is_word) => {
            let program = all.into_iter().next().into_iter();
            toml::Value::Array(program.map(|v| redacted_value("", v, words)).collect())
        }
        toml::Value::Array(all) => {
            toml::Value::Array(all.into_iter().map(|v| redacted_value(key, v, words)).collect())
        }
        toml::Value::Table(table) => {
            let entries = table.into_iter();
            let entries = entries.map(|(key, value)| {
                let value = redacted_value(&key, value, words);
                // Files are put into a guest under their names.
                (words.redacted(&key), value)
            });
            toml::Value::Table(entries.collect())
        }
        other => other,
    }
}

/// Whether a value is a word of a command, not a whole one.
fn is_word(value: &toml::Value) -> bool {
    value.as_str().is_some_and(|word| !word.contains(' '))
}

#[cfg(test)]
mod tests;
