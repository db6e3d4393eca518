//! A delay that is planted shows in its stage, at its size, and nowhere else.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::process::Command;

use netplumb_instruments::live::Live;
use netplumb_lab::netns::Topology;
use netplumb_model::class::{Direction, Family, Proto};
use netplumb_model::timing::Window;
use netplumb_sys::netns::Namespace;
use netplumb_testkit::mostly;
use netplumb_workload::ends::Sockets;

use crate::common::*;

const PLANTED_NS: f64 = 20_000.0;
/// Tolerance, as a share of the planted delay.
const OFF: f64 = 0.05;
const BLOCKS: usize = 20;
/// Blocks that have to be right.
const RIGHT: usize = 19;
const PACKETS_PER_BLOCK: u64 = 200;

/// Spins for 20 us whenever a packet comes by.
const SPIN: &str = r#"
#include <linux/bpf.h>
static unsigned long long (*now)(void) = (void *)5;
__attribute__((section("classifier"), used)) int spin(void *ctx)
{
	unsigned long long begun = now();
	int i;

	for (i = 0; i < 5000; i++)
		if (now() - begun >= 20000)
			break;
	return -1;
}
char LICENSE[] __attribute__((section("license"), used)) = "GPL";
"#;

fn run(namespace: &Namespace, command: &[&str]) -> io::Result<bool> {
    namespace.inside(|| {
        let output = Command::new(command[0]).args(&command[1..]).output()?;
        Ok(output.status.success())
    })
}

/// The median of each stage, by its direction and name, in ns.
type Medians = BTreeMap<(Direction, String), f64>;
/// By how much each stage grew, block by block, in ns.
type Growth = BTreeMap<(Direction, String), Vec<f64>>;

fn medians(window: &Window) -> Medians {
    let median = |buckets: &[(u16, u64)], count: u64| {
        let mut below = 0;
        for &(bucket, n) in buckets {
            if (below + n) * 2 >= count {
                // As if they were spread evenly over the bucket.
                let share = (count as f64 / 2.0 - below as f64) / n as f64;
                return middle(bucket) + (share - 0.5) * width(bucket);
            }
            below += n;
        }
        0.0
    };
    let stages = window.stages.iter().filter(|s| s.times.count > 0);
    stages
        .map(|s| {
            let name = (s.direction, s.name.clone());
            (name, median(&s.times.buckets, s.times.count))
        })
        .collect()
}

/// How wide a bucket is, as crates/model/src/timing.rs has them.
fn width(bucket: u16) -> f64 {
    f64::from(bucket / 16).max(1.0).exp2() / 2.0
}

/// The middle of a bucket.
fn middle(bucket: u16) -> f64 {
    if bucket < 16 {
        return f64::from(bucket);
    }
    (f64::from(16 + bucket % 16) + 0.5) * width(bucket)
}

fn block(live: &mut dyn Live, sockets: &Sockets) -> Medians {
    live.open().unwrap();
    for _ in 0..PACKETS_PER_BLOCK {
        one(sockets, &[7; 10]);
    }
    medians(&live.close().unwrap())
}

/// Insert a cost with `plant` and remove it with `pull`, block by block, and check where it shows
/// up. Each block is compared with the two around it, which are without it, so that drift of the
/// machine's speed cancels out; the result is the median of all blocks.
fn shows(topology: &Topology, stage: (Direction, &str), plant: &dyn Fn() -> bool, pull: &dyn Fn()) {
    let sockets = sockets(topology, Proto::Udp);
    let mut live = stages(&spec(topology, Proto::Udp));
    // Now and then the machine does not hold still.
    mostly(2, 3, || {
        let mut grown: Growth = BTreeMap::new();
        let mut before = block(live.as_mut(), &sockets);
        for _ in 0..BLOCKS {
            assert!(plant());
            let planted = block(live.as_mut(), &sockets);
            pull();
            let after = block(live.as_mut(), &sockets);
            for (name, with) in planted {
                let without = |of: &Medians| of.get(&name).copied().unwrap_or(0.0);
                let without = f64::midpoint(without(&before), without(&after));
                grown.entry(name).or_default().push(with - without);
            }
            before = after;
        }
        let wrong = unlike(grown, stage);
        match wrong.is_empty() {
            true => Ok(format!("{PLANTED_NS} ns in {stage:?}")),
            false => Err(wrong),
        }
    });
}

/// Which stages did not grow by the planted delay, where `stage` and the total of its way should
/// have, and no other.
fn unlike(grown: Growth, stage: (Direction, &str)) -> String {
    let mut report = String::new();
    for ((direction, word), mut all) in grown {
        // For the other way, the parts of the total are more specific.
        if word == "total" && direction != stage.0 {
            continue;
        }
        all.sort_by(f64::total_cmp);
        let median = f64::midpoint(all[(all.len() - 1) / 2], all[all.len() / 2]);
        let planted = direction == stage.0 && [stage.1, "total"].contains(&word.as_str());
        let expected = if planted { PLANTED_NS } else { 0.0 };
        if (median - expected).abs() > OFF * PLANTED_NS {
            report += &format!("{direction} {word}: {median} ns, not {expected}: {all:.0?}\n");
        }
    }
    report
}

/// Check that a busy loop at the receiver's ingress is protocol work, and one at the
/// sender's egress is the system call's.
#[test]
fn as_root_a_busy_loop_is_work() {
    if cannot() {
        return;
    }
    let _alone = alone();
    let folder = std::env::temp_dir().join(format!("netplumb-spin-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, object) = (folder.join("spin.c"), folder.join("spin.o"));
    std::fs::File::create(&source).unwrap().write_all(SPIN.as_bytes()).unwrap();
    let compiled = Command::new("clang")
        .args(["-target", "bpf", "-O2", "-g", "-idirafter", "/usr/include/x86_64-linux-gnu", "-c"])
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .status();
    let topology = Topology::build(&veth(Family::V4, false), &[]).unwrap();
    let object = object.to_string_lossy().into_owned();
    let clsact =
        |namespace, device| run(namespace, &["tc", "qdisc", "add", "dev", device, "clsact"]);
    if !compiled.is_ok_and(|s| s.success())
        || !clsact(&topology.rx, "rx0").unwrap_or(false)
        || !clsact(&topology.tx, "tx0").unwrap_or(false)
    {
        skip("a busy loop needs clang, tc and clsact");
        return;
    }
    for (namespace, device, hook, stage) in [
        (&topology.rx, "rx0", "ingress", (Direction::Rx, "protocol")),
        (&topology.tx, "tx0", "egress", (Direction::Tx, "system call")),
    ] {
        let filter = |what: &[&str]| {
            let command = [&["tc", "filter"], what].concat();
            run(namespace, &command).unwrap()
        };
        shows(
            &topology,
            stage,
            &|| {
                filter(&[
                    "add",
                    "dev",
                    device,
                    hook,
                    "bpf",
                    "obj",
                    &object,
                    "sec",
                    "classifier",
                    "da",
                ])
            },
            &|| {
                assert!(filter(&["del", "dev", device, hook]));
            },
        );
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Check that a shaper's delay of a packet is in `qdisc wait`, at its size: of two packets sent
/// together, the second waits until there are tokens for it.
#[test]
fn as_root_a_shaper_is_a_wait() {
    if cannot() {
        return;
    }
    let _alone = alone();
    let topology = Topology::build(&veth(Family::V4, false), &[]).unwrap();
    let shaper = "tc qdisc add dev tx0 root tbf rate 8mbit burst 1600 limit 1000000";
    let shaper: Vec<_> = shaper.split(' ').collect();
    if !run(&topology.tx, &shaper).unwrap_or(false) {
        skip("a shaper needs tc and sch_tbf");
        return;
    }
    // 8 Mbit/s is a byte in a microsecond; Ethernet, IP and UDP are 42 bytes.
    let payload = vec![7; 1400];
    let expected_ns = f64::from(2 * (1400 + 42) - 1600) * 1000.0;
    let sockets = sockets(&topology, Proto::Udp);
    let mut live = stages(&spec(&topology, Proto::Udp));
    let (mut right, mut report, mut unseen) = (0, String::new(), 0);
    for block in 0..BLOCKS {
        live.open().unwrap();
        for _ in 0..20 {
            // Tokens for one packet, no more, gather in the meantime.
            std::thread::sleep(std::time::Duration::from_millis(4));
            assert_eq!(send(&sockets, &payload), 1400);
            one(&sockets, &payload);
            assert!(receive(&sockets, 0) > 0);
        }
        let window = live.close().unwrap();
        adds_up(&window, Direction::Tx);
        let waits = of(&window, Direction::Tx, "qdisc wait");
        // A timer's softirq runs in whatever task it meets, and there are kernels that
        // run no program in some (docs/limits.md): such a packet is only seen to queue.
        assert_eq!(
            (seen(&window, "udp tx queue"), waits.times.count),
            (40, seen(&window, "udp tx sent")),
            "block {block}\n{}",
            show(&window)
        );
        unseen += 40 - waits.times.count;
        // The shorter half found tokens.
        let half = waits.times.count / 2 + waits.times.count / 4;
        let mut below = 0;
        let median = waits.times.buckets.iter().find(|b| {
            below += b.1;
            below >= half
        });
        let off = middle(median.unwrap().0) - expected_ns;
        report += &format!("{off:.0} ns off {expected_ns}\n");
        right += usize::from(off.abs() <= OFF * expected_ns);
    }
    assert!(right >= RIGHT, "{right} of {BLOCKS} blocks\n{report}");
    let sent = 40 * BLOCKS as u64;
    assert!(unseen * 50 <= sent, "{unseen} of {sent} not seen to be sent");
}
