//! Settings of the NICs of two hosts, and the experiments about them that come with the program.

use std::path::Path;

use crate::common::{Place, Ran, prints};
use netplumb_model::hosts::{BUSY, INTERRUPTS, THROUGHPUT, TURN, TURNS};
use netplumb_model::quantity::Declared;
use netplumb_model::recording::Recording;

/// The output with lines joined: where they are wrapped depends on their contents.
fn in_a_line(ran: &Ran) -> String {
    let words: Vec<&str> = ran.stdout.split_whitespace().collect();
    words.join(" ")
}

/// The figure of an arm's only block.
fn figure_of_arm(
    recording: &Recording,
    arm: &str,
    quantity: &Declared,
    label: Option<&str>,
) -> f64 {
    let arm = recording.arms.iter().position(|a| a.name == arm);
    let arm = arm.unwrap_or_else(|| panic!("{:?}", recording.arms)) as u32;
    let mut its = recording.scalars_of(quantity).filter(|scalar| {
        let block = scalar.block().unwrap();
        scalar.item.label.as_deref() == label && recording.blocks[block as usize].arm == arm
    });
    its.next().unwrap().value
}

/// Check that settings of NICs are made at the ends that are named, read back, and change what they
/// should: fewer interrupts with more delay, and turns that wait for the next poll.
#[test]
fn settings_act() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let stream = "bench stream --bytes 512K --blocks 1 -o x.plumb";
    place
        .run(&format!(
            "{stream} --coalesce rx-usecs=150 --coalesce rx-usecs=1000 --coalesce-in rx --rings rx=512 --rings-in rx \
             --module-options e1000=TxIntDelay=0 --feature rx-all=on --threaded on --napi-in rx"
        ))
        .code(0);
    let recording = place.recording("x.plumb");
    let irqs = |arm| figure_of_arm(&recording, arm, &INTERRUPTS, Some("receiver"));
    // It also sends more slowly, so that a block is longer.
    assert!(irqs("rx-usecs=150") > 2.0 * irqs("rx-usecs=1000"));
    for notes in recording.notes.values() {
        assert_eq!(notes.facts["nic.rx0.rings.rx"], "512");
        assert_eq!(notes.facts["nic.rx0.threaded"], "1");
        assert_eq!(notes.facts["nic.tx0.rx-all"], "on");
        assert!(!notes.facts.contains_key("nic.tx0.rings.rx"));
        assert!(notes.inert.is_empty(), "{:?}", notes.inert);
    }
    place
        .run(
            "bench request --link virtio-net --turns 10 --blocks 1 -o x.plumb --napi-defer-hard-irqs 1 --napi-in rx \
             --gro-flush-timeout 0,200us",
        )
        .code(0);
    let recording = place.recording("x.plumb");
    let turn = |arm| figure_of_arm(&recording, arm, &TURN, Some("median"));
    let longer = turn("gro_flush_timeout=200us") - turn("gro_flush_timeout=0");
    assert!((100e3..250e3).contains(&longer), "{longer}");
}

/// Check that a setting that can't act here is reported, and that a driver's refusal has its
/// reason.
#[test]
fn what_devices_cannot() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let stream = "bench stream --bytes 64K --blocks 1 -o x.plumb";
    for (words, says) in [
        ("--coalesce rx-usecs=50", "as good as 128"),
        ("--coalesce rx-usecs=250", "least of all delays"),
        ("--offload rx-checksum=off", "verifies no checksums"),
        ("--napi-defer-hard-irqs 1", "which is 0"),
        ("--rings rx=256", "was already 256"),
    ] {
        let ran = place.run(&format!("{stream} {words}"));
        ran.code(0);
        assert!(in_a_line(&ran).contains(says), "{words}: {ran:?}");
    }
    for (words, code, says) in [
        ("--coalesce rx-usecs=20000", 3, "refuses rx-usecs=20000"),
        ("--link virtio-net --coalesce rx-usecs=50", 3, "refuses rx-usecs=50"),
        ("--feature speed=on", 2, "no feature `speed`"),
        ("--rings rx=256 --rings rx=100000", 3, "arm rings.rx=100000: in the guest"),
        ("--feature tx-vlan-stag-hw-insert=on", 3, "[fixed]; leave it out"),
        ("--module-options e1000=Speeed=1", 2, "has no option `Speeed`; it has"),
        ("--module-options veth=x=1", 2, "veth has no option"),
        ("--module-options nothing=x=1", 2, "no module `nothing`"),
        ("--coalesce rx-usec=1", 2, "rx-usecs"),
        ("--rings rx=0", 2, "1 or more"),
        ("--coalesce-in rx", 2, "--coalesce"),
        ("--link e1000e --offload tso=off --throttle off", 2, "e1000 only"),
        ("--gro-flush-timeout soon", 2, "like 1us"),
    ] {
        let ran = place.run(&format!("{stream} {words}"));
        ran.code(code);
        assert!(ran.stderr.contains(says), "{words}: {ran:?}");
    }
    assert_eq!(place.processes(), [""; 0]);
}

/// Check that recordings of two hosts are compared figure by figure: equal, or by how much.
#[test]
fn compared() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    for (file, words) in [("a", ""), ("b", ""), ("c", "--tx-shift 2")] {
        place.run(&format!("bench stream --bytes 256K --blocks 1 -o {file}.plumb {words}")).code(0);
    }
    let same = place.run("diff a.plumb b.plumb --fail-if-worse 0%");
    same.code(0);
    prints(&same, &["figures are equal; the times of all frames are equal"]);
    let other = place.run("diff a.plumb c.plumb --fail-if-worse 5%");
    other.code(4);
    prints(&other, &["CPU use of sender", "differ"]);
    assert!(other.stderr.contains("worse by more than 5%"), "{other:?}");
    let csv = place.run("diff a.plumb c.plumb --csv");
    csv.code(0);
    prints(&csv, &["arm,figure,unit,before,after,change"]);
    place.run("diff a.plumb c.plumb --tree").code(2);
}

/// The experiments of two hosts that come with the program, each with some of its arms and what they
/// have to show, as ratios of a quantity.
type Study = (
    &'static str,
    usize,
    &'static [(&'static str, &'static str, Declared, Option<&'static str>, f64, f64)],
);

const STUDIES: &[Study] = &[
    ("socket-buffers", 27, &[("rx_buffer=65536", "rx_buffer=8192", THROUGHPUT, None, 3.0, 6.0)]),
    ("offload", 10, &[("all off", "all on", BUSY, Some("sender"), 1.5, 4.0)]),
    (
        "who-should-work",
        12,
        &[
            ("tx-checksum=on tx_shift=2", "tx-checksum=off tx_shift=2", THROUGHPUT, None, 1.2, 1.6),
            (
                "lower load: tx-checksum=on tx_shift=2",
                "lower load: tx-checksum=off tx_shift=2",
                THROUGHPUT,
                None,
                0.98,
                1.02,
            ),
        ],
    ),
    (
        "who-should-work-latency",
        12,
        &[
            (
                "tx-checksum=on tx_shift=2",
                "tx-checksum=off tx_shift=2",
                TURN,
                Some("mean"),
                0.6,
                0.9,
            ),
            (
                "tx-checksum=on tx_shift=0",
                "tx-checksum=off tx_shift=0",
                TURN,
                Some("mean"),
                // With Linux 6.1 none, with 6.12 a twentieth.
                0.93,
                1.02,
            ),
        ],
    ),
    (
        "web-offload",
        8,
        &[
            ("memory: all on", "memory: all off", TURNS, None, 1.3, 2.0),
            ("disk: all on", "disk: all off", TURNS, None, 1.1, 2.0),
            ("fast server: all on", "fast server: all off", TURNS, None, 0.98, 1.02),
        ],
    ),
    ("offload-turns", 3, &[("all on", "all off", TURN, Some("mean"), 0.9, 1.0)]),
    (
        "moderation",
        10,
        &[("gro_flush_timeout=100us", "gro_flush_timeout=0", BUSY, Some("receiver"), 0.1, 0.7)],
    ),
    (
        "moderation-latency",
        7,
        &[("gro_flush_timeout=250us", "gro_flush_timeout=100us", TURN, Some("median"), 2.0, 2.6)],
    ),
    ("jumbo", 2, &[("mtu=9000", "mtu=1500", THROUGHPUT, None, 1.04, 1.1)]),
];

/// An experiment whose blocks send a quarter: its claims are ratios.
fn quarter(text: &str) -> String {
    let mut text = text.to_owned();
    for (whole, quarter) in [
        ("bytes = \"4M\"", "bytes = \"1M\""),
        ("bytes = \"8M\"", "bytes = \"2M\""),
        ("requests = 400", "requests = 100"),
        ("turns = 50", "turns = 12"),
        ("turns = 20", "turns = 5"),
    ] {
        text = text.replace(whole, quarter);
    }
    text
}

/// Claims that one seed and a quarter of the payload don't decide: about hosts that are both busy, and about
/// differences that must be small, which a kernel of another week moves across their bound.
const DRAWS: [&str; 7] = [
    "The sender's buffer alone changes nothing",
    "On an idle CPU offload changes throughput by less than 1%",
    "and so it does where both hosts are slow",
    "A busy server answers at least 30% more requests from memory with offload",
    "and so it does from a disk",
    "Requests that read a disk take more of the CPU",
    "A server with a CPU that idles answers as many requests without offload",
];

/// Check that every one of them ends with all claims held but what the study has otherwise, sends and receives
/// as many bytes, and has its figures on the page. Under one seed of three and with a quarter of the payload, for
/// the time that it takes; `make soak` runs them as they are.
#[test]
fn studies() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    for (name, arms, ratios) in STUDIES {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../experiments/{name}.toml"));
        let text = std::fs::read_to_string(file).unwrap();
        let (text, seeds) = match netplumb_testkit::is_soak() {
            true => (text, ""),
            false => (quarter(&text), "--seeds 1"),
        };
        place.write("study.toml", text);
        let ran = place.run(&format!("run -q study.toml -o x.plumb --html x.html {seeds}"));
        if ran.stderr.contains("can't turn its interrupt throttling off") {
            ran.code(3);
            crate::common::tell(&format!("{name}: not with QEMU 10 and later"));
            continue;
        }
        ran.code(0);
        // Claims of the study's that are refuted.
        let refuted = match *name {
            "offload" => 1,
            "socket-buffers" => 2,
            _ => 0,
        };
        // Where both ends are busy, one seed is one draw of a wide spread: its ratios are bounded below.
        let fails = |says: &&&str| ran.stdout.contains(&format!("fails:    {says}\n"));
        let of_draws = DRAWS.iter().filter(fails);
        let allowed = match netplumb_testkit::is_soak() {
            true => 0,
            false => of_draws.count(),
        };
        assert_eq!(ran.stdout.matches("fails:").count(), refuted + allowed, "{name}: {ran:?}");
        // What is claimed of a host that is busy is not judged of one that isn't quite.
        let judged = |says: &&&str| !ran.stdout.contains(&format!("no data:  {says}\n"));
        let missing = ran.stdout.lines().filter(|line| line.starts_with("no data:  ")).count();
        let allowed = DRAWS.len() - DRAWS.iter().filter(judged).count();
        let allowed = if netplumb_testkit::is_soak() { 0 } else { allowed };
        assert_eq!(missing, allowed, "{name}: {ran:?}");
        for word in ["not shown:", "nothing to show"] {
            assert!(!ran.stdout.contains(word), "{name}: {ran:?}");
        }
        let recording = place.recording("x.plumb");
        assert_eq!(recording.arms.len(), *arms, "{name}");
        for block in &recording.blocks {
            assert_eq!(block.ledger.offered, block.ledger.delivered, "{name}");
        }
        for (arm, against, quantity, label, least, most) in *ratios {
            let ratio = figure_of_arm(&recording, arm, quantity, *label)
                / figure_of_arm(&recording, against, quantity, *label);
            assert!((*least..=*most).contains(&ratio), "{name}: {ratio}");
        }
        let page = std::fs::read_to_string(place.path("x.html")).unwrap();
        assert!(page.contains("Figure "), "{name}");
    }
}
