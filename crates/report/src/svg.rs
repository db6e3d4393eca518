//! Figures for a paper, as SVG: for each class the shares of its functions or
//! layers as horizontal bars, beside what was published.
//!
//! Text stays text, lengths are points, the width is one or two columns of a
//! paper's page. Colours are from the palette of Okabe and Ito, which the
//! colour-blind can distinguish; published bars are also hatched.

use netplumb_model::experiment::{Experiment, Published};
use netplumb_model::quantity::Calls;
use netplumb_model::recording::{Recording, env};
use svg::node::element::{
    Definitions, Group, Line, Pattern, Rectangle, Text as TextElement, Title,
};

use crate::analysis::{ClassView, quantity, unit};
use crate::figures::{is_function, is_successor};
use crate::number::{percent, printable};
use crate::summary::label;
use crate::trust::common::{arms_of, values_of_arms};

/// Width of a panel: a column's.
const PANEL_PT: f64 = 240.0;
/// Between two columns.
const GAP_PT: f64 = 24.0;
/// Names are left of the bars, figures right of them.
const NAME_PT: f64 = 130.0;
const BAR_PT: f64 = 80.0;
const ROW_PT: f64 = 10.0;
const BAR_HEIGHT_PT: f64 = 6.5;
/// Above the first row of a panel: two lines of heading.
const HEADING_PT: f64 = 26.0;
const BETWEEN_PANELS_PT: f64 = 14.0;
const TEXT_PT: f64 = 7.0;
const HEADING_TEXT_PT: f64 = 8.5;

const MEASURED: &str = "#0072B2";
const PUBLISHED: &str = "#D55E00";
const REST: &str = "#999999";
const INK: &str = "#000000";
const FONT: &str = "Helvetica, Arial, 'Liberation Sans', sans-serif";

/// The most bars of a panel; the rest is summed.
const MAX_BARS: usize = 12;
const MIN_SHARE_PERCENT: f64 = 1.0;
/// The most panels of a figure.
const MAX_PANELS: usize = 24;

/// One class.
struct Panel {
    heading: String,
    below: String,
    bars: Vec<Bar>,
}

struct Bar {
    name: String,
    share: f64,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Measured,
    Published,
    Rest,
}

/// The figures, of the functions of `layer`; without one, and if none was
/// published, of layers.
pub fn render(
    recording: &Recording,
    classes: &[ClassView<'_>],
    experiment: Option<&Experiment>,
    layer: Option<&str>,
) -> String {
    let own_layer = experiment.and_then(|e| e.layer.as_deref());
    let layer = layer.or(own_layer);
    // Published figures are only of the experiment's layer.
    let published: &[Published] = match experiment {
        Some(experiment) if layer == own_layer => &experiment.published,
        _ => &[],
    };
    let mut panels = Vec::new();
    for figure in published {
        for class in classes.iter().filter(|c| c.class == figure.class) {
            panels.push(functions(class, layer, Some(figure)));
        }
    }
    if panels.is_empty() {
        for class in classes {
            panels.push(match layer {
                Some(_) => functions(class, layer, None),
                None => layers(class),
            });
        }
    }
    let mut notes = vec![source(recording, classes)];
    if panels.len() > MAX_PANELS {
        notes.push(format!(
            "{} more classes are not drawn: choose with --direction and --arm",
            panels.len() - MAX_PANELS
        ));
        panels.truncate(MAX_PANELS);
    }
    draw(&panels, &notes, &unit(recording))
}

/// The conditions, in a line.
fn source(recording: &Recording, classes: &[ClassView<'_>]) -> String {
    let kernel = || {
        let shown = arms_of(recording, classes);
        printable(&values_of_arms(recording, &shown, env::KERNEL).join(" and "), 80)
    };
    let fact = |key: &str| printable(recording.environment.get(key).map_or("?", |v| v), 40);
    let quantity = quantity(recording);
    if quantity.calls == Calls::Samples {
        return format!(
            "{} by function, by samples; Linux {}, plumb {}",
            printable(&quantity.name, 60),
            kernel(),
            fact(env::PLUMB)
        );
    }
    if quantity.unit == "ns" {
        return format!(
            "Time by function, less the probes' own cost; Linux {}, plumb {}",
            kernel(),
            fact(env::PLUMB)
        );
    }
    format!(
        "Instructions executed; Linux {}, QEMU {}, plumb {}",
        kernel(),
        fact(env::QEMU),
        fact(env::PLUMB)
    )
}

fn layers(class: &ClassView<'_>) -> Panel {
    let shares = class.layers.iter();
    let shares: Vec<(String, u64)> = shares.map(|(l, n)| (printable(l, 60), *n)).collect();
    Panel {
        heading: label(class),
        below: format!("{} per {}, by layer", class.with_unit(class.total), class.per.word()),
        bars: bars(&shares, class.total, None),
    }
}

fn functions(class: &ClassView<'_>, layer: Option<&str>, published: Option<&Published>) -> Panel {
    let whole = layer.map_or(class.total, |l| class.layer_insns(l));
    let shares: Vec<(String, u64)> = class
        .functions_of(layer)
        .map(|f| (printable(class.name(f.function), 60), f.self_insns))
        .collect();
    let of = match layer {
        Some(layer) => format!("{} layer: ", printable(layer, 30)),
        None => String::new(),
    };
    let mut panel = Panel {
        heading: label(class),
        below: format!("{of}{} per {}", class.with_unit(whole), class.per.word()),
        bars: match published {
            Some(published) => bars_beside(&shares, whole, published),
            None => bars(&shares, whole, None),
        },
    };
    if let Some(published) = published {
        panel.heading = format!("{} {}", printable(&published.figure, 8), panel.heading);
        let also = format!("; published {:.3} µs", published.total_us);
        panel.below.push_str(&also);
    }
    panel
}

/// The largest ones, the one with index `with`, and the rest.
fn bars(shares: &[(String, u64)], whole: u64, with: Option<usize>) -> Vec<Bar> {
    let mut bars = Vec::new();
    let (mut left, mut rest) = (0, 0);
    for (n, (name, insns)) in shares.iter().enumerate() {
        let share = percent(*insns, whole);
        if (n < MAX_BARS && share >= MIN_SHARE_PERCENT) || with == Some(n) {
            bars.push(Bar { name: name.clone(), share, kind: Kind::Measured });
        } else {
            left += 1;
            rest += insns;
        }
    }
    if rest > 0 {
        bars.push(Bar {
            name: format!("{left} more"),
            share: percent(rest, whole),
            kind: Kind::Rest,
        });
    }
    bars
}

/// Bars, each published one below its function's, or its successor's; last, if
/// there is neither.
fn bars_beside(shares: &[(String, u64)], whole: u64, published: &Published) -> Vec<Bar> {
    let of = |is: fn(&str, &str) -> bool| {
        let mut shares = shares.iter();
        shares.position(|(symbol, _)| is(symbol, &published.top_function))
    };
    let same = of(is_function);
    let ours = same.or_else(|| of(is_successor));
    let mut bars = bars(shares, whole, ours);
    let at = match ours {
        Some(n) => bars.iter().position(|b| b.name == shares[n].0).map(|at| at + 1),
        None => None,
    };
    let bar = Bar {
        name: match same {
            Some(_) => "published".into(),
            None => format!("published: {}", printable(&published.top_function, 60)),
        },
        share: published.top_us * 100.0 / published.total_us,
        kind: Kind::Published,
    };
    bars.insert(at.unwrap_or(bars.len()), bar);
    bars
}

fn draw(panels: &[Panel], notes: &[String], unit: &str) -> String {
    let columns = panels.len().clamp(1, 2);
    let has_published = panels.iter().any(|p| p.bars.iter().any(|b| b.kind == Kind::Published));
    let most = panels
        .iter()
        .flat_map(|p| p.bars.iter().map(|b| b.share))
        .filter(|s| s.is_finite())
        .fold(1.0, f64::max);
    let width = PANEL_PT * columns as f64 + GAP_PT * (columns as f64 - 1.0);
    let mut body = Group::new().set("font-family", FONT).set("font-size", TEXT_PT).set("fill", INK);
    let mut y = 4.0;
    if has_published {
        body = body.add(legend(y, unit));
        y += ROW_PT + BETWEEN_PANELS_PT / 2.0;
    }
    for row in panels.chunks(columns) {
        let mut height: f64 = 0.0;
        for (column, panel) in row.iter().enumerate() {
            let x = column as f64 * (PANEL_PT + GAP_PT);
            body = body.add(draw_panel(panel, x, y, most));
            height = height.max(HEADING_PT + ROW_PT * panel.bars.len() as f64);
        }
        y += height + BETWEEN_PANELS_PT;
    }
    for note in notes {
        let note = fit(note, TEXT_PT - 1.0, width);
        body = body.add(text(note, 0.0, y).set("font-size", TEXT_PT - 1.0));
        y += ROW_PT;
    }
    let hatch = Pattern::new()
        .set("id", "plumb-published")
        .set("patternUnits", "userSpaceOnUse")
        .set("width", 2.5)
        .set("height", 2.5)
        .set("patternTransform", "rotate(45)")
        .add(Rectangle::new().set("width", 2.5).set("height", 2.5).set("fill", "#FFFFFF"))
        .add(Rectangle::new().set("width", 1.2).set("height", 2.5).set("fill", PUBLISHED));
    let document = svg::Document::new()
        .set("width", format!("{width}pt"))
        .set("height", format!("{y}pt"))
        .set("viewBox", format!("0 0 {width} {y}"))
        .set("role", "img")
        .add(Title::new(format!("Where a packet's {unit} go")))
        .add(Definitions::new().add(hatch))
        .add(Rectangle::new().set("width", width).set("height", y).set("fill", "#FFFFFF"))
        .add(body);
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{document}\n")
}

fn legend(y: f64, unit: &str) -> Group {
    let mut group = Group::new();
    let mut x = 0.0;
    for (kind, words) in [
        (Kind::Measured, format!("share of {unit}")),
        (Kind::Published, "share of time, as published".into()),
    ] {
        let wide = width_pt(&words, TEXT_PT);
        group =
            group.add(bar(kind, x, y, 14.0)).add(text(words, x + 18.0, y + BAR_HEIGHT_PT - 0.8));
        x += 18.0 + wide + 16.0;
    }
    group
}

fn draw_panel(panel: &Panel, x: f64, y: f64, most: f64) -> Group {
    let heading = fit(&panel.heading, HEADING_TEXT_PT, PANEL_PT);
    let mut group = Group::new()
        .set("transform", format!("translate({x} {y})"))
        .add(
            text(heading, 0.0, HEADING_TEXT_PT)
                .set("font-size", HEADING_TEXT_PT)
                .set("font-weight", "bold"),
        )
        .add(text(fit(&panel.below, TEXT_PT, PANEL_PT), 0.0, 18.5));
    for (n, row) in panel.bars.iter().enumerate() {
        let top = HEADING_PT + ROW_PT * n as f64;
        let base = top + BAR_HEIGHT_PT - 0.8;
        let share = if row.share.is_finite() { row.share } else { 0.0 };
        let length = (share / most * BAR_PT).max(0.3);
        let faint = if row.kind == Kind::Measured { INK } else { "#555555" };
        group = group
            .add(
                text(fit(&row.name, TEXT_PT, NAME_PT - 6.0), NAME_PT - 4.0, base)
                    .set("text-anchor", "end")
                    .set("fill", faint),
            )
            .add(bar(row.kind, NAME_PT, top, length))
            .add(text(format!("{share:.1}%"), NAME_PT + length + 3.0, base).set("fill", faint));
    }
    // Where bars begin.
    let bottom = HEADING_PT + ROW_PT * panel.bars.len() as f64 - (ROW_PT - BAR_HEIGHT_PT) + 1.0;
    group.add(
        Line::new()
            .set("x1", NAME_PT)
            .set("x2", NAME_PT)
            .set("y1", HEADING_PT - 1.0)
            .set("y2", bottom.max(HEADING_PT))
            .set("stroke", INK)
            .set("stroke-width", 0.5),
    )
}

fn bar(kind: Kind, x: f64, y: f64, length: f64) -> Rectangle {
    let rectangle = Rectangle::new()
        .set("x", x)
        .set("y", y)
        .set("width", rounded(length))
        .set("height", BAR_HEIGHT_PT);
    match kind {
        Kind::Measured => rectangle.set("fill", MEASURED),
        Kind::Rest => rectangle.set("fill", REST),
        Kind::Published => rectangle
            .set("fill", "url(#plumb-published)")
            .set("stroke", PUBLISHED)
            .set("stroke-width", 0.5),
    }
}

fn text(words: String, x: f64, y: f64) -> TextElement {
    // XML does not allow these, escaped or not.
    let words = words.replace(['\u{fffe}', '\u{ffff}'], "?");
    TextElement::new(words).set("x", rounded(x)).set("y", rounded(y))
}

/// To a hundredth of a point.
fn rounded(pt: f64) -> f64 {
    (pt * 100.0).round() / 100.0
}

/// Cut to a width, estimated without the font.
fn fit(words: &str, size_pt: f64, width: f64) -> String {
    if width_pt(words, size_pt) <= width {
        return words.to_string();
    }
    let mut out = String::new();
    let mut used = width_pt("…", size_pt);
    for c in words.chars() {
        used += letter_em(c) * size_pt;
        if used > width {
            break;
        }
        out.push(c);
    }
    out.push('…');
    out
}

fn width_pt(words: &str, size_pt: f64) -> f64 {
    words.chars().map(letter_em).sum::<f64>() * size_pt
}

/// The approximate width of Helvetica's letters, rounded up.
fn letter_em(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' | 't' | 'f' | 'I' => 0.32,
        'r' | '(' | ')' | '[' | ']' | '-' | '"' => 0.4,
        'm' | 'M' | 'W' | 'w' | '%' | '@' | '…' => 0.95,
        'A'..='Z' | '<' | '>' | '=' | '+' | '~' | '&' => 0.78,
        c if c.is_ascii() => 0.6,
        _ => 1.0,
    }
}
