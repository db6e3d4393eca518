//! Claims put to the data.

use netplumb_model::class::Class;
use netplumb_model::experiment::{Claim, Experiment};

use crate::analysis::ClassView;
use crate::number::{per_packet, percent, printable};
use crate::terminal::wrapped;

/// What the data say of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// They bear it out.
    Holds,
    /// They don't.
    DoesNotHold,
    /// They answer it.
    Answered,
    /// They can't: something was not measured.
    NotMeasured,
}

impl Verdict {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::DoesNotHold => "does not hold",
            Verdict::Answered => "answer",
            Verdict::NotMeasured => "not measured",
        }
    }
}

/// A claim, its verdict, and the figures behind it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Judged {
    /// The statement.
    pub says: String,
    /// What the data say.
    pub verdict: Verdict,
    /// Why, with figures.
    pub because: String,
}

/// Judge every claim of an experiment.
pub fn judge(experiment: &Experiment, classes: &[ClassView<'_>]) -> Vec<Judged> {
    experiment
        .claims
        .iter()
        .map(|claim| judge_one(claim, classes))
        .collect()
}

fn judge_one(claim: &Claim, classes: &[ClassView<'_>]) -> Judged {
    let says = claim.says().to_string();
    let mut views = Vec::new();
    for class in claim.classes() {
        match classes.iter().find(|c| c.class == *class) {
            Some(view) => views.push(view),
            None => {
                let because = format!("there is no {class} in the recording");
                return Judged {
                    says,
                    verdict: Verdict::NotMeasured,
                    because,
                };
            }
        }
    }
    // Nothing is in a layer that is misspelt; that it costs nothing proves nothing.
    let unknown = claim
        .layers()
        .into_iter()
        .find(|layer| !views.iter().any(|view| has_layer(view, layer)));
    if let Some(layer) = unknown {
        let because = format!("no function in the recording is in layer {layer}");
        return Judged {
            says,
            verdict: Verdict::NotMeasured,
            because,
        };
    }
    let (verdict, because) = match claim {
        Claim::Alike {
            layer,
            within_ratio,
            ..
        } => {
            let (ratio, told) = spread(layer, &views);
            (
                holds(ratio <= *within_ratio),
                format!("{told}; alike is up to {within_ratio}"),
            )
        }
        Claim::Unlike {
            layer,
            beyond_ratio,
            ..
        } => {
            let (ratio, told) = spread(layer, &views);
            (
                holds(ratio > *beyond_ratio),
                format!("{told}; unlike is beyond {beyond_ratio}"),
            )
        }
        Claim::Smaller { of, than, .. } => smaller(of, than, &views),
        Claim::Bottleneck { layer, .. } => (Verdict::Answered, tops(layer.as_deref(), &views)),
    };
    Judged {
        says,
        verdict,
        because,
    }
}

fn has_layer(view: &ClassView<'_>, layer: &str) -> bool {
    let functions = &view.recording.functions;
    functions.iter().any(|f| f.layer.as_deref() == Some(layer))
}

fn holds(yes: bool) -> Verdict {
    if yes {
        Verdict::Holds
    } else {
        Verdict::DoesNotHold
    }
}

/// Largest over smallest, and the figures.
fn spread(layer: &str, views: &[&ClassView<'_>]) -> (f64, String) {
    let mut costs: Vec<(Class, f64)> = Vec::new();
    let mut told = Vec::new();
    for view in views {
        let insns = view.layer_insns(layer);
        costs.push((view.class, insns as f64 / view.packets.max(1) as f64));
        told.push(format!(
            "{} {}",
            view.class,
            per_packet(insns, view.packets)
        ));
    }
    let most = costs.iter().map(|(_, c)| *c).fold(f64::MIN, f64::max);
    let least = costs.iter().map(|(_, c)| *c).fold(f64::MAX, f64::min);
    let ratio = if least > 0.0 {
        most / least
    } else {
        f64::INFINITY
    };
    (
        ratio,
        format!("{}: largest over smallest {ratio:.2}", told.join(", ")),
    )
}

fn smaller(of: &[String], than: &[String], views: &[&ClassView<'_>]) -> (Verdict, String) {
    let mut all = true;
    let mut told = Vec::new();
    for view in views {
        let sum = |layers: &[String]| layers.iter().map(|l| view.layer_insns(l)).sum::<u64>();
        let (small, large) = (sum(of), sum(than));
        all &= small < large;
        told.push(format!(
            "{} {} ({:.0}%) against {} ({:.0}%)",
            view.class,
            per_packet(small, view.packets),
            percent(small, view.total),
            per_packet(large, view.packets),
            percent(large, view.total)
        ));
    }
    (
        holds(all),
        format!(
            "{} against {}: {}",
            of.join("+"),
            than.join("+"),
            told.join("; ")
        ),
    )
}

fn tops(layer: Option<&str>, views: &[&ClassView<'_>]) -> String {
    let told: Vec<String> = views
        .iter()
        .map(|view| match view.functions_of(layer).next() {
            Some(top) => format!(
                "{} {} ({})",
                view.class,
                printable(view.name(top.function), 60),
                per_packet(top.self_insns, view.packets)
            ),
            None => format!("{} nothing", view.class),
        })
        .collect();
    told.join("; ")
}

/// The verdicts as text.
pub fn render(judged: &[Judged], columns: usize) -> String {
    let mut out = String::new();
    for one in judged {
        let mark = match one.verdict {
            Verdict::Holds => "holds:    ",
            Verdict::DoesNotHold => "not so:   ",
            Verdict::Answered => "answer:   ",
            Verdict::NotMeasured => "no data:  ",
        };
        out.push_str(&wrapped(
            &format!("{mark}{}", printable(&one.says, 400)),
            columns,
        ));
        out.push('\n');
        out.push_str(&wrapped(
            &format!("          {}", printable(&one.because, 4000)),
            columns,
        ));
        out.push_str("\n\n");
    }
    out
}
