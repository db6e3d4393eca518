//! Source lines of programs: where user code was sampled is kept window by window, and looked up in the
//! debug information of files when nothing is sampled any more.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hash::Hash;

use netplumb_model::loss::Loss;
use netplumb_model::quantity::Figure;
use netplumb_model::timing::{LINES, Met};
use rustc_hash::FxHashMap;

use super::super::files::{FileId, Within};
use super::super::tree::Sum;
use super::stacks::{Places, Stacks};
use crate::image::{FileLine, loss_of};
use crate::live::{SourceLines, WindowLine};
use crate::own::process_ns;

/// Places that are kept of a window.
const MAX_PLACES: usize = 8_192;
/// Costs of lines that are kept of all windows: some 20 bytes each in a recording.
const MAX_LINES: usize = 20_000;

/// What samples of a window were taken at: function and place.
#[derive(Debug, Default)]
pub(super) struct Leaves(FxHashMap<(u32, Within), Sum>);

impl Leaves {
    /// Add samples of a function, by place; of more places than samples, only as many.
    pub(super) fn add(&mut self, function: u32, places: &Places, samples: u64, ns: u64) {
        let (each, mut left) = (ns / samples.max(1), samples);
        for (within, samples) in places {
            let samples = (*samples).min(left);
            left -= samples;
            if let Some(within) = within {
                let sum = self.0.entry((function, *within)).or_default();
                sum.samples += samples;
                // A single place takes what division leaves.
                sum.ns += match places.len() {
                    1 => ns,
                    _ => each * samples,
                };
            }
        }
    }
}

/// What was sampled in all windows.
#[derive(Debug, Default)]
pub(super) struct Sampled {
    windows: Vec<Vec<((u32, Within), Sum)>>,
    /// Samples at places that are not kept.
    left_out: u64,
}

impl Sampled {
    /// Add a window.
    pub(super) fn add(&mut self, window: Leaves) {
        let mut places: Vec<_> = window.0.into_iter().collect();
        self.left_out += keep_hottest(&mut places, MAX_PLACES, |(function, _)| *function);
        self.windows.push(places);
    }

    /// Find the lines.
    pub(super) fn find(&self, stacks: &mut Stacks, go_on: &dyn Fn() -> bool) -> SourceLines {
        let begun_ns = process_ns();
        let mut found = SourceLines::default();
        let mut failed = Vec::new();
        let mut files: FxHashMap<String, u32> = FxHashMap::default();
        let mut functions: FxHashMap<Met, u32> = FxHashMap::default();
        let mut lines: FxHashMap<Within, FileLine> = FxHashMap::default();
        for (file, offsets) in self.by_file() {
            let of_file = match stacks.files.lines(file, &offsets, go_on) {
                Ok(Some(of_file)) => of_file,
                Ok(None) => continue,
                Err(error) => {
                    failed.push(format!("{}: {error}", stacks.files.name(file)));
                    continue;
                }
            };
            let numbers: Vec<u32> = (of_file.lines.files.into_iter())
                .map(|path| {
                    *files.entry(path).or_insert_with_key(|path| {
                        found.files.push(path.clone());
                        found.files.len() as u32 - 1
                    })
                })
                .collect();
            let line = |(file, line): FileLine| Some((*numbers.get(file as usize)?, line));
            for (met, source) in of_file.functions.into_iter().zip(of_file.lines.functions) {
                functions.entry(met).or_insert_with_key(|met| {
                    found.functions.push((met.clone(), source.and_then(line)));
                    found.functions.len() as u32 - 1
                });
            }
            for (offset, source) in offsets.into_iter().zip(of_file.lines.code) {
                let at = Within { file, offset };
                lines.extend(source.and_then(line).map(|line| (at, line)));
            }
        }
        let mut costs: FxHashMap<(u32, u32, FileLine), Sum> = FxHashMap::default();
        for (window, places) in (0..).zip(&self.windows) {
            for ((function, within), sum) in places {
                let met = stacks.functions().met(*function);
                let function = met.and_then(|met| functions.get(met));
                if let (Some(function), Some(line)) = (function, lines.get(within)) {
                    let of = costs.entry((window, *function, *line)).or_default();
                    of.samples += sum.samples;
                    of.ns += sum.ns;
                }
            }
        }
        let mut costs: Vec<_> = costs.into_iter().collect();
        // A line is kept in all windows or in none.
        let left_out =
            keep_hottest(&mut costs, MAX_LINES, |(_, function, line)| (*function, *line));
        costs.sort_unstable_by_key(|(key, _)| *key);
        found.costs = (costs.into_iter())
            .map(|((window, function, line), sum)| WindowLine {
                window,
                function,
                line,
                own: sum.ns,
            })
            .collect();
        found.losses =
            (loss_of(&failed).into_iter()).chain(left_out_of(self.left_out + left_out)).collect();
        let took_ns = process_ns().saturating_sub(begun_ns);
        found.figures = vec![Figure::new(&LINES, took_ns as f64)];
        found
    }

    /// The files and the places in them, those with most samples first.
    fn by_file(&self) -> Vec<(FileId, Vec<u64>)> {
        let mut files: BTreeMap<FileId, (u64, Vec<u64>)> = BTreeMap::new();
        for ((_, within), sum) in self.windows.iter().flatten() {
            let (samples, offsets) = files.entry(within.file).or_default();
            *samples += sum.samples;
            offsets.push(within.offset);
        }
        let mut files: Vec<_> = files.into_iter().collect();
        files.sort_by_key(|(_, (samples, _))| Reverse(*samples));
        let places = files.into_iter().map(|(file, (_, mut offsets))| {
            offsets.sort_unstable();
            offsets.dedup();
            (file, offsets)
        });
        places.collect()
    }
}

/// Keep at most `most`: first the groups with most time, and in each what has most. Returns how many
/// samples are left out.
fn keep_hottest<K: Copy + Ord, G: Eq + Hash + Ord>(
    all: &mut Vec<(K, Sum)>,
    most: usize,
    group: impl Fn(&K) -> G,
) -> u64 {
    if all.len() <= most {
        return 0;
    }
    let mut groups: FxHashMap<G, u64> = FxHashMap::default();
    for (key, sum) in &*all {
        *groups.entry(group(key)).or_default() += sum.ns;
    }
    all.sort_by_cached_key(|(key, sum)| {
        let group = group(key);
        let of_group = groups.get(&group).copied().unwrap_or(0);
        (Reverse(of_group), group, Reverse(sum.ns), *key)
    });
    let rest = all.split_off(most);
    rest.iter().map(|(_, sum)| sum.samples).sum()
}

fn left_out_of(samples: u64) -> Option<Loss> {
    (samples > 0).then(|| {
        Loss::new(
            "samples without their source line",
            samples,
            "lines are kept of the functions with most time; function names and costs are not \
             affected",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(offset: u64) -> Within {
        Within { file: 0, offset }
    }

    /// Check that samples are charged to their places, without more than there are, and that a single
    /// place has all of the time.
    #[test]
    fn places() {
        let mut leaves = Leaves::default();
        leaves.add(1, &Places::from([(Some(within(8)), 3)]), 3, 10);
        leaves.add(1, &Places::from([(None, 3)]), 3, 10);
        let two = Places::from([(Some(within(8)), 2), (Some(within(9)), 2)]);
        leaves.add(1, &two, 3, 10);
        let sums: Vec<Sum> = leaves.0.values().copied().collect();
        assert_eq!(sums.iter().map(|sum| sum.samples).sum::<u64>(), 3 + 3);
        assert_eq!(sums.iter().map(|sum| sum.ns).sum::<u64>(), 10 + 9);
    }

    /// Check that with too many places, the ones in functions with most time are kept, and that
    /// the samples at others are counted.
    #[test]
    fn too_many() {
        let sum = |samples| Sum { samples, ns: samples * 10 };
        let mut all = vec![((1, 0), sum(5)), ((2, 0), sum(4)), ((2, 1), sum(3)), ((2, 2), sum(1))];
        assert_eq!(keep_hottest(&mut all, 4, |(group, _)| *group), 0);
        assert_eq!(keep_hottest(&mut all, 2, |(group, _)| *group), 6);
        assert_eq!(all, [((2, 0), sum(4)), ((2, 1), sum(3))]);
        assert!(left_out_of(0).is_none());
    }
}
