//! Claims put to the data.

mod across;
mod counted;
mod course;
mod fit;
mod ratio;
mod samples;
mod subject;
mod traced;
mod turning;
mod varying;

pub(crate) use across::{changes, drawn, steady};
pub(crate) use samples::{CPU_USE, HANDLED, Samples};
pub(crate) use subject::What;

use std::borrow::Cow;

use netplumb_model::class::{Class, Direction};
use netplumb_model::experiment::{Claim, DiskDevice, Experiment};
use netplumb_model::recording::{Arm, Recording, env};
use netplumb_model::timing::INSTRUCTIONS;

use crate::analysis::ClassView;
use crate::events::rows::counts;
use crate::number::{per_packet, percent, printable};
use crate::page::PageClaim;
use crate::seeds;
use crate::shape::{Shape, shape};
use crate::text::wrapped;
use crate::trust::devices::varying;

/// Letters of a text on the page.
const PAGE_LETTERS: usize = 4_000;

/// How the data answer a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The data bear the claim out.
    Holds,
    /// The data refute it.
    DoesNotHold,
    /// The data show neither: too little was measured, or it varies too much.
    NotShown,
    /// A question, answered by the data.
    Answered,
    /// Something that the claim needs was not measured.
    NotMeasured,
}

impl Answer {
    /// As shown in reports: "holds", "does not hold".
    pub fn as_str(self) -> &'static str {
        match self {
            Answer::Holds => "holds",
            Answer::DoesNotHold => "does not hold",
            Answer::NotShown => "not shown",
            Answer::Answered => "answer",
            Answer::NotMeasured => "not measured",
        }
    }
}

/// A claim, its verdict, and the figures behind it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Judged {
    /// The claim's statement, as in the experiment file.
    pub says: String,
    /// How the data answer it.
    pub verdict: Answer,
    /// Why, with figures.
    pub because: String,
    /// What the conclusion calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What was found, as a part of a sentence.
    pub finding: String,
}

/// The outcome of a claim.
struct Outcome {
    verdict: Answer,
    because: String,
    finding: String,
}

impl Outcome {
    fn not_measured(because: String) -> Outcome {
        Outcome {
            verdict: Answer::NotMeasured,
            finding: format!("not measured: {because}"),
            because,
        }
    }

    /// The same, for figures that another run need not repeat: there equality shows nothing.
    fn not_repeated(self, device: DiskDevice) -> Outcome {
        let why = format!("disk {device} is not repeatable");
        match self.verdict {
            Answer::Holds | Answer::DoesNotHold => Outcome {
                verdict: Answer::NotShown,
                because: format!("{}, but {why}: use null_blk or brd", self.because),
                finding: format!("{}, in one run: {why}", self.finding),
            },
            _ => self,
        }
    }
}

/// An experiment without claims about other arms and directions than the requested ones, if any were
/// requested; and without a conclusion that names a removed claim.
pub fn asked(experiment: &Experiment, directions: &[Direction], arms: &[String]) -> Experiment {
    let is_asked = |claim: &Claim| {
        let named = claim.arms();
        let arms_are = arms.is_empty() || named.iter().all(|arm| arms.iter().any(|a| a == arm));
        let classes = claim.classes();
        let directions_are = directions.is_empty()
            || classes.iter().all(|class| directions.contains(&class.direction));
        arms_are && directions_are
    };
    only(experiment, is_asked)
}

/// An experiment with some of its claims.
fn only(experiment: &Experiment, keep: impl Fn(&Claim) -> bool) -> Experiment {
    let mut experiment = experiment.clone();
    let (kept, left) = (experiment.claims.into_iter()).partition(|claim| keep(claim));
    experiment.claims = kept;
    let names = |claim: &Claim| claim.name().map(|name| format!("{{{name}}}"));
    let left: Vec<Claim> = left;
    let is_cut = |text: &String| left.iter().filter_map(names).any(|name| text.contains(&name));
    experiment.conclusion = experiment.conclusion.filter(|text| !is_cut(text));
    experiment
}

/// An experiment split by the parts of a recording: each claim is judged once, by the part named like its quantity,
/// or the first that has that quantity, or else the first. The first part has the title and the question, too. A
/// conclusion that names claims of several parts is empty in all.
pub fn by_part(experiment: &Experiment, parts: &[(&str, Cow<'_, Recording>)]) -> Vec<Experiment> {
    let events: Vec<_> = (parts.iter())
        .map(|(_, part)| match shape(part) {
            Shape::Counts => counts(part),
            _ => Vec::new(),
        })
        .collect();
    let has = |number: usize, name: &str| {
        let part = &parts[number].1;
        let instrument = part.environment.get(env::CLOCK);
        let mut known = part.quantities.iter();
        known.any(|of| of.name == name && Some(&of.instrument) == instrument)
            || events[number].iter().any(|event| event.name == name)
    };
    let owner = |claim: &Claim| {
        let quantity = claim.quantity()?;
        let named = parts.iter().position(|(name, _)| *name == quantity);
        named.or_else(|| (0..parts.len()).find(|number| has(*number, quantity)))
    };
    let of = |number: usize| {
        let own = only(experiment, |claim| owner(claim).unwrap_or(0) == number);
        // A conclusion that names no claim is the first part's. Other parts without one get no list instead.
        let is_own = |text: &String| number == 0 || text.contains('{');
        let conclusion = (experiment.conclusion.is_some())
            .then(|| own.conclusion.clone().filter(is_own).unwrap_or_default());
        let own = Experiment { conclusion, ..own };
        match number {
            0 => own,
            _ => Experiment { title: String::new(), question: String::new(), ..own },
        }
    };
    (0..parts.len()).map(of).collect()
}

/// Judge every claim of an experiment: by equality where figures are the same in every run,
/// and by intervals where they vary.
pub fn judge(experiment: &Experiment, classes: &[ClassView<'_>]) -> Vec<Judged> {
    if experiment.claims.is_empty() {
        return Vec::new();
    }
    let recording = classes.first().map(|view| view.recording);
    if let Some(recording) = recording.filter(|recording| samples::varies(recording)) {
        return judge_blocks(experiment, recording);
    }
    let classes = seeds::typical(classes);
    let samples = recording.map(Samples::from_recording);
    let counted = |claim: &Claim| {
        if let Claim::Calls { .. } = claim {
            return Some(traced::outcome(claim, &classes));
        }
        let quantity = claim.quantity()?;
        counted::is_about(recording?, quantity).then(|| counted::outcome(claim, quantity, &classes))
    };
    let of = |claim: &Claim| match &samples {
        // Instructions are what costs are of; all else is of blocks.
        Some(samples) if claim.quantity().is_some_and(|q| q != INSTRUCTIONS.name) => {
            varying::outcome(experiment, claim, samples)
        }
        _ => outcome(claim, &classes),
    };
    let claims = experiment.claims.iter();
    let outcome = |claim: &Claim| {
        let outcome = counted(claim).unwrap_or_else(|| of(claim));
        match recording.and_then(|recording| varying_disk(claim, recording)) {
            Some(device) => outcome.not_repeated(device),
            None => outcome,
        }
    };
    claims.map(|claim| judged(claim, outcome(claim))).collect()
}

/// The disk that makes an arm of a claim different in each run.
fn varying_disk(claim: &Claim, recording: &Recording) -> Option<DiskDevice> {
    let named = claim.arms();
    let is_its = |arm: &&Arm| named.is_empty() || named.contains(&seeds::name(arm));
    recording.arms.iter().filter(is_its).find_map(varying)
}

/// Judge every claim of an experiment, whatever its recording measures; `classes` have its
/// costs.
pub fn judge_all(
    experiment: &Experiment,
    recording: &Recording,
    classes: &[ClassView<'_>],
) -> Vec<Judged> {
    match samples::varies(recording) {
        true => judge_blocks(experiment, recording),
        false => judge(experiment, classes),
    }
}

/// The same by the blocks of a recording whose figures vary: of times, or of a bench.
pub fn judge_blocks(experiment: &Experiment, recording: &Recording) -> Vec<Judged> {
    let samples = Samples::from_recording(recording);
    let claims = experiment.claims.iter();
    claims.map(|claim| judged(claim, varying::outcome(experiment, claim, &samples))).collect()
}

fn judged(claim: &Claim, outcome: Outcome) -> Judged {
    let Outcome { verdict, because, finding } = outcome;
    Judged {
        says: claim.says().to_string(),
        verdict,
        because,
        name: claim.name().map(String::from),
        finding,
    }
}

fn outcome(claim: &Claim, classes: &[ClassView<'_>]) -> Outcome {
    // A misspelt layer contains nothing, so its zero cost proves nothing.
    let unknown =
        claim.layers().into_iter().find(|layer| !classes.iter().any(|view| has_layer(view, layer)));
    if let Some(layer) = unknown {
        return Outcome::not_measured(format!("no function in the recording is in layer {layer}"));
    }
    let arm = match claim {
        Claim::Alike { arm, .. }
        | Claim::Unlike { arm, .. }
        | Claim::Smaller { arm, .. }
        | Claim::Bottleneck { arm, .. } => arm.as_deref(),
        _ => return across::outcome(claim, classes),
    };
    let mut views = Vec::new();
    for class in claim.classes() {
        match find(classes, *class, arm) {
            Some(view) => views.push(view),
            None => return Outcome::not_measured(missing(*class, arm)),
        }
    }
    // With several arms, the class alone does not identify the arm.
    let several = |view: &&&ClassView<'_>| {
        let alike = classes.iter().filter(|other| other.class == view.class);
        alike.count() > 1
    };
    let which = match views.iter().find(several) {
        Some(view) => format!(" with {}", printable(seeds::name(view.arm()), 60)),
        None => String::new(),
    };
    let outcome = within(claim, &views);
    Outcome {
        because: match which.is_empty() {
            true => outcome.because,
            false => format!("{}: {}", which.trim_start(), outcome.because),
        },
        finding: format!("{}{which}", outcome.finding),
        ..outcome
    }
}

/// The view of a class in an arm, or in the first arm that has it.
fn find<'c, 'r>(
    classes: &'c [ClassView<'r>],
    class: Class,
    arm: Option<&str>,
) -> Option<&'c ClassView<'r>> {
    classes
        .iter()
        .filter(|view| view.class == class)
        .find(|view| arm.is_none_or(|arm| seeds::is_called(view.recording, view.arm(), arm)))
}

fn missing(class: Class, arm: Option<&str>) -> String {
    match arm {
        Some(arm) => format!("there is no {class} of {} in the recording", printable(arm, 60)),
        None => format!("there is no {class} in the recording"),
    }
}

/// Claims about one arm's classes and layers.
fn within(claim: &Claim, views: &[&ClassView<'_>]) -> Outcome {
    let named = list(views.iter().map(|v| v.class.to_string()));
    let (verdict, because, finding) = match claim {
        Claim::Alike { layer, within_ratio, .. } => {
            let (ratio, text) = spread(layer, views);
            let alike = ratio <= *within_ratio;
            let word = if alike { "costs alike" } else { "does not cost alike" };
            (
                holds(alike),
                format!("{text}; alike is up to {within_ratio}"),
                format!("the {layer} layer {word} in {named} (largest over smallest {ratio:.2})"),
            )
        }
        Claim::Unlike { layer, beyond_ratio, .. } => {
            let (ratio, text) = spread(layer, views);
            let unlike = ratio > *beyond_ratio;
            let word = if unlike { "does not cost alike" } else { "costs alike" };
            (
                holds(unlike),
                format!("{text}; unlike is beyond {beyond_ratio}"),
                format!("the {layer} layer {word} in {named} (largest over smallest {ratio:.2})"),
            )
        }
        Claim::Smaller { of, than, within_ratio, .. } => {
            let (ratio, text) = smaller(of, than, views);
            let small = ratio <= *within_ratio;
            let word = if small { "is" } else { "is not always" };
            let (of, than) = (of.join("+"), than.join("+"));
            (
                holds(small),
                format!("{of} against {than}: {text}; small is up to {within_ratio:.2} of it"),
                format!(
                    "{of} {word} at most {within_ratio:.2} of {than} in {named} (most {ratio:.2})"
                ),
            )
        }
        Claim::Bottleneck { layer, .. } => {
            let text = tops(layer.as_deref(), views);
            (Answer::Answered, text.clone(), format!("the largest are {text}"))
        }
        _ => unreachable_kind(),
    };
    Outcome { verdict, because, finding }
}

/// Kinds about several arms are across.rs's, and never come here.
fn unreachable_kind() -> (Answer, String, String) {
    let why = "this kind of claim is about several arms".to_string();
    (Answer::NotMeasured, why.clone(), why)
}

/// "a", "a and b", "a, b and c".
fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    match items.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// The ratio of the largest to the smallest cost, as a number and in words.
fn largest_over_smallest(costs: impl Iterator<Item = f64>) -> (f64, String) {
    let (least, most) = costs.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), cost| {
        (least.min(cost), most.max(cost))
    });
    let ratio = match least > 0.0 {
        true => most / least,
        false if most > 0.0 => f64::INFINITY,
        false => 1.0,
    };
    (ratio, format!("largest over smallest {ratio:.3}"))
}

fn has_layer(view: &ClassView<'_>, layer: &str) -> bool {
    let functions = &view.recording.functions;
    functions.iter().any(|f| f.layer.as_deref() == Some(layer))
}

fn holds(yes: bool) -> Answer {
    if yes { Answer::Holds } else { Answer::DoesNotHold }
}

/// Largest over smallest, and the figures.
fn spread(layer: &str, views: &[&ClassView<'_>]) -> (f64, String) {
    let mut costs: Vec<(Class, f64)> = Vec::new();
    let mut listed = Vec::new();
    for view in views {
        let insns = view.layer_insns(layer);
        costs.push((view.class, insns as f64 / view.packets.max(1) as f64));
        listed.push(format!("{} {}", view.class, per_packet(insns, view.packets)));
    }
    let most = costs.iter().map(|(_, c)| *c).fold(f64::MIN, f64::max);
    let least = costs.iter().map(|(_, c)| *c).fold(f64::MAX, f64::min);
    let ratio = if least > 0.0 { most / least } else { f64::INFINITY };
    (ratio, format!("{}: largest over smallest {ratio:.2}", listed.join(", ")))
}

/// The largest ratio of any class, and the figures.
fn smaller(of: &[String], than: &[String], views: &[&ClassView<'_>]) -> (f64, String) {
    let mut most: f64 = 0.0;
    let mut ratios = Vec::new();
    for view in views {
        let sum = |layers: &[String]| layers.iter().map(|l| view.layer_insns(l)).sum::<u64>();
        let (small, large) = (sum(of), sum(than));
        let ratio = match (small, large) {
            (_, 1..) => small as f64 / large as f64,
            // Nothing beside nothing is not small.
            _ => f64::INFINITY,
        };
        most = most.max(ratio);
        ratios.push(format!(
            "{} {} ({:.0}%) against {} ({:.0}%), {ratio:.2} of it",
            view.class,
            per_packet(small, view.packets),
            percent(small, view.total),
            per_packet(large, view.packets),
            percent(large, view.total)
        ));
    }
    (most, ratios.join("; "))
}

fn tops(layer: Option<&str>, views: &[&ClassView<'_>]) -> String {
    let largest: Vec<String> = views
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
    largest.join("; ")
}

/// The verdicts for the page.
pub(crate) fn page(judged: Vec<Judged>) -> Vec<PageClaim> {
    let text = |text: &str| printable(&text.trim().replace('\n', " "), PAGE_LETTERS);
    let claim = |claim: Judged| PageClaim {
        says: text(&claim.says),
        verdict: claim.verdict.as_str().into(),
        because: text(&claim.because),
    };
    judged.into_iter().map(claim).collect()
}

/// The verdicts for a terminal.
pub fn render(judged: &[Judged], columns: usize) -> String {
    let mut out = String::new();
    for one in judged {
        let mark = match one.verdict {
            Answer::Holds => "holds:    ",
            Answer::DoesNotHold => "fails:    ",
            Answer::NotShown => "not shown: ",
            Answer::Answered => "answer:   ",
            Answer::NotMeasured => "no data:  ",
        };
        out.push_str(&wrapped(&format!("{mark}{}", printable(&one.says, 400)), columns));
        out.push('\n');
        out.push_str(&wrapped(&format!("          {}", printable(&one.because, 4000)), columns));
        out.push_str("\n\n");
    }
    out
}
