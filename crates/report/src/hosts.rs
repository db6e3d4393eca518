//! Two hosts and a wire: a table of arms, each figure the mean over its blocks.

mod compared;

use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::experiment::{Experiment, Figure, number_of};
use netplumb_model::hosts::{
    BUFFER, BUSY, CLOCKED, FRAMES, FRAMES_PER_INTERRUPT, FRAMES_PER_POLL, FROM_DISK, HELD,
    INSTRUCTIONS, INSTRUCTIONS_PER_BYTE, INTERRUPTS, LONGEST_WAIT, LOST, POLLS, RETRANSMITTED,
    SEGMENTS, Side, THROUGHPUT, TURN, TURNS, WIRE_BYTES, WIRE_USE, Wire, is_of_hosts,
};
use netplumb_model::quantity::{Declared, Quantity, Scalar};
use netplumb_model::recording::{Arm, Recording, env};
use netplumb_stats::welch::Mean;
use serde::Serialize;

pub use compared::{Compared, compare};

use crate::acting;
use crate::claims::{self, Judged};
use crate::conclusions;
use crate::figures;
use crate::footer::{self, Note};
use crate::html::{facts, title, warnings};
use crate::json::{Common, pretty};
use crate::number::{counted, printable};
use crate::page::{Page, PageChart, PageTable, SCHEMA};
#[cfg(test)]
use crate::table::reference::{Entry, entries};
use crate::table::{Column, Room, Table, Value};
use crate::text::{continued, prose};
use crate::trust::common::kernel;

/// Letters of an arm's name.
const NAME_LETTERS: usize = 60;
/// From here on there is room for what only explains.
const WIDE: usize = 100;
const WIDEST: usize = 140;

/// An arm.
struct Row<'r> {
    recording: &'r Recording,
    arm: usize,
}

impl Row<'_> {
    /// A figure with this label, by block.
    fn values(&self, quantity: &Declared, label: Option<&str>) -> Vec<f64> {
        let of_arm = |block: u32| {
            let block = self.recording.blocks.get(block as usize);
            block.is_some_and(|block| block.arm as usize == self.arm)
        };
        scalars_of(self.recording, quantity)
            .filter(|scalar| scalar.item.label.as_deref() == label)
            .filter(|scalar| scalar.block().is_some_and(of_arm))
            .map(|scalar| scalar.value)
            .collect()
    }

    /// The mean over its blocks of a figure with this label.
    fn mean(&self, quantity: &Declared, label: Option<&str>) -> Option<f64> {
        Mean::of(&self.values(quantity, label)).map(|mean| mean.value)
    }

    /// Half the width of the 95% interval of what it was measured for, as a share of its mean.
    fn within(&self) -> Option<f64> {
        let values = [&THROUGHPUT, &TURNS].map(|quantity| self.values(quantity, None));
        let mean = Mean::of(values.iter().find(|values| !values.is_empty())?)?;
        (mean.value > 0.0).then(|| Some((mean.high? - mean.value) / mean.value))?
    }
}

/// What was measured of two hosts, whose clock is that of a wire or this machine's.
fn scalars_of<'r>(
    recording: &'r Recording,
    quantity: &Declared,
) -> impl Iterator<Item = &'r Scalar> {
    let (is_its, name) = (|of: &Quantity| is_of_hosts(&of.instrument), quantity.name);
    let mut known = recording.quantities.iter();
    let id = known.position(|of| is_its(of) && of.name == name);
    let scalars = recording.scalars.iter();
    scalars.filter(move |scalar| Some(scalar.quantity as usize) == id)
}

fn number(value: Option<f64>) -> Value {
    value.map_or(Value::Missing, Value::Number)
}

fn share(value: Option<f64>) -> Value {
    value.map_or(Value::Missing, Value::Share)
}

fn ns(value: Option<f64>) -> Value {
    value.map_or(Value::Missing, Value::Ns)
}

/// A column for each host.
fn of_hosts<'r>(
    rank: u8,
    wide: usize,
    quantity: &'static Declared,
    (title, key, hint): (&'static str, &'static str, &'static str),
    cell: fn(Option<f64>) -> Value,
) -> impl Iterator<Item = Column<'r, Row<'r>>> {
    Side::ALL.iter().zip(rank..).map(move |(side, rank)| {
        let side = *side;
        let key = format!("{side}_{key}");
        Column::figure(format!("{side} {title}"), move |row: &Row<'r>| {
            cell(row.mean(quantity, Some(side.called())))
        })
        .hint(format!("of the {}: {hint}", side.called()))
        .unit(quantity.unit)
        .people(rank)
        .from(wide)
        .key(key.clone())
        .page(key)
    })
}

/// The columns of quantities that are to be shown.
///
/// Of an interface of this machine there is one CPU use.
fn columns<'r>(
    varies: bool,
    of_nic: bool,
    shown: &dyn Fn(&Declared, Option<&str>) -> bool,
) -> Vec<Column<'r, Row<'r>>> {
    let mut all = vec![
        Column::text("arm", |row: &Row<'r>| {
            row.recording.arms[row.arm].name.clone()
        })
        .hint("one combination of settings")
        .people(0)
        .key("arm")
        .page("arm"),
    ];
    if varies {
        all.push(
            Column::figure("±", |row: &Row<'r>| share(row.within()))
                .hint("half the width of the 95% interval of the figure before it, by its mean")
                .people(3)
                .key("within")
                .page("within"),
        );
    }
    let mut add = |quantity: &Declared, column: Column<'r, Row<'r>>| {
        if shown(quantity, None) {
            all.push(column);
        }
    };
    add(
        &THROUGHPUT,
        Column::figure("Mbit/s", |row: &Row<'r>| {
            number(row.mean(&THROUGHPUT, None).map(|bits| bits / 1e6))
        })
        .hint("bytes of payload, by the time from the sender's first to the receiver's last")
        .unit("Mbit/s")
        .people(1)
        .key("mbit_per_second")
        .page("mbit_per_second"),
    );
    add(
        &TURNS,
        Column::figure("turns/s", |row: &Row<'r>| number(row.mean(&TURNS, None)))
            .hint("requests that were answered: of a web server those of all connections, else each after the other")
            .unit("turns/s")
            .people(2)
            .key("turns_per_second")
            .page("turns_per_second"),
    );
    for (rank, wide, title, label) in [
        (3, 0, "turn", "mean"),
        (4, WIDE, "least", "least"),
        (5, WIDE, "median", "median"),
        (6, WIDE, "99%", "99%"),
        (7, WIDE, "most", "most"),
    ] {
        let key = format!("turn_{}_ns", if label == "99%" { "p99" } else { label });
        if !shown(&TURN, Some(label)) {
            continue;
        }
        add(
            &TURN,
            Column::figure(title, move |row: &Row<'r>| ns(row.mean(&TURN, Some(label))))
                .hint(format!("time from a request to its answer, {label}"))
                .unit("ns")
                .people(rank)
                .from(wide)
                .key(key.clone())
                .page(key),
        );
    }
    let busy = "the part of the time in which its CPU executed instructions";
    let of_sides = of_hosts(8, 0, &BUSY, ("busy", "busy", busy), share);
    for (side, column) in Side::ALL.iter().zip(of_sides) {
        if shown(&BUSY, Some(side.called())) {
            add(&BUSY, column);
        }
    }
    if of_nic {
        add(
            &BUSY,
            Column::figure("busy", |row: &Row<'r>| share(row.mean(&BUSY, None)))
                .hint("of an interface that was tuned: how busy all CPUs of this machine were, whatever it was for")
                .people(8)
                .key("busy")
                .page("busy"),
        );
    }
    add(
        &WIRE_USE,
        Column::figure("wire", |row: &Row<'r>| share(row.mean(&WIRE_USE, None)))
            .hint("the part of the time in which frames of the sender were on the wire")
            .people(10)
            .key("wire_use")
            .page("wire_use"),
    );
    let names = ("frames", "frames", "frames that it put on the wire");
    for column in of_hosts(11, WIDE, &FRAMES, names, number) {
        add(&FRAMES, column);
    }
    add(
        &FROM_DISK,
        Column::figure("disk", |row: &Row<'r>| share(row.mean(&FROM_DISK, None)))
            .hint("bytes that the web server's disk read, by bytes of payload")
            .people(10)
            .key("read_from_disk")
            .page("read_from_disk"),
    );
    let names = ("irqs", "interrupts", "interrupts of its NIC");
    for column in of_hosts(13, 0, &INTERRUPTS, names, number) {
        add(&INTERRUPTS, column);
    }
    for (rank, quantity, names) in [
        (
            28,
            &FRAMES_PER_INTERRUPT,
            (
                "frames/irq",
                "frames_per_interrupt",
                "frames that came to it, by interrupts of its NIC",
            ),
        ),
        (
            30,
            &FRAMES_PER_POLL,
            (
                "frames/poll",
                "frames_per_poll",
                "frames that came to it, by runs of the softirq that polls its NIC",
            ),
        ),
        (
            32,
            &INSTRUCTIONS_PER_BYTE,
            (
                "insns/byte",
                "instructions_per_byte",
                "instructions, of kernel and programs, by bytes of payload",
            ),
        ),
        (
            34,
            &POLLS,
            ("polls", "polls", "runs of the softirq that polls its NIC"),
        ),
    ] {
        for column in of_hosts(rank, WIDEST, quantity, names, number) {
            add(quantity, column);
        }
    }
    add(
        &RETRANSMITTED,
        Column::figure("resent", |row: &Row<'r>| {
            number(row.mean(&RETRANSMITTED, None))
        })
        .hint("segments that the sender sent again")
        .people(15)
        .from(WIDE)
        .key("retransmitted")
        .page("retransmitted"),
    );
    let names = ("lost", "lost", "of its frames, those that the wire lost");
    for column in of_hosts(16, WIDEST, &LOST, names, number) {
        add(&LOST, column);
    }
    let names = (
        "held",
        "held",
        "frames that came when its driver had no room, and that QEMU's NIC kept until it had",
    );
    for column in of_hosts(18, WIDEST, &HELD, names, number) {
        add(&HELD, column);
    }
    let names = (
        "wait",
        "longest_wait_ns",
        "the longest that a frame waited for the wire",
    );
    for column in of_hosts(20, WIDEST, &LONGEST_WAIT, names, ns) {
        add(&LONGEST_WAIT, column);
    }
    let names = (
        "buffer",
        "buffer_bytes",
        "its socket's buffer at the end, as the kernel counts it",
    );
    for column in of_hosts(22, WIDEST, &BUFFER, names, number) {
        add(&BUFFER, column);
    }
    let names = (
        "instructions",
        "instructions",
        "instructions, of kernel and programs",
    );
    for column in of_hosts(24, WIDEST, &INSTRUCTIONS, names, number) {
        add(&INSTRUCTIONS, column);
    }
    let names = (
        "wire bytes",
        "wire_bytes",
        "bytes of its frames, with preamble, FCS and gap",
    );
    for column in of_hosts(26, WIDEST, &WIRE_BYTES, names, number) {
        add(&WIRE_BYTES, column);
    }
    all
}

/// The arms that have blocks.
fn rows(recording: &Recording) -> impl Iterator<Item = Row<'_>> {
    let has_blocks = |arm: &usize| {
        let mut blocks = recording.blocks.iter();
        blocks.any(|b| b.arm as usize == *arm && is_of_hosts(&b.instrument))
    };
    let arms = (0..recording.arms.len()).filter(has_blocks);
    arms.map(|arm| Row { recording, arm })
}

/// For programs.
fn table(recording: &Recording) -> Table<'_, Row<'_>> {
    let columns = columns(varies(recording), nic_of(recording).is_some(), &|_, _| true);
    Table::new(columns, rows(recording))
}

/// For people: without what was not measured, or did not happen.
fn short_table(recording: &Recording) -> Table<'_, Row<'_>> {
    let of_nic = nic_of(recording).is_some();
    let happened = |quantity: &Declared, label: Option<&str>| {
        let is_its =
            |scalar: &Scalar| !of_nic || label.is_none() || scalar.item.label.as_deref() == label;
        scalars_of(recording, quantity).any(|scalar| scalar.value != 0.0 && is_its(scalar))
    };
    Table::new(
        columns(varies(recording), of_nic, &happened),
        rows(recording),
    )
}

/// The interface of this machine that was tuned, where it is no pair of hosts.
fn nic_of(recording: &Recording) -> Option<&str> {
    recording
        .environment
        .get(env::TUNED_NIC)
        .map(String::as_str)
}

/// Whether blocks are a sample: by this machine's clock.
fn varies(recording: &Recording) -> bool {
    recording.instruments() == [CLOCKED]
}

/// What it is of.
fn called(recording: &Recording) -> &'static str {
    match nic_of(recording) {
        Some(_) => "Interface",
        None => "Two hosts",
    }
}

/// What was sent over what, in a line.
fn heading(recording: &Recording) -> Vec<String> {
    let Some(first) = recording.arms.first() else {
        return Vec::new();
    };
    if let Some(nic) = nic_of(recording) {
        let blocks = counted(recording.blocks.len(), "block");
        return vec![format!("Interface {}, {blocks}", printable(nic, 20))];
    }
    let same = |of: &dyn Fn(&Arm) -> String| {
        let one = of(first);
        recording
            .arms
            .iter()
            .all(|arm| of(arm) == one)
            .then_some(one)
    };
    let blocks = recording.blocks.len();
    let mut words = vec!["Two hosts".to_string()];
    words.extend(same(&|arm| arm.link.to_string()));
    if varies(recording) {
        words.push("namespaces of this machine".into());
    }
    let of_wire = (!varies(recording)).then(|| {
        same(&|arm| {
            let level = |key| arm.level(key).unwrap_or_default();
            let mut wire = format!(
                "a wire of {}bit/s and {}",
                level("wire_rate").trim_end_matches("bit"),
                level("wire_delay")
            );
            let Wire {
                jitter_ns,
                loss_ppb,
                ..
            } = Wire::of(arm);
            if jitter_ns > 0 {
                wire.push_str(&format!(" + 0 to {}", level("wire_jitter")));
            }
            if loss_ppb > 0 {
                wire.push_str(&format!(", {} lost", level("wire_loss")));
            }
            printable(&wire, 80)
        })
    });
    words.extend(of_wire.flatten());
    let mut sent = recording.blocks.iter().map(|block| block.ledger.offered);
    let first = sent
        .next()
        .filter(|first| sent.all(|other| other == *first));
    words.extend(first.map(|bytes| format!("{} of payload per block", bytes_of(bytes))));
    words.push(counted(blocks, "block"));
    vec![words.join(", ")]
}

fn bytes_of(bytes: u64) -> String {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    match bytes {
        bytes if bytes >= MIB && bytes.is_multiple_of(MIB) => format!("{} MiB", bytes / MIB),
        bytes if bytes >= KIB && bytes.is_multiple_of(KIB) => format!("{} KiB", bytes / KIB),
        bytes => format!("{bytes} bytes"),
    }
}

fn judged(recording: &Recording, experiment: Option<&Experiment>) -> Vec<Judged> {
    experiment.map_or_else(Vec::new, |e| claims::judge_blocks(e, recording))
}

/// For a terminal.
pub fn terminal(recording: &Recording, experiment: Option<&Experiment>, columns: usize) -> String {
    let mut out = String::new();
    for line in heading(recording) {
        out.push_str(&continued(&line, 3, columns));
        out.push('\n');
    }
    out.push('\n');
    let room = Room::of(columns, NAME_LETTERS);
    out.push_str(&short_table(recording).terminal(room));
    out.push('\n');
    if let Some(experiment) = experiment {
        out.push_str(&figures::sweeps::render(experiment, recording, columns));
        let all = judged(recording, Some(experiment));
        out.push_str(&claims::render(&all, columns));
        if experiment.conclusion.is_some() {
            out.push_str(&conclusions::render(experiment, &all, None, columns));
        }
    }
    out.push_str(&footer::terminal(&trust(recording), columns));
    out
}

/// As CSV (RFC 4180), a line for each arm.
pub fn csv(recording: &Recording) -> String {
    table(recording).csv()
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    common: Common<'a>,
    arms: &'a [Arm],
    hosts: Vec<Value>,
}

/// As JSON. docs/reference/json.md describes it for users.
pub fn json(recording: &Recording, experiment: Option<&Experiment>) -> String {
    let judged = judged(recording, experiment);
    pretty(&Document {
        common: Common::new(recording, experiment, judged, trust(recording)),
        arms: &recording.arms,
        hosts: table(recording).json(),
    })
}

/// As GitHub-flavoured Markdown.
pub fn markdown(recording: &Recording, experiment: Option<&Experiment>) -> String {
    let mut out = format!("# {}\n\n", called(recording));
    for line in heading(recording) {
        out.push_str(&format!("{}\n\n", prose(&line, 400)));
    }
    short_table(recording).markdown(&mut out);
    conclusions::markdown(experiment, &judged(recording, experiment), &mut out);
    out.push_str("## How it was measured\n\n");
    out.push_str(&footer::markdown(&trust(recording)));
    out
}

/// The page.
pub fn page(recording: &Recording, experiment: Option<&Experiment>) -> Page {
    let table: PageTable = short_table(recording).page(called(recording));
    Page {
        schema: SCHEMA,
        title: title(recording, experiment),
        question: experiment.map_or_else(String::new, |e| printable(&e.question, 600)),
        headline: heading(recording),
        warnings: warnings(recording),
        facts: facts(recording),
        trust: trust(recording),
        claims: claims::page(judged(recording, experiment)),
        figures: experiment.map_or_else(Vec::new, |experiment| charts(recording, experiment)),
        events: vec![table],
        events_called: "Arms".into(),
        ..Page::default()
    }
}

/// The figures of the file; if it has none, what was measured by what was varied.
fn charts(recording: &Recording, experiment: &Experiment) -> Vec<PageChart> {
    let own = experiment.figures.iter();
    let mut all: Vec<PageChart> = own
        .map(|figure| figures::charts::figure(experiment, figure, recording))
        .collect();
    if all.is_empty() {
        let swept = swept(recording, experiment);
        all.extend(swept.iter().map(|figure| PageChart {
            title: format!("{} by {}", figure.y, figure.x),
            ..figures::charts::figure(experiment, figure, recording)
        }));
    }
    all
}

/// Figures of what was measured by what was varied: along are numbers, if there are some.
fn swept(recording: &Recording, experiment: &Experiment) -> Vec<Figure> {
    let varied = experiment.vary.several();
    let levels = |key: &String| -> Vec<String> {
        let arms = recording.arms.iter();
        arms.filter_map(|arm| arm.told(key)).collect()
    };
    let is_number = |key: &&String| {
        levels(key)
            .iter()
            .all(|level| number_of(key, level).is_some())
    };
    let Some(x) = varied.iter().find(is_number).or_else(|| varied.first()) else {
        return Vec::new();
    };
    let lines = varied.iter().find(|key| *key != x);
    let first = match scalars_of(recording, &THROUGHPUT).next() {
        Some(_) => THROUGHPUT.name.to_string(),
        None => format!("{} of mean", TURN.name),
    };
    let busy = |side: &Side| format!("{} of {}", BUSY.name, side.called());
    let quantities = std::iter::once(first).chain(Side::ALL.iter().map(busy));
    quantities
        .map(|y| Figure {
            x: x.clone(),
            y,
            lines: lines.cloned(),
            ..Figure::default()
        })
        .collect()
}

/// What the figures are, and how far to trust them.
fn trust(recording: &Recording) -> Vec<Note> {
    let mut notes = match (nic_of(recording), varies(recording)) {
        (Some(nic), _) => of_interface(recording, nic),
        (None, true) => by_this_clock(recording),
        (None, false) => in_virtual_time(recording),
    };
    notes.push(kernel(recording));
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
    notes.extend(of_settings(recording));
    notes
}

/// Which settings could not act or were not taken as they were given, and which arms could not be measured.
pub(crate) fn of_settings(recording: &Recording) -> Vec<Note> {
    let mut notes = acting::footer(recording);
    for (number, of_arm) in &recording.notes {
        let arm = recording.arms.get(*number as usize);
        let name = arm.map_or_else(String::new, |arm| printable(&arm.name, NAME_LETTERS));
        for why in of_arm.failed.values() {
            let text = format!("arm {name}: {}", printable(why, 200));
            notes.push(Note::warning("unavailable", text));
        }
        for (key, why) in &of_arm.facts {
            let of = match key {
                key if key.starts_with("no_effect.") => "no effect",
                key if key.starts_with("rounded.") => "rounded",
                _ => continue,
            };
            let text = format!("arm {name}: {}", printable(why, 120));
            notes.push(Note::new(of, text));
        }
    }
    notes
}

const IN_TURNS: &str = "this machine's; blocks of all arms take turns, each figure is the mean over them, and ± is half of its 95% \
     interval by its mean";

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
    let others =
        (recording.arms.iter()).filter(|arm| !matches!(arm.level("client"), None | Some("plumb")));
    if others.count() > 0 {
        notes.push(Note::new(
            "clients",
            "arms of iperf3 and wrk have the figures of these programs, without CPU use; wrk asks for 2 s",
        ));
    }
    notes
}

/// Which CPU use is reported for namespaces of this machine, and what it is measured by.
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
    Note::new(
        "CPU use",
        format!("{of}, by {by}; whatever else ran there counts too"),
    )
}

/// Of guests.
fn in_virtual_time(recording: &Recording) -> Vec<Note> {
    let shifts = |key: &str| {
        let levels = recording.arms.iter().map(|arm| arm.read(key).unwrap_or(0));
        levels.collect::<Vec<u8>>()
    };
    let all_one = [shifts("tx_shift"), shifts("rx_shift")]
        .concat()
        .iter()
        .all(|shift| *shift == 0);
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
                "the time of every frame is checked against that of a wire{}; the NICs are QEMU's, which take a whole \
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
        let us = Wire::of(arm).occupied_ns(mtu_bytes) / 1e3;
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
    // Other requests have no throughput.
    let of_web: BTreeSet<u32> = scalars_of(recording, &THROUGHPUT)
        .filter_map(Scalar::block)
        .collect();
    let of_block = |scalar: &Scalar| {
        let number = scalar.block().filter(|block| of_web.contains(block))?;
        let seconds = recording.blocks.get(number as usize)?.duration_ns as f64 / 1e9;
        Some((scalar.value * seconds).round())
    };
    scalars_of(recording, &TURNS).filter_map(of_block).sum()
}

/// The bytes of all blocks, and what they became on the way.
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
    if sum(&SEGMENTS, sent) > 0.0 {
        beside += &format!(
            "; segments with data: {} sent, {} received",
            sum(&SEGMENTS, sent),
            sum(&SEGMENTS, came),
        );
    }
    if sum(&FRAMES, sent) > 0.0 {
        beside += &format!(
            "; frames: {} and {} back, of which the wire lost {} and {}",
            sum(&FRAMES, sent),
            sum(&FRAMES, came),
            sum(&LOST, sent),
            sum(&LOST, came),
        );
    }
    match offered == delivered {
        true => {
            let text = format!("{offered} bytes sent = {delivered} received{beside}");
            Note::new("ledger", text)
        }
        false => Note::warning(
            "ledger",
            format!("{offered} bytes sent, {delivered} received{beside}"),
        ),
    }
}

/// What its columns are, for the reference.
#[cfg(test)]
pub(crate) fn declared() -> Vec<Entry> {
    entries(&columns(true, true, &|_, _| true))
}

#[cfg(test)]
pub(crate) mod tests;
