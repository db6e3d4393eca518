//! The names of classes, and a line for each: the whole at a glance.

use std::collections::BTreeSet;

use netplumb_model::class::{Family, Link, Proto};
use netplumb_model::recording::{Arm, Recording, env};

use crate::analysis::ClassView;
use crate::number::{percent, plural, printable};
use crate::page::PageTable;
use crate::table::{Column, Room, Table, Value};

/// Names are cut to this.
const NAME_LIMIT: usize = 60;
/// Names of layers and units, which are a word.
const WORD_LIMIT: usize = 16;

/// The class's cost in each context, added up: "task 400 + softirq:NET_RX 300".
pub(crate) fn split(class: &ClassView<'_>) -> String {
    let parts: Vec<String> = class
        .contexts
        .iter()
        .map(|(context, insns)| format!("{context} {}", class.cost_text(*insns)))
        .collect();
    parts.join(" + ")
}

/// Per packet, and the share of the path.
pub(crate) fn cost(insns: u64, class: &ClassView<'_>) -> String {
    format!("{} ({:.1}%)", class.cost_text(insns), percent(insns, class.total))
}

/// Whether arms share a class: with several of one protocol, a class alone does
/// not identify the arm.
pub(crate) fn several_arms(classes: &[ClassView<'_>]) -> bool {
    classes.iter().any(|c| classes.iter().any(|other| other.class == c.class && other.arm != c.arm))
}

/// The class, after the arm if its name is more than the protocol; and the function whose subtree it
/// is, if it is not the whole.
pub(crate) fn label(class: &ClassView<'_>) -> String {
    let arm = class.arm();
    let label = match arm.proto {
        Proto::Work => printable(&class.quantity.name, WORD_LIMIT),
        proto if arm.name == proto.as_str() => class.class.to_string(),
        // The report's title already names the only one.
        Proto::Command if commands(class.recording) < 2 => class.class.to_string(),
        _ => format!("{}, {}", printable(&arm.name, 60), class.class),
    };
    let below = match class.recording.root() {
        Some(root) => format!(" below {}", printable(root, NAME_LIMIT)),
        None => String::new(),
    };
    let of = match class.recording.environment.get(env::THREADS) {
        Some(threads) => format!(" of {}", printable(threads, NAME_LIMIT)),
        None => String::new(),
    };
    label + &of + &below + invalid(class)
}

/// Arms in which a command runs.
fn commands(recording: &Recording) -> usize {
    let is_command = |arm: &&Arm| arm.proto == Proto::Command;
    recording.arms.iter().filter(is_command).count()
}

/// The mark beside every figure of a class whose packets are not all accounted for.
fn invalid(class: &ClassView<'_>) -> &'static str {
    match class.invalid {
        0 => "",
        // The footer has their number.
        _ => ", INVALID",
    }
}

/// One line for each class: the whole at a glance.
pub fn summary(classes: &[ClassView<'_>], columns: usize) -> String {
    summary_table(classes, None).terminal(Room::new(columns, NAME_LIMIT))
}

/// Columns that identify the class and arm of a row of the page. The arm has a column only where
/// its name is more than the protocol.
pub(crate) fn class_columns<'r, R: 'r>(
    arms: impl IntoIterator<Item = &'r Arm>,
    of: impl Fn(&R) -> (&'r Arm, String) + Copy + 'r,
) -> Vec<Column<'r, R>> {
    let mut columns = vec![
        Column::text("class", move |row: &R| of(row).1)
            .hint("protocol and direction")
            .page("class"),
    ];
    let named = |arm: &Arm| arm.name != arm.proto.as_str();
    if arms.into_iter().any(named) {
        let arm = Column::text("arm", move |row: &R| of(row).0.name.clone());
        columns.push(arm.hint("one combination of settings").page("arm"));
    }
    columns
}

/// A column for the parts of a class, drawn by the page.
pub(crate) fn drawn<'r, R>() -> Column<'r, R> {
    Column::machine(|_: &R| Value::Absent).rank(3).page_own("drawn")
}

/// A line for each class of a recording, for its page.
pub(crate) fn page(classes: &[ClassView<'_>]) -> Option<PageTable> {
    type SummaryRow<'r> = &'r ClassView<'r>;
    let first = classes.first()?;
    let unit = printable(&first.quantity.unit, WORD_LIMIT);
    let arms = || classes.iter().map(|c| c.arm());
    let mut columns =
        class_columns(arms(), |c: &SummaryRow<'_>| (c.arm(), format!("{}{}", c.class, invalid(c))));
    columns.push(
        Column::figure(unit.clone(), |c: &SummaryRow<'_>| c.each(c.total))
            .hint("per packet, run or second")
            .unit(unit.clone())
            .rank(2)
            .page("cost"),
    );
    // A column in which all rows are equal has no information.
    let per: BTreeSet<&str> = classes.iter().map(|c| c.per.word()).collect();
    if per.len() > 1 {
        let per = Column::text("per", |c: &SummaryRow<'_>| c.per.word().into());
        columns.push(per.hint("what costs are divided by").rank(2).page("per"));
    }
    columns.extend([
        drawn(),
        Column::text("largest layer", |c: &SummaryRow<'_>| largest_layer(c))
            .hint("with its own cost")
            .rank(4)
            .page("layer"),
        Column::text("largest function", |c: &SummaryRow<'_>| largest_function(c))
            .hint("with its own cost")
            .rank(4)
            .page("function"),
    ]);
    let count = arms().map(|a| &a.name).collect::<BTreeSet<_>>().len();
    let several = match count {
        1 => String::new(),
        count => format!(", {count} arms"),
    };
    let each = match per.len() {
        1 => format!("; {unit} per {}", first.per.word()),
        _ => String::new(),
    };
    Some(Table::new(columns, classes).page(&format!("Every arm and class{several}{each}")))
}

/// "network 1,234.5".
fn largest_layer(class: &ClassView<'_>) -> String {
    let largest = class.layers.first();
    largest.map_or_else(String::new, |(name, cost)| {
        format!("{} {}", printable(name, 30), class.cost_text(*cost))
    })
}

/// "ip_rcv 123.4".
fn largest_function(class: &ClassView<'_>) -> String {
    let top = class.functions.first();
    top.map_or("-".into(), |f| {
        let name = printable(class.name(f.function), 32);
        format!("{name} {}", class.cost_text(f.self_insns))
    })
}

/// A line for each class, with the selected layer.
pub(crate) fn summary_table<'r>(
    classes: &'r [ClassView<'r>],
    layer: Option<&'r str>,
) -> Table<'r, &'r ClassView<'r>> {
    type SummaryRow<'r> = &'r ClassView<'r>;
    let several = several_arms(classes);
    let title = match several {
        true => "arm, class",
        false => "class",
    };
    let unit = classes.first().map_or("cost", |c| &c.quantity.unit);
    let mut all = vec![
        Column::text(title, move |class: &SummaryRow<'r>| {
            let invalid = invalid(class);
            match several {
                true => {
                    let arm = printable(&class.arm().name, 40);
                    format!("{arm}, {}{invalid}", class.class)
                }
                false => format!("{}{invalid}", class.class),
            }
        })
        .letters(NAME_LIMIT * 2)
        .people(0)
        .not_in_markdown(),
        Column::text("class", |class: &SummaryRow<'r>| label(class)).letters(80).markdown_rank(0),
        Column::text("by context", |class: &SummaryRow<'r>| split(class))
            .letters(200)
            .markdown_rank(1),
        Column::figure(printable(unit, WORD_LIMIT), |class: &SummaryRow<'r>| {
            class.each(class.total)
        })
        .people(1)
        .markdown_rank(5),
        Column::figure("network", |class: &SummaryRow<'r>| {
            let network = class.layer_insns("network");
            let share = percent(network, class.total);
            Value::Formatted(format!("{} ({share:.0}%)", class.cost_text(network)), None)
        })
        .people(2)
        .not_in_markdown(),
        Column::text("largest layer", |class: &SummaryRow<'r>| {
            class.layers.first().map_or("-".into(), |(name, _)| name.clone())
        })
        .letters(WORD_LIMIT)
        .people(3)
        .not_in_markdown(),
        Column::text("largest layer", |class: &SummaryRow<'r>| largest_layer(class))
            .markdown_rank(2),
        Column::text("largest function", |class: &SummaryRow<'r>| largest_function(class))
            .letters(NAME_LIMIT)
            .people(4)
            .not_in_markdown(),
        Column::code("largest function", move |class: &SummaryRow<'r>| {
            let top = class.functions_of(layer).next();
            top.map_or(Value::Missing, |f| Value::Name(class.name(f.function).into(), None))
        })
        .markdown_rank(3),
        Column::figure("self", move |class: &SummaryRow<'r>| {
            let top = class.functions_of(layer).next();
            top.map_or(Value::Missing, |f| class.each(f.self_insns))
        })
        .markdown_rank(4),
    ];
    all.extend(layer.map(|layer| {
        Column::figure(layer.to_string(), move |class: &SummaryRow<'r>| {
            Value::Formatted(cost(class.layer_insns(layer), class), None)
        })
        .letters(30)
        .markdown_rank(6)
    }));
    Table::new(all, classes)
}

/// What an arm sends, over what.
pub(crate) fn arm_heading(arm: &Arm) -> String {
    if arm.proto == Proto::Command {
        return command_heading(arm);
    }
    if arm.proto == Proto::Work {
        return format!("Profile of {}\n", sent(arm));
    }
    format!("{}: {}\n", printable(&arm.name, 80), sent(arm))
}

/// What an arm sends, over what.
pub(crate) fn sent(arm: &Arm) -> String {
    let mut text = match (arm.proto, arm.link) {
        (Proto::Command, _) if !has_network(arm) => printable(&arm.name, 200),
        (Proto::Command, _) => {
            format!("{} over {}, {}", printable(&arm.name, 200), arm.family, arm.link)
        }
        (Proto::Work, _) => printable(&arm.name, 200),
        // Other programs' packets have no common size.
        (_, Link::Any) => format!("{} over {}, as other programs sent it", arm.proto, arm.family),
        // Between two hosts, without a size of packets.
        (Proto::Tcp, _) if arm.size_bytes == 0 => {
            format!("{} over {}, {}, a stream", arm.proto, arm.family, arm.link)
        }
        _ => format!(
            "{} over {}, {}, {} {}",
            arm.proto,
            arm.family,
            arm.link,
            arm.size_bytes,
            plural(arm.size_bytes as usize, "byte")
        ),
    };
    text.push_str(&between(arm));
    if arm.is_on("new_flows") {
        text.push_str(match arm.proto {
            Proto::Tcp => ", a connection each",
            _ => ", a flow each",
        });
    }
    if arm.is_on("replies") {
        text.push_str(", answered");
    }
    text
}

/// What is between sender and receiver.
fn between(arm: &Arm) -> String {
    match arm.knobs.get("topology") {
        Some(topology) => format!(", topology {}", printable(topology, NAME_LIMIT)),
        None if arm.forward => ", through a router".into(),
        None if arm.is_on("bridge") => ", through a bridge".into(),
        None => String::new(),
    }
}

/// Whether the network around a command is worth a word: one other than the default, or a peer.
fn has_network(arm: &Arm) -> bool {
    let of_all = arm.link == Link::Veth && arm.family == Family::V4 && between(arm).is_empty();
    arm.link != Link::Any && (!of_all || arm.knobs.contains_key("peer"))
}

fn command_heading(arm: &Arm) -> String {
    let peer = arm.knobs.get("peer");
    if !has_network(arm) {
        let place = match arm.link {
            Link::Any => " on this machine",
            _ => "",
        };
        return format!("{}: a command{place}\n", printable(&arm.name, 200));
    }
    format!(
        "{}: {} over {}{}{}\n",
        printable(&arm.name, 200),
        arm.link,
        arm.family,
        between(arm),
        peer.map_or_else(String::new, |p| format!("; peer: {}", printable(p, 200)))
    )
}
