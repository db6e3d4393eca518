//! What the HTML page costs to make: for a recording of a hundred thousand calling
//! contexts, from the recording to the file's bytes.

#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::time::Instant;

use netplumb_model::class::{Context, Direction, Family, Link, Proto};
use netplumb_model::recording::{Arm, Block, Cost, Function, Ledger, Node, Recording};
use netplumb_report::analysis::classes;
use netplumb_report::html;
use netplumb_report::together::CrossQuantity;

const FRAMES: u32 = 100_000;
const FUNCTIONS: u32 = 3_000;
const PACKETS: u64 = 200;
/// The deepest that the tree gets: the kernel's stack is not deeper.
const DEPTH: u32 = 40;

fn recording() -> Recording {
    let functions = (0..FUNCTIONS)
        .map(|n| Function {
            name: format!("a_function_of_the_kernel_{n}"),
            module: n.is_multiple_of(7).then(|| "veth".into()),
            layer: Some(["network", "transport", "memory", "link"][n as usize % 4].into()),
            address: 0xffff_ffff_8100_0000 + u64::from(n) * 64,
            size_bytes: 64,
            source: None,
        })
        .collect();
    let nodes = (0..FRAMES)
        .map(|n| Node {
            parent: (n % DEPTH > 0).then(|| n - 1),
            function: n * 7_919 % FUNCTIONS,
            tail: false,
        })
        .collect();
    let costs = (0..FRAMES)
        .map(|node| Cost {
            quantity: 0,
            block: 0,
            direction: Direction::Tx,
            context: Context::Task,
            node,
            calls: PACKETS * u64::from(node % 3 + 1),
            own: PACKETS * u64::from(node * 31 % 997),
        })
        .collect();
    Recording {
        arms: vec![Arm {
            name: "udp".into(),
            proto: Proto::Udp,
            family: Family::V4,
            link: Link::Veth,
            forward: false,
            size_bytes: 10,
            knobs: BTreeMap::new(),
            made: None,
        }],
        blocks: vec![Block {
            arm: 0,
            instrument: "exact".into(),
            index: 0,
            ledger: Ledger { offered: PACKETS, delivered: PACKETS, dropped: BTreeMap::new() },
            totals: Vec::new(),
            entered: 0,
            returned: 0,
            duration_ns: 0,
        }],
        functions,
        nodes,
        costs,
        complete: true,
        ..Recording::default()
    }
}

fn main() {
    let recording = recording();
    let started = Instant::now();
    let views = classes(&recording);
    let analysed = started.elapsed();
    let page = html::report_page(&recording, &views, None, &CrossQuantity::default());
    let text = html::render(&page);
    println!(
        "HTML page, {FRAMES} frames: {:.2} s (analysis {:.2} s; asked: 1 s), {:.0} kB",
        started.elapsed().as_secs_f64(),
        analysed.as_secs_f64(),
        text.len() as f64 / 1e3
    );
    let empty = html::render(&netplumb_report::page::Page::default());
    println!("HTML page without data: {:.0} kB (asked: 1,000)", empty.len() as f64 / 1e3);
}
