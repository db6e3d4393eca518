//! One line for each arm, class and function.

use crate::analysis::ClassView;
use crate::sheet::Sheet;

/// The header, and the order of the columns.
const HEADER: [&str; 12] = [
    "arm",
    "class",
    "packets",
    "function",
    "module",
    "layer",
    "calls",
    "self_insns",
    "inclusive_insns",
    "self_insns_per_packet",
    "share",
    "invalid_blocks",
];

/// The functions of some classes, or those of one layer, as CSV (RFC 4180).
pub fn render(classes: &[ClassView<'_>], layer: Option<&str>) -> String {
    let mut sheet = Sheet::new(HEADER);
    for class in classes {
        for f in class.functions_of(layer) {
            let function = &class.recording.functions[f.function as usize];
            sheet.row([
                class.arm().name.clone(),
                class.class.to_string(),
                class.packets.to_string(),
                function.name.clone(),
                function.module.clone().unwrap_or_default(),
                function.layer.clone().unwrap_or_default(),
                f.calls.to_string(),
                f.self_insns.to_string(),
                f.inclusive_insns.to_string(),
                format!("{:.4}", f.self_insns as f64 / class.packets.max(1) as f64),
                format!("{:.6}", f.self_insns as f64 / class.total.max(1) as f64),
                class.invalid.to_string(),
            ]);
        }
    }
    sheet.finish()
}
