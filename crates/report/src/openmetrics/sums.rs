//! Sums of counts and costs over windows, as an exposition has them. They only rise, so that a scraper
//! can compute rates at any time; and their number is bounded.

use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::class::Direction;
use netplumb_model::events::{self, COUNT, ENABLED, RUNNING, TASK_COUNT, TASK_TIME, TIME};
use netplumb_model::quantity::{Quantity, Scalar};
use netplumb_model::recording::Recording;
use netplumb_model::span::Times;
use netplumb_model::timing::OWN_CPU;

use super::histogram::{octaves, with_bounds};
use super::metric::{self, Metric};
use super::text::{Labels, Number, Text, conditions, escaped, limited};
use crate::events::counted::focus;
use crate::events::layers::by_layer;

/// The series of all functions without their own series.
pub const OTHER: &str = "[other]";
/// The most series of a family of events: with CPUs or tasks there may be many.
const MAX_SERIES: usize = 5_000;
/// The same for series that have only a name.
const MAX_NAMES: usize = 1_000;

/// Which functions have a series of their own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Keep {
    /// The most functions of each class and quantity.
    functions: usize,
    /// The least part of a CPU in a window or, if costs are not times, of the window's
    /// whole.
    share: f64,
}

impl Keep {
    /// Keep the most expensive functions of all.
    pub fn all(functions: usize) -> Keep {
        Keep { functions, share: 0.0 }
    }

    /// Keep functions that were expensive in some window. A series stays once it exists: its sum would
    /// otherwise disappear and come back.
    pub fn expensive(functions: usize, share: f64) -> Keep {
        Keep { functions, share }
    }
}

/// The key of an event's sum: its arm, its name, and the label and value of its part.
type OfEvent = (String, String, PartLabel);
type PartLabel = Option<(&'static str, String)>;

/// Labels of parts.
const CPU: &str = "cpu";
const TASK: &str = "task";
const LAYER: &str = "layer";

/// A function, by its labels.
type OfFunction = (String, String, String);

/// The functions of a class and quantity.
#[derive(Debug, Clone, Default)]
struct Functions {
    each: BTreeMap<OfFunction, u64>,
    other: u64,
    calls: u64,
}

/// Sums over windows, of one instrument or of several.
#[derive(Debug, Clone)]
pub struct Sums {
    keep: Keep,
    conditions: BTreeMap<String, Labels>,
    windows: BTreeMap<String, (u64, u64)>,
    own_ns: BTreeMap<String, f64>,
    losses: BTreeMap<(String, String), u64>,
    unavailable: BTreeMap<String, String>,
    /// Counts, and times.
    events: [BTreeMap<OfEvent, f64>; 2],
    /// The time enabled and the time running of events.
    counted_ns: BTreeMap<(String, String), [f64; 2]>,
    quantities: Vec<Quantity>,
    /// By quantity, and labels of a class.
    functions: BTreeMap<(usize, Labels), Functions>,
    /// By quantity, instrument and arm: in the kernel, and in user mode.
    modes: BTreeMap<(usize, String, String), [u64; 2]>,
    left_out: BTreeMap<&'static str, BTreeSet<OfEvent>>,
    /// Times, and the number that passed the stage over.
    spans: BTreeMap<OfSpan, (Times, u64)>,
}

/// The time between two events: its place, its labels, and its kind.
type OfSpan = (u16, String, &'static str);

impl Sums {
    /// Sums without any window.
    pub fn new(keep: Keep) -> Sums {
        Sums {
            keep,
            conditions: BTreeMap::new(),
            windows: BTreeMap::new(),
            own_ns: BTreeMap::new(),
            losses: BTreeMap::new(),
            unavailable: BTreeMap::new(),
            events: Default::default(),
            counted_ns: BTreeMap::new(),
            quantities: Vec::new(),
            functions: BTreeMap::new(),
            modes: BTreeMap::new(),
            left_out: BTreeMap::new(),
            spans: BTreeMap::new(),
        }
    }

    /// Add the blocks of a recording from this one on, with the costs of some classes: by arm and
    /// direction. Losses are the whole recording's.
    pub fn add(
        &mut self,
        recording: &Recording,
        from: usize,
        is_shown: &dyn Fn(u32, Direction) -> bool,
    ) {
        let clock = recording.instruments().first().map_or("", |name| name);
        let arms: BTreeSet<u32> = recording.blocks.iter().map(|block| block.arm).collect();
        let any = |arm: &u32| Direction::ALL.iter().any(|of| is_shown(*arm, *of));
        let shown: Vec<usize> = (arms.into_iter().filter(any)).map(|arm| arm as usize).collect();
        self.conditions.insert(clock.to_string(), conditions(recording, &shown));
        for (instrument, losses) in &recording.losses {
            for loss in losses {
                let key = (instrument.clone(), limited(&loss.cause));
                if self.losses.len() < MAX_NAMES || self.losses.contains_key(&key) {
                    self.losses.insert(key, loss.count);
                }
            }
        }
        let not_measured = recording.not_measured.get(events::INSTRUMENT);
        for (name, why) in not_measured.into_iter().flatten().take(MAX_NAMES) {
            self.unavailable.insert(limited(name), limited(why));
        }
        for block in recording.blocks.iter().skip(from) {
            let (windows, ns) = self.windows.entry(block.instrument.clone()).or_default();
            *windows += 1;
            *ns = ns.saturating_add(block.duration_ns);
        }
        self.add_own(recording, from);
        self.add_events(recording, from);
        self.add_functions(recording, from, is_shown);
        self.add_spans(recording, from);
    }

    fn add_own(&mut self, recording: &Recording, from: usize) {
        for scalar in recording.scalars_of(&OWN_CPU) {
            let block = scalar.block().filter(|b| *b as usize >= from);
            // The cost of counts that the kernel keeps by itself is not known.
            let block = block.and_then(|b| recording.blocks.get(b as usize));
            let looked_at = recording.environment.contains_key(events::BROKEN_DOWN);
            if let Some(block) = block.filter(|b| looked_at || b.instrument != events::INSTRUMENT) {
                *self.own_ns.entry(block.instrument.clone()).or_default() += scalar.value;
            }
        }
    }

    fn add_events(&mut self, recording: &Recording, from: usize) {
        // Its arm, its name, and itself.
        let named = |scalar: &Scalar| {
            let block = scalar.block().filter(|b| *b as usize >= from)?;
            let block = recording.blocks.get(block as usize)?;
            let arm = limited(&recording.arms.get(block.arm as usize)?.name);
            Some((arm, limited(scalar.item.label.as_deref()?)))
        };
        let by = recording.environment.get(events::BROKEN_DOWN);
        let by_layers = by.is_some_and(|by| by == events::By::Layer.as_str());
        for (at, of_cpus, of_tasks, metric) in
            [(0, &COUNT, &TASK_COUNT, &metric::EVENTS), (1, &TIME, &TASK_TIME, &metric::EVENT_TIME)]
        {
            let by_cpu = recording.scalars_of(of_cpus).filter_map(|scalar| {
                let (arm, name) = named(scalar)?;
                let part = scalar.item.number.map(|number| (CPU, number.to_string()));
                Some((arm, name, part, scalar.value))
            });
            let by_task = recording.scalars_of(of_tasks).filter_map(|scalar| {
                let (arm, name) = named(scalar)?;
                let thread = recording.threads.get(scalar.item.number? as usize)?;
                Some((arm, name, Some((TASK, limited(&thread.name))), scalar.value))
            });
            let mut all: Vec<(String, String, PartLabel, f64)> = by_cpu.chain(by_task).collect();
            if at == 0 {
                let by_layer = by_layer(recording).into_iter();
                all.extend(by_layer.filter_map(|(block, event, layer, count)| {
                    let block =
                        recording.blocks.get(block as usize).filter(|_| block as usize >= from)?;
                    let arm = limited(&recording.arms.get(block.arm as usize)?.name);
                    let part = Some((LAYER, limited(layer)));
                    Some((arm, limited(event), part, count as f64))
                }));
            }
            // Parts, where there are any, add up to the sum.
            let in_parts: BTreeSet<(String, String)> = (all.iter())
                .filter(|(_, _, part, _)| part.is_some())
                .map(|(arm, name, ..)| (arm.clone(), name.clone()))
                .collect();
            for (arm, name, part, value) in all {
                let is_whole = part.is_none();
                // A window without any has no parts, and no series of the whole either.
                let no_parts = at == 0 && by_layers && value == 0.0;
                if is_whole && (no_parts || in_parts.contains(&(arm.clone(), name.clone()))) {
                    continue;
                }
                let mut key = (arm, name, part);
                if self.events[at].len() >= MAX_SERIES && !self.events[at].contains_key(&key) {
                    let left = self.left_out.entry(metric_name(metric)).or_default();
                    if left.len() < MAX_SERIES {
                        left.insert(key.clone());
                    }
                    let label = key.2.map_or(CPU, |(label, _)| label);
                    key.2 = Some((label, OTHER.into()));
                }
                *self.events[at].entry(key).or_default() += value;
            }
        }
        for (end, declared) in [&ENABLED, &RUNNING].into_iter().enumerate() {
            for scalar in recording.scalars_of(declared) {
                let Some(key) = named(scalar) else {
                    continue;
                };
                if self.counted_ns.len() < MAX_SERIES || self.counted_ns.contains_key(&key) {
                    self.counted_ns.entry(key).or_default()[end] += scalar.value;
                }
            }
        }
    }

    /// The place of a quantity.
    fn quantity(&mut self, quantity: &Quantity) -> usize {
        let known = self.quantities.iter().position(|q| q == quantity);
        known.unwrap_or_else(|| {
            self.quantities.push(quantity.clone());
            self.quantities.len() - 1
        })
    }

    fn add_functions(
        &mut self,
        recording: &Recording,
        from: usize,
        is_shown: &dyn Fn(u32, Direction) -> bool,
    ) {
        type Key = (u32, u32, Direction);
        let mut sums: BTreeMap<Key, BTreeMap<u32, u64>> = BTreeMap::new();
        let mut calls: BTreeMap<Key, u64> = BTreeMap::new();
        for cost in recording.costs.iter().filter(|c| c.block as usize >= from) {
            let (Some(block), Some(node)) = (
                recording.blocks.get(cost.block as usize),
                recording.nodes.get(cost.node as usize),
            ) else {
                continue;
            };
            if !is_shown(block.arm, cost.direction) {
                continue;
            }
            let key = (cost.quantity, block.arm, cost.direction);
            let of = sums.entry(key).or_default();
            let sum = of.entry(node.function).or_default();
            *sum = sum.saturating_add(cost.own);
            *calls.entry(key).or_default() += cost.calls;
        }
        let length_ns: u64 =
            (recording.blocks.iter().skip(from)).map(|block| block.duration_ns).sum();
        for (key, functions) in sums {
            let (quantity, arm, direction) = key;
            let (Some(quantity), Some(arm)) =
                (recording.quantities.get(quantity as usize), recording.arms.get(arm as usize))
            else {
                continue;
            };
            let whole = match quantity.unit.as_str() {
                "ns" => length_ns as f64,
                _ => functions.values().sum::<u64>() as f64,
            };
            let least = self.keep.share * whole;
            let class = Labels::none()
                .with("arm", &limited(&arm.name))
                .with("proto", arm.proto.as_str())
                .with("direction", direction.as_str());
            let quantity = self.quantity(quantity);
            let most = self.keep.functions;
            let of = self.functions.entry((quantity, class)).or_default();
            of.calls += calls.get(&key).copied().unwrap_or(0);
            let mut named: BTreeMap<OfFunction, u64> = BTreeMap::new();
            for (function, own) in functions {
                if let Some(function) = recording.functions.get(function as usize) {
                    let text =
                        |value: &Option<String>| value.as_deref().map(limited).unwrap_or_default();
                    let name = limited(&function.name);
                    *named
                        .entry((name, text(&function.module), text(&function.layer)))
                        .or_default() += own;
                }
            }
            let mut named: Vec<(OfFunction, u64)> = named.into_iter().collect();
            named.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            for (function, own) in named {
                let is_expensive = own > 0 && own as f64 >= least;
                let has_room = is_expensive && of.each.len() < most;
                let sum = match has_room || of.each.contains_key(&function) {
                    true => of.each.entry(function).or_default(),
                    false => &mut of.other,
                };
                *sum = sum.saturating_add(own);
            }
        }
        for block in recording.blocks.iter().skip(from) {
            for total in &block.totals {
                let (Some(quantity), Some(arm)) = (
                    recording.quantities.get(total.quantity as usize),
                    recording.arms.get(block.arm as usize),
                ) else {
                    continue;
                };
                let key = (self.quantity(quantity), block.instrument.clone(), limited(&arm.name));
                let [kernel, user] = self.modes.entry(key).or_default();
                *kernel = kernel.saturating_add(total.kernel);
                *user = user.saturating_add(total.user);
            }
        }
    }

    fn add_spans(&mut self, recording: &Recording, from: usize) {
        for (span, stage) in recording.stages() {
            let block = recording.blocks.get(span.block as usize);
            let arm = block.and_then(|block| recording.arms.get(block.arm as usize));
            let Some(arm) = arm.filter(|_| span.block as usize >= from) else {
                continue;
            };
            let labels = format!(
                "arm=\"{}\",stage=\"{}\"",
                escaped(&limited(&arm.name)),
                escaped(&limited(&stage.name))
            );
            let key = (stage.order, labels, stage.kind.as_str());
            if self.spans.len() < MAX_NAMES || self.spans.contains_key(&key) {
                let (times, passed_over) = self.spans.entry(key).or_default();
                times.add(&span.times);
                *passed_over = passed_over.saturating_add(stage.passed_over);
            }
        }
    }

    fn render_spans(&self, text: &mut Text) {
        let each: Vec<(String, &Times)> = (self.spans.iter())
            .map(|((_, labels, kind), (times, _))| (format!("{labels},kind=\"{kind}\""), times))
            .collect();
        with_bounds(&metric::SPAN_DURATION, &octaves(), &each, text);
        if self.spans.len() > 1 {
            let name = format!("{}_total", metric::SPAN_PASSED_OVER.name);
            text.head(&metric::SPAN_PASSED_OVER);
            for ((_, labels, _), (_, passed_over)) in &self.spans {
                text.line(&name, labels, Number::Whole(*passed_over));
            }
        }
    }

    /// All families, without an end mark.
    pub fn render(&self, text: &mut Text) {
        let by = |name: &'static str, value: &str| Labels::none().with(name, value);
        let once = |labels: &Labels| (labels.clone(), Number::Whole(1));
        text.family(&metric::RECORDING, self.conditions.values().map(once));
        let windows = self.windows.iter();
        text.family(
            &metric::WINDOWS,
            windows.clone().map(|(name, (n, _))| (by("instrument", name), Number::Whole(*n))),
        );
        text.family(
            &metric::WINDOW_TIME,
            windows.map(|(name, (_, ns))| (by("instrument", name), Number::seconds(*ns as f64))),
        );
        self.render_events(text);
        self.render_functions(text);
        self.render_spans(text);
        let own = self.own_ns.iter();
        text.family(
            &metric::OWN_CPU_TIME,
            own.map(|(name, ns)| (by("instrument", name), Number::seconds(*ns))),
        );
        let lost = self.losses.iter();
        text.family(
            &metric::LOST,
            lost.map(|((instrument, cause), count)| {
                (by("instrument", instrument).with("cause", cause), Number::Whole(*count))
            }),
        );
        let left = self.left_out.iter();
        text.family(
            &metric::SERIES_LEFT_OUT,
            left.map(|(family, series)| (by("family", family), Number::Whole(series.len() as u64))),
        );
    }

    fn render_events(&self, text: &mut Text) {
        for (sums, metric, is_time) in [
            (&self.events[0], &metric::EVENTS, false),
            (&self.events[1], &metric::EVENT_TIME, true),
        ] {
            let sample = |((arm, name, part), value): (&OfEvent, &f64)| {
                let mut labels =
                    Labels::none().with("arm", arm).with("event", name).with("focus", focus(name));
                if let Some((label, part)) = part {
                    labels = labels.with(label, part);
                }
                let value = match is_time {
                    true => Number::seconds(*value),
                    false => Number::Whole(*value as u64),
                };
                (labels, value)
            };
            text.family(metric, sums.iter().map(sample));
        }
        for (metric, end) in [(&metric::EVENT_ENABLED, 0), (&metric::EVENT_RUNNING, 1)] {
            let sample = |((arm, name), times): (&(String, String), &[f64; 2])| {
                let labels = Labels::none().with("arm", arm).with("event", name);
                (labels, Number::seconds(times[end]))
            };
            text.family(metric, self.counted_ns.iter().map(sample));
        }
        let unavailable = self.unavailable.iter().map(|(name, why)| {
            let labels = Labels::none().with("event", name).with("reason", why);
            (labels, Number::Whole(1))
        });
        text.family(&metric::EVENT_UNAVAILABLE, unavailable);
    }

    fn render_functions(&self, text: &mut Text) {
        for (at, quantity) in self.quantities.iter().enumerate() {
            let number = |value: u64| match quantity.unit.as_str() {
                "ns" => Number::seconds(value as f64),
                _ => Number::Whole(value),
            };
            let modes = self.modes.iter().filter(|((of, ..), _)| *of == at);
            let modes = modes.flat_map(|((_, instrument, arm), sums)| {
                ["kernel", "user"].into_iter().zip(sums).map(move |(mode, sum)| {
                    let labels = Labels::none().with("instrument", instrument);
                    (labels.with("arm", arm).with("mode", mode), number(*sum))
                })
            });
            text.family(&metric::of_modes(quantity), modes);
            let classes = || self.functions.iter().filter(move |((of, _), _)| *of == at);
            let calls = classes()
                .filter(|(_, functions)| functions.calls > 0)
                .map(|((_, class), of)| (class.clone(), Number::Whole(of.calls)));
            text.family(&metric::of_calls(quantity), calls);
            let each = classes().flat_map(|((_, class), of)| {
                let own = of.each.iter().map(|((name, module, layer), sum)| {
                    (name.as_str(), module.as_str(), layer.as_str(), *sum)
                });
                let rest = std::iter::once((OTHER, "", "", of.other));
                own.chain(rest).map(|(name, module, layer, sum)| {
                    let labels = class
                        .clone()
                        .with("function", name)
                        .with("module", module)
                        .with("layer", layer);
                    (labels, number(sum))
                })
            });
            text.family(&metric::of_functions(quantity), each);
        }
    }
}

fn metric_name(metric: &Metric) -> &'static str {
    match &metric.name {
        std::borrow::Cow::Borrowed(name) => name,
        std::borrow::Cow::Owned(_) => "",
    }
}
