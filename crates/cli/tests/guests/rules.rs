//! nftables rules of the user's in guests: the modules that they need, rules that change or refuse packets, chains that
//! no packet was evaluated by; and modules by name.

// Also in what is no test itself.
use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::common::Place;
use netplumb_model::recording::env;

/// Whether rules can be loaded; prints a note if not.
fn has_nft() -> bool {
    let found =
        ["/usr/sbin/nft", "/usr/bin/nft", "/sbin/nft"].iter().any(|path| Path::new(path).exists());
    if !found {
        crate::common::skip("nft is not installed: apt-get install nftables");
    }
    found && crate::common::has_guests()
}

/// A table with a chain at the sender's output.
fn output(family: &str, rest: &str) -> String {
    format!(
        "table {family} t {{\n chain c {{\n  type filter hook output priority 0;\n  {rest}\n }}\n}}\n"
    )
}

/// Rules that each need modules that no other one does, and the modules loaded then.
const NEEDED: &[(&str, &str, &str, &str)] = &[
    ("log", "ip", "log prefix \"x\"", "nft_log"),
    ("reject", "inet", "udp dport 9 reject with icmpx admin-prohibited", "nft_reject_inet"),
    ("limit", "ip", "limit rate over 1000000/second drop", "nft_limit"),
    ("numgen", "ip", "numgen inc mod 2 vmap { 0 : accept }", "nft_numgen"),
    ("jhash", "ip", "jhash ip saddr mod 2 vmap { 0 : accept }", "nft_hash"),
    ("quota", "ip", "quota over 1000 mbytes drop", "nft_quota"),
    ("connlimit", "ip", "ct count over 10 drop", "nft_connlimit"),
    ("dup", "ip", "udp dport 9 dup to 10.9.9.9", "nft_dup_ipv4"),
    ("ipsec", "inet", "ipsec out ip saddr 10.9.9.9 drop", "nft_xfrm"),
    ("fib", "inet", "fib daddr type local accept", "nft_fib_inet"),
    ("socket", "inet", "socket transparent 1 accept", "nft_socket"),
];

/// Texts with statements outside of a chain.
const WHOLE: &[(&str, &str, &str)] = &[
    (
        "named counter",
        "table ip t {\n counter n {\n }\n chain c {\n  type filter hook output priority 0;\n  counter name \"n\"\n }\n}\n",
        "nft_objref",
    ),
    (
        "helper",
        "table ip t {\n ct helper h {\n  type \"ftp\" protocol tcp;\n }\n chain c {\n  type filter hook output priority 0;\n  \
         tcp dport 21 ct helper set \"h\"\n }\n}\n",
        "nf_conntrack_ftp",
    ),
    (
        "bridge",
        "table bridge t {\n chain c {\n  type filter hook prerouting priority 0;\n  meta ibrname \"x\" reject\n }\n}\n",
        "nft_reject_bridge",
    ),
    (
        "osf",
        "table ip t {\n chain c {\n  type filter hook prerouting priority 0;\n  osf name \"Linux\" accept\n }\n}\n",
        "nft_osf",
    ),
    (
        "fwd",
        "table netdev t {\n chain c {\n  type filter hook ingress device \"tx0\" priority 0;\n  udp dport 9 fwd to \"tx0\"\n }\n}\n",
        "nft_fwd_netdev",
    ),
];

/// Check that rules of any kind load, with the modules that the kernel requests for them, and are as many as they are.
#[test]
fn rules_of_any_kind_load() {
    if !has_nft() {
        return;
    }
    let place = Place::new();
    let mut text = "name = \"x\"\n[workload]\npackets = 20\n[blocks]\ncount = 1\n".to_string();
    let simple = NEEDED.iter().map(|(name, family, rule, _)| (*name, output(family, rule)));
    let whole = WHOLE.iter().map(|(name, rules, _)| (*name, (*rules).to_string()));
    for (name, rules) in simple.chain(whole) {
        write!(text, "[[arm]]\nname = \"{name}\"\nknobs.nft = '''\n{rules}'''\n").unwrap();
    }
    place.write("x.toml", &text);
    let ran = place.run("run -q x.toml");
    ran.code(0);
    let recording = place.recording("x.plumb");
    for (number, arm) in recording.arms.iter().enumerate() {
        assert_eq!(recording.fact(number, "nft.rules"), Some("1"), "{}", arm.name);
        let blocks = recording.blocks.iter().filter(|b| b.arm as usize == number);
        assert_eq!(blocks.count(), 1, "{}", arm.name);
    }
    let names = NEEDED.iter().map(|(name, .., module)| (*name, *module));
    let all = names.chain(WHOLE.iter().map(|(name, _, module)| (*name, *module)));
    for (name, module) in all {
        let of = recording.arms.iter().position(|arm| arm.name == name).unwrap();
        let loaded = recording.fact(of, "nft.modules").unwrap_or_default();
        // A part of nf_tables since 6.2 (d037abc2414b).
        if module == "nft_objref" && !recording.environment[env::KERNEL].starts_with("6.1.") {
            continue;
        }
        assert!(loaded.split(' ').any(|m| m == module), "{name}: {module} of {loaded}");
    }
}

/// Check that a receiver takes packets whose source a router translates; and that an arm whose rules refuse or are
/// wrong fails by its name, while the others are measured.
#[test]
fn arms_fail_by_name() {
    if !has_nft() {
        return;
    }
    let place = Place::new();
    let arm = |name: &str, nft_in: &str, rules: &str| {
        format!(
            "[[arm]]\nname = \"{name}\"\nknobs.nft_in = \"{nft_in}\"\nknobs.nft = '''\n{rules}'''\n"
        )
    };
    let nat = "table ip t {\n chain c {\n  type nat hook postrouting priority 100;\n  masquerade\n }\n}\n";
    let text = [
        "name = \"x\"\n[workload]\npackets = 20\n[blocks]\ncount = 1\n[knobs]\nforward = true\n"
            .to_string(),
        arm("masquerade", "router", nat),
        arm("refused", "tx", &output("ip", "reject")),
        arm("wrong", "tx", &output("ip", "frobnicate\n  log frob")),
        "[[arm]]\nname = \"none\"\n".into(),
    ];
    place.write("x.toml", text.concat());
    let ran = place.run("run x.toml");
    ran.code(1).says(&[
        "arm `refused` failed",
        "may reject",
        "arm `wrong` failed",
        "line 4:",
        "frobnicate",
    ]);
    let recording = place.recording("x.plumb");
    let mut measured: Vec<&str> = (recording.blocks.iter())
        .map(|block| recording.arms[block.arm as usize].name.as_str())
        .collect();
    // Arms in parallel end in any order.
    measured.sort_unstable();
    assert_eq!(measured, ["masquerade", "none"]);
    assert!(recording.blocks.iter().all(|block| block.ledger.delivered == 20));
    let report = place.run("report x.plumb");
    report.code(0);
    // NAT rules are evaluated once for a flow.
    crate::common::prints(&report, &["nft chain ip t c could not act", "arm refused: "]);
}

/// Check that an arm between namespaces whose rules refuse or are wrong fails by its name, while the others are measured.
#[test]
fn arms_between_namespaces_fail_by_name() {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return crate::common::skip("network namespaces need root");
    }
    if !has_nft() {
        return;
    }
    let place = Place::new();
    let measured = |head: &str, arms: &[String], says: &[&str]| {
        let arms = arms.concat();
        let none = "[[arm]]\nname = \"none\"\n";
        place.write(
            "x.toml",
            format!("name = \"x\"\nlab = \"netns\"\n{head}[blocks]\ncount = 2\n{arms}{none}"),
        );
        place.run("run x.toml").code(1).says(says);
        let recording = place.recording("x.plumb");
        let name = |arm: u32| recording.arms[arm as usize].name.as_str();
        let measured: Vec<&str> = recording.blocks.iter().map(|b| name(b.arm)).collect();
        assert_eq!(measured, ["none", "none"]);
        assert!(recording.complete);
    };
    let arm = |name: &str, rules: &str| {
        format!("[[arm]]\nname = \"{name}\"\nknobs.nft = '''\n{rules}'''\n")
    };
    measured(
        "instruments = [\"stages\"]\n[workload]\npackets = 20\n",
        &[arm("refused", &output("ip", "reject")), arm("wrong", &output("ip", "frobnicate"))],
        &["arm `refused` failed", "may reject", "arm `wrong` failed", "line 4:", "frobnicate"],
    );
    measured(
        "hosts = 2\n[workload]\nkind = \"request\"\nturns = 20\n",
        &["[[arm]]\nname = \"wrong\"\nknobs.sysctl = { \"net.ipv4.no_such\" = \"1\" }\n".into()],
        &["arm `wrong` failed", "net.ipv4.no_such"],
    );
}

/// Check that packets pass the hooks of a bridge, whose rules are evaluated for each.
#[test]
fn rules_of_a_bridge() {
    if !has_nft() {
        return;
    }
    let place = Place::new();
    let rules = "table bridge t {\n chain c {\n  type filter hook forward priority 0;\n  udp dport 9 drop\n }\n}\n";
    place.write(
        "x.toml",
        format!(
            "name = \"x\"\n[workload]\npackets = 20\n[blocks]\ncount = 1\n[knobs]\nbridge = \"on\"\n\
             nft_in = \"bridge\"\nnft = '''\n{rules}'''\n"
        ),
    );
    let ran = place.run("run x.toml -q");
    ran.code(0);
    assert!(!ran.stdout.contains("could not act"), "{}", ran.stdout);
    let recording = place.recording("x.plumb");
    let is_its = |node: u32| {
        let function = recording.nodes[node as usize].function;
        recording.functions[function as usize].name == "nft_do_chain_bridge"
    };
    let calls = recording.costs.iter().filter(|cost| is_its(cost.node));
    assert_eq!(calls.map(|cost| cost.calls).sum::<u64>(), 20);
}

/// Check that functions of modules that were loaded for rules are known in runs with a duration, too.
#[test]
fn modules_of_long_runs() {
    if !has_nft() {
        return;
    }
    let place = Place::new();
    let rules = output("ip", "numgen inc mod 2 vmap { 0 : accept }");
    place.write(
        "x.toml",
        format!("name = \"x\"\n[workload]\npackets = 20\n[knobs]\nnft = '''\n{rules}'''\n"),
    );
    for length in ["", "--duration 1s"] {
        place.run(&format!("run x.toml -q {length}")).code(0);
        let recording = place.recording("x.plumb");
        let names: Vec<&str> = recording.functions.iter().map(|f| &*f.name).collect();
        for name in ["nft_ng_inc_eval", "nft_do_chain"] {
            assert!(names.contains(&name), "{name} with {length:?}");
        }
        assert!(!names.contains(&"[unknown]"), "{length:?}");
    }
}

/// Check that modules are loaded by name, and that a wrong name is an error with a similar one.
#[test]
fn modules_by_name() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let ran =
        place.run("path -q --packets 20 --blocks 1 --load br_netfilter,nf-conntrack -o x.plumb");
    ran.code(0);
    let recording = place.recording("x.plumb");
    let loaded = &recording.environment["guest.modules"];
    for module in ["br_netfilter", "bridge", "nf_conntrack"] {
        assert!(loaded.split(' ').any(|m| m == module), "{module} of {loaded}");
    }
    assert_eq!(recording.arms[0].knobs["load"], "br_netfilter,nf-conntrack");
    let wrong = place.run("path -q --load br_netfiltr");
    wrong.code(1).says(&["br_netfiltr", "br_netfilter"]);
    let invalid = place.run("path -q --load ../x");
    invalid.code(2).says(&["invalid module", "br_netfilter"]);
    let here = place.run("path -q --lab netns --load br_netfilter");
    here.code(2).says(&["--lab vm"]);
}
