//! A bench as CSV: a line for each block.

use netplumb_model::recording::Recording;

use super::blocks;
use super::explain::{Unit, explained};
use crate::sheet::Sheet;

const HEADING: [&str; 17] = [
    "arm",
    "block",
    "valid",
    "why_not",
    "window_ns",
    "offered_pps",
    "sent_pps",
    "handled_pps",
    "handled_bytes_per_s",
    "cpu_ns_per_packet",
    "wall_ns_per_packet",
    "loss",
    "busy_cpus",
    "limit_pps",
    "generator_bound",
    "path_insns_per_packet",
    "path_ns_per_packet",
];

/// The table, with a heading.
pub fn render(recording: &Recording) -> String {
    let mut sheet = Sheet::new(HEADING);
    for (block, m) in blocks(recording) {
        let arm = recording.arms.get(block.arm as usize);
        let invalid = m.invalid();
        let some = |value: Option<f64>| value.map_or_else(String::new, |v| format!("{v:.3}"));
        sheet.row([
            arm.map_or_else(String::new, |a| a.name.clone()),
            block.index.to_string(),
            invalid.is_none().to_string(),
            invalid.unwrap_or_default(),
            m.window_ns.to_string(),
            format!("{:.3}", m.offered_pps()),
            format!("{:.3}", m.sent_pps()),
            format!("{:.3}", m.handled_pps()),
            some(m.handled_bytes_per_s()),
            some(m.cpu_ns_per_packet()),
            some(m.wall_ns_per_packet()),
            format!("{:.9}", m.loss()),
            format!("{:.4}", m.busy_cpus()),
            some(m.limit_pps()),
            (m.is_generator_bound()).map_or_else(String::new, |bound| bound.to_string()),
            String::new(),
            String::new(),
        ]);
    }
    // Blocks of which it is told what a packet costs have nothing else.
    for path in explained(recording) {
        let column = match path.unit {
            Unit::Instructions => HEADING.len() - 2,
            Unit::Nanoseconds => HEADING.len() - 1,
        };
        for (block, own) in path.own_of_blocks.iter().enumerate() {
            let mut line = vec![String::new(); HEADING.len()];
            line[0].clone_from(&path.path);
            line[1] = block.to_string();
            line[2] = "true".into();
            line[column] = format!("{own:.3}");
            sheet.row(line);
        }
    }
    sheet.finish()
}
