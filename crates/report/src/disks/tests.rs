//! A made-up recording of a guest with a disk: its table, and claims about counts.

use std::collections::BTreeMap;
use std::path::Path;

use netplumb_model::class::{Context, Direction, Family, Link, Proto};
use netplumb_model::experiment::Experiment;
use netplumb_model::quantity::Subject;
use netplumb_model::reads::{
    DISK_READ_BYTES, DISK_READS, DISK_WRITES, GUEST_TIME, MAJOR_FAULTS, MINOR_FAULTS,
};
use netplumb_model::recording::{Arm, Block, Cost, Function, Ledger, Node, Recording, Total};
use netplumb_model::timing::INSTRUCTIONS;
use netplumb_testkit::golden;

use super::section;
use crate::analysis::classes;
use crate::claims;
use crate::html::report_page;
use crate::page::PagePart;
use crate::together::CrossQuantity;

const EXPERIMENT: &str = r#"
name = "disk"
[workload]
kind = "command"
command = ["true"]
[knobs]
disk = "brd:16M:ext4"
[[arm]]
name = "before"
[[arm]]
name = "after"

[[claim]]
kind = "compare"
says = "holds: more is read"
classes = ["command run"]
quantity = "disk read bytes"
arm = "after"
against = "before"
is = "more"

[[claim]]
kind = "compare"
says = "does not hold: it takes as long"
classes = ["command run"]
quantity = "guest time"
arm = "after"
against = "before"
is = "same"

[[claim]]
kind = "unchanged"
says = "holds: there are as many faults"
classes = ["command run"]
quantity = "major faults"

[[claim]]
kind = "unchanged"
says = "does not hold: there are as many calls"
classes = ["command run"]
quantity = "calls"
function = "filemap_fault"

[[claim]]
kind = "ranking"
says = "answer: calls"
classes = ["command run"]
quantity = "calls"
function = "filemap_fault"

[[claim]]
kind = "unchanged"
says = "not measured: calls of no function"
classes = ["command run"]
quantity = "calls"

[[claim]]
kind = "changed-by"
says = "not measured: by no function"
classes = ["command run"]
quantity = "disk reads"
arm = "after"
against = "before"
"#;

/// Two arms with two blocks each.
fn made() -> Recording {
    let mut recording = Recording { complete: true, ..Recording::default() };
    let instructions = recording.quantity(&INSTRUCTIONS);
    recording.functions.push(Function {
        name: "filemap_fault".into(),
        module: None,
        layer: Some("filesystem".into()),
        address: 0x1000,
        size_bytes: 64,
        source: None,
    });
    recording.nodes.push(Node { parent: None, function: 0, tail: false });
    for (arm, name) in (0..).zip(["before", "after"]) {
        recording.arms.push(Arm {
            name: name.into(),
            proto: Proto::Command,
            family: Family::V4,
            link: Link::Veth,
            forward: false,
            size_bytes: 0,
            knobs: BTreeMap::new(),
            made: None,
        });
        for index in 0..2 {
            let block = recording.blocks.len() as u32;
            recording.blocks.push(Block {
                arm,
                instrument: "exact".into(),
                index,
                ledger: Ledger { offered: 1, delivered: 1, ..Ledger::default() },
                totals: vec![Total { quantity: instructions, kernel: 1000, user: 0 }],
                entered: 0,
                returned: 0,
                duration_ns: 0,
            });
            recording.costs.push(Cost {
                block,
                node: 0,
                direction: Direction::Run,
                context: Context::Task,
                quantity: instructions,
                calls: 32 - u64::from(arm),
                own: 1000,
            });
            let scale = if arm == 0 { 1.0 } else { 16.0 };
            for (quantity, value) in [
                (&DISK_READS, 32.0),
                (&DISK_READ_BYTES, 32.0 * 131_072.0 * scale),
                (&DISK_WRITES, 0.0),
                (&MAJOR_FAULTS, 32.0),
                (&MINOR_FAULTS, 7.0),
                (&GUEST_TIME, 3_200_000.0 * scale),
            ] {
                let item = netplumb_model::quantity::FigureKey::ONLY;
                recording.add(Subject::Block(block), quantity, item, value);
            }
        }
    }
    recording
}

/// Check that the table has the means of blocks, with the figures derived from them, for wide and
/// narrow terminals and the page; and that there is none without a disk.
#[test]
fn the_table() {
    let recording = made();
    let views = classes(&recording);
    let text = [120, 70].map(|columns| section(&recording, &views).unwrap().terminal(columns));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/disks.txt");
    golden(&path, &text.join("\n"));
    let page = report_page(&recording, &views, None, &CrossQuantity::default());
    let [PagePart::Table(disk)] = &page.sections[0].parts[..] else {
        panic!("{:?}", page.sections);
    };
    assert_eq!(disk.rows.len(), 2);
    let bare = Recording { scalars: Vec::new(), ..made() };
    assert!(section(&bare, &classes(&bare)).is_none());
}

/// Check that claims about counts get the verdict with which they begin.
#[test]
fn claims_about_counts() {
    let recording = made();
    let experiment = Experiment::parse(EXPERIMENT).unwrap();
    for one in claims::judge(&experiment, &classes(&recording)) {
        let wanted = one.says.split(':').next().unwrap_or_default();
        assert_eq!(one.verdict.as_str(), wanted, "{one:?}");
    }
}
