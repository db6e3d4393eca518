//! Time of source lines, from a recording of samples, beside the instructions of the same lines in another.

use std::collections::BTreeMap;

use netplumb_model::chain;
use netplumb_model::recording::{FunctionId, Recording, SourceLine};

use crate::analysis::{ClassView, classes};
use crate::number::{counted, printable};
use crate::source::of_class;

/// Time of the lines of a function.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LineTimes {
    /// Nanoseconds by file and line.
    lines: BTreeMap<(String, u32), u64>,
    /// Nanoseconds of the function itself, including time of no known line.
    whole_ns: u64,
    /// How many samples `whole_ns` is from.
    samples: u64,
    /// The name of the arm that was sampled, such as a command.
    arm: String,
}

impl LineTimes {
    /// Line times of the functions that a name means; none if they have no time, or no lines are known.
    pub fn from_recording(recording: &Recording, name: &str) -> Option<LineTimes> {
        let functions = chain::functions(recording, name);
        let mut times = LineTimes::default();
        for class in classes(recording) {
            if class.is_exact() || class.quantity.unit != "ns" {
                continue;
            }
            times.arm.clone_from(&class.arm().name);
            let mut by_function = of_class(&class);
            for function in &functions {
                times.add(&class, *function, by_function.remove(function));
            }
        }
        (!times.lines.is_empty()).then_some(times)
    }

    fn add(
        &mut self,
        class: &ClassView<'_>,
        function: FunctionId,
        lines: Option<BTreeMap<SourceLine, u64>>,
    ) {
        let own = class.functions.iter().find(|f| f.function == function);
        self.whole_ns += own.map_or(0, |own| own.self_insns);
        self.samples += own.map_or(0, |own| own.calls);
        for (source, ns) in lines.into_iter().flatten() {
            if let Some((file, line)) = class.recording.source(source) {
                *self.lines.entry((file.to_string(), line)).or_default() += ns;
            }
        }
    }

    /// How many samples there are, as a line of text.
    pub(crate) fn times_text(&self) -> String {
        format!(
            "  time by {} of {}\n",
            counted(self.samples as usize, "sample"),
            printable(&self.arm, 60)
        )
    }

    /// Of a line of another recording.
    fn ns(&self, recording: &Recording, source: SourceLine) -> u64 {
        let key = recording.source(source);
        let key = key.map(|(file, line)| (file.to_string(), line));
        key.and_then(|key| self.lines.get(&key)).copied().unwrap_or(0)
    }

    /// The same as a part of the function's time.
    pub(crate) fn share(&self, recording: &Recording, source: SourceLine) -> f64 {
        self.ns(recording, source) as f64 / self.whole_ns.max(1) as f64
    }

    /// Nanoseconds for each instruction of a line, given its instructions in a run: only where a run of
    /// the same command was sampled.
    pub(crate) fn per_insn(
        &self,
        class: &ClassView<'_>,
        source: SourceLine,
        insns: u64,
    ) -> Option<f64> {
        let is_same = class.is_exact() && class.arm().name == self.arm;
        let of_run = class.per.each(insns as f64);
        (is_same && of_run > 0.0).then(|| self.ns(class.recording, source) as f64 / of_run)
    }

    /// Whether [`LineTimes::per_insn`] is known for a class.
    pub(crate) fn is_of(&self, class: &ClassView<'_>) -> bool {
        class.is_exact() && class.arm().name == self.arm
    }
}

#[cfg(test)]
mod tests {
    use netplumb_model::class::{Context, Direction, Family, Link, Proto};
    use netplumb_model::quantity::Declared;
    use netplumb_model::recording::{
        Arm, Block, Cost, Function, Ledger, LineCost, Node, SourceLine,
    };
    use netplumb_model::timing::{CPU_TIME, INSTRUCTIONS};

    use super::*;
    use crate::{asm, lines};

    /// A run of `./w`, whose function `work` has two lines with these costs of a quantity.
    fn recording(quantity: &Declared, costs: [u64; 2]) -> Recording {
        let mut recording = Recording {
            arms: vec![Arm {
                name: "./w".into(),
                proto: match quantity == &INSTRUCTIONS {
                    true => Proto::Command,
                    false => Proto::Work,
                },
                family: Family::V4,
                link: Link::Any,
                forward: false,
                size_bytes: 0,
                knobs: Default::default(),
                made: None,
            }],
            blocks: vec![Block {
                arm: 0,
                instrument: quantity.instrument.into(),
                index: 0,
                ledger: Ledger { offered: 1, delivered: 1, ..Ledger::default() },
                totals: Vec::new(),
                entered: 0,
                returned: 0,
                duration_ns: 1_000_000_000,
            }],
            functions: vec![Function {
                name: "work".into(),
                module: Some("/x/w".into()),
                layer: Some("application".into()),
                address: 0x1000,
                size_bytes: 16,
                source: Some(SourceLine { file: 0, line: 1 }),
            }],
            nodes: vec![Node { parent: None, function: 0, tail: false }],
            source_files: vec!["/src/w.c".into()],
            ..Recording::default()
        };
        let quantity = recording.quantity(quantity);
        recording.costs.push(Cost {
            block: 0,
            quantity,
            direction: Direction::Run,
            context: Context::Task,
            node: 0,
            calls: 1,
            own: costs.iter().sum(),
        });
        for (line, own) in (2..).zip(costs) {
            recording.line_costs.push(LineCost {
                block: 0,
                function: 0,
                source: SourceLine { file: 0, line },
                own,
            });
        }
        recording
    }

    /// Check that lines of counts have the time of the same lines, as a share and for each instruction,
    /// and no time for each instruction of another command.
    #[test]
    fn beside_counts() {
        let counts = recording(&INSTRUCTIONS, [1_000, 3_000]);
        let samples = recording(&CPU_TIME, [6_000, 2_000]);
        let times = LineTimes::from_recording(&samples, "work").unwrap();
        assert_eq!(LineTimes::from_recording(&samples, "main"), None);
        assert_eq!(LineTimes::from_recording(&counts, "work"), None);
        let views = classes(&counts);
        let text = lines::render(&views[0], 0, 110, true, false, Some(&times));
        let row = |line: &str| -> Vec<&str> {
            let mut rows = text.lines().map(str::split_whitespace);
            let found = rows.find(|row| row.clone().next() == Some(line));
            found.unwrap().collect()
        };
        assert!(text.contains("time by 1 sample of ./w"), "{text}");
        assert_eq!(row("2"), ["2", "1,000", "25.0%", "75.0%", "6.00"], "{text}");
        assert_eq!(row("3"), ["3", "3,000", "75.0%", "25.0%", "0.67"], "{text}");
        let other = LineTimes { arm: "./other".into(), ..times.clone() };
        let text = lines::render(&views[0], 0, 110, true, false, Some(&other));
        assert!(text.contains("time") && !text.contains("ns each"), "{text}");
    }

    /// Check that the time of a line is above its instructions.
    #[test]
    fn beside_instructions() {
        let mut counts = recording(&INSTRUCTIONS, [1_000, 3_000]);
        let at = |offset, code: &[u8], line| {
            let insn = netplumb_model::code::Instruction::new(offset, code, 3).unwrap();
            insn.at(Some(SourceLine { file: 0, line }))
        };
        counts.code.push(netplumb_model::code::FunctionCode {
            arm: 0,
            function: 0,
            address: 0x1000,
            insns: vec![at(0, &[0xff, 0xcf], 2), at(2, &[0xc3], 3)],
        });
        let samples = recording(&CPU_TIME, [6_000, 2_000]);
        let times = LineTimes::from_recording(&samples, "work").unwrap();
        let views = classes(&counts);
        let text = asm::render(&views[0], 0, false, Some(&times));
        assert!(text.contains("w.c:2  75.0% of the time"), "{text}");
        assert!(text.contains("w.c:3  25.0% of the time"), "{text}");
        let alone = asm::render(&views[0], 0, false, None);
        assert!(!alone.contains("w.c"), "{alone}");
    }
}
