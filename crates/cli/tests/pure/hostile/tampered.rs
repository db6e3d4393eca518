//! Recordings whose figures were changed.

use std::fs;

use super::{FORMATS, made, plumb};
use crate::common::{self, Place, prints};

/// How a recording of instructions is tampered with, and the message that it has to cause.
const OF_INSTRUCTIONS: &[(&str, &[&str])] = &[
    (
        "UPDATE cost SET own = 2 * own WHERE block = 0",
        &["table total, block 0", "costs add up to", "instructions"],
    ),
    ("UPDATE cost SET own = -own", &["table cost", "own", "negative count"]),
    (
        "UPDATE total SET kernel = kernel + 1 WHERE block = 1",
        &["table total, block 1", "costs add up to"],
    ),
    ("UPDATE total SET kernel = -kernel", &["table total, row 0", "kernel", "negative count"]),
    (
        "UPDATE cost SET calls = calls + 1 WHERE block = 0",
        &["table block, row 0", "were entered", "calls"],
    ),
    ("UPDATE block SET returned = entered + 1", &["table block, row 0", "returned"]),
    ("UPDATE block SET offered = -1", &["offered", "negative count"]),
    (
        "UPDATE block SET offered = 9223372036854775807, delivered = 9223372036854775807",
        &["table block", "offered", "add up to more than"],
    ),
    ("UPDATE block SET arm = 9", &["table block, row 0", "arm 9"]),
    ("UPDATE block SET id = id + 100", &["table block, row 0", "id 100"]),
    ("UPDATE node SET parent = id WHERE id = 1", &["node 1", "parent 1"]),
    ("UPDATE node SET parent = id + 1 WHERE id = 1", &["node 1", "does not precede it"]),
    ("UPDATE node SET function = 99999 WHERE id = 1", &["node 1", "function 99999"]),
    ("DELETE FROM node WHERE id = 1", &["table node, row 1", "id 2"]),
    ("DELETE FROM function", &["node 0", "function"]),
    ("UPDATE function SET id = id + 100000 WHERE id > 1", &["table function, row 2", "id 100002"]),
    ("UPDATE function SET file = 7, line = 1 WHERE id = 1", &["table function", "source file 7"]),
    (
        "UPDATE cost SET direction = 'sideways' WHERE direction = 'tx'",
        &["table cost", "direction", "sideways"],
    ),
    ("UPDATE cost SET block = 77 WHERE block = 0", &["table cost", "block 77"]),
    ("UPDATE cost SET node = -1 - node WHERE block = 0", &["table cost", "out of range"]),
    ("DELETE FROM cost WHERE block = 1", &["table total, block 1", "costs add up to 0"]),
    ("INSERT INTO dropped VALUES (77, 'c', 1)", &["table dropped", "block 77"]),
    ("INSERT INTO knob VALUES (77, 'k', 'v')", &["table knob", "arm 77"]),
    ("INSERT INTO loss VALUES ('exact', 'c', -1, 'm')", &["table loss", "count", "negative count"]),
    (
        "INSERT OR REPLACE INTO source_file VALUES (0, 'a.c');
         INSERT INTO line_cost VALUES (0, 0, 0, 3, 99999999999)",
        &["table line_cost", "lines of function 0"],
    ),
    (
        "UPDATE function SET name = printf('%.*c', 10485760, 'x') WHERE id = 1",
        &["table function, row 1, name", "10485760 bytes"],
    ),
    (
        "UPDATE environment SET value = printf('%.*c', 15728640, 'x') WHERE key = 'clock'",
        &["table environment", "value", "bytes"],
    ),
];

/// The same for recordings of times.
const OF_TIMES: &[(&str, &[&str])] = &[
    ("UPDATE span SET count = 2 * count WHERE id = 0", &["table span, row 0", "buckets"]),
    (
        "UPDATE span SET total_ns = 40 * total_ns WHERE id = 0",
        &["table span, row 0", "by its buckets"],
    ),
    ("UPDATE span SET min_ns = max_ns + 1 WHERE id = 1", &["table span, row 1", "minimum"]),
    ("UPDATE span SET max_ns = -1", &["table span, row 0, max_ns", "negative count"]),
    (
        "UPDATE span SET corrected_ns = 9e999 WHERE node IS NOT NULL",
        &["corrected_ns", "is not finite"],
    ),
    ("UPDATE span SET node = 44 WHERE id = 0", &["table span, row 0", "node 44"]),
    ("UPDATE span_bucket SET bucket = 600", &["table span, row 0", "bucket 600"]),
    ("UPDATE span_bucket SET count = -count", &["table span_bucket", "negative count"]),
    ("INSERT INTO span_bucket VALUES (999, 1, 1)", &["table span_bucket", "a span 999"]),
    ("DELETE FROM span WHERE id = 5", &["table span", "id 6"]),
    ("UPDATE span SET count = 2 * count WHERE id = 4", &["table span, row 4", "buckets"]),
    ("UPDATE span SET kind = 'idle' WHERE name IS NOT NULL", &["table span, row 4, kind", "idle"]),
    ("UPDATE scalar SET value = -5", &["table scalar, row 0", "negative count"]),
    ("UPDATE scalar SET value = -9e999", &["table scalar, row 0, value", "is not finite"]),
    (
        "INSERT INTO scalar VALUES (0, NULL, 0, NULL, 'x', NULL), (0, NULL, 0, NULL, 'y', 1.8e19)",
        &["table scalar", "counts add up to"],
    ),
    (
        "INSERT INTO quantity SELECT 2, instrument, name, unit, kind, repeats, calls, number, label \
         FROM quantity WHERE id = 0",
        &["table quantity, row 2", "duplicate quantity"],
    ),
    ("UPDATE scalar SET block = 12", &["table scalar, row 0", "block 12"]),
    ("UPDATE scalar SET quantity = 12", &["table scalar, row 0", "quantity 12"]),
    ("UPDATE scalar SET arm = 0", &["table scalar, row 0", "both a block and an arm"]),
    ("UPDATE trace SET number = -3", &["table trace", "negative count"]),
    ("UPDATE trace SET steps = 2", &["table trace, row 0", "expected 2"]),
    ("UPDATE trace SET steps = 0", &["table trace_step", "more steps"]),
    ("UPDATE trace SET follows = 'frame'", &["table trace", "unknown kind of trace `frame`"]),
    ("UPDATE trace SET quantity = 99", &["table trace, row 0", "quantity 99"]),
    ("DELETE FROM trace_text", &["table trace, row 0", "text"]),
    ("UPDATE trace_step SET columns = x'00'", &["table trace_step", "no 1 steps in it"]),
    ("UPDATE block SET duration_ns = -3", &["table block", "duration_ns"]),
];

/// Check that each is refused by all that read recordings, with the error and its place.
fn refused(place: &Place, whole: &str, all: &[(&str, &[&str])]) {
    for (sql, words) in all {
        made::changed(place, whole, "t.plumb", sql);
        for command in [
            "report t.plumb".to_string(),
            "report t.plumb --json".into(),
            "report t.plumb --html page.html".into(),
            format!("diff {whole} t.plumb"),
            format!("diff t.plumb {whole}"),
        ] {
            let ran = plumb(place, &command, sql);
            assert_eq!(ran.status.code(), Some(1), "{sql}: {ran:#?}");
            assert_eq!(ran.stdout, "", "{sql}");
            ran.says(&["t.plumb: the recording is truncated or damaged"]);
            for word in *words {
                assert!(ran.stderr.contains(word), "{sql}: no `{word}` in {ran:#?}");
            }
            assert!(ran.stderr.len() < 600, "{sql}: {ran:#?}");
        }
    }
    assert!(!place.path("page.html").exists());
}

/// Check that figures which contradict each other are refused.
#[test]
fn instructions_that_do_not_add_up() {
    let place = Place::new();
    made::save(&place, "whole.plumb", &made::exact());
    plumb(&place, "report whole.plumb", "as made").code(0);
    refused(&place, "whole.plumb", OF_INSTRUCTIONS);
}

/// Check the same of times.
#[test]
fn times_that_do_not_add_up() {
    let place = Place::new();
    made::save(&place, "whole.plumb", &made::timed());
    plumb(&place, "report whole.plumb", "as made").code(0);
    refused(&place, "whole.plumb", OF_TIMES);
}

/// Check that a recording of a guest is read, that the same changed is refused, and that
/// neither what takes it up nor what takes names from it does so.
#[test]
fn a_recording_of_a_guest() {
    if !common::has_guests() {
        return;
    }
    let place = Place::new();
    let run = "path --link lo --packets 20 --blocks 2 -o whole.plumb";
    place.run(run).code(0);
    for format in FORMATS {
        plumb(&place, &format!("report whole.plumb {format}"), "whole").code(0);
    }
    fs::remove_file(place.path("out.html")).unwrap();
    refused(&place, "whole.plumb", OF_INSTRUCTIONS);

    let doubled = "UPDATE cost SET own = 2 * own WHERE block = 0";
    made::changed(&place, "whole.plumb", "t.plumb", doubled);
    let before = fs::read(place.path("t.plumb")).unwrap();
    for command in [
        "path --link lo --packets 20 --blocks 2 -o t.plumb --resume",
        "path --link lo --clock functions --from-recording t.plumb",
    ] {
        let ran = place.run(command);
        assert_ne!(ran.status.code(), Some(0), "{command}: {ran:#?}");
        ran.says(&["t.plumb", "costs add up to"]);
    }
    assert_eq!(fs::read(place.path("t.plumb")).unwrap(), before);
}

/// Check that every output with figures points out a ledger that does not close.
#[test]
fn a_ledger_that_does_not_close() {
    let place = Place::new();
    made::save(&place, "whole.plumb", &made::exact());
    let sql = "UPDATE block SET delivered = delivered - 3 WHERE arm = 0 AND repetition = 1";
    made::changed(&place, "whole.plumb", "t.plumb", sql);
    for format in ["", "--markdown", "--tree --top 0"] {
        let ran = plumb(&place, &format!("report t.plumb {format}"), sql);
        prints(ran.code(0), &["INVALID"]);
        let whole = plumb(&place, &format!("report whole.plumb {format}"), sql);
        assert!(!whole.code(0).stdout.contains("INVALID"), "{whole:?}");
    }
    let csv = plumb(&place, "report t.plumb --csv", sql);
    let mut reader = csv::Reader::from_reader(csv.code(0).stdout.as_bytes());
    let headers = reader.headers().unwrap().clone();
    let column = |name| headers.iter().position(|h| h == name).unwrap();
    for record in reader.records().map(Result::unwrap) {
        let invalid = if record[column("arm")] == *"udp" { "1" } else { "0" };
        assert_eq!(&record[column("invalid_blocks")], invalid);
    }
    let json = plumb(&place, "report t.plumb --json", sql);
    let json: serde_json::Value = serde_json::from_str(&json.code(0).stdout).unwrap();
    assert_eq!(json["blocks"][2]["valid"], false);
    assert_eq!(json["blocks"][3]["valid"], true);
    let ran = plumb(&place, "diff whole.plumb t.plumb", sql);
    prints(ran.code(0), &["is invalid in 1 of 4 blocks"]);
}
