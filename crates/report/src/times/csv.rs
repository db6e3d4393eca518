//! Times as CSV: a line for each class and function, and for each class and stage.

use super::analysis::{PERCENTILES, TimedClass, percentile};
use crate::sheet::Sheet;

/// The table, with a heading.
pub fn render(classes: &[TimedClass<'_>], layer: Option<&str>) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for class in classes {
        let arm = &class.arm().name;
        let head = |kind: &str, name: &str, module: &str, layer: &str| {
            vec![
                arm.clone(),
                class.class.to_string(),
                kind.into(),
                name.into(),
                module.into(),
                layer.into(),
            ]
        };
        for function in class.functions_of(layer) {
            let data = &class.recording.functions[function.function as usize];
            let module = data.module.as_deref().unwrap_or_default();
            let of = data.layer.as_deref().unwrap_or_default();
            let mut row = head("function", &data.name, module, of);
            let each = |sum: f64| format!("{:.3}", class.per.each(sum));
            row.push(function.times.count.to_string());
            for (_, share) in PERCENTILES {
                row.push(told(function.percentile(share)));
            }
            row.extend([
                told(Some(function.max_ns())),
                told(Some(function.raw_mean_ns())),
                told(Some(function.mean_ns())),
                each(function.raw_ns),
                each(function.corrected_ns),
                each(function.self_ns),
                each(function.uncertainty_ns),
                class.per.word().into(),
            ]);
            rows.push(row);
        }
        for stage in class.stages.iter().filter(|_| layer.is_none()) {
            let mut row = head(stage.kind.as_str(), &stage.name, "", "");
            row.push(stage.times.count.to_string());
            for (_, share) in PERCENTILES {
                row.push(told(percentile(&stage.times, share)));
            }
            let mean = stage.times.total_ns as f64 / stage.times.count.max(1) as f64;
            let each = format!("{:.3}", stage.mean_ns());
            row.extend([
                stage.max_ns().map_or_else(String::new, |ns| ns.to_string()),
                told(Some(mean)),
                told(Some(mean)),
                each.clone(),
                each.clone(),
                each,
                String::new(),
                "packet".into(),
            ]);
            rows.push(row);
        }
    }
    let mut header = vec!["arm", "class", "kind", "name", "module", "layer", "count"];
    let percentiles: Vec<String> = PERCENTILES
        .iter()
        .map(|(name, _)| format!("{}_ns", name.replace('.', "_")))
        .collect();
    header.extend(percentiles.iter().map(String::as_str));
    header.extend([
        "max_ns",
        "raw_ns_per_call",
        "corrected_ns_per_call",
        "raw_ns",
        "corrected_ns",
        "self_ns",
        "self_uncertainty_ns",
        "per",
    ]);
    let mut sheet = Sheet::new(header);
    for row in rows {
        sheet.row(row);
    }
    sheet.finish()
}

fn told(value: Option<f64>) -> String {
    value.map_or_else(String::new, |v| format!("{v:.1}"))
}
