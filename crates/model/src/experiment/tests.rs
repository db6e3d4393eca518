use super::*;
use crate::class::{Link, Proto};
use crate::recording::Arm;

const SMALL: &str = r#"
name = "small"

[knobs]
link = "lo"

[vary]
proto = ["raw", "udp"]
size_bytes = [10, "1K"]
"#;

/// Check that every combination of varied levels is an arm, over the fixed knobs.
#[test]
fn arms_are_the_product() {
    let arms = Experiment::parse(SMALL).unwrap().arms();
    let summaries: Vec<_> = arms.iter().map(|a| (a.name.as_str(), a.link, a.size_bytes)).collect();
    assert_eq!(
        summaries,
        [
            ("raw size=10", Link::Lo, 10),
            ("raw size=1024", Link::Lo, 1024),
            ("udp size=10", Link::Lo, 10),
            ("udp size=1024", Link::Lo, 1024),
        ]
    );
}

/// Check that `[[arm]]`s are not combined with each other, and inherit the fixed knobs.
#[test]
fn named_arms() {
    let text = "name = \"x\"\n[knobs]\nproto = \"tcp\"\n[[arm]]\nname = \"a\"\n[[arm]]\nname = \"b\"\nknobs.link = \"e1000\"\n";
    let arms = Experiment::parse(text).unwrap().arms();
    assert_eq!(arms.len(), 2);
    assert_eq!((arms[1].proto, arms[1].link), (Proto::Tcp, Link::E1000));
}

/// Check that a wrong key is answered with its line and the nearest right one.
#[test]
fn a_wrong_key_names_the_nearest() {
    let error = Experiment::parse("name = \"x\"\n[workload]\npackts = 3\n").unwrap_err();
    assert_eq!(error.line, 3);
    assert!(error.what.contains("packts"), "{error}");
    assert_eq!(error.hint.as_deref(), Some("did you mean `packets`?"));
}

/// Check that a wrong word of a knob is answered likewise.
#[test]
fn a_wrong_level_names_the_nearest() {
    let error = Experiment::parse("name = \"x\"\n[knobs]\nlink = \"vet\"\n").unwrap_err();
    assert_eq!(error.line, 3);
    assert_eq!(error.hint.as_deref(), Some("did you mean `veth`?"));
}

/// Check that a wrong type and a wrong unit have different errors, each with its line.
#[test]
fn a_wrong_type_and_a_wrong_unit() {
    let error = Experiment::parse("name = \"x\"\n[workload]\npackets = \"many\"\n").unwrap_err();
    assert_eq!(error.line, 3);
    assert!(error.what.contains("invalid type"), "{error}");
    let error = Experiment::parse("name = \"x\"\n[knobs]\nsize_bytes = \"10ms\"\n").unwrap_err();
    assert_eq!(error.line, 3);
    assert!(error.what.contains("invalid size `10ms`"), "{error}");
}

/// Check that what parses but can't be run is refused, by line.
#[test]
fn impossible_plans_are_refused() {
    let lines = |text| Experiment::parse(text).unwrap_err().line;
    assert_eq!(lines("name = \"x\"\n[workload]\npackets = 0\n"), 3);
    assert_eq!(lines("name = \"x\"\n[knobs]\nlink = \"lo\"\nforward = \"on\"\n"), 4);
    assert_eq!(lines("name = \"../x\"\n"), 1);
    let many = format!(
        "name = \"x\"\n[vary]\nsize_bytes = {:?}\nmtu_bytes = {:?}\n",
        (0..200).collect::<Vec<_>>(),
        (0..200).collect::<Vec<_>>()
    );
    let error = Experiment::parse(&many).unwrap_err();
    assert!(error.what.contains("expected at most 10000"), "{error}");
}

/// Check that each mistake of an experiment is reported with the line that has to be changed, also where an earlier
/// table sets the same key, and with a hint, if any.
#[test]
fn mistakes_name_their_lines() {
    for (rest, line, says) in [
        ("[vary]\nproto = []", 3, "empty list; expected at least one level"),
        ("[vary]\noffload = { gro = [] }", 3, "remove it from [vary]"),
        (
            "[knobs]\nproto = \"udp\"\n[vary]\nproto = [\"tcp\"]",
            5,
            "proto is set in both knobs and vary",
        ),
        (
            "[knobs]\nsysctl.\"net.core.x\" = \"1\"\n[vary]\nsysctl.\"net.core.x\" = [\"2\"]",
            5,
            "remove it from one of them",
        ),
        (
            "[[figure]]\nname = \"f\"\nx = \"proto\"\ny = \"z\"\nknobs.proto = \"udp\"\n\
             vary.proto = [\"tcp\"]",
            6,
            "both knobs and vary",
        ),
        ("[knobs]\nqdisc_in = \"rx\"", 3, "qdisc_in needs qdisc"),
        ("[vary]\nnft_in = [\"rx\", \"tx\"]", 3, "nft_in needs nft"),
        (
            "[vary]\nproto = [\"udp\", \"udp\"]",
            3,
            "duplicate arm `udp`: proto has a duplicate level",
        ),
        ("[[arm]]\nname = \"a\"\n[[arm]]\nname = \"a\"", 5, "duplicate arm `a`"),
        (
            "[[arm]]\nname = \"a\"\nknobs.mtu_bytes = 1500\n[[arm]]\nname = \"b\"\n\
             knobs.mtu_bytes = 60",
            7,
            "invalid mtu_bytes `60`; expected 68 to 65535 for ipv4",
        ),
        (
            "[[claim]]\nkind = \"bottleneck\"\nsays = \"?\"\nclasses = [\"udp tx\"]\n\
             [[claim]]\nkind = \"bottleneck\"\nsays = \"?\"",
            6,
            "missing classes",
        ),
        (
            "[[claim]]\nkind = \"bottleneck\"\nsays = \"?\"\nclasses = [\"udp tx\"]\n\
             [[claim]]\nkind = \"bottleneck\"\nsays = \"?\"\nclasses = [\"udp tx\"]\n\
             arm = \"nosuch\"",
            10,
            "unknown arm `nosuch`; expected one of all",
        ),
        ("[knobs]\nprota = \"udp\"", 3, "did you mean `proto`?"),
        ("[knobs]\nproto = \"sctp\"", 3, "unknown protocol `sctp`; expected one of raw, udp, tcp"),
        ("[knobs]\nlink = \"any\"", 3, "unknown link `any`; expected one of lo, veth"),
        ("[knobs]\nsysctl = \"x\"", 3, "expected a table, like sysctl = {"),
        ("[[claim]]\nkind = \"alike\"\nsays = \"?\"", 2, "missing key `layer`"),
    ] {
        let error = Experiment::parse(&format!("name = \"x\"\n{rest}\n")).unwrap_err();
        assert!(error.to_string().contains(says), "{rest}: {error}");
        assert_eq!(error.line, line, "{rest}: {error}");
    }
    // Nothing is suggested that is not close.
    let error = Experiment::parse("name = \"x\"\n[knobs]\nproto = \"sctp\"\n").unwrap_err();
    assert_eq!(error.hint, None);
}

/// Check that a claim about packets that no arm sends is refused.
#[test]
fn a_claim_needs_its_arm() {
    let text =
        "name = \"x\"\n[[claim]]\nkind = \"bottleneck\"\nsays = \"?\"\nclasses = [\"tcp tx\"]\n";
    let error = Experiment::parse(text).unwrap_err();
    assert!(error.what.contains("no arm sends tcp"), "{error}");
}

/// Check that a published time of 0, or NaN, is refused: no shares can be taken of it.
#[test]
fn published_times_are_times() {
    for (total, top, line) in [("0.0", "1.0", 5), ("nan", "1.0", 5), ("2.0", "-1.0", 7)] {
        let text = format!(
            "name = \"x\"\n[[published]]\nclass = \"udp tx\"\nfigure = \"1\"\n\
             total_us = {total}\ntop_function = \"f\"\ntop_us = {top}\n"
        );
        let error = Experiment::parse(&text).unwrap_err();
        assert_eq!(error.line, line, "{error}");
        assert!(error.what.contains("microseconds"), "{error}");
    }
}

/// Check that an MTU that the IP version does not allow is refused.
#[test]
fn an_mtu_has_bounds() {
    let of = |family: &str, mtu: u32| {
        Experiment::parse(&format!(
            "name = \"x\"\n[knobs]\nfamily = \"{family}\"\nmtu_bytes = {mtu}\n"
        ))
    };
    assert!(of("ipv4", 68).is_ok());
    assert_eq!(of("ipv4", 67).unwrap_err().line, 4);
    assert!(of("ipv6", 1280).is_ok());
    assert_eq!(of("ipv6", 1279).unwrap_err().line, 4);
    assert_eq!(of("ipv4", 65_536).unwrap_err().line, 4);
}

/// Check that a claim `smaller` needs a ratio, of less than 1.
#[test]
fn small_has_a_ratio() {
    let text = |ratio: &str| {
        format!(
            "name = \"x\"\n[[claim]]\nkind = \"smaller\"\nsays = \"?\"\nof = [\"network\"]\n\
             than = [\"link\"]\nclasses = [\"udp tx\"]\n{ratio}\n"
        )
    };
    assert!(Experiment::parse(&text("within_ratio = 0.5")).is_ok());
    for wrong in ["", "within_ratio = 0.0", "within_ratio = 1.1", "within_ratio = nan"] {
        let error = Experiment::parse(&text(wrong)).unwrap_err();
        assert!(error.to_string().contains("within_ratio"), "{error}");
    }
}

/// Check that an unknown layer is reported with its line and the nearest layer.
#[test]
fn a_wrong_layer_names_the_nearest() {
    let text = "name = \"x\"\n[[claim]]\nkind = \"smaller\"\nsays = \"?\"\n\
                of = [\"network\"]\nthan = [\"link\", \"drivr\"]\nwithin_ratio = 0.5\nclasses = [\"udp tx\"]\n";
    let error = Experiment::parse(text)
        .unwrap()
        .check_layers(text, &["network", "link", "driver"])
        .unwrap_err();
    assert_eq!(error.line, 6);
    assert_eq!(error.hint.as_deref(), Some("did you mean `driver`?"));
}

/// Check every form of rules, and that each makes its own knobs and name.
#[test]
fn rules_have_three_forms() {
    let text = "name = \"x\"\n[vary]\nnft = [\"table ip t {}\", { file = \"a.nft\" }, { rules = 0 }, \
                { set = 9, hook = \"input\", match = \"port\" }]\nnft_in = [\"rx\"]\n";
    let mut experiment = Experiment::parse(text).unwrap();
    let names = |experiment: &Experiment| -> Vec<String> {
        experiment.arms().into_iter().map(|a| a.name).collect()
    };
    let expected = ["nft=table ip t {}", "nft=a.nft", "rules=0", "set=9 hook=input match=port"];
    assert_eq!(names(&experiment), expected);
    assert_eq!(experiment.rulesets_mut().count(), 4);
    for nft in experiment.rulesets_mut() {
        if let Nft::File(name) = nft {
            *nft = Nft::Text { rules: "table ip a {}".into(), file: Some(name.clone()) };
        }
    }
    // A file that was read makes the same arms.
    assert_eq!(names(&experiment), expected);
    let arms = experiment.arms();
    let text_of =
        |n: usize| Ruleset::from_arm(&arms[n]).unwrap().text(arms[n].family, arms[n].proto);
    assert_eq!(text_of(0), "table ip t {}");
    assert_eq!(text_of(1), "table ip a {}");
    assert!(text_of(3).contains("udp dport @never drop"));
    assert!(arms.iter().all(|a| a.knobs["nft_in"] == "rx"));
}

/// Check that rules that make no sense are refused, by line, with the nearest key.
#[test]
fn wrong_rules() {
    let of = |nft: &str| {
        Experiment::parse(&format!("name = \"x\"\n[knobs]\nnft = {nft}\n")).unwrap_err()
    };
    for (nft, why) in [
        ("{ }", "exactly one of"),
        ("{ rules = 1, set = 1 }", "exactly one of"),
        ("{ rules = 10001 }", "0 to 10000"),
        ("{ set = 0 }", "1 to 30000"),
        ("{ file = \"x\", hook = \"input\" }", "with file"),
        ("3", "rules for `nft`"),
    ] {
        let error = of(nft);
        assert!(error.what.contains(why), "{nft}: {error}");
        assert_eq!(error.line, 3, "{nft}");
    }
    assert_eq!(of("{ rule = 3 }").hint.as_deref(), Some("did you mean `rules`?"));
    assert_eq!(
        of("{ rules = 3, hook = \"outptu\" }").hint.as_deref(),
        Some("did you mean `output`?")
    );
    let port = "name = \"x\"\n[knobs]\nproto = \"raw\"\nnft = { rules = 1, match = \"port\" }\n";
    assert!(Experiment::parse(port).unwrap_err().what.contains("no ports"));
    for (place, needs) in [("router", "forward"), ("bridge", "bridge")] {
        let text = format!("name = \"x\"\n[knobs]\nnft = {{ rules = 1 }}\nnft_in = \"{place}\"\n");
        let message = Experiment::parse(&text).unwrap_err().what;
        assert!(message.contains(&format!("{needs} = \"on\"")), "{message}");
        Experiment::parse(&format!("{text}{needs} = \"on\"\nlink = \"veth\"\n")).unwrap();
    }
}

/// Check that qdiscs vary, that the device's default sets no knob, and that `tc` gets exactly the
/// words of the file.
#[test]
fn queueing_disciplines_vary() {
    let text = "name = \"x\"\n[vary]\nqdisc = [\"\", \"netem  delay 20us\", \"fq\"]\n\
                qdisc_in = [\"rx\"]\n";
    let arms = Experiment::parse(text).unwrap().arms();
    let names: Vec<&str> = arms.iter().map(|a| a.name.as_str()).collect();
    assert_eq!(names, ["qdisc=own", "qdisc=netem delay 20us", "qdisc=fq"]);
    assert!(!arms[0].knobs.contains_key("qdisc") && !arms[0].knobs.contains_key("qdisc_in"));
    assert_eq!(Qdisc::from_arm(&arms[0]), None);
    assert_eq!(arms[1].knobs["qdisc"], "netem delay 20us");
    let netem = Qdisc::from_arm(&arms[1]).unwrap();
    assert_eq!(netem.words(), ["netem", "delay", "20us"]);
    assert_eq!((netem.kind(), &netem.within), ("netem", &Within::Rx));
    assert_eq!(netem.module().as_deref(), Some("sch_netem"));
    let fifo = Experiment::parse("name = \"x\"\n[knobs]\nqdisc = \"pfifo limit 9\"\n").unwrap();
    let fifo = Qdisc::from_arm(&fifo.arms()[0]).unwrap();
    assert_eq!((fifo.module(), fifo.within), (None, Within::Tx));
}

/// Check that invalid qdiscs are refused, with their line, before `tc` is run.
#[test]
fn wrong_queueing_disciplines() {
    let of = |qdisc: &str| {
        let text = format!("name = \"x\"\n[knobs]\nqdisc = \"{qdisc}\"\n");
        Experiment::parse(&text).unwrap_err()
    };
    let long = format!("netem {}", "x".repeat(400));
    let many = format!("netem{}", " x".repeat(40));
    for (qdisc, why) in [
        ("-batch /etc/passwd", "qdisc name `-batch`"),
        ("root netem delay 20us", "qdisc name `root`"),
        ("handle 1: fq", "qdisc name `handle`"),
        ("dev eth0 root fq", "qdisc name `dev`"),
        ("../../x", "qdisc name `../../x`"),
        ("netem\\ndelay 20us", "invalid character"),
        ("netem\\u001b[2J", "invalid character"),
        ("netem d\\u00e9lai", "invalid character"),
        ("clsact", "not supported on egress"),
        ("a_name_of_sixteen", "qdisc name"),
        (&long, "at most 40 and 400"),
        (&many, "at most 40 and 400"),
    ] {
        let error = of(qdisc);
        assert!(error.what.contains(why), "{qdisc}: {error}");
        assert_eq!(error.line, 3, "{qdisc}");
    }
    let router = "name = \"x\"\n[knobs]\nqdisc = \"fq\"\nqdisc_in = \"router\"\n";
    let error = Experiment::parse(router).unwrap_err();
    assert!(error.what.contains("forward"), "{error}");
    let place = "name = \"x\"\n[knobs]\nqdisc = \"fq\"\nqdisc_in = \"routr\"\n";
    let error = Experiment::parse(place).unwrap_err();
    assert_eq!(error.hint.as_deref(), Some("did you mean `router`?"));
}

/// Check that offloads, a module and seeds can vary, and that invalid levels are reported with the
/// nearest valid one.
#[test]
fn more_knobs_vary() {
    let text = "name = \"x\"\n[knobs]\noffload = { gro = true }\n[vary]\noffload = { tso = \
                [\"on\", \"off\"] }\nmodule = [\"\", \"build/veth.ko\"]\nseed = [1, 2]\n";
    let arms = Experiment::parse(text).unwrap().arms();
    assert_eq!(arms.len(), 8);
    assert_eq!(arms[0].name, "tso=on module=own seed=1");
    assert_eq!(arms[7].name, "tso=off module=veth.ko seed=2");
    assert_eq!(arms[7].knobs["offload.tso"], "off");
    assert_eq!(arms[7].knobs["offload.gro"], "on");
    assert!(!arms[0].knobs.contains_key("module"));
    let error =
        Experiment::parse("name = \"x\"\n[knobs]\noffload = { tos = \"on\" }\n").unwrap_err();
    assert_eq!((error.line, error.hint.as_deref()), (3, Some("did you mean `tso`?")));
    let error = Experiment::parse("name = \"x\"\n[knobs]\nseed = 0\n").unwrap_err();
    assert!(error.what.contains("1 or more"), "{error}");
}

/// Check that claims and conclusions with unknown names are refused.
#[test]
fn claims_name_what_there_is() {
    let with_arm = |conclusion: &str, arm: &str| {
        Experiment::parse(&format!(
            "name = \"x\"\nconclusion = \"{conclusion}\"\n[[arm]]\nname = \"before\"\n[[arm]]\n\
             name = \"after\"\n[[claim]]\nname = \"c\"\nkind = \"compare\"\nsays = \"?\"\n\
             classes = [\"udp tx\"]\narm = \"{arm}\"\n"
        ))
    };
    assert!(with_arm("so: {c}", "after").is_ok());
    let error = with_arm("so: {c}", "aftr").unwrap_err();
    assert_eq!((error.line, error.hint.as_deref()), (12, Some("did you mean `after`?")));
    let error = with_arm("so: {d}", "after").unwrap_err();
    assert_eq!(error.line, 2);
    assert!(error.what.contains("unknown claim `d`"), "{error}");
}

/// Check that a scan needs settings, all below net.
#[test]
fn scans_have_bounds() {
    let of = |scan: &str| Experiment::parse(&format!("name = \"x\"\n[scan]\n{scan}\n"));
    assert!(of("sysctl = [\"net.ipv4.tcp_\"]\nskip = [\"net.ipv4.tcp_mem\"]").is_ok());
    for (scan, why) in [
        ("sysctl = []", "no sysctls"),
        ("sysctl = [\"kernel.\"]", "below `net.`"),
        ("sysctl = [\"net/../x\"]", "invalid prefix"),
        ("sysctl = [\"net.\"]\nlimit = 0", "invalid limit"),
    ] {
        let error = of(scan).unwrap_err();
        assert!(error.what.contains(why), "{scan}: {error}");
        assert!(error.line >= 3, "{scan}: {error}");
    }
}

const FRAMES: &str = r#"
name = "small"
lab = "netns"

[workload]
kind = "frames"

[[figure]]
name = "3"
title = "by cores"
x = "cores"
y = "handled"
vary = { path = ["xdp", "tc"], cores = [1, 2] }
published = [{ label = "XDP", x = 1, y = 24e6 }]

[[figure]]
name = "4"
title = "by load"
x = "rate"
y = "CPU use"
knobs.apart = "on"
vary = { path = ["xdp"], rate = ["100k", "1M"] }

[[claim]]
kind = "faster"
says = "XDP is ahead"
figure = "3"
path = "xdp"
than = "tc"
where = { cores = 1 }
"#;

/// Check that every combination of a figure is an arm, once.
#[test]
fn figures_have_arms() {
    let file = Experiment::parse(FRAMES).unwrap();
    assert_eq!(file.arms().len(), 2 * 2 + 2);
    let of = |n: usize| file.arms_of(&file.figures[n]);
    let along: Vec<f64> = (of(1).iter())
        .map(|arm| number_of("rate", &arm.level_text("rate").unwrap()).unwrap())
        .collect();
    assert_eq!(along, [100e3, 1e6]);
    let arms = file.bench_arms().unwrap();
    assert!(arms[5].apart && !arms[0].apart);
    assert_eq!(of(0).len(), 4);
    // Figures inherit a knob of the file, unless they set it.
    let more = FRAMES.replace("[[claim]]", "[vary]\nqueues = [1, 2]\n[[claim]]");
    let file = Experiment::parse(&more).unwrap();
    assert_eq!(file.arms_of(&file.figures[1]).len(), 2 * 2);
    assert_eq!(file.arms().len(), (2 * 2 + 2) * 2);
}

/// Check that `[[arm]]`s of frames keep their names, beside those that vary and in figures,
/// and that two with the same settings are refused.
#[test]
fn frames_have_named_arms() {
    let named = |arms: &str| {
        let text = "name = \"x\"\nlab = \"netns\"\n[workload]\nkind = \"frames\"\n";
        Experiment::parse(&format!("{text}{arms}"))
    };
    let fast = "[[arm]]\nname = \"fast\"\nknobs.path = \"xdp\"\n";
    let file =
        named(&format!("{fast}[[arm]]\nname = \"two\"\nknobs = {{ path = \"tc\", cores = 2 }}\n"))
            .unwrap();
    let names = |arms: Vec<Arm>| -> Vec<String> { arms.into_iter().map(|arm| arm.name).collect() };
    assert_eq!(names(file.arms()), ["fast", "two"]);
    assert_eq!(file.bench_arms().unwrap()[1].cores, 2);
    let varied = named(&format!("[vary]\npath = [\"xdp\", \"tc\"]\n{fast}")).unwrap();
    assert_eq!(names(varied.arms()), ["tc", "fast"]);
    let figure = format!(
        "{fast}[[figure]]\nname = \"1\"\nx = \"path\"\ny = \"handled\"\nvary = {{ path = [\"xdp\", \"tc\"] }}\n"
    );
    let figure = named(&figure).unwrap();
    assert_eq!(names(figure.arms_of(&figure.figures[0])), ["fast", "tc"]);
    let twice = named(&format!("{fast}{}", fast.replace("fast", "again")));
    assert!(twice.unwrap_err().to_string().contains("again"));
    let alike = named(&format!("{fast}{}", fast.replace("xdp", "tc")));
    assert!(alike.unwrap_err().to_string().contains("duplicate"));
}

/// Check the errors of experiments of frames, with what they suggest.
#[test]
fn mistakes_of_frames() {
    for (right, wrong, says) in [
        ("[\"xdp\", \"tc\"]", "[\"xdp\", \"route\"]", "not supported by bench drop"),
        ("cores = [1, 2]", "cores = [0]", "1 to 1024"),
        ("rate = [\"100k\", \"1M\"]", "rate = [\"fast\"]", "invalid rate `fast`"),
        ("figure = \"3\"", "figure = \"9\"", "unknown figure `9`"),
        ("than = \"tc\"", "than = \"dpdk\"", "has no data path dpdk"),
        ("x = \"cores\"", "x = \"core\"", "did you mean `cores`?"),
        ("y = \"handled\"", "y = \"packets\"", "`handled`"),
        ("name = \"small\"", "name = \"../x\"", "invalid name `../x`"),
        ("knobs.apart", "knobs.apurt", "did you mean `apart`"),
        ("kind = \"frames\"", "kind = \"frame\"", "did you mean `frames`?"),
        ("kind = \"frames\"", "kind = \"frames\"\nrate = 5", "[knobs] rate"),
        ("kind = \"frames\"", "kind = \"frames\"\n[knobs]\nsize_bytes = 5", "packets or stream"),
        ("lab = \"netns\"", "lab = \"host\"", "[nics]"),
        ("where = { cores", "where = { core", "did you mean `cores`?"),
    ] {
        assert!(FRAMES.contains(right), "{right}");
        let said = Experiment::parse(&FRAMES.replace(right, wrong)).unwrap_err();
        assert!(said.to_string().contains(says), "{wrong}: {said}");
    }
}

/// Check that keys which the lab or the kind of workload does not support are refused, with the line and the supported
/// ones.
#[test]
fn labs_and_workloads() {
    let of = |lab: &str, rest: &str| {
        Experiment::parse(&format!("name = \"x\"\nlab = \"{lab}\"\n{rest}\n"))
    };
    for (lab, rest) in [
        ("netns", "instruments = [\"stages\", \"samples\"]"),
        ("vm", "instruments = [\"exact\", \"functions\"]"),
        ("vm", "[workload]\nkind = \"command\"\ncommand = [\"true\"]\npeer = \"nc -l\""),
        ("netns", "[workload]\nkind = \"stream\"\nrate = 500\n[blocks]\ntime = \"500ms\""),
        ("host", "[workload]\nkind = \"traffic\"\nduration = \"10s\"\n[filter]\nport = 80"),
        ("host", "[workload]\nkind = \"frames\"\n[nics]\nnic = \"a\"\nfrom = \"b\""),
        ("netns", "[vary]\nbridge = [\"off\", \"on\"]\nqueues = [1, 2]"),
    ] {
        let experiment = of(lab, rest).unwrap_or_else(|e| panic!("{lab} {rest}: {e}"));
        let written = experiment.to_toml().unwrap();
        assert_eq!(Experiment::parse(&written), Ok(experiment), "{written}");
    }
    for (lab, rest, line, says) in [
        ("moon", "", 2, "unknown lab `moon`; expected one of vm, netns, host"),
        ("host", "", 2, "lab = \"netns\""),
        ("vm", "[workload]\nkind = \"traffic\"", 4, "lab = \"host\""),
        ("vm", "[workload]\nwindow = \"1s\"", 4, "kind traffic"),
        ("vm", "[workload]\nkind = \"command\"", 4, "needs command"),
        ("netns", "[workload]\nkind = \"command\"\ncommand = [\"x\"]\npeer = \"y\"", 6, "vm"),
        ("netns", "[knobs]\nkernel = \"debian\"", 4, "lab vm"),
        ("netns", "[knobs]\nlink = \"e1000\"", 4, "lo and veth"),
        ("netns", "[knobs]\ncores = 2", 4, "frames"),
        ("netns", "[blocks]\ntime = \"soon\"", 4, "500ms"),
        ("netns", "[blocks]\nseeds = 2", 4, "guests"),
        (
            "netns",
            "[blocks]\ncount = 2\n[workload]\nkind = \"command\"\ncommand = [\"x\"]",
            4,
            "runs once",
        ),
        (
            "host",
            "[blocks]\ncount = 2\n[workload]\nkind = \"work\"\ncommand = [\"x\"]\nduration = \"1s\"",
            4,
            "can't be used together",
        ),
        ("netns", "[blocks]\nsearch = true", 4, "frames"),
        ("vm", "instruments = []", 3, "is empty"),
    ] {
        let error = of(lab, rest).unwrap_err();
        assert!(error.to_string().contains(says), "{lab} {rest}: {error}");
        assert_eq!(error.line, line, "{lab} {rest}: {error}");
    }
    let text = "name = \"x\"\ninstruments = [\"exakt\"]\n";
    let experiment = Experiment::parse(text).unwrap();
    let error = experiment.check_instruments(text, &["exact", "stages"]).unwrap_err();
    assert_eq!((error.line, error.hint.as_deref()), (2, Some("did you mean `exact`?")));
}

/// Check that written files have no empty tables, lists and texts.
#[test]
fn what_is_written_has_no_empty_parts() {
    let text = "name = \"x\"\n[[arm]]\nname = \"default\"\n[[arm]]\nname = \"y\"\nknobs.mtu_bytes = 1400\n";
    let experiment = Experiment::parse(text).unwrap();
    let written = experiment.to_toml().unwrap();
    assert_eq!(Experiment::parse(&written), Ok(experiment), "{written}");
    for part in [
        "title",
        "question",
        "[]",
        "\"\"",
        "[filter]",
        "[functions]",
        "[probes]",
        "[vary]",
        "\n[knobs]",
    ] {
        assert!(!written.contains(part), "`{part}` in:\n{written}");
    }
    assert_eq!(written.matches("[arm.knobs]").count(), 1, "{written}");
}

/// Check that every knob is written as it is read, whatever its levels.
#[test]
fn knobs_are_written_as_they_are_read() {
    let text = "name = \"x\"\n[knobs]\noffload = { gro = true, tso = \"off\" }\n\
                sysctl.\"net.core.x\" = \"1\"\nnft = { set = 9, hook = \"input\" }\n\
                mtu_bytes = \"9K\"\ncmdline = \"5\"\n[vary]\nsize_bytes = [10, \"1K\"]\n\
                qdisc = [\"\", \"netem  delay 20us\"]\n";
    let experiment = Experiment::parse(text).unwrap();
    let written = experiment.to_toml().unwrap();
    assert!(written.contains("size_bytes = [10, 1024]"), "{written}");
    assert_eq!(Experiment::parse(&written), Ok(experiment), "{written}");
}

/// Check that keys and flags of knobs are unique for each workload, that each default is a valid
/// level, and that each has its order among knobs that vary.
#[test]
fn declarations_of_knobs() {
    for (n, knob) in KNOBS.iter().enumerate() {
        for other in &KNOBS[..n] {
            let together = other.workloads.iter().any(|kind| knob.workloads.contains(kind));
            let flags = (knob.flag.name(), other.flag.name());
            assert_ne!(knob.key, other.key);
            assert!(!together || flags.0.is_none() || flags.0 != flags.1, "{}", knob.key);
            assert_ne!(knob.turn, other.turn, "{} and {}", knob.key, other.key);
        }
        if let KnobDefault::Level(level) = knob.default {
            assert_eq!(knob.takes.parse(level), Ok(Level::Text(level.into())), "{}", knob.key);
        }
        assert!(!knob.help.is_empty() && !knob.help.ends_with('.'), "{}", knob.key);
    }
}

/// Check that a level of `module` may be a list of files, which is written as one again, and that the arm's name has
/// the last component of each.
#[test]
fn lists_of_modules() {
    let text = "name = \"x\"\n[workload]\nkind = \"packets\"\n[vary]\n\
                module = [\"\", \"a/b.ko\", [\"a/b.ko\", \"c.ko\"]]\n";
    let experiment = Experiment::parse(text).unwrap();
    let names: Vec<String> = experiment.arms().into_iter().map(|arm| arm.name).collect();
    assert_eq!(names, ["module=own", "module=b.ko", "module=b.ko+c.ko"]);
    let again = Experiment::parse(&toml::to_string(&experiment).unwrap()).unwrap();
    assert_eq!(again.vary, experiment.vary);
    let level = experiment.arms()[2].knobs["module"].clone();
    assert_eq!(files(&level).collect::<Vec<_>>(), ["a/b.ko", "c.ko"]);
    for odd in ["\"a,b.ko\"", "[[\"a,b.ko\"]]", "[1]"] {
        let text = text.replace("\"a/b.ko\", [", &format!("{odd}, ["));
        assert!(Experiment::parse(&text).is_err(), "{odd}");
    }
    let fixed = "name = \"x\"\n[workload]\nkind = \"packets\"\n[knobs]\nlink = [\"lo\"]\n";
    assert!(Experiment::parse(fixed).is_err());
}

/// Check that shares, times and rates are numbers along a figure, and words are not.
#[test]
fn numbers_along() {
    for (knob, level, number) in [
        ("wire_loss", "0", Some(0.0)),
        ("wire_loss", "0.5%", Some(0.005)),
        ("wire_loss", "2%", Some(0.02)),
        ("wire_delay", "10us", Some(10.0)),
        ("wire_rate", "1G", Some(1e9)),
        ("rps_cpus", "none", None),
        ("rps_cpus", "0", Some(0.0)),
    ] {
        assert_eq!(number_of(knob, level), number, "{knob} {level}");
    }
}
