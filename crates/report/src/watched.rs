//! The figures of a live view of counts and of samples: how often each event happens, and where the
//! time goes, each with its history by block.

use netplumb_model::recording::Recording;
use netplumb_stats::welch::Mean;

use crate::analysis::ClassView;
use crate::events::counted::EventCount;
use crate::events::rows::counts;

/// The unit of figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Events per second.
    PerSecond,
    /// CPUs that are busy.
    Cpus,
    /// Parts of the whole.
    Share,
}

/// An event or a function.
#[derive(Debug, Clone, PartialEq)]
pub struct Watched {
    /// As in the recording: an event's, or a function's symbol.
    pub name: String,
    /// The unit of its figures.
    pub unit: Unit,
    /// Over all blocks: the number of events, or nanoseconds.
    pub total: f64,
    /// The rate or share over all blocks.
    pub figure: f64,
    /// The 95% interval of `figure`; none with a single block.
    pub interval: Option<(f64, f64)>,
    /// The figure in each block, the latest last.
    pub history: Vec<f64>,
}

impl Watched {
    /// The figure in the latest block.
    pub fn latest(&self) -> f64 {
        self.history.last().copied().unwrap_or(0.0)
    }
}

/// The ends of a mean's interval.
fn ends(mean: Option<Mean>) -> Option<(f64, f64)> {
    let mean = mean?;
    mean.low.zip(mean.high)
}

/// Events, those that happen most often first; clocks before them.
pub fn events(recording: &Recording) -> Vec<Watched> {
    let all = counts(recording).into_iter();
    let mut all: Vec<Watched> = all
        .filter(|counted| !counted.is_part())
        .map(|counted| event(recording, &counted))
        .collect();
    let is_clock = |event: &Watched| event.unit == Unit::Cpus;
    all.sort_by(|a, b| {
        let by_figure = b.figure.total_cmp(&a.figure);
        is_clock(b).cmp(&is_clock(a)).then(by_figure)
    });
    all
}

fn event(recording: &Recording, counted: &EventCount<'_>) -> Watched {
    let blocks = recording.blocks.iter();
    let seconds = blocks
        .filter(|b| {
            b.arm as usize == counted.arm && b.instrument == netplumb_model::events::INSTRUMENT
        })
        .map(|block| block.duration_ns as f64 / 1e9);
    let (scale, unit) = match counted.is_time {
        true => (1e-9, Unit::Cpus),
        false => (1.0, Unit::PerSecond),
    };
    let rate = |value: f64, seconds: f64| match seconds > 0.0 {
        true => value * scale / seconds,
        false => 0.0,
    };
    let history = counted.values.iter().zip(seconds);
    let history: Vec<f64> = history.map(|(value, s)| rate(*value, s)).collect();
    Watched {
        name: counted.name.into(),
        unit,
        total: counted.total(),
        figure: rate(counted.total(), counted.seconds),
        interval: ends(Mean::from_values(&history)),
        history,
    }
}

/// The functions of a class with the highest own cost, as shares of the class.
pub fn functions(class: &ClassView<'_>, top: usize) -> Vec<Watched> {
    let part = |own: u64, of: u64| match of {
        0 => 0.0,
        of => own as f64 / of as f64,
    };
    let whole = class.mean(&class.by_block).map_or(0.0, |mean| mean.value);
    let functions = class.functions.iter().filter(|f| f.self_insns > 0);
    let one = |function: &crate::analysis::FunctionView| {
        let each = class.spread.get(&function.function);
        let each = each.map(Vec::as_slice).unwrap_or_default();
        let mean = class.mean(each).filter(|_| whole > 0.0);
        Watched {
            name: class.name(function.function).into(),
            unit: Unit::Share,
            total: function.self_insns as f64,
            figure: part(function.self_insns, class.total),
            interval: ends(mean).map(|(low, high)| (low / whole, (high / whole).min(1.0))),
            history: (each.iter().zip(&class.by_block)).map(|(own, of)| part(*own, *of)).collect(),
        }
    };
    functions.take(top).map(one).collect()
}

#[cfg(test)]
mod tests {
    use netplumb_model::class::{Context, Direction, Family, Link, Proto};
    use netplumb_model::events::{COUNT, INSTRUMENT, TIME};
    use netplumb_model::quantity::{FigureKey, Subject};
    use netplumb_model::recording::{Arm, Block, Cost, Function, Ledger, Node};
    use netplumb_model::timing::CPU_TIME;

    use super::*;
    use crate::analysis::classes;

    fn recording(instrument: &str, lengths_ns: &[u64]) -> Recording {
        let blocks = (0..).zip(lengths_ns).map(|(index, length_ns)| Block {
            arm: 0,
            instrument: instrument.into(),
            index,
            ledger: Ledger::default(),
            totals: Vec::new(),
            entered: 0,
            returned: 0,
            duration_ns: *length_ns,
        });
        Recording {
            arms: vec![Arm {
                name: "all CPUs".into(),
                proto: Proto::Work,
                family: Family::V4,
                link: Link::Any,
                forward: false,
                size_bytes: 0,
                knobs: Default::default(),
                made: None,
            }],
            blocks: blocks.collect(),
            ..Recording::default()
        }
    }

    /// Check that rates are by the length of each block, that the whole is by their total length, and that
    /// clocks are CPUs and come first.
    #[test]
    fn rates_of_events() {
        let mut recording = recording(INSTRUMENT, &[1_000_000_000, 2_000_000_000]);
        for (block, faults, ns) in [(0, 100.0, 5e8), (1, 400.0, 3e9)] {
            recording.add(Subject::Block(block), &COUNT, FigureKey::label("page-faults"), faults);
            recording.add(
                Subject::Block(block),
                &COUNT,
                FigureKey::numbered(0, "page-faults"),
                faults,
            );
            recording.add(Subject::Block(block), &TIME, FigureKey::label("task-clock"), ns);
        }
        let [clock, faults] = &events(&recording)[..] else {
            panic!("two events");
        };
        assert_eq!((clock.name.as_str(), clock.unit), ("task-clock", Unit::Cpus));
        assert_eq!(clock.history, [0.5, 1.5]);
        assert_eq!(faults.history, [100.0, 200.0]);
        assert!((faults.figure - 500.0 / 3.0).abs() < 1e-9);
        assert_eq!(faults.latest(), 200.0);
        let (low, high) = faults.interval.unwrap();
        assert!(low < faults.figure && faults.figure < high);
    }

    /// Check that functions are shares of all, by block too, with an interval around them.
    #[test]
    fn shares_of_functions() {
        let mut recording = recording("samples", &[1_000_000_000, 1_000_000_000]);
        let quantity = recording.quantity(&CPU_TIME);
        for (function, name) in (0..).zip(["hot", "cold"]) {
            recording.functions.push(Function {
                name: name.into(),
                module: None,
                layer: None,
                address: 0,
                size_bytes: 0,
                source: None,
            });
            recording.nodes.push(Node { parent: None, function, tail: false });
        }
        for (block, node, own) in [(0, 0, 60), (0, 1, 40), (1, 0, 90), (1, 1, 10)] {
            recording.costs.push(Cost {
                block,
                quantity,
                direction: Direction::Run,
                context: Context::Task,
                node,
                calls: 1,
                own,
            });
        }
        let views = classes(&recording);
        let hot = functions(&views[0], 1);
        assert_eq!(hot.len(), 1);
        assert_eq!((hot[0].name.as_str(), hot[0].figure), ("hot", 0.75));
        assert_eq!(hot[0].history, [0.6, 0.9]);
        let (low, high) = hot[0].interval.unwrap();
        assert!(low < 0.75 && high > 0.75 && high <= 1.0);
    }
}
