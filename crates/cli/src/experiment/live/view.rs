//! The live view of a recording: a model, rebuilt after each block, and its rendering on a
//! terminal or in a line. Pure functions.

mod work;

use std::collections::BTreeMap;

use netplumb_kernel::layers::LAYERS;
use netplumb_model::class::{Context, Direction, Proto};
use netplumb_model::events::INSTRUMENT;
use netplumb_model::quantity::Declared;
use netplumb_model::recording::{NodeId, Recording, env};
use netplumb_model::span::{StageKind, Times};
use netplumb_model::spans;
use netplumb_model::text::counted;
use netplumb_model::timing::{BUSY, CPU_TIME, FOLLOWED, OWN_CPU};
use netplumb_report::printable;
use netplumb_stats::histogram;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

/// The layer of functions without a rule.
const NO_LAYER: &str = "other";
/// Letters of a name, at least.
const NAME: usize = 24;
/// Columns of a row between its name and its bar: count, mean, p99.
const FIGURES: usize = 32;
/// The fact that has the events that time is measured between.
const EVENTS: &str = "spans.events";

/// The contents of the screen.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct View {
    /// The clock and the lab.
    title: String,
    /// Measured time of all blocks, in seconds.
    measured_s: f64,
    /// Blocks.
    blocks: usize,
    /// One waterfall for each arm and direction.
    ways: Vec<Way>,
    /// The functions with the highest self time, or the stages.
    top: Vec<ViewRow>,
    /// Whether it shows work, not packets.
    of_work: bool,
    /// Tables of work: events or functions.
    sheets: Vec<work::Sheet>,
    /// Losses, with their counts.
    losses: Vec<(String, u64)>,
    /// CPU use of measuring, where that is known.
    own_cpus: Option<f64>,
    /// Number of busy CPUs, if known.
    busy_cpus: Option<f64>,
}

/// The path of a class of packets.
#[derive(Debug, Clone, Default, PartialEq)]
struct Way {
    name: String,
    rows: Vec<ViewRow>,
}

/// One stage, layer or function.
#[derive(Debug, Clone, Default, PartialEq)]
struct ViewRow {
    name: String,
    /// Its kind, or its layer.
    note: String,
    count: u64,
    mean_ns: f64,
    p99_ns: Option<f64>,
    /// Its start on the path, in nanoseconds.
    offset_ns: f64,
    /// Whether it is the total.
    total: bool,
}

impl View {
    /// The view of a recording, with at most `top` functions.
    pub(super) fn from_recording(recording: &Recording, top: usize) -> View {
        let fact = |key: &str| recording.environment.get(key).map_or("?", String::as_str);
        let own_ns: f64 = figures(recording, &OWN_CPU).sum();
        let busy: Vec<f64> = figures(recording, &BUSY).collect();
        // Blocks of one window each have its duration.
        let mut windows: BTreeMap<(u32, u64), u64> = BTreeMap::new();
        for block in &recording.blocks {
            let arm = recording.arms.get(block.arm as usize);
            let by_arm = arm.map_or(0, |a| {
                u64::from(a.link != netplumb_model::class::Link::Any) * (u64::from(block.arm) + 1)
            });
            windows.insert((block.index, by_arm), block.duration_ns);
        }
        let measured_s = windows.values().sum::<u64>() as f64 / 1e9;
        let mut view = View {
            title: format!("{}, lab {}", fact(env::CLOCK), fact(env::LAB)),
            measured_s,
            blocks: recording.blocks.len(),
            // Of counts, the kernel's own part is not known.
            own_cpus: (fact(env::CLOCK) != INSTRUMENT).then_some(match measured_s > 0.0 {
                true => own_ns / 1e9 / measured_s,
                false => 0.0,
            }),
            busy_cpus: (!busy.is_empty()).then(|| busy.iter().sum::<f64>() / busy.len() as f64),
            losses: (recording.all_losses())
                .filter(|l| l.count > 0)
                .map(|l| (l.cause.clone(), l.count))
                .collect(),
            ..View::default()
        };
        let arm = recording.arms.first();
        if let Some(arm) = arm.filter(|_| is_work(recording)) {
            view.title = format!("{} of {}", fact(env::CLOCK), printable(&arm.name, 60));
            view.of_work = true;
            view.sheets = work::sheets(recording, top);
            return view;
        }
        view.add_stages(recording);
        if is_between(recording) {
            view.title = arm.map_or_else(
                || view.title.clone(),
                |arm| format!("{} of {}", fact(env::CLOCK), printable(&arm.name, 60)),
            );
            view.of_work = true;
            for way in &mut view.ways {
                way.name = fact(EVENTS).into();
            }
            return view;
        }
        view.add_functions(recording, top);
        view
    }

    fn add_stages(&mut self, recording: &Recording) {
        let mut stages: BTreeMap<(u32, Direction, u16, &str), (StageKind, Times)> = BTreeMap::new();
        for (span, stage) in recording.stages() {
            let Some(block) = recording.blocks.get(span.block as usize) else {
                continue;
            };
            let key = (block.arm, span.direction, stage.order, stage.name.as_str());
            let sum = stages.entry(key).or_insert_with(|| (stage.kind, Times::default()));
            sum.1.add(&span.times);
        }
        let mut ways: BTreeMap<(u32, Direction), Vec<ViewRow>> = BTreeMap::new();
        for ((arm, direction, _, name), (kind, times)) in stages {
            let rows = ways.entry((arm, direction)).or_default();
            let mut row = row(name, kind.as_str(), &times);
            row.total = kind == StageKind::Total;
            rows.push(row);
        }
        for ((arm, direction), mut rows) in ways {
            let most = rows.iter().map(|r| r.count).max().unwrap_or(0);
            let mut offset_ns = 0.0;
            for row in rows.iter_mut().filter(|r| !r.total) {
                row.offset_ns = offset_ns;
                // Packets that skip a stage count as 0.
                offset_ns += row.mean_ns * row.count as f64 / most.max(1) as f64;
            }
            self.ways.push(Way { name: way_name(recording, arm, direction), rows });
        }
    }

    fn add_functions(&mut self, recording: &Recording, top: usize) {
        type Key = (u32, Direction, Context, NodeId);
        let mut nodes: BTreeMap<Key, (Times, f64)> = BTreeMap::new();
        for (span, call) in recording.calls() {
            let Some(block) = recording.blocks.get(span.block as usize) else {
                continue;
            };
            let key = (block.arm, span.direction, call.context, call.node);
            let sum = nodes.entry(key).or_default();
            sum.0.add(&span.times);
            sum.1 += call.corrected_ns;
        }
        let mut own: BTreeMap<Key, f64> = nodes.iter().map(|(k, v)| (*k, v.1)).collect();
        for (&(arm, direction, context, node), (_, corrected_ns)) in &nodes {
            let parent = recording.nodes.get(node as usize).and_then(|n| n.parent);
            let key = parent.map(|p| (arm, direction, context, p));
            if let Some(of_parent) = key.and_then(|k| own.get_mut(&k)) {
                *of_parent -= corrected_ns;
            }
        }
        let mut layers: BTreeMap<(u32, Direction), BTreeMap<usize, (f64, u64)>> = BTreeMap::new();
        let mut functions: BTreeMap<u32, (Times, f64)> = BTreeMap::new();
        for (key, own_ns) in own {
            let (arm, direction, _, node) = key;
            let Some(function) = recording.nodes.get(node as usize).map(|n| n.function) else {
                continue;
            };
            let layer = recording.functions.get(function as usize).and_then(|f| f.layer.as_deref());
            let place = LAYERS.iter().position(|l| Some(*l) == layer);
            let sum = layers
                .entry((arm, direction))
                .or_default()
                .entry(place.unwrap_or(LAYERS.len()))
                .or_default();
            sum.0 += own_ns.max(0.0);
            let of = functions.entry(function).or_default();
            of.1 += own_ns.max(0.0);
            if let Some((times, _)) = nodes.get(&key) {
                sum.1 += times.count;
                of.0.add(times);
            }
        }
        for ((arm, direction), layers) in layers {
            // The path is per packet, if packets are counted.
            let of_arm = |block: u32| recording.blocks[block as usize].arm == arm;
            let delivered: u64 = (recording.blocks.iter())
                .filter(|b| b.arm == arm)
                .map(|b| b.ledger.delivered)
                .sum();
            let followed = (recording.scalars_of(&FOLLOWED))
                .filter(|s| s.block().is_some_and(of_arm))
                .map(|s| s.value as u64);
            let packets = match delivered {
                0 => followed.sum(),
                delivered => delivered,
            };
            let mut offset_ns = 0.0;
            let mut rows = Vec::new();
            for (place, (own_ns, count)) in layers {
                let shared = if packets > 0 { packets } else { count.max(1) };
                let mean_ns = own_ns / shared as f64;
                rows.push(ViewRow {
                    name: LAYERS.get(place).unwrap_or(&NO_LAYER).to_string(),
                    note: if packets > 0 { "a packet" } else { "a call" }.into(),
                    count,
                    mean_ns,
                    offset_ns,
                    ..ViewRow::default()
                });
                offset_ns += mean_ns;
            }
            self.ways.push(Way { name: way_name(recording, arm, direction), rows });
        }
        let mut functions: Vec<(u32, Times, f64)> =
            functions.into_iter().map(|(f, (t, own))| (f, t, own)).collect();
        functions.sort_by(|a, b| b.2.total_cmp(&a.2));
        if top > 0 {
            functions.truncate(top);
        }
        for (function, times, _) in functions {
            let Some(function) = recording.functions.get(function as usize) else {
                continue;
            };
            let layer = function.layer.as_deref().unwrap_or(NO_LAYER);
            self.top.push(row(&function.name, layer, &times));
        }
    }

    /// As a line, without a terminal.
    pub(super) fn line(&self) -> String {
        if !self.sheets.is_empty() {
            let sheets: Vec<String> = self.sheets.iter().map(work::Sheet::line).collect();
            let (sheets, footer) = (sheets.join("; "), self.footer());
            return format!("{:.1} s: {sheets}; {footer}", self.measured_s);
        }
        let ways: Vec<String> = (self.ways.iter())
            .map(|way| {
                let total = way.rows.iter().find(|r| r.total).map(|r| (r.mean_ns, r.count));
                let (ns, count) = total.unwrap_or_else(|| {
                    let sum = way.rows.iter().map(|r| r.mean_ns).sum();
                    (sum, way.rows.iter().map(|r| r.count).max().unwrap_or(0))
                });
                format!("{} {} ({count})", way.name, nanoseconds(ns))
            })
            .collect();
        format!("{:.1} s: {}; {}", self.measured_s, ways.join(", "), self.footer())
    }

    fn footer(&self) -> String {
        let busy = (self.busy_cpus).map_or_else(String::new, |b| format!(", {b:.2} CPUs busy"));
        let losses: Vec<String> = (self.losses.iter())
            .map(|(cause, count)| format!("{count} {}", printable(cause, 60)))
            .collect();
        let lost = match losses.is_empty() {
            true => "nothing lost".to_string(),
            false => losses.join(", "),
        };
        match self.own_cpus {
            Some(own) => format!("overhead {:.1} % of a CPU{busy}; {lost}", own * 100.0),
            None => format!("{lost}{busy}"),
        }
    }

    /// On a terminal.
    pub(super) fn render(&self, frame: &mut Frame<'_>) {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let dim = Style::new().add_modifier(Modifier::DIM);
        let [head, body, foot] =
            Layout::vertical([Constraint::Length(1), Constraint::Fill(1), Constraint::Length(2)])
                .areas(frame.area());
        let title =
            format!("{}   {:.1} s, {}", self.title, self.measured_s, counted(self.blocks, "block"));
        frame.render_widget(Paragraph::new(title).style(bold), head);
        let mut lines = Vec::new();
        for way in &self.ways {
            lines.push(Line::styled(printable(&way.name, usize::from(body.width)), bold));
            let (whole_ns, name) = (way.whole_ns(), way.name_width(body.width));
            for row in &way.rows {
                lines.push(row.line(body.width, name, whole_ns));
            }
        }
        if !self.top.is_empty() {
            lines.push(Line::styled("functions, by own time", bold));
            let most_ns = self.top.iter().map(|r| r.mean_ns).fold(0.0, f64::max);
            let row = |row: &ViewRow| row.line(body.width, NAME, most_ns);
            lines.extend(self.top.iter().map(row));
        }
        for sheet in self.sheets.iter().filter(|sheet| !sheet.is_empty()) {
            lines.extend(sheet.lines(body.width, usize::from(body.height)));
        }
        if lines.is_empty() {
            let nothing = match self.of_work {
                true => "nothing yet",
                false => "no packets yet",
            };
            lines.push(Line::styled(nothing, dim));
        }
        frame.render_widget(Paragraph::new(lines), body);
        let [footer, keys] = Layout::vertical([Constraint::Length(1); 2]).areas::<2>(foot);
        frame.render_widget(Paragraph::new(self.footer()), footer);
        frame.render_widget(Paragraph::new("q: end, and print the report").style(dim), keys);
    }
}

impl Way {
    /// Width of the names: the longest one, up to half of the width.
    fn name_width(&self, width: u16) -> usize {
        let longest = self.rows.iter().map(|row| row.name.chars().count()).max();
        let most = (usize::from(width) / 2).max(NAME);
        longest.unwrap_or(0).clamp(NAME, most)
    }

    fn whole_ns(&self) -> f64 {
        let ends = self.rows.iter().map(|r| r.offset_ns + r.mean_ns);
        ends.fold(0.0, f64::max)
    }
}

impl ViewRow {
    /// A row of a waterfall: its figures, and a bar at its position on the path.
    fn line(&self, width: u16, name: usize, whole_ns: f64) -> Line<'static> {
        let p99 = self.p99_ns.map_or_else(|| "-".to_string(), nanoseconds);
        let figures = format!(
            "  {:<name$} {:>8} {:>9} {:>9} ",
            printable(&self.name, name),
            self.count,
            nanoseconds(self.mean_ns),
            p99
        );
        let room = usize::from(width).saturating_sub(name + FIGURES);
        let scaled = |ns: f64| match whole_ns > 0.0 {
            true => (ns / whole_ns * room as f64).round() as usize,
            false => 0,
        };
        let from = scaled(self.offset_ns).min(room);
        let to = scaled(self.offset_ns + self.mean_ns).clamp(from, room);
        let sign = match self.note.as_str() {
            "wait" => "░",
            "unaccounted" => "·",
            _ => "█",
        };
        // Very short ones still have a bar.
        let bar = sign.repeat((to - from).max(usize::from(room > from && self.mean_ns > 0.0)));
        Line::from(vec![Span::raw(figures), Span::raw(" ".repeat(from)), Span::raw(bar)])
    }
}

fn row(name: &str, note: &str, times: &Times) -> ViewRow {
    let at = |share| histogram::quantile(&times.buckets, share, times.min_ns, times.max_ns);
    ViewRow {
        name: name.into(),
        note: note.into(),
        count: times.count,
        mean_ns: times.total_ns as f64 / times.count.max(1) as f64,
        p99_ns: at(0.99),
        ..ViewRow::default()
    }
}

fn way_name(recording: &Recording, arm: u32, direction: Direction) -> String {
    let name = recording.arms.get(arm as usize).map_or("", |a| a.name.as_str());
    format!("{} {direction}", printable(name, 60))
}

/// Whether a recording is of times between events.
fn is_between(recording: &Recording) -> bool {
    let clock = recording.environment.get(env::CLOCK);
    clock.is_some_and(|clock| clock == spans::INSTRUMENT)
}

/// Whether a recording is of work, not of packets.
fn is_work(recording: &Recording) -> bool {
    let is = |proto: Proto| [Proto::Work, Proto::Command].contains(&proto);
    let named = |name: &str| [INSTRUMENT, CPU_TIME.instrument].contains(&name);
    recording.arms.iter().all(|arm| is(arm.proto))
        && recording.blocks.iter().all(|b| named(&b.instrument))
}

fn figures(recording: &Recording, quantity: &Declared) -> impl Iterator<Item = f64> {
    recording.scalars_of(quantity).map(|s| s.value)
}

/// Nanoseconds in a suitable unit.
fn nanoseconds(ns: f64) -> String {
    match ns {
        ns if ns < 9_999.5 => format!("{ns:.0} ns"),
        ns if ns < 9_999_500.0 => format!("{:.1} us", ns / 1e3),
        ns => format!("{:.1} ms", ns / 1e6),
    }
}

#[cfg(test)]
mod tests;
