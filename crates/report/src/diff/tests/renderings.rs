//! Every rendering of one comparison that has every kind of change.

use std::path::Path;

use netplumb_model::class::{Direction, Proto};
use netplumb_model::loss::Loss;
use netplumb_model::recording::{Recording, env};
use netplumb_testkit::golden;

use super::build::{Build, RX, arm, diff, paired};
use crate::diff::arms::{ArmPair, Pairs};
use crate::diff::{csv, json, markdown, of_arms, page, table, terminal};
use crate::page::Page;
use crate::table::reference::Entry;
use crate::tests::recording::{CONTROL, HTML, LONG_LETTERS};
use crate::view::View;

#[track_caller]
fn check(name: &str, text: &str) {
    let text = text
        .replace(&"x".repeat(LONG_LETTERS), "(10,000 times x)")
        .replace('\x1b', "(ESC)")
        .replace('\x07', "(BEL)");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/diff").join(name);
    golden(&path, &text);
}

/// UDP sent and received, TCP sent. After: `gate` costs more, `helper` is inlined into
/// `ip_output`, `old_name` and `clone.isra.0` have new names, a route is no longer
/// looked up, and one block is an outlier. Receiving varies.
fn sides() -> (Recording, Recording) {
    let long = "x".repeat(LONG_LETTERS);
    let make = |kernel: &str, after: bool| {
        let arms = vec![arm("udp", Proto::Udp), arm("tcp", Proto::Tcp)];
        let mut build = Build::with(kernel, arms, 5);
        build.each(0, "entry", 40).each(0, "entry/udp_sendmsg", 239);
        let output = "entry/udp_sendmsg/ip_output";
        let path = |name: &str| format!("{output}/{name}");
        if after {
            build.each(0, output, 104).each(0, &path("gate"), 180);
            build.each(0, &path("clone.isra.1"), 25);
            build.each(0, &path("new_name [veth]"), 61);
        } else {
            build.each(0, output, 74).each(0, &path("helper"), 36);
            build.each(0, &path("gate"), 64).each(0, &path("clone.isra.0"), 25);
            build.each(0, &path("old_name [veth]"), 60);
            build.each(0, &path("route"), 90).each(0, &path("route/walk"), 70);
        }
        for name in [CONTROL, HTML, &long] {
            // A slash would be another function.
            let name = name.replace('/', "|");
            build.each(0, &path(&name), if after { 17 } else { 12 });
        }
        build.each(1, "entry", 40).each(1, "entry/tcp_sendmsg", 500);
        for (n, refills) in [6, 7, 6, 8, if after { 8 } else { 7 }].iter().enumerate() {
            let block = 2 * n as u32;
            build.cost(block, Direction::Rx, RX, "poll/refill", *refills, refills * 400);
        }
        build.every(0, Direction::Rx, RX, "poll", 300);
        if after {
            build.cost(4, Direction::Tx, RX, "entry/reseed", 1, 13_000);
        }
        build.0
    };
    let (before, mut after) = (make("6.1.0-42-amd64", false), make("6.2.0-1-amd64", true));
    after.environment.insert(env::QEMU.into(), "8.0".into());
    after.complete = false;
    let meaning = "calls that began before the window";
    after.add_loss("exact", Loss::new("returns\nwithout a call", 12, meaning));
    (before, after)
}

#[track_caller]
fn assert_tame(text: &str, columns: usize) {
    for line in text.lines() {
        assert!(!line.chars().any(char::is_control), "{line:?}");
        assert!(line.chars().count() <= columns, "{line:?}");
    }
}

fn view(columns: usize) -> View {
    View { columns, ..View::default() }
}

/// Check the tables at the usual width and a narrow one.
#[test]
fn terminals() {
    let (before, after) = sides();
    let diff = diff(&before, &after);
    for columns in [100, 60] {
        let text = terminal::render(&diff, &view(columns));
        check(&format!("terminal-{columns}.txt"), &text);
        assert_tame(&text, columns);
    }
}

/// Check that a layer's view has only its functions, and that with few functions
/// shown the rest is summed up.
#[test]
fn terminal_of_a_layer_and_few() {
    let (before, after) = sides();
    let diff = diff(&before, &after);
    let view = View { layer: Some("network".into()), top: 3, ..view(100) };
    check("terminal-network-3.txt", &terminal::render(&diff, &view));
}

/// Check the document for programs.
#[test]
fn document() {
    let (before, after) = sides();
    check("document.json", &json::render(&diff(&before, &after)));
}

/// Check the lines of the CSV, of all layers and of one.
#[test]
fn lines() {
    let (before, after) = sides();
    let diff = diff(&before, &after);
    check("functions.csv", &csv(&diff, None));
    let transport = csv(&diff, Some("transport"));
    assert_eq!(transport.lines().count(), 2, "{transport}");
}

/// Check the Markdown: names are code or escaped.
#[test]
fn cover_letter() {
    let (before, after) = sides();
    let text = markdown::render(&diff(&before, &after), 4);
    check("cover-letter.md", &text);
    assert!(!text.contains("<script"), "{text}");
}

/// A page of a comparison, whose columns others can use.
pub(crate) fn any_page() -> Page {
    let (before, after) = sides();
    page::page(&diff(&before, &after))
}

/// The columns of the same.
pub(crate) fn any_columns() -> Vec<Vec<Entry>> {
    let (before, after) = sides();
    table::declared(&diff(&before, &after))
}

/// Check the page's data: one tree of both sides, moves by index.
#[test]
fn page_data() {
    let (before, after) = sides();
    let diff = diff(&before, &after);
    let page = page::page(&diff);
    assert!(page.diff);
    let class = &page.classes[0];
    let name = |id: u32| page.functions[id as usize].name.as_str();
    let renamed = page.functions.iter().find(|f| f.name == "new_name").unwrap();
    assert_eq!(renamed.was.as_deref(), Some("old_name"));
    assert_eq!((name(class.moves[0].from), name(class.moves[0].to)), ("helper", "ip_output"));
    let tree = &class.contexts[0];
    let row = (0..tree.parent.len()).find(|r| name(tree.function[*r]) == "gate").unwrap();
    assert_eq!((tree.self_insns_before[row], tree.self_insns[row]), (64 * 1_000, 180 * 800));
    assert_eq!((class.packets_before, class.packets), (1_000, 800));
    check("page.json", &(serde_json::to_string_pretty(&page).unwrap() + "\n"));
}

/// Check the few sentences that a recording with two arms begins with.
#[test]
fn arms_of_one_recording() {
    let mut arms = vec![arm("rules=0", Proto::Udp), arm("rules=1", Proto::Udp)];
    arms[1].knobs.insert("nft.rules".into(), "1".into());
    let mut build = Build::with("6.1", arms, 5);
    build.each(0, "send", 100).each(0, "send/nft_do_chain", 50);
    build.each(1, "send", 100).each(1, "send/nft_do_chain", 72);
    assert_eq!(
        of_arms(&build.0, &[], 100).unwrap(),
        "UDP send (nft.rules not set → 1): 150 to 172 instructions per packet, +22 (+14.7%), all of it in\n  \
         nft_do_chain\n"
    );
    assert_eq!(of_arms(&build.0, &[Direction::Rx], 100), None);
    let one = Build::send("6.1", &[("send", 10)]);
    assert_eq!(of_arms(&one, &[], 100), None);
}

/// Check that with hundreds of arms those that differ are listed, and the others
/// counted.
#[test]
fn many_arms() {
    let arms = (0..300).map(|n| {
        let mut arm = arm(&format!("k={n}"), Proto::Udp);
        arm.knobs.insert("sysctl.k".into(), n.to_string());
        arm
    });
    let mut build = Build::with("6.1", arms.collect(), 2);
    for n in 0..300 {
        build.each(n, "send", if n == 7 { 120 } else { 100 });
    }
    let text = of_arms(&build.0, &[], 120).unwrap();
    assert_eq!(
        text,
        "UDP send (sysctl.k 0 → 7): 100 to 120 instructions per packet, +20 (+20.0%), all of it in send\n\
         No difference in 298 others.\n"
    );
}

/// Check that a name of 10,000 letters and an arm's name of HTML are tamed in labels
/// of arms.
#[test]
fn hostile_arms() {
    let mut arms = vec![arm(HTML, Proto::Udp), arm(CONTROL, Proto::Udp)];
    arms[1].knobs.insert("y".repeat(10_000), CONTROL.into());
    let mut build = Build::with("6.1", arms, 5);
    build.each(0, "send", 100).each(1, "send", 110);
    let pairs = Pairs { pairs: vec![ArmPair { before: 0, after: 1 }], ..Pairs::default() };
    let diff = paired(&build.0, &build.0, &pairs);
    let text = terminal::render(&diff, &view(100));
    assert_tame(&text, 130);
    assert!(!markdown::render(&diff, 0).contains("<script"));
    assert_tame(&of_arms(&build.0, &[], 100).unwrap(), 130);
}
