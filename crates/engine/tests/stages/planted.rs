//! A delay that is planted shows in its stage, at its size, and nowhere else.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::process::Command;

use netplumb_instruments::live::Live;
use netplumb_lab::netns::{Namespace, Topology};
use netplumb_model::class::{Direction, Family, Proto};
use netplumb_model::timing::Window;
use netplumb_workload::ends::Sockets;

use crate::common::*;

const PLANTED_NS: f64 = 20_000.0;
/// The share of it that it may be off by.
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

/// The median of each stage, by its direction and name.
fn medians(window: &Window) -> BTreeMap<(Direction, String), f64> {
    let median = |buckets: &[(u16, u64)], count: u64| {
        let mut below = 0;
        for &(bucket, n) in buckets {
            below += n;
            if below * 2 >= count {
                return middle(bucket);
            }
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

/// The middle of a bucket, as crates/model/src/timing.rs has them.
fn middle(bucket: u16) -> f64 {
    if bucket < 16 {
        return f64::from(bucket);
    }
    let first = f64::from(16 + bucket % 16) * f64::from(bucket / 16 - 1).exp2();
    first + f64::from(bucket / 16 - 1).exp2() / 2.0
}

fn block(live: &mut dyn Live, sockets: &Sockets) -> BTreeMap<(Direction, String), f64> {
    live.open().unwrap();
    for _ in 0..PACKETS_PER_BLOCK {
        one(sockets, &[7; 10]);
    }
    medians(&live.close().unwrap())
}

/// Plant with `plant` and pull it out with `pull`, block by block.
fn shows(
    topology: &Topology,
    stage: (Direction, &str),
    plant: &dyn Fn() -> bool,
    pull: &dyn Fn(),
    waits_else: &[(Direction, &str)],
) {
    let sockets = sockets(topology, Proto::Udp);
    let mut live = stages(&spec(topology, Proto::Udp));
    let mut right = 0;
    let mut told = String::new();
    for _ in 0..BLOCKS {
        let before = block(live.as_mut(), &sockets);
        assert!(plant());
        let after = block(live.as_mut(), &sockets);
        pull();
        let mut as_planted = true;
        for (name, after) in &after {
            let (direction, word) = (name.0, name.1.as_str());
            let grown = after - before.get(name).unwrap_or(&0.0);
            let planted = (direction, word) == stage || (direction, word) == (stage.0, "total");
            if waits_else.contains(&(direction, word)) {
                continue;
            }
            let expected = if planted { PLANTED_NS } else { 0.0 };
            let off = (grown - expected).abs() > OFF * PLANTED_NS;
            if off {
                told += &format!("{direction} {word}: {grown} ns, not {expected}\n");
                as_planted = false;
            }
        }
        right += usize::from(as_planted);
    }
    assert!(right >= RIGHT, "{right} of {BLOCKS} blocks\n{told}");
}

/// Check that a busy loop at the receiver's ingress is protocol work, and one at the
/// sender's egress is the system call's.
#[test]
fn as_root_a_busy_loop_is_work() {
    if cannot() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("netplumb-spin-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, object) = (folder.join("spin.c"), folder.join("spin.o"));
    std::fs::File::create(&source)
        .unwrap()
        .write_all(SPIN.as_bytes())
        .unwrap();
    let compiled = Command::new("clang")
        .args([
            "-target",
            "bpf",
            "-O2",
            "-g",
            "-idirafter",
            "/usr/include/x86_64-linux-gnu",
            "-c",
        ])
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
        (
            &topology.tx,
            "tx0",
            "egress",
            (Direction::Tx, "system call"),
        ),
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
            &[],
        );
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
