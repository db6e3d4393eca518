//! Tests of command lines as experiments.

use std::time::Duration;

use clap::Parser;
use netplumb_model::experiment::{Experiment, Lab};

use crate::{Cli, Command};

fn asked(line: &str) -> Experiment {
    let words = std::iter::once("plumb").chain(line.split(' '));
    match Cli::try_parse_from(words).unwrap().command {
        Command::Path(args) => args.experiment().unwrap(),
        Command::Profile(args) => args.experiment().unwrap(),
        Command::Stat(args) => args.experiment().unwrap(),
        Command::Trace(args) => args.experiment().unwrap(),
        Command::Between(args) => args.experiment().unwrap(),
        Command::Bench(command) => command.experiment().unwrap().unwrap(),
        _ => panic!("{line}: it asks for no experiment"),
    }
}

/// Check that the experiments of command lines can be written as files, and read back the same.
#[test]
fn command_lines_are_experiments() {
    for line in [
        "path",
        "path --proto udp,raw --size 10,1K --offload gro=on --offload gro=off --seeds 3",
        "path --sysctl net.core.x=1 --mitigations on --cmdline quiet --qdisc fq --qdisc-in rx",
        "path --lab netns --stream --rate 500 --duration 4s --bridge --queues 2",
        "path --lab netns --clock functions --functions ip_*,udp_* --max-overhead 10%",
        "path --lab host --proto tcp --port 80 --interface eth0 --duration 10s --one-packet",
        "path --lab host -- ping -c 1 192.0.2.1",
        "path --with data --peer nc --warmup 2 -- cat data",
        "profile",
        "profile --pid 1 --frequency 99 --duration 20s",
        "profile --cgroup system.slice --user-stacks fp",
        "profile --duration 5s --off-cpu --user-stacks dwarf -- make -j 4",
        "stat",
        "stat page-faults,block:* --focus memory,network --ratio cs/task-clock --by cpu",
        "stat cs --blocks 3 --disk sda --read-ahead 128,2048 -- ls -l",
        "profile --blocks 2 --disk /dev/sda --scheduler none --nr-requests 4,8 -- ls -l",
        "between --preset disk --disk sda --scheduler none,kyber --blocks 2 -- ls -l",
        "stat --pid 1 --duration 10s --interval 1s",
        "stat uprobe:/bin/ls:main --blocks 5 -- ls -l",
        "trace ip_rcv",
        "trace ip_rcv --depth 3 --slowest 5 --proto udp,tcp --packets 5 --blocks 2 --seeds 2",
        "trace ls:main --with data --warmup 0 -- ls -l data",
        "between block:block_rq_issue block:block_rq_complete --by device --duration 10s",
        "between sched:sched_switch sched:sched_switch --key prev,next --pid 1 --slow p99",
        "between kprobe:f kprobe:g kretprobe:f --kind work,wait --interval 1s -- ls -l",
        "bench drop --path xdp,tc --cores 1,2 --queues 1,2 --rate 250k,max --latency",
        "bench drop --lab vm --link e1000 --kernel debian --twice",
        "bench forward --nic a --from b --to c --sink d --search --time 2s",
        "bench drop --explain --kernel debian --plant ttl --frames icmp --family ipv6",
        "bench swap --path xdp-tx --swaps 10 --cores 2",
    ] {
        let experiment = asked(line);
        assert_eq!(experiment.check(), Ok(()), "{line}");
        let text = experiment.to_toml().unwrap();
        assert_eq!(Experiment::parse(&text), Ok(experiment), "{line}:\n{text}");
    }
}

/// Check the plans of command lines: arms and their names, blocks, and durations.
#[test]
fn what_is_lowered() {
    let names = |line: &str| -> Vec<String> {
        let arms = asked(line).arms();
        arms.into_iter().map(|arm| arm.name).collect()
    };
    assert_eq!(names("path"), ["udp"]);
    assert_eq!(names("path --link lo"), ["udp"]);
    assert_eq!(names("path --proto udp,tcp --mtu 1400"), ["udp", "tcp"]);
    assert_eq!(names("bench drop --path xdp --twice"), ["xdp", "xdp again"]);
    let timed = asked("path --lab netns --proto udp,raw --duration 4s --measure-cost");
    assert_eq!(timed.block_count(), 10);
    assert_eq!(timed.block_time(), Some(Duration::from_millis(100)));
    let shared = asked("path --clock functions --duration 4s --blocks 2 --measure-cost");
    assert_eq!(shared.block_time(), Some(Duration::from_secs(1)));
    assert_eq!(timed.filter.proto.len(), 2);
    for (line, long, block) in [
        ("path --duration 20s", Some(20), None),
        ("path --clock exact,samples --duration 1h", Some(3_600), None),
        ("path --lab netns --duration 30s", None, Some(3)),
        ("path --lab netns --duration 12h --proto udp,tcp", Some(43_200), Some(1)),
        ("path --lab netns --duration 200s --blocks 10", None, Some(20)),
        ("path --lab host --duration 20m", Some(1_200), None),
    ] {
        let asked = asked(line);
        let seconds = |time: Duration| time.as_secs();
        assert_eq!(asked.long().map(seconds), long, "{line}");
        if asked.lab != Lab::Host {
            assert_eq!(asked.block_time().map(seconds), block, "{line}");
        }
        assert_eq!(asked.check(), Ok(()), "{line}");
    }
    let bench = asked("bench forward --path route");
    assert_eq!(bench.block_count(), 5);
    assert!(bench.arms()[0].forward);
}
