//! Two hosts and a wire: a table of arms, each figure over its blocks. The same for a tuned interface of
//! this machine.

mod arms;
mod compared;
mod facts;
mod trust;

use std::collections::BTreeSet;

use netplumb_model::experiment::{Experiment, Figure, Knob, number_of};
use netplumb_model::hosts::{BUSY, Side, THROUGHPUT, TURN};
use netplumb_model::recording::{Arm, Recording};

#[cfg(test)]
pub(crate) use arms::declared;
use arms::{short_table, table};
pub use compared::{Compared, compare};
use facts::{nic_of, scalars_of, varies};
pub(crate) use trust::cpu_use;
use trust::trust;

use crate::document::Document;
use crate::figures::{self, sweeps::Plotted};
use crate::number::{counted, plural, printable};
use crate::page::PageChart;
use crate::section::{Reader, Section};
use crate::trust::devices::wire_of;

/// Letters of an arm's name.
const NAME_LETTERS: usize = 60;

/// The subject: two hosts, or an interface.
fn called(recording: &Recording) -> &'static str {
    match nic_of(recording) {
        Some(_) => "Interface",
        None => "Two hosts",
    }
}

/// The workload and the link, in a line.
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
        recording.arms.iter().all(|arm| of(arm) == one).then_some(one)
    };
    let blocks = recording.blocks.len();
    let mut words = vec!["Two hosts".to_string()];
    words.extend(same(&|arm| arm.link.to_string()));
    if varies(recording) {
        words.push("namespaces of this machine".into());
    }
    let of_wire = (!varies(recording)).then(|| same(&|arm| format!("a wire of {}", wire_of(arm))));
    words.extend(of_wire.flatten());
    let mut sent = recording.blocks.iter().map(|block| block.ledger.offered);
    let first = sent.next().filter(|first| sent.all(|other| other == *first));
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
        bytes => format!("{bytes} {}", plural(bytes as usize, "byte")),
    }
}

/// The document of a recording of two hosts, or of an interface.
pub fn document<'r>(recording: &'r Recording, experiment: Option<&'r Experiment>) -> Document<'r> {
    let kind = called(recording);
    let arms = Section::rows(NAME_LETTERS, move |reader| match reader {
        Reader::Program => table(recording),
        Reader::People | Reader::Page => short_table(recording),
    });
    let sections = vec![
        Section::data("arms", &recording.arms),
        arms.caption(kind).key("hosts").place("arms", "Arms"),
    ];
    Document::new(recording, experiment, kind, sections, trust(recording))
        .headline(heading(recording))
        .charts(move || swept_charts(recording))
}

/// Measured quantities by varied knobs, as charts.
fn swept_charts(recording: &Recording) -> Vec<PageChart> {
    let chart = |figure: &Figure| PageChart {
        title: format!("{} by {}", figure.y, figure.x),
        ..figures::charts::figure(&Plotted::all(recording, figure), recording)
    };
    swept(recording).iter().map(chart).collect()
}

/// Figures of measured quantities by varied knobs: numeric ones on the x axis, if there are any.
fn swept(recording: &Recording) -> Vec<Figure> {
    let levels = |key: &String| -> BTreeSet<String> {
        let arms = recording.arms.iter().filter(|arm| arm.repeats().is_none());
        arms.filter_map(|arm| arm.level_text(key)).collect()
    };
    let mut varied: Vec<String> = (recording.arms.iter())
        .flat_map(|arm| arm.knobs.keys().cloned())
        .collect::<BTreeSet<String>>()
        .into_iter()
        .filter(|key| levels(key).len() > 1)
        .collect();
    varied.sort_by_key(|key| Knob::by_key(key).map(|knob| knob.turn));
    let is_number = |key: &&String| levels(key).iter().all(|level| number_of(key, level).is_some());
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
        .map(|y| Figure { x: x.clone(), y, lines: lines.cloned(), ..Figure::default() })
        .collect()
}

#[cfg(test)]
pub(crate) mod tests;
