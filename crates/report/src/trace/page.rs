//! Traced calls on the page.

use netplumb_model::experiment::Experiment;
use netplumb_model::recording::Recording;
use netplumb_model::trace::Trace;
use serde::Serialize;

use super::tree::remarks;
use super::tree::{Tree, call};
use super::{OfBlock, function, is_of_calls, whose};

/// Calls on a page, of each block.
const MOST_CALLS: usize = 20;
/// Lines of all calls: more make a page slow.
const MOST_LINES: usize = 40_000;

/// Traced calls of a block.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageTraced {
    /// The calls in sentences.
    pub sentences: Vec<String>,
    /// The shown calls.
    pub calls: Vec<PageCall>,
    /// The number of kept calls that are not shown.
    pub left: u64,
}

/// A call: lines in columns of equal length.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PageCall {
    /// Its number, from 1.
    pub number: u64,
    /// The thread, where known, and the context.
    pub whose: String,
    /// The unit of its figures.
    pub unit: String,
    /// The number of lines that are not shown.
    pub left: u64,
    /// The number of calls above it.
    pub depth: Vec<u32>,
    /// The function, with its arguments and what it returned, where these are known.
    pub name: Vec<String>,
    /// Its inclusive cost.
    pub total: Vec<u64>,
    /// Its own part of `total`.
    pub own: Vec<u64>,
    /// How many equal calls in a row it stands for.
    pub times: Vec<u64>,
    /// Other facts, in words.
    pub remarks: Vec<String>,
}

/// The traced calls of a recording, by block.
pub(crate) fn page_traces(
    recording: &Recording,
    experiment: Option<&Experiment>,
) -> Vec<PageTraced> {
    if !is_of_calls(recording) {
        return Vec::new();
    }
    let function = function(experiment, recording);
    let only = experiment.and_then(|e| e.trace.as_ref()).and_then(|t| t.only.as_ref());
    let only = only.map(ToString::to_string);
    let mut room = MOST_LINES;
    let blocks = OfBlock::all(recording).into_iter().map(|of| {
        let mut calls: Vec<&Trace> = of.calls.clone();
        let first = calls.first().map(|call| call.number);
        // The first, then those that took most.
        calls.sort_by_key(|call| {
            let total = call.steps.first().map_or(0, |s| s.total);
            (Some(call.number) != first, std::cmp::Reverse(total), call.number)
        });
        let left = calls.len().saturating_sub(MOST_CALLS);
        calls.truncate(MOST_CALLS);
        PageTraced {
            sentences: of.sentences(function, only.as_deref()),
            calls: calls.iter().map(|one| page_call(recording, one, &mut room)).collect(),
            left: left as u64,
        }
    });
    blocks.collect()
}

fn page_call(recording: &Recording, trace: &Trace, room: &mut usize) -> PageCall {
    let lines = Tree::from_trace(trace).lines();
    let quantity = recording.quantities.get(trace.quantity as usize);
    let mut page = PageCall {
        number: trace.number + 1,
        whose: whose(recording, trace),
        unit: quantity.map_or("", |quantity| &quantity.unit).into(),
        left: lines.len().saturating_sub(*room) as u64,
        ..PageCall::default()
    };
    for line in lines.iter().take(*room) {
        let step = &trace.steps[line.step as usize];
        page.depth.push(line.depth as u32);
        page.name.push(call(recording, step));
        page.total.push(step.total);
        page.own.push(step.own);
        page.times.push(line.times as u64);
        page.remarks.push(remarks(step, &page.unit).join("; "));
    }
    *room -= lines.len().min(*room);
    page
}
