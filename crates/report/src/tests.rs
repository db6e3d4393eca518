//! Every rendering of one small recording that has every kind of data.

mod columns;
mod outputs;
pub(crate) mod recording;
mod samples;

use std::path::Path;

use netplumb_model::class::{Context, Direction, Softirq};
use netplumb_model::experiment::Experiment;
use netplumb_model::recording::Recording;
use netplumb_testkit::golden;

use crate::analysis::{ClassView, class, classes};
use crate::terminal;
use crate::text::wrapped;
use crate::together::CrossQuantity;
use crate::view::View;
use crate::{claims, figures, functions, json, tree, trust};
use recording::{EXPERIMENT, LONG_LETTERS, small};

/// Compare with testdata/`name`, where the long name and characters that move
/// the cursor are replaced.
#[track_caller]
fn check(name: &str, text: &str) {
    let text = text
        .replace(&"x".repeat(LONG_LETTERS), "(10,000 times x)")
        .replace('\x1b', "(ESC)")
        .replace('\x07', "(BEL)");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    golden(&path, &text);
}

fn experiment() -> Experiment {
    Experiment::parse(EXPERIMENT).unwrap()
}

fn view(columns: usize) -> View {
    View { columns, ..View::default() }
}

/// Nothing that moves a terminal's cursor, and no line without end.
#[track_caller]
fn assert_tame(text: &str, columns: usize) {
    for line in text.lines() {
        assert!(!line.chars().any(char::is_control), "{line:?}");
        assert!(line.chars().count() <= columns, "{line:?}");
    }
}

/// Check that the tables are right at the usual width.
#[test]
fn terminal_100() {
    let recording = small();
    let text = terminal::render(&recording, &classes(&recording), &view(100));
    check("terminal-100.txt", &text);
    assert_tame(&text, 100);
}

/// Check that a narrow terminal is not overrun.
#[test]
fn terminal_60() {
    let recording = small();
    let text = terminal::render(&recording, &classes(&recording), &view(60));
    check("terminal-60.txt", &text);
    assert_tame(&text, 60);
}

/// Check that a layer's view has only its functions, as shares of it.
#[test]
fn terminal_of_a_layer() {
    let recording = small();
    let view = View { layer: Some("network".into()), tree: true, ..view(100) };
    let text = terminal::render(&recording, &classes(&recording), &view);
    check("terminal-network.txt", &text);
    assert_tame(&text, 100);
}

/// Check the message for an empty layer.
#[test]
fn terminal_of_an_empty_layer() {
    let recording = small();
    let udp_tx = class(&recording, 0, Direction::Tx);
    let view = View { layer: Some("bus".into()), ..view(100) };
    let text = terminal::render(&recording, &[udp_tx], &view);
    assert!(text.contains("bus: 0 per packet, 0.0% of the path"), "{text}");
    assert!(text.contains("Nothing of udp tx is in layer bus."), "{text}");
}

/// Check that `top` cuts a table and sums up the rest, with the tree below it.
#[test]
fn terminal_top_and_tree() {
    let recording = small();
    let view = View { top: 2, tree: true, ..view(100) };
    let text = terminal::render(&recording, &classes(&recording), &view);
    check("terminal-top-tree.txt", &text);
    assert_tame(&text, 100);
}

/// Check that `top` of 0 leaves none out.
#[test]
fn terminal_all() {
    let recording = small();
    let view = View { top: 0, ..view(100) };
    let udp_rx = class(&recording, 0, Direction::Rx);
    let text = terminal::render(&recording, &[udp_rx], &view);
    assert!(!text.contains("more functions"), "{text}");
    assert!(text.contains("skb_free_head"), "{text}");
}

/// Check that trees keep their shape, mark jumps and mention omissions.
#[test]
fn trees() {
    let recording = small();
    let mut text = String::new();
    for direction in [Direction::Tx, Direction::Rx] {
        let class = class(&recording, 0, direction);
        text.push_str(&format!("{}, all\n", class.class));
        text.push_str(&tree::render(&class, None, 0.0));
        text.push_str(&format!("\n{}, from 5 percent\n", class.class));
        text.push_str(&tree::render(&class, None, 5.0));
        text.push_str(&format!("\n{}, network\n", class.class));
        text.push_str(&tree::render(&class, Some("network"), 0.0));
        text.push('\n');
    }
    check("tree.txt", &text);
    assert_tame(&text, 130);
}

/// Check that a function is shown between its callers and callees: called from
/// two places, recursive, at the root, and not there.
#[test]
fn focus() {
    let recording = small();
    let udp_rx = class(&recording, 0, Direction::Rx);
    let id = |name: &str| recording.functions.iter().position(|f| f.name == name).unwrap() as u32;
    let mut text = String::new();
    for name in ["kmem_cache_free", "fib_lookup_walk", "handle_softirqs", "udp_sendmsg"] {
        text.push_str(&tree::render_focus(&udp_rx, id(name), 100));
        text.push('\n');
    }
    check("focus.txt", &text);
    assert_tame(&text, 100);
}

/// Check that the summary of all classes distinguishes arms of one protocol.
#[test]
fn summary() {
    let recording = small();
    let mut text = crate::summary::summary(&classes(&recording), 100);
    assert_tame(&text, 100);
    let mut alike = recording.clone();
    alike.arms[1].proto = alike.arms[0].proto;
    text.push('\n');
    text.push_str(&crate::summary::summary(&classes(&alike), 100));
    check("summary.txt", &text);
}

/// Check that a paper's figures are beside ours: its top function first, in
/// another place, in another layer, under a successor's name, gone; and a class
/// that was not measured.
#[test]
fn figures() {
    let recording = small();
    let text = figures::render(&experiment(), &classes(&recording));
    check("figures.txt", &text);
    assert_tame(&text, 130);
}

/// Check that without a layer a figure is of the whole path.
#[test]
fn figures_of_the_path() {
    let recording = small();
    let experiment = Experiment { layer: None, ..experiment() };
    let text = figures::render(&experiment, &classes(&recording));
    check("figures-path.txt", &text);
}

/// Check that every kind of claim gets every verdict that it can get.
#[test]
fn claims_are_judged() {
    let recording = small();
    let judged = claims::judge(&experiment(), &classes(&recording));
    for (n, one) in judged.iter().enumerate() {
        // Each statement begins with its expected verdict.
        assert!(one.says.starts_with(one.verdict.as_str()), "claim {n}: {one:?}");
    }
    let text = claims::render(&judged, 100);
    check("claims.txt", &text);
    assert_tame(&text, 100);
}

/// Check that CSV has a row for every function, whatever its name holds.
#[test]
fn csv_rows() {
    let recording = small();
    let views = classes(&recording);
    let text = functions::csv(&views, None, &CrossQuantity::default());
    check("functions.csv", &text);
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    let functions: Vec<String> = reader.records().map(|row| row.unwrap()[3].to_string()).collect();
    let shown: usize = views.iter().map(|c| c.functions.len()).sum();
    assert_eq!(functions.len(), shown);
    assert!(functions.contains(&crate::printable(recording::CONTROL, 80)));
    assert!(functions.contains(&recording::HTML.to_string()));
    check(
        "functions-network.csv",
        &functions::csv(&views, Some("network"), &CrossQuantity::default()),
    );
}

/// Check that the JSON document parses, and keeps names as they are.
#[test]
fn json_document() {
    let recording = small();
    let text = json::render(
        &recording,
        &classes(&recording),
        Some(&experiment()),
        &CrossQuantity::default(),
    );
    check("document.json", &text);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["schema"], json::SCHEMA);
    assert_eq!(document["complete"], false);
    let names: Vec<&str> = document["classes"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|c| c["functions"].as_array().unwrap())
        .map(|f| f["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&recording::CONTROL));
    assert!(names.contains(&recording::HTML));
    assert!(names.contains(&"x".repeat(LONG_LETTERS).as_str()));
}

fn footer(recording: &Recording, views: &[ClassView<'_>]) -> String {
    crate::footer::terminal(&trust::footer(recording, views), 100)
}

/// Check that the footer reports drops, a ledger that doesn't close, blocks
/// that differ or are missing, losses, and a run cut short.
#[test]
fn footers() {
    let recording = small();
    let text = footer(&recording, &classes(&recording));
    check("footer.txt", &text);
    assert_tame(&text, 100);
}

/// Check that a run without fault is reported as such, with unknown facts.
#[test]
fn footer_of_a_clean_run() {
    let mut recording = small();
    recording.complete = true;
    recording.losses.clear();
    recording.environment.clear();
    recording.costs.retain(|c| c.block == 0 && c.direction != Direction::Other);
    recording.blocks.truncate(1);
    recording.arms.truncate(1);
    let text = footer(&recording, &classes(&recording));
    check("footer-clean.txt", &text);
}

/// Check that work for no packet is shared by the packets of the shown arms
/// only.
#[test]
fn what_is_apart_is_per_packet_of_its_arm() {
    let recording = small();
    let udp_tx = class(&recording, 0, Direction::Tx);
    let text = footer(&recording, &[udp_tx]);
    // 1,500 instructions in 300 packets.
    assert!(text.contains("per packet: other-task 5\n"), "{text}");
}

/// Check that the ledger covers the arms that are shown, with their drops and no others'.
#[test]
fn the_ledger_is_of_what_is_shown() {
    let mut recording = small();
    let [one, other] = [0, 1].map(|arm| {
        let mut sum = 0;
        for block in recording.blocks.iter_mut().filter(|b| b.arm == arm) {
            let cause = format!("cause {arm}");
            block.ledger.dropped = [(cause, block.ledger.offered - block.ledger.delivered)].into();
            sum += block.ledger.offered;
        }
        sum
    });
    let views = classes(&recording);
    let of = |arm: usize| -> Vec<ClassView<'_>> {
        views.iter().filter(|v| v.arm == arm).cloned().collect()
    };
    for (arm, offered) in [(0, one), (1, other)] {
        let notes = trust::footer(&recording, &of(arm));
        let note = notes.iter().find(|note| note.topic == "packets").unwrap();
        assert!(note.text.starts_with(&format!("{offered} offered")), "{}", note.text);
        assert!(note.text.contains(&format!("(cause {arm})")), "{}", note.text);
        assert!(!note.text.contains(&format!("(cause {})", 1 - arm)), "{}", note.text);
    }
}

/// Check that quick runs, several kernels and mitigations by arm are reported.
#[test]
fn footer_of_arms_that_differ() {
    let mut recording = small();
    recording.environment.insert("clock.quick".into(), "yes".into());
    for (arm, kernel, mitigations) in [(0, "debian", "on"), (1, "mine", "off")] {
        let knobs = &mut recording.arms[arm].knobs;
        knobs.insert("kernel".into(), kernel.into());
        knobs.insert("mitigations".into(), mitigations.into());
    }
    let text = footer(&recording, &classes(&recording));
    assert!(text.contains("quick mode"), "{text}");
    assert!(text.contains("debian and mine, by arm"), "{text}");
    assert!(text.contains("mitigations off and on, by arm"), "{text}");
}

/// Check that every rendering copes with an empty recording, and with blocks in
/// which nothing ran.
#[test]
fn nothing_measured() {
    let mut bare = small();
    bare.costs.clear();
    for recording in [Recording::default(), bare] {
        let views = classes(&recording);
        assert!(views.is_empty());
        terminal::render(&recording, &views, &View::default());
        crate::summary::summary(&views, 0);
        figures::render(&experiment(), &views);
        claims::render(&claims::judge(&experiment(), &views), 0);
        assert_eq!(functions::csv(&views, None, &CrossQuantity::default()).lines().count(), 1);
        assert!(
            json::render(&recording, &views, None, &CrossQuantity::default())
                .contains("\"classes\": []")
        );
        for arm in 0..recording.arms.len() {
            let class = class(&recording, arm, Direction::Tx);
            assert_eq!(
                terminal::bottleneck(&class, None),
                format!("{} executed nothing.", class.class)
            );
            tree::render(&class, None, 0.0);
            tree::render_focus(&class, 0, 80);
        }
    }
}

/// Check that names of layers, arms and claims in a recording from elsewhere
/// can't move the cursor either.
#[test]
fn hostile_words_are_tamed_everywhere() {
    let hostile = "\x1b[2J\r\u{9b}1m";
    let mut recording = small();
    for function in &mut recording.functions {
        function.layer = Some(hostile.into());
        function.module = Some(hostile.into());
    }
    for arm in &mut recording.arms {
        arm.name = hostile.into();
        arm.knobs.insert("kernel".into(), format!("{hostile}{}", arm.proto));
    }
    for value in recording.environment.values_mut() {
        *value = hostile.into();
    }
    let mut experiment = experiment();
    experiment.layer = Some(hostile.into());
    for published in &mut experiment.published {
        published.figure = hostile.into();
        published.top_function = hostile.into();
    }
    let says = format!("{hostile}says");
    let layer = hostile.to_string();
    experiment.claims = vec![
        netplumb_model::experiment::Claim::Smaller {
            name: None,
            quantity: None,
            arm: None,
            says,
            of: vec![layer.clone()],
            than: vec![layer.clone()],
            within_ratio: 0.5,
            classes: vec!["udp tx".parse().unwrap()],
        },
        netplumb_model::experiment::Claim::Bottleneck {
            name: None,
            quantity: None,
            arm: None,
            says: layer.clone(),
            layer: Some(layer.clone()),
            classes: vec!["udp tx".parse().unwrap()],
        },
        netplumb_model::experiment::Claim::Bottleneck {
            name: None,
            quantity: None,
            arm: None,
            says: layer.clone(),
            layer: Some(format!("{layer}, other")),
            classes: vec!["udp tx".parse().unwrap()],
        },
    ];
    let views = classes(&recording);
    let mut text = terminal::render(&recording, &views, &View::default());
    text += &crate::summary::summary(&views, 100);
    text += &figures::render(&experiment, &views);
    text += &claims::render(&claims::judge(&experiment, &views), 100);
    text += &terminal::render(
        &recording,
        &views,
        &View { layer: Some(layer), tree: true, ..View::default() },
    );
    assert_tame(&text, 400);
}

/// Check that the most expensive function is a bottleneck with a quarter of the path, and with
/// less the largest of many.
#[test]
fn a_small_share_is_no_bottleneck() {
    let mut recording = small();
    let said = |recording: &Recording| {
        let views = classes(recording);
        let view = views.iter().find(|v| v.class.to_string() == "udp tx").unwrap();
        terminal::bottleneck(view, None)
    };
    assert!(said(&recording).starts_with("Bottleneck: udp_sendmsg with 210 of 537"));
    for cost in &mut recording.costs {
        cost.own = 6_000;
    }
    let text = said(&recording);
    assert!(text.starts_with("Largest of many: "), "{text}");
}

/// Check that self costs of functions, of layers, of contexts and of blocks each
/// add up to the total, in every class.
#[test]
fn sums_agree() {
    let recording = small();
    for class in &classes(&recording) {
        let functions: u64 = class.functions.iter().map(|f| f.self_insns).sum();
        let layers: u64 = class.layers.iter().map(|(_, insns)| insns).sum();
        let nodes: u64 = class.nodes.values().map(|n| n.self_insns).sum();
        assert_eq!(functions, class.total, "{}", class.class);
        assert_eq!(layers, class.total);
        assert_eq!(nodes, class.total);
        assert_eq!(class.contexts.values().sum::<u64>(), class.total);
        assert_eq!(class.by_block.iter().sum::<u64>(), class.total);
        for (layer, insns) in &class.layers {
            let of_layer: u64 = class.functions_of(Some(layer)).map(|f| f.self_insns).sum();
            assert_eq!(of_layer, *insns, "{layer}");
        }
    }
}

fn self_of_subtree(class: &ClassView<'_>, node: u32) -> u64 {
    class.nodes[&node].self_insns
        + class
            .children(Some(node))
            .into_iter()
            .map(|child| self_of_subtree(class, child))
            .sum::<u64>()
}

/// Check that a node's inclusive cost is the self cost of its subtree, and that
/// the roots' are the total.
#[test]
fn inclusive_is_the_subtree() {
    let recording = small();
    for class in &classes(&recording) {
        for (id, node) in &class.nodes {
            assert_eq!(node.inclusive_insns, self_of_subtree(class, *id));
        }
        let roots = class.roots();
        let whole: u64 = roots.iter().map(|root| class.nodes[root].inclusive_insns).sum();
        assert_eq!(whole, class.total);
    }
}

/// Check that no function costs more than the total, recursion or not, and that
/// one that is only ever a root costs its subtree.
#[test]
fn recursion_counts_once() {
    let recording = small();
    for class in &classes(&recording) {
        for f in &class.functions {
            assert!(f.inclusive_insns <= class.total);
            assert!(f.inclusive_insns >= f.self_insns);
        }
    }
    let udp_rx = class(&recording, 0, Direction::Rx);
    let inclusive = |name: &str| {
        udp_rx.functions.iter().find(|f| udp_rx.name(f.function) == name).unwrap().inclusive_insns
    };
    assert_eq!(inclusive("handle_softirqs"), {
        let context = Context::Softirq(Softirq::NetRx);
        udp_rx.contexts[&context]
    });
    // Three deep, 300 packets, 20 + 10 + 5 instructions and a helper's 4.
    assert_eq!(inclusive("fib_lookup_walk"), 300 * (20 + 10 + 5 + 4));
}

/// Check that a function was called as often as its callers called it, and cost
/// as much on their behalf as it cost: in the view around it and in JSON alike.
#[test]
fn calls_in_are_calls_out() {
    let recording = small();
    for class in &classes(&recording) {
        let mut called = 0;
        for f in &class.functions {
            let around = tree::focus(class, f.function);
            let calls: u64 = around.callers.iter().map(|(_, calls, _)| calls).sum();
            let insns: u64 = around.callers.iter().map(|(_, _, insns)| insns).sum();
            assert_eq!(calls, f.calls, "{}", class.name(f.function));
            assert_eq!(insns, f.inclusive_insns, "{}", class.name(f.function));
            called += around.callees.iter().map(|(_, calls, _)| calls).sum::<u64>();
        }
        let roots: u64 = class.roots().iter().map(|r| class.nodes[r].calls).sum();
        let all: u64 = class.functions.iter().map(|f| f.calls).sum();
        assert_eq!(called + roots, all);
    }
    let text = json::render(&recording, &classes(&recording), None, &CrossQuantity::default());
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    for class in document["classes"].as_array().unwrap() {
        for f in class["functions"].as_array().unwrap() {
            let sum = |key: &str| -> u64 {
                class["edges"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|e| e["callee"] == f["name"])
                    .map(|e| e[key].as_u64().unwrap())
                    .sum()
            };
            assert_eq!(sum("calls"), f["calls"], "{}", f["name"]);
            assert_eq!(sum("inclusive"), f["inclusive"], "{}", f["name"]);
        }
    }
}

/// Check that the classes of an arm and work for no packet add up to the counts
/// of its blocks.
#[test]
fn classes_and_other_are_the_blocks() {
    let recording = small();
    for arm in 0..recording.arms.len() {
        let whole: u64 =
            recording.blocks.iter().filter(|b| b.arm as usize == arm).map(|b| b.kernel()).sum();
        let parts: u64 =
            Direction::ALL.iter().map(|direction| class(&recording, arm, *direction).total).sum();
        assert_eq!(parts, whole);
        let other = class(&recording, arm, Direction::Other).total;
        let shown: u64 = classes(&recording).iter().filter(|c| c.arm == arm).map(|c| c.total).sum();
        assert_eq!(shown + other, whole);
    }
}

/// Check that footer lines go on below their text, at any width.
#[test]
fn lines_are_wrapped() {
    assert_eq!(
        wrapped("layers    one two three four five six seven", 40),
        "layers    one two three four five six\n          seven"
    );
    for columns in [0, 1, 40, 1000] {
        assert_eq!(wrapped("", columns), "");
        assert_eq!(wrapped("short", columns), "short");
    }
    // The tenth byte is within a letter.
    assert_eq!(wrapped("nnnnnnnnnéé two", 100), "nnnnnnnnnéé two");
}
