//! The blocks of a bench as CSV has them.

use netplumb_model::bench::BlockRates;
use netplumb_model::recording::Recording;

use super::blocks_of;
use super::explain::{Unit, explained};
use crate::section::Section;
use crate::table::{Column, Table, Value};

struct BlockLine {
    arm: String,
    block: usize,
    of: BlockFigures,
}

/// What a line of CSV has of a block.
enum BlockFigures {
    Rates(Box<BlockRates>),
    /// Only the cost of a packet along its path.
    Own(Unit, f64),
}

impl BlockLine {
    /// A cell that only rates have.
    fn rates(&self, of: impl Fn(&BlockRates) -> Value) -> Value {
        match &self.of {
            BlockFigures::Rates(measured) => of(measured),
            BlockFigures::Own(..) => Value::Missing,
        }
    }

    fn own(&self, unit: Unit) -> Value {
        match self.of {
            BlockFigures::Own(of, own) if of == unit => Value::Number(own),
            _ => Value::Missing,
        }
    }
}

/// A figure, with three decimals.
fn figure<'t>(key: &'static str, of: fn(&BlockRates) -> f64) -> Column<'t, BlockLine> {
    known(key, move |m| Some(of(m)))
}

/// The same for a figure that may not be known.
fn known<'t>(
    key: &'static str,
    of: impl Fn(&BlockRates) -> Option<f64> + 't,
) -> Column<'t, BlockLine> {
    let value = move |line: &BlockLine| line.rates(|m| of(m).map_or(Value::Missing, Value::Number));
    Column::machine(value).csv(key).digits(3)
}

fn columns<'t>() -> Vec<Column<'t, BlockLine>> {
    let is_valid = |line: &BlockLine| match &line.of {
        BlockFigures::Rates(measured) => measured.invalid().is_none(),
        BlockFigures::Own(..) => true,
    };
    let bound = |m: &BlockRates| m.is_generator_bound().map_or(Value::Missing, Value::Flag);
    vec![
        Column::machine(|l: &BlockLine| Value::Text(l.arm.clone())).csv("arm"),
        Column::machine(|l: &BlockLine| Value::Count(l.block as u64)).csv("block"),
        Column::machine(move |l: &BlockLine| Value::Flag(is_valid(l))).csv("valid"),
        Column::machine(|l: &BlockLine| l.rates(|m| Value::words(m.invalid().as_deref())))
            .csv("why_not"),
        Column::machine(|l: &BlockLine| l.rates(|m| Value::Count(m.window_ns))).csv("window_ns"),
        figure("offered_pps", BlockRates::offered_pps),
        figure("sent_pps", BlockRates::sent_pps),
        figure("handled_pps", BlockRates::handled_pps),
        known("handled_bytes_per_s", BlockRates::handled_bytes_per_s),
        known("cpu_ns_per_packet", BlockRates::cpu_ns_per_packet),
        known("wall_ns_per_packet", BlockRates::wall_ns_per_packet),
        figure("loss", BlockRates::loss).digits(9),
        figure("busy_cpus", BlockRates::busy_cpus).digits(4),
        known("limit_pps", BlockRates::limit_pps),
        Column::machine(move |l: &BlockLine| l.rates(bound)).csv("generator_bound"),
        Column::machine(|l: &BlockLine| l.own(Unit::Instructions))
            .csv("path_insns_per_packet")
            .digits(3),
        Column::machine(|l: &BlockLine| l.own(Unit::Nanoseconds))
            .csv("path_ns_per_packet")
            .digits(3),
    ]
}

/// All of them.
pub(super) fn section(recording: &Recording) -> Section<'_> {
    Section::rows(0, move |_| Table::new(columns(), rows(recording)))
}

fn rows(recording: &Recording) -> Vec<BlockLine> {
    let rates = blocks_of(recording).map(|(block, measured)| {
        let arm = recording.arms.get(block.arm as usize);
        BlockLine {
            arm: arm.map_or_else(String::new, |a| a.name.clone()),
            block: block.index as usize,
            of: BlockFigures::Rates(Box::new(measured)),
        }
    });
    let explained = explained(recording);
    let costs = explained.iter().flat_map(|path| {
        let own = path.own_of_blocks.iter().enumerate();
        own.map(|(block, own)| BlockLine {
            arm: path.path.clone(),
            block,
            of: BlockFigures::Own(path.unit, *own),
        })
    });
    rates.chain(costs).collect()
}
