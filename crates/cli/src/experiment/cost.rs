//! The overhead of measuring: blocks with probes compared to blocks without.

use netplumb_engine::live::PROBES_OFF;
use netplumb_model::quantity::Declared;
use netplumb_model::recording::Recording;
use netplumb_model::timing::{BUSY, DELIVERED, LATENCY_P50, LATENCY_P99};

/// The compared figures, and their names.
const FIGURES: &[(Declared, &str)] = &[
    (DELIVERED, "throughput"),
    (BUSY, "CPUs busy"),
    (LATENCY_P50, "latency, p50"),
    (LATENCY_P99, "latency, p99"),
];

/// The fact that has the -icount shift of guests, by link.
const ICOUNT_SHIFT: &str = "vm.icount_shift.";

/// Print it.
pub(super) fn tell(recording: &Recording, for_programs: bool) {
    let instruments = recording.instruments();
    let text: String = match instruments[..] {
        [_, _, ..] => (instruments.iter())
            .map(|name| format!("{name}: {}", render(&recording.part(name))))
            .collect(),
        _ => render(recording),
    };
    if for_programs {
        // Standard output is for what programs read; the counters are in there.
        eprint!("{text}");
    } else {
        print!("{text}");
    }
}

/// A line for each arm and figure: without probes, with them, and the change.
fn render(recording: &Recording) -> String {
    let mut text = String::new();
    for (arm, with) in recording.arms.iter().enumerate() {
        let name = format!("{} {}={}", with.name, PROBES_OFF.0, PROBES_OFF.1);
        let Some(bare) = recording.arms.iter().position(|a| a.name == name) else {
            continue;
        };
        text.push_str(&format!(
            "overhead of measuring, {}\n  {:<16} {:>14} {:>14} {:>9}\n",
            with.name, "", "without", "measured", "change"
        ));
        for (quantity, what) in FIGURES {
            let unit = quantity.unit;
            let of = |arm| median(values(recording, arm, quantity));
            if let (Some(without), Some(with)) = (of(bare), of(arm)) {
                let change = match without > 0.0 {
                    true => format!("{:+.1} %", (with / without - 1.0) * 100.0),
                    false => "-".into(),
                };
                let digits = if unit == "CPUs" { 2 } else { 0 };
                text.push_str(&format!(
                    "  {what:<16} {without:>14.digits$} {with:>14.digits$} {change:>9}  {unit}, \
                     median of blocks\n"
                ));
            }
        }
        text.push('\n');
    }
    if let Some(clock) = guests_clock(recording).filter(|_| !text.is_empty()) {
        text.truncate(text.trim_end().len());
        text.push_str(&format!("\n  {clock}\n\n"));
    }
    text
}

/// A note on the clock of guests with -icount.
fn guests_clock(recording: &Recording) -> Option<String> {
    let facts = &recording.environment;
    let shifts =
        facts.iter().filter_map(|(key, shift)| Some((key.strip_prefix(ICOUNT_SHIFT)?, shift)));
    let each: Vec<String> = shifts
        .map(|(link, shift)| {
            let ns = 1_u64 << shift.parse::<u32>().unwrap_or(0).min(63);
            format!("{ns} ns ({link})")
        })
        .collect();
    (!each.is_empty()).then(|| {
        format!(
            "the guest's clock advances by {} per instruction (-icount): the overhead is the number of\n  \
             instructions added, and is the same in every run",
            each.join(", ")
        )
    })
}

fn values(recording: &Recording, arm: usize, quantity: &Declared) -> Vec<f64> {
    let of_arm = |block: u32| {
        let block = recording.blocks.get(block as usize);
        block.is_some_and(|b| b.arm as usize == arm)
    };
    let all = recording.scalars_of(quantity);
    let of = all.filter(|s| s.block().is_some_and(of_arm));
    of.map(|s| s.value).collect()
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    Some((values[last / 2] + values[last.div_ceil(2)]) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the middle of odd, even and no numbers.
    #[test]
    fn medians() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
