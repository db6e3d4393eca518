//! `plumb import`: files that perf wrote, and files that a test made up, whole and damaged.

mod elf;
mod kinds;
mod made;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use elf::{CODE_BYTES, large, own_code};
use made::{IN_KERNEL, IN_USER, KALLSYMS, LATER, Made, TEXT, USER};
use netplumb_import::{Options, perf_data};
use netplumb_model::class::{Context, Softirq};
use netplumb_model::recording::Recording;
use netplumb_testkit::skip;
use tempfile::TempDir;

fn plumb(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plumb")).args(words).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Samples of two events: in the kernel below a program, in a softirq, and in the program.
fn samples() -> Made {
    let mut made = Made::new();
    made.events.push((1, 2));
    let kernel = |at: u64| TEXT + at;
    for n in 0..40 {
        let chain =
            [IN_KERNEL, kernel(0x3010), kernel(0x2020), kernel(0x1030), IN_USER, 0x40_0123, 0x12];
        made.sample(0, 1_000 + n * 100, 250, &chain);
    }
    made.sample(0, 1_500, 50, &[IN_KERNEL, kernel(0x4004), kernel(0x1030)]);
    made.sample(0, 1_600, 100, &[IN_USER, 0x40_0456]);
    made.sample(1, 1_700, 3, &[IN_USER, 0x40_0456]);
    made.lost(9);
    made
}

fn options(folder: &Path) -> Options {
    let kallsyms = folder.join("kallsyms");
    fs::write(&kallsyms, KALLSYMS).unwrap();
    Options { blocks: 4, kallsyms: Some(kallsyms), symfs: None, cache: None }
}

/// The recording imported from these bytes.
fn imported(folder: &TempDir, bytes: &[u8]) -> Recording {
    let path = folder.path().join("x.data");
    fs::write(&path, bytes).unwrap();
    perf_data(&path, &options(folder.path())).unwrap()
}

/// Check that stacks have the names of the kernel's symbols, wherever it was loaded, that code
/// without a name has its address, and that times, threads, contexts and losses are kept; whether
/// it is a file or a stream.
#[test]
fn what_is_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let recording = imported(&folder, &samples().file());
    let pipe = imported(&folder, &samples().pipe());
    assert_eq!(recording.samples, pipe.samples);
    assert_eq!((&recording.costs, &recording.nodes), (&pipe.costs, &pipe.nodes));
    assert_eq!(recording.blocks.len(), 4);
    let names: Vec<&str> = recording.quantities.iter().map(|q| q.name.as_str()).collect();
    assert_eq!(names, ["CPU time", "page-faults"]);
    let total = |of: u32| {
        let totals = recording.blocks.iter().flat_map(|b| &b.totals);
        let of = totals.filter(|total| total.quantity == of);
        of.fold((0, 0), |sum, t| (sum.0 + t.kernel, sum.1 + t.user))
    };
    assert_eq!((total(0), total(1)), ((40 * 250 + 50, 100), (0, 3)));
    let stack = |mut node: u32| {
        let mut stack = Vec::new();
        loop {
            let at = recording.nodes[node as usize];
            stack.push(recording.functions[at.function as usize].name.as_str());
            match at.parent {
                Some(parent) => node = parent,
                None => return stack,
            }
        }
    };
    let mut found = BTreeMap::new();
    for cost in &recording.costs {
        let of = found.entry((stack(cost.node), cost.context)).or_insert((0, 0));
        *of = (of.0 + cost.calls, of.1 + cost.own);
    }
    let thread = "net\u{1b}[31m";
    let call = ["udp_sendmsg", "do_syscall_64", "entry_SYSCALL_64", "[0x123]", "[unknown]", thread];
    let receive = ["net_rx_action", "entry_SYSCALL_64", thread];
    let expected = BTreeMap::from([
        ((call.to_vec(), Context::Task), (40, 10_000)),
        ((receive.to_vec(), Context::Softirq(Softirq::NetRx)), (1, 50)),
        ((vec!["[0x456]", thread], Context::Task), (2, 103)),
    ]);
    assert_eq!(found, expected);
    let first = recording.samples[0].get(0).unwrap();
    assert_eq!((first.time_ns, first.cpu, first.thread), (0, 1, 0));
    assert_eq!(recording.threads[0].name, thread);
    let losses: Vec<(&str, u64)> =
        recording.all_losses().map(|l| (l.cause.as_str(), l.count)).collect();
    assert_eq!(
        losses,
        [("samples lost by perf record", 9), ("samples of programs without a name", 2)]
    );
}

/// Check that samples of idle CPUs are in no share, however many there are, that interrupts of an idle CPU are work,
/// and that the footer has their number.
#[test]
fn idle_is_no_share() {
    let folder = tempfile::tempdir().unwrap();
    let shares = |idle: u64| {
        let mut made = samples();
        for n in 0..idle {
            let chain = [IN_KERNEL, TEXT + 0x2020, TEXT + 0x1030];
            made.sample_of(0, 0, (1_000 + n % 3_900, 250), &chain);
        }
        let interrupted = [IN_KERNEL, TEXT + 0x4004, TEXT + 0x2020];
        made.sample_of(0, 0, (1_800, 50), &interrupted);
        fs::write(folder.path().join("i.data"), made.file()).unwrap();
        options(folder.path());
        let words = ["import", "i.data", "--kallsyms", "kallsyms"];
        assert!(plumb(folder.path(), &words).status.success());
        let words = ["report", "i.plumb", "--clock", "samples"];
        let report = |words: &[&str]| {
            let ran = plumb(folder.path(), words);
            assert!(ran.status.success(), "{}", text(&ran.stderr));
            text(&ran.stdout)
        };
        (report(&[&words[..], &["--csv"]].concat()), report(&words))
    };
    let (few, many) = (shares(10), shares(400));
    assert_eq!(few.0, many.0);
    assert!(few.0.contains("net_rx_action") && few.0.contains("swapper"), "{}", few.0);
    assert!(many.1.contains("400 more samples (90.3% of all) found CPUs idle"), "{}", many.1);
}

/// Check that standard input is read, from a pipe and as a file, and bad input there is an error.
#[test]
fn standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    options(at);
    let files = [samples().file(), samples().pipe()];
    for (n, bytes) in files.iter().enumerate() {
        fs::write(at.join("x.data"), bytes).unwrap();
        for piped in [true, false] {
            let name = format!("{n}{piped}.plumb");
            let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
            command.current_dir(at);
            command.args(["import", "-", "-o", &name, "--kallsyms", "kallsyms"]);
            let mut cat = None;
            if piped {
                let mut of = Command::new("cat");
                let mut child = of.arg(at.join("x.data")).stdout(Stdio::piped()).spawn().unwrap();
                command.stdin(child.stdout.take().unwrap());
                cat = Some(child);
            } else {
                command.stdin(fs::File::open(at.join("x.data")).unwrap());
            }
            let ran = command.output().unwrap();
            cat.map(|mut cat| cat.wait().unwrap());
            assert!(ran.status.success(), "{}", text(&ran.stderr));
            assert!(text(&ran.stderr).starts_with("imported 43 samples"), "{ran:?}");
        }
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
    let ran = command.args(["import", "-"]).current_dir(at).stdin(Stdio::null());
    let ran = ran.output().unwrap();
    assert_eq!(ran.status.code(), Some(1));
    assert!(text(&ran.stderr).contains("standard input: not a perf.data file"), "{ran:?}");
}

/// Check that samples belong to the mappings, and the thread names, of their time: whatever the order of the records in
/// the file, marked or not, in a file or a stream.
#[test]
fn in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut made = Made::new();
    // One process after the other has the same number, and each another program at the same address.
    for turn in 0..40_u64 {
        made.now_ns = 1_000_000 * (turn + 1);
        made.fork(7, 70, 7);
        made.now_ns += 1;
        made.execute(70, &format!("turn{turn}"));
        made.now_ns += 1;
        made.map(70, USER, (0x50_0000, 0x1000, 0), &format!("/nowhere/p{turn}"));
        for n in 0..5 {
            let at = (made.now_ns + 1_000 * (n + 1), 100);
            made.sample_of(70, 0, at, &[IN_USER, 0x50_0010 + n]);
        }
        made.now_ns += 10_000;
        made.fork(4, 70, 7);
    }
    let sorted = imported(&folder, &made.file());
    let turns: Vec<(String, String)> = sorted
        .samples
        .iter()
        .flat_map(|s| s.iter())
        .map(|sample| {
            let function = sorted.nodes[sample.node as usize].function as usize;
            let thread = sorted.threads[sample.thread as usize].name.clone();
            (thread, sorted.functions[function].module.clone().unwrap())
        })
        .collect();
    let expected = (0..200).map(|n| (format!("turn{}", n / 5), format!("p{}", n / 5)));
    assert_eq!(turns, expected.collect::<Vec<_>>());
    // Multiplied by a number without a common divisor, places are mixed.
    let mixed = |count: usize| (0..count).map(|n| n * 7_919 % count).collect();
    for other in [made.reordered(|count| (0..count).rev().collect()), made.reordered(mixed)] {
        let mut marked = other.clone();
        marked.record(68, 0, &[]);
        for bytes in [other.file(), other.pipe(), marked.file()] {
            let recording = imported(&folder, &bytes);
            assert_eq!(recording.samples, sorted.samples);
            assert_eq!(recording.threads, sorted.threads);
            assert_eq!(recording.functions, sorted.functions);
            assert_eq!(recording.nodes, sorted.nodes);
        }
    }
}

/// Check that many samples take little memory and a small file: out of order and with no marks of how
/// far the order goes, of many processes, and with many different stacks.
#[test]
fn many_samples() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for (samples, processes, stacks, most) in [
        (400_000, 100, 5_000, 4_000_000),
        (400_000, 10_000, 50_000, 8_000_000),
        (600_000, 100, 200_000, 8_000_000),
    ] {
        let made = Made::many(samples, processes, stacks);
        let made = made
            .reordered(|count| (0..count).map(|n| if n ^ 1 < count { n ^ 1 } else { n }).collect());
        fs::write(at.join("m.data"), made.file()).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_plumb"))
            .args(["import", "m.data", "-o", "m.plumb"])
            .current_dir(at)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (said, peak_bytes) = waited(child);
        let imported = format!("imported {}00,000 samples", samples / 100_000);
        assert!(said.contains(&imported), "{said}");
        assert!(
            peak_bytes < 250 * samples,
            "{samples} samples, {stacks} stacks: {peak_bytes} bytes"
        );
        let bytes = fs::metadata(at.join("m.plumb")).unwrap().len();
        assert!(bytes < most, "{stacks} stacks: {bytes} bytes");
    }
}

/// Check that 600,000 samples in a program with very many symbols take at most 100 MB: symbols
/// without samples are not kept, and names are kept once.
#[test]
fn many_symbols() {
    const SYMBOLS: u64 = 400_000;
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let path = at.join("large");
    fs::write(&path, large(SYMBOLS)).unwrap();
    let mut made = Made::many(600_000, 100, 5_000);
    made.machine = Some((std::env::consts::ARCH, "6.1.0"));
    made.map(7, USER, (0x10_0000, CODE_BYTES * SYMBOLS, 0), path.to_str().unwrap());
    // Every place of some functions, and some of others.
    for n in 0..40_000_u64 {
        let place = n % 20 + (n / 20) * 97 % SYMBOLS * CODE_BYTES;
        made.sample_of(7, 0, (made.now_ns + n, 100), &[IN_USER, 0x10_0000 + place]);
    }
    fs::write(at.join("l.data"), made.file()).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_plumb"))
        .args(["import", "l.data", "-o", "l.plumb"])
        .current_dir(at)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (said, peak_bytes) = waited(child);
    assert!(said.contains("imported 640,000 samples"), "{said}");
    assert!(peak_bytes < 100_000_000, "{peak_bytes} bytes");
    let folded = plumb(at, &["report", "l.plumb", "--clock", "samples", "--csv"]);
    let csv = text(&folded.stdout);
    assert!(csv.lines().filter(|line| line.contains("a_function_")).count() > 1_000);
}

/// What a process writes to its standard error, and its peak memory: its own, as `wait4` includes the memory of the
/// process that started it.
fn waited(mut child: std::process::Child) -> (String, u64) {
    let status = format!("/proc/{}/status", child.id());
    let mut peak_kilobytes = 0;
    while child.try_wait().unwrap().is_none() {
        let now = fs::read_to_string(&status).unwrap_or_default();
        let line = now.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        peak_kilobytes = kilobytes.unwrap_or(peak_kilobytes);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let mut said = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success(), "{said}");
    assert!(peak_kilobytes > 1_000, "{peak_kilobytes}");
    (said, peak_kilobytes * 1024)
}

/// Check that what a recording lacks is reported: stacks, of all of it or of user code, and its
/// end.
#[test]
fn what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    options(at);
    let report = |made: &[u8]| {
        fs::write(at.join("m.data"), made).unwrap();
        let ran = plumb(at, &["import", "m.data", "--kallsyms", "kallsyms"]);
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        let words = ["report", "m.plumb"];
        let words = words.into_iter().map(str::to_string).collect::<Vec<_>>().join(" ");
        let out = plumb(at, &words.split(' ').collect::<Vec<_>>());
        text(&out.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let mut made = Made::new();
    made.no_stacks = true;
    made.machine = Some(("x86_64", "6.1.0"));
    made.sample(0, 1_000, 250, &[IN_KERNEL, TEXT + 0x3010]);
    let said = report(&made.file());
    assert!(said.contains("call graph none: samples have no stacks"), "{said}");
    assert!(
        said.contains(
            "names sampled on x86_64; the kernel's by kallsyms; files of programs: 0 found"
        ),
        "{said}"
    );
    let mut made = Made::new();
    for n in 0..20 {
        let chain = [IN_KERNEL, TEXT + 0x3010, TEXT + 0x1030, LATER, 77];
        made.sample(0, 1_000 + n, 250, &chain);
    }
    let whole = made.file();
    let said = report(&whole);
    assert!(said.contains("20 samples whose user stack is recorded later"), "{said}");
    assert!(!said.contains("[0x4c]") && !said.contains("0x4d"), "{said}");
    assert!(!said.contains("cut short"), "{said}");
    let said = report(&whole[..whole.len() - 40]);
    let cut = plumb(at, &["import", "m.data", "--kallsyms", "kallsyms"]);
    assert!(cut.status.success());
    let heard = text(&cut.stderr);
    assert!(heard.contains("plumb: m.data: end of the file missing: samples until"), "{heard}");
    assert!(
        said.contains("cut short the file was not read to its end: later samples are missing"),
        "{said}"
    );
}

/// Check that the command writes a recording that all reports and a comparison can be made of, that
/// names of threads can't move the terminal's cursor, and that an earlier recording is kept.
#[test]
fn reports() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    options(at);
    fs::write(at.join("a.data"), samples().file()).unwrap();
    for _ in 0..2 {
        let ran = plumb(at, &["import", "a.data", "--kallsyms", "kallsyms"]);
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        assert!(text(&ran.stderr).starts_with("imported 43 samples of 8 functions in a.plumb\n"));
    }
    assert!(at.join("a.plumb.old").exists());
    let clock = ["--clock", "samples"];
    for words in [
        &["report", "a.plumb"][..],
        &["report", "a.plumb", "--json"],
        &["report", "a.plumb", "--clock", "page-faults", "--csv"],
        &["report", "a.plumb", "--tree", clock[0], clock[1]],
        &["report", "a.plumb", "--markdown", clock[0], clock[1]],
        &["report", "a.plumb", "--callgrind", clock[0], clock[1]],
        &["report", "a.plumb", "--pprof=pprof", clock[0], clock[1]],
        &["report", "a.plumb", "--speedscope", clock[0], clock[1]],
        &["report", "a.plumb", "--svg", clock[0], clock[1]],
        &["report", "a.plumb", "--html", "a.html", clock[0], clock[1]],
        &["diff", "a.plumb", "a.plumb.old", clock[0], clock[1]],
    ] {
        let ran = plumb(at, words);
        assert!(ran.status.success(), "{words:?}: {}", text(&ran.stderr));
        assert!(!text(&ran.stdout).contains('\u{1b}'), "{words:?}");
    }
    let ran = plumb(at, &["report", "a.plumb", "--folded", clock[0], clock[1]]);
    let folded = text(&ran.stdout);
    let line = folded.lines().find(|line| line.contains("udp_sendmsg")).unwrap();
    assert!(line.ends_with("entry_SYSCALL_64;do_syscall_64;udp_sendmsg 10000"), "{folded}");
}

/// Check that a file of another machine is imported with the addresses of its kernel, and the
/// remedy to get names.
#[test]
fn other_machine() {
    let folder = tempfile::tempdir().unwrap();
    let mut made = samples();
    made.machine = Some(("aarch64", "6.1.0-arm64"));
    let path = folder.path().join("x.data");
    fs::write(&path, made.file()).unwrap();
    let without = Options { kallsyms: None, ..options(folder.path()) };
    let recording = perf_data(&path, &without).unwrap();
    assert_eq!(recording.environment["kernel.release"], "6.1.0-arm64");
    let name = format!("[{:#x}]", TEXT + 0x3010);
    assert!(recording.functions.iter().any(|f| f.name == name));
    let loss = recording.all_losses().find(|loss| loss.count == 41).unwrap();
    assert!(loss.meaning.contains("use --kallsyms"));
}

/// Check that for another architecture the command prints a line with the remedy, and so does the report; and that
/// names come neither from this machine's files nor from another architecture's.
#[test]
fn another_architecture() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    options(at);
    let own = std::env::current_exe().unwrap();
    let own = own.to_str().unwrap();
    let import = |arch: &'static str, symfs: bool| {
        let mut made = samples();
        made.machine = Some((arch, "6.1.0"));
        made.map(7, USER, (0x50_0000, 0x1_0000, own_code(own)), own);
        for n in 0..50 {
            made.sample(0, 3_000 + n, 100, &[IN_USER, 0x50_0100 + n * 64]);
        }
        fs::write(at.join("a.data"), made.file()).unwrap();
        let mut words = vec!["import", "a.data"];
        if symfs {
            words.extend(["--symfs", "/"]);
        }
        let ran = plumb(at, &words);
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        let csv = text(&plumb(at, &["report", "a.plumb", "--clock", "samples", "--csv"]).stdout);
        // Samples in this very file: by name, or by address.
        let base = own.rsplit('/').next().unwrap();
        let of_own = csv.lines().filter(|line| line.contains(base));
        let (bare, named): (Vec<&str>, Vec<&str>) = of_own.partition(|line| line.contains("[0x"));
        let report = text(&plumb(at, &["report", "a.plumb"]).stdout);
        let report: Vec<&str> = report.split_whitespace().collect();
        (text(&ran.stderr), report.join(" "), named.len(), bare.len())
    };
    let here = std::env::consts::ARCH;
    let other = if here == "aarch64" { "x86_64" } else { "aarch64" };
    let (said, report, named, bare) = import(here, false);
    assert!(!said.contains("this machine is"), "{said}");
    assert!(!report.contains("imported on"), "{report}");
    // Where the file is stripped, functions come from its unwind tables, named by their addresses.
    assert!(named + bare > 0, "{report}");
    for symfs in [false, true] {
        let (said, report, named, bare) = import(other, symfs);
        let line = said.lines().find(|line| line.contains("this machine is")).unwrap();
        let begin = format!("plumb: a.data: sampled on {other}, and this machine is {here}: ");
        assert!(line.starts_with(&begin), "{line}");
        assert!(line.contains("--kallsyms FILE") && line.contains("--symfs DIR"), "{line}");
        assert!(report.contains(&format!("{other}, imported on {here}")), "{report}");
        assert!(named == 0 && bare > 0, "{named} names, {bare} addresses");
    }
}

/// Check that a file that is not perf.data, or has no samples, is refused in one line with a
/// remedy, and that nothing is written then.
#[test]
fn refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let file = samples().file();
    let mut swapped = file.clone();
    swapped[..8].copy_from_slice(b"2ELIFREP");
    for (bytes, why) in [
        (&b"hello"[..], "not a perf.data file; expected one by `perf record`"),
        (b"", "not a perf.data file"),
        (&file[..50], "its header is cut short"),
        (&file[..150], "its list of events makes no sense"),
        (&swapped, "of a big-endian machine"),
        (&Made::new().file(), "no samples in it; record for longer"),
    ] {
        fs::write(at.join("x.data"), bytes).unwrap();
        let ran = plumb(at, &["import", "x.data"]);
        let said = text(&ran.stderr);
        assert_eq!(ran.status.code(), Some(1), "{said}");
        assert!(said.contains(why) && said.lines().count() == 1, "{said}");
    }
    for (words, why, code) in [
        (&["import", "nosuch"][..], "nosuch", 1),
        (&["import", "x.data", "--kallsyms", "nosuch"], "--kallsyms nosuch", 2),
        (&["import", "x.data", "--symfs", "nosuch"], "no such directory", 2),
        (&["import", "x.data", "--blocks", "0"], "invalid value", 2),
        (&["import", "x.data", "-o", "x.data"], "is not a Netplumb recording", 2),
    ] {
        let ran = plumb(at, words);
        let said = text(&ran.stderr);
        assert_eq!(ran.status.code(), Some(code), "{said}");
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(fs::read_dir(at).unwrap().count(), 1);
}

/// Check that a file that was cut short anywhere is imported up to there and reported as cut, or
/// refused; and that no damage makes the import panic or take much memory.
#[test]
fn damaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.data");
    let options = options(folder.path());
    let import = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        perf_data(&path, &options)
    };
    for whole in [samples().file(), samples().pipe()] {
        let all = import(&whole).unwrap().samples;
        let all: usize = all.iter().map(|samples| samples.len()).sum();
        let mut most = 0;
        for part in 0..50 {
            let cut = whole.len() * part / 50;
            let Ok(recording) = import(&whole[..cut]) else {
                continue;
            };
            let samples: usize = recording.samples.iter().map(|s| s.len()).sum();
            assert!(samples < all && samples >= most, "cut at {cut}");
            most = samples;
            // A stream that ends after a record has nothing to show that it was cut.
            let said =
                recording.all_losses().any(|loss| loss.cause.contains("end of the file missing"));
            assert!(said || whole[8] == 16, "cut at {cut}");
        }
        assert!(most > all / 2);
        // A generator of the same numbers in every run (Knuth's constants).
        let mut state = 1_u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        for _ in 0..400 {
            let mut bytes = whole.clone();
            for _ in 0..1 + random() % 8 {
                // Mostly in the header and the first records, where lengths are.
                let span = if random() % 2 == 0 { bytes.len() } else { 400 };
                let at = random() % span.min(bytes.len());
                bytes[at] = match random() % 3 {
                    0 => 0xff,
                    1 => 0,
                    _ => random() as u8,
                };
            }
            drop(import(&bytes));
        }
    }
    let peak = fs::read_to_string("/proc/self/status").unwrap();
    let peak = peak.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    let kilobytes: u64 = peak.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kilobytes < 400 << 10, "{peak}");
}

/// Check that what perf records here is imported with as many samples as `perf script` prints, of
/// each event and in each function: as a file, compressed, and as a stream.
#[test]
fn as_root_as_perf_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let load = "for n in 1 2 3 4 5 6 7 8 9; do ls -R /usr/include > /dev/null; done";
    let events = "cpu-clock,page-faults";
    for (name, flags) in
        [("file", "-o file.data"), ("packed", "-z -o packed.data"), ("pipe", "-o -")]
    {
        let mut words = vec!["record", "-q", "-F", "2000", "-g", "-e", events];
        words.extend(flags.split(' '));
        let perf = Command::new("perf")
            .args(words)
            .args(["--", "sh", "-c", load])
            .current_dir(at)
            .output();
        let Ok(recorded) = perf else {
            return skip("perf is not installed");
        };
        if !recorded.status.success() {
            return skip("perf can't record here");
        }
        let data = format!("{name}.data");
        if name == "pipe" {
            fs::write(at.join(&data), &recorded.stdout).unwrap();
        }
        let script = Command::new("perf")
            .args(["script", "-i", &data, "-F", "event,ip,sym", "-G"])
            .current_dir(at)
            .output()
            .unwrap();
        let mut theirs: BTreeMap<String, u64> = BTreeMap::new();
        for line in text(&script.stdout).lines() {
            let event = line.split(':').next().unwrap_or_default().trim();
            if !event.is_empty() {
                *theirs.entry(event.to_string()).or_default() += 1;
            }
        }
        let recording = perf_data(
            &at.join(&data),
            &Options { blocks: 5, kallsyms: None, symfs: None, cache: None },
        )
        .unwrap();
        let mut ours: BTreeMap<String, u64> = BTreeMap::new();
        for samples in &recording.samples {
            let quantity = &recording.quantities[samples.quantity as usize].name;
            let event = if quantity == "CPU time" { "cpu-clock" } else { quantity };
            *ours.entry(event.to_string()).or_default() += samples.len() as u64;
        }
        assert_eq!(ours, theirs, "{name}: {:?}", recording.losses);
        let lost = recording.all_losses().any(|loss| loss.cause.contains("make no sense"));
        assert!(!lost, "{name}: {:?}", recording.losses);
        let path = at.join("x.plumb");
        let mut writer = netplumb_store::Writer::create(&path).unwrap();
        writer.save(&recording).unwrap();
        let read = netplumb_store::read(&path).unwrap();
        // Of thousands of rows, nobody wants to see all.
        assert!(read.samples == recording.samples && read.costs == recording.costs);
    }
}
