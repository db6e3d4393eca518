//! Folded stacks: a line for each stack, `arm;class;context;function;...;function N`,
//! as flamegraph.pl, inferno and speedscope read them.
//!
//! N is the stack's own instructions, summed over blocks: these formats accept only
//! whole numbers, and a mean per packet seldom is one.

use std::collections::HashMap;

use crate::analysis::ClassView;
use crate::profile::{ELIDED, Frames, parts, tame};

/// The stacks of some classes, sorted, so that files can be compared line by line.
pub fn render(classes: &[ClassView<'_>]) -> String {
    let mut out = String::new();
    let mut names: Vec<String> = vec![folded(ELIDED)];
    let mut numbers: HashMap<String, usize> = HashMap::from([(names[0].clone(), 0)]);
    let frame_of: Vec<usize> = classes.first().map_or_else(Vec::new, |c| {
        let functions = c.recording.functions.iter();
        functions
            .map(|f| {
                let name = folded(&f.name);
                *numbers.entry(name.clone()).or_insert_with(|| {
                    names.push(name);
                    names.len() - 1
                })
            })
            .collect()
    });
    for part in parts(classes) {
        let mut stack = format!(
            "{};{};{}",
            folded(&part.class.arm().name),
            folded(&part.class.class.to_string()),
            folded(&part.context.to_string())
        );
        let frames = Frames::from_part(&part, |f| frame_of[f as usize], 0);
        frames.walk(
            |node| &names[node.frame],
            |node, entered| {
                let name = &names[node.frame];
                if !entered {
                    stack.truncate(stack.len() - name.len() - 1);
                    return;
                }
                stack.push(';');
                stack.push_str(name);
                if node.self_insns > 0 {
                    out.push_str(&stack);
                    out.push_str(&format!(" {}\n", node.self_insns));
                }
            },
        );
    }
    out
}

/// A frame: `;` ends one, and a blank ends the stack.
fn folded(name: &str) -> String {
    tame(name)
        .chars()
        .map(|c| match c {
            ';' => ':',
            c if c.is_whitespace() => '_',
            c => c,
        })
        .collect()
}
