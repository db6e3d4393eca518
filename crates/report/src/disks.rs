//! What a guest's disk did while a command ran: a table of arms, each figure the mean over its blocks.

use netplumb_model::quantity::Declared;
use netplumb_model::reads::{
    DISK_READ_BYTES, DISK_READS, DISK_WRITES, GUEST_TIME, MAJOR_FAULTS, MINOR_FAULTS,
};
use netplumb_model::recording::Recording;

use crate::analysis::ClassView;
use crate::number::printable;
use crate::section::Section;
#[cfg(test)]
use crate::table::reference::{Entry, entries};
use crate::table::{Column, Table, Value};
use crate::times::ns;

/// Letters of an arm's name.
const NAME_LETTERS: usize = 60;
/// From here on there is room for faults that did not wait.
const WIDE: usize = 100;

/// An arm and what its disk did.
struct DiskRow<'r> {
    recording: &'r Recording,
    arm: usize,
}

impl DiskRow<'_> {
    /// The mean over blocks.
    fn mean(&self, quantity: &Declared) -> Option<f64> {
        mean(self.recording, self.arm, quantity)
    }

    fn ratio(&self, one: &Declared, other: &Declared) -> Value {
        match (self.mean(one), self.mean(other)) {
            (Some(one), Some(other)) if other > 0.0 => Value::Number(one / 1024.0 / other),
            _ => Value::Missing,
        }
    }
}

/// The mean of a figure of an arm's blocks; none if they have none.
pub(crate) fn mean(recording: &Recording, arm: usize, quantity: &Declared) -> Option<f64> {
    let of_arm = |block: u32| {
        let block = recording.blocks.get(block as usize);
        block.is_some_and(|block| block.arm as usize == arm)
    };
    let values: Vec<f64> = recording
        .scalars_of(quantity)
        .filter(|scalar| scalar.block().is_some_and(of_arm))
        .map(|scalar| scalar.value)
        .collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn figure(value: Option<f64>) -> Value {
    value.map_or(Value::Missing, Value::Number)
}

fn columns<'r>() -> Vec<Column<'r, DiskRow<'r>>> {
    let of = |quantity: &'static Declared| move |row: &DiskRow<'r>| figure(row.mean(quantity));
    vec![
        Column::text("arm", |row: &DiskRow<'r>| row.recording.arms[row.arm].name.clone())
            .hint("one combination of settings")
            .people(0)
            .page("arm"),
        Column::figure("reads", of(&DISK_READS))
            .hint("requests that the disk completed for reads")
            .people(1)
            .page("reads"),
        Column::figure("KiB read", |row: &DiskRow<'r>| {
            figure(row.mean(&DISK_READ_BYTES).map(|bytes| bytes / 1024.0))
        })
        .hint("what they read")
        .unit("KiB")
        .people(2)
        .page("read_kib"),
        Column::figure("KiB/read", |row: &DiskRow<'r>| row.ratio(&DISK_READ_BYTES, &DISK_READS))
            .hint("the mean size of a read")
            .unit("KiB")
            .people(3)
            .page("kib_per_read"),
        Column::figure("MiB/s", |row: &DiskRow<'r>| {
            match (row.mean(&DISK_READ_BYTES), row.mean(&GUEST_TIME)) {
                (Some(bytes), Some(ns)) if ns > 0.0 => {
                    Value::Number(bytes / f64::from(1 << 20) / (ns / 1e9))
                }
                _ => Value::Missing,
            }
        })
        .hint("KiB read by guest time")
        .unit("MiB/s")
        .people(9)
        .from(WIDE)
        .page("mib_per_second"),
        Column::figure("writes", of(&DISK_WRITES))
            .hint("requests that the disk completed for writes")
            .people(4)
            .from(WIDE)
            .page("writes"),
        Column::figure("major faults", of(&MAJOR_FAULTS))
            .hint("page faults that had to wait for the disk")
            .people(5)
            .page("major_faults"),
        Column::figure("KiB/fault", |row: &DiskRow<'r>| row.ratio(&DISK_READ_BYTES, &MAJOR_FAULTS))
            .hint("bytes read for each of them")
            .unit("KiB")
            .people(6)
            .page("kib_per_fault"),
        Column::figure("minor faults", of(&MINOR_FAULTS))
            .hint("page faults that found their page in memory")
            .people(7)
            .from(WIDE)
            .page("minor_faults"),
        Column::figure("guest time", |row: &DiskRow<'r>| {
            row.mean(&GUEST_TIME)
                .map_or(Value::Missing, |time| Value::Formatted(with_unit(time), Some(time)))
        })
        .hint(
            "by the guest's clock, which counts instructions and skips to the next event when idle",
        )
        .unit("ns")
        .people(8)
        .page("guest_time"),
    ]
}

/// Nanoseconds with their unit.
fn with_unit(value: f64) -> String {
    match ns(value) {
        long if long.ends_with('s') => long,
        short => format!("{short} ns"),
    }
}

/// The arms of some classes; none if no guest had a disk.
pub fn section<'r>(recording: &'r Recording, classes: &[ClassView<'r>]) -> Option<Section<'r>> {
    let mut arms: Vec<usize> = classes.iter().map(|class| class.arm).collect();
    arms.dedup();
    arms.retain(|arm| mean(recording, *arm, &GUEST_TIME).is_some());
    if arms.is_empty() {
        return None;
    }
    let rows = move |_| {
        let rows = arms.iter().map(|arm| DiskRow { recording, arm: *arm });
        Table::new(columns(), rows)
    };
    let section = Section::rows(NAME_LETTERS, rows).heading("Disk and page faults, per run");
    Some(section.place("disk", "Disk"))
}

/// Its columns, for the reference.
#[cfg(test)]
pub(crate) fn declared() -> Vec<Entry> {
    entries(&columns())
}

/// A figure with its unit, as claims report it.
pub(crate) fn value_text(value: f64, unit: &str) -> String {
    match unit {
        "ns" => with_unit(value),
        unit => {
            let value = crate::times::rounded(value);
            format!("{value} {}", printable(unit, 20))
        }
    }
}

#[cfg(test)]
mod tests;
