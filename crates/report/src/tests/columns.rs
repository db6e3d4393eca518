//! The reference of columns.

use std::path::Path;

use netplumb_model::quantity::Quantity;
use netplumb_model::spans::By;
use netplumb_model::timing::INSTRUCTIONS;
use netplumb_testkit::golden;

use super::recording::small;
use super::samples::{compared as compared_samples, samples};
use crate::diff::table::declared;
use crate::diff::tests::renderings::{any_columns, any_page};
use crate::page::PageTable;
use crate::sampled::declared as entries_of_guests;
use crate::shares;
use crate::table::reference::{Entry, entries, of_page};
use crate::times::table as times;
use crate::times::tests::comparing::diff;
use crate::times::tests::recording::functions as of_functions;
use crate::{
    analysis, disks, events, functions, hosts, layers, rates, summary, threads, trace, tune,
};

const HEAD: &str = "# Columns of tables

What the tables of `plumb report` and `plumb diff` contain: the title and the unit of each column, what it means, and who
shows it. Some columns need a wide terminal. [JSON and CSV](json.md) have more than tables show.
[Reading a table](../guide/reading.md) explains how to read them.
";

fn section(out: &mut String, title: &str, about: &str, entries: &[Entry]) {
    out.push_str(&format!("\n## {title}\n\n{about}\n\n"));
    out.push_str("| column | unit | meaning | shown |\n|---|---|---|---|\n");
    for e in entries {
        assert!(!e.hint.is_empty(), "{title}: no hint of {}", e.title);
        let line = format!("| {} | {} | {} | {} |\n", e.title, e.unit, e.hint, e.shown);
        out.push_str(&line);
    }
}

/// Check that the reference of columns matches their declarations, and that every column has
/// a hint.
#[test]
fn the_reference_of_columns() {
    let mut out = String::from(HEAD);
    let exact: Quantity = (&INSTRUCTIONS).into();
    let sampled = analysis::quantity(&samples());
    let recording = small();
    let views = analysis::classes(&recording);
    let page = |table: &PageTable| of_page(&table.columns);
    section(
        &mut out,
        "Classes",
        "A line for each arm and class, at the top of a page.",
        &page(&summary::page(&views).unwrap()),
    );
    section(
        &mut out,
        "Layers",
        "What each layer costs, with its functions together.",
        &entries(&layers::columns(&exact.unit)),
    );
    section(
        &mut out,
        "Functions: instructions",
        "Functions by `exact`, the largest own cost first.",
        &entries(&functions::columns(&exact, true, true)),
    );
    section(
        &mut out,
        "Functions: CPU time by samples",
        "Functions by `samples`, and of any other cost that varies.",
        &entries(&functions::columns(&sampled, true, false)),
    );
    section(
        &mut out,
        "Functions: samples of a guest",
        "What a timer would see of each arm, beside what it executed. In JSON they are in `sampled`.",
        &entries_of_guests(),
    );
    section(
        &mut out,
        "Threads",
        "Where single samples were kept (profiles, imports), by the thread that ran: `--threads`.",
        &threads::declared(),
    );
    section(
        &mut out,
        "Traced calls",
        "Calls that `plumb trace` kept, those with most instructions first.",
        &entries(&trace::calls(&recording)),
    );
    section(
        &mut out,
        "Disks",
        "Where guests had a disk: what it did while a command ran.",
        &disks::declared(),
    );
    section(
        &mut out,
        "Two hosts",
        "By `wire`: `tx` is the sender, `rx` the receiver; over several blocks of an arm rates and shares of time are of all their time (in namespaces of this machine and of an interface the mean), `least`, `most` and `wait` are of all, and other figures are the mean.",
        &hosts::declared(),
    );
    section(
        &mut out,
        "Settings that were searched",
        "A line for each combination of `plumb tune` that no other beats, and the default.",
        &tune::declared(),
    );
    section(
        &mut out,
        "Shares",
        "Shares that an experiment asks for, beside published ones. In JSON they are in `shares`.",
        &shares::declared(),
    );
    section(
        &mut out,
        "Functions: times",
        "Functions by `functions`; percentiles and `mean` are of a call.",
        &entries(&times::functions()),
    );
    section(
        &mut out,
        "Stages",
        "The stages of a packet's path, by `stages`.",
        &entries(&times::stages(None)),
    );
    section(
        &mut out,
        "Time between events",
        "Stages by `spans`; percentiles are of those that went through.",
        &entries(&times::stages(Some(60))),
    );
    section(
        &mut out,
        "Time between events, broken down",
        "By a device, task or CPU: `--by`.",
        &entries(&times::groups(By::Device)),
    );
    let [counts, ratios] = events::declared();
    section(&mut out, "Events", "Counts of events, by `events`.", &counts);
    section(&mut out, "Ratios of events", "One event divided by another: `--ratio`.", &ratios);
    section(&mut out, "Rates", "The arms of a bench.", &entries(&rates::columns::columns()));
    let compared = any_columns();
    section(
        &mut out,
        "Comparison: exact costs",
        "Functions with instruction counts, before and after, per packet.",
        &compared[0],
    );
    let (before, after) = (of_functions(), of_functions());
    let timed = declared(&diff(&before, &after));
    section(
        &mut out,
        "Comparison: functions that vary",
        "Functions judged by blocks, with intervals.",
        &timed[0],
    );
    let (before, after) = (self::samples(), self::samples());
    section(
        &mut out,
        "Comparison: samples",
        "Functions judged by the shares of samples in blocks, with an interval for either side.",
        &declared(&compared_samples(&before, &after))[0],
    );
    section(&mut out, "Comparison: stages", "Stages judged by blocks.", &timed[1]);
    section(
        &mut out,
        "Comparison: classes",
        "A line for each class, at the top of the page of a comparison.",
        &page(&any_page().summary.unwrap()),
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/columns.md");
    golden(&path, &out);
}
