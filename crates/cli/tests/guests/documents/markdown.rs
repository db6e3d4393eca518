//! What a document holds for a reader to copy: blocks of code and words in code.
//!
//! Shared by the tests of this crate's arguments (`src/documents.rs`) and the ones that run
//! commands of documents.

// Each of the two has a copy, and neither uses all of it.
#![allow(dead_code, unreachable_pub)]
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// A document of the repository.
#[derive(Debug)]
pub struct Document {
    /// Its path from the top of the repository.
    pub name: String,
    /// All of it.
    pub text: String,
    /// Its blocks of code.
    pub blocks: Vec<Block>,
    /// Words in code within sentences.
    pub words: Vec<Words>,
}

/// A block of code.
#[derive(Debug)]
pub struct Block {
    /// The first word of the line that opens it: `console`, `toml`, or empty.
    pub language: String,
    /// The others, for the tests alone: no reader sees them.
    pub notes: Vec<String>,
    /// The lines between the fences.
    pub text: String,
    /// Where the text is in the document.
    pub at: Range<usize>,
}

/// Words in code.
#[derive(Debug)]
pub struct Words {
    /// The words without their backticks.
    pub text: String,
    /// The line that they are on.
    pub line: usize,
}

/// The top of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Documents of another kind: the changelog is history, and the reference of commands is made of
/// their declarations.
const OTHERS: [&str; 2] = ["CHANGELOG.md", "docs/reference/commands.md"];

/// Every document that describes how Netplumb is used. Decisions are history: they describe what
/// was so.
pub fn all() -> Vec<Document> {
    let mut names = Vec::new();
    for folder in ["", "docs", "docs/guide", "docs/reference"] {
        for entry in fs::read_dir(repository().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().to_string_lossy().into_owned();
            let path = Path::new(folder).join(name).display().to_string();
            if path.ends_with(".md") && !OTHERS.contains(&path.as_str()) {
                names.push(path);
            }
        }
    }
    names.sort();
    names.iter().map(|name| Document::read(name)).collect()
}

impl Document {
    /// Read one, by its path from the top of the repository.
    pub fn read(name: &str) -> Document {
        let text = fs::read_to_string(repository().join(name)).unwrap();
        let mut document = Document {
            name: name.to_string(),
            text: String::new(),
            blocks: Vec::new(),
            words: Vec::new(),
        };
        let mut open: Option<Block> = None;
        for (event, at) in Parser::new_ext(&text, Options::ENABLE_TABLES).into_offset_iter() {
            match event {
                Event::Start(Tag::CodeBlock(kind)) => open = Some(Block::opened_by(&kind)),
                Event::Text(piece) => {
                    if let Some(block) = &mut open {
                        if block.text.is_empty() {
                            block.at.start = at.start;
                        }
                        block.at.end = at.end;
                        block.text.push_str(&piece);
                    }
                }
                Event::End(TagEnd::CodeBlock) => document.blocks.extend(open.take()),
                Event::Code(words) => document
                    .words
                    .push(Words { text: words.to_string(), line: line_of(&text, at.start) }),
                _ => {}
            }
        }
        document.text = text;
        document
    }

    /// Where something is, as a person looks it up.
    pub fn place(&self, at: usize) -> String {
        format!("{}:{}", self.name, line_of(&self.text, at))
    }
}

/// The line of a place, from 1.
fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

impl Block {
    fn opened_by(kind: &CodeBlockKind<'_>) -> Block {
        let mut info = match kind {
            CodeBlockKind::Fenced(info) => info.split_whitespace().map(str::to_string),
            CodeBlockKind::Indented => "".split_whitespace().map(str::to_string),
        };
        Block {
            language: info.next().unwrap_or_default(),
            notes: info.collect(),
            text: String::new(),
            at: 0..0,
        }
    }

    /// The value of the note of this name: `2` of `exit=2`.
    pub fn note(&self, name: &str) -> Option<&str> {
        self.notes.iter().find_map(|note| note.strip_prefix(name)?.strip_prefix('='))
    }

    /// Whether there is this note.
    pub fn is(&self, note: &str) -> bool {
        self.notes.iter().any(|have| have == note)
    }

    /// The command lines, each with its place in the block: in `console` after a prompt, in a block
    /// without a language all. A line that ends with `\` continues.
    pub fn command_lines(&self) -> Vec<(usize, String)> {
        let console = match self.language.as_str() {
            "console" => true,
            "" | "sh" => false,
            _ => return Vec::new(),
        };
        let mut lines: Vec<(usize, String)> = Vec::new();
        let mut goes_on = false;
        let mut at = 0;
        for line in self.text.split_inclusive('\n') {
            let start = at;
            at += line.len();
            let line = line.trim_end();
            let words = match line.strip_prefix("$ ") {
                Some(words) if console => words,
                _ if console && !goes_on => continue,
                _ => line,
            };
            let (words, more) = match words.strip_suffix('\\') {
                Some(words) => (words, true),
                None => (words, false),
            };
            match lines.last_mut().filter(|_| goes_on) {
                Some((_, command)) => command.push_str(words),
                None if words.is_empty() => {}
                None => lines.push((start, words.to_string())),
            }
            goes_on = more;
        }
        lines
    }
}

/// The words of each call of `plumb` in a command line, without what a shell does with it.
///
/// # Errors
/// A quote that is not closed.
pub fn calls(line: &str) -> Result<Vec<Vec<String>>, String> {
    let words = shell_words::split(line).map_err(|e| e.to_string())?;
    let mut calls = Vec::new();
    for command in words.split(|word| ["|", "&&", "||", ";"].contains(&word.as_str())) {
        let command = command
            .split(|word| word.starts_with('>') || word.starts_with("2>"))
            .next()
            .unwrap_or_default();
        let command = match command {
            [sudo, command @ ..] if sudo == "sudo" => command,
            command => command,
        };
        if command.first().is_some_and(|program| program == "plumb") {
            calls.push(command.to_vec());
        }
    }
    Ok(calls)
}
