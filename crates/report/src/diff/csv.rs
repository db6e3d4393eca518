//! A comparison as CSV: one line for each class, context and function.

use super::Diff;
use crate::sheet::Sheet;

/// The header, and the order of the columns.
const HEADER: [&str; 20] = [
    "arm_before",
    "arm_after",
    "class_before",
    "class",
    "context",
    "function_before",
    "function",
    "module",
    "layer",
    "status",
    "packets_before",
    "packets",
    "calls_before",
    "calls",
    "self_insns_before",
    "self_insns",
    "inclusive_insns_before",
    "inclusive_insns",
    "self_insns_change_per_packet",
    "verdict",
];

/// The functions of all classes, or those of one layer, as CSV (RFC 4180). The
/// verdict is the function's in all its contexts.
pub fn render(diff: &Diff<'_>, layer: Option<&str>) -> String {
    let mut sheet = Sheet::new(HEADER);
    for class in &diff.classes {
        for function in &class.functions {
            let joint = &diff.functions.joints[function.function as usize];
            if layer.is_some_and(|l| joint.layer != l) {
                continue;
            }
            for (context, [calls, own, inclusive]) in &function.contexts {
                sheet.row([
                    diff.sides.before.arms[class.arms.before].name.clone(),
                    diff.sides.after.arms[class.arms.after].name.clone(),
                    class.before.to_string(),
                    class.after.to_string(),
                    context.to_string(),
                    joint.was.as_ref().unwrap_or(&joint.name).clone(),
                    joint.name.clone(),
                    joint.module.clone().unwrap_or_default(),
                    joint.layer.clone(),
                    joint.status().to_string(),
                    own.before.packets.to_string(),
                    own.after.packets.to_string(),
                    calls.before.sum.to_string(),
                    calls.after.sum.to_string(),
                    own.before.sum.to_string(),
                    own.after.sum.to_string(),
                    inclusive.before.sum.to_string(),
                    inclusive.after.sum.to_string(),
                    format!("{:.4}", own.delta().value()),
                    function.verdict.as_str().to_string(),
                ]);
            }
        }
    }
    sheet.finish()
}
