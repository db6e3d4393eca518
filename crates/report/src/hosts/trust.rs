//! The meaning of the figures, and how far to trust them.

use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::class::Proto;
use netplumb_model::hosts::{
    Client, FRAMES, LOST, MISSED, SEGMENTS, Side, THROUGHPUT, TURNS, Wire, is_of_hosts,
};
use netplumb_model::quantity::{Declared, Scalar};
use netplumb_model::recording::{Recording, env};

use super::facts::{nic_of, scalars_of, varies};
use crate::acting;
use crate::footer::Note;
use crate::number::{plural, printable};
use crate::trust::common::{architectures, kernel};

/// The notes of the footer.
pub(super) fn trust(recording: &Recording) -> Vec<Note> {
    let mut notes = match (nic_of(recording), varies(recording)) {
        (Some(nic), _) => of_interface(recording, nic),
        (None, true) => by_this_clock(recording),
        (None, false) => in_virtual_time(recording),
    };
    notes.extend(of_several(recording));
    notes.push(kernel(recording));
    notes.extend(architectures(recording));
    if nic_of(recording).is_none() {
        notes.push(ledger(recording));
    }
    let hashes: Vec<&str> = (recording.notes.values())
        .filter_map(|notes| notes.facts.get("wire.frames"))
        .map(|hash| &hash[..hash.len().min(12)])
        .collect();
    if let [hash] = hashes[..] {
        let text = format!(
            "times of all frames: {hash} (a hash; the same in every run of this plan from the same saved states)"
        );
        notes.push(Note::new("frames", printable(&text, 120)));
    }
    notes.extend(acting::footer(recording));
    notes
}

const IN_TURNS: &str = "this machine's; blocks of all arms take turns, each figure is the mean over them (least and most are of all), \
     and ± is half of its 95% interval by its mean";

/// How figures in virtual time are combined over several blocks of an arm.
fn of_several(recording: &Recording) -> Option<Note> {
    let mut arms = BTreeSet::new();
    let blocks = recording.blocks.iter();
    let mut blocks = blocks.filter(|block| is_of_hosts(&block.instrument));
    let text = "of an arm's blocks Mbit/s and turns/s are all bytes and turns by all their time, and busy, idle and wire \
                parts of it; least, most and wait are of all blocks, other figures the mean. Claims, charts and diff go by block";
    let is_several = !varies(recording) && blocks.any(|block| !arms.insert(block.arm));
    is_several.then(|| Note::new("figures", text))
}

/// Of an interface of this machine, while a command ran.
fn of_interface(recording: &Recording, nic: &str) -> Vec<Note> {
    let fact = |key: &str| recording.environment.get(key).map(String::as_str);
    let turn = match fact(env::TUNED_PEER) {
        Some(peer) => format!("the median of echoes (ICMP) of {}", printable(peer, 60)),
        None => "how long it ran".into(),
    };
    vec![
        Note::new("clock", IN_TURNS),
        Note::new(
            "figures",
            format!(
                "bytes that {} counted in both directions while `{}` ran, whoever moved them; a turn is {turn}",
                printable(nic, 20),
                printable(fact(env::TUNED_COMMAND).unwrap_or_default(), 80)
            ),
        ),
        cpu_use(recording),
    ]
}

/// Of namespaces of this machine.
fn by_this_clock(recording: &Recording) -> Vec<Note> {
    let mut notes = vec![
        Note::new("clock", IN_TURNS),
        cpu_use(recording),
        Note::new(
            "veth",
            "a frame is handed over, not sent: the receiver's softirq runs on the sender's CPU unless RPS moves it, no \
             checksum is computed where checksum offload is on, and with TSO no frame is ever cut",
        ),
    ];
    let is_used = |client: Client| {
        let mut arms = recording.arms.iter();
        arms.any(|arm| arm.level("client") == Some(client.as_str()))
    };
    if is_used(Client::Iperf3) || is_used(Client::Wrk) {
        let text = "arms of iperf3 and wrk have the figures of these programs, without CPU use; wrk asks for 2 s";
        let of_wrk = "; wrk adds the times of requests that it would have sent meanwhile (coordinated omission), so \
                      its mean and percentiles may be longer than its connections allow: compare turns/s";
        let more = if is_used(Client::Wrk) { of_wrk } else { "" };
        notes.push(Note::new("clients", format!("{text}{more}")));
    }
    notes
}

/// Which CPU use is reported for namespaces of this machine, and how it is measured.
pub(crate) fn cpu_use(recording: &Recording) -> Note {
    let fact = |key: &str| recording.environment.get(key).map(String::as_str);
    let of = match (fact(env::HOSTS_CPUS), nic_of(recording)) {
        (None, Some(_)) => "of all CPUs of this machine".to_string(),
        (cpus, _) => {
            let cpus = cpus.unwrap_or_default();
            let (tx, rx) = cpus.split_once(' ').unwrap_or((cpus, cpus));
            let (tx, rx) = (printable(tx, 10), printable(rx, 10));
            format!("of CPU {tx} for the sender and {rx} for the receiver")
        }
    };
    let by = match fact(env::HOSTS_CPU_USE) {
        Some("tracepoints") => "the time between tracepoints of the scheduler and interrupts",
        _ => "1 - idle / wall of /proc/stat, whose ticks are coarse beside a short block",
    };
    Note::new("CPU use", format!("{of}, by {by}; whatever else ran there counts too"))
}

/// Of guests.
fn in_virtual_time(recording: &Recording) -> Vec<Note> {
    let shifts = |key: &str| {
        let levels = recording.arms.iter().map(|arm| arm.read(key).unwrap_or(0));
        levels.collect::<Vec<u8>>()
    };
    let all_one = [shifts("tx_shift"), shifts("rx_shift")].concat().iter().all(|shift| *shift == 0);
    let clock = match all_one {
        true => "virtual time: an instruction takes 1 ns",
        false => "virtual time: an instruction takes 2^tx_shift or 2^rx_shift ns",
    };
    vec![
        Note::new(
            "clock",
            format!(
                "{clock}, and nothing else takes any: no caches, no bus, no DMA. Compare arms with each other, \
                 not with hardware"
            ),
        ),
        Note::new(
            "wire",
            format!(
                "the time of every frame is checked against the time on a wire{}; the NICs are QEMU's, which take a whole \
                 batch at once",
                full_frames(recording)
            ),
        ),
    ]
}

/// How long full frames take on the wires of all arms, if there are few such times.
fn full_frames(recording: &Recording) -> String {
    const MOST: usize = 3;
    const MTU_BYTES: u64 = 1_500;
    let mut times: Vec<String> = Vec::new();
    for arm in &recording.arms {
        let mtu_bytes = arm.read("mtu_bytes").unwrap_or(MTU_BYTES);
        let us = Wire::from_arm(arm).occupied_ns(mtu_bytes) / 1e3;
        let time = format!("{us:.3} us (MTU {mtu_bytes})");
        if !times.contains(&time) {
            times.push(time);
        }
    }
    match times.len() {
        1..=MOST => format!(", where a full frame takes {}", times.join(", ")),
        _ => String::new(),
    }
}

/// Requests of web servers that were answered, in all blocks.
fn answered(recording: &Recording) -> f64 {
    // Only web servers' requests have a throughput.
    let of_web: BTreeSet<u32> =
        scalars_of(recording, &THROUGHPUT).filter_map(Scalar::block).collect();
    let of_block = |scalar: &Scalar| {
        let number = scalar.block().filter(|block| of_web.contains(block))?;
        let seconds = recording.blocks.get(number as usize)?.duration_ns as f64 / 1e9;
        Some((scalar.value * seconds).round())
    };
    scalars_of(recording, &TURNS).filter_map(of_block).sum()
}

/// The bytes of all blocks, and their frames on the way.
fn ledger(recording: &Recording) -> Note {
    let offered: u64 = recording.blocks.iter().map(|b| b.ledger.offered).sum();
    let delivered: u64 = recording.blocks.iter().map(|b| b.ledger.delivered).sum();
    let sum = |quantity: &Declared, side: Side| -> f64 {
        let scalars = scalars_of(recording, quantity);
        let of_side = scalars.filter(|s| s.item.label.as_deref() == Some(side.called()));
        // The sum of none is -0.0.
        of_side.fold(0.0, |sum, scalar| sum + scalar.value)
    };
    let (sent, came) = (Side::Tx, Side::Rx);
    let mut beside = String::new();
    let mut causes: BTreeMap<&str, u64> = BTreeMap::new();
    for (why, bytes) in recording.blocks.iter().flat_map(|b| &b.ledger.dropped) {
        *causes.entry(why).or_default() += bytes;
    }
    for (why, bytes) in causes {
        beside.push_str(&format!("; {bytes} {}", printable(why, 60)));
    }
    let answered = answered(recording);
    if answered > 0.0 {
        // An error is one of the causes before.
        let errors = if beside.is_empty() { ", no errors" } else { "" };
        beside.push_str(&format!("; {answered} requests answered{errors}"));
    }
    // Echoes are no segments: there are only those by which the hosts agree.
    let has_segments = recording.arms.iter().any(|arm| arm.proto != Proto::Raw);
    let segments = Some(sum(&SEGMENTS, sent)).filter(|sent| has_segments && *sent > 0.0);
    if let Some(segments) = segments {
        beside +=
            &format!("; segments with data: {} sent, {} received", segments, sum(&SEGMENTS, came),);
    }
    if sum(&FRAMES, sent) > 0.0 {
        let frames = sum(&FRAMES, sent);
        let empty = match segments.map(|segments| frames - segments) {
            Some(more) if more > 0.0 => format!(" ({more} more than segments with data)"),
            _ => String::new(),
        };
        beside += &format!(
            "; frames: {frames}{empty} and {} back, of which the wire lost {} and {}",
            sum(&FRAMES, came),
            sum(&LOST, sent),
            sum(&LOST, came),
        );
        let dropped = [came, sent].map(|side| sum(&MISSED, side));
        if dropped.iter().any(|frames| *frames > 0.0) {
            beside += &format!(
                ", the receiver's NIC dropped {} and the sender's {} for lack of room: a longer ring (--rings rx=4096) has more",
                dropped[0], dropped[1]
            );
        }
    }
    let sent_bytes = format!("{offered} {}", plural(offered as usize, "byte"));
    match offered == delivered {
        true => {
            let text = format!("{sent_bytes} sent = {delivered} received{beside}");
            Note::new("ledger", text)
        }
        false => {
            Note::warning("ledger", format!("{sent_bytes} sent, {delivered} received{beside}"))
        }
    }
}
