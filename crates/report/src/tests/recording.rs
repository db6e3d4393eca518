//! The recording that the tests render.

use std::collections::BTreeMap;

use netplumb_model::class::{Context, Direction, Family, Link, Proto, Softirq};
use netplumb_model::loss::Loss;
use netplumb_model::recording::{
    Arm, Block, Cost, Function, Ledger, Node, NodeId, Recording, SourceLine, env,
};

/// A name that would clear the screen and ring the bell.
pub(crate) const CONTROL: &str = "evil\x1b[2J\x07\nname";
/// A name that would run in a browser.
pub(crate) const HTML: &str = "<script>alert(\"1\")</script>&amp;";
/// Functions whose lines are known: file and line.
const SOURCES: [(&str, u32, u32); 2] = [("udp_recvmsg", 0, 1843), (HTML, 1, 7)];
/// Letters of the longest name.
pub(crate) const LONG_LETTERS: usize = 10_000;

/// Every claim begins with its expected verdict.
pub(crate) const EXPERIMENT: &str = r#"
name = "small"
layer = "network"

[vary]
proto = ["udp", "raw"]

[[published]]
figure = "3a"
class = "udp tx"
total_us = 4.352
top_function = "ip_finish_output2"
top_us = 2.3

[[published]]
figure = "3b"
class = "udp rx"
total_us = 3.352
top_function = "ip_rcv"
top_us = 0.7

[[published]]
figure = "3c"
class = "udp echo"
total_us = 1.0
top_function = "ip_rcv"
top_us = 0.5

[[published]]
figure = "3d"
class = "raw tx"
total_us = 4.42
top_function = "dev_queue_xmit"
top_us = 2.3

[[published]]
figure = "3e"
class = "raw rx"
total_us = 4.092
top_function = "ip_route_input"
top_us = 1.07

[[published]]
figure = "3f"
class = "raw echo"
total_us = 2.0
top_function = "ip_gone"
top_us = 1.5

[[claim]]
kind = "alike"
says = "holds: sending costs the network layer the same"
layer = "network"
classes = ["udp tx", "raw tx"]
within_ratio = 1.25

[[claim]]
kind = "alike"
says = "does not hold: receiving costs the network layer the same"
layer = "network"
classes = ["udp rx", "raw rx"]
within_ratio = 1.25

[[claim]]
kind = "unlike"
says = "holds: receiving costs the network layer differently"
layer = "network"
classes = ["udp rx", "raw rx"]
beyond_ratio = 1.25

[[claim]]
kind = "unlike"
says = "does not hold: sending costs the network layer differently"
layer = "network"
classes = ["udp tx", "raw tx"]
beyond_ratio = 1.25

[[claim]]
kind = "unlike"
says = "holds: only UDP has a driver in its way"
layer = "driver"
classes = ["udp tx", "raw tx"]
beyond_ratio = 2.0

[[claim]]
kind = "smaller"
says = "holds: the network layer is small beside link and driver"
of = ["network"]
than = ["link", "driver"]
within_ratio = 0.9
classes = ["udp tx", "raw tx"]

[[claim]]
kind = "smaller"
says = "does not hold: link and driver are small beside the network layer"
of = ["link", "driver"]
than = ["network"]
within_ratio = 0.5
classes = ["udp tx", "raw tx"]

[[claim]]
kind = "bottleneck"
says = "answer: where to look first"
classes = ["udp tx", "udp rx"]

[[claim]]
kind = "bottleneck"
says = "answer: where to look first in the network layer, of which a long statement is continued under itself"
layer = "network"
classes = ["udp tx", "udp rx", "raw rx"]

[[claim]]
kind = "alike"
says = "not measured: forwarding is like receiving"
layer = "network"
classes = ["udp rx", "udp forward"]
within_ratio = 1.25

[[claim]]
kind = "unlike"
says = "not measured: no function is in this layer"
layer = "netwrok"
classes = ["udp tx", "udp rx"]
beyond_ratio = 1.25

[[claim]]
kind = "smaller"
says = "not measured: nor in this one"
of = ["netwrok"]
than = ["link"]
within_ratio = 0.5
classes = ["udp tx"]

[[claim]]
kind = "bottleneck"
says = "not measured: nor here"
layer = "netwrok"
classes = ["udp tx"]
"#;

struct Builder {
    recording: Recording,
}

impl Builder {
    /// The node at the end of a path of functions; those that begin with `~`
    /// were jumped to.
    fn node(&mut self, path: &[&str]) -> NodeId {
        let mut parent = None;
        for step in path {
            let (name, tail) = match step.strip_prefix('~') {
                Some(name) => (name, true),
                None => (*step, false),
            };
            let function =
                self.recording.functions.iter().position(|f| f.name == name).unwrap() as u32;
            let node = Node { parent, function, tail };
            let nodes = &mut self.recording.nodes;
            let id = nodes.iter().position(|n| *n == node).unwrap_or_else(|| {
                nodes.push(node);
                nodes.len() - 1
            });
            parent = Some(id as NodeId);
        }
        parent.unwrap()
    }

    /// The cost of each packet of a block at a node, called once.
    fn cost(&mut self, block: u32, class: (Direction, Context), path: &[&str], insns: u64) {
        let node = self.node(path);
        let packets = self.recording.blocks[block as usize].ledger.offered;
        self.recording.costs.push(Cost {
            quantity: 0,
            block,
            direction: class.0,
            context: class.1,
            node,
            calls: packets,
            own: packets * insns,
        });
    }

    /// The work of one UDP block.
    fn udp(&mut self, block: u32) {
        let tx = (Direction::Tx, Context::Task);
        let send = ["entry_SYSCALL_64", "udp_sendmsg"];
        self.cost(block, tx, &send[..1], 40);
        self.cost(block, tx, &send, 210);
        let path = [&send[..], &["ip_finish_output2"]].concat();
        self.cost(block, tx, &path, 90);
        self.cost(block, tx, &[&send[..], &["dev_queue_xmit"]].concat(), 120);
        let path = [&send[..], &["dev_queue_xmit", "veth_xmit"]].concat();
        self.cost(block, tx, &path, 75);
        let path = [&path[..], &["~__indirect_thunk"]].concat();
        self.cost(block, tx, &path, 2);

        let rx = (Direction::Rx, Context::Softirq(Softirq::NetRx));
        let mut path = vec!["handle_softirqs"];
        self.cost(block, rx, &path, 33);
        // net_rx_action itself has no cost, only what is below it.
        path.extend(["net_rx_action", "ip_rcv"]);
        self.cost(block, rx, &path, 30);
        self.cost(block, rx, &[&path[..], &["ip_rcv_core.isra.0"]].concat(), 60);
        self.cost(block, rx, &[&path[..], &[CONTROL]].concat(), 7);
        self.cost(block, rx, &[&path[..], &[HTML]].concat(), 6);
        let long = "x".repeat(LONG_LETTERS);
        self.cost(block, rx, &[&path[..], &[&long]].concat(), 5);
        // It calls itself, once directly and once through a helper.
        let mut walk = [&path[..], &["fib_lookup_walk"]].concat();
        self.cost(block, rx, &walk, 20);
        walk.push("fib_lookup_walk");
        self.cost(block, rx, &walk, 10);
        walk.push("fib_lookup_helper");
        self.cost(block, rx, &walk, 4);
        walk.push("fib_lookup_walk");
        self.cost(block, rx, &walk, 5);
        path.push("~udp_rcv");
        self.cost(block, rx, &path, 150);
        path.push("kmem_cache_free");
        self.cost(block, rx, &path, 25);
        path.push("~skb_free_head");
        self.cost(block, rx, &path, 1);
        let receive = ["entry_SYSCALL_64", "udp_recvmsg"];
        let task = (Direction::Rx, Context::Task);
        self.cost(block, task, &receive, 130);
        let path = [&receive[..], &["kmem_cache_free"]].concat();
        self.cost(block, task, &path, 25);
        let hardirq = (Direction::Rx, Context::Hardirq);
        self.cost(block, hardirq, &["asm_common_interrupt"], 17);

        let other = (Direction::Other, Context::OtherTask);
        self.cost(block, other, &["schedule"], 5);
    }

    /// The work of one raw block.
    fn raw(&mut self, block: u32) {
        let tx = (Direction::Tx, Context::Task);
        let send = ["entry_SYSCALL_64", "raw_sendmsg"];
        self.cost(block, tx, &send, 180);
        let path = [&send[..], &["ip_finish_output2"]].concat();
        self.cost(block, tx, &path, 95);
        self.cost(block, tx, &[&send[..], &["dev_queue_xmit"]].concat(), 120);

        for (direction, proto) in [(Direction::Rx, "raw_rcv"), (Direction::Echo, "icmp_rcv")] {
            let class = (direction, Context::Softirq(Softirq::NetRx));
            let mut path = vec!["handle_softirqs", "net_rx_action", "ip_rcv"];
            self.cost(block, class, &path, 30);
            path.push("ip_route_input_noref");
            self.cost(block, class, &path, 40);
            path.pop();
            path.push(proto);
            self.cost(block, class, &path, 100);
        }
        let other = (Direction::Other, Context::Hardirq);
        self.cost(block, other, &["asm_common_interrupt", "schedule"], 3);
    }

    fn finish(mut self) -> Recording {
        for (id, block) in self.recording.blocks.iter_mut().enumerate() {
            for cost in &self.recording.costs {
                if cost.block as usize == id {
                    block.totals[0].kernel += cost.own;
                    block.entered += cost.calls;
                    block.returned += cost.calls;
                }
            }
        }
        self.recording
    }
}

fn arm(proto: Proto) -> Arm {
    Arm {
        name: proto.to_string(),
        proto,
        family: Family::V4,
        link: Link::Veth,
        forward: false,
        size_bytes: 10,
        knobs: BTreeMap::from([
            ("kernel".into(), "debian".into()),
            ("mitigations".into(), "off".into()),
        ]),
        made: None,
    }
}

fn block(arm: u32, index: u32, delivered: u64, dropped: &[(&str, u64)]) -> Block {
    Block {
        arm,
        instrument: "exact".into(),
        index,
        ledger: Ledger {
            offered: 100,
            delivered,
            dropped: dropped.iter().map(|(c, n)| (c.to_string(), *n)).collect(),
        },
        totals: vec![netplumb_model::recording::Total { quantity: 0, kernel: 0, user: 5_000 }],
        entered: 0,
        returned: 0,
        duration_ns: 0,
    }
}

fn functions() -> Vec<Function> {
    let long = "x".repeat(LONG_LETTERS);
    [
        ("entry_SYSCALL_64", Some("syscall")),
        ("udp_sendmsg", Some("transport")),
        ("ip_finish_output2", Some("network")),
        ("dev_queue_xmit", Some("link")),
        ("veth_xmit", Some("driver")),
        ("__indirect_thunk", None),
        ("handle_softirqs", Some("interrupt")),
        ("net_rx_action", Some("link")),
        ("ip_rcv", Some("network")),
        ("ip_rcv_core.isra.0", Some("network")),
        (CONTROL, Some("network")),
        (HTML, Some("network")),
        (&long, Some("network")),
        ("fib_lookup_walk", Some("network")),
        ("fib_lookup_helper", None),
        ("udp_rcv", Some("transport")),
        ("kmem_cache_free", Some("memory")),
        ("skb_free_head", Some("memory")),
        ("udp_recvmsg", Some("transport")),
        ("asm_common_interrupt", Some("interrupt")),
        ("schedule", Some("scheduling")),
        ("raw_sendmsg", Some("transport")),
        ("raw_rcv", Some("transport")),
        ("icmp_rcv", Some("network")),
        ("ip_route_input_noref", Some("network")),
    ]
    .iter()
    .enumerate()
    .map(|(n, (name, layer))| Function {
        name: name.to_string(),
        module: (*name == "veth_xmit").then(|| "veth".into()),
        layer: layer.map(String::from),
        address: 0xffff_ffff_8100_0000 + 0x100 * n as u64,
        size_bytes: 0x100,
        source: SOURCES
            .iter()
            .find(|(function, ..)| *function == *name)
            .map(|(_, file, line)| SourceLine { file: *file, line: *line }),
    })
    .collect()
}

/// Two arms, udp and raw. The third udp block differs; raw has a block with a
/// drop of known cause and one whose ledger does not close, and lacks the third,
/// for the run was cut short.
pub(crate) fn small() -> Recording {
    let environment = [
        (env::CLOCK, "exact"),
        (env::UNIT, "instructions"),
        (env::QUICK, "no"),
        (env::PLUMB, "0.1.0"),
        (env::ARGV, "plumb path --proto udp,raw"),
        (env::STARTED, "1700000000"),
        (env::NAME, "path"),
        (env::KERNEL, "6.1.0-42-amd64"),
        (env::KERNEL_HASH, "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"),
        (env::CMDLINE, "console=ttyS0"),
        (env::MITIGATIONS, "off"),
        (env::QEMU, "7.2.22"),
        (env::CPU, "max"),
        (env::REP, "each repetition of a string instruction counts as one"),
    ];
    let mut builder = Builder {
        recording: Recording {
            environment: environment.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
            experiment_toml: String::new(),
            arms: vec![arm(Proto::Udp), arm(Proto::Raw)],
            blocks: vec![
                block(0, 0, 100, &[]),
                block(1, 0, 97, &[("IcmpInErrors", 3)]),
                block(0, 1, 100, &[]),
                block(1, 1, 98, &[]),
                block(0, 2, 100, &[]),
            ],
            functions: functions(),
            source_files: vec!["/src/net/ipv4/udp.c".into(), format!("/{CONTROL}/{HTML}")],
            nodes: Vec::new(),
            costs: Vec::new(),
            losses: [(
                "exact".to_string(),
                vec![
                    Loss {
                        cause: "returns without a call".into(),
                        count: 1_234,
                        meaning: "calls that began before the window; their self cost is right"
                            .into(),
                    },
                    Loss {
                        cause: "\x1b[31mred".into(),
                        count: 1,
                        meaning: "a cause from\na guest".into(),
                    },
                ],
            )]
            .into(),
            complete: false,
            ..Recording::default()
        },
    };
    for block in [0, 2, 4] {
        builder.udp(block);
    }
    for block in [1, 3] {
        builder.raw(block);
    }
    // A page fault that the other blocks did not have.
    let node = builder.node(&["entry_SYSCALL_64", "udp_recvmsg", "schedule"]);
    builder.recording.costs.push(Cost {
        quantity: 0,
        block: 4,
        direction: Direction::Rx,
        context: Context::Task,
        node,
        calls: 1,
        own: 42,
    });
    builder.finish()
}
