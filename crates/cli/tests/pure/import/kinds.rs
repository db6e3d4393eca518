//! Kinds of perf.data: values of counters, precise events, stacks of branches, events of one name, code
//! made at run time, directories, and simpleperf's.
//!
//! `recorded/NAME.data.xz` are files of perf 6.1, with the figures that its `perf script` has.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use netplumb_import::{Options, perf_data};
use netplumb_kernel::compression::{self, Compression};
use netplumb_model::recording::Recording;

use super::made::{IN_KERNEL, IN_USER, KERNEL, Made, TEXT, USER};
use super::{imported, options, plumb, text};

/// Bits of `read_format`: the times, the ID, a group, and how many samples were lost.
const TIMES: u64 = 1 | 2;
const ID: u64 = 4;
const GROUP: u64 = 8;
const LOST: u64 = 16;
/// The task of [`Made::new`].
const TASK: u64 = 7 | 7 << 32;

/// The sum of each quantity, and its number of samples.
fn totals(recording: &Recording) -> BTreeMap<String, (u64, u64)> {
    let mut totals = BTreeMap::new();
    for cost in &recording.costs {
        let name = &recording.quantities[cost.quantity as usize].name;
        let of: &mut (u64, u64) = totals.entry(name.clone()).or_default();
        *of = (of.0 + cost.calls, of.1 + cost.own);
    }
    totals
}

/// The stack of each sample, the innermost first, without its thread.
fn stacks(recording: &Recording) -> Vec<String> {
    let samples = recording.samples.iter().flat_map(|samples| samples.iter());
    let stack = |node: u32| {
        let mut names = Vec::new();
        let mut at = &recording.nodes[node as usize];
        while let Some(parent) = at.parent {
            names.push(recording.functions[at.function as usize].name.as_str());
            at = &recording.nodes[parent as usize];
        }
        names.join(" ")
    };
    samples.map(|sample| stack(sample.node)).collect()
}

fn losses(recording: &Recording) -> Vec<(String, u64)> {
    let losses = recording.all_losses();
    losses.map(|loss| (loss.cause.clone(), loss.count)).collect()
}

/// A section with the names of events, by their numbers.
fn event_names(names: &[&str]) -> (usize, Vec<u8>) {
    const ATTR_BYTES: u32 = 8;
    let mut section: Vec<u8> =
        [names.len() as u32, ATTR_BYTES].iter().flat_map(|word| word.to_le_bytes()).collect();
    for (id, name) in (1_u64..).zip(names) {
        section.extend([0; ATTR_BYTES as usize]);
        section.extend(1_u32.to_le_bytes());
        section.extend((name.len() as u32 + 1).to_le_bytes());
        section.extend(name.bytes().chain([0]));
        section.extend(id.to_le_bytes());
    }
    (12, section)
}

/// Check that values of counters in samples are quantities, each with its increase since the sample before, and that
/// the stacks after them are read, in any format of the values.
#[test]
fn values_of_counters() {
    let folder = tempfile::tempdir().unwrap();
    let chain = [IN_KERNEL, TEXT + 0x3010, TEXT + 0x2020];
    for read_format in [ID, ID | LOST, ID | TIMES, ID | TIMES | LOST] {
        for group in [0, GROUP] {
            let mut made = Made::new();
            made.events = vec![(1, 0), (1, 2), (1, 3)];
            made.read_format = read_format | group;
            for (time_ns, values) in [(1_000, [400, 5, 0]), (2_000, [1_500, 5, 2])] {
                let times = vec![9_999; (read_format & TIMES).count_ones() as usize];
                let mut more = Vec::new();
                let each = |id: u64, more: &mut Vec<u64>| {
                    more.push(id);
                    more.extend((read_format & LOST != 0).then_some(77));
                };
                if group == GROUP {
                    more.push(3);
                    more.extend(times);
                    for (id, value) in (1..).zip(values) {
                        more.push(value);
                        each(id, &mut more);
                    }
                } else {
                    more.push(values[0]);
                    more.extend(times);
                    each(1, &mut more);
                }
                more.push(chain.len() as u64);
                more.extend(chain);
                made.sample_at(KERNEL, TASK, (time_ns, TEXT + 0x3010), &more);
            }
            let recording = imported(&folder, &made.file());
            let mut expected = BTreeMap::from([("CPU time".to_string(), (2, 1_500))]);
            if group == GROUP {
                expected.insert("page-faults".into(), (1, 5));
                expected.insert("context-switches".into(), (1, 2));
            }
            assert_eq!(totals(&recording), expected, "{read_format:#x}, {group}");
            let of = "udp_sendmsg do_syscall_64";
            let stacks = stacks(&recording);
            assert!(stacks.iter().all(|stack| stack == of), "{stacks:?}");
            assert!(losses(&recording).is_empty(), "{:?}", losses(&recording));
        }
    }
}

/// Check that a process whose first thread ends keeps its mappings for the others.
#[test]
fn first_thread_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut made = Made::new();
    made.thread(7, 7, 8);
    made.thread(4, 7, 7);
    made.sample_at(USER, 7 | 8 << 32, (2_000, 0x40_0010), &[2, IN_USER, 0x40_0010]);
    made.now_ns = 3_000;
    made.thread(4, 7, 8);
    made.sample_at(USER, 7 | 8 << 32, (4_000, 0x40_0010), &[2, IN_USER, 0x40_0010]);
    let stacks = stacks(&imported(&folder, &made.file()));
    assert_eq!(stacks, ["[0x10]", "[unknown]"]);
}

/// Check that a sample is at its own address, whatever its stack begins with; in precise events and stacks of branches
/// the two differ.
#[test]
fn own_address() {
    let folder = tempfile::tempdir().unwrap();
    let (send, call, entry) = (TEXT + 0x3010, TEXT + 0x2020, TEXT + 0x1030);
    for (mode, ip, chain, expected) in [
        // The interrupt came in the next function.
        (KERNEL, send, &[IN_KERNEL, call, entry][..], "udp_sendmsg entry_SYSCALL_64"),
        // It came in the function that the instruction calls.
        (KERNEL, entry, &[IN_KERNEL, call, entry + 5], "entry_SYSCALL_64"),
        // It came in the kernel, and the event before that.
        (USER, 0x40_0456, &[IN_KERNEL, call, IN_USER, 0x40_0500, 0x40_0124], "[0x456] [0x123]"),
        (USER, 0x40_0456, &[IN_KERNEL, call], "[0x456]"),
        // The kernel's frames were left out.
        (KERNEL, send, &[IN_USER, 0x40_0123, 0x40_0090], "udp_sendmsg [0x123] [0x8f]"),
        (KERNEL, send, &[IN_KERNEL, send, entry], "udp_sendmsg entry_SYSCALL_64"),
        // It calls itself.
        (KERNEL, send, &[IN_KERNEL, send, send + 4], "udp_sendmsg udp_sendmsg"),
        (KERNEL, send, &[], "udp_sendmsg"),
    ] {
        let mut made = Made::new();
        let more = [&[chain.len() as u64][..], chain].concat();
        made.sample_at(mode, TASK, (1_000, ip), &more);
        assert_eq!(stacks(&imported(&folder, &made.file())), [expected], "{chain:x?}");
    }
    // PERF_SAMPLE_BRANCH_CALL_STACK, with and without the index of the newest one.
    for branch_type in [1 << 11 | 1, 1 << 11 | 1 << 17 | 1] {
        let mut made = Made::new();
        made.branch_type = branch_type;
        let chain = [IN_KERNEL, send, IN_USER, 0x40_0456, 0x40_0999];
        let index = (branch_type & 1 << 17 != 0).then_some(31);
        let branches = [[0x40_0123, 0x40_0400, 0], [0x40_0045, 0x40_0100, 0]].concat();
        let mut more = vec![chain.len() as u64];
        more.extend(chain.into_iter().chain([2]).chain(index).chain(branches));
        made.sample_at(KERNEL, TASK, (1_000, send), &more);
        let recording = imported(&folder, &made.file());
        assert_eq!(stacks(&recording), ["udp_sendmsg [0x456] [0x123] [0x45]"]);
        let causes = losses(&recording);
        assert!(!causes.iter().any(|(cause, _)| cause.contains("branches")), "{causes:?}");
    }
}

/// Check that stacks that the kernel cut are counted: those with as many frames as it takes.
#[test]
fn cut_by_the_kernel() {
    let folder = tempfile::tempdir().unwrap();
    for (max_stack, limit) in [(0, 127), (30, 30)] {
        let mut made = Made::new();
        made.max_stack = max_stack;
        for frames in [limit - 1, limit] {
            let mut chain = vec![IN_KERNEL, TEXT + 0x3010, IN_USER];
            chain.resize(frames as usize + 2, 0x40_0123);
            made.sample(0, 1_000, 100, &chain);
        }
        let causes = losses(&imported(&folder, &made.file()));
        let cause = format!("stacks with {limit} frames, as many as perf recorded");
        assert!(causes.contains(&(cause, 1)), "{causes:?}");
    }
}

/// Check that events keep the names that perf gave them, with modifiers and PMU, and that a comparison is
/// of events of the same name, in whatever order, and never of programs with the kernel.
#[test]
fn names_of_events() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let file = |name: &str, events: &[(&str, (u32, u64), u64, u64)]| {
        let mut made = Made::new();
        made.events = events.iter().map(|(_, event, ..)| *event).collect();
        made.flags = events.iter().map(|(_, _, flags, _)| *flags).collect();
        let names: Vec<&str> = events.iter().map(|(name, ..)| *name).collect();
        made.features = vec![event_names(&names)];
        for time in 0..40 {
            for (n, (.., period)) in (0..).zip(events) {
                made.sample(n, 1_000 + time * 100, *period, &[IN_USER, 0x40_0100]);
            }
        }
        fs::write(at.join(format!("{name}.data")), made.file()).unwrap();
        let ran = plumb(at, &["import", &format!("{name}.data"), "--blocks", "5"]);
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        netplumb_store::read(&at.join(format!("{name}.plumb"))).unwrap()
    };
    // `exclude_user` and `exclude_kernel`.
    let (kernel, user) = (("cpu-clock:k", (1, 0), 1 << 4, 10), ("cpu-clock:u", (1, 0), 1 << 5, 30));
    // Of the PMUs 4 and 10, by the extended type of hardware events.
    let cores =
        [("cpu_core/cycles/P", (0, 4 << 32), 0, 5), ("cpu_atom/cycles/P", (0, 10 << 32), 0, 7)];
    let names = |recording: &Recording| -> Vec<(String, String)> {
        let quantities = recording.quantities.iter();
        quantities.map(|q| (q.name.clone(), q.unit.clone())).collect()
    };
    let of = |names: &[(&str, &str)]| -> Vec<(String, String)> {
        let names = names.iter();
        names.map(|(name, unit)| (name.to_string(), unit.to_string())).collect()
    };
    let both = file("both", &[user, kernel]);
    assert_eq!(names(&both)[..2], of(&[("cpu-clock:u", "ns"), ("cpu-clock:k", "ns")]));
    let hybrid = names(&file("hybrid", &cores));
    let cycles = [("cpu_core/cycles/P", "cycles"), ("cpu_atom/cycles/P", "cycles")];
    assert_eq!(hybrid, of(&cycles));
    let clocks = [("cpu-clock:pppH", (1, 0), 0, 1), ("task-clock", (1, 1), 0, 1)];
    let clocks = names(&file("clocks", &clocks));
    assert_eq!(clocks[..2], of(&[("CPU time", "ns"), ("task-clock", "ns")]));
    file("turned", &[kernel, user]);
    file("kernel", &[kernel]);
    file("user", &[user]);
    let report = |words: &[&str]| text(&plumb(at, words).stdout);
    for (clock, share) in [("cpu-clock:u", "30ns"), ("cpu-clock:k", "10ns"), ("samples", "30ns")] {
        let said = report(&["report", "both.plumb", "--clock", clock, "--csv"]);
        let self_ns = said.lines().nth(1).unwrap().split(',').nth(7).unwrap();
        let each = self_ns.parse::<u64>().unwrap() / 40;
        assert_eq!(format!("{each}ns"), share, "{said}");
    }
    let ran = plumb(at, &["diff", "kernel.plumb", "user.plumb"]);
    let said = text(&ran.stderr);
    assert_eq!(ran.status.code(), Some(2), "{said}");
    let why = "before is of cpu-clock:k, after of cpu-clock:u";
    assert!(said.contains(why), "{said}");
    let compared = report(&["diff", "both.plumb", "turned.plumb"]);
    let titles = compared.lines().filter(|line| line.starts_with("Samples of"));
    let titles: Vec<&str> = titles.collect();
    assert_eq!(titles, ["Samples of cpu-clock:u", "Samples of cpu-clock:k"]);
    for words in [
        &["diff", "kernel.plumb", "both.plumb"][..],
        &["diff", "both.plumb", "turned.plumb", "--clock", "cpu-clock:u"],
    ] {
        let ran = plumb(at, words);
        assert!(ran.status.success(), "{words:?}: {}", text(&ran.stderr));
    }
    let ran = plumb(at, &["diff", "both.plumb", "turned.plumb", "--clock", "samples"]);
    assert_eq!(ran.status.code(), Some(2), "{}", text(&ran.stdout));
}

/// Check that generated code has the names that its program wrote: in a perf-PID.map, whenever; in a jitdump, by the
/// time of the sample.
#[test]
fn code_made_at_run_time() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::create_dir_all(at.join("root/tmp")).unwrap();
    let map = "700000000 40 from_map\n700000040 10 beside\n";
    fs::write(at.join("root/tmp/perf-7.map"), map).unwrap();
    // jitdump-specification.txt: a header, then pieces of code with their times.
    let word = |bytes: &mut Vec<u8>, words: &[u64]| {
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    };
    let mut dump = Vec::new();
    word(&mut dump, &[1 << 32 | 0x4A69_5444, 62 << 32 | 40, 7 << 32, 0, 0]);
    for (time_ns, address, index, name) in
        [(2_000, 0x7_0000_0100, 1_u64, "first"), (3_000, 0x7_0000_0100, 2, "second")]
    {
        let bytes = 16 + 40 + name.len() as u64 + 1 + 16;
        word(&mut dump, &[bytes << 32, time_ns, 7 | 7 << 32, address, address, 16, index]);
        dump.extend(name.bytes().chain([0; 17]));
    }
    // The first one is moved.
    let moved = [1 | 64 << 32, 4_000, 7 | 7 << 32, 0, 0x7_0000_0100, 0x7_0000_0200, 16, 1];
    word(&mut dump, &moved);
    fs::write(at.join("root/tmp/jit-7.dump"), dump).unwrap();
    let mut made = Made::new();
    made.monotonic = true;
    made.map(7, USER, (0x7_0000_0000, 0x1000, 0), "//anon");
    made.map(7, USER, (0x6_0000_0000, 0x1000, 0), "/tmp/jit-7.dump");
    for (time_ns, address) in [
        (1_000, 0x7_0000_0008),
        (1_500, 0x7_0000_0108),
        (2_500, 0x7_0000_0108),
        (3_500, 0x7_0000_0108),
        (4_500, 0x7_0000_0208),
        (4_600, 0x7_0000_0048),
    ] {
        made.sample(0, time_ns, 100, &[IN_USER, address]);
    }
    let path = at.join("jit.data");
    fs::write(&path, made.file()).unwrap();
    let mut asked = Options { symfs: Some(at.join("root")), ..options(at) };
    let recording = perf_data(&path, &asked).unwrap();
    let names = ["from_map", "[0x700000108]", "first", "second", "first", "beside"];
    assert_eq!(stacks(&recording), names);
    // Whose files these are is not known without the machine's name, or where they are.
    asked.symfs = None;
    let recording = perf_data(&path, &asked).unwrap();
    assert!(stacks(&recording).iter().all(|name| name.starts_with("[0x7000")));
}

/// Check that what the threads of perf wrote in files of their own, in a directory, is what one file has.
#[test]
fn directories() {
    let folder = tempfile::tempdir().unwrap();
    let whole = super::samples();
    let mut threads = [Made::default(), Made::default()];
    let mut first = Made { records: Vec::new(), ..whole.clone() };
    let mut rest = &whole.records[..];
    let mut n = 0;
    while rest.len() >= 8 {
        let size = usize::from(u16::from_le_bytes([rest[6], rest[7]]));
        let (record, later) = rest.split_at(size);
        let of = match rest[0] {
            9 => &mut threads[n % 2],
            _ => &mut first,
        };
        of.records.extend_from_slice(record);
        (rest, n) = (later, n + 1);
    }
    let path = folder.path().join("x");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("data"), first.file()).unwrap();
    for (n, of) in threads.iter().enumerate() {
        fs::write(path.join(format!("data.{n}")), &of.records).unwrap();
    }
    let recording = perf_data(&path, &options(folder.path())).unwrap();
    let expected = imported(&folder, &whole.file());
    assert_eq!(totals(&recording), totals(&expected));
    assert_eq!(losses(&recording), losses(&expected));
    fs::remove_file(path.join("data")).unwrap();
    let refused = perf_data(&path, &options(folder.path())).unwrap_err();
    assert!(refused.to_string().contains("not a perf.data file"), "{refused}");
}

/// Check that simpleperf's files give the names of functions and events that are in them, in both formats
/// of its symbols.
#[test]
fn simpleperf() {
    let folder = tempfile::tempdir().unwrap();
    for older in [true, false] {
        let mut made = Made::new();
        made.events = vec![(4, 0x11)];
        let meta = "simpleperf_version\x001.build.7\0event_type_info\0cpu-cycles,0,0\nraw-x,4,17\0";
        // The file's code is at 0x2000, from offset 0x1000 on.
        let symbols = [(0x2100_u64, 0x20_u32, "_Z3fooi"), (0x2200, 0x10, "bar")];
        let record = match older {
            true => {
                let mut record = b"/nowhere/net\0".to_vec();
                record.extend(2_u32.to_le_bytes());
                record.extend(0x2000_u64.to_le_bytes());
                record.extend((symbols.len() as u32).to_le_bytes());
                for (address, bytes, name) in symbols {
                    record.extend(address.to_le_bytes());
                    record.extend(bytes.to_le_bytes());
                    record.extend(name.bytes().chain([0]));
                }
                record.extend(0x1000_u64.to_le_bytes());
                record
            }
            false => {
                // Protocol buffers: a tag, then a number of 7 bits a byte, or a length and bytes.
                let number = |tag: u8, mut value: u64| {
                    let mut bytes = vec![tag << 3];
                    while value >= 0x80 {
                        bytes.push(value as u8 | 0x80);
                        value >>= 7;
                    }
                    bytes.push(value as u8);
                    bytes
                };
                let sized = |tag: u8, of: &[u8]| [&[tag << 3 | 2, of.len() as u8], of].concat();
                let symbols = symbols.iter().flat_map(|(address, bytes, name)| {
                    let bytes = u64::from(*bytes);
                    let name = sized(3, name.as_bytes());
                    sized(4, &[number(1, *address), number(2, bytes), name].concat())
                });
                let symbols: Vec<u8> = symbols.collect();
                let path = sized(1, b"/nowhere/net");
                let offset = sized(6, &number(1, 0x1000));
                [path, number(2, 2), number(3, 0x2000), symbols, offset].concat()
            }
        };
        let mut section = (record.len() as u32).to_le_bytes().to_vec();
        section.extend(record);
        made.features =
            vec![(if older { 128 } else { 132 }, section), (129, meta.as_bytes().to_vec())];
        made.map(7, USER, (0x50_0000, 0x1000, 0x1000), "/nowhere/net");
        for ip in [0x50_0108, 0x50_0200, 0x50_0300] {
            made.sample(0, 1_000, 100, &[IN_USER, ip]);
        }
        let recording = imported(&folder, &made.file());
        assert_eq!(stacks(&recording), ["foo(int)", "bar", "[0x1300]"]);
        assert_eq!(recording.quantities[0].name, "raw-x");
        assert_eq!(recording.environment["imported.from"], "simpleperf 1.build.7");
    }
}

/// Check that a report and a comparison can be limited to threads or processes by name or number, and that the
/// network's total is printed: below calls on sockets, and in softirqs.
#[test]
fn threads_and_network() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    options(at);
    let mut made = Made::new();
    made.comm(20, "other");
    made.thread(7, 20, 21);
    made.now_ns = 1;
    made.comm(21, "worker");
    let call = [IN_KERNEL, TEXT + 0x3010, TEXT + 0x4810, IN_USER, 0x40_0100];
    let receive = [IN_KERNEL, TEXT + 0x4010, IN_USER, 0x40_0100];
    let worker = 20 | 21 << 32;
    for n in 0..50 {
        let time_ns = 1_000 + n * 100;
        let user = [2, IN_USER, 0x40_0100];
        match n % 10 {
            0 | 1 => made.sample(0, time_ns, 100, &call),
            2 => made.sample(0, time_ns, 100, &receive),
            3 | 4 => made.sample(0, time_ns, 100, &[IN_USER, 0x40_0100]),
            5 => made.sample_at(USER, 20 | 20 << 32, (time_ns, 0x40_0100), &user),
            _ => made.sample_at(USER, worker, (time_ns, 0x40_0100), &user),
        }
    }
    fs::write(at.join("t.data"), made.file()).unwrap();
    let words = ["import", "t.data", "--kallsyms", "kallsyms", "--blocks", "5"];
    assert!(plumb(at, &words).status.success());
    let report = |more: &[&str]| {
        let ran = plumb(at, &[&["report", "t.plumb"][..], more].concat());
        assert!(ran.status.success(), "{more:?}: {}", text(&ran.stderr));
        text(&ran.stdout)
    };
    let line = "30.0%: below calls on sockets 20.0%, in softirqs NET_RX and NET_TX 10.0%";
    let said = report(&[]);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains(line) && said.contains("network in all"), "{said}");
    let json = report(&["--json"]);
    for (key, sum) in [("network", 1_500), ("network_calls", 1_000), ("network_softirqs", 500)] {
        assert!(json.contains(&format!("\"{key}\": {sum}")), "{key}: {json}");
    }
    for (words, of, samples) in [
        (["--thread", "worker"], "thread worker", 20),
        (["--thread", "21"], "thread 21", 20),
        (["--process", "other"], "process other", 25),
        (["--process", "7"], "process 7", 25),
    ] {
        let said = report(&words);
        assert!(said.contains(&format!("CPU time of {of}")), "{said}");
        assert!(said.contains(&format!("samples   {samples};")), "{said}");
        let csv = report(&[&words[..], &["--csv"]].concat());
        let sampled = csv.lines().skip(1).map(|line| line.split(',').nth(6).unwrap());
        let sampled: u64 = sampled.map(|samples| samples.parse::<u64>().unwrap()).sum();
        assert_eq!(sampled, samples, "{csv}");
    }
    fs::copy(at.join("t.plumb"), at.join("u.plumb")).unwrap();
    let ran = plumb(at, &["diff", "t.plumb", "u.plumb", "--process", "other"]);
    let said = text(&ran.stdout);
    assert!(ran.status.success() && said.contains("t.plumb, process other"), "{said}");
    assert!(!said.contains("udp_sendmsg"), "{said}");
    for words in [
        &["report", "t.plumb", "--thread", "nobody"][..],
        &["diff", "t.plumb", "u.plumb", "--process", "worker"],
        &["report", "t.plumb", "--thread", "a", "--process", "b"],
    ] {
        assert_eq!(plumb(at, words).status.code(), Some(2), "{words:?}");
    }
}

/// Check that files of perf 6.1 have as many samples, and of as much, as its `perf script` prints.
#[test]
fn recorded() {
    let folder = tempfile::tempdir().unwrap();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pure/import/recorded");
    for (name, expected) in [
        (
            "group",
            &[
                ("CPU time", (24, 120_125_524)),
                ("context-switches", (24, 55)),
                ("page-faults", (24, 39_428)),
            ][..],
        ),
        ("leader-exits", &[("CPU time", (19, 95_000_000))]),
        (
            "modifiers",
            &[
                ("cpu-clock:k", (4, 40_000_000)),
                ("cpu-clock:u", (6, 60_000_000)),
                ("task-clock", (11, 110_000_000)),
            ],
        ),
    ] {
        let packed = fs::read(kept.join(format!("{name}.data.xz"))).unwrap();
        let bytes = compression::unpack(Compression::Xz, &packed, 1 << 20).unwrap();
        let recording = imported(&folder, &bytes);
        let expected = expected.iter().map(|(name, of)| (name.to_string(), *of));
        assert_eq!(totals(&recording), expected.collect(), "{name}");
        let is_here = |loss: &(String, u64)| !loss.0.contains("no sense");
        assert!(losses(&recording).iter().all(is_here));
        if name == "leader-exits" {
            let modules = recording.functions.iter().filter_map(|f| f.module.as_deref());
            let modules: Vec<&str> = modules.collect();
            assert!(
                modules.contains(&"mainexit") && !modules.contains(&"(no file)"),
                "{modules:?}"
            );
        }
    }
}
