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
use serde::Serialize;

#[cfg(test)]
pub(crate) use arms::declared;
use arms::{short_table, table};
pub use compared::{Compared, compare};
use facts::{nic_of, scalars_of, varies};
pub(crate) use trust::cpu_use;
use trust::trust;

use crate::claims::{self, Judged};
use crate::conclusions;
use crate::figures::{self, sweeps::Plotted};
use crate::footer;
use crate::html::{facts, title, warnings};
use crate::json::{Common, pretty};
use crate::number::{counted, plural, printable};
use crate::page::{Page, PageChart, PageTable, SCHEMA};
use crate::table::{Room, Value};
use crate::text::{continued, prose};
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
    let room = Room::new(columns, NAME_LETTERS);
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
struct HostsJson<'a> {
    #[serde(flatten)]
    common: Common<'a>,
    arms: &'a [Arm],
    hosts: Vec<Value>,
}

/// As JSON. docs/reference/json.md describes it for users.
pub fn json(recording: &Recording, experiment: Option<&Experiment>) -> String {
    let judged = judged(recording, experiment);
    pretty(&HostsJson {
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

/// The page of a recording of two hosts.
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
        figures: charts(recording, experiment),
        events: vec![table],
        events_called: "Arms".into(),
        ..Page::default()
    }
}

/// The figures of the file or, without any, measured quantities by varied knobs.
fn charts(recording: &Recording, experiment: Option<&Experiment>) -> Vec<PageChart> {
    let chart = |plotted: Plotted<'_>| figures::charts::figure(&plotted, recording);
    let own = experiment.into_iter().flat_map(|file| {
        let figures = file.figures.iter();
        figures.map(move |figure| chart(Plotted::from_figure(file, figure)))
    });
    let mut all: Vec<PageChart> = own.collect();
    if all.is_empty() {
        let swept = swept(recording);
        all.extend(swept.iter().map(|figure| PageChart {
            title: format!("{} by {}", figure.y, figure.x),
            ..chart(Plotted::all(recording, figure))
        }));
    }
    all
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
