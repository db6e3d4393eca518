//! The table of arms: each figure over an arm's blocks.

use netplumb_model::hosts::{
    BUFFER, BUSY, FRAMES, FRAMES_PER_INTERRUPT, FRAMES_PER_POLL, FROM_DISK, HELD, INSTRUCTIONS,
    INSTRUCTIONS_PER_BYTE, INTERRUPTS, KERNEL_IDLE, LONGEST_WAIT, LOST, MISSED, POLLS,
    RETRANSMITTED, Side, THROUGHPUT, TURN, TURNS, WIRE_BYTES, WIRE_USE, is_of_hosts,
};
use netplumb_model::quantity::{Declared, Scalar};
use netplumb_model::recording::Recording;
use netplumb_stats::welch::Mean;

use super::facts::{nic_of, scalars_of, varies};
#[cfg(test)]
use crate::table::reference::{Entry, entries};
use crate::table::{Column, Table, Value};
use crate::times;

/// From here on there is room for explanatory columns.
const WIDE: usize = 100;
const WIDEST: usize = 140;

pub(super) struct HostsRow<'r> {
    recording: &'r Recording,
    arm: usize,
}

/// How a figure is combined over several blocks of an arm.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    /// Their mean.
    Mean,
    /// By their total time: the sum divided by their duration. By a clock that varies their mean, which
    /// has an interval.
    Time,
    /// The least of all.
    Least,
    /// The most of all.
    Most,
}

impl Over {
    /// For a quantity with this label.
    fn new(quantity: &Declared, label: Option<&str>) -> Over {
        let by_time = [&THROUGHPUT, &TURNS, &BUSY, &KERNEL_IDLE, &WIRE_USE];
        match label {
            Some("least") => Over::Least,
            Some("most") => Over::Most,
            _ if quantity.name == LONGEST_WAIT.name => Over::Most,
            _ if by_time.iter().any(|known| known.name == quantity.name) => Over::Time,
            _ => Over::Mean,
        }
    }
}

impl HostsRow<'_> {
    /// A figure with this label by block, and the blocks' durations.
    fn blocks(&self, quantity: &Declared, label: Option<&str>) -> (Vec<f64>, Vec<f64>) {
        scalars_of(self.recording, quantity)
            .filter(|scalar| scalar.item.label.as_deref() == label)
            .filter_map(|scalar| {
                let block = self.recording.blocks.get(scalar.block()? as usize)?;
                let is_its = block.arm as usize == self.arm;
                is_its.then_some((scalar.value, block.duration_ns as f64))
            })
            .unzip()
    }

    /// A figure with this label, over its blocks.
    fn figure(&self, quantity: &Declared, label: Option<&str>) -> Option<f64> {
        let (values, times_ns) = self.blocks(quantity, label);
        let all_ns: f64 = times_ns.iter().sum();
        match Over::new(quantity, label) {
            Over::Least => values.into_iter().min_by(f64::total_cmp),
            Over::Most => values.into_iter().max_by(f64::total_cmp),
            Over::Time if all_ns > 0.0 && !varies(self.recording) => {
                let each = values.iter().zip(&times_ns).map(|(value, ns)| value * ns);
                Some(each.sum::<f64>() / all_ns)
            }
            Over::Time | Over::Mean => Mean::from_values(&values).map(|mean| mean.value),
        }
    }

    /// Half the width of the 95% interval of the arm's goal, as a share of its mean.
    fn within(&self) -> Option<f64> {
        let values = [&THROUGHPUT, &TURNS].map(|quantity| self.blocks(quantity, None).0);
        let mean = Mean::from_values(values.iter().find(|values| !values.is_empty())?)?;
        (mean.value > 0.0).then(|| Some((mean.high? - mean.value) / mean.value))?
    }
}

fn number(value: Option<f64>) -> Value {
    value.map_or(Value::Missing, Value::Number)
}

fn share(value: Option<f64>) -> Value {
    value.map_or(Value::Missing, Value::Share)
}

/// A time with its unit, however short.
fn ns(value: Option<f64>) -> Value {
    value.map_or(Value::Missing, |value| {
        let text = match times::ns(value) {
            long if long.ends_with('s') => long,
            short => format!("{short}ns"),
        };
        Value::Formatted(text, Some(value))
    })
}

/// A column for each host.
fn of_hosts<'r>(
    rank: u8,
    wide: usize,
    quantity: &'static Declared,
    (title, key, hint): (&'static str, &'static str, &'static str),
    cell: fn(Option<f64>) -> Value,
) -> impl Iterator<Item = Column<'r, HostsRow<'r>>> {
    Side::ALL.iter().zip(rank..).map(move |(side, rank)| {
        let side = *side;
        let key = format!("{side}_{key}");
        Column::figure(format!("{side} {title}"), move |row: &HostsRow<'r>| {
            cell(row.figure(quantity, Some(side.called())))
        })
        .hint(format!("of the {}: {hint}", side.called()))
        .unit(quantity.unit)
        .people(rank)
        .from(wide)
        .key(key.clone())
        .page(key)
    })
}

/// The columns of the selected quantities.
///
/// An interface of this machine has a single CPU use.
fn columns<'r>(
    varies: bool,
    of_nic: bool,
    shown: &dyn Fn(&Declared, Option<&str>) -> bool,
) -> Vec<Column<'r, HostsRow<'r>>> {
    let mut all = vec![
        Column::text("arm", |row: &HostsRow<'r>| row.recording.arms[row.arm].name.clone())
            .hint("one combination of settings")
            .people(0)
            .key("arm")
            .page("arm"),
    ];
    if varies {
        all.push(
            Column::figure("±", |row: &HostsRow<'r>| share(row.within()))
                .hint("half the width of the 95% interval of the figure before it, by its mean")
                .people(3)
                .key("within")
                .page("within"),
        );
    }
    let mut add = |quantity: &Declared, column: Column<'r, HostsRow<'r>>| {
        if shown(quantity, None) {
            all.push(column);
        }
    };
    add(
        &THROUGHPUT,
        Column::figure("Mbit/s", |row: &HostsRow<'r>| {
            number(row.figure(&THROUGHPUT, None).map(|bits| bits / 1e6))
        })
        .hint("bytes of payload, by the time from the sender's first to the receiver's last")
        .unit("Mbit/s")
        .people(1)
        .key("mbit_per_second")
        .page("mbit_per_second"),
    );
    add(
        &TURNS,
        Column::figure("turns/s", |row: &HostsRow<'r>| number(row.figure(&TURNS, None)))
            .hint("answered requests: of all connections of a web server, otherwise one after the other")
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
            Column::figure(title, move |row: &HostsRow<'r>| ns(row.figure(&TURN, Some(label))))
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
            Column::figure("busy", |row: &HostsRow<'r>| share(row.figure(&BUSY, None)))
                .hint("of an interface that was tuned: how busy all CPUs of this machine were, whatever it was for")
                .people(8)
                .key("busy")
                .page("busy"),
        );
    }
    let idle = "the part of the time in which its CPU was idle by the kernel's own account: with its busy part 1 or a bit more";
    for column in of_hosts(36, WIDEST, &KERNEL_IDLE, ("idle", "kernel_idle", idle), share) {
        add(&KERNEL_IDLE, column);
    }
    add(
        &WIRE_USE,
        Column::figure("wire", |row: &HostsRow<'r>| share(row.figure(&WIRE_USE, None)))
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
        Column::figure("disk", |row: &HostsRow<'r>| share(row.figure(&FROM_DISK, None)))
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
        (34, &POLLS, ("polls", "polls", "runs of the softirq that polls its NIC")),
    ] {
        for column in of_hosts(rank, WIDEST, quantity, names, number) {
            add(quantity, column);
        }
    }
    add(
        &RETRANSMITTED,
        Column::figure("resent", |row: &HostsRow<'r>| number(row.figure(&RETRANSMITTED, None)))
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
        "dropped",
        "dropped_by_nic",
        "frames that came when its NIC had no room, and that the NIC dropped",
    );
    for column in of_hosts(38, 0, &MISSED, names, number) {
        add(&MISSED, column);
    }
    let names = ("wait", "longest_wait_ns", "the longest that a frame waited for the wire");
    for column in of_hosts(20, WIDEST, &LONGEST_WAIT, names, ns) {
        add(&LONGEST_WAIT, column);
    }
    let names =
        ("buffer", "buffer_bytes", "its socket's buffer at the end, as the kernel counts it");
    for column in of_hosts(22, WIDEST, &BUFFER, names, number) {
        add(&BUFFER, column);
    }
    let names = ("instructions", "instructions", "instructions, of kernel and programs");
    for column in of_hosts(24, WIDEST, &INSTRUCTIONS, names, number) {
        add(&INSTRUCTIONS, column);
    }
    let names = ("wire bytes", "wire_bytes", "bytes of its frames, with preamble, FCS and gap");
    for column in of_hosts(26, WIDEST, &WIRE_BYTES, names, number) {
        add(&WIRE_BYTES, column);
    }
    all
}

/// The arms that have blocks.
fn rows(recording: &Recording) -> impl Iterator<Item = HostsRow<'_>> {
    let has_blocks = |arm: &usize| {
        let mut blocks = recording.blocks.iter();
        blocks.any(|b| b.arm as usize == *arm && is_of_hosts(&b.instrument))
    };
    let arms = (0..recording.arms.len()).filter(has_blocks);
    arms.map(|arm| HostsRow { recording, arm })
}

/// For programs.
pub(super) fn table(recording: &Recording) -> Table<'_, HostsRow<'_>> {
    let columns = columns(varies(recording), nic_of(recording).is_some(), &|_, _| true);
    Table::new(columns, rows(recording))
}

/// For people: without figures that were not measured, or are 0.
pub(super) fn short_table(recording: &Recording) -> Table<'_, HostsRow<'_>> {
    let of_nic = nic_of(recording).is_some();
    let happened = |quantity: &Declared, label: Option<&str>| {
        let is_its =
            |scalar: &Scalar| !of_nic || label.is_none() || scalar.item.label.as_deref() == label;
        scalars_of(recording, quantity).any(|scalar| scalar.value != 0.0 && is_its(scalar))
    };
    Table::new(columns(varies(recording), of_nic, &happened), rows(recording))
}

/// Its columns, for the reference.
#[cfg(test)]
pub(crate) fn declared() -> Vec<Entry> {
    entries(&columns(true, true, &|_, _| true))
}
