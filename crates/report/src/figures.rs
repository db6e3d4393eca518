//! A paper's figures from our data: each function's share of a layer as bars,
//! beside the published shares.

pub(crate) mod charts;
pub mod sweeps;

use netplumb_model::experiment::{Experiment, Published};
use netplumb_model::symbol::base_name;

use crate::analysis::{ClassView, FunctionView};
use crate::number::{per_packet, percent, printable};
use crate::table::bar;

/// Bars of a figure; functions below this share are summed.
const MIN_SHARE_PERCENT: f64 = 1.0;
const MAX_BARS: usize = 16;

/// All figures of an experiment, in its order.
pub fn render(experiment: &Experiment, classes: &[ClassView<'_>]) -> String {
    let mut out = String::new();
    for published in &experiment.published {
        match classes.iter().find(|c| c.class == published.class) {
            Some(class) => out.push_str(&figure(experiment.layer.as_deref(), published, class)),
            None => out.push_str(&format!(
                "Figure {}  {}: no such packets were measured\n",
                printable(&published.figure, 8),
                published.class
            )),
        }
        out.push('\n');
    }
    out
}

fn figure(layer: Option<&str>, published: &Published, class: &ClassView<'_>) -> String {
    let whole = layer.map_or(class.total, |l| class.layer_insns(l));
    let packets = class.packets;
    let mut out = format!(
        "Figure {}  {}: {} {} instructions per packet; published {:.3} us\n",
        printable(&published.figure, 8),
        class.class,
        printable(layer.unwrap_or("path"), 40),
        per_packet(whole, packets),
        published.total_us
    );
    let functions: Vec<_> = class.functions_of(layer).collect();
    let shown = functions
        .iter()
        .take(MAX_BARS)
        .take_while(|f| percent(f.self_insns, whole) >= MIN_SHARE_PERCENT)
        .count();
    for function in &functions[..shown] {
        let share = percent(function.self_insns, whole);
        out.push_str(&format!(
            "  {:<32} {:>7} {share:>5.1}%  {}\n",
            printable(class.name(function.function), 32),
            per_packet(function.self_insns, packets),
            bar(share, 40)
        ));
    }
    let rest: u64 = functions[shown..].iter().map(|f| f.self_insns).sum();
    if rest > 0 {
        out.push_str(&format!(
            "  {:<32} {:>7} {:>5.1}%\n",
            format!("{} more", functions.len() - shown),
            per_packet(rest, packets),
            percent(rest, whole)
        ));
    }
    out.push_str(&compare(layer, published, class, whole));
    out
}

/// The paper's top function, then and now: by its name or, where that is gone, by a
/// successor's.
fn compare(
    layer: Option<&str>,
    published: &Published,
    class: &ClassView<'_>,
    whole: u64,
) -> String {
    let published_share = published.top_us * 100.0 / published.total_us;
    let name = printable(&published.top_function, 60);
    let mut out =
        format!("  published top: {name} {:.2} us ({published_share:.0}%)", published.top_us);
    let functions: Vec<_> = class.functions_of(layer).collect();
    for is in [is_function, is_successor] {
        let is = |f: &FunctionView| is(class.name(f.function), &published.top_function);
        let called = |f: &FunctionView| {
            if is_function(class.name(f.function), &published.top_function) {
                "it".to_string()
            } else {
                format!("its successor {}", printable(class.name(f.function), 60))
            }
        };
        if let Some(rank) = functions.iter().position(|f| is(f)) {
            out.push_str(&format!(
                "; here {} is number {} with {:.1}%\n",
                called(functions[rank]),
                rank + 1,
                percent(functions[rank].self_insns, whole)
            ));
            return out;
        }
        if let Some(elsewhere) = class.functions.iter().find(|f| is(f)) {
            out.push_str(&format!(
                "; here {} is in layer {}\n",
                called(elsewhere),
                printable(class.layer(elsewhere.function), 40)
            ));
            return out;
        }
    }
    out.push_str("; this kernel has no such function on the path\n");
    out
}

/// A function with less of a whole than this, in percent, is not a bottleneck: making it twice
/// as fast would save less than an eighth.
pub(crate) const BOTTLENECK_PERCENT: f64 = 25.0;

/// The word for the function with the largest cost, by its share of the whole in percent.
pub(crate) fn first_of(share: f64) -> &'static str {
    match share >= BOTTLENECK_PERCENT {
        true => "Bottleneck",
        false => "Largest of many",
    }
}

/// Whether a symbol is a function: the compiler's clone (`ip_rcv.isra.0`) is.
pub(crate) fn is_function(symbol: &str, name: &str) -> bool {
    base_name(symbol) == name
}

/// Whether a symbol continues a name (`ip_route_input` became
/// `ip_route_input_noref` and `ip_route_input_slow`).
pub(crate) fn is_successor(symbol: &str, name: &str) -> bool {
    symbol.strip_prefix(name).is_some_and(|rest| rest.starts_with('_'))
}
