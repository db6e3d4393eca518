//! Blocks of long runs are merged as they get many, so that a recording is bounded however long the
//! run is: consecutive blocks of an arm become one, twice as long, and so on. All blocks but the
//! last of each arm stay equally long, so that they remain the unit of statistics.

use std::collections::BTreeMap;

use super::{Block, BlockHop, Recording};
use crate::loss::Loss;
use crate::quantity::{Declared, FigureKey, Kind, Quantity, QuantityId, Scalar, Subject};
use crate::span::{Span, SpanOf};
use crate::timing::{LATENCY_P50, LATENCY_P99, PERIOD};
use crate::trace::Trace;
use crate::tree::{Cost, LineCost};

/// The most blocks of an arm and instrument in the recording of a long run. When there are as many,
/// each two are merged. Even, so that all have a partner.
pub const MAX_BLOCKS: u32 = 128;

/// Measured blocks that a block was merged of, in a long run.
pub const MERGED: Declared = Declared::new("run", "measured blocks", "blocks", Kind::Count);
/// When a block of a long run ended: time that the run had been measuring, without interruptions of
/// the run itself.
pub const INTO_RUN: Declared = Declared::new("run", "time into the run", "ns", Kind::Duration);
/// Sessions of a long run: 1, and one more each time that it was resumed.
pub const SESSIONS: Declared = Declared::new("run", "sessions", "sessions", Kind::Count);
/// The cause of the loss of the times of samples, whose counts are kept.
const TIMES_OF_SAMPLES: &str = "times of samples in merged blocks";

impl Recording {
    /// Halve the indices of blocks from `from` on `halvings` times, and merge blocks of one arm, instrument and index:
    /// costs, distributions, ledgers and counts add up; rates, shares and quantiles become means weighted by duration.
    /// Samples lose their times, counted as a loss.
    pub fn merge_blocks(&mut self, from: u32, halvings: u32) {
        for block in self.blocks.iter_mut().skip(from as usize) {
            block.index = block.index.checked_shr(halvings).unwrap_or(0);
        }
        // Where each block goes; `first` is the first that another is merged into.
        let mut known: BTreeMap<(u32, &str, u32), u32> = BTreeMap::new();
        let mut numbers: Vec<u32> = Vec::with_capacity(self.blocks.len());
        let mut first = u32::MAX;
        let mut next = 0;
        for block in &self.blocks {
            let key = (block.arm, block.instrument.as_str(), block.index);
            let number = *known.entry(key).or_insert(next);
            match number == next {
                true => next += 1,
                false => first = first.min(number),
            }
            numbers.push(number);
        }
        if first == u32::MAX {
            return;
        }
        let merging = Merging { sizes: sizes(&numbers, next), numbers, first };
        merging.samples(self);
        merging.scalars(self);
        merging.costs(&mut self.costs);
        merging.lines(&mut self.line_costs);
        merging.spans(&mut self.spans);
        merging.hops(&mut self.hops);
        merging.traces(&mut self.traces);
        merging.blocks(&mut self.blocks);
    }

    /// How often the blocks of a long run were halved in number so far.
    pub fn halvings(&self) -> u32 {
        let merged = self.scalars_of(&MERGED).map(|s| s.value);
        let most = merged.fold(1.0, f64::max);
        most.log2().ceil() as u32
    }

    /// How long a long run has been measuring, in nanoseconds; 0 for other runs.
    pub fn run_ns(&self) -> u64 {
        let times = self.scalars_of(&INTO_RUN).map(|s| s.value);
        times.fold(0.0, f64::max) as u64
    }

    /// The most measured blocks that went into one of these.
    pub fn merged_in(&self, is_of: impl Fn(&Block) -> bool) -> u32 {
        let is = |block: u32| self.blocks.get(block as usize).is_some_and(&is_of);
        let merged = self.scalars_of(&MERGED);
        let of = merged.filter(|s| s.block().is_some_and(is));
        of.map(|s| s.value as u32).max().unwrap_or(0)
    }

    /// Measured blocks of a long run, merged or not.
    pub fn measured_blocks(&self) -> u64 {
        let merged = self.scalars_of(&MERGED);
        merged.map(|s| s.value as u64).sum()
    }

    /// Note of blocks from `from` on, which were just measured, when that was.
    pub fn note_measured(&mut self, from: u32, into_run_ns: u64) {
        for block in from..self.blocks.len() as u32 {
            self.add(Subject::Block(block), &MERGED, FigureKey::ONLY, 1.0);
            self.add(Subject::Block(block), &INTO_RUN, FigureKey::ONLY, into_run_ns as f64);
        }
    }
}

/// The number of blocks merged into each new one.
fn sizes(numbers: &[u32], blocks: u32) -> Vec<u32> {
    let mut sizes = vec![0; blocks as usize];
    for number in numbers {
        sizes[*number as usize] += 1;
    }
    sizes
}

/// Blocks that become others.
struct Merging {
    /// The new index of each block.
    numbers: Vec<u32>,
    /// The number merged into each new one.
    sizes: Vec<u32>,
    /// The first that changes.
    first: u32,
}

impl Merging {
    fn number(&self, block: u32) -> u32 {
        self.numbers.get(block as usize).copied().unwrap_or(block)
    }

    /// Cut off the part of a list that may change; entries of earlier blocks are at its beginning.
    fn tail<T>(&self, list: &mut Vec<T>, block: impl Fn(&T) -> u32) -> Vec<T> {
        let begin = list.iter().position(|one| block(one) >= self.first);
        begin.map_or_else(Vec::new, |begin| list.split_off(begin))
    }

    fn blocks(&self, blocks: &mut Vec<Block>) {
        for (at, block) in std::mem::take(blocks).into_iter().enumerate() {
            match blocks.get_mut(self.numbers[at] as usize) {
                Some(into) => merge_block(into, block),
                None => blocks.push(block),
            }
        }
    }

    fn costs(&self, costs: &mut Vec<Cost>) {
        let mut sums = BTreeMap::new();
        for cost in self.tail(costs, |cost| cost.block) {
            let block = self.number(cost.block);
            let key = (block, cost.quantity, cost.direction, cost.context, cost.node);
            let sum = sums.entry(key).or_insert(Cost { block, calls: 0, own: 0, ..cost });
            sum.calls = sum.calls.saturating_add(cost.calls);
            sum.own = sum.own.saturating_add(cost.own);
        }
        costs.extend(sums.into_values());
    }

    fn lines(&self, lines: &mut Vec<LineCost>) {
        let mut sums = BTreeMap::new();
        for cost in self.tail(lines, |cost| cost.block) {
            let block = self.number(cost.block);
            let key = (block, cost.function, cost.source.file, cost.source.line);
            let sum = sums.entry(key).or_insert(LineCost { block, own: 0, ..cost });
            sum.own = sum.own.saturating_add(cost.own);
        }
        lines.extend(sums.into_values());
    }

    fn spans(&self, spans: &mut Vec<Span>) {
        let mut known = BTreeMap::new();
        let mut merged: Vec<Span> = Vec::new();
        for mut span in self.tail(spans, |span| span.block) {
            span.block = self.number(span.block);
            let of = match &span.of {
                SpanOf::Call(call) => (Some((call.context, call.node)), None),
                SpanOf::Stage(stage) => (None, Some((stage.order, stage.name.clone()))),
            };
            let key = (span.block, span.direction, of);
            let at = *known.entry(key).or_insert(merged.len());
            match merged.get_mut(at) {
                Some(into) => merge_span(into, &span),
                None => merged.push(span),
            }
        }
        merged.sort_by_key(|span| span.block);
        spans.extend(merged);
    }

    fn hops(&self, hops: &mut Vec<BlockHop>) {
        let mut merged: Vec<BlockHop> = Vec::new();
        for BlockHop { block, hop } in self.tail(hops, |hop| hop.block) {
            let block = self.number(block);
            let is_same = |into: &&mut BlockHop| into.block == block && into.hop.name == hop.name;
            let Some(into) = merged.iter_mut().find(is_same) else {
                merged.push(BlockHop { block, hop });
                continue;
            };
            into.hop.entered = into.hop.entered.saturating_add(hop.entered);
            into.hop.left = into.hop.left.saturating_add(hop.left);
            add_counts(&mut into.hop.dropped, hop.dropped);
        }
        merged.sort_by_key(|hop| hop.block);
        hops.extend(merged);
    }

    /// Costs, which are their sums, are merged as others.
    fn traces(&self, traces: &mut [Trace]) {
        for trace in traces {
            trace.block = trace.block.map(|block| self.number(block));
        }
    }

    fn samples(&self, recording: &mut Recording) {
        let mut lost: BTreeMap<String, u64> = BTreeMap::new();
        let quantities = &recording.quantities;
        recording.samples.retain_mut(|samples| {
            samples.block = self.number(samples.block);
            let size = self.sizes.get(samples.block as usize);
            let keeps = size.is_none_or(|size| *size == 1);
            if !keeps && let Some(of) = quantities.get(samples.quantity as usize) {
                *lost.entry(of.instrument.clone()).or_default() += samples.len() as u64;
            }
            keeps
        });
        for (instrument, count) in lost {
            let loss = Loss::new(
                TIMES_OF_SAMPLES,
                count,
                "their counts by function are kept; a shorter run keeps times too",
            );
            recording.add_loss(&instrument, loss);
        }
    }

    fn scalars(&self, recording: &mut Recording) {
        let scalars = &mut recording.scalars;
        let begin = scalars.iter().position(|scalar| self.changes(scalar));
        let tail = scalars.split_off(begin.unwrap_or(scalars.len()));
        let mut known: BTreeMap<(u32, QuantityId, FigureKey), usize> = BTreeMap::new();
        // The durations behind each mean.
        let mut weights: Vec<f64> = Vec::new();
        let mut merged: Vec<Scalar> = Vec::new();
        for scalar in tail {
            let Some(block) = scalar.block() else {
                merged.push(scalar);
                weights.push(0.0);
                continue;
            };
            let number = self.number(block);
            let weight = match recording.blocks.get(block as usize).map(|b| b.duration_ns) {
                None | Some(0) => 1.0,
                Some(ns) => ns as f64,
            };
            let key = (number, scalar.quantity, scalar.item.clone());
            let at = *known.entry(key).or_insert(merged.len());
            let quantity = recording.quantities.get(scalar.quantity as usize);
            match (merged.get_mut(at), quantity) {
                (Some(into), Some(quantity)) => {
                    into.value =
                        merge_values(quantity, [into.value, scalar.value], [weights[at], weight]);
                    weights[at] += weight;
                }
                _ => {
                    merged.push(Scalar { of: Subject::Block(number), ..scalar });
                    weights.push(weight);
                }
            }
        }
        recording.scalars.extend(merged);
    }

    fn changes(&self, scalar: &Scalar) -> bool {
        scalar.block().is_some_and(|block| block >= self.first)
    }
}

fn merge_block(into: &mut Block, block: Block) {
    let (ledger, more) = (&mut into.ledger, block.ledger);
    ledger.offered = ledger.offered.saturating_add(more.offered);
    ledger.delivered = ledger.delivered.saturating_add(more.delivered);
    add_counts(&mut ledger.dropped, more.dropped);
    for total in block.totals {
        match into.totals.iter_mut().find(|t| t.quantity == total.quantity) {
            Some(sum) => {
                sum.kernel = sum.kernel.saturating_add(total.kernel);
                sum.user = sum.user.saturating_add(total.user);
            }
            None => into.totals.push(total),
        }
    }
    into.entered = into.entered.saturating_add(block.entered);
    into.returned = into.returned.saturating_add(block.returned);
    into.duration_ns = into.duration_ns.saturating_add(block.duration_ns);
}

fn merge_span(into: &mut Span, span: &Span) {
    into.times.add(&span.times);
    match (&mut into.of, &span.of) {
        (SpanOf::Call(into), SpanOf::Call(call)) => {
            into.corrected_ns += call.corrected_ns;
            // The samples share a calibration: errors add up.
            into.uncertainty_ns += call.uncertainty_ns;
        }
        (SpanOf::Stage(into), SpanOf::Stage(stage)) => {
            into.passed_over = into.passed_over.saturating_add(stage.passed_over);
        }
        _ => {}
    }
}

fn add_counts(into: &mut BTreeMap<String, u64>, more: BTreeMap<String, u64>) {
    for (cause, count) in more {
        let sum = into.entry(cause).or_default();
        *sum = sum.saturating_add(count);
    }
}

/// A figure of two blocks, of such durations.
fn merge_values(quantity: &Quantity, values: [f64; 2], weights: [f64; 2]) -> f64 {
    let [a, b] = values;
    let adds_up = match quantity.kind {
        Kind::Count => true,
        Kind::Duration => {
            ![&LATENCY_P50, &LATENCY_P99, &PERIOD].iter().any(|mean| quantity.is(mean))
        }
        Kind::Rate | Kind::Share => false,
    };
    match adds_up {
        _ if quantity.is(&INTO_RUN) => a.max(b),
        true => a + b,
        false => (a * weights[0] + b * weights[1]) / (weights[0] + weights[1]),
    }
}

#[cfg(test)]
mod tests;
