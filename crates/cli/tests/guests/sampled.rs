//! `samples` in guests: drawn from the exact stream, so that they can be held against it; and,
//! as a timer would take them, against a timer in such a guest.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use crate::common::{Place, prints, tell};
use netplumb_model::quantity::{Declared, QuantityId};
use netplumb_model::recording::{Cost, Recording};
use netplumb_model::timing::{DEFERRED, INSTRUCTIONS, INTERRUPTS_OFF, SAMPLE_SEED, SAMPLED};
use netplumb_report::diff::arms::pair;
use netplumb_report::diff::{Sides, compare};
use netplumb_report::sampled::interval;

fn number(recording: &Recording, of: &Declared) -> QuantityId {
    let at = recording.quantities.iter().position(|q| q.is(of));
    at.unwrap() as QuantityId
}

/// Sums by arm and function.
type Sums = BTreeMap<(u32, u32), u64>;

fn sums<'r>(recording: &'r Recording, costs: impl Iterator<Item = &'r Cost>) -> Sums {
    let mut sums = Sums::new();
    for cost in costs {
        let arm = recording.blocks[cost.block as usize].arm;
        let function = recording.nodes[cost.node as usize].function;
        *sums.entry((arm, function)).or_default() += cost.own;
    }
    sums
}

/// The sum of an arm.
fn whole(sums: &Sums, arm: u32) -> u64 {
    sums.range((arm, 0)..=(arm, u32::MAX)).map(|(_, n)| n).sum()
}

/// The seeds of the samples.
fn seeds(recording: &Recording) -> Vec<u64> {
    let of = recording.scalars_of(&SAMPLE_SEED);
    of.map(|scalar| scalar.value as u64).collect()
}

/// The functions whose samples differ, if there are any.
fn differs(before: &Recording, after: &Recording) -> Option<String> {
    let parts = [before, after].map(|r| r.part(SAMPLED.instrument));
    let sides =
        Sides { before: &parts[0], after: &parts[1], before_name: "before", after_name: "after" };
    let all = |r: &Recording| (0..r.arms.len()).collect();
    let pairs = pair((&before.arms, all(before)), (&after.arms, all(after)));
    let diff = compare(sides, &pairs, &[]);
    assert!(diff.warnings.is_empty(), "{:?}", diff.warnings);
    assert!(diff.classes.len() >= 6);
    let changed = diff.classes.iter().flat_map(|class| class.changed());
    let names: Vec<&str> = changed.map(|row| row.name.as_str()).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Check that two recordings have the same costs and blocks. They are too many to be printed: where they
/// differ, the first of each that does is.
fn same(first: &Recording, again: &Recording) {
    assert_eq!(first.costs.len(), again.costs.len());
    for (one, other) in first.blocks.iter().zip(&again.blocks) {
        assert_eq!(one, other);
    }
    for (one, other) in first.costs.iter().zip(&again.costs) {
        let name = |r: &Recording| {
            let node = &r.nodes[one.node as usize];
            r.functions[node.function as usize].name.clone()
        };
        assert!(one == other, "{}: {one:?}, then {other:?}", name(first));
    }
}

const PERIOD: u64 = 200;

/// Check that samples are unbiased: for 19 of 20 seeds the exact shares of at least 93 % of the
/// functions lie in the 95 % interval of their samples. That no sample is lost where a timer would
/// take it later, that another run gives the very same ones, and that they don't change the counts.
#[test]
fn shares_are_unbiased() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let both = |seeds: &str, file: &str| {
        let run = format!(
            "path -q --proto udp,tcp,raw --clock exact,samples --sample-period \
             {PERIOD} --sample-seed {seeds} -o {file}"
        );
        place.run(&run).code(0);
        place.recording(file)
    };
    let first = both("1", "first.plumb");
    let again = both("1", "again.plumb");
    place.run("path -q --proto udp,tcp,raw -o bare.plumb").code(0);
    same(&first, &again);
    let counted = |r: &Recording| {
        let part = r.part(INSTRUCTIONS.instrument);
        let of = sums(&part, part.costs.iter());
        let named = of.into_iter().map(|((arm, function), insns)| {
            let function = &part.functions[function as usize];
            (arm, function.name.clone(), function.module.clone(), insns)
        });
        let mut named: Vec<_> = named.collect();
        named.sort_unstable();
        named
    };
    assert_eq!(counted(&first), counted(&place.recording("bare.plumb")));

    for block in first.blocks.iter().filter(|b| b.instrument == SAMPLED.instrument) {
        let [fell, deferred] = block.totals[..] else {
            panic!("{block:?}");
        };
        assert!(fell.kernel > 0);
        assert_eq!(fell.kernel, deferred.kernel);
    }
    let (mut good, mut flagged) = (0, Vec::new());
    let mut before = first.clone();
    for seed in 1..=20 {
        let of_seed = match seed {
            1 => first.clone(),
            _ => both(&seed.to_string(), "seed.plumb"),
        };
        assert!(counted(&of_seed) == counted(&first));
        let exact = number(&of_seed, &INSTRUCTIONS);
        let costs = of_seed.costs.iter().filter(|c| c.quantity == exact);
        let executed = sums(&of_seed, costs);
        let sampled = number(&of_seed, &SAMPLED);
        let costs = of_seed.costs.iter().filter(|c| c.quantity == sampled);
        let fell = sums(&of_seed, costs);
        let covered = executed.iter().filter(|((arm, function), insns)| {
            let share = **insns as f64 / whole(&executed, *arm) as f64;
            let hits = fell.get(&(*arm, *function)).copied().unwrap_or(0) / PERIOD;
            let (low, high) = interval(hits, whole(&fell, *arm) / PERIOD);
            (low..=high).contains(&share)
        });
        let covered = covered.count() as f64 / executed.len() as f64;
        println!("seed {seed}: {covered:.4} of {} functions", executed.len());
        good += u32::from(covered >= 0.93);
        // The same against the same: differences by seed are not changes.
        let after = if seed == 20 { &first } else { &of_seed };
        flagged.extend(differs(&before, after).map(|names| format!("seed {seed}: {names}")));
        before = of_seed;
    }
    assert!(good >= 19, "{good} of 20 seeds");
    tell(&format!("{} of 20 A/A pairs flagged: {flagged:?}", flagged.len()));
    assert!(flagged.len() <= 1, "{flagged:?}");

    // All of them at once: the samples of each, over the same packets.
    let all: Vec<String> = (1..=20).map(|n| n.to_string()).collect();
    let all = both(&all.join(","), "all.plumb");
    assert_eq!(seeds(&all), (1..=20).collect::<Vec<u64>>());
    let offered = |r: &Recording| r.blocks.iter().map(|b| b.ledger.offered).sum::<u64>();
    assert_eq!(offered(&all), offered(&first));
    let mean = |r: &Recording| -> u64 {
        let sampled = number(r, &SAMPLED);
        let costs = r.costs.iter().filter(|c| c.quantity == sampled);
        costs.map(|c| c.own).sum()
    };
    let (one, twenty) = (mean(&first) as f64, mean(&all) as f64);
    assert!((one / twenty - 1.0).abs() < 0.02, "{one}, {twenty}");
}

/// Check that samples alone are shown with what a timer would make of them, in every format, and
/// compared like other costs.
#[test]
fn outputs() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let ran = place.run("path -q --clock samples --sample-seed 1 -o one.plumb");
    ran.code(0);
    let words = [
        "Instrument samples",
        "Instrument deferred",
        "interrupts off",
        "What a timer",
        "[user mode]",
    ];
    prints(&ran, &words);
    place.run("path -q --clock samples --sample-seed 2 -o two.plumb").code(0);
    let recording = place.recording("one.plumb");
    assert!(recording.scalars_of(&INTERRUPTS_OFF).count() > 0);
    assert_eq!(recording.parts(), [SAMPLED.instrument, DEFERRED.name]);
    for clock in ["", "--clock samples", "--clock deferred"] {
        for format in ["--json", "--csv", "--folded -", "--callgrind -", "--html x.html"] {
            place.run(&format!("report one.plumb {clock} {format}")).code(0);
        }
        let name = match clock {
            "--clock deferred" => "deferred",
            _ => "sampled",
        };
        let csv = place.run(&format!("report one.plumb {clock} --csv"));
        prints(&csv, &["quantity", name]);
        let diff = place.run(&format!("diff one.plumb two.plumb {clock}"));
        prints(diff.code(0), &[&format!("quantity  {name}")]);
    }
    place.run("path --lab netns --clock samples --sample-period 5").code(2).says(&["vm lab"]);
    place.nothing_runs();
}

/// Check that an experiment file samples guests, beside counted and timed instruments, and that one
/// that can't is refused with its line.
#[test]
fn experiments() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let file = "name = \"sampled\"\ninstruments = [\"exact\", \"samples\", \"stages\"]\n\
                conclusion = \"counted, {most}; sampled, {sampled}.\"\n\
                [workload]\npackets = 20\n[blocks]\ncount = 2\n[samples]\nperiod = 50\nseeds = [7, 8]\n\
                [[claim]]\nname = \"most\"\nkind = \"bottleneck\"\nsays = \"?\"\nclasses = [\"udp tx\"]\n\
                [[claim]]\nname = \"sampled\"\nkind = \"bottleneck\"\nsays = \"?\"\nclasses = [\"udp tx\"]\n\
                quantity = \"samples\"\n";
    place.write("sampled.toml", file);
    let ran = place.run("run -q sampled.toml -o x.plumb");
    // Of both instruments, at the end.
    let words: Vec<&str> = ran.code(0).stdout.split_whitespace().collect();
    let text = words.join(" ");
    let concluded = text.matches("In short: ").count();
    assert_eq!(concluded, 1, "{text}");
    let (_, end) = text.split_once("In short: ").unwrap();
    let says = ["Counted, the largest are udp tx ", "; sampled, "];
    assert!(says.iter().all(|words| end.contains(words)), "{end}");
    assert!(!end.contains("(not measured)"), "{end}");
    let recording = place.recording("x.plumb");
    assert_eq!(recording.parts(), ["exact", "samples", "deferred", "stages"]);
    let of = |name: &str| {
        let blocks = recording.blocks.iter();
        blocks.filter(|b| b.instrument == name).count()
    };
    assert_eq!((of("exact"), of("samples")), (2, 2));
    assert_eq!(seeds(&recording), [7, 8]);
    for (text, why) in [
        ("[samples]\nperiod = 5\n", "needs instrument `samples`"),
        ("instruments = [\"samples\"]\n[samples]\nperiod = 0\n", "invalid period `0`"),
        ("instruments = [\"samples\"]\n[samples]\nseeds = [1, 1]\n", "given twice"),
        ("lab = \"netns\"\ninstruments = [\"samples\"]\n[samples]\nperiod = 5\n", "vm"),
    ] {
        place.write("wrong.toml", format!("name = \"x\"\n{text}"));
        place.run("run wrong.toml").code(2).says(&["line ", why]);
    }
}

/// Sends datagrams to another process and waits for each to come back; if asked to, sampled by
/// the kernel's timer, and every address that it saw is printed.
const ECHO: &str = r#"
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#define PAGES 256
static void echo(int s, int c, long n)
{
	char b[64] = "";
	if (!fork()) {
		for (long i = 0; i < n; i++) {
			struct sockaddr_in from; socklen_t z = sizeof from;
			ssize_t got = recvfrom(s, b, sizeof b, 0, (void *)&from, &z);
			sendto(s, b, got, 0, (void *)&from, z);
		}
		_exit(0);
	}
	/* Of random length, in the program, which is not sampled: a load that repeats beats with a timer. */
	for (unsigned i = 0, x = 1; i < n; i++) {
		x = x * 1664525 + 1013904223;
		for (volatile unsigned k = x >> 20; k; k--) {}
		send(c, b, 32, 0); recv(c, b, sizeof b, 0);
	}
	wait(0);
}
static int sampled(int s, int c, long n, long period)
{
	struct perf_event_attr e = { .size = sizeof e, .type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK, .sample_period = period,
		.sample_type = PERF_SAMPLE_IP, .exclude_user = 1, .disabled = 1 };
	int fd = syscall(SYS_perf_event_open, &e, -1, 0, -1, 0);
	if (fd < 0) { perror("perf_event_open"); return 3; }
	char *ring = mmap(0, (1 + PAGES) * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (ring == MAP_FAILED) return 3;
	struct perf_event_mmap_page *p = (void *)ring;
	ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
	echo(s, c, n);
	ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
	printf("period %ld\n", period);
	for (unsigned long at = 0; at < p->data_head; ) {
		struct perf_event_header *h = (void *)(ring + 4096 + at % (PAGES * 4096));
		if (h->type == PERF_RECORD_SAMPLE) printf("%llx\n", *(unsigned long long *)(h + 1));
		at += h->size;
	}
	close(fd);
	return 0;
}
int main(int argc, char **argv)
{
	long n = atol(argv[1]);
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof a;
	int s = socket(AF_INET, SOCK_DGRAM, 0), c = socket(AF_INET, SOCK_DGRAM, 0);
	if (bind(s, (void *)&a, sizeof a) || getsockname(s, (void *)&a, &size)) return 1;
	if (connect(c, (void *)&a, sizeof a)) return 1;
	if (argc == 2) echo(s, c, n);
	for (int i = 2; i < argc; i++)
		if (sampled(s, c, n, atol(argv[i]))) return 3;
	return 0;
}
"#;

/// Tolerance in percentage points around the mean of a timer's samples by all periods.
const POINTS: f64 = 3.0;
/// Functions to check, the ones that the timer blames most.
const BLAMED: usize = 8;
/// Periods to try, each longer than the one before by the square root of 2: none was chosen for its result. They are
/// prime.
const PERIODS: u32 = 8;
const SHORTEST_NS: f64 = 16_000.0;

fn periods() -> Vec<u64> {
    let is_prime = |n: &u64| (2..).take_while(|k| k * k <= *n).all(|k| !n.is_multiple_of(k));
    let from = |k: u32| (SHORTEST_NS * 2_f64.powf(f64::from(k) / 2.0)) as u64;
    let next = |k: u32| (from(k)..).find(is_prime).unwrap();
    (0..PERIODS).map(next).collect()
}

/// Check that samples as a timer would take them match a timer's: the kernel's `cpu-clock` in such
/// a guest, by the mean of several periods.
#[test]
fn a_timer_agrees() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    place.write("echo.c", ECHO);
    let built = Command::new("cc")
        .args(["-O1", "-static", "-o", "echo", "echo.c"])
        .current_dir(place.path("."))
        .status();
    if !built.is_ok_and(|status| status.success()) {
        netplumb_testkit::skip("no C compiler with perf's header");
        return;
    }
    place
        .run("path -q --timeout 900 --clock exact,samples --sample-period 100 -o model.plumb -- ./echo 4000")
        .code(0);
    let model = place.recording("model.plumb");
    let kernel = |function: u32| model.functions[function as usize].address >> 63 == 1;
    let shares = |of: &Declared| {
        let of = number(&model, of);
        let mut sums = sums(&model, model.costs.iter().filter(|c| c.quantity == of));
        sums.retain(|(_, function), _| kernel(*function));
        let all = whole(&sums, 0) as f64;
        let share = |((_, function), n): ((u32, u32), u64)| {
            let name = model.functions[function as usize].name.clone();
            (name, 100.0 * n as f64 / all)
        };
        sums.into_iter().map(share).collect::<BTreeMap<_, _>>()
    };
    let [exact, deferred] = [&INSTRUCTIONS, &DEFERRED].map(shares);
    let name_of = |address: u64| {
        let covers = |f: &&netplumb_model::recording::Function| {
            address.wrapping_sub(f.address) < f.size_bytes
        };
        let found = model.functions.iter().find(covers);
        found.map_or("(other)", |f| f.name.as_str())
    };
    let periods = periods();
    let words: Vec<String> = periods.iter().map(ToString::to_string).collect();
    let words = words.join(" ");
    let ran = place.run(&format!("path -q --timeout 900 -o timer.plumb -- ./echo 8000 {words}"));
    ran.code(0);
    // By name: the shares of each period.
    let mut timer: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let (mut number, mut hits) = (0, vec![Vec::new(); periods.len()]);
    for line in ran.stdout.lines() {
        if let Some(period) = line.strip_prefix("period ") {
            number = periods.iter().position(|p| p.to_string() == period).unwrap();
        } else if let Ok(address) = u64::from_str_radix(line, 16) {
            hits[number].push(name_of(address));
        }
    }
    for (number, hits) in hits.iter().enumerate() {
        let all = hits.len() as f64;
        assert!(all > 500.0, "every {} ns: {all} samples", periods[number]);
        for name in hits {
            let none = || vec![0.0; periods.len()];
            timer.entry(name.to_string()).or_insert_with(none)[number] += 100.0 / all;
        }
    }
    let mean = |name: &str| -> f64 {
        let shares = timer.get(name).into_iter().flatten();
        shares.sum::<f64>() / periods.len() as f64
    };
    // And the other way round: nothing that the timer does not blame is blamed here.
    let most = |share: &dyn Fn(&str) -> f64| -> Vec<String> {
        let names = timer.keys().chain(deferred.keys());
        let names: BTreeSet<&String> = names.filter(|name| *name != "(other)").collect();
        let mut names: Vec<&String> = names.into_iter().collect();
        names.sort_by(|a, b| share(b).total_cmp(&share(a)));
        names.into_iter().take(BLAMED).cloned().collect()
    };
    let of = |shares: &BTreeMap<String, f64>, name: &str| shares.get(name).copied().unwrap_or(0.0);
    let blamed: BTreeSet<String> =
        (most(&mean).into_iter()).chain(most(&|name| of(&deferred, name))).collect();
    println!(
        "mean of {} periods: timer, deferred, exact, and the worst of one period",
        periods.len()
    );
    let mut wrong = Vec::new();
    for name in &blamed {
        let (timed, ours) = (mean(name), of(&deferred, name));
        let each = timer.get(name).into_iter().flatten();
        let worst = each.map(|share| (share - ours).abs()).fold(0.0, f64::max);
        println!("{name:<34} {timed:5.1} {ours:5.1} {:5.1} {worst:5.1}", of(&exact, name));
        if (timed - ours).abs() >= POINTS {
            wrong.push(format!("{name}: {timed}, not {ours}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    // Without deferral they would not agree.
    let unlike = |name: &String| (mean(name) - of(&exact, name)).abs() >= POINTS;
    assert!(blamed.iter().any(unlike), "{exact:?}");
}
