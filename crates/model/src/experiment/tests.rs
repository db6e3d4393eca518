use super::*;
use crate::class::{Link, Proto};

const SMALL: &str = r#"
name = "small"

[knobs]
link = "lo"

[vary]
proto = ["raw", "udp"]
size_bytes = [10, "1K"]
"#;

/// Check that every combination of what varies is an arm, over the fixed knobs.
#[test]
fn arms_are_the_product() {
    let arms = Experiment::parse(SMALL).unwrap().arms();
    let told: Vec<_> = arms
        .iter()
        .map(|a| (a.name.as_str(), a.link, a.size_bytes))
        .collect();
    assert_eq!(
        told,
        [
            ("raw size=10", Link::Lo, 10),
            ("raw size=1024", Link::Lo, 1024),
            ("udp size=10", Link::Lo, 10),
            ("udp size=1024", Link::Lo, 1024),
        ]
    );
}

/// Check that arms written out stand alone, and inherit what is fixed.
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

/// Check that a wrong type and a wrong unit are told apart, each by line.
#[test]
fn a_wrong_type_and_a_wrong_unit() {
    let error = Experiment::parse("name = \"x\"\n[workload]\npackets = \"many\"\n").unwrap_err();
    assert_eq!(error.line, 3);
    assert!(error.what.contains("invalid type"), "{error}");
    let error = Experiment::parse("name = \"x\"\n[knobs]\nsize_bytes = \"10ms\"\n").unwrap_err();
    assert_eq!(error.line, 3);
    assert!(error.what.contains("`ms` is no unit of bytes"), "{error}");
}

/// Check that what parses but can't be run is refused, by line.
#[test]
fn impossible_plans_are_refused() {
    let lines = |text| Experiment::parse(text).unwrap_err().line;
    assert_eq!(lines("name = \"x\"\n[workload]\npackets = 0\n"), 3);
    assert_eq!(
        lines("name = \"x\"\n[knobs]\nlink = \"lo\"\nforward = \"on\"\n"),
        4
    );
    assert_eq!(lines("name = \"../x\"\n"), 1);
    let many = format!(
        "name = \"x\"\n[vary]\nsize_bytes = {:?}\nmtu_bytes = {:?}\n",
        (0..200).collect::<Vec<_>>(),
        (0..200).collect::<Vec<_>>()
    );
    assert!(Experiment::parse(&many).is_err());
}

/// Check that a claim about packets that no arm sends is refused.
#[test]
fn a_claim_needs_its_arm() {
    let text =
        "name = \"x\"\n[[claim]]\nkind = \"bottleneck\"\nsays = \"?\"\nclasses = [\"tcp tx\"]\n";
    let error = Experiment::parse(text).unwrap_err();
    assert!(error.what.contains("no arm sends tcp"), "{error}");
}

/// Check that a published time of nothing, or of no number, is refused: shares of
/// it would be none.
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

/// Check that an MTU that the IP version does not take is refused.
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

/// Check that a layer that there is not is answered with its line and the nearest.
#[test]
fn a_wrong_layer_names_the_nearest() {
    let text = "name = \"x\"\n[[claim]]\nkind = \"smaller\"\nsays = \"?\"\n\
                of = [\"network\"]\nthan = [\"link\", \"drivr\"]\nclasses = [\"udp tx\"]\n";
    let error = Experiment::parse(text)
        .unwrap()
        .check_layers(text, &["network", "link", "driver"])
        .unwrap_err();
    assert_eq!(error.line, 6);
    assert_eq!(error.hint.as_deref(), Some("did you mean `driver`?"));
}
