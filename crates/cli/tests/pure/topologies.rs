//! `plumb topology`, and mistakes in files of topologies: found before anything runs.

use crate::common::Place;

/// Check that presets are listed with their ways, that one is printed as a file that can be used, and that wrong names are
/// answered with the right ones.
#[test]
fn presets() {
    let place = Place::new();
    let listed = place.run("topology list").code(0).stdout.clone();
    for way in ["direct ", "container:out ", "container:in ", "wireguard ", "macvlan:between "] {
        assert!(listed.lines().any(|line| line.starts_with(way)), "{way}: {listed}");
    }
    let shown = place.run("topology show vxlan").code(0).stdout.clone();
    assert!(shown.contains("kind = \"vxlan\"") && shown.contains("[[way]]"), "{shown}");
    place.run("topology show vxlna").code(2).says(&["vxlna", "vxlan"]);
    place.run("path --topology vxlna").code(2).says(&["vxlna", "vxlan", "office.toml"]);
    place.run("path --topology container:up").code(2).says(&["up", "out, in, between"]);
}

/// Check that a file's mistakes are named with the file and the part that is wrong, that a file outside of an experiment's
/// directory is refused, and that flags which do not fit are.
#[test]
fn mistakes() {
    let place = Place::new();
    place.run("path --topology none.toml").code(1).says(&["none.toml"]);
    let vlan = place.run("topology show vlan").code(0).stdout.clone();
    place.write("wrong.toml", vlan.replace("link = \"tx0\"", "link = \"rx9\""));
    place.run("path --topology wrong.toml").code(2).says(&["wrong.toml", "vlan0", "rx9"]);
    place.write("key.toml", vlan.replace("id = 7", "identity = 7"));
    place.run("path --topology key.toml").code(2).says(&["key.toml", "identity"]);
    place.write("big.toml", "#".repeat(2 << 20));
    place.run("path --topology big.toml").code(2).says(&["big.toml"]);
    place.write("e.toml", "name = \"e\"\n[knobs]\ntopology = \"../vlan.toml\"\n");
    place.run("run e.toml").code(2).says(&["topology", "below the experiment's directory"]);
    for (words, wanted) in [
        ("path --topology vxlan --forward", "forward"),
        ("path --topology vxlan --link lo", "lo"),
        ("path --topology ipip --family ipv6", "no ipv6 address"),
        ("path --topology container:in --proto raw", "no ports"),
        ("path --proto tcp --replies", "udp"),
        ("path --new-flows --lab netns", "new_flows"),
        ("path --qdisc fq --qdisc-in nowhere", "nowhere"),
    ] {
        place.run(words).code(2).says(&[wanted]);
    }
}
