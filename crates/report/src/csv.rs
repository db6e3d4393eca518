//! One line for each arm, class and function.

use crate::analysis::ClassView;

/// The header, and the order of the columns.
const HEADER: [&str; 11] = [
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
];

/// The functions of some classes, or those of one layer, as CSV (RFC 4180).
pub fn render(classes: &[ClassView<'_>], layer: Option<&str>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing to memory does not fail.
    let _ = writer.write_record(HEADER);
    for class in classes {
        for f in class.functions_of(layer) {
            let function = &class.recording.functions[f.function as usize];
            let _ = writer.write_record([
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
            ]);
        }
    }
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
