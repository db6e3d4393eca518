//! Samples by thread, and over time.

use std::collections::{BTreeMap, HashMap};

use netplumb_model::class::Direction;
use netplumb_model::recording::{FunctionId, Recording};
use netplumb_model::samples::{Sample, Thread, ThreadId};

use crate::analysis::quantity;
use crate::html::places::Places;
use crate::number::{counted, printable, thousands};
use crate::page::{PageProcess, PageThreadLine, PageThreadPart, PageThreadWork, PageThreads};
use crate::section::{Reader, Section};
#[cfg(test)]
use crate::table::reference::{Entry, entries};
use crate::table::{Column, Table, Value};
use crate::times::{ns, rounded};

/// Letters of a thread's name and of a function.
const NAME_LETTERS: usize = 44;
/// From here on there is room for the function with most samples.
const WIDE: usize = 90;
/// Threads on the page.
const MOST: usize = 200;
/// Threads with a line of their own over time; all others are one.
const LINES: usize = 24;
/// Processes that the page can show alone, and the most rows of trees that it has for them.
const PROCESSES: usize = 60;
const ROWS: usize = 400_000;
/// Pieces that the time is cut into.
const PIECES: usize = 120;

/// A thread of an arm.
#[derive(Debug, Clone, PartialEq)]
struct ThreadRow<'a> {
    arm: &'a str,
    thread: &'a Thread,
    id: (u32, ThreadId),
    samples: u64,
    cost: u64,
    /// Its share of its arm's cost.
    share: f64,
    /// CPUs that it was found on.
    cpus: usize,
    /// The function that was found most often, and its share of the thread.
    most: (&'a str, f64),
}

/// The threads of a recording whose samples have times.
#[derive(Debug)]
pub struct Threads<'a> {
    recording: &'a Recording,
    unit: String,
    rows: Vec<ThreadRow<'a>>,
    arms: Vec<String>,
}

/// The sums of a thread.
#[derive(Default)]
struct Sums {
    samples: u64,
    cost: u64,
    cpus: Vec<u32>,
    functions: HashMap<FunctionId, u64>,
}

impl<'a> Threads<'a> {
    /// The threads of some arms or, if none is named, all; the largest first, without idling. None where no
    /// single samples were kept.
    pub fn from_recording(recording: &'a Recording, arms: &[String]) -> Option<Threads<'a>> {
        let mut sums: HashMap<(u32, ThreadId), Sums> = HashMap::new();
        for (arm, sample) in shown(recording, arms) {
            let sum = sums.entry((arm, sample.thread)).or_default();
            sum.samples += 1;
            sum.cost = sum.cost.saturating_add(sample.weight);
            if sum.cpus.last() != Some(&sample.cpu) && !sum.cpus.contains(&sample.cpu) {
                sum.cpus.push(sample.cpu);
            }
            let function = recording.nodes[sample.node as usize].function;
            let of = sum.functions.entry(function).or_default();
            *of = of.saturating_add(sample.weight);
        }
        let mut whole: HashMap<u32, u64> = HashMap::new();
        for ((arm, _), sum) in &sums {
            *whole.entry(*arm).or_default() += sum.cost;
        }
        let row = |(id, sum): ((u32, ThreadId), Sums)| -> Option<ThreadRow<'a>> {
            let functions = sum.functions.iter();
            let most = functions.max_by_key(|(id, cost)| (**cost, std::cmp::Reverse(**id)))?;
            let part = |cost: u64, of: u64| cost as f64 / of.max(1) as f64;
            Some(ThreadRow {
                arm: &recording.arms[id.0 as usize].name,
                thread: recording.threads.get(id.1 as usize)?,
                id,
                samples: sum.samples,
                cost: sum.cost,
                share: part(sum.cost, whole[&id.0]),
                cpus: sum.cpus.len(),
                most: (&recording.functions[*most.0 as usize].name, part(*most.1, sum.cost)),
            })
        };
        let mut rows: Vec<ThreadRow<'a>> = sums.into_iter().filter_map(row).collect();
        rows.sort_by_key(|row| (row.id.0, std::cmp::Reverse(row.cost), row.id.1));
        (!rows.is_empty()).then(|| Threads {
            recording,
            unit: quantity(recording).unit,
            rows,
            arms: arms.to_vec(),
        })
    }

    /// The first threads, or with 0 all.
    fn table(&self, top: usize) -> Table<'_, ThreadRow<'a>> {
        let top = if top == 0 { self.rows.len() } else { top };
        let several = self.rows.iter().any(|row| row.arm != self.rows[0].arm);
        let rows = self.rows.iter().take(top).cloned();
        Table::new(columns(&self.unit, several), rows)
    }

    fn heading(&self) -> String {
        let samples: u64 = self.rows.iter().map(|row| row.samples).sum();
        format!(
            "{} of {}",
            counted(self.rows.len(), "thread"),
            match samples {
                1 => "1 sample".into(),
                samples => format!("{} samples", thousands(samples)),
            }
        )
    }

    /// The first threads, or with 0 all.
    pub fn section(&self, top: usize) -> Section<'_> {
        let rows = move |reader| {
            self.table(match reader {
                Reader::People => top,
                Reader::Page => MOST,
                Reader::Program => 0,
            })
        };
        let left = self.rows.len().saturating_sub(if top == 0 { usize::MAX } else { top });
        let more = (left > 0).then(|| {
            let cost: f64 = self.rows.iter().skip(top).map(|row| row.share).sum();
            format!("and {} with {:.1}%", counted(left, "more thread"), cost * 100.0)
        });
        Section::rows(NAME_LETTERS, rows)
            .heading(self.heading())
            .sentences(more.into_iter().collect())
    }

    /// For the page, with the samples over time.
    pub(crate) fn page(&self, places: &Places) -> PageThreads {
        let end_ns = self.recording.samples.iter();
        let end_ns = end_ns.filter_map(|s| s.times_ns().last().copied());
        let end_ns = end_ns.max().unwrap_or_default().saturating_add(1);
        let piece_ns = end_ns.div_ceil(PIECES as u64).max(1);
        let pieces = end_ns.div_ceil(piece_ns) as usize;
        let mut largest: Vec<&ThreadRow<'_>> = self.rows.iter().collect();
        largest.sort_by_key(|row| std::cmp::Reverse(row.cost));
        let lines: HashMap<(u32, ThreadId), usize> =
            (largest.iter().take(LINES)).enumerate().map(|(line, row)| (row.id, line)).collect();
        let mut costs = vec![vec![0_u64; pieces]; lines.len() + 1];
        for (arm, sample) in shown(self.recording, &self.arms) {
            let line = lines.get(&(arm, sample.thread)).copied();
            let piece = (sample.time_ns / piece_ns) as usize;
            if let Some(cost) = costs[line.unwrap_or(lines.len())].get_mut(piece) {
                *cost = cost.saturating_add(sample.weight);
            }
        }
        let others = costs.pop().filter(|costs| costs.iter().any(|cost| *cost > 0));
        let named = largest.iter().zip(costs);
        let mut all: Vec<PageThreadLine> = named
            .map(|(row, costs)| PageThreadLine {
                name: format!("{} {}", printable(&row.thread.name, 40), row.thread.tid),
                costs,
            })
            .collect();
        all.extend(others.map(|costs| PageThreadLine {
            name: counted(self.rows.len() - lines.len(), "other thread"),
            costs,
        }));
        PageThreads {
            table: self.table(MOST).page(&self.heading()),
            piece_ns,
            unit: self.unit.clone(),
            lines: all,
            processes: self.processes(places),
        }
    }

    /// The largest processes, each with all of its threads; as many as there is room for.
    fn processes(&self, places: &Places) -> Vec<PageProcess> {
        type CostsByPart = BTreeMap<(usize, usize), BTreeMap<usize, (u64, u64)>>;
        let mut threads: HashMap<ThreadId, CostsByPart> = HashMap::new();
        for (arm, sample) in shown(self.recording, &self.arms) {
            let place = places.of_node(arm as usize, sample.direction, sample.context, sample.node);
            if let Some((class, context, row)) = place {
                let parts = threads.entry(sample.thread).or_default();
                let of = parts.entry((class, context)).or_default();
                let (calls, cost) = of.entry(row).or_default();
                *calls += 1;
                *cost = cost.saturating_add(sample.weight);
            }
        }
        let mut processes: HashMap<u32, (u64, Vec<&ThreadRow<'_>>)> = HashMap::new();
        for row in &self.rows {
            let (cost, rows) = processes.entry(row.thread.pid).or_default();
            *cost = cost.saturating_add(row.cost);
            // A thread has a row for each arm.
            if rows.iter().all(|other| other.id.1 != row.id.1) {
                rows.push(row);
            }
        }
        let mut processes: Vec<(u32, (u64, Vec<&ThreadRow<'_>>))> = processes.into_iter().collect();
        processes.sort_by_key(|(pid, (cost, _))| (std::cmp::Reverse(*cost), *pid));
        let mut room = ROWS;
        let mut out = Vec::new();
        for (pid, (_, mut rows)) in processes.into_iter().take(PROCESSES) {
            rows.sort_by_key(|row| (std::cmp::Reverse(row.cost), row.id.1));
            let size = |row: &&ThreadRow<'_>| {
                threads.get(&row.id.1).map_or(0, |parts| parts.values().map(BTreeMap::len).sum())
            };
            let wanted: usize = rows.iter().map(size).sum();
            let Some(left) = room.checked_sub(wanted) else {
                break;
            };
            room = left;
            let first = rows.iter().find(|row| row.thread.tid == pid);
            let name = first.or(rows.first()).map_or("", |row| &row.thread.name);
            let work = |row: &ThreadRow<'_>| PageThreadWork {
                name: printable(&row.thread.name, 40),
                tid: row.thread.tid,
                parts: threads.remove(&row.id.1).into_iter().flatten().map(part).collect(),
            };
            out.push(PageProcess {
                name: printable(name, 40),
                pid,
                threads: rows.into_iter().map(work).collect(),
            });
        }
        out
    }
}

/// The shown samples with their arms: of some arms or, if none is named, all. Idling is left
/// out.
fn shown<'r>(
    recording: &'r Recording,
    arms: &'r [String],
) -> impl Iterator<Item = (u32, Sample)> + 'r {
    let number = recording.costs.first().map(|cost| cost.quantity);
    let of_arms = recording.samples.iter().filter_map(move |samples| {
        let arm = recording.blocks[samples.block as usize].arm;
        let name = &recording.arms[arm as usize].name;
        let asked = arms.is_empty() || arms.contains(name);
        (Some(samples.quantity) == number && asked).then_some((arm, samples))
    });
    of_arms.flat_map(|(arm, samples)| {
        let work = samples.iter().filter(|s| s.direction != Direction::Other);
        work.map(move |sample| (arm, sample))
    })
}

/// A thread's part of a tree, as columns.
fn part(((class, context), rows): ((usize, usize), BTreeMap<usize, (u64, u64)>)) -> PageThreadPart {
    let mut part = PageThreadPart { class, context, ..PageThreadPart::default() };
    for (row, (calls, cost)) in rows {
        part.row.push(row);
        part.calls.push(calls);
        part.self_insns.push(cost);
    }
    part
}

/// The columns, each declared once.
fn columns<'a>(unit: &str, arms: bool) -> Vec<Column<'a, ThreadRow<'a>>> {
    let is_ns = unit == "ns";
    let mut columns = Vec::new();
    if arms {
        columns.push(
            Column::text("arm", |row: &ThreadRow<'a>| row.arm.into())
                .hint("one combination of settings")
                .key("arm")
                .people(0)
                .page("arm"),
        );
    }
    columns.extend([
        Column::text("thread", |row: &ThreadRow<'a>| row.thread.name.clone())
            .hint("its name")
            .key("thread")
            .people(1)
            .page("thread"),
        Column::figure("pid", |row: &ThreadRow<'a>| {
            Value::Formatted(row.thread.pid.to_string(), Some(row.thread.pid.into()))
        })
        .hint("its process; 0 is the idle task, whose interrupts are work")
        .people(2)
        .page("pid"),
        Column::machine(|row: &ThreadRow<'a>| Value::Count(row.thread.pid.into())).key("pid"),
        Column::figure("tid", |row: &ThreadRow<'a>| {
            Value::Formatted(row.thread.tid.to_string(), Some(row.thread.tid.into()))
        })
        .hint("its own number")
        .people(3)
        .page("tid"),
        Column::machine(|row: &ThreadRow<'a>| Value::Count(row.thread.tid.into())).key("tid"),
        Column::figure(
            if is_ns { "time".to_string() } else { unit.to_string() },
            move |row: &ThreadRow<'a>| match is_ns {
                true => Value::Formatted(ns(row.cost as f64), Some(row.cost as f64)),
                false => Value::Formatted(rounded(row.cost as f64), Some(row.cost as f64)),
            },
        )
        .hint("what its samples stand for")
        .unit(unit.to_string())
        .people(4)
        .page("cost"),
        Column::machine(|row: &ThreadRow<'a>| Value::Count(row.cost)).key("cost"),
        Column::figure("share", |row: &ThreadRow<'a>| Value::Share(row.share))
            .hint("of all threads")
            .key("share")
            .digits(6)
            .people(5)
            .page("share"),
        Column::figure("samples", |row: &ThreadRow<'a>| Value::Count(row.samples))
            .hint("how many samples found it running")
            .key("samples")
            .people(6)
            .page("samples"),
        Column::figure("CPUs", |row: &ThreadRow<'a>| Value::Count(row.cpus as u64))
            .hint("how many CPUs it was found on")
            .key("cpus")
            .people(7)
            .page("cpus"),
        Column::code("most in", |row: &ThreadRow<'a>| Value::Name(row.most.0.into(), None))
            .hint("the function that it was found in most often")
            .key("function")
            .people(8)
            .from(WIDE)
            .page("function"),
        Column::figure("", |row: &ThreadRow<'a>| Value::Share(row.most.1))
            .hint("that function's share of the thread")
            .key("function_share")
            .digits(6)
            .people(9)
            .from(WIDE),
    ]);
    columns
}

/// The columns, for their reference.
#[cfg(test)]
pub(crate) fn declared() -> Vec<Entry> {
    entries(&columns("ns", true))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use netplumb_model::class::{Context, Family, Link, Proto};
    use netplumb_model::recording::{Arm, Block, Function, Ledger, Node};
    use netplumb_model::samples::{Sample, Samples};
    use netplumb_model::timing::CPU_TIME;

    use super::*;
    use crate::page::PagePart;
    use crate::together::CrossQuantity;

    fn recording(threads: u32) -> Recording {
        let mut recording = Recording::default();
        let quantity = recording.quantity(&CPU_TIME);
        recording.arms = vec![Arm {
            name: "work".into(),
            proto: Proto::Work,
            family: Family::V4,
            link: Link::Lo,
            forward: false,
            size_bytes: 0,
            knobs: BTreeMap::new(),
            made: None,
        }];
        for (id, name) in (0..).zip(["memcpy", "udp_sendmsg", "cpuidle_enter"]) {
            recording.functions.push(Function {
                name: name.into(),
                module: None,
                layer: None,
                address: 0,
                size_bytes: 0,
                source: None,
            });
            recording.nodes.push(Node { parent: None, function: id, tail: false });
        }
        recording.threads = (0..threads)
            .map(|tid| Thread { pid: tid / 2, tid, name: format!("t\u{1b}{tid}") })
            .collect();
        recording.blocks.push(Block {
            arm: 0,
            instrument: "samples".into(),
            index: 0,
            ledger: Ledger::default(),
            totals: Vec::new(),
            entered: 0,
            returned: 0,
            duration_ns: 1_000_000,
        });
        // The later a thread, the more samples; all idle time is of the first.
        let samples = (0..1_000_u64).map(|n| {
            let idle = n % 10 == 0;
            let thread = ((n * n) % u64::from(threads)) as u32;
            Sample {
                time_ns: n * 1_000,
                weight: 100,
                node: if idle { 2 } else { u32::from(n % 4 == 0) },
                thread: if idle { 0 } else { thread },
                cpu: (n % 2) as u32,
                direction: if idle { Direction::Other } else { Direction::Run },
                context: Context::Task,
            }
        });
        let samples = Samples::new(0, quantity, samples);
        recording.add_samples(samples);
        recording
    }

    /// Check that threads have all samples except idle CPUs', the same in each output, with the most
    /// frequent function; and that over time nothing is lost, however many threads there are.
    #[test]
    fn every_sample_has_a_thread() {
        for count in [3, 200] {
            let recording = recording(count);
            let threads = Threads::from_recording(&recording, &[]).unwrap();
            let samples: u64 = threads.rows.iter().map(|row| row.samples).sum();
            assert_eq!(samples, 900);
            let shares: f64 = threads.rows.iter().map(|row| row.share).sum();
            assert!((shares - 1.0).abs() < 1e-9);
            assert_eq!(threads.rows[0].most.0, "memcpy");
            let section = threads.section(2);
            let text = section.terminal(110);
            assert!(text.contains("of 900 samples") && text.contains("memcpy"), "{text}");
            assert!(!text.contains('\u{1b}'), "{text}");
            assert_eq!(section.csv().lines().count(), threads.rows.len() + 1);
            let json = serde_json::to_value(section.json()).unwrap();
            assert_eq!(json[0]["samples"], threads.rows[0].samples);
            assert_eq!(json[0]["cost"], threads.rows[0].cost);
            let mut markdown = String::new();
            section.markdown(&mut markdown);
            assert!(markdown.contains("| `memcpy`"), "{markdown}");
            let page = threads.page(&crate::html::places::Places::default());
            let all = page.lines.iter().flat_map(|line| &line.costs);
            assert_eq!(all.sum::<u64>(), 90_000);
            assert!(page.lines.len() <= LINES + 1);
            assert!(page.lines.iter().all(|line| line.costs.len() <= PIECES));
            assert!(Threads::from_recording(&recording, &["other".into()]).is_none());
        }
        assert!(Threads::from_recording(&Recording::default(), &[]).is_none());
    }

    /// Check that the parts of single threads add up to the page's trees if all processes are named, and
    /// never exceed a row.
    #[test]
    fn processes_are_parts_of_trees() {
        for count in [3, 200] {
            let recording = recording(count);
            let views = crate::analysis::classes(&recording);
            let together = CrossQuantity::default();
            let page = crate::html::report_page(&recording, &views, None, &together);
            let tree = &page.classes[0].contexts[0];
            let threads = page.parts().find_map(|part| match part {
                PagePart::Threads(threads) => Some(threads.processes.clone()),
                _ => None,
            });
            let processes = threads.unwrap();
            assert!(processes.len() <= PROCESSES);
            let mut sums = vec![0; tree.self_insns.len()];
            let threads = processes.iter().flat_map(|process| &process.threads);
            for part in threads.flat_map(|thread| &thread.parts) {
                assert_eq!((part.class, part.context), (0, 0));
                for (row, cost) in part.row.iter().zip(&part.self_insns) {
                    sums[*row] += cost;
                }
            }
            if count == 3 {
                assert_eq!(sums, tree.self_insns);
            }
            assert!(sums.iter().zip(&tree.self_insns).all(|(sum, all)| sum <= all));
            assert!(processes.iter().all(|process| !process.name.contains('\u{1b}')));
        }
    }
}
