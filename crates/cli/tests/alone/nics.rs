//! `plumb bench` on interfaces of the user's: all is as it was, however the run ends; and refusals.
//! The interfaces are veth pairs in throwaway namespaces, in which the program is run.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{Place, Ran, Running, own, skip};
use netplumb_model::recording::env;
use netplumb_sys::napi;
use netplumb_sys::netns::Namespace;
use serde_json::Value;
use tempfile::TempDir;

/// How often a run is killed, unless set otherwise.
const KILLS: usize = 12;
/// Short blocks, and figures for programs.
const SHORT: &str = "--blocks 1 --time 120ms --warmup 50ms --json --quiet";
/// Where others have the CPU, some blocks have no packets: of this many,
const TRIES: usize = 3;
/// at least this many must have some.
const WELL: usize = 2;
const PAIR: &str = "--nic v1 --from v0";
const YES: &str = "--nic v1 --from v0 --yes-change v0,v1";
const ALL: &str = "--nic v1 --from v0 --to w0 --sink w1";
const YES_ALL: &str = "--nic v1 --from v0 --to w0 --sink w1 --yes-change v0,v1,w0,w1";

/// Whether namespaces can be made and programs loaded here; prints a note if not.
fn is_root() -> bool {
    if !netplumb_testkit::has_root() {
        return false;
    }
    for tool in ["ip", "tc", "nft", "ethtool", "sysctl"] {
        let there = Command::new("which").arg(tool).output();
        if !there.is_ok_and(|o| o.status.success()) {
            skip(&format!("{tool} is not installed: what is there can't be compared"));
            return false;
        }
    }
    true
}

/// A machine of our own: a namespace in which cables join v0 to v1 and w0 to w1, with
/// settings that nobody would choose by chance.
struct Machine {
    namespace: Namespace,
    place: Place,
    /// Where plumb's journal is: with a shared one, another test would restore what this test's
    /// killed run left.
    journal: TempDir,
}

impl Machine {
    fn new() -> Machine {
        let machine = Machine {
            namespace: Namespace::new().unwrap(),
            place: Place::new(),
            journal: TempDir::new().unwrap(),
        };
        for line in "
            sysctl -qw net.ipv6.conf.default.accept_dad=0
            sysctl -qw net.ipv6.conf.default.router_solicitations=0
            ip link add v0 numtxqueues 2 numrxqueues 2 type veth peer name v1 numtxqueues 2 numrxqueues 2
            ip link add w0 numtxqueues 2 numrxqueues 2 type veth peer name w1 numtxqueues 2 numrxqueues 2
            ip link set lo up
            ip link set v0 up
            ip link set v1 up
            ip link set w0 up
            ip link set w1 mtu 1480 up
            ip addr add 192.0.2.1/24 dev v0
            ip addr add 2001:db8::1/64 dev v1 nodad
            ip route add 203.0.113.0/24 dev v1
            ip route add 198.51.100.0/24 dev w0
            ip neigh add 203.0.113.9 lladdr 02:00:00:00:00:09 nud permanent dev v1
            ethtool -K w1 gro on
            ethtool -K v0 tso off
            sysctl -qw net.ipv4.conf.all.rp_filter=2
            sysctl -qw net.ipv4.conf.v1.rp_filter=1
            nft add table inet users
            nft add chain inet users seen { type filter hook input priority 0 ; }
            nft add rule inet users seen tcp dport 22 accept
        "
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        {
            machine.sh(line);
        }
        let ready = |m: &Machine| {
            let states = m.namespace.device_states().unwrap();
            states.iter().all(|s| s.running || !s.ethernet)
        };
        let begun = Instant::now();
        while !ready(&machine) {
            assert!(begun.elapsed() < crate::common::PATIENCE, "no carrier");
            sleep(Duration::from_millis(5));
        }
        machine.at_rest();
        machine
    }

    /// Its state once that no longer changes by itself: carriers, and addresses and routes of
    /// IPv6, come by and by.
    fn at_rest(&self) -> String {
        let begun = Instant::now();
        let mut last = self.state();
        loop {
            sleep(Duration::from_millis(100));
            let now = self.state();
            let settled = !["tentative", "LOWERLAYERDOWN"].iter().any(|w| now.contains(w));
            if now == last && settled {
                return now;
            }
            assert!(begun.elapsed() < crate::common::PATIENCE, "never at rest");
            last = now;
        }
    }

    /// A command that will run in the namespace.
    fn inside(&self, command: Command) -> Command {
        own::inside(&self.namespace, command)
    }

    fn plumb(&self, words: &str) -> Command {
        own::plumb(&self.namespace, self.place.plumb(words), self.journal.path())
    }

    fn run(&self, words: &str) -> Ran {
        Running::start(&mut self.plumb(words)).finish()
    }

    /// What a command of the system prints; it has to go well.
    fn sh(&self, line: &str) -> String {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        let output = self.inside(command).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Everything that can be seen of the interfaces and of what packets meet.
    fn state(&self) -> String {
        let mut text = String::new();
        let mut lines: Vec<String> = [
            "ip -d link",
            "ip -d addr",
            "ip -4 route show table all",
            "ip -6 route show table all",
            "ip neigh show nud permanent",
            "ip -d link show type bridge",
            "tc qdisc",
            "nft list ruleset",
        ]
        .map(String::from)
        .to_vec();
        for name in ["v0", "v1", "w0", "w1"] {
            lines.extend([
                format!("ethtool -k {name}"),
                format!("ethtool -l {name}"),
                format!("tc filter show dev {name} ingress"),
            ]);
            let threaded = napi::is_threaded(&self.namespace, name);
            text += &format!("{name} threaded: {threaded:?}\n");
        }
        for line in lines {
            text += &format!("# {line}\n{}", self.sh(&line));
        }
        // Counters and random values are not settings.
        let changes = ["conntrack_count", "_key", "stable_secret", "expire"];
        let settings = self.sh("sysctl -a --pattern ^net[.]");
        for line in settings.lines() {
            if !changes.iter().any(|c| line.contains(c)) {
                text += &format!("{line}\n");
            }
        }
        text
    }

    fn check_as(&self, before: &str, when: &str) {
        let now = self.state();
        if now == before {
            return;
        }
        let (was, is): (Vec<_>, Vec<_>) = (before.lines().collect(), now.lines().collect());
        let gone: Vec<_> = was.iter().filter(|l| !is.contains(l)).collect();
        let new: Vec<_> = is.iter().filter(|l| !was.contains(l)).collect();
        panic!("{when}: no more: {gone:#?}\nnew: {new:#?}");
    }
}

/// Check that a run was let run. Where others have the CPU, none of its blocks may count.
fn runs(ran: &Ran) -> &Ran {
    assert!(matches!(ran.status.code(), Some(0 | 1)), "{ran:#?}");
    assert!(ran.stdout.contains("xdp"), "{ran:#?}");
    assert!(!ran.stderr.contains("plumb: "), "{ran:#?}");
    ran
}

fn document(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran:#?}"))
}

/// Check that every path that can be there measures, accounts for its packets among those
/// of others, and leaves all as it was.
#[test]
fn as_root_all_is_as_it_was() {
    if !is_root() {
        return;
    }
    let machine = Machine::new();
    let before = machine.state();
    let drops = ["xdp", "xdp-skb", "tc", "nft-raw", "nft-conntrack", "socket"];
    let forwards = ["xdp-tx", "xdp-redirect", "route", "bridge"];
    for (words, must) in [
        (format!("drop {YES} {SHORT}"), &drops[..]),
        (format!("drop {YES} --family ipv6 --size 78 {SHORT}"), &drops),
        (format!("forward {YES_ALL} {SHORT}"), &forwards),
        (
            format!("forward {YES_ALL} --family ipv6 --size 78 {SHORT}"),
            &["xdp-tx", "xdp-redirect", "bridge"],
        ),
        (format!("drop {YES} --path xdp,tc --apart --rate 50k {SHORT}"), &["xdp", "tc"]),
    ] {
        let cpus = std::thread::available_parallelism().unwrap().get();
        if words.contains("--apart") && cpus < 2 {
            skip("one CPU: no path apart");
            continue;
        }
        // Others' packets, of which there are some all the time.
        let others = UdpSender::start(&machine);
        let mut counted: BTreeMap<String, usize> = BTreeMap::new();
        let missing = |counted: &BTreeMap<String, usize>| -> Vec<&str> {
            let often = |name: &str| counted.get(name).copied().unwrap_or(0);
            must.iter().copied().filter(|name| often(name) < WELL).collect()
        };
        for _ in 0..TRIES {
            let ran = machine.run(&format!("bench {words}"));
            machine.check_as(&before, &words);
            assert!(matches!(ran.status.code(), Some(0 | 1)), "{ran:#?}");
            assert!(!ran.stderr.contains("plumb: "), "{ran:#?}");
            for arm in document(&ran)["arms"].as_array().unwrap() {
                let name = arm["name"].as_str().unwrap().to_string();
                if let Some(why) = arm["failed"].as_str() {
                    assert!(!must.contains(&name.as_str()), "{name}: {why}");
                    assert!(why.len() > 20, "{name}: {why}");
                } else if arm["valid_blocks"] == 1 {
                    crate::common::closes(arm);
                    *counted.entry(name).or_default() += 1;
                }
            }
            if missing(&counted).is_empty() {
                break;
            }
        }
        drop(others);
        let missing = missing(&counted);
        assert!(missing.is_empty(), "{words}: {missing:?} count too seldom: {counted:?}");
    }
    let text = machine.run("report bench-drop.plumb");
    crate::common::prints(text.code(0), &["NICs      ", "v0 to v1"]);
    machine.place.nothing_runs();
}

/// Packets of somebody else's, from v0 to v1.
struct UdpSender {
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl UdpSender {
    fn start(machine: &Machine) -> UdpSender {
        let open = || UdpSocket::bind("192.0.2.1:0");
        let socket = machine.namespace.inside(open).unwrap();
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let _ = socket.set_broadcast(true);
            while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = socket.send_to(b"hello", "192.0.2.255:4000");
                sleep(Duration::from_millis(2));
            }
        });
        UdpSender { stop, thread: Some(thread) }
    }
}

impl Drop for UdpSender {
    fn drop(&mut self) {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}

/// Check that packets of others are distinguished, and don't invalidate a block.
#[test]
fn as_root_packets_of_others_are_named() {
    if !is_root() {
        return;
    }
    let machine = Machine::new();
    let others = UdpSender::start(&machine);
    let words =
        format!("bench drop {YES} --path xdp --blocks 1 --time 300ms --quiet -o others.plumb");
    let ran = machine.run(&words);
    drop(others);
    let recording = machine.place.recording("others.plumb");
    assert_eq!(recording.environment[env::LAB], "host");
    let words = ["packets from elsewhere were received there", "1 valid, 0 invalid"];
    crate::common::prints(ran.code(0), &words);
}

/// Check that a path that can't be set up leaves everything as it was.
#[test]
fn as_root_a_path_that_fails() {
    if !is_root() {
        return;
    }
    let machine = Machine::new();
    let before = machine.state();
    // Take the port.
    let taken = machine.namespace.inside(|| UdpSocket::bind("0.0.0.0:9"));
    let _taken = taken.unwrap();
    let ran = machine.run(&format!("bench drop {YES} --path socket {SHORT}"));
    ran.code(3);
    let document = document(&ran);
    let why = document["arms"][0]["failed"].as_str().unwrap();
    assert!(why.contains("the port 9 is taken"), "{why}");
    machine.check_as(&before, "a path that fails");
}

/// Wait until a run has a path set up: the journal has an entry besides offloads.
fn wait_for_changes(machine: &Machine) {
    let begun = Instant::now();
    while machine.sh("nft list tables").lines().count() < 2 {
        assert!(begun.elapsed() < crate::common::PATIENCE, "nothing is changed");
        sleep(Duration::from_millis(2));
    }
}

/// Check that an MTU that is too large for one buffer is reported, and that a multi-buffer program
/// is accepted on it; the one on the far end always is multi-buffer.
#[test]
fn as_root_several_buffers() {
    if !is_root() {
        return;
    }
    let machine = Machine::new();
    for device in ["v0", "v1", "w0", "w1"] {
        machine.sh(&format!("ip link set {device} mtu 9000"));
    }
    let before = machine.state();
    let one = machine.run(&format!("bench drop {YES} --path xdp {SHORT}"));
    let report = document(one.code(3));
    let why = report["arms"][0]["failed"].as_str().unwrap();
    assert!(why.contains("MTU is too large") && why.contains("--multi-buffer"), "{why}");
    for words in [
        format!("drop {YES} --path xdp,xdp-skb"),
        format!("forward {YES_ALL} --path xdp-redirect,xdp-tx"),
    ] {
        let ran = machine.run(&format!("bench {words} --multi-buffer {SHORT}"));
        let document = document(ran.code(0));
        for arm in document["arms"].as_array().unwrap() {
            crate::common::closes(arm);
        }
    }
    machine.check_as(&before, "programs of several buffers");
}

/// Check that Ctrl-C leaves all as it was.
#[test]
fn as_root_interrupted() {
    if !is_root() {
        return;
    }
    let machine = Machine::new();
    let before = machine.state();
    let words = format!("bench drop {YES} --path nft-conntrack --blocks 9 --time 2s");
    let running = Running::start(&mut machine.plumb(&words));
    wait_for_changes(&machine);
    running.signal(libc::SIGINT);
    running.finish().code(130);
    machine.check_as(&before, "interrupted");
    machine.place.nothing_runs();
}

/// Check that after a kill at any moment the next start leaves all as it was.
#[test]
fn as_root_killed_at_any_moment() {
    if !is_root() {
        return;
    }
    let kills = netplumb_testkit::kills(KILLS);
    let machine = Machine::new();
    let before = machine.state();
    let mut put_back = 0;
    // Any numbers do; these are the same each time.
    let mut random = 0x2545_f491_u64;
    for kill in 0..kills {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let ms = (random >> 33) % 500;
        let words = match kill % 2 {
            0 => format!("drop {YES} --path nft-conntrack,tc,socket,xdp-skb,af-xdp"),
            _ => format!("forward {YES_ALL} --path route,bridge,xdp-redirect"),
        };
        let apart = if kill % 3 == 0 { "--apart" } else { "" };
        let words = format!("bench {words} {apart} --blocks 50 --time 10ms --warmup 10ms -q");
        let running = Running::start(&mut machine.plumb(&words));
        sleep(Duration::from_millis(ms));
        running.signal(libc::SIGKILL);
        let ran = running.finish();
        assert_eq!(ran.status.code(), None, "{ran:#?}");
        let next = machine.run("doctor --clean");
        let lines = next.code(0).stdout.lines();
        put_back += lines.clone().filter(|l| l.starts_with("restored")).count();
        let left: Vec<_> = lines.filter(|l| l.starts_with("not restored")).collect();
        assert!(left.is_empty(), "after {ms} ms: {left:?}");
        machine.check_as(&before, &format!("killed after {ms} ms: {words}"));
    }
    crate::common::tell(&format!("{kills} kills, {put_back} changes restored"));
    assert!(kills < KILLS || put_back > 0, "no kill hit anything");
    machine.place.nothing_runs();
}

/// Check that the next run of a bench also restores settings, and reports it.
#[test]
fn as_root_the_next_run_puts_back() {
    if !is_root() {
        return;
    }
    let machine = Machine::new();
    let before = machine.state();
    let words = format!("bench drop {YES} --path nft-conntrack --blocks 9 --time 2s -q");
    let running = Running::start(&mut machine.plumb(&words));
    wait_for_changes(&machine);
    running.signal(libc::SIGKILL);
    running.finish();
    assert_ne!(machine.state(), before);
    let next = machine.run(&format!("bench drop {YES} --path xdp --blocks 1 --time 100ms --csv"));
    assert!(matches!(next.status.code(), Some(0 | 1)), "{next:#?}");
    next.says(&["restored settings left by a killed run", "nftables"]);
    machine.check_as(&before, "the next run");
}

/// Check that nothing is changed without consent, and that what would be changed is listed.
#[test]
fn as_root_what_has_to_be_agreed_to() {
    if !is_root() {
        return;
    }
    let machine = Machine::new();
    let before = machine.state();
    let asked = machine.run(&format!("bench drop {PAIR} --path socket,xdp"));
    asked.code(2).says(&[
        "--yes-change v0,v1",
        "  v1\n",
        "an XDP program",
        "net.ipv4.conf.v1.rp_filter",
        "net.ipv4.conf.all.rp_filter",
        "198.18.2.1",
    ]);
    let one = machine.run(&format!("bench drop {PAIR} --yes-change v1 --path xdp"));
    one.code(2).says(&["--yes-change v0,v1"]);
    let all = machine.run(&format!("bench forward {ALL} --yes-change v0,v1"));
    all.code(2).says(&["w0", "w1", "bridge", "--yes-change v0,v1,w0,w1"]);
    machine.check_as(&before, "nothing agreed to");
    assert_eq!(machine.place.files(), [""; 0]);
}

/// Check the refusals with their remedies, and that nothing is changed by them.
#[test]
fn as_root_what_is_refused() {
    if !is_root() {
        return;
    }
    let machine = Machine::new();
    machine.sh("ip link add d0 type veth peer name d1");
    machine.sh("ip link add br9 type bridge");
    machine.sh("ip link add p0 type veth peer name p1");
    machine.sh("ip link set p0 master br9 up");
    machine.sh("ip link set p1 up");
    let before = machine.at_rest();
    for (words, code, said) in [
        ("drop --nic v1", 2, &["--from"][..]),
        ("drop --from v1", 2, &["--nic"]),
        ("drop --nic v9 --from v0", 2, &["no such device: v9", "v1"]),
        ("drop --nic v1 --from v1", 2, &["must be different interfaces"]),
        ("drop --nic v1 --from v0 --to w0 --sink w1", 2, &["bench forward"]),
        ("forward --nic v1 --from v0 --to w0", 2, &["--sink"]),
        ("drop --nic d0 --from v0", 3, &["d0 is down", "ip link set d0 up"]),
        ("drop --nic p0 --from p1", 3, &["port of br9", "nomaster"]),
        ("drop --nic lo --from v0", 3, &["lo"]),
        (
            "drop --nic v1 --from v0 --cores 3",
            3,
            &["2 receive queues", "ethtool -L", "--cores to 2"],
        ),
        ("drop --nic v1 --from v0 --rate 0", 2, &["250k"]),
    ] {
        let ran = machine.run(&format!("bench {words} --yes-change v0,v1,p0,p1,d0,lo"));
        ran.code(code).says(said);
    }
    // What the requested paths can't do is reported for each.
    let alone = machine.run(&format!("bench forward {YES} --path route {SHORT}"));
    assert!(alone.code(3).stdout.contains("--sink"), "{alone:#?}");
    machine.check_as(&before, "refused");

    // Somebody else's program; and another run of ours.
    for (path, said) in [("xdp", "XDP program already"), ("nft-raw", "another run")] {
        let words = format!("bench drop {YES} --path {path} --blocks 9 --time 5s -q");
        let first = Running::start(&mut machine.plumb(&words));
        let begun = Instant::now();
        let stands = || match path {
            "xdp" => machine.sh("ip link show v1").contains("xdp"),
            _ => machine.sh("nft list tables").lines().count() > 1,
        };
        while !stands() {
            assert!(begun.elapsed() < crate::common::PATIENCE, "the first does not begin");
            sleep(Duration::from_millis(2));
        }
        let second = format!("bench drop {YES} --path tc {SHORT} -o second.plumb");
        let second = machine.run(&second);
        second.code(3).says(&[said, "or use another"]);
        first.signal(libc::SIGINT);
        first.finish().code(130);
    }
    machine.check_as(&before, "two at once");
}

/// Check that the interface of the default route, or of the session, is left alone unless the
/// option for it is given, even if it is below a VLAN.
#[test]
fn as_root_the_default_route() {
    if !is_root() {
        return;
    }
    let machine = Machine::new();
    let again = |words: &str, said: &[&str]| {
        let before = machine.state();
        let words = format!("bench drop {YES} --path xdp {SHORT} {words}");
        let ran = machine.run(&words);
        match said {
            [] => runs(&ran),
            _ => ran.code(2).says(said),
        };
        machine.check_as(&before, &words);
    };
    for route in ["default dev v0", "0.0.0.0/1 dev v1", "default nexthop dev w0 nexthop dev v1"] {
        machine.sh(&format!("ip route add {route}"));
        again("", &["default route", "--even-default-route"]);
        again("--even-default-route", &[]);
        machine.sh(&format!("ip route del {route}"));
    }
    machine.sh("ip -6 route add default dev v1");
    again("", &["refusing to change v1", "--even-default-route"]);
    machine.sh("ip -6 route del default dev v1");
    let before = machine.state();
    let mut ssh = machine.plumb(&format!("bench drop {YES} --path xdp {SHORT}"));
    ssh.env("SSH_CONNECTION", "203.0.113.7 50000 203.0.113.1 22");
    let ran = Running::start(&mut ssh).finish();
    ran.code(2).says(&["refusing to change v1", "your session from 203.0.113.7"]);
    machine.check_as(&before, "over ssh");
    let mut vlan = Command::new("ip");
    vlan.args("link add link v0 name v0.7 type vlan id 7".split(' '));
    if !machine.inside(vlan).status().unwrap().success() {
        crate::common::tell("this kernel has no VLANs: not over one");
        return;
    }
    machine.sh("ip link set v0.7 up");
    machine.sh("ip route add default dev v0.7");
    again("", &["refusing to change v0", "over v0.7"]);
}
