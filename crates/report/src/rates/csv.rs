//! A bench as CSV: a line for each block.

use netplumb_model::bench::Measured;
use netplumb_model::recording::Recording;

use super::blocks;
use super::explain::{Unit, explained};
use crate::table::{Column, Table, Value};

/// A block.
struct Line {
    arm: String,
    block: usize,
    of: Of,
}

/// What is told of it.
enum Of {
    /// Its rates.
    Rates(Box<Measured>),
    /// What a packet costs along its path, and nothing else.
    Own(Unit, f64),
}

impl Line {
    /// Of rates.
    fn rates(&self, of: impl Fn(&Measured) -> Value) -> Value {
        match &self.of {
            Of::Rates(measured) => of(measured),
            Of::Own(..) => Value::Missing,
        }
    }

    fn own(&self, unit: Unit) -> Value {
        match self.of {
            Of::Own(of, own) if of == unit => Value::Number(own),
            _ => Value::Missing,
        }
    }
}

/// A figure, with three decimals.
fn figure<'t>(key: &'static str, of: fn(&Measured) -> f64) -> Column<'t, Line> {
    known(key, move |m| Some(of(m)))
}

/// The same of what may not be known.
fn known<'t>(key: &'static str, of: impl Fn(&Measured) -> Option<f64> + 't) -> Column<'t, Line> {
    let value = move |line: &Line| line.rates(|m| of(m).map_or(Value::Missing, Value::Number));
    Column::machine(value).csv(key).digits(3)
}

fn columns<'t>() -> Vec<Column<'t, Line>> {
    let is_valid = |line: &Line| match &line.of {
        Of::Rates(measured) => measured.invalid().is_none(),
        Of::Own(..) => true,
    };
    let bound = |m: &Measured| m.is_generator_bound().map_or(Value::Missing, Value::Flag);
    vec![
        Column::machine(|l: &Line| Value::Text(l.arm.clone())).csv("arm"),
        Column::machine(|l: &Line| Value::Count(l.block as u64)).csv("block"),
        Column::machine(move |l: &Line| Value::Flag(is_valid(l))).csv("valid"),
        Column::machine(|l: &Line| l.rates(|m| Value::words(m.invalid().as_deref())))
            .csv("why_not"),
        Column::machine(|l: &Line| l.rates(|m| Value::Count(m.window_ns))).csv("window_ns"),
        figure("offered_pps", Measured::offered_pps),
        figure("sent_pps", Measured::sent_pps),
        figure("handled_pps", Measured::handled_pps),
        known("handled_bytes_per_s", Measured::handled_bytes_per_s),
        known("cpu_ns_per_packet", Measured::cpu_ns_per_packet),
        known("wall_ns_per_packet", Measured::wall_ns_per_packet),
        figure("loss", Measured::loss).digits(9),
        figure("busy_cpus", Measured::busy_cpus).digits(4),
        known("limit_pps", Measured::limit_pps),
        Column::machine(move |l: &Line| l.rates(bound)).csv("generator_bound"),
        Column::machine(|l: &Line| l.own(Unit::Instructions))
            .csv("path_insns_per_packet")
            .digits(3),
        Column::machine(|l: &Line| l.own(Unit::Nanoseconds)).csv("path_ns_per_packet").digits(3),
    ]
}

/// The table, with a heading.
pub fn render(recording: &Recording) -> String {
    let rates = blocks(recording).map(|(block, measured)| {
        let arm = recording.arms.get(block.arm as usize);
        Line {
            arm: arm.map_or_else(String::new, |a| a.name.clone()),
            block: block.index as usize,
            of: Of::Rates(Box::new(measured)),
        }
    });
    let explained = explained(recording);
    let costs = explained.iter().flat_map(|path| {
        let own = path.own_of_blocks.iter().enumerate();
        own.map(|(block, own)| Line { arm: path.path.clone(), block, of: Of::Own(path.unit, *own) })
    });
    Table::new(columns(), rates.chain(costs)).csv()
}
