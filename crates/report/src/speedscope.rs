//! speedscope's own format: a profile for each class, its contexts as the
//! outermost frames.
//!
//! It is written as events, "opened" and "closed", at the instruction at which a
//! frame would be entered if each ran once and in a row: two events for a node,
//! where samples would repeat the whole stack above it.

use std::collections::HashMap;

use serde::Serialize;

use crate::analysis::ClassView;
use crate::number::printable;
use crate::profile::{ELIDED, Frames, ProfilePart, parts, tame};
use crate::source::PATH_LETTERS;
use crate::summary::label;

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

#[derive(Serialize)]
struct File {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: String,
    name: String,
    #[serde(rename = "activeProfileIndex")]
    active_profile_index: usize,
    shared: Shared,
    profiles: Vec<Profile>,
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<Frame>,
}

#[derive(Serialize, Clone, PartialEq, Eq, Hash)]
struct Frame {
    name: String,
    /// The file that defines it, or else its layer: speedscope colours frames by file.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
struct Profile {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    unit: &'static str,
    #[serde(rename = "startValue")]
    start_value: u64,
    #[serde(rename = "endValue")]
    end_value: u64,
    events: Vec<Event>,
}

#[derive(Serialize)]
struct Event {
    #[serde(rename = "type")]
    kind: &'static str,
    frame: usize,
    at: u64,
}

/// Frames by number.
#[derive(Default)]
struct Table {
    frames: Vec<Frame>,
    numbers: HashMap<Frame, usize>,
}

impl Table {
    fn number(&mut self, frame: Frame) -> usize {
        *self.numbers.entry(frame.clone()).or_insert_with(|| {
            self.frames.push(frame);
            self.frames.len() - 1
        })
    }
}

/// The document. `title` names the measurement, `version` is Netplumb's.
pub fn render(classes: &[ClassView<'_>], title: &str, version: &str) -> String {
    let mut table = Table::default();
    let elided = table.number(Frame { name: ELIDED.into(), file: None, line: None });
    let frame_of: Vec<usize> = classes.first().map_or_else(Vec::new, |c| {
        let functions = c.recording.functions.iter();
        functions
            .map(|f| {
                let name = match &f.module {
                    Some(module) => format!("{} [{}]", tame(&f.name), tame(module)),
                    None => tame(&f.name),
                };
                let source = f.source.and_then(|s| c.recording.source(s));
                table.number(Frame {
                    name,
                    file: match source {
                        Some((file, _)) => Some(printable(file, PATH_LETTERS)),
                        None => f.layer.as_deref().map(tame),
                    },
                    line: source.map(|(_, line)| line),
                })
            })
            .collect()
    });
    let mut profiles: Vec<Profile> = classes
        .iter()
        .map(|class| Profile {
            kind: "evented",
            name: label(class),
            unit: match class.quantity.unit.as_str() {
                "ns" => "nanoseconds",
                _ => "none",
            },
            start_value: 0,
            end_value: 0,
            events: Vec::new(),
        })
        .collect();
    for part in parts(classes) {
        let context =
            table.number(Frame { name: part.context.to_string(), file: None, line: None });
        let profile = &mut profiles[part.class_index];
        add(profile, &part, context, |f| frame_of[f as usize], elided);
    }
    let file = File {
        schema: SCHEMA,
        exporter: format!("plumb {}", tame(version)),
        name: tame(title),
        active_profile_index: 0,
        shared: Shared { frames: table.frames },
        profiles,
    };
    // Strings, numbers and lists: nothing that serialization could fail on.
    crate::number::json_text(serde_json::to_string(&file).unwrap_or_default() + "\n")
}

fn add(
    profile: &mut Profile,
    part: &ProfilePart<'_>,
    context: usize,
    frame: impl Fn(u32) -> usize,
    elided: usize,
) {
    let mut at = profile.end_value;
    let mut event = |kind, frame, at| profile.events.push(Event { kind, frame, at });
    event("O", context, at);
    Frames::from_part(part, frame, elided).walk(
        // The largest first.
        |node| (std::cmp::Reverse(node.inclusive_insns), node.frame),
        |node, entered| {
            if node.inclusive_insns == 0 {
            } else if entered {
                event("O", node.frame, at);
                at += node.self_insns;
            } else {
                event("C", node.frame, at);
            }
        },
    );
    event("C", context, at);
    profile.end_value = at;
}
