//! What is packed in chunks: samples, and nodes of the call tree.

use std::path::Path;

use netplumb_model::samples::{Sample, Samples, Thread};
use netplumb_model::timing::CPU_TIME;

use super::*;

/// Check that a copy of a file is refused after each of these changes, with an error that has the reason.
fn refused(path: &Path, changes: &[(&str, &str)]) {
    for (change, why) in changes {
        let copy = path.with_extension("changed");
        fs::copy(path, &copy).unwrap();
        let changed = rusqlite::Connection::open(&copy).unwrap();
        changed.pragma_update(None, "foreign_keys", false).unwrap();
        changed.execute_batch(change).unwrap();
        drop(changed);
        let error = read(&copy).unwrap_err().to_string();
        assert!(error.contains(why), "{change}: {error}");
    }
}

/// The rows of a table.
fn rows(path: &Path, table: &str) -> i64 {
    let connection = rusqlite::Connection::open(path).unwrap();
    let sql = format!("SELECT count(*) FROM {table}");
    connection.query_row(&sql, [], |r| r.get(0)).unwrap()
}

/// A recording of `many` samples with times, in two blocks: the first has a few.
fn sampled(many: u64) -> Recording {
    let mut recording = small();
    recording.line_costs.clear();
    recording.costs.clear();
    recording.quantities = vec![Quantity::from(&CPU_TIME)];
    recording.arms[0].proto = Proto::Command;
    recording.threads = [(0, "swapper/1"), (42, "a'b")]
        .map(|(tid, name)| Thread { pid: tid, tid, name: name.into() })
        .into();
    recording.blocks.push(recording.blocks[0].clone());
    for (block, count) in (0..).zip([3, many]) {
        let samples = (0..count).map(|n| Sample {
            time_ns: u64::from(block) << 40 | (n * 50_021),
            weight: 50_000,
            node: (n % 2) as u32,
            thread: (n % 2) as u32,
            cpu: (n % 3) as u32,
            direction: Direction::Run,
            context: match n % 3 {
                0 => Context::Task,
                1 => Context::Hardirq,
                _ => Context::Softirq(Softirq::Rcu),
            },
        });
        recording.add_samples(Samples::new(block, 0, samples));
        let total = &mut recording.blocks[block as usize].totals[0];
        (total.kernel, total.user) = (count * 50_000, 0);
    }
    recording
}

/// Check that samples read back with their times, and the costs that they add up to, though no row
/// has these; that they take a few bytes each; and that a file that has been changed is refused.
#[test]
fn samples_round_trip() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.plumb");
    let whole = sampled(200_000);
    let mut writer = Writer::create(&path).unwrap();
    writer.save(&whole).unwrap();
    drop(writer);
    assert_eq!(read(&path).unwrap(), whole);
    let bytes = fs::metadata(&path).unwrap().len();
    assert!(bytes < 700_000, "{bytes} bytes");
    assert_eq!((rows(&path, "cost"), rows(&path, "sample")), (0, 5));
    refused(
        &path,
        &[
            ("DELETE FROM sample WHERE chunk = 0", "does not follow"),
            ("UPDATE sample SET count = count - 1", "no 2 samples"),
            ("UPDATE sample SET count = 1 << 40", "expected 1 to 65536"),
            ("UPDATE sample SET columns = x'00'", "no 3 samples"),
            ("UPDATE sample SET begin_ns = 0", "before the last chunk"),
            ("UPDATE sample SET begin_ns = 9223372036854775807", "samples in it"),
            ("DELETE FROM thread WHERE id = 1", "reference to thread 1"),
            ("DELETE FROM sample WHERE block = 0", "add up to 0"),
            ("INSERT INTO cost VALUES (1, 0, 'run', 'task', 0, 1, 1)", "both costs and samples"),
        ],
    );
}

/// Check that a writer adds the samples of later blocks.
#[test]
fn samples_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.plumb");
    let whole = sampled(10);
    let mut part = whole.clone();
    part.blocks.pop();
    part.samples.pop();
    part.costs.retain(|cost| cost.block == 0);
    part.threads.pop();
    part.threads.push(whole.threads[1].clone());
    let mut writer = Writer::create(&path).unwrap();
    writer.save(&part).unwrap();
    assert_eq!(read(&path).unwrap(), part);
    writer.save(&whole).unwrap();
    assert_eq!(read(&path).unwrap(), whole);
}

/// A recording of samples, each in a stack of its own: walks through one call graph, each from where
/// an earlier one was.
fn distinct(stacks: u32) -> Recording {
    let mut recording = sampled(0);
    recording.blocks.pop();
    recording.samples.clear();
    recording.costs.clear();
    recording.nodes.truncate(1);
    let function = recording.functions[1].clone();
    recording.functions.resize(300, function);
    let mut state = 1_u64;
    let mut random = |most: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    let mut samples = Vec::new();
    let mut time_ns = 0;
    for _ in 0..stacks {
        let mut parent = random(recording.nodes.len() as u64) as u32;
        for _ in 0..4 {
            let caller = u64::from(recording.nodes[parent as usize].function);
            recording.nodes.push(Node {
                parent: Some(parent),
                function: ((caller * 5 + random(3)) % 300) as u32,
                tail: random(50) == 0,
            });
            parent = recording.nodes.len() as u32 - 1;
        }
        time_ns += 1_000_000 + random(1_000);
        samples.push(Sample {
            time_ns,
            weight: 1_000_000,
            node: recording.nodes.len() as u32 - 1,
            thread: 0,
            cpu: random(4) as u32,
            direction: Direction::Run,
            context: Context::Task,
        });
    }
    recording.add_samples(Samples::new(0, 0, samples));
    recording.blocks[0].totals[0] = netplumb_model::recording::Total {
        quantity: 0,
        kernel: u64::from(stacks) * 1_000_000,
        user: 0,
    };
    recording
}

/// Check that nodes of samples alone take a few bytes each, and are not rows.
#[test]
fn nodes_of_samples() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.plumb");
    let whole = distinct(50_000);
    Writer::create(&path).unwrap().save(&whole).unwrap();
    assert_eq!(read(&path).unwrap(), whole);
    assert_eq!((rows(&path, "node"), rows(&path, "node_chunk")), (0, 4));
    let bytes = fs::metadata(&path).unwrap().len();
    let (nodes, samples) = (whole.nodes.len() as u64, 50_000);
    assert!(bytes < 3 * nodes + 7 * samples, "{bytes} bytes");
}

/// Check that a file whose packed nodes have been changed is refused, whatever the change.
#[test]
fn changed_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.plumb");
    Writer::create(&path).unwrap().save(&distinct(50_000)).unwrap();
    refused(
        &path,
        &[
            ("DELETE FROM node_chunk WHERE first = 0", "id 65536, expected 0"),
            ("UPDATE node_chunk SET count = count - 1", "no 65535 nodes"),
            ("UPDATE node_chunk SET count = 1 << 40", "expected 1 to 65536"),
            ("UPDATE node_chunk SET count = 0", "expected 1 to 65536"),
            ("UPDATE node_chunk SET columns = x'00'", "no 65536 nodes"),
            (
                "UPDATE node_chunk SET first = first - 1 WHERE first > 0",
                "node 65535 does not follow",
            ),
            ("UPDATE node_chunk SET first = first + 1", "id 1, expected 0"),
            ("UPDATE node_chunk SET first = first - 1", "out of range"),
            ("INSERT INTO node VALUES (1, 0, 7, 0)", "node 1 differs"),
            ("INSERT INTO node VALUES (300000, 0, 7, 0)", "expected 200001"),
            ("DELETE FROM function WHERE id > 200", "reference to function 2"),
        ],
    );
    for (nodes, why) in [
        // A parent that is not before, and beyond 32 bits.
        ([[0, 0, 0, 0], [1, 2, 0, 0]], "invalid numbers after those of node 0"),
        ([[0, 0, 0, 0], [1, 1 << 32, 0, 0]], "invalid numbers"),
        // An id that does not follow, or leaves some out, or is beyond 32 bits.
        ([[0, 0, 0, 0], [0, 0, 0, 0]], "node 0 does not follow"),
        ([[0, 0, 0, 0], [2, 0, 0, 0]], "id 2, expected 1"),
        ([[0, 0, 0, 0], [u64::MAX, 0, 0, 0]], "invalid numbers"),
        ([[u64::from(u32::MAX), 0, 0, 0], [1, 0, 0, 0]], "more than 16777216 nodes"),
        // No such function, and what is neither a call nor a jump.
        ([[0, 0, 0, 0], [1, 1, 1 << 32, 0]], "invalid numbers"),
        ([[0, 0, 0, 0], [1, 1, 300, 0]], "node 1: dangling reference to function 300"),
        ([[0, 0, 0, 0], [1, 1, 0, 2]], "invalid numbers"),
    ] {
        let columns = crate::packed::pack(nodes).unwrap();
        let columns: String = columns.iter().map(|byte| format!("{byte:02x}")).collect();
        let change =
            format!("DELETE FROM node_chunk; INSERT INTO node_chunk VALUES (0, 2, x'{columns}')");
        refused(&path, &[(&change, why)]);
    }
    // Small, and of very many nodes.
    let chunk = crate::packed::pack((0..65_536_u64).map(|n| [n.min(1), 0, 0, 0])).unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute("DELETE FROM node_chunk", []).unwrap();
    for first in (0..1 << 25).step_by(65_536) {
        let sql = "INSERT INTO node_chunk VALUES (?, 65536, ?)";
        connection.execute(sql, (first, &chunk)).unwrap();
    }
    drop(connection);
    let error = read(&path).unwrap_err().to_string();
    assert!(error.contains("more than 16777216 nodes"), "{error}");
}

/// Check that nodes which costs or times refer to are rows, with all above them, as the views need
/// them, also if they were packed before.
#[test]
fn nodes_of_costs_and_samples() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.plumb");
    let mut growing = distinct(100);
    let mut writer = Writer::create(&path).unwrap();
    writer.save(&growing).unwrap();
    let (packed, above) = (growing.costs[7].node, growing.nodes.len() as u32);
    growing.nodes.push(Node { parent: Some(packed), function: 0, tail: false });
    let quantity = growing.quantity(&INSTRUCTIONS);
    growing.blocks.push(Block {
        totals: vec![netplumb_model::recording::Total { quantity, kernel: 5, user: 0 }],
        entered: 1,
        returned: 1,
        ..growing.blocks[0].clone()
    });
    growing.costs.push(Cost {
        quantity,
        block: 1,
        direction: Direction::Rx,
        context: Context::Task,
        node: above,
        calls: 1,
        own: 5,
    });
    writer.save(&growing).unwrap();
    assert_eq!(read(&path).unwrap(), growing);
    let mut depth = 1;
    let mut node = growing.nodes[above as usize];
    while let Some(parent) = node.parent {
        node = growing.nodes[parent as usize];
        depth += 1;
    }
    assert_eq!((rows(&path, "node"), rows(&path, "node_chunk")), (depth, 1));
    assert_eq!(
        rows(&path, "function_total WHERE total = 5"),
        rows(&path, "(SELECT DISTINCT function FROM node)")
    );
    refused(&path, &[("UPDATE node SET tail = 1 - tail", "differs from the packed one")]);
}
