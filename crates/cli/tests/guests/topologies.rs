//! Presets of topologies and new flows in guests, with their sums checked against each other.

use std::collections::BTreeMap;

use netplumb_model::class::{Direction, Proto};
use netplumb_model::recording::Recording;
use netplumb_model::topology::{TopologySpec, presets};
use netplumb_report::analysis::classes;

use crate::common::Place;

/// Instructions of each class of an arm, and its packets.
fn costs(recording: &Recording, arm: &str) -> BTreeMap<Direction, (u64, u64)> {
    let views = classes(recording);
    let own = views.iter().filter(|view| view.arm().name == arm);
    own.map(|view| (view.class.direction, (view.total, view.packets))).collect()
}

fn each((total, packets): (u64, u64)) -> f64 {
    total as f64 / packets as f64
}

/// Run some arms, and check that every packet arrived and that nothing was lost.
fn run(place: &Place, words: &str) -> Recording {
    place.run(&format!("{words} -o x.plumb")).code(0);
    let recording = place.recording("x.plumb");
    assert!(recording.losses.is_empty(), "{:?}", recording.losses);
    for block in &recording.blocks {
        let arm = &recording.arms[block.arm as usize].name;
        assert!(block.ledger.closes(), "{arm}: {:?}", block.ledger);
        assert_eq!(block.ledger.offered, block.ledger.delivered, "{arm}");
    }
    std::fs::remove_file(place.path("x.plumb")).unwrap();
    recording
}

/// Check that packets take every way of every preset, by both protocols, and that the presets' parts show: tunnels and
/// bridges below sending or receiving, routers and bridges as forwarding.
#[test]
fn every_preset() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let ways = presets().filter_map(TopologySpec::preset).flat_map(|spec| {
        let names = spec.ways.iter().map(|way| match way.name.as_str() {
            "" => spec.name.clone(),
            way => format!("{}:{way}", spec.name),
        });
        names.collect::<Vec<_>>()
    });
    let ways: Vec<String> = ways.collect();
    let list = ways.join(",");
    let words = format!("path --proto udp,tcp --packets 20 --blocks 1 --topology {list}");
    let recording = run(&place, &words);
    let direct = costs(&recording, "udp topology=direct");
    for way in &ways {
        let udp = costs(&recording, &format!("udp topology={way}"));
        let tcp = costs(&recording, &format!("tcp topology={way}"));
        let forwards = ["forward", "bridge", "container:out", "container:in", "container:between"];
        for of in [&udp, &tcp] {
            let is_forwarded = of.contains_key(&Direction::Forward);
            assert_eq!(is_forwarded, forwards.contains(&way.as_str()), "{way}: {of:?}");
        }
        // Whatever a tunnel or a bridge does is charged to packets.
        let sum = |of: &BTreeMap<Direction, (u64, u64)>| of.values().map(|(t, _)| *t).sum::<u64>();
        // An ipvlan hands its packets over with less than a veth does.
        let is_more =
            sum(&udp) >= sum(&direct) || way.starts_with("ipvlan") || way.starts_with("macvlan");
        assert!(is_more, "{way}: {udp:?}");
    }
    for (way, function) in [
        ("vxlan", "vxlan_rcv"),
        ("geneve", "geneve_udp_encap_recv"),
        ("gre", "gre_rcv"),
        ("wireguard", "wg_packet_decrypt_worker"),
        ("bond", "bond_handle_frame"),
        ("vlan", "vlan_do_receive"),
        ("container:out", "nf_nat_inet_fn"),
    ] {
        let arm = recording.arms.iter().position(|a| a.name == format!("udp topology={way}"));
        let nodes = recording.costs.iter().filter(|cost| {
            Some(recording.blocks[cost.block as usize].arm as usize) == arm
                && cost.direction != Direction::Other
        });
        let names = nodes.map(|cost| {
            &recording.functions[recording.nodes[cost.node as usize].function as usize].name
        });
        let names: Vec<&String> = names.collect();
        assert!(names.iter().any(|name| name.starts_with(function)), "{way}: {function}");
    }
    // By its flag, the same to the instruction.
    let by_flag = run(&place, "path --proto udp --packets 20 --blocks 1 --forward");
    assert_eq!(costs(&by_flag, "udp"), costs(&recording, "udp topology=forward"));
}

/// Check that an answer costs what a packet does, that flows cost more while they are new, and that rules of NAT, which only
/// a flow's first packet meets, cost something then alone: as many as are planted.
#[test]
fn new_flows() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let steady = run(&place, "path --proto udp --packets 50 --blocks 2 --replies");
    let udp = costs(&steady, "udp");
    assert_eq!(udp[&Direction::Reply].0, udp[&Direction::Tx].0 + udp[&Direction::Rx].0);

    let tcp = run(&place, "path --proto tcp --packets 50 --blocks 2 --new-flows");
    let of: BTreeMap<Direction, f64> =
        costs(&tcp, "tcp").into_iter().map(|(d, cost)| (d, each(cost))).collect();
    for direction in [Direction::Connect, Direction::Accept, Direction::Close] {
        assert!(of[&direction] > 2_000.0, "{of:?}");
    }
    assert!(of[&Direction::Connect] > 20_000.0 && !of.contains_key(&Direction::Ack), "{of:?}");

    // 30 rules that match nothing, in a chain that only the first packet of a flow meets.
    let rules = "ip daddr 240.0.0.1 accept\n".repeat(30);
    place.write(
        "nat.toml",
        format!(
            "name = \"nat\"\n[blocks]\ncount = 2\n[workload]\npackets = 50\n[knobs]\nproto = \"udp\"\n\
             topology = \"container:out\"\nnft_in = \"host\"\n[vary]\nnew_flows = [\"off\", \"on\"]\n\
             nft = [\"\", \"\"\"table ip more {{\nchain c {{\ntype nat hook prerouting priority -150;\n{rules}}}\n}}\"\"\"]\n"
        ),
    );
    let recording = run(&place, "run nat.toml");
    let forward = |new: bool, rules: bool| {
        let arm = recording.arms.iter().find(|arm| {
            arm.is_on("new_flows") == new
                && arm.knobs.get("nft").is_some_and(|text| !text.is_empty()) == rules
        });
        each(costs(&recording, &arm.unwrap().name)[&Direction::Forward])
    };
    assert!(forward(true, false) > 1.5 * forward(false, false));
    let planted = forward(true, true) - forward(true, false);
    // 69 for each rule that does not match, and the chain.
    assert!((30.0 * 60.0..30.0 * 90.0).contains(&planted), "{planted}");
    assert!(forward(false, true) - forward(false, false) < 30.0);
    let arm = recording.arms.iter().position(|arm| {
        !arm.is_on("new_flows") && arm.knobs.get("nft").is_some_and(|text| !text.is_empty())
    });
    let notes = &recording.notes[&(arm.unwrap() as u32)];
    assert!(notes.inert.values().any(|why| why.contains("first packet")), "{:?}", notes.inert);
}

/// Check that a topology may come from a file, whose names rules and qdiscs use; and that what a kernel or the program
/// refuses is named, with the place.
#[test]
fn files() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let text = place.run("topology show container").code(0).stdout.clone();
    let office = text.replace("br0", "office0").replace("= \"host\"", "= \"desk\"");
    place.write("office.toml", &office);
    let words = "path --proto udp --packets 20 --blocks 1 --topology office.toml:out --qdisc pfifo --qdisc-in up0";
    let recording = run(&place, words);
    // Its NAT evaluated no packet of a flow that was there before.
    let inert = &recording.notes[&0].inert;
    assert!(
        inert.iter().any(|(what, why)| what.contains("outgoing in desk") && why.contains("NAT"))
    );
    let knobs = &recording.arms[0].knobs;
    assert_eq!(knobs["topology"], "office:out");
    assert!(costs(&recording, "udp").contains_key(&Direction::Forward));
    place.write(
        "run.toml",
        "name = \"run\"\n[blocks]\ncount = 1\n[workload]\npackets = 20\n[knobs]\nproto = \"udp\"\n\
         topology = \"office.toml:out\"\n",
    );
    let by_file = run(&place, "run run.toml");
    assert_eq!(by_file.arms[0].proto, Proto::Udp);
    place.write("bad.toml", office.replace("ct state established", "ct statte established"));
    let refused = place.run("path --topology bad.toml:out --packets 20 --blocks 1");
    refused.code(1).says(&["namespace desk", "line", "ct statte established"]);
    place.write("bad.toml", office.replace("iif \"up0\"", "iif \"eth0\""));
    let refused = place.run("path --topology bad.toml:out --packets 20 --blocks 1");
    refused.code(1).says(&["Interface does not exist", "the namespace has lo", "up0", "office0"]);
}

/// Check that a flowtable's packets are forwarded ones, too: forwarding costs less by it, as does all together, and the ends
/// cost what they did.
#[test]
fn a_flowtable() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let chain = "chain c { type filter hook forward priority 0; ct state established accept; }";
    place.write("slow.nft", format!("table inet t {{\n{chain}\n}}\n"));
    let fast = chain.replace("established", "established flow add @f");
    let table = "flowtable f { hook ingress priority 0; devices = { r0, r1 }; }";
    place.write("fast.nft", format!("table inet t {{\n{table}\n{fast}\n}}\n"));
    place.write(
        "x.toml",
        "name = \"x\"\nknobs = { proto = \"tcp\", forward = true, nft_in = \"router\" }\n\
         vary.nft = [{ file = \"slow.nft\" }, { file = \"fast.nft\" }]\n",
    );
    let recording = run(&place, "run x.toml");
    let of = |name: &str| costs(&recording, &format!("nft={name}.nft"));
    let (slow, fast) = (of("slow"), of("fast"));
    let ratio = |of: Direction| each(fast[&of]) / each(slow[&of]);
    assert!(ratio(Direction::Forward) < 0.5, "{slow:?} {fast:?}");
    for end in [Direction::Tx, Direction::Rx, Direction::Ack] {
        assert!((ratio(end) - 1.0).abs() < 0.05, "{end}: {slow:?} {fast:?}");
    }
    let all = |of: &BTreeMap<Direction, (u64, u64)>| of.values().map(|(t, _)| *t).sum::<u64>();
    assert!(all(&fast) * 10 < all(&slow) * 9, "{slow:?} {fast:?}");
}

const PROGRAMS: &str = r#"
#include <linux/bpf.h>
#define SEC(name) __attribute__((section(name), used))
SEC("xdp") int pass(struct xdp_md *ctx) { return XDP_PASS; }
SEC("xdp/drop") int drop_it(struct xdp_md *ctx) { return XDP_DROP; }
static __attribute__((noinline)) int protocol(struct xdp_md *ctx)
{
	unsigned char *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	return data + 34 > end ? 0 : data[23];
}
SEC("xdp/parse") int parsed(struct xdp_md *ctx) { return protocol(ctx) == 17 ? XDP_PASS : XDP_DROP; }
SEC("xdp/bad") int bad(struct xdp_md *ctx) { return ((unsigned char *)(long)ctx->data)[1]; }
SEC("tc") int tc_pass(struct __sk_buff *skb) { return 0; }
char _license[] SEC("license") = "GPL";
"#;

/// Check that programs of one's own are attached and counted by their names, that what they drop is in the ledger, and that
/// an object that the verifier refuses, or that lacks the program, is named with the line or what it has.
#[test]
fn programs_of_ones_own() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    place.write("p.bpf.c", PROGRAMS);
    let compiled = place
        .command("clang")
        .args(["-O2", "-g", "-target", "bpf", "-I/usr/include/x86_64-linux-gnu", "-c", "p.bpf.c"])
        .args(["-o", "p.o"])
        .status();
    if !compiled.is_ok_and(|status| status.success()) {
        return crate::common::skip("there is no clang for BPF");
    }
    place.write(
        "p.toml",
        "name = \"p\"\n[blocks]\ncount = 2\n[workload]\npackets = 50\n[vary]\n\
         xdp.rx0 = [\"\", \"p.o\", \"p.o:parsed\", \"p.o:xdp/drop\"]\n[knobs]\ntc.\"tx0:egress\" = \"p.o\"\n",
    );
    place.run("run p.toml -o p.plumb").code(0);
    let recording = place.recording("p.plumb");
    let of = |program: &str| {
        let name = format!("xdp.rx0={program}");
        let arm = recording.arms.iter().position(|arm| arm.name == name).unwrap();
        let blocks: Vec<usize> = (0..recording.blocks.len())
            .filter(|b| recording.blocks[*b].arm as usize == arm)
            .collect();
        let own: u64 = (recording.costs.iter())
            .filter(|cost| blocks.contains(&(cost.block as usize)))
            .filter(|cost| {
                let function = recording.nodes[cost.node as usize].function;
                let function = &recording.functions[function as usize];
                function.name.starts_with("bpf_prog_") && !function.name.ends_with("tc_pass")
            })
            .map(|cost| cost.own)
            .sum();
        let ledgers: Vec<_> = blocks.iter().map(|b| &recording.blocks[*b].ledger).collect();
        assert!(ledgers.iter().all(|ledger| ledger.closes()), "{program}: {ledgers:?}");
        let dropped: u64 = ledgers.iter().flat_map(|l| l.dropped.values()).sum();
        (own as f64 / 100.0, dropped)
    };
    assert_eq!(of("none"), (0.0, 0));
    let (pass, parsed, dropped) = (of("p.o"), of("p.o:parsed"), of("p.o:xdp/drop"));
    assert!(pass.0 >= 2.0 && pass.1 == 0 && parsed.0 > pass.0 + 8.0, "{pass:?} {parsed:?}");
    // As long as the other: an instruction, and the return.
    assert_eq!(dropped, (pass.0, 100));
    assert!(costs(&recording, "xdp.rx0=p.o").contains_key(&Direction::Rx));

    let refused = place.run("path --xdp rx0=p.o:bad --packets 20 --blocks 1");
    refused.code(2).says(&["verifier", "rx0", "ctx->data", "[1]"]);
    place.run("path --xdp rx0=p.o:none --packets 20 --blocks 1").code(2).says(&["pass", "drop_it"]);
    place.write("text.o", "no object");
    place.run("path --xdp rx0=text.o").code(2).says(&["text.o", "ELF"]);
    place.run("path --xdp eth9=p.o").code(2).says(&["eth9", "tx0"]);
}
