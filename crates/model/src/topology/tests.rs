use super::*;
use crate::class::{Link, Proto};
use crate::experiment::Experiment;

fn spec(text: &str) -> Result<TopologySpec, String> {
    TopologySpec::parse("x", text)
}

/// Check that every preset is valid, is described, and is written as it was read.
#[test]
fn all_presets() {
    for name in presets() {
        let preset = TopologySpec::preset(name).unwrap();
        assert!(!preset.about.is_empty(), "{name}");
        let written = toml::to_string(&preset).unwrap();
        assert_eq!(spec(&written).map(|s| TopologySpec { name: name.into(), ..s }), Ok(preset));
    }
    assert_eq!(TopologySpec::preset("container").unwrap().links(), 1);
    assert_eq!(TopologySpec::preset("container").unwrap().wires().count(), 3);
    assert!(!TopologySpec::preset("forward").unwrap().needs_requests());
    assert!(TopologySpec::preset("vxlan").unwrap().needs_requests());
}

/// Check that what can't be made is refused, with the part that is wrong.
#[test]
fn mistakes() {
    let base = "[[namespace]]\nname = \"a\"\n[[namespace]]\nname = \"b\"\n";
    let ends = "[[device]]\nname = \"a0\"\nin = \"a\"\npeer = \"b0\"\naddresses = [\"10.0.0.1/24\"]\n\
                [[device]]\nname = \"b0\"\nin = \"b\"\naddresses = [\"10.0.0.2/24\"]\n";
    let way = "[[way]]\nfrom = \"a0\"\nto = \"b0\"\n";
    let whole = format!("{base}{ends}{way}");
    assert!(spec(&whole).is_ok(), "{:?}", spec(&whole));
    let device =
        |rest: &str| format!("{base}{ends}[[device]]\nname = \"d\"\nin = \"a\"\n{rest}{way}");
    for (text, wanted) in [
        (base.to_string(), "[[way]]: there is none"),
        (whole.replace("to = \"b0\"", "to = \"c0\""), "to: there is no device `c0`"),
        (whole.replace("in = \"b\"", "in = \"c\""), "there is no namespace `c`"),
        (whole.replace("name = \"b0\"", "name = \"a0\""), "has this name"),
        (whole.replace("name = \"b0\"", "name = \"lo\""), "invalid name"),
        (device("kind = \"vlan\"\nid = 7\n"), "device `d`: kind vlan needs link"),
        (device("kind = \"vlan\"\nlink = \"a0\"\nid = 5000\n"), "at most 4094"),
        (device("kind = \"vlan\"\nlink = \"b0\"\nid = 7\n"), "in another namespace"),
        (device("kind = \"vlan\"\nlink = \"z0\"\nid = 7\n"), "no device `z0` before it"),
        (device("kind = \"dummy\"\nid = 7\n"), "kind dummy has no id"),
        (device("kind = \"dummy\"\nmaster = \"br0\"\n"), "no bridge or bond `br0`"),
        (
            device("kind = \"ipvlan\"\nlink = \"a0\"\nmode = \"l4\"\n"),
            "expected one of l2, l3, l3s",
        ),
        (device("kind = \"bridge\"\nmaster = \"d\"\n"), "form a circle"),
        (device("kind = \"dummy\"\naddresses = [\"10.0.0.1/8\"]\n"), "has 10.0.0.1 twice"),
        (whole.replace("to = \"b0\"", "to = \"a0\""), "in one namespace"),
        (whole.replace("\"a\"", "\"rx\""), "namespace `rx` is not its end"),
        (whole.replace("\"a\"", "\"sender\""), "invalid name"),
        (device("kind = \"veth\"\n"), "0 devices name it as their peer"),
        (device("kind = \"veth\"\npeer = \"b0\"\n"), "no device of kind veth"),
        (device("kind = \"token-ring\"\n"), "unknown variant `token-ring`"),
        (device("colour = 1\n"), "unknown field `colour`"),
        (
            device("kind = \"gre\"\nlocal = \"10.0.0.1\"\nremote = \"2001:db8::1\"\n"),
            "different families",
        ),
        (base.replace("name = \"b\"", "name = \"b\"\nroutes = [\"here\"]"), "invalid route `here`"),
        (
            whole.replacen("name = \"b\"", "name = \"b\"\nroutes = [\"default dev a0\"]", 1),
            "it has no device `a0`",
        ),
    ] {
        let error = spec(&text).unwrap_err();
        assert!(error.contains(wanted), "{error}\n{text}");
    }
}

/// Check that routes are read and written in ip's words.
#[test]
fn routes() {
    for (text, written) in [
        ("default via 198.18.1.1", None),
        ("198.18.2.0/24 dev wg0", None),
        ("2001:db8::/32  via 2001:db8::1 dev x", Some("2001:db8::/32 via 2001:db8::1 dev x")),
        ("10.0.0.1 dev x", Some("10.0.0.1/32 dev x")),
    ] {
        let route: Route = text.parse().unwrap();
        assert_eq!(route.to_string(), written.unwrap_or(text));
    }
    for text in [
        "",
        "default",
        "10.0.0.0/33 dev x",
        "10.0.0.0/8 over x",
        "default via x",
        "default dev",
        "10.0.0.0/8 via 2001:db8::1",
        "default dev a dev b",
    ] {
        assert!(text.parse::<Route>().is_err(), "{text}");
    }
}

/// Check that arms get their topology and way, that `forward` and `bridge` are presets, and that what does not fit is
/// refused with what to try.
#[test]
fn topologies_of_arms() {
    let of = |text: &str| {
        let experiment = Experiment::parse(&format!("name = \"x\"\n{text}"));
        experiment.map(|e| {
            let ArmTopology { spec, way } =
                ArmTopology::from_arm(&e.arms()[0], &e.topologies).unwrap();
            format!("{} {} {}", spec.name, way.from, way.to)
        })
    };
    let own = "[topology]\n[[topology.namespace]]\nname = \"a\"\n[[topology.namespace]]\nname = \"b\"\n\
               [[topology.device]]\nname = \"d0\"\nin = \"a\"\nkind = \"veth\"\npeer = \"d1\"\n\
               addresses = [\"10.0.0.1/24\"]\n[[topology.device]]\nname = \"d1\"\nin = \"b\"\n\
               kind = \"veth\"\naddresses = [\"10.0.0.2/24\"]\n[[topology.way]]\nfrom = \"d0\"\nto = \"d1\"\n";
    for (text, wanted) in [
        ("", "direct tx0 rx0"),
        ("knobs.forward = true\n", "forward tx0 rx0"),
        ("knobs.bridge = true\n", "bridge tx0 rx0"),
        ("knobs.topology = \"container:in\"\n", "container out0 box0"),
        (own, "own d0 d1"),
        (&format!("[knobs]\ntopology = \"vxlan\"\n{own}"), "vxlan vxlan0 vxlan1"),
    ] {
        assert_eq!(of(text).unwrap(), wanted);
    }
    for (text, wanted) in [
        ("knobs.topology = \"vxlna\"\n", "unknown topology `vxlna`"),
        ("knobs.topology = \"container:up\"\n", "it has out, in, between"),
        ("[knobs]\ntopology = \"vxlan\"\nforward = true\n", "can't be used together"),
        ("[knobs]\ntopology = \"vxlan\"\nlink = \"lo\"\n", "use veth"),
        ("[knobs]\ntopology = \"ipip\"\nfamily = \"ipv6\"\n", "no ipv6 address on ipip1"),
        ("[knobs]\ntopology = \"container:in\"\nproto = \"raw\"\n", "has no ports"),
        ("[knobs]\nnft = { rules = 1 }\nnft_in = \"router\"\n", "--forward"),
        (
            "[knobs]\ntopology = \"container\"\nnft = { rules = 1 }\nnft_in = \"hots\"\n",
            "host, outside",
        ),
        (
            &own.replace("name = \"a\"", "name = \"a\"\nnft = 'include \"/etc/shadow\"'"),
            "include another",
        ),
        (&own.replace("kind =", "qdisc = \"ingress\"\nkind ="), "not supported on egress"),
    ] {
        let error = of(text).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
    let many = TopologySpec {
        devices: (0..3)
            .flat_map(|n| {
                let end = |name: String, peer| DeviceSpec { name, peer, ..DeviceSpec::default() };
                [end(format!("a{n}"), Some(format!("b{n}"))), end(format!("b{n}"), None)]
            })
            .collect(),
        ..TopologySpec::preset("direct").unwrap()
    };
    let mut arm = Experiment::parse("name = \"x\"\n").unwrap().arms().remove(0);
    (arm.link, arm.proto) = (Link::E1000, Proto::Udp);
    let error = ArmTopology { way: many.ways[0].clone(), spec: many }.check(&arm).unwrap_err();
    assert!(error.contains("3 links") && error.contains("NICs for 2"), "{error}");
}

/// Check that devices are of one segment where frames get from one to the other, and not where their networks are alike.
#[test]
fn segments() {
    let of = |preset: &str, one: &str, other: &str| {
        let spec = TopologySpec::preset(preset).unwrap();
        let segments = spec.segments();
        let at = |name: &str| spec.devices.iter().position(|d| d.name == name).unwrap();
        segments[at(one)] == segments[at(other)]
    };
    for (preset, one, other) in [
        ("bridge", "tx0", "rx0"),
        ("container", "box0", "box20"),
        ("container", "box0", "br0"),
        ("vlan", "vlan0", "vlan1"),
        ("vxlan", "vxlan0", "vxlan1"),
        ("macvlan", "macvlan0", "out0"),
        ("bond", "bond0", "bond1"),
    ] {
        assert!(of(preset, one, other), "{preset}: {one} {other}");
    }
    for (preset, one, other) in [
        ("forward", "r0", "r1"),
        ("container", "box0", "up0"),
        ("vlan", "vlan0", "tx0"),
        ("wireguard", "wg0", "wg1"),
    ] {
        assert!(!of(preset, one, other), "{preset}: {one} {other}");
    }
}
