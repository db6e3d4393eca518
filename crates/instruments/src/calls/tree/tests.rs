//! Tests of calls from made-up records.

use netplumb_model::class::Softirq;

use super::*;

/// Names by address; `1` is what is traced.
#[derive(Default)]
struct Addresses {
    /// The names that tasks were known by.
    tasks: Vec<Option<String>>,
}

impl Names for Addresses {
    fn name(&mut self, address: u64) -> u32 {
        address as u32
    }

    fn is_traced(&self, name: u32) -> bool {
        name == 1
    }

    fn task(&mut self, task: i32, known: Option<&str>) -> u32 {
        self.tasks.push(known.map(str::to_string));
        1_000 + task as u32
    }

    fn context(&self, _: &[u32], level: Level) -> Context {
        match level {
            Level::Softirq => Context::Softirq(Softirq::Timer),
            _ => Context::Hardirq,
        }
    }
}

fn spec() -> CallsSpec {
    CallsSpec { function: "f".into(), depth: 9, slowest: 5, steps: 100, ..CallsSpec::default() }
}

fn record(ns: u64, task: i32, level: Level, depth: u32, what: What) -> Record {
    Record { ns, cpu: 0, task, level, depth, what }
}

fn enter(ns: u64, depth: u32, function: u64) -> Record {
    record(ns, 7, Level::Task, depth, What::Enter { function })
}

fn leave(from: u64, to: u64, depth: u32, function: u64) -> Record {
    let times = Some((from, to));
    record(to, 7, Level::Task, depth, What::Leave { function, times })
}

fn switch(ns: u64, from: i32, next: i32) -> Record {
    let what = What::Switch { name: "task".into(), next, next_name: "next".into() };
    record(ns, from, Level::Task, 0, what)
}

fn at(level: Level, record: Record) -> Record {
    Record { level, ..record }
}

fn ended(spec: &CallsSpec, cost: Cost, records: &[Record]) -> Ended {
    let mut calls = Calls::new(spec, cost);
    calls.take(records, &mut Addresses::default());
    calls.end(&mut Addresses::default())
}

/// What steps are: function, elapsed, total, own, switches, whether they came in between.
fn call_fields(call: &TimedCall) -> Vec<(u32, u64, u64, u64, u32, bool)> {
    let each = call.steps.iter().map(|s| {
        let aside = s.flags.has(Flags::ASIDE);
        (s.name, s.elapsed, s.total, s.own, s.switches, aside)
    });
    each.collect()
}

/// Check that an interrupt is in no total either which comes after a call's time is taken and before the call
/// is recorded, nor what it calls at the level of the task, and that none is subtracted that comes after the
/// return's time is taken.
#[test]
fn interrupts_of_the_tracer() {
    let interrupt = |from: u64| {
        [
            enter(from, 2, 6),
            leave(from, from + 2, 2, 6),
            at(Level::Hardirq, enter(from + 10, 2, 3)),
            at(Level::Hardirq, leave(from + 10, from + 500, 2, 3)),
        ]
    };
    let late = |record: Record, ns: u64| Record { ns, ..record };
    let root = |first: &[Record], entered_ns: u64, rest: &[Record]| {
        let last = leave(entered_ns, 2_000, 0, 1);
        [first, rest, &[last]].concat()
    };
    // At the entry of the root, at the entry of a call below it, and at the return of that call.
    let of_root = root(
        &interrupt(100),
        90,
        &[enter(605, 0, 1), enter(1_000, 1, 2), leave(1_000, 1_040, 1, 2)],
    );
    let of_call = root(
        &[enter(600, 0, 1)],
        600,
        &[&interrupt(1_001)[..], &[enter(1_510, 1, 2), leave(1_000, 1_541, 1, 2)]].concat(),
    );
    let of_return = root(
        &[enter(600, 0, 1)],
        600,
        &[&[enter(1_000, 1, 2)], &interrupt(1_041)[..], &[late(leave(1_000, 1_040, 1, 2), 1_560)]]
            .concat(),
    );
    for (records, root, call) in [
        (of_root, (1_400, 1_400), (40, 40)),
        (of_call, (1_400, 910), (40, 40)),
        (of_return, (1_400, 910), (40, 40)),
    ] {
        let ended = ended(&spec(), Cost::default(), &records);
        let [traced] = &ended.kept[..] else { panic!("{:?}", ended.kept) };
        let of = |function: u32| {
            let found = traced.steps.iter().find(|step| step.name == function).unwrap();
            (found.elapsed, found.total)
        };
        assert_eq!(of(1), root, "{records:?}");
        assert_eq!(of(2), call, "{records:?}");
    }
}

/// Check that time off the CPU and in interrupts is in no total, but in what went by.
#[test]
fn what_comes_in_between() {
    let records = [
        enter(90, 0, 5),
        leave(90, 95, 0, 5),
        enter(100, 0, 1),
        enter(110, 1, 2),
        switch(120, 7, 8),
        switch(150, 8, 7),
        leave(110, 160, 1, 2),
        at(Level::Hardirq, enter(170, 1, 3)),
        at(Level::Hardirq, enter(172, 2, 4)),
        at(Level::Hardirq, leave(172, 176, 2, 4)),
        at(Level::Hardirq, leave(170, 180, 1, 3)),
        leave(100, 200, 0, 1),
    ];
    let ended = ended(&spec(), Cost::default(), &records);
    assert_eq!(
        call_fields(&ended.kept[0]),
        [
            (1, 100, 60, 40, 1, false),
            (2, 50, 20, 20, 1, false),
            (3, 10, 10, 6, 0, true),
            (4, 4, 4, 4, 0, false),
        ]
    );
    assert_eq!(ended.kept[0].steps[2].context, Context::Hardirq);
    assert_eq!((ended.counts.calls, ended.counts.sum), (1, 60));
    assert_eq!(ended.kept[0].steps[0].command, 1_007);
    // Costs add up to all that ran, interrupts too.
    let own: u64 = ended.costs.iter().map(|cost| cost.own).sum();
    assert_eq!(own, 70);
    assert_eq!(ended.losses, Losses::default());
}

/// Check that the cost of tracing is subtracted: each call's below, and the call's own.
#[test]
fn costs_of_tracing() {
    let cost = Cost { bias_ns: 2.0, call_ns: 10.0 };
    let records = [
        enter(0, 0, 1),
        enter(10, 1, 2),
        leave(10, 17, 1, 2),
        enter(30, 1, 2),
        leave(30, 33, 1, 2),
        leave(0, 100, 0, 1),
    ];
    let ended = ended(&spec(), cost, &records);
    assert_eq!(
        call_fields(&ended.kept[0]),
        [(1, 100, 78, 72, 0, false), (2, 7, 5, 5, 0, false), (2, 3, 1, 1, 0, false),]
    );
}

/// Check that calls within calls are part of them, that the longest ones are kept beside the
/// first, that conditions hold, and that calls without a return are counted as unfinished.
#[test]
fn many_calls() {
    let spec = CallsSpec { slowest: 1, only: Some("dur > 5ns".parse().unwrap()), ..spec() };
    let mut records = Vec::new();
    for (number, length) in [6, 20, 4, 9].into_iter().enumerate() {
        let begin = number as u64 * 100;
        records.extend([
            enter(begin, 0, 1),
            enter(begin + 1, 1, 1),
            leave(begin + 1, begin + 2, 1, 1),
            leave(begin, begin + length, 0, 1),
        ]);
    }
    records.push(enter(900, 0, 1));
    records.push(enter(910, 1, 2));
    let ended = ended(&spec, Cost::default(), &records);
    let CallCounts { calls, matched, recursive, unfinished, spread, .. } = ended.counts;
    assert_eq!((calls, matched, recursive, unfinished), (5, 4, 4, 1));
    assert_eq!(spread, Some([4, 9, 20, 20]));
    let numbers: Vec<u64> = ended.kept.iter().map(|call| call.number).collect();
    assert_eq!(numbers, [0, 1]);
}

/// Check that missing returns and entries, and a gap, spoil no other call.
#[test]
fn missing_records() {
    let records = [
        enter(0, 0, 1),
        enter(1, 1, 2),
        // The return of 2 is missing.
        enter(5, 1, 3),
        leave(5, 6, 1, 3),
        // And this entry is.
        leave(7, 8, 1, 4),
        leave(0, 10, 0, 1),
        enter(20, 0, 1),
        leave(20, 25, 0, 1),
    ];
    let with_gap = |at: usize| {
        let mut records = records.to_vec();
        records.insert(at, record(4, 0, Level::Task, 0, What::Gap));
        ended(&spec(), Cost::default(), &records)
    };
    let whole = ended(&spec(), Cost::default(), &records);
    assert_eq!((whole.counts.calls, whole.losses.broken), (2, 1));
    assert_eq!(whole.kept[0].steps[2].parent, Some(0));
    assert_eq!(call_fields(&whole.kept[1]), [(1, 5, 5, 5, 0, false)]);
    let cut = with_gap(3);
    assert_eq!((cut.counts.calls, cut.counts.unfinished), (2, 1));
    assert_eq!(cut.kept.len(), 1);
}

fn exec(ns: u64, name: &str) -> Record {
    record(ns, 7, Level::Task, 0, What::Exec { name: name.into() })
}

/// Check that a task is known by the name that it had last, when it was switched to or from or began a program.
#[test]
fn names_of_tasks() {
    let call = |ns: u64| [enter(ns, 0, 1), leave(ns, ns + 5, 0, 1)];
    let mut records = call(0).to_vec();
    records.push(switch(10, 8, 7));
    records.extend(call(20));
    records.push(exec(30, "ls"));
    records.extend(call(40));
    // Nothing is known of a path that was cut off.
    records.push(exec(50, ""));
    records.extend(call(60));
    records.push(switch(70, 7, 8));
    records.extend(call(80));
    let mut names = Addresses::default();
    let mut calls = Calls::new(&spec(), Cost::default());
    calls.take(&records, &mut names);
    let tasks: Vec<&str> =
        (names.tasks.iter()).map(|name| name.as_deref().unwrap_or("?")).collect();
    assert_eq!(tasks, ["?", "next", "ls", "ls", "task"]);
}

/// Check that a command counts from its exec on, with what it starts.
#[test]
fn from_its_exec() {
    let spec = CallsSpec { children: true, ..spec() };
    let call = |task: i32, ns: u64| {
        [enter(ns, 0, 1), leave(ns, ns + 5, 0, 1)].map(|record| Record { task, ..record })
    };
    let mut records = call(7, 0).to_vec();
    records.push(exec(10, "ls"));
    records.extend(call(7, 20));
    records.push(record(30, 7, Level::Task, 0, What::Fork { child: 9 }));
    records.extend(call(9, 40));
    records.extend(call(11, 50));
    let ended = ended(&spec, Cost::default(), &records);
    let threads: Vec<u32> = (ended.kept.iter()).map(|call| call.steps[0].thread).collect();
    assert_eq!(threads, [7, 9]);
}
