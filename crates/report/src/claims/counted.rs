//! Claims about counts in guests that are the same in each run, beside instructions: calls of
//! functions, and what a guest's disk did. They are equal or they are not.

use netplumb_model::chain;
use netplumb_model::class::Class;
use netplumb_model::experiment::{Claim, Relation};
use netplumb_model::quantity::{Repeats, Subject};
use netplumb_model::recording::Recording;

use super::{Answer, Outcome, find, holds, largest_over_smallest, list, missing};
use crate::analysis::ClassView;
use crate::disks::value_text;
use crate::number::printable;
use crate::seeds;

/// The quantity of claims about calls of a function.
const CALLS: &str = "calls";
const NAME_CHARACTERS: usize = 60;

/// Whether a claim is about such a count, in a recording whose costs are the same in every run.
pub(super) fn is_about(recording: &Recording, quantity: &str) -> bool {
    let of_blocks = |at: usize| {
        let mut scalars = recording.scalars.iter();
        scalars.any(|s| s.quantity as usize == at && matches!(s.of, Subject::Block(_)))
    };
    let at = recording
        .quantities
        .iter()
        .position(|known| known.name == quantity && known.repeats == Repeats::Exactly);
    quantity == CALLS || at.is_some_and(of_blocks)
}

/// The count that a claim is about.
struct What<'c> {
    quantity: &'c str,
    function: Option<&'c str>,
}

impl What<'_> {
    /// The figure of a class, per run or packet.
    fn value(&self, view: &ClassView<'_>) -> Result<f64, String> {
        if self.quantity != CALLS {
            let found = self.of_blocks(view);
            let arm = || printable(seeds::name(view.arm()), NAME_CHARACTERS);
            return found
                .ok_or_else(|| format!("{} was not counted with {}", self.quantity, arm()));
        }
        let name = self.function.ok_or("a claim about calls names a function")?;
        let own = chain::functions(view.recording, name);
        let calls: u64 =
            view.functions.iter().filter(|f| own.contains(&f.function)).map(|f| f.calls).sum();
        Ok(calls as f64 / view.packets.max(1) as f64)
    }

    fn of_blocks(&self, view: &ClassView<'_>) -> Option<f64> {
        let recording = view.recording;
        let known = |at: u32| {
            let quantity = recording.quantities.get(at as usize);
            quantity.is_some_and(|quantity| quantity.name == self.quantity)
        };
        let is_its = |of: Subject| match of {
            Subject::Block(block) => view.blocks.contains(&block),
            _ => false,
        };
        let values: Vec<f64> = recording
            .scalars
            .iter()
            .filter(|scalar| known(scalar.quantity) && is_its(scalar.of))
            .map(|scalar| scalar.value)
            .collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    fn name(&self) -> String {
        match self.function.filter(|_| self.quantity == CALLS) {
            Some(function) => format!("calls of {}", printable(function, NAME_CHARACTERS)),
            None => printable(self.quantity, NAME_CHARACTERS),
        }
    }

    fn value_text(&self, view: &ClassView<'_>, value: f64) -> String {
        let quantities = view.recording.quantities.iter();
        let unit = quantities
            .filter(|quantity| quantity.name == self.quantity)
            .map(|quantity| quantity.unit.as_str())
            .next();
        match unit {
            Some(unit) => value_text(value, unit),
            None => value_text(value, CALLS),
        }
    }
}

/// The outcome of a claim about such a count.
pub(super) fn outcome(claim: &Claim, quantity: &str, classes: &[ClassView<'_>]) -> Outcome {
    let function = match claim {
        Claim::Compare { function, .. }
        | Claim::Unchanged { function, .. }
        | Claim::Ranking { function, .. } => function.as_deref(),
        _ => {
            let why = format!(
                "{} is for claims of kind compare, unchanged and ranking",
                printable(quantity, NAME_CHARACTERS)
            );
            return Outcome::not_measured(why);
        }
    };
    let what = What { quantity, function };
    let mut found = Vec::new();
    for class in claim.classes() {
        match of_class(claim, &what, *class, classes) {
            Ok(one) => found.push(one),
            Err(why) => return Outcome::not_measured(why),
        }
    }
    let verdicts = found.iter().map(|(verdict, _)| *verdict);
    let worst = verdicts.clone().find(|verdict| *verdict != Answer::Holds);
    let because: Vec<String> = found.iter().map(|(_, why)| why.clone()).collect();
    let because = because.join("; ");
    Outcome { verdict: worst.unwrap_or(Answer::Holds), finding: because.clone(), because }
}

fn of_class(
    claim: &Claim,
    what: &What<'_>,
    class: Class,
    classes: &[ClassView<'_>],
) -> Result<(Answer, String), String> {
    let of = |arm: Option<&str>| find(classes, class, arm).ok_or_else(|| missing(class, arm));
    let name = |view: &ClassView<'_>| printable(seeds::name(view.arm()), NAME_CHARACTERS);
    if let Claim::Compare { arm, against, is, .. } = claim {
        let (one, other) = (of(Some(arm))?, of(against.as_deref())?);
        let (now, was) = (what.value(one)?, what.value(other)?);
        let verdict = match is {
            None => match claim.bound() {
                Some(bound) => holds(bound.has(now / was)),
                None => Answer::Answered,
            },
            Some(Relation::Same) => holds(now == was),
            Some(Relation::Different) => holds(now != was),
            Some(Relation::Less) => holds(now < was),
            Some(Relation::More) => holds(now > was),
        };
        let times = match was > 0.0 && now != was {
            true => format!(", {:.2} times", now / was),
            false => String::new(),
        };
        let claimed = claim.bound().map_or_else(String::new, |bound| format!(", claimed {bound}"));
        let text = format!(
            "{}: {} with {} against {} with {}{times}{claimed}",
            what.name(),
            what.value_text(one, now),
            name(one),
            what.value_text(other, was),
            name(other)
        );
        return Ok((verdict, text));
    }
    let (Claim::Unchanged { arms, .. } | Claim::Ranking { arms, .. }) = claim else {
        return Err("this kind of claim is about one arm".into());
    };
    let mut all = Vec::new();
    let named = |view: &&ClassView<'_>| {
        let named = arms.iter().any(|arm| seeds::name(view.arm()) == arm);
        view.class == class && (arms.is_empty() || named)
    };
    for view in classes.iter().filter(named) {
        all.push((what.value(view)?, view));
    }
    let [(first, view), rest @ ..] = &all[..] else {
        return Err(missing(class, None));
    };
    if let Claim::Unchanged { .. } = claim {
        if rest.is_empty() {
            return Err("only one arm was measured".into());
        }
        let differ: Vec<String> = rest
            .iter()
            .filter(|(value, _)| value != first)
            .map(|(value, view)| format!("{} with {}", what.value_text(view, *value), name(view)))
            .collect();
        if let Some(bound) = claim.bound() {
            let (ratio, range) = largest_over_smallest(all.iter().map(|(value, _)| *value));
            let text = format!("{}: {range}, claimed {bound}", what.name());
            return Ok((holds(bound.has(ratio)), text));
        }
        let (is, of) = (differ.is_empty(), what.value_text(view, *first));
        let text = match is {
            true => format!("{}: {of} with each", what.name()),
            false => {
                format!("{}: {of} with {}, {}", what.name(), name(view), list(differ.into_iter()))
            }
        };
        return Ok((holds(is), text));
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let text: Vec<String> = all
        .iter()
        .map(|(value, view)| format!("{} {}", name(view), what.value_text(view, *value)))
        .collect();
    Ok((Answer::Answered, format!("{}: {}", what.name(), text.join(", "))))
}
