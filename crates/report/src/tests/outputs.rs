//! The formats of other tools, read by these tools or by equally strict readers.
//! `callgrind_annotate` and `go tool pprof` are in the tests of `cli`.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use netplumb_model::recording::{Cost, Function, Node, Recording};
use prost::Message;

use super::recording::{HTML, small};
use super::{check, experiment, view};
use crate::analysis::{ClassView, classes};
use crate::profile::{MAX_FRAMES, NAME_LIMIT};
use crate::together::CrossQuantity;
use crate::{callgrind, folded, markdown, pprof, speedscope, svg};

/// Names that mean something in one format or another, added to [`small`]'s.
const HOSTILE: [&str; 8] = [
    "a;b c\td",
    "(3) fn=(1) main",
    "| `cell` || ``end`` \\|",
    "",
    "   ",
    "]]></text><script>alert(1)</script>",
    "[link](javascript:alert(1)) @someone #1 **b**",
    "\u{ffff}\u{202e}\n0 99999999",
];

/// [`small`], with functions, arms, layers and modules of such names.
fn hostile() -> Recording {
    let mut recording = small();
    for (function, name) in recording.functions.iter_mut().zip(HOSTILE) {
        function.name = name.into();
        function.layer = Some(name.into());
        function.module = Some(name.into());
    }
    recording.arms[1].name = HOSTILE.concat();
    for value in recording.environment.values_mut() {
        *value = HOSTILE.concat();
    }
    recording
}

/// 100,000 nodes of 2,000 functions, 40 deep, in one class.
fn large() -> Recording {
    const NODES: u32 = 100_000;
    let mut recording = small();
    let block = recording.costs[0].block;
    let (direction, context) = (recording.costs[0].direction, recording.costs[0].context);
    recording.functions = (0..2_000)
        .map(|n| Function {
            name: format!("function_with_a_usual_name_{n}"),
            ..recording.functions[n % 20].clone()
        })
        .collect();
    recording.nodes = (0..NODES)
        .map(|n| Node {
            // Chains of 40.
            parent: (n % 40 > 0).then(|| n - 1),
            function: (n * 7 + n / 40) % 2_000,
            tail: false,
        })
        .collect();
    recording.costs = (0..NODES)
        .map(|node| Cost {
            quantity: 0,
            block,
            direction,
            context,
            node,
            calls: 1,
            own: u64::from(node % 97) + 1,
        })
        .collect();
    recording
}

/// One stack of 20,000 functions with names of 10,000 letters.
fn deep() -> Recording {
    let mut recording = large();
    for (n, function) in recording.functions.iter_mut().enumerate() {
        function.name = format!("{n}{}", "y".repeat(10_000));
    }
    recording.nodes.truncate(20_000);
    recording.costs.truncate(20_000);
    for (n, node) in recording.nodes.iter_mut().enumerate() {
        node.parent = (n as u32).checked_sub(1);
    }
    recording
}

fn unzipped(bytes: &[u8]) -> pprof::Profile {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
    pprof::Profile::decode(&plain[..]).unwrap()
}

/// A profile in words.
fn profile_text(profile: &pprof::Profile) -> String {
    let s = |n: i64| profile.string_table[n as usize].as_str();
    let mut out = String::new();
    for kind in &profile.sample_type {
        out += &format!("{}/{} ", s(kind.r#type), s(kind.unit));
    }
    out += &format!("default {} at {}\n", s(profile.default_sample_type), profile.time_nanos);
    for comment in &profile.comment {
        out += &format!("# {}\n", s(*comment));
    }
    for m in &profile.mapping {
        let (start, end) = (m.memory_start, m.memory_limit);
        out += &format!("mapping {} {start:x}-{end:x} {}\n", m.id, s(m.filename));
    }
    for l in &profile.location {
        let function = profile.function.iter().find(|f| f.id == l.line[0].function_id);
        let function = function.unwrap();
        let name = s(function.name);
        out += &format!("location {} in {} at {:x} {name}", l.id, l.mapping_id, l.address);
        if function.start_line > 0 {
            out += &format!(" {}:{}", s(function.filename), function.start_line);
        }
        out.push('\n');
    }
    for sample in &profile.sample {
        let labels: Vec<String> =
            sample.label.iter().map(|l| format!("{}={}", s(l.key), s(l.str))).collect();
        out += &format!("{:?} {:?} {}\n", sample.value, sample.location_id, labels.join(" "));
    }
    out
}

/// Check that each format equals its reviewed golden file.
#[test]
fn as_they_were() {
    let recording = small();
    let views = classes(&recording);
    let experiment = experiment();
    check("outputs/stacks.folded", &folded::render(&views));
    check("outputs/callgrind.out", &callgrind::render(&recording, &views));
    check("outputs/profile.txt", &profile_text(&unzipped(&pprof::render(&recording, &views))));
    check("outputs/speedscope.json", &speedscope::render(&views, "small", "0.1.0"));
    check("outputs/layers.svg", &svg::render(&recording, &views, None, None));
    check("outputs/figures.svg", &svg::render(&recording, &views, Some(&experiment), None));
    check(
        "outputs/report.md",
        &markdown::render(&recording, &views, None, &view(100), &CrossQuantity::default()),
    );
    let mut of_layer = view(100);
    of_layer.layer = Some("network".into());
    of_layer.top = 3;
    check(
        "outputs/experiment.md",
        &markdown::render(
            &recording,
            &views,
            Some(&experiment),
            &of_layer,
            &CrossQuantity::default(),
        ),
    );
}

/// Stacks, counts and the sum of a folded file, read as its readers do.
fn unfolded(text: &str) -> Vec<(Vec<&str>, u64)> {
    text.lines()
        .map(|line| {
            let (stack, count) = line.rsplit_once(' ').unwrap();
            (stack.split(';').collect(), count.parse().unwrap())
        })
        .collect()
}

/// Check that folded stacks have one blank on each line, add up, and are written once each;
/// and, in `make soak`, which installs it, that inferno draws all of them.
#[test]
fn folded_stacks_add_up() {
    for recording in [small(), hostile(), deep()] {
        let views = classes(&recording);
        let text = folded::render(&views);
        let stacks = unfolded(&text);
        let mut seen = std::collections::BTreeSet::new();
        for (stack, count) in &stacks {
            assert!(*count > 0);
            assert!((4..=MAX_FRAMES + 3).contains(&stack.len()), "{stack:?}");
            for frame in stack {
                assert!(!frame.is_empty());
                assert!(frame.chars().count() <= NAME_LIMIT, "{frame}");
                assert!(!frame.chars().any(|c| c.is_whitespace() || c.is_control()));
            }
            assert!(seen.insert(stack.clone()), "twice: {stack:?}");
        }
        for class in &views {
            let name = class.class.to_string().replace(' ', "_");
            let sum: u64 =
                stacks.iter().filter(|(stack, _)| stack[1] == name).map(|(_, count)| count).sum();
            assert_eq!(sum, class.total, "{name}");
        }
    }
    let recording = hostile();
    let views = classes(&recording);
    let text = folded::render(&views);
    if !netplumb_testkit::is_soak() {
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &text).unwrap();
    let mut inferno = Command::new("inferno-flamegraph");
    let output = inferno.arg(file.path()).output().unwrap();
    let image = String::from_utf8(output.stdout).unwrap();
    let total: u64 = views.iter().map(|c| c.total).sum();
    let total: String = crate::number::thousands(total);
    assert!(image.contains(&format!("all ({total} samples, 100%)")), "{image}");
}

/// Self and inclusive cost of each function, counted as callgrind_annotate does: a
/// function's inclusive cost is the cost of the calls to it.
fn annotated(text: &str) -> (u64, BTreeMap<String, (u64, u64)>) {
    let mut names: HashMap<String, String> = HashMap::new();
    let mut name = |text: &str| -> String {
        let (id, name) = text.split_once(' ').unwrap_or((text, ""));
        if name.is_empty() {
            names[id].clone()
        } else {
            names.insert(id.into(), name.into());
            name.into()
        }
    };
    let mut costs: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let (mut on, mut called, mut of_call) = (String::new(), String::new(), false);
    let mut total = 0;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("fn=") {
            on = name(rest);
        } else if let Some(rest) = line.strip_prefix("cfn=") {
            called = name(rest);
        } else if let Some(count) = line.strip_prefix("calls=") {
            assert!(count.split(' ').next().unwrap().parse::<u64>().unwrap() > 0);
            of_call = true;
        } else if let Some((_, rest)) =
            line.split_once(' ').filter(|(at, _)| at.bytes().all(|b| b.is_ascii_digit()))
        {
            let cost: u64 = rest.split(' ').next().unwrap().parse().unwrap();
            let sum: u64 = rest.split(' ').skip(1).map(|n| n.parse::<u64>().unwrap()).sum();
            assert!(sum == cost || !rest.contains(' '), "{line}");
            if of_call {
                costs.entry(called.clone()).or_default().1 += cost;
            } else {
                costs.entry(on.clone()).or_default().0 += cost;
            }
            of_call = false;
        } else if let Some(rest) = line.strip_prefix("totals: ") {
            total = rest.split(' ').next().unwrap().parse().unwrap();
        }
    }
    (total, costs)
}

/// Check that callgrind's reader would see each function's own and inclusive
/// cost, in recursion too, and the total.
#[test]
fn callgrind_costs_are_ours() {
    let recording = small();
    let all = classes(&recording);
    for views in [&all[..], &all[1..2]] {
        let (total, costs) = annotated(&callgrind::render(&recording, views));
        let expected: u64 = views.iter().map(|c| c.total).sum();
        assert_eq!(total, expected);
        assert_eq!(costs.values().map(|c| c.0).sum::<u64>(), total);
        let mut ours: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for class in views {
            for f in &class.functions {
                let cost = ours.entry(class.name(f.function)).or_default();
                cost.0 += f.self_insns;
                cost.1 += f.inclusive_insns;
            }
        }
        for (name, (own, inclusive)) in ours {
            if name.chars().any(char::is_control) || name.len() > NAME_LIMIT {
                continue;
            }
            // Levels of recursion are `name'2` and so on; the first has it all.
            let level = |(n, _): &(&String, &(u64, u64))| {
                *n == name || n.strip_prefix(name).is_some_and(|r| r.starts_with('\''))
            };
            let summed: u64 = costs.iter().filter(level).map(|(_, c)| c.0).sum();
            assert_eq!((summed, costs[name].1), (own, inclusive), "{name}");
        }
    }
    // It calls itself twice over.
    let text = callgrind::render(&recording, &all);
    assert!(text.contains("fib_lookup_walk'2"), "{text}");
    assert!(text.contains("fib_lookup_walk'3"), "{text}");
}

/// Check that no name starts a line of callgrind's, or refers to another, and that
/// functions of one name stay apart.
#[test]
fn callgrind_names_are_tame() {
    for mut recording in [hostile(), deep()] {
        let twin = recording.functions[0].name.clone();
        recording.functions[1].name = twin;
        let views = classes(&recording);
        let text = callgrind::render(&recording, &views);
        let (total, costs) = annotated(&text);
        assert_eq!(total, views.iter().map(|c| c.total).sum::<u64>());
        assert_eq!(costs.values().map(|c| c.0).sum::<u64>(), total);
        for line in text.lines() {
            assert!(!line.chars().any(char::is_control), "{line:?}");
            assert!(line.chars().count() < 1_200, "{line:?}");
        }
        let named = |prefix: &str| {
            let names = text.lines().filter_map(|l| l.strip_prefix(prefix));
            names.filter(|n| n.contains(' ')).count()
        };
        assert!(named("fn=") + named("cfn=") >= views[0].functions.len());
    }
}

/// Check that a pprof profile's samples make up each function's own and inclusive
/// cost and its calls, class by class, and that it refers only to what is in it.
#[test]
fn pprof_costs_are_ours() {
    for recording in [small(), hostile(), deep()] {
        let views = classes(&recording);
        let profile = unzipped(&pprof::render(&recording, &views));
        let s = |n: i64| profile.string_table[n as usize].as_str();
        assert_eq!(s(0), "");
        assert_eq!(s(profile.mapping[0].filename), "vmlinux");
        let mut names = HashMap::new();
        for location in &profile.location {
            assert!(location.mapping_id <= profile.mapping.len() as u64);
            let function = &profile.function[location.line[0].function_id as usize - 1];
            assert!(s(function.name).chars().count() <= NAME_LIMIT);
            if let Some(mapping) =
                profile.mapping.get((location.mapping_id as usize).wrapping_sub(1))
            {
                let range = mapping.memory_start..mapping.memory_limit;
                assert!(range.contains(&location.address));
            }
            names.insert(location.id, location.address);
        }
        for class in &views {
            let label = |sample: &&crate::pprof::proto::Sample, key: &str, value: &str| {
                let mut labels = sample.label.iter();
                labels.any(|l| s(l.key) == key && s(l.str) == value)
            };
            let arm = crate::profile::tame(&class.arm().name);
            let samples: Vec<_> = profile
                .sample
                .iter()
                .filter(|x| label(x, "class", &class.class.to_string()) && label(x, "arm", &arm))
                .collect();
            let mut flat: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
            let mut inclusive: BTreeMap<u64, u64> = BTreeMap::new();
            for sample in &samples {
                assert!(sample.location_id.len() <= MAX_FRAMES);
                let leaf = flat.entry(names[&sample.location_id[0]]).or_default();
                leaf.0 += sample.value[0] as u64;
                leaf.1 += sample.value[1] as u64;
                let mut on: Vec<u64> = sample.location_id.iter().map(|l| names[l]).collect();
                on.sort_unstable();
                on.dedup();
                for address in on {
                    *inclusive.entry(address).or_default() += sample.value[1] as u64;
                }
            }
            assert_eq!(flat.values().map(|f| f.1).sum::<u64>(), class.total);
            // In large and deep recordings addresses are not the functions' own.
            if recording.functions.len() > 100 {
                continue;
            }
            for f in &class.functions {
                let address = recording.functions[f.function as usize].address;
                let own = flat.get(&address).copied().unwrap_or_default();
                assert_eq!(own, (f.calls, f.self_insns), "{}", class.name(f.function));
                assert_eq!(inclusive[&address], f.inclusive_insns);
            }
        }
    }
}

/// Where Debian's python3-jsonschema is.
const JSONSCHEMA: &str = "/usr/lib/python3/dist-packages/jsonschema";

/// Whether speedscope's own JSON schema allows this document; errors are on the standard error.
fn is_by_the_schema(document: &str) -> bool {
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/speedscope-schema.json");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), document).unwrap();
    let mut python = Command::new("python3");
    python.args(["-W", "ignore", "-m", "jsonschema", "-i"]);
    let status = python.arg(file.path()).arg(schema).status();
    status.unwrap().success()
}

/// Check that speedscope's own schema accepts the document, that opened frames are
/// closed, in order, and that a profile is as long as its class's cost.
#[test]
fn speedscope_takes_it() {
    if !Path::new(JSONSCHEMA).exists() {
        return netplumb_testkit::skip("no jsonschema: apt-get install python3-jsonschema");
    }
    for recording in [small(), hostile(), deep(), Recording::default()] {
        let views = classes(&recording);
        let text = speedscope::render(&views, "title", "0.1.0");
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(is_by_the_schema(&text));
        let frames = document["shared"]["frames"].as_array().unwrap();
        let profiles = document["profiles"].as_array().unwrap();
        assert_eq!(profiles.len(), views.len());
        for (profile, class) in profiles.iter().zip(&views) {
            assert_eq!(profile["endValue"], class.total);
            let mut at = 0;
            let mut open = Vec::new();
            let mut own: BTreeMap<u64, u64> = BTreeMap::new();
            for event in profile["events"].as_array().unwrap() {
                let now = event["at"].as_u64().unwrap();
                let frame = event["frame"].as_u64().unwrap();
                if let Some(top) = open.last() {
                    *own.entry(*top).or_default() += now - at;
                }
                at = now;
                assert!((frame as usize) < frames.len());
                match event["type"].as_str().unwrap() {
                    "O" => open.push(frame),
                    _ => assert_eq!(open.pop(), Some(frame)),
                }
                assert!(open.len() <= MAX_FRAMES + 1);
            }
            assert!(open.is_empty());
            assert_eq!(at, class.total);
            for f in &class.functions {
                let name = class.name(f.function);
                let mine = |frame: &serde_json::Value| frame["name"] == name;
                if let Some(frame) = frames.iter().position(mine) {
                    assert_eq!(own[&(frame as u64)], f.self_insns, "{name}");
                }
            }
        }
    }
    // A wrong document is rejected.
    let wrong = serde_json::json!({"profiles": [{"type": "evented"}], "shared": {}});
    assert!(!is_by_the_schema(&wrong.to_string()));
}

/// Check that figures are XML of nothing but shapes and words, whose words stay on
/// the page, and that names from elsewhere are only words.
#[test]
fn figures_are_clean() {
    let experiment = experiment();
    for recording in [small(), hostile(), Recording::default()] {
        let views = classes(&recording);
        for (experiment, layer) in [
            (None, None),
            (None, Some("network")),
            (Some(&experiment), None),
            (Some(&experiment), Some("link")),
        ] {
            let text = svg::render(&recording, &views, experiment, layer);
            let document = roxmltree::Document::parse(&text).unwrap();
            let root = document.root_element();
            let length = |name: &str| -> f64 {
                let text = root.attribute(name).unwrap();
                text.strip_suffix("pt").unwrap().parse().unwrap()
            };
            assert!([240.0, 504.0].contains(&length("width")), "{text}");
            assert!(length("height") < 4_000.0);
            for element in document.descendants().filter(roxmltree::Node::is_element) {
                let name = element.tag_name().name();
                let known = ["svg", "g", "rect", "text", "line", "title", "defs", "pattern"];
                assert!(known.contains(&name), "{name}");
                for attribute in element.attributes() {
                    assert!(!attribute.name().starts_with("on"), "{attribute:?}");
                    assert!(!attribute.name().contains("href"), "{attribute:?}");
                }
                for number in ["x", "y", "width", "height"] {
                    let value = element.attribute(number).map(|v| v.replace("pt", ""));
                    let value: f64 = value.map_or(0.0, |v| v.parse().unwrap());
                    assert!(value >= 0.0 && value.is_finite(), "{element:?}");
                }
                if name == "text" {
                    let words = element.text().unwrap_or_default().trim();
                    assert!(words.chars().count() < 200, "{words}");
                }
            }
        }
    }
    let recording = small();
    let views = classes(&recording);
    let text = svg::render(&recording, &views, None, Some("network"));
    let document = roxmltree::Document::parse(&text).unwrap();
    let start: String = HTML.chars().take(12).collect();
    assert!(
        document.descendants().any(|n| n.text().is_some_and(|t| t.trim().starts_with(&start))),
        "{text}"
    );
    // Shares of a class add up, as far as tenths of a percent do.
    let shares: f64 = document
        .descendants()
        .filter(roxmltree::Node::is_element)
        .filter_map(|n| n.text()?.trim().strip_suffix('%')?.parse::<f64>().ok())
        .sum();
    let drawn = views.iter().filter(|c| c.layer_insns("network") > 0).count();
    assert!((shares - 100.0 * drawn as f64).abs() < drawn as f64, "{shares}");
}

/// Check that Markdown's reader sees tables of as many cells as there are columns,
/// each name as it is, and no HTML, link or picture.
#[test]
fn markdown_is_only_words() {
    use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
    let experiment = experiment();
    for recording in [small(), hostile()] {
        let views = classes(&recording);
        let mut view = view(100);
        view.top = 0;
        let text = markdown::render(
            &recording,
            &views,
            Some(&experiment),
            &view,
            &CrossQuantity::default(),
        );
        let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
        let mut columns = 0;
        let mut cells = 0;
        let mut cell = String::new();
        let mut first_cells = Vec::new();
        let mut verbatim = false;
        for event in Parser::new_ext(&text, options) {
            match event {
                Event::Start(Tag::Table(alignments)) => columns = alignments.len(),
                Event::Start(Tag::TableCell) => cell.clear(),
                Event::End(TagEnd::TableCell) => {
                    if cells == 0 {
                        first_cells.push(cell.clone());
                    }
                    cells += 1;
                }
                Event::End(TagEnd::TableHead | TagEnd::TableRow) => {
                    assert_eq!(cells, columns, "{cell}");
                    cells = 0;
                }
                Event::Html(html) | Event::InlineHtml(html) => panic!("HTML: {html}\n{text}"),
                Event::Start(Tag::Link { .. } | Tag::Image { .. }) => panic!("a link:\n{text}"),
                Event::Start(Tag::CodeBlock(_)) => verbatim = true,
                Event::End(TagEnd::CodeBlock) => verbatim = false,
                Event::Text(words) => {
                    assert!(verbatim || !words.contains("@someone"), "{words}");
                    cell.push_str(&words);
                }
                Event::Code(words) => cell.push_str(&words),
                _ => {}
            }
        }
        // A row of each function of each class, by its name.
        for class in &views {
            for f in &class.functions {
                let function = &recording.functions[f.function as usize];
                let whole = match &function.module {
                    Some(module) => {
                        format!("{} [{}]", function.name, crate::printable(module, 20))
                    }
                    None => function.name.clone(),
                };
                let shown = crate::printable(&whole, 60);
                assert!(
                    first_cells.iter().any(|c| c.trim() == shown.trim()),
                    "no {shown:?} in {first_cells:#?}"
                );
            }
        }
    }
    let many = vec![small(); 1];
    let views = classes(&many[0]);
    let views: Vec<ClassView<'_>> = views.iter().cycle().take(200).cloned().collect();
    let text = markdown::render(&many[0], &views, None, &view(100), &CrossQuantity::default());
    assert!(text.contains("Functions are listed for up to 12 classes"), "{text}");
    assert!(text.len() < 65_536, "{}", text.len());
}

/// Check that every format copes with an empty recording.
#[test]
fn nothing_to_write() {
    let recording = Recording::default();
    assert_eq!(folded::render(&[]), "");
    assert_eq!(annotated(&callgrind::render(&recording, &[])), (0, BTreeMap::new()));
    assert!(unzipped(&pprof::render(&recording, &[])).sample.is_empty());
    markdown::render(&recording, &[], Some(&experiment()), &view(100), &CrossQuantity::default());
}

/// Check that 100,000 nodes take about a second in each format, and that neither
/// depth nor long names make output without end.
#[test]
fn large_recordings() {
    // Against what grows with the square of the size. Tests are not optimised, and the machine may be busy.
    const PATIENCE: Duration = Duration::from_secs(60);
    for (recording, most_bytes) in [(large(), 200 << 20), (deep(), 1 << 30)] {
        let started = Instant::now();
        let views = classes(&recording);
        eprintln!("classes {:?}", started.elapsed());
        let formats: [(&str, &dyn Fn() -> usize); 6] = [
            ("folded", &|| folded::render(&views).len()),
            ("callgrind", &|| callgrind::render(&recording, &views).len()),
            ("pprof", &|| pprof::render(&recording, &views).len()),
            ("speedscope", &|| speedscope::render(&views, "", "").len()),
            ("svg", &|| svg::render(&recording, &views, None, None).len()),
            ("markdown", &|| {
                markdown::render(&recording, &views, None, &view(100), &CrossQuantity::default())
                    .len()
            }),
        ];
        for (name, render) in formats {
            let started = Instant::now();
            let bytes = render();
            let took = started.elapsed();
            eprintln!("{name} {took:?} {bytes} bytes");
            assert!(took < PATIENCE, "{name} took {took:?}");
            assert!(bytes < most_bytes, "{name}: {bytes} bytes");
        }
    }
}
