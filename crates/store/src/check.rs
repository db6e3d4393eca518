//! Consistency checks of recordings: ids refer to existing rows, and redundant information agrees.
//! Reports index by ids and add up counts without checking, so anything that our writer could not
//! have written is refused here, with its location.
//!
//! A ledger that does not balance is not refused: packets can go missing, and reports mark the
//! block.

mod costs;
mod times;

use std::collections::BTreeSet;

use netplumb_model::bench::{BlockRates, quantities as rates};
use netplumb_model::quantity::{Calls, FigureKey, Kind, Quantity, Subject};
use netplumb_model::recording::{Block, Recording};

/// Maximum depth of the tree. A kernel stack has room for some hundred frames; the accounting stops
/// at 4,096.
const MAX_DEPTH: u32 = 5_000;
/// Maximum sum of depths: reports walk up from each node.
const MAX_DEPTHS: u64 = 1 << 30;
/// Maximum size of all names, as often as reports repeat them: per row, and in total.
const NAME_BYTES_PER_ROW: u64 = 1 << 10;
const NAME_BYTES: u64 = 64 << 20;
/// Maximum size of the environment.
const ENVIRONMENT_BYTES: usize = 64 << 20;
/// Tolerance between a histogram's row and its buckets, which are read one after the other while
/// packets are running: this number, and one in this number.
const UNDER_WAY: u64 = 16;
const UNDER_WAY_SHARE: u64 = 4;

/// Check a recording.
pub(crate) fn check(recording: &Recording) -> Result<(), String> {
    ids(recording)?;
    times::ids(recording)?;
    texts(recording)?;
    totals(recording)?;
    quantities(recording)?;
    scalars(recording)?;
    costs::add_up(recording)?;
    costs::lines(recording)?;
    times::add_up(recording)?;
    ledgers(recording)
}

/// Ids are dense: one that is too large means that rows are missing.
fn ids(recording: &Recording) -> Result<(), String> {
    let fits = |id: u32, len: usize| (id as usize) < len;
    let missing = |table: &str, row: usize, what: &str, id: u32| {
        format!("table {table}, row {row}: dangling reference to {what} {id}")
    };
    for (row, block) in recording.blocks.iter().enumerate() {
        if !fits(block.arm, recording.arms.len()) {
            return Err(missing("block", row, "arm", block.arm));
        }
        for total in &block.totals {
            if !fits(total.quantity, recording.quantities.len()) {
                return Err(format!(
                    "table total, block {row}: dangling reference to quantity {}",
                    total.quantity
                ));
            }
        }
    }
    let files = recording.source_files.len();
    for (row, function) in recording.functions.iter().enumerate() {
        if let Some(source) = function.source.filter(|s| !fits(s.file, files)) {
            return Err(missing("function", row, "source file", source.file));
        }
    }
    let mut depths: Vec<u32> = Vec::with_capacity(recording.nodes.len());
    let mut all: u64 = 0;
    for (row, node) in recording.nodes.iter().enumerate() {
        if !fits(node.function, recording.functions.len()) {
            let id = node.function;
            return Err(format!("node {row}: dangling reference to function {id}"));
        }
        let depth = match node.parent {
            None => 0,
            Some(parent) => match depths.get(parent as usize) {
                Some(above) => above + 1,
                None => {
                    return Err(format!("node {row}: parent {parent} does not precede it"));
                }
            },
        };
        all += u64::from(depth);
        if depth > MAX_DEPTH || all > MAX_DEPTHS {
            return Err(format!("node {row}: the tree is deeper than any stack"));
        }
        depths.push(depth);
    }
    let (blocks, nodes) = (recording.blocks.len(), recording.nodes.len());
    for (row, cost) in recording.costs.iter().enumerate() {
        if !fits(cost.block, blocks) {
            return Err(missing("cost", row, "block", cost.block));
        }
        if !fits(cost.node, nodes) {
            return Err(missing("cost", row, "node", cost.node));
        }
    }
    // Their nodes, blocks and quantities are the costs'.
    for (row, samples) in recording.samples.iter().enumerate() {
        let mut all = samples.threads().iter();
        if let Some(thread) = all.find(|id| !fits(**id, recording.threads.len())) {
            return Err(missing("sample", row, "thread", *thread));
        }
    }
    let texts = recording.trace_texts.len();
    for (row, trace) in recording.traces.iter().enumerate() {
        if let Some(block) = trace.block.filter(|block| !fits(*block, blocks)) {
            return Err(missing("trace", row, "block", block));
        }
        if !fits(trace.quantity, recording.quantities.len()) {
            return Err(missing("trace", row, "quantity", trace.quantity));
        }
        for step in &trace.steps {
            let others = step.arguments.into_iter().chain(step.returned);
            let mut all = [step.name, step.command].into_iter().chain(others);
            if let Some(text) = all.find(|id| !fits(*id, texts)) {
                return Err(missing("trace", row, "text", text));
            }
        }
    }
    for (row, cost) in recording.line_costs.iter().enumerate() {
        let functions = recording.functions.len();
        for (what, id, len) in [
            ("block", cost.block, blocks),
            ("function", cost.function, functions),
            ("source file", cost.source.file, files),
        ] {
            if !fits(id, len) {
                return Err(missing("line_cost", row, what, id));
            }
        }
    }
    if let Some(file) = recording.source_texts.keys().find(|id| !fits(**id, files)) {
        return Err(missing("source_text", *file as usize, "source file", *file));
    }
    for (row, code) in recording.code.iter().enumerate() {
        let mut sources = code.insns.iter().filter_map(|insn| insn.source);
        let wrong = sources.find(|source| !fits(source.file, files));
        for (what, id, len) in [
            ("arm", code.arm, recording.arms.len()),
            ("function", code.function, recording.functions.len()),
            ("source file", wrong.map_or(0, |source| source.file), files.max(1)),
        ] {
            if !fits(id, len) {
                return Err(missing("code", row, what, id));
            }
        }
    }
    Ok(())
}

/// Names are limited individually when they are read; here, everything that a report repeats.
fn texts(recording: &Recording) -> Result<(), String> {
    let notes = recording.notes.values();
    let of_arms = notes.flat_map(|notes| notes.facts.iter().chain(&notes.inert));
    let facts = recording.environment.iter().chain(of_arms);
    let facts = facts.chain(recording.not_measured.values().flatten()).chain(&recording.not_tried);
    let bytes: usize = facts.map(|(key, value)| key.len() + value.len()).sum();
    let bytes = bytes + recording.all_over_budget().into_iter().map(str::len).sum::<usize>();
    let made = recording.arms.iter().map(|arm| {
        let from = arm.made.as_ref().map_or(0, |made| made.from.len());
        from + arm.scanned().map_or(0, |(_, setting, _)| setting.len())
    });
    let bytes = bytes + made.sum::<usize>();
    if bytes > ENVIRONMENT_BYTES {
        return Err(format!("table environment has {bytes} bytes, including the facts of arms"));
    }
    let of_function: Vec<u64> = recording
        .functions
        .iter()
        .map(|f| {
            let others = [&f.module, &f.layer].map(|n| n.as_ref().map_or(0, String::len));
            (f.name.len() + others[0] + others[1]) as u64
        })
        .collect();
    let of_node: Vec<u64> = recording
        .nodes
        .iter()
        .map(|node| {
            let function = |node: usize| recording.nodes[node].function as usize;
            let caller = node.parent.map_or(0, |p| of_function[function(p as usize)]);
            of_function[node.function as usize] + caller
        })
        .collect();
    let of_file = |file: u32| recording.source_files[file as usize].len() as u64;
    for (table, rows, bytes) in [
        (
            "cost",
            recording.costs.len(),
            recording.costs.iter().map(|c| of_node[c.node as usize]).sum::<u64>(),
        ),
        (
            "span",
            recording.spans.len(),
            recording.calls().map(|(_, call)| of_node[call.node as usize]).sum(),
        ),
        (
            "line_cost",
            recording.line_costs.len(),
            recording.line_costs.iter().map(|c| of_file(c.source.file)).sum(),
        ),
    ] {
        if bytes > NAME_BYTES + rows as u64 * NAME_BYTES_PER_ROW {
            return Err(format!(
                "table {table}: its {rows} rows name functions or files of {bytes} bytes in all"
            ));
        }
    }
    Ok(())
}

/// Sums of columns, which reports compute in 64 bits: they have to fit in 63.
fn totals(recording: &Recording) -> Result<(), String> {
    let blocks = &recording.blocks;
    let dropped = || blocks.iter().flat_map(|b| b.ledger.dropped.values().copied());
    fits("block", "offered", blocks.iter().map(|b| b.ledger.offered))?;
    let delivered = blocks.iter().map(|b| b.ledger.delivered);
    fits("block", "delivered and dropped", delivered.chain(dropped()))?;
    let totals = blocks.iter().flat_map(|b| &b.totals);
    let both = totals.flat_map(|total| [total.kernel, total.user]);
    fits("total", "kernel and user", both)?;
    fits("block", "entered", blocks.iter().map(|b| b.entered))?;
    fits("block", "duration_ns", blocks.iter().map(|b| b.duration_ns))?;
    fits("function", "size_bytes", recording.functions.iter().map(|f| f.size_bytes))?;
    fits("cost", "calls", recording.costs.iter().map(|c| c.calls))?;
    fits("cost", "own", recording.costs.iter().map(|c| c.own))?;
    fits("line_cost", "insns", recording.line_costs.iter().map(|c| c.own))?;
    let insns = recording.code.iter().flat_map(|code| &code.insns);
    fits("code", "times", insns.map(|insn| insn.times))?;
    let groups = || recording.groups.iter().map(|group| &group.times);
    fits("span_group", "count", groups().map(|t| t.count))?;
    fits("span_group", "total_ns", groups().map(|t| t.total_ns))?;
    let slices = recording.slices.iter().flat_map(|slice| &slice.buckets);
    fits("span_slice_bucket", "count", slices.map(|b| b.1))?;
    let times = || recording.spans.iter().map(|span| &span.times);
    let passed_over = recording.stages().map(|(_, stage)| stage.passed_over);
    let counts = times().map(|t| t.count).chain(passed_over);
    fits("span", "count and passed_over", counts)?;
    fits("span", "total_ns", times().map(|t| t.total_ns))?;
    fits("span_bucket", "count", times().flat_map(|t| t.buckets.iter().map(|b| b.1)))?;
    let steps = recording.traces.iter().flat_map(|t| &t.steps);
    let ends = steps.map(|s| s.begin.saturating_add(s.elapsed));
    fits("trace_step", "begin and elapsed", ends.max().into_iter())?;
    fits("loss", "count", recording.all_losses().map(|l| l.count))
}

fn fits(table: &str, columns: &str, mut counts: impl Iterator<Item = u64>) -> Result<(), String> {
    const MOST: u64 = i64::MAX as u64;
    let sum = counts.try_fold(0_u64, |sum, n| sum.checked_add(n).filter(|sum| *sum <= MOST));
    match sum {
        Some(_) => Ok(()),
        None => Err(format!("table {table}: {columns} add up to more than {MOST}")),
    }
}

/// Whether a block's costs are samples of time.
fn is_sampled(recording: &Recording, block: &Block) -> bool {
    let quantity = block.total().quantity as usize;
    let quantity = recording.quantities.get(quantity);
    !block.totals.is_empty() && quantity.is_some_and(|q| q.calls == Calls::Samples)
}

/// Quantities are unique, and known ones equal this program's declarations, so that counts are
/// checked as such.
fn quantities(recording: &Recording) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for (row, quantity) in recording.quantities.iter().enumerate() {
        if !seen.insert((&quantity.instrument, &quantity.name)) {
            return Err(format!(
                "table quantity, row {row}: duplicate quantity {}, {}",
                quantity.instrument.escape_debug(),
                quantity.name.escape_debug()
            ));
        }
        let known = rates::ALL.iter().find(|declared| quantity.is(declared));
        if known.is_some_and(|declared| *quantity != Quantity::from(declared)) {
            return Err(format!(
                "table quantity, row {row}: {} differs from the declaration of instrument {}",
                quantity.name, quantity.instrument
            ));
        }
    }
    Ok(())
}

/// Scalars refer to existing rows; counts are not negative, and their sums fit.
fn scalars(recording: &Recording) -> Result<(), String> {
    let mut sum = 0.0;
    for (row, scalar) in recording.scalars.iter().enumerate() {
        let missing = |what: &str, id: u32| {
            format!("table scalar, row {row}: dangling reference to {what} {id}")
        };
        match scalar.of {
            Subject::Arm(arm) if arm as usize >= recording.arms.len() => {
                return Err(missing("arm", arm));
            }
            Subject::Block(block) if block as usize >= recording.blocks.len() => {
                return Err(missing("block", block));
            }
            _ => {}
        }
        let Some(quantity) = recording.quantities.get(scalar.quantity as usize) else {
            return Err(missing("quantity", scalar.quantity));
        };
        let FigureKey { number, label } = &scalar.item;
        for (item, has, what) in [
            ("number", number.is_some(), &quantity.number),
            ("label", label.is_some(), &quantity.label),
        ] {
            if has && what.is_none() {
                return Err(format!(
                    "table scalar, row {row}: unexpected {item}, `{}` has a single value",
                    quantity.name.escape_debug()
                ));
            }
        }
        // NULL: unknown.
        if quantity.kind != Kind::Count || scalar.value.is_nan() {
            continue;
        }
        if scalar.value < 0.0 {
            return Err(format!(
                "table scalar, row {row}: negative count {} {}",
                scalar.value, quantity.unit
            ));
        }
        sum += scalar.value;
        if sum > i64::MAX as f64 {
            return Err(format!("table scalar, row {row}: counts add up to {sum}"));
        }
    }
    let hops = recording.hops.iter().map(|of| &of.hop);
    fits("hop", "entered", hops.clone().map(|h| h.entered))?;
    fits("hop", "left", hops.clone().map(|h| h.left))?;
    fits("hop_dropped", "packets", hops.flat_map(|h| h.dropped.values().copied()))
}

/// For a bench, the ledger of a block equals its hops'.
fn ledgers(recording: &Recording) -> Result<(), String> {
    let all = BlockRates::all_of(recording);
    for (row, (block, measured)) in recording.blocks.iter().zip(&all).enumerate() {
        if measured.hops.is_empty() {
            continue;
        }
        // Samples have the packets that were handled in the window.
        if is_sampled(recording, block) {
            let handled = measured.handled.total();
            if block.ledger.offered != handled || block.ledger.delivered != handled {
                return Err(format!(
                    "table block, row {row}: samples of {} packets, but {handled} were handled",
                    block.ledger.offered
                ));
            }
            continue;
        }
        let of_hops = measured.ledger();
        if of_hops != block.ledger {
            return Err(format!(
                "table block, row {row}: {} offered and {} delivered, but by its hops {} and \
                 {}, or other causes of loss",
                block.ledger.offered, block.ledger.delivered, of_hops.offered, of_hops.delivered
            ));
        }
    }
    Ok(())
}
