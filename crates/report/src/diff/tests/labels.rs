//! The subject of each sentence of one output: no two pairs have the same words.

use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::class::{Direction, Family, Link, Proto};
use netplumb_model::experiment::Experiment;
use netplumb_model::recording::{Arm, Recording};

use super::build::{Build, arm, diff, paired};
use super::properties::Random;
use crate::diff::arms::{OneArm, Pairs, differing, pair_within};
use crate::diff::sentence::subject;
use crate::diff::{of_arms, sentence};

fn arms(text: &str) -> Vec<Arm> {
    Experiment::parse(&format!("name = \"x\"\n{text}")).unwrap().arms()
}

/// A recording of these arms, all of the same cost.
fn measured(arms: Vec<Arm>) -> Recording {
    let count = arms.len() as u32;
    let mut build = Build::with("6.1", arms, 5);
    for n in 0..count {
        build.each(n, "udp_send", 100);
    }
    build.0
}

/// The subjects of the sentences about a recording's arms.
fn subjects(recording: &Recording) -> Vec<String> {
    let pairs = Pairs { pairs: pair_within(recording), ..Pairs::default() };
    let diff = paired(recording, recording, &pairs);
    diff.classes.iter().map(subject).collect()
}

/// Check that a sentence names a level that its arms share if others have another: two sizes
/// over two links are not twice "link lo to veth".
#[test]
fn shared_levels_are_named() {
    let recording = measured(arms(
        "[vary]\nproto = [\"raw\"]\nlink = [\"lo\", \"veth\"]\nsize_bytes = [10, 1024]\n",
    ));
    assert_eq!(
        subjects(&recording),
        [
            "RAW send (bytes 10 → 1024; lo)",
            "RAW send (link lo → veth; 10 bytes)",
            "RAW send (link lo → veth; 1024 bytes)",
        ]
    );
    let text = of_arms(&recording, &[], 200).unwrap();
    let lines: BTreeSet<&str> = text.lines().collect();
    assert_eq!((lines.len(), text.lines().count()), (3, 3), "{text}");
}

/// Check that rules are labelled by their text, whatever its lines, and that their defaults
/// are left out.
#[test]
fn rules_are_one_level() {
    let recording = measured(arms(
        "[[arm]]\nname = \"none\"\n[[arm]]\nname = \"empty\"\nknobs.nft = \"\"\n[[arm]]\nname = \
         \"text\"\nknobs.nft = \"\"\"\ntable ip t {\n  chain c {\n    counter\n  }\n}\n\"\"\"\n[[arm]]\n\
         name = \"made\"\nknobs.nft = { rules = 10 }\n",
    ));
    assert_eq!(
        subjects(&recording),
        [
            "UDP send (nft not set → empty)",
            "UDP send (nft not set → table ip t { chain c { counter } })",
            "UDP send (nft.rules not set → 10)",
        ]
    );
}

/// Check that modules are labelled by their files, wherever these are, and that two of one name
/// are marked as different.
#[test]
fn modules_are_called_by_their_files() {
    let recording = measured(arms(
        "[[arm]]\nname = \"own\"\n[[arm]]\nname = \"one\"\nknobs.module = \"/a/usbnet.ko\"\n[[arm]]\n\
         name = \"two\"\nknobs.module = [\"/b/usbnet.ko\", \"/b/smsc95xx+filter.patch.ko\"]\n",
    ));
    assert_eq!(
        subjects(&recording),
        [
            "UDP send (module not set → usbnet.ko)",
            "UDP send (module not set → usbnet.ko and smsc95xx+filter.patch.ko)",
        ]
    );
    let again = |path: &str| {
        let mut again = recording.clone();
        let knobs = &mut again.arms[1].knobs;
        knobs.insert("module".into(), path.into());
        again
    };
    let [was, is] = [again("/a/usbnet.ko"), again("/b/usbnet.ko")];
    let [was, is] = [&was, &is].map(|recording| OneArm { recording, number: 1 });
    let differing = differing(was, is);
    assert_eq!(differing[0].2, "usbnet.ko (another file)");
}

/// A set of arms that an experiment may have: some distinguished only by their names,
/// some with long or odd levels.
fn any_arms(random: &mut Random) -> Vec<Arm> {
    let mut pick = |of: &[&str]| of[random.below(of.len() as u64) as usize].to_string();
    let count = 2 + pick(&["0", "2", "4", "7"]).parse::<usize>().unwrap();
    let long = "x".repeat(50);
    (0..count)
        .map(|n| {
            let proto = [Proto::Udp, Proto::Raw][usize::from(pick(&["0", "0", "1"]) == "1")];
            let mut knobs = BTreeMap::new();
            for (key, levels) in [
                ("kernel", ["debian", "other", ""]),
                ("qdisc", ["fq", "netem delay 5us", ""]),
                ("cmdline", [&*format!("{long}a"), &*format!("{long}b"), ""]),
                ("nft", ["add table ip t", "a\nb\tc", ""]),
                ("sysctl.net.core.x", ["1\t2", "\u{1b}[2J", ""]),
            ] {
                let level = pick(&levels);
                if !level.is_empty() {
                    knobs.insert(key.to_string(), level);
                }
            }
            Arm {
                family: [Family::V4, Family::V6][usize::from(pick(&["0", "1"]) == "1")],
                link: [Link::Veth, Link::Lo][usize::from(pick(&["0", "1"]) == "1")],
                size_bytes: pick(&["10", "1024"]).parse().unwrap(),
                knobs,
                ..arm(&format!("{}{n}", pick(&["a", &long])), proto)
            }
        })
        .collect()
}

/// Check that no two sentences of one output have the same subject in words, whatever the arms, within
/// a recording and between two.
#[test]
fn no_two_are_equal() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut within, mut between) = (0, 0);
    let unequal = |texts: Vec<String>| {
        let names: BTreeSet<&String> = texts.iter().collect();
        assert_eq!(names.len(), texts.len(), "{texts:#?}");
        let plain = |t: &String| t.chars().all(|c| !c.is_control()) && t.chars().count() < 300;
        assert!(texts.iter().all(plain), "{texts:?}");
        texts.len()
    };
    for _ in 0..300 {
        let (a, b) = (measured(any_arms(&mut random)), measured(any_arms(&mut random)));
        within += unequal(subjects(&a));
        let mut same = b.clone();
        same.arms.clone_from(&a.arms);
        for arm in &mut same.arms {
            arm.knobs.insert("kernel".into(), "third".into());
        }
        for other in [&b, &same] {
            let diff = diff(&a, other);
            between += unequal(diff.classes.iter().map(subject).collect());
            unequal(diff.unpaired.clone());
        }
        let texts = of_arms(&a, &[Direction::Tx], 1_000).unwrap_or_default();
        unequal(texts.lines().map(String::from).collect());
    }
    assert!(within > 300 && between > 300, "{within} {between}");
}

/// Check that settings that could act in neither arm are reported as such, with a difference
/// and without, and that one that could act in either is not.
#[test]
fn settings_that_could_not_act() {
    let gro = "[vary]\noffload.gro = [\"on\", \"off\"]\n";
    let note = |recording: &mut Recording, arm: &str| {
        let arm = recording.arms.iter().position(|a| a.name == arm).unwrap();
        let why = "one packet at a time leaves nothing to merge";
        let inert = &mut recording.notes_of(arm).inert;
        inert.insert("offload.gro".into(), why.into());
    };
    let sentences = |recording: &Recording| of_arms(recording, &[], 400).unwrap();
    let mut recording = measured(arms(gro));
    assert_eq!(
        sentences(&recording),
        "UDP send (offload.gro on → off): 100 instructions per packet, no difference\n"
    );
    note(&mut recording, "gro=on");
    assert!(!sentences(&recording).contains("could not act"));
    note(&mut recording, "gro=off");
    assert_eq!(
        sentences(&recording),
        "UDP send (offload.gro on → off): 100 instructions per packet, no difference; gro could not \
         act: one packet at a time leaves nothing to merge\n"
    );
    let text = crate::footer::terminal(&crate::trust::footer(&recording, &[]), 1_000);
    assert!(
        text.contains(
            "idle      gro could not act: one packet at a time leaves nothing to merge\n"
        ),
        "{text}"
    );
    let pairs = Pairs { pairs: pair_within(&recording), ..Pairs::default() };
    let diff = paired(&recording, &recording, &pairs);
    let document: serde_json::Value =
        serde_json::from_str(&crate::diff::json::render(&diff)).unwrap();
    assert_eq!(
        document["classes"][0]["could_not_act"],
        serde_json::json!([
            { "knob": "gro", "why": "one packet at a time leaves nothing to merge" }
        ])
    );
    let page = crate::diff::page::page(&diff);
    assert_eq!(page.classes[0].could_not_act.len(), 1);
    assert!(sentence::sentence(&diff.classes[0]).contains("gro could not act"));

    let mut build = Build(measured(arms(gro)));
    build.each(1, "udp_send/napi_gro", 22);
    note(&mut build.0, "gro=on");
    note(&mut build.0, "gro=off");
    let text = sentences(&build.0);
    assert!(
        text.contains("+22") && text.contains("the difference is what having it costs"),
        "{text}"
    );
    assert!(!text.contains("could not act"), "{text}");
    // With another setting that could act, the difference may be due to that one.
    build.0.arms[1].size_bytes = 20;
    let text = sentences(&build.0);
    assert!(text.contains("could not act") && !text.contains("what having it costs"), "{text}");
}
