use std::path::Path;

use netplumb_model::class::Direction;
use netplumb_model::experiment::Experiment;
use netplumb_testkit::golden;

use super::*;
use crate::analysis::classes;
use crate::page::{Fact, PageCell, PageClass, PageFunction, PageMove, PageTable, PageTree, SCHEMA};
use crate::tests::recording::{CONTROL, EXPERIMENT, HTML, LONG_LETTERS, small};
use crate::together::CrossQuantity;

fn page() -> Page {
    let recording = small();
    let experiment = Experiment::parse(EXPERIMENT).unwrap();
    report_page(&recording, &classes(&recording), Some(&experiment), &CrossQuantity::default())
}

/// The data of a page, unpacked as the browser does it.
fn data_of(html: &str) -> serde_json::Value {
    let begin = r#"<script type="application/octet-stream" id="plumb-data">"#;
    let (_, rest) = html.split_once(begin).unwrap();
    let (data, _) = rest.split_once("</script>").unwrap();
    let bytes = STANDARD.decode(data).unwrap();
    serde_json::from_reader(flate2::read::GzDecoder::new(&bytes[..])).unwrap()
}

/// Check that a report's page equals the golden file; web/ is tested with the
/// same one.
#[test]
fn the_page_of_a_report() {
    let mut text = serde_json::to_string_pretty(&page()).unwrap();
    text.push('\n');
    golden(&Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/page.json"), &text);
}

/// Check that the costs of a page equal the tables': by class, by context,
/// and by function, inclusive too.
#[test]
fn costs_are_those_of_the_tables() {
    let recording = small();
    let views = classes(&recording);
    let page = report_page(&recording, &views, None, &CrossQuantity::default());
    assert_eq!(page.classes.len(), views.len());
    for (view, class) in views.iter().zip(&page.classes) {
        assert_eq!(class.packets, view.packets);
        let mut total = 0;
        for tree in &class.contexts {
            let rows = tree.parent.len();
            assert!(rows > 0);
            for column in [tree.function.len(), tree.calls.len(), tree.self_insns.len()] {
                assert_eq!(column, rows);
            }
            let mut inclusive = tree.self_insns.clone();
            for row in (0..rows).rev() {
                let parent = tree.parent[row];
                assert!(parent < row as i64);
                if parent >= 0 {
                    inclusive[parent as usize] += inclusive[row];
                }
            }
            // Every row has a cost.
            assert!(inclusive.iter().all(|insns| *insns > 0));
            let sum: u64 = tree.self_insns.iter().sum();
            let context = view
                .contexts
                .iter()
                .find(|(context, _)| context.to_string() == tree.context)
                .unwrap();
            assert_eq!(sum, *context.1, "{} {}", class.class, tree.context);
            total += sum;
        }
        assert_eq!(total, view.total);
        for function in &view.functions {
            let sum: u64 = class
                .contexts
                .iter()
                .flat_map(|tree| tree.function.iter().zip(&tree.self_insns))
                .filter(|(f, _)| **f == function.function)
                .map(|(_, insns)| insns)
                .sum();
            assert_eq!(sum, function.self_insns, "{}", view.name(function.function));
        }
    }
}

/// Check that an ancestor without a cost of its own is in the tree.
#[test]
fn ancestors_are_in_the_tree() {
    let page = page();
    let class = page.classes.iter().find(|c| c.class == "udp rx").unwrap();
    let softirq = class.contexts.iter().find(|tree| tree.context == "softirq:NET_RX").unwrap();
    let row = (0..softirq.parent.len())
        .find(|row| page.functions[softirq.function[*row] as usize].name == "net_rx_action")
        .unwrap();
    assert_eq!((softirq.calls[row], softirq.self_insns[row]), (0, 0));
    assert_eq!(softirq.parent[row], 0);
}

/// Check that the browser gets the page's data unchanged, and that the template
/// has one placeholder for each part.
#[test]
fn data_come_back() {
    for marker in [TITLE, NOSCRIPT, DATA] {
        assert_eq!(TEMPLATE.matches(marker).count(), 1, "{marker}");
    }
    let page = page();
    let html = render(&page);
    assert_eq!(data_of(&html), serde_json::to_value(&page).unwrap());
    for marker in [TITLE, NOSCRIPT, DATA] {
        assert!(!html.contains(marker), "{marker}");
    }
}

/// Check that the page without data is below a megabyte, and names nothing that a
/// browser would fetch.
#[test]
fn the_template_is_small_and_alone() {
    assert!(TEMPLATE.len() < 1 << 20, "{} bytes", TEMPLATE.len());
    for word in ["src=\"", "href=\"http", "url(http", "@import", "PLUMB_POLICY"] {
        assert!(!TEMPLATE.contains(word), "{word}");
    }
    assert!(TEMPLATE.contains("default-src 'none'"));
}

/// Check that names made of HTML, of control characters or of ten thousand
/// letters stay text, and bounded.
#[test]
fn hostile_names_stay_text() {
    let mut page = page();
    page.title = format!("{HTML}{CONTROL}</title>{}", "y".repeat(LONG_LETTERS));
    page.headline = vec![format!("{HTML}</noscript><img src=x onerror=alert(1)>")];
    let html = render(&page);
    assert!(!html.contains("<script>alert"), "a name is markup");
    assert!(!html.contains("<img"), "a name is markup");
    assert_eq!(html.matches("</title>").count(), 1);
    assert_eq!(html.matches("</noscript>").count(), 1);
    assert!(!html.contains('\x1b'));
    let longest = page.functions.iter().map(|f| f.name.chars().count()).max();
    assert_eq!(longest, Some(500));
    assert!(page.functions.iter().all(|f| !f.name.chars().any(char::is_control)));
    assert!(page.functions.iter().any(|f| f.name == HTML));
}

/// Check that only the selected directions are there.
#[test]
fn only_what_is_shown() {
    let recording = small();
    let mut views = classes(&recording);
    views.retain(|view| view.class.direction == Direction::Tx);
    let page = report_page(&recording, &views, None, &CrossQuantity::default());
    let classes: Vec<&str> = page.classes.iter().map(|c| c.class.as_str()).collect();
    assert_eq!(classes, ["udp tx", "raw tx"]);
    assert!(page.warnings.iter().any(|w| w.contains("cut short")));
}

/// Check that a comparison's page equals the golden file; web/ is tested with
/// the same one.
#[test]
fn the_page_of_a_comparison() {
    let function = |name: &str, layer: &str, was: Option<&str>| PageFunction {
        name: name.into(),
        module: None,
        layer: layer.into(),
        was: was.map(String::from),
        source: was.map(|_| "/src/net/ipv4/route.c:12".into()),
    };
    // The columns are the same as in any comparison.
    let like = crate::diff::tests::renderings::any_page();
    let cell =
        |text: &str, value: f64| PageCell { text: text.into(), value: Some(value), off: false };
    let words = |text: &str| PageCell { text: text.into(), value: None, off: false };
    let figures =
        || [cell("120", 120.0), cell("106", 106.0), cell("-14", -14.0), cell("-11.7%", -11.7)];
    let summary = like.summary.unwrap();
    let mut row = vec![words("udp tx")];
    row.extend(figures());
    row.push(words("gone -30"));
    let columns = summary.columns.into_iter().filter(|c| c.key != "arm");
    let summary = PageTable { columns: columns.collect(), rows: vec![row], ..summary };
    let mut row = vec![words("network")];
    row.extend(figures());
    let layers = PageTable { rows: vec![row], ..like.classes[0].layers.clone().unwrap() };
    let page = Page {
        schema: SCHEMA,
        summary: Some(summary),
        diff: true,
        title: "small: before and after".into(),
        headline: vec!["udp tx: 120 to 106 instructions per packet".into()],
        warnings: vec!["The kernels differ.".into()],
        unit: "instructions".into(),
        facts: vec![Fact {
            key: "kernel.release".into(),
            value: "6.1.0-56-amd64".into(),
            before: Some("6.1.0-54-amd64".into()),
        }],
        functions: vec![
            function("send", "transport", None),
            function("gone", "network", None),
            function("new", "network", None),
            function("alloc", "memory", Some("alloc.isra.0")),
        ],
        classes: vec![PageClass {
            arm: "before → after".into(),
            class: "udp tx".into(),
            per: "packet".into(),
            sentence: "udp tx costs less".into(),
            packets: 100,
            packets_before: 200,
            contexts: vec![PageTree {
                context: "task".into(),
                parent: vec![-1, 0, 0, 0],
                function: vec![0, 1, 2, 3],
                calls: vec![100, 0, 100, 100],
                self_insns: vec![5_000, 0, 1_600, 4_000],
                calls_before: vec![200, 200, 0, 200],
                self_insns_before: vec![10_000, 6_000, 0, 8_000],
            }],
            layers: Some(layers),
            columns: like.classes[0].columns.clone(),
            published: None,
            moves: vec![PageMove {
                from: 1,
                to: 2,
                insns_per_packet: 16.0,
                why: "inlined into its caller".into(),
            }],
            ..PageClass::default()
        }],
        ..Page::default()
    };
    let mut text = serde_json::to_string_pretty(&page).unwrap();
    text.push('\n');
    golden(&Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/page-diff.json"), &text);
    assert_eq!(data_of(&render(&page)), serde_json::to_value(&page).unwrap());
}

/// Check that a page of a hundred thousand frames is made fast, and is small.
#[test]
fn a_hundred_thousand_frames() {
    const FRAMES: u64 = 100_000;
    let tree = PageTree {
        context: "task".into(),
        parent: (0..FRAMES as i64).map(|row| row - 1 - row % 30).map(|p| p.max(-1)).collect(),
        function: (0..FRAMES).map(|row| (row * 7919 % 3000) as u32).collect(),
        calls: (0..FRAMES).map(|row| 200 * (row % 5)).collect(),
        self_insns: (0..FRAMES).map(|row| 200 * (row * 31 % 997)).collect(),
        ..PageTree::default()
    };
    let page = Page {
        schema: SCHEMA,
        functions: (0..3000)
            .map(|n| PageFunction { name: format!("function_{n}"), ..PageFunction::default() })
            .collect(),
        classes: vec![PageClass { packets: 200, contexts: vec![tree], ..PageClass::default() }],
        ..Page::default()
    };
    let started = std::time::Instant::now();
    let html = render(&page);
    let took = started.elapsed();
    // The requirement is one second on an idle machine.
    assert!(took.as_secs() < 5, "{took:?}");
    assert!(html.len() < 3 << 20, "{} bytes", html.len());
}
