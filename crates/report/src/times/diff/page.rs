//! A comparison of times as the page's data: of functions the trees of both sides,
//! with every verdict beside them.

use std::borrow::Cow;

use netplumb_model::recording::env;
use netplumb_stats::judge::Verdict;

use super::terminal::{sentence, trust, two_clocks};
use super::{ClassDiff, Row, TimesDiff};
use crate::diff::arms::Pairs;
use crate::diff::sentence::words;
use crate::diff::{self, Sides};
use crate::interval;
use crate::number::printable;
use crate::page::{Page, PageBoth, PageClass, PageCompared, PageTimed, PageTimes};
use crate::shape::{Shape, shape};
use crate::times::as_costs;

/// What the page is given.
pub fn page(diff: &TimesDiff<'_>) -> Page {
    let costs = |recording| match shape(recording) {
        Shape::Times => Cow::Owned(as_costs(recording)),
        Shape::Costs | Shape::Rates => Cow::Borrowed(recording),
    };
    let (before, after) = (costs(diff.sides.before), costs(diff.sides.after));
    let same = std::ptr::eq(diff.sides.before, diff.sides.after);
    let sides = Sides {
        before: &before,
        after: if same { &before } else { &after },
        ..diff.sides
    };
    let pairs = Pairs {
        pairs: diff.classes.iter().map(|c| c.arms).collect(),
        ..Pairs::default()
    };
    // The trees are subtracted as those of instructions are; what came of it is told
    // by the blocks, and not by that.
    let costs = diff::compare(sides, &deduplicated(pairs), &[]);
    let mut page = diff::page::page(&costs);
    let mut trees: Vec<_> = costs.classes.iter().zip(page.classes).collect();
    page.classes = diff
        .classes
        .iter()
        .map(|class| {
            let of = |c: &&diff::ClassDiff| {
                (c.arms, c.before, c.after) == (class.arms, class.before, class.after)
            };
            let found = trees.iter().position(|(c, _)| of(c));
            let tree = found.map(|n| trees.swap_remove(n).1);
            // Sums of windows of unlike length can't be subtracted.
            let tree = tree.filter(|_| class.per != "call");
            compared(diff, class, tree.unwrap_or_default())
        })
        .collect();
    page.unit = "ns".into();
    // When each began, and how long attaching took, is no difference of the sides.
    for fact in &mut page.facts {
        if fact.key == env::STARTED || fact.key.starts_with("probes.attach") {
            fact.before = None;
        }
    }
    page.headline = diff.classes.iter().map(sentence).collect();
    if !diff.one_clock {
        page.headline.insert(0, two_clocks(diff).into());
        page.classes.extend(diff.both.iter().map(|both| {
            PageClass {
                class: both.class.to_string(),
                per: both.per.into(),
                sentence: format!("{}: what both clocks saw", words(both.class)),
                times: Some(PageTimes {
                    both: both
                        .functions
                        .iter()
                        .map(|f| PageBoth {
                            name: f.name.clone(),
                            calls: [f.calls, f.timed_calls],
                            insns: [f.self_insns, f.inclusive_insns],
                            ns: [f.self_ns, f.total_ns],
                        })
                        .collect(),
                    ..PageTimes::default()
                }),
                ..PageClass::default()
            }
        }));
    }
    page.headline.extend(diff.unpaired.iter().cloned());
    page.warnings = diff.differences.iter().map(ToString::to_string).collect();
    page.warnings.extend(diff.warnings.iter().cloned());
    page.trust = trust(diff);
    if page.classes.iter().any(|c| !c.contexts.is_empty()) {
        page.trust.push(
            "trees     layers, contexts and graphs are means of all blocks, without a verdict; own time below \
             nothing is drawn as nothing"
                .into(),
        );
    }
    page.timed = Some(PageTimed::default());
    page
}

fn deduplicated(mut pairs: Pairs) -> Pairs {
    let mut seen = Vec::new();
    pairs.pairs.retain(|pair| {
        let new = !seen.contains(pair);
        seen.push(*pair);
        new
    });
    pairs
}

fn compared(diff: &TimesDiff<'_>, class: &ClassDiff, costs: PageClass) -> PageClass {
    let was = &diff.sides.before.arms[class.arms.before].name;
    let is = &diff.sides.after.arms[class.arms.after].name;
    let whole = class.way.iter().chain(&class.total);
    let mut notes = Vec::new();
    if class.small > 0 {
        notes.push(format!("{} too small to rank on both sides", class.small));
    }
    if !class.one_side.is_empty() {
        notes.push(format!(
            "timed on one side only, in no figure here: {}",
            class.one_side.join(", ")
        ));
    }
    let rows = class.rows().map(|r| (r.name.as_str(), &r.judged));
    notes.extend(interval::noise(rows, class.apart));
    PageClass {
        arm: printable(
            &match was == is {
                true => is.clone(),
                false => format!("{was} → {is}"),
            },
            200,
        ),
        class: match class.before == class.after {
            true => class.after.to_string(),
            false => format!("{} → {}", class.before, class.after),
        },
        per: class.per.into(),
        sentence: sentence(class),
        could_not_act: class.idle.iter().map(ToString::to_string).collect(),
        // Noise makes of two functions what looks like one that moved.
        moves: Vec::new(),
        times: Some(PageTimes {
            compared: whole
                .map(|r| row("whole", r))
                .chain(class.stages.iter().map(|r| row("stage", r)))
                .chain(class.functions.iter().map(|r| row("function", r)))
                .collect(),
            notes,
            ..PageTimes::default()
        }),
        ..costs
    }
}

fn row(what: &str, row: &Row) -> PageCompared {
    let judged = &row.judged;
    let finite = |value: f64| if value.is_finite() { value } else { 0.0 };
    let [p50, p99] = row.quantiles;
    PageCompared {
        what: what.into(),
        name: printable(&row.name, 500),
        of: printable(&row.of, 40),
        before_ns: finite(judged.before),
        after_ns: finite(judged.after),
        ratio: judged
            .ratio
            .map(|r| [r.value, r.low, r.high])
            .filter(|r| r.iter().all(|v| v.is_finite())),
        smallest: judged.smallest,
        verdict: judged.verdict.as_str().into(),
        way: match judged.verdict {
            Verdict::Faster => "less",
            Verdict::Slower => "more",
            Verdict::NoDifference | Verdict::TooFew => "",
        }
        .into(),
        quantiles_ns: [p50[0], p50[1], p99[0], p99[1]],
    }
}
