//! The former format of bench files, which older recordings contain.

use toml::{Table, Value};

/// Former keys, and how they are written now.
const NEW: &[(&str, &str)] = &[
    ("apart", "[figure.knobs] apart = \"on\""),
    ("bench", "[figure.knobs] bench = \"drop\""),
    ("cores", "[figure.vary] cores = [1, 2]; in a claim where = { cores = 1 }"),
    ("flows", "[figure.vary] flows = [1, 64]"),
    ("frames", "[workload] kind = \"frames\", and [knobs] frames = \"udp\""),
    ("paths", "[figure.vary] path = [\"xdp\", \"tc\"]"),
    ("rate", "[figure.vary] rate = [\"50k\", \"1M\"]"),
    ("size", "[figure.vary] size = [60, \"imix\"]"),
    ("time_ms", "time = \"500ms\""),
    ("warmup_ms", "warmup = \"200ms\""),
];

/// How a former key is written now.
pub(super) fn instead_of(key: &str) -> Option<&'static str> {
    let found = NEW.iter().find(|(old, _)| *old == key);
    found.map(|(_, new)| *new)
}

/// The text of an experiment in the present format.
pub fn current(text: &str) -> String {
    // Errors are left to the parser of experiments.
    let Ok(table) = text.parse::<Table>() else {
        return text.to_string();
    };
    match is_old(&table) {
        true => rewritten(table).map_or_else(|| text.to_string(), |new| new.to_string()),
        false => text.to_string(),
    }
}

fn is_old(table: &Table) -> bool {
    let figures = table.get("figure").and_then(Value::as_array);
    figures.is_some_and(|figures| figures.iter().any(|f| f.get("paths").is_some()))
}

fn rewritten(mut table: Table) -> Option<Table> {
    table.insert("lab".into(), "netns".into());
    let workload = Table::from_iter([("kind".to_string(), Value::from("frames"))]);
    table.insert("workload".into(), workload.into());
    let mut knobs = Table::new();
    if let Some(Value::Table(frames)) = table.remove("frames") {
        for (key, value) in frames {
            let key = if key == "kind" { "frames".into() } else { key };
            knobs.insert(key, value);
        }
    }
    table.insert("knobs".into(), knobs.into());
    if let Some(Value::Table(blocks)) = table.get_mut("blocks") {
        for (old, new) in [("time_ms", "time"), ("warmup_ms", "warmup")] {
            if let Some(ms) = blocks.remove(old) {
                blocks.insert(new.into(), format!("{ms}ms").into());
            }
        }
    }
    for figure in table.get_mut("figure")?.as_array_mut()? {
        let figure = figure.as_table_mut()?;
        let (mut knobs, mut vary) = (Table::new(), Table::new());
        if let Some(bench) = figure.remove("bench") {
            knobs.insert("bench".into(), bench);
        }
        if let Some(apart) = figure.remove("apart") {
            knobs.insert("apart".into(), apart);
        }
        if let Some(paths) = figure.remove("paths") {
            vary.insert("path".into(), paths);
        }
        for key in ["cores", "size", "flows", "rate"] {
            if let Some(levels) = figure.remove(key) {
                vary.insert(key.into(), levels);
            }
        }
        let y = match figure.get("y").and_then(Value::as_str) {
            Some("cpu") => "CPU use",
            _ => "handled",
        };
        figure.insert("y".into(), y.into());
        figure.insert("knobs".into(), knobs.into());
        figure.insert("vary".into(), vary.into());
    }
    if let Some(Value::Array(claims)) = table.get_mut("claim") {
        for claim in claims.iter_mut().filter_map(Value::as_table_mut) {
            if let Some(cores) = claim.remove("cores") {
                let levels = Table::from_iter([("cores".to_string(), cores)]);
                claim.insert("where".into(), levels.into());
            }
        }
    }
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::super::Experiment;
    use super::*;

    const OLD: &str = r#"
name = "small"

[frames]
kind = "tcp-syn"

[blocks]
time_ms = 1000

[[figure]]
name = "3"
title = "by cores"
bench = "drop"
paths = ["xdp", "tc"]
x = "cores"
y = "packets"
cores = [1, 2]
published = [{ label = "XDP", x = 1, y = 24e6 }]

[[figure]]
name = "4"
title = "by load"
bench = "drop"
paths = ["xdp"]
x = "rate"
y = "cpu"
rate = ["100k", "1M"]
apart = true

[[claim]]
kind = "faster"
says = "XDP is ahead"
figure = "3"
path = "xdp"
than = "tc"
cores = 1
"#;

    /// Check that an old file becomes an experiment with the same arms, figures and claims, that
    /// current files are not changed, and that the old spelling is refused with the new one.
    #[test]
    fn old_benches() {
        let new = current(OLD);
        let experiment = Experiment::parse(&new).unwrap();
        assert_eq!(current(&new), new);
        assert_eq!(current("name = \"x\"\n"), "name = \"x\"\n");
        assert_eq!(current("no experiment"), "no experiment");
        let names: Vec<String> = experiment.arms().into_iter().map(|a| a.name).collect();
        assert_eq!(names.len(), 2 * 2 + 2, "{names:?}");
        let loads = experiment.arms_of(&experiment.figures[1]);
        assert_eq!(loads[1].knobs["rate"], "1M");
        assert_eq!(loads[1].knobs["apart"], "on");
        assert!(loads.iter().all(|arm| arm.knobs["frames"] == "tcp-syn"));
        assert_eq!(experiment.figures[1].y, "CPU use");
        assert_eq!(experiment.claims.len(), 1);
        let error = Experiment::parse(OLD).unwrap_err();
        assert!(error.to_string().contains("\n  use "), "{error}");
        let error = Experiment::parse("name = \"x\"\n[blocks]\ntime_ms = 5\n").unwrap_err();
        assert_eq!(error.line, 3);
        assert!(error.to_string().contains("time = \"500ms\""), "{error}");
    }
}
