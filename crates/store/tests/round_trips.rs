//! Any recording is read as it was written.

use std::collections::BTreeMap;

use netplumb_model::class::{Context, Direction, Family, Link, Proto};
use netplumb_model::loss::Loss;
use netplumb_model::quantity::{FigureKey, Subject};
use netplumb_model::recording::{Arm, Block, Cost, Function, Ledger, Node, Recording, Total};
use netplumb_model::samples::Thread;
use netplumb_model::timing::INSTRUCTIONS;
use netplumb_store::Writer;
use proptest::char::range;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Text as others may choose it.
fn text() -> impl Strategy<Value = String> {
    let chars = prop_oneof![4 => range(' ', '~'), 1 => any::<char>()];
    vec(chars, 0..20).prop_map(String::from_iter)
}

/// A word as programs choose it.
fn word() -> impl Strategy<Value = String> {
    let chars = prop_oneof![4 => range('a', 'z'), 2 => range('_', '_'), 1 => range('.', '9')];
    vec(chars, 1..16).prop_map(String::from_iter)
}

fn arm(number: usize, name: &str, knobs: BTreeMap<String, String>) -> Arm {
    Arm {
        // Names of arms are their identity.
        name: format!("{number} {name}"),
        proto: Proto::Udp,
        family: Family::V6,
        link: Link::Veth,
        forward: false,
        size_bytes: number as u32,
        knobs,
        made: None,
    }
}

prop_compose! {
    fn recordings()(
        environment in btree_map(word(), text(), 0..6),
        arms in vec((text(), btree_map(word(), text(), 0..3)), 1..4),
        names in vec((word(), proptest::option::of(word())), 1..12),
        parents in vec(any::<proptest::sample::Index>(), 1..20),
        costs in vec((any::<proptest::sample::Index>(), 0..4_u64, 0..1_u64 << 40), 0..30),
        threads in vec((any::<u16>(), text()), 0..4),
        total in proptest::option::of(0..1_u64 << 50),
        losses in btree_map(text(), (1..9_u64, text()), 0..3),
        complete: bool,
    ) -> Recording {
        let mut recording = Recording { environment, complete, ..Recording::default() };
        let quantity = recording.quantity(&INSTRUCTIONS);
        recording.arms = (arms.iter().enumerate())
            .map(|(number, (name, knobs))| arm(number, name, knobs.clone()))
            .collect();
        let mut known = std::collections::BTreeSet::new();
        recording.functions = (names.iter())
            .filter(|name| known.insert((*name).clone()))
            .map(|(name, module)| Function {
                name: name.clone(),
                module: module.clone(),
                layer: None,
                address: 0,
                size_bytes: 0,
                source: None,
            })
            .collect();
        let functions = recording.functions.len() as u32;
        let mut places = std::collections::BTreeSet::new();
        for (number, parent) in parents.iter().enumerate() {
            let parent = (!recording.nodes.is_empty() && number % 3 > 0)
                .then(|| parent.index(recording.nodes.len()) as u32);
            let node = Node { parent, function: number as u32 % functions, tail: false };
            if places.insert((node.parent, node.function)) {
                recording.nodes.push(node);
            }
        }
        recording.blocks = (0..recording.arms.len() as u32)
            .map(|arm| Block {
                arm,
                instrument: INSTRUCTIONS.instrument.into(),
                index: 0,
                ledger: Ledger { offered: 7, delivered: 7, ..Ledger::default() },
                totals: vec![Total { quantity, kernel: 0, user: 3 }],
                entered: 0,
                returned: 0,
                duration_ns: 0,
            })
            .collect();
        let mut of = std::collections::BTreeSet::new();
        for (number, (node, calls, own)) in costs.iter().enumerate() {
            let cost = Cost {
                block: (number % recording.blocks.len()) as u32,
                quantity,
                direction: Direction::Tx,
                context: Context::Task,
                node: node.index(recording.nodes.len()) as u32,
                calls: *calls,
                own: *own,
            };
            if of.insert((cost.block, cost.node)) {
                recording.costs.push(cost);
            }
        }
        recording.costs.sort_by_key(|cost| (cost.block, cost.node));
        for (number, block) in (0..).zip(&mut recording.blocks) {
            let of_block = recording.costs.iter().filter(|cost| cost.block == number);
            block.totals[0].kernel = of_block.clone().map(|cost| cost.own).sum();
            block.entered = of_block.map(|cost| cost.calls).sum();
            block.returned = block.entered;
        }
        recording.threads = threads
            .into_iter()
            .map(|(tid, name)| Thread { pid: tid.into(), tid: tid.into(), name })
            .collect();
        if let Some(total) = total {
            recording.add(Subject::Run, &INSTRUCTIONS, FigureKey::ONLY, total as f64);
        }
        let losses: Vec<Loss> = losses
            .into_iter()
            .map(|(cause, (count, meaning))| Loss { cause, count, meaning })
            .collect();
        if !losses.is_empty() {
            recording.losses.insert(INSTRUCTIONS.instrument.into(), losses);
        }
        recording
    }
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(64) })]

    /// Check that nothing is lost or changed, written at once or in two parts.
    #[test]
    fn written_and_read(recording in recordings()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.plumb");
        let mut writer = Writer::create(&path).unwrap();
        writer.save(&recording).unwrap();
        drop(writer);
        match netplumb_store::read(&path) {
            Ok(read) => prop_assert_eq!(read, recording),
            Err(error) => prop_assert!(false, "{error}"),
        }
    }
}
