use std::collections::BTreeMap;
use std::path::Path;

use netplumb_model::bench::Hop;
use netplumb_model::experiment::Experiment;
use netplumb_model::recording::{Arm, Block, Ledger, Recording};
use netplumb_testkit::golden;

use super::{block, document, recording};
use crate::chart::{axis, chart, ideal, log_axis, point, published, series};
use crate::footer::Note;
use crate::html::render;
use crate::page::{
    Fact, Page, PageArm, PageArmState, PageCell, PageChart, PageColumn, PageFlow, PageNote,
    PagePart, PageRates, PageSection, PageSeriesKind, SCHEMA,
};
use crate::rates::explain::{part, with_tables};
use crate::rates::flows::flow;
use crate::table::{Column, Table, Value};

/// What a page has of a bench.
struct Parts<'p> {
    rates: &'p PageRates,
    charts: &'p [PageChart],
    latency: &'p [PagePart],
    flows: &'p [PageFlow],
}

impl Parts<'_> {
    fn from_page(page: &Page) -> Parts<'_> {
        let rates = page.parts().find_map(|part| match part {
            PagePart::Rates(rates) => Some(rates),
            _ => None,
        });
        let charts = page.parts().find_map(|part| match part {
            PagePart::Charts { charts } => Some(&charts[..]),
            _ => None,
        });
        let flows = page.parts().find_map(|part| match part {
            PagePart::Flows { flows } => Some(&flows[..]),
            _ => None,
        });
        let latency = page.sections.iter().find(|section| section.id == "latency");
        Parts {
            rates: rates.unwrap(),
            charts: charts.unwrap_or_default(),
            latency: latency.map_or(&[], |section| &section.parts),
            flows: flows.unwrap_or_default(),
        }
    }
}

/// A page with every part: rates by cores with published ones, CPU use by load on a
/// logarithmic scale, a ledger that adds up and one that does not.
fn sample() -> Page {
    use PageSeriesKind::{Line, Points, Published};
    let at = |x: f64, y: f64| point(x, y, Some((y * 0.96, y * 1.05)));
    let by_cores = |one: f64| (1..=6).map(move |n| at(f64::from(n), one * f64::from(n).powf(0.93)));
    let drop = chart(
        "Packets dropped, by cores",
        "Published figures are of 100 Gbit/s hardware: Mellanox ConnectX-5, Xeon E5-1650 v4. Ours \
         are of veth, with generator and path on the same cores.",
        [axis("cores", ""), axis("rate", "packets/s")],
        vec![
            series("xdp", Line, by_cores(16.4e6)),
            series("nft-raw", Line, by_cores(4.5e6)),
            series("nft-conntrack", Line, by_cores(2.2e6)),
            ideal("xdp, if cores did not share", 16.4e6, &[1, 6]),
            series(
                "published",
                Published,
                [
                    published(1.0, 24e6, "XDP 24 M"),
                    published(1.0, 43.5e6, "DPDK 43.5 M"),
                    published(1.0, 4.8e6, "raw 4.8 M"),
                    published(1.0, 1.8e6, "conntrack 1.8 M"),
                    published(5.0, 115e6, "PCI limit 115 M"),
                ],
            ),
        ],
    );
    let loads = [1e3, 1e4, 1e5, 5e5, 1e6, 5e6, 1e7];
    let cpu = chart(
        "CPU use, by offered load",
        "",
        [log_axis("offered", "packets/s"), axis("CPU", "%")],
        vec![
            series("xdp", Line, loads.map(|x| at(x, (x / 1.6e5).min(100.0)))),
            series("nft-raw", Line, loads[..6].iter().map(|x| at(*x, (x / 4.5e4).min(100.0)))),
            series("dpdk", Line, loads[..5].iter().map(|x| point(*x, 100.0, Some((99.8, 100.0))))),
        ],
    );
    let sizes = chart(
        "Rates by size, on both scales of ratios",
        "Of one block each, and so without intervals where there was but one.",
        [log_axis("frame", "bytes"), log_axis("rate", "packets/s")],
        vec![series(
            "xdp",
            Points,
            [at(60.0, 16e6), at(566.0, 14e6), point(1514.0, 9e6, None), point(0.0, 0.0, None)],
        )],
    );
    let whole = Hop {
        name: "generator to tx0".into(),
        entered: 12_000_000,
        left: 11_880_000,
        dropped: BTreeMap::from([("xdp_devmap_xmit ENOSPC (the queue is full)".into(), 120_000)]),
    };
    let last = Hop {
        name: "rx0 to nft-raw".into(),
        entered: 11_880_000,
        left: 11_000_000,
        dropped: BTreeMap::from([
            ("softnet backlog".into(), 800_000),
            ("kfree_skb NETFILTER_DROP".into(), 79_988),
            ("rx0 rx_dropped".into(), 12),
        ]),
    };
    let lost = Hop { left: 9_000_000, ..last.clone() };
    let costs = with_tables(
        "why: kernel instructions of each packet".into(),
        "instructions",
        vec!["xdp".into(), "nft-raw".into()],
        [
            ("driver", "driver", [131.0, 105.0]),
            ("netfilter", "netfilter", [0.0, 526.5]),
            ("bpf", "bpf", [124.0, 102.0]),
            ("generator", "", [478.0, 1_092.0]),
        ]
        .map(|(name, layer, each)| part(name, layer, each.into()))
        .into(),
        &[("nft_do_chain", "netfilter", [0.0, 372.0]), ("veth_poll", "driver", [100.0, 95.0])]
            .map(|(name, layer, each)| part(name, layer, each.into())),
    );
    let flows = vec![
        flow("nft-raw, 1 core, block 3", "", &[whole.clone(), last]),
        flow(
            "nft-raw, 1 core, block 4",
            "2,000,000 packets went missing on the way from rx0",
            &[whole, lost],
        ),
    ];
    let charts = PagePart::Charts { charts: vec![drop, cpu, sizes] };
    let sections = [
        ("rates", "Rates", vec![PagePart::Rates(sample_rates()), charts]),
        ("latency", "Latency", sample_latency()),
        ("why", "Why", vec![PagePart::Costs(costs)]),
        ("flows", "Where packets went", vec![PagePart::Flows { flows }]),
    ];
    let section = |(id, title, parts)| PageSection::new(id, title, parts);
    Page {
        schema: SCHEMA,
        title: "How fast packets are dropped".into(),
        question: "Is XDP ahead of the kernel's other ways to drop?".into(),
        headline: vec!["xdp drops 3.6 times as many as nft-raw.".into()],
        trust: vec![Note::new(
            "CPUs",
            "by idle time and by tracepoints, no more than 0.4 points apart",
        )],
        facts: vec![Fact { key: "cpu.accounting".into(), value: "by ticks".into(), before: None }],
        unit: "packets/s".into(),
        sections: sections.into_iter().filter_map(section).collect(),
        ..Page::default()
    }
}

/// Latencies, one of them unknown.
fn sample_latency() -> Vec<PagePart> {
    type ArmFigures = (&'static str, u64, [Option<f64>; 3]);
    let mut columns = vec![
        Column::code("arm", |r: &ArmFigures| Value::Name(r.0.into(), None)).page("arm"),
        Column::figure("packets", |r: &ArmFigures| Value::Count(r.1)).page("packets"),
    ];
    columns.extend((0..).zip(["p50", "p99", "max"]).map(|(n, title): (usize, _)| {
        Column::figure(title, move |r: &ArmFigures| r.2[n].map_or(Value::Missing, Value::Ns))
            .page(title)
    }));
    let rows: [ArmFigures; 2] = [
        ("xdp", 4_000, [1_850.0, 3_900.0, 61_000.0].map(Some)),
        ("nft-raw", 4_000, [Some(9_200.0), None, Some(140_000.0)]),
    ];
    let caption = "one-way latency, from when a packet was due to when it was received, ns";
    let sentences = vec!["A frame waits until its batch is full.".into()];
    vec![
        PagePart::Table(Table::new(columns, rows).page(caption)),
        PagePart::Sentences { sentences },
    ]
}

/// Arms of every state, in their order.
fn sample_rates() -> PageRates {
    let cell = |text: &str, value: Option<f64>| PageCell { text: text.into(), value, off: false };
    let arm = |name: &str, pps: Option<f64>, lost: f64, mark: &str| PageArm {
        name: name.into(),
        state: match (pps, mark.starts_with("invalid")) {
            (Some(_), _) => PageArmState::Measured,
            (None, true) => PageArmState::Invalid,
            (None, false) => PageArmState::Absent,
        },
        pps,
        low: pps.map(|pps| pps * 0.9),
        high: pps.map(|pps| pps * 1.1),
        lost,
        mark: mark.into(),
        cells: vec![
            cell(name, None),
            cell(&pps.map_or("-".into(), |pps| format!("{:.2} M", pps / 1e6)), pps),
            cell(&format!("{:.2} %", lost * 100.0), Some(lost)),
            cell(mark, None),
        ],
    };
    let column = |title: &str, hint: &str| PageColumn {
        title: title.into(),
        hint: hint.into(),
        ..PageColumn::default()
    };
    let words =
        |title: &str| PageColumn { title: title.into(), words: true, ..PageColumn::default() };
    PageRates {
        title: "Packets handled each second, with the 95 % interval".into(),
        columns: vec![
            words("arm"),
            column("packets/s", "handled"),
            column("lost", "of all"),
            words("note"),
        ],
        arms: vec![
            arm("bridge", None, 0.0, "invalid: rx0: 7 went missing"),
            arm("socket", Some(1.2e6), 0.803, "80.30 % lost"),
            arm("xdp", Some(16.4e6), 0.0, "generator-bound"),
            arm("nft-raw", Some(4.5e6), 0.0, ""),
            arm("dpdk", None, 0.0, "not measured: it is not installed"),
        ],
        notes: vec![
            PageNote {
                arms: vec!["socket".into()],
                text: "8,030 of 10,000 lost, socket: receive buffer full".into(),
            },
            PageNote {
                arms: vec!["xdp".into(), "nft-raw".into()],
                text: "`?`: two ways of telling how busy a CPU was disagree".into(),
            },
        ],
    }
}

/// Check that a page of benches equals the golden file; web/ is tested with the same
/// one.
#[test]
fn the_page_of_benches() {
    let text = serde_json::to_string(&sample()).unwrap();
    let lines = text.replace("},{", "},\n{").replace("\":[{", "\":[\n{") + "\n";
    golden(&Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/page-bench.json"), &lines);
    let html = render(&sample());
    assert!(html.contains("How fast packets are dropped"));
    // Without scripts every arm is there in words.
    let (_, without) = html.split_once("<noscript>").unwrap();
    let (without, _) = without.split_once("</noscript>").unwrap();
    for arm in ["bridge", "socket", "80.30 % lost", "nft-raw", "not installed"] {
        assert!(without.contains(arm), "{arm}: {without}");
    }
}

/// Check that a recording's page has a sentence for each arm that was measured, a warning
/// for each that was not, and every packet in its flows: the block that does not add up
/// by itself.
#[test]
fn of_a_recording() {
    let recording = recording();
    let page = document(&recording, None, false).page();
    let bench = Parts::from_page(&page);
    assert!(bench.charts.is_empty(), "nothing was swept");
    let rates = bench.rates;
    let order: Vec<_> = rates.arms.iter().map(|a| (a.name.as_str(), a.mark.as_str())).collect();
    assert_eq!(
        order,
        [
            ("tc", "0.0025 % lost, 1 of 3 blocks invalid"),
            ("xdp", "generator-bound"),
            ("dpdk", "not measured: dpdk-testpmd is not installed: apt-get install dpdk"),
        ],
        "what lost packets is first, what could not be here is last"
    );
    assert!(rates.arms.iter().all(|a| a.cells.len() == rates.columns.len()));
    assert!(rates.arms[1].low < rates.arms[1].pps && rates.arms[1].pps < rates.arms[1].high);
    assert!(
        rates.notes.iter().any(|n| n.arms == ["tc"] && n.text.contains("ring of rx0 full")),
        "{:?}",
        rates.notes
    );
    let [PagePart::Table(latency), PagePart::Sentences { sentences }] = bench.latency else {
        panic!("{page:?}");
    };
    assert_eq!(latency.rows[0][0].text, "xdp");
    assert!(sentences[0].contains("waits until its batch is full"), "{sentences:?}");
    assert_eq!(page.headline.len(), 3, "{:?}", page.headline);
    assert!(page.headline[0].starts_with("xdp: 10.10 M packets/s ("));
    assert!(page.headline[0].ends_with("generator-bound"));
    assert!(page.warnings.iter().any(|w| w.starts_with("dpdk: ") && w.contains("apt-get")));
    let bars: Vec<_> =
        bench.flows.iter().map(|f| (f.title.as_str(), f.invalid.is_empty())).collect();
    assert_eq!(
        bars,
        [
            ("tc: block 3", false),
            ("xdp: all packets of 2 blocks", true),
            ("tc: all packets of 2 blocks", true),
        ]
    );
    assert_eq!(bench.flows[0].hops[1].missing, 7);
    assert!(bench.flows[1..].iter().all(|f| f.hops.iter().all(|h| h.missing == 0)));
    assert!(!page.facts.is_empty() && !page.trust.is_empty());
    render(&page);
}

const FILE: &str = r#"
name = "small"
title = "Small"
question = "What?"
lab = "netns"
[workload]
kind = "frames"
[[figure]]
name = "3"
title = "By CPUs"
vary = { path = ["xdp", "tc"], cores = [1, 2] }
x = "cores"
y = "handled"
published = [{ label = "XDP", x = 1, y = 24e6 }]
note = "Of\nnobody."
[[figure]]
name = "4"
title = "By load"
vary = { path = ["xdp"], rate = ["1k", "1M"] }
x = "rate"
y = "CPU use"
"#;

/// A recording of every arm of a file, with two blocks each.
fn of_file(file: &Experiment) -> Recording {
    let mut all = recording();
    let (mut arms, mut measured) = (Vec::new(), Vec::new());
    for figure in &file.figures {
        for arm in file.bench_arms_of(figure).unwrap() {
            let number = arms.len() as u32;
            arms.push(Arm {
                name: format!("arm {number}"),
                knobs: arm.knobs(),
                ..all.arms[0].clone()
            });
            let packets = 1_000_000 * u64::from(number + 1) * u64::from(arm.cores);
            measured.push((number, block(packets, 0, None)));
            measured.push((number, block(packets * 11 / 10, 0, None)));
        }
    }
    all = Recording { arms, complete: true, environment: all.environment, ..Recording::default() };
    for (n, (arm, measured)) in measured.iter().enumerate() {
        all.blocks.push(Block {
            arm: *arm,
            instrument: "rates".into(),
            index: n as u32 % 2,
            ledger: Ledger::default(),
            totals: Vec::new(),
            entered: 0,
            returned: 0,
            duration_ns: measured.window_ns,
        });
        measured.add_to(&mut all, n as u32);
    }
    all
}

/// Check that a file's figures are charts: a line for each path with its intervals, the
/// ideal of the fastest, published points, and a logarithmic scale where loads are far
/// apart; and that the same arms without the file are charts of the varied knobs.
#[test]
fn figures_are_charts() {
    let file = Experiment::parse(FILE).unwrap();
    let recording = of_file(&file);
    let page = document(&recording, Some(&file), false).page();
    assert_eq!((page.title.as_str(), page.question.as_str()), ("Small", "What?"));
    let bench = Parts::from_page(&page);
    assert!(bench.charts.is_empty(), "they are the page's figures");
    let [by_cores, by_load] = &page.figures[..] else { panic!("{:?}", page.figures) };
    assert_eq!(by_cores.title, "Figure 3: By CPUs");
    assert_eq!(by_cores.note, "Of nobody.");
    let kinds: Vec<_> = by_cores.series.iter().map(|s| (s.name.as_str(), s.kind)).collect();
    use PageSeriesKind::{Ideal, Line, Published};
    let fastest = kinds[2].0.to_string();
    assert_eq!(kinds[0], ("xdp", Line));
    assert_eq!(kinds[1], ("tc", Line));
    assert_eq!((fastest.as_str(), kinds[2].1), ("tc, if CPUs shared nothing", Ideal));
    assert_eq!(kinds[3], ("published", Published));
    let tc = &by_cores.series[1].points;
    assert_eq!(tc.iter().map(|p| p.x).collect::<Vec<_>>(), [1.0, 2.0]);
    assert!(tc.iter().all(|p| p.low.unwrap() < p.y && p.y < p.high.unwrap()));
    assert_eq!(by_cores.series[2].points[1].y, 2.0 * tc[0].y);
    assert!(by_load.x.log && !by_load.y.log && !by_cores.x.log);
    assert_eq!(by_load.series[0].points.len(), 2);
    assert!(page.claims.is_empty());
    // With many arms the top names the fastest; all of them are drawn.
    assert_eq!(page.headline.len(), 2, "{:?}", page.headline);
    assert!(page.headline[0].starts_with("6 arms. Fastest: "), "{:?}", page.headline);
    let rates = &bench.rates.arms;
    assert_eq!(rates.len(), 6);
    assert!(rates.is_sorted_by(|a, b| a.pps >= b.pps), "{rates:?}");

    let page = document(&recording, None, false).page();
    let charts = Parts::from_page(&page).charts;
    let titles: Vec<_> = charts.iter().map(|c| c.title.as_str()).collect();
    assert_eq!(titles, ["Packets handled, by cores", "Packets handled, by rate"]);
    assert!(charts[0].series.iter().any(|s| s.name.contains("tc") && s.points.len() == 2));
}
