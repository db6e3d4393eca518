use super::*;
use crate::experiment::{Experiment, KNOBS, Kind, Recorded};

/// The first arm of an experiment with these knobs.
fn arm(knobs: &str) -> Arm {
    let text = format!("name = \"x\"\n[knobs]\n{knobs}\n");
    Experiment::parse(&text).unwrap().arms().remove(0)
}

/// The knobs that have no effect, and why.
fn idle_with(knobs: &str, load: Load) -> BTreeMap<String, String> {
    let arm = arm(knobs);
    let scene = Scene { arm: &arm, load, cpus: 1 };
    idle(&scene, None)
}

#[track_caller]
fn acts(knobs: &str, load: Load) {
    let idle = idle_with(knobs, load);
    assert!(idle.is_empty(), "{knobs}: {idle:?}");
}

#[track_caller]
fn cannot(knobs: &str, load: Load, why: &str) {
    let idle = idle_with(knobs, load);
    assert_eq!(idle.len(), 1, "{knobs}: {idle:?}");
    assert!(idle.values().all(|reason| reason.contains(why)), "{idle:?}");
}

/// Check that offloads have an effect where there is something to merge, segment or verify.
#[test]
fn offloads() {
    use Load::{OneAtATime, Stream};
    let gro = "offload = { gro = \"on\" }";
    cannot(gro, OneAtATime, "nothing to merge");
    cannot(gro, Stream, "UDP_GRO");
    cannot(&format!("link = \"lo\"\n{gro}"), Stream, "doesn't use GRO");
    cannot(&format!("proto = \"raw\"\n{gro}"), Stream, "ICMP");
    acts(&format!("proto = \"tcp\"\n{gro}"), Stream);
    cannot(&format!("proto = \"tcp\"\n{gro}"), OneAtATime, "merge");
    acts(&format!("proto = \"tcp\"\nsize_bytes = 4096\n{gro}"), OneAtATime);
    for offload in ["tso", "gso"] {
        let knobs = format!("offload = {{ {offload} = \"off\" }}");
        let tcp = format!("proto = \"tcp\"\n{knobs}");
        let fits = format!("size_bytes = 4096\nmtu_bytes = 9000\noffload.{offload} = \"off\"");
        let idle = idle_with(&format!("proto = \"tcp\"\n{fits}"), OneAtATime);
        assert!(idle.contains_key(&format!("offload.{offload}")), "{idle:?}");
        cannot(&knobs, OneAtATime, if offload == "tso" { "TCP" } else { "UDP_SEGMENT" });
        cannot(&tcp, OneAtATime, "10 bytes fit in one segment");
        acts(&tcp, Stream);
        acts(&format!("size_bytes = 1449\n{tcp}"), OneAtATime);
        cannot(&format!("size_bytes = 1448\n{tcp}"), OneAtATime, "one segment");
    }
    cannot("offload = { sg = \"off\" }", Stream, "one piece");
    acts("proto = \"tcp\"\noffload = { sg = \"off\" }", OneAtATime);
    acts("offload = { tx-checksum = \"off\" }", OneAtATime);
    cannot("offload = { rx-checksum = \"off\" }", Stream, "CHECKSUM_PARTIAL");
    acts("link = \"e1000e\"\noffload = { rx-checksum = \"off\" }", Stream);
    cannot(
        "link = \"e1000\"\noffload = { rx-checksum = \"off\" }",
        Stream,
        "verifies no checksums",
    );
    let both = "offload = { rx-checksum = \"off\", tx-checksum = \"off\" }";
    let idle = idle_with(both, Stream);
    assert_eq!(idle.len(), 1, "{idle:?}");
    assert!(idle["offload.rx-checksum"].contains("UDP and TCP do"), "{idle:?}");
}

/// Check the notes on coalescing in QEMU's NICs: their minimum, the additional demands of e1000's driver, and that
/// nothing is delayed without a throttle.
#[test]
fn coalescing_of_emulated_nics() {
    let of = |knobs: &str| {
        let text =
            format!("name = \"x\"\nhosts = 2\n[workload]\nkind = \"stream\"\n[knobs]\n{knobs}\n");
        let arm = Experiment::parse(&text).unwrap().arms().remove(0);
        let scene = Scene { arm: &arm, load: Load::Stream, cpus: 1 };
        idle(&scene, None).into_values().collect::<Vec<_>>().join("; ")
    };
    let free = "module_options = { e1000 = \"TxIntDelay=0 TxAbsIntDelay=0\" }";
    for (knobs, why) in [
        ("coalesce = { rx-usecs = 50 }".to_string(), "as good as 128"),
        ("coalesce = { rx-usecs = 250 }".to_string(), "least of all delays"),
        (
            format!("coalesce = {{ rx-usecs = 250 }}\n{free}\nmodule_options_in = \"tx\""),
            "least of all delays",
        ),
        ("coalesce = { rx-usecs = 250 }\nthrottle = \"off\"".to_string(), "delays no interrupt"),
        ("napi_defer_hard_irqs = 1".to_string(), "which is 0"),
    ] {
        assert!(of(&knobs).contains(why), "{knobs}: {}", of(&knobs));
    }
    for knobs in [
        format!("coalesce = {{ rx-usecs = 250 }}\n{free}"),
        "coalesce = { rx-usecs = 3 }".into(),
        "link = \"e1000e\"\noffload = { tso = \"off\" }\ncoalesce = { rx-usecs = 50 }".into(),
        "link = \"e1000e\"\noffload = { tso = \"off\" }\ncoalesce = { rx-usecs = 250 }\n\
         module_options = { e1000e = \"IntMode=0\" }"
            .into(),
        "link = \"virtio-net\"\ncoalesce = { rx-usecs = 50 }".into(),
        "napi_defer_hard_irqs = 1\ngro_flush_timeout = \"20us\"".into(),
    ] {
        assert_eq!(of(&knobs), "", "{knobs}");
    }
}

/// Check that an MTU has an effect if packets are larger than it, or than the device's default.
#[test]
fn mtus() {
    use Load::{OneAtATime, Stream};
    for mtu in [600, 9000] {
        cannot(&format!("mtu_bytes = {mtu}"), OneAtATime, "38 bytes");
        cannot(&format!("mtu_bytes = {mtu}"), Stream, "not fragmented");
        acts(&format!("mtu_bytes = {mtu}\nproto = \"tcp\""), Stream);
        acts(&format!("mtu_bytes = {mtu}\nsize_bytes = 1473"), OneAtATime);
    }
    cannot("mtu_bytes = 9000\nsize_bytes = 1472", OneAtATime, "1500 bytes");
    acts("mtu_bytes = 1400\nsize_bytes = 1472", OneAtATime);
    cannot("link = \"lo\"\nmtu_bytes = 9000\nsize_bytes = 4096", OneAtATime, "4124");
    // Its driver receives in another way: e1000_clean_jumbo_rx_irq.
    acts("link = \"e1000\"\nmtu_bytes = 4000", OneAtATime);
}

/// Check that a qdisc that orders a queue has no effect without one, that one which delays packets
/// has, and that none has where nothing is sent.
#[test]
fn queueing_disciplines() {
    use Load::{OneAtATime, Stream};
    for kind in ORDER_A_QUEUE {
        cannot(&format!("qdisc = \"{kind}\""), OneAtATime, "no queue");
        acts(&format!("qdisc = \"{kind}\""), Stream);
    }
    acts("qdisc = \"netem delay 20us\"", OneAtATime);
    acts("qdisc = \"tbf rate 1mbit burst 2kb latency 10ms\"", OneAtATime);
    acts("qdisc = \"fq maxrate 1mbit\"", OneAtATime);
    let at_rx = "qdisc = \"netem delay 20us\"\nqdisc_in = \"rx\"";
    cannot(at_rx, OneAtATime, "sends no packets");
    acts(&format!("proto = \"tcp\"\n{at_rx}"), OneAtATime);
}

/// Check that rules have an effect where packets pass their hook.
#[test]
fn rules() {
    let never = |hook: &str, within: &str, more: &str| {
        format!("{more}nft = {{ rules = 9, hook = \"{hook}\" }}\nnft_in = \"{within}\"")
    };
    let one = Load::OneAtATime;
    for (hook, within) in [
        ("output", "tx"),
        ("postrouting", "tx"),
        ("prerouting", "rx"),
        ("input", "rx"),
        ("input", "both"),
        ("output", "both"),
    ] {
        acts(&never(hook, within, ""), one);
    }
    cannot(&never("input", "tx", ""), one, "no packet passes input at the sender");
    cannot(&never("output", "rx", ""), one, "at the receiver");
    cannot(&never("forward", "both", ""), one, "at either end");
    acts(&never("input", "tx", "proto = \"raw\"\n"), one);
    acts(&never("input", "tx", "link = \"lo\"\n"), one);
    let router = "forward = \"on\"\n";
    acts(&never("forward", "router", router), one);
    cannot(&never("input", "router", router), one, "in the router");
    let text = |rules: &str| format!("nft = '''{rules}'''");
    cannot(&text(""), one, "no base chain");
    cannot(&text("table ip t { chain c { counter; } }"), one, "base chain");
    acts(&text("table ip t { chain c { type filter hook output priority 0; } }"), one);
    cannot(&text("table ip t { chain c { type filter hook input priority 0; } }"), one, "input");
    acts(
        &text("table netdev t { chain c { type filter hook ingress device x priority 0; } }"),
        one,
    );
}

/// Check that settings of the kernel are idle only where it is known.
#[test]
fn sysctls() {
    let set = |key: &str| format!("sysctl.\"{key}\" = \"1\"");
    let tcp = |key: &str| format!("proto = \"tcp\"\n{}", set(key));
    let one = Load::OneAtATime;
    cannot(&set("net.ipv4.tcp_sack"), one, "only for TCP, and udp is sent");
    cannot(&set("net.ipv4.tcp_retries2"), one, "only for TCP");
    acts(&tcp("net.ipv4.tcp_sack"), one);
    cannot(&tcp("net.ipv4.tcp_retries2"), one, "no packets are lost");
    acts(&tcp("net.ipv4.tcp_retries2"), Load::Stream);
    acts(&format!("qdisc = \"netem loss 1%\"\n{}", tcp("net.ipv4.tcp_retries2")), one);
    cannot(&tcp("net.core.somaxconn"), one, "before the measurement");
    cannot(&set("net.core.netdev_max_backlog"), one, "no queue");
    // One packet is enough for these: a budget that it consumes, a timer that each send sets.
    acts(&set("net.core.netdev_budget"), one);
    acts(&set("net.core.dev_weight"), one);
    acts(&tcp("net.ipv4.tcp_early_retrans"), one);
    cannot(&set("net.ipv6.conf.all.forwarding"), one, "IPv6");
    acts(&format!("family = \"ipv6\"\n{}", set("net.ipv6.conf.all.forwarding")), one);
    cannot(&set("net.ipv4.ipfrag_time"), one, "fragmented");
    acts(&format!("size_bytes = 4096\n{}", set("net.ipv4.ipfrag_time")), one);
    acts(&set("net.ipv4.ip_early_demux"), one);
    acts(&set("kernel.randomize_va_space"), one);
}

/// Check that evidence from the kernel takes precedence over the table, both ways.
#[test]
fn evidence_beats_the_table() {
    let of = |knobs: &str, entered: &[&str]| {
        let arm = arm(knobs);
        let scene = Scene { arm: &arm, load: Load::OneAtATime, cpus: 1 };
        idle(&scene, Some(&entered.iter().copied().collect()))
    };
    let gro = "offload = { gro = \"on\" }";
    assert_eq!(of(gro, &["napi_gro_receive"]).len(), 1);
    assert!(of(gro, &["skb_gro_receive"]).is_empty());
    let rules = "nft = { rules = 9 }";
    assert!(of(rules, &["nft_do_chain"]).is_empty());
    assert_eq!(of(rules, &["ip_output"])["nft"], "no packet reached its chains");
    // The flow's first packet passed the chain before the measurement.
    let nat = "nft = '''table ip t { chain c { type nat hook postrouting priority 100; masquerade; } }'''";
    let before = of(nat, &["nf_nat_inet_fn", "nf_conntrack_in"]);
    assert!(before["nft chain ip t c"].contains("first packet"), "{before:?}");
    assert!(of(nat, &["nft_do_chain", "nft_nat_do_chain"]).is_empty());
    // Others are evaluated, and the whole of the rules did act.
    let both = "nft = '''table inet t {
        chain c { type nat hook output priority 100; ip daddr 240.0.0.1 drop; }
        chain d { type filter hook output priority 0; ct state established accept; }
        chain e { type filter hook forward priority 0; }
    }'''";
    let some = of(both, &["nft_do_chain", "nft_do_chain_inet"]);
    let keys: Vec<&str> = some.keys().map(String::as_str).collect();
    assert_eq!(keys, ["nft chain inet t c", "nft chain inet t e", "nft ct state established"]);
    assert!(some["nft chain inet t e"].contains("no packet passes forward"));
    let answered = of(&format!("proto = \"raw\"\n{both}"), &["nft_do_chain_inet"]);
    assert!(!answered.contains_key("nft ct state established"), "{answered:?}");
}

/// Check that every knob of packets is either in the table or changes the path itself, so that no
/// new knob is forgotten.
#[test]
fn every_knob_is_judged() {
    let path_itself = [
        "arch",
        "bridge",
        "cmdline",
        "coalesce_in",
        "feature",
        "feature_in",
        "kernel",
        "load",
        "mitigations",
        "module",
        "module_options",
        "napi_in",
        "new_flows",
        "per_transfer",
        "replies",
        "rings_in",
        "rps_cpus",
        "rx_fault",
        "seed",
        "sender",
        "steering_in",
        "tc",
        "threaded",
        "topology",
        "wire_delay",
        "wire_jitter",
        "wire_loss",
        "wire_rate",
        "xdp",
    ];
    for knob in KNOBS {
        let of_packets = knob.workloads.contains(&Kind::Packets);
        if !of_packets || knob.recorded == Recorded::Field {
            continue;
        }
        let key = match knob.takes.is_table() {
            true => format!("{}.gro", knob.key),
            false => knob.key.to_string(),
        };
        let judged = RULES.iter().any(|rule| covers(rule.0, setting(&key)));
        assert!(judged != path_itself.contains(&knob.key), "{key}");
    }
    assert_eq!(called("offload.gro"), "gro");
    assert_eq!(called("sysctl.net.core.x"), "net.core.x");
    assert_eq!(called("mtu_bytes"), "mtu");
}
