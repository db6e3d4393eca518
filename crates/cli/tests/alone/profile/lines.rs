//! Source lines of profiles.

use std::collections::BTreeMap;
use std::process::Command;

use super::*;

/// A program that works in one function: three parts in a loop of its own, one in inlined code. Each time
/// around waits for the product of the one before, so they take as long on any CPU.
const LINES: &str = r#"
#include <stdlib.h>
#include <time.h>
volatile unsigned long sink;
#define WORK(i, n) { unsigned long x = sink; for (unsigned long i = 0; i < (n); i++) x = x * 6364136223846793005ul + i; sink = x; }
static inline __attribute__((always_inline)) void inlined(unsigned long n)
{
	WORK(i, n)
}
__attribute__((noinline, noclone)) void toil(unsigned long n)
{
	WORK(i, 3 * n)
	inlined(n);
}
static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}
int main(int argc, char **argv)
{
	double end = now() + atof(argv[1]);
	do toil(1000000); while (now() < end);
	return 0;
}
"#;
/// Where it works.
const INLINED: u32 = 8;
const OWN: u32 = 12;

/// The time of each line of a function, and the function's own.
fn lines_of(recording: &Recording, name: &str) -> (BTreeMap<u32, u64>, u64) {
    let id = recording.functions.iter().position(|f| f.name == name);
    let id = id.unwrap() as u32;
    let mut lines = BTreeMap::new();
    for cost in recording.line_costs.iter().filter(|c| c.function == id) {
        let (path, line) = recording.source(cost.source).unwrap();
        assert!(path.ends_with("/source.c"), "{path}");
        *lines.entry(line).or_default() += cost.own;
    }
    let of = |node: u32| recording.nodes[node as usize].function == id;
    let own = recording.costs.iter().filter(|c| of(c.node));
    (lines, own.map(|c| c.own).sum())
}

/// Check that lines have the time that they are known to have, in every block, of inlined code too; with the debug
/// information in the file or in another one, and by both ways to find stacks. That the report has them, and why others
/// have none.
#[test]
fn known_lines() {
    let Some(_turn) = turn() else {
        return;
    };
    let place = Place::new();
    compile(&place, "work", LINES, &["-g", "-O2"]);
    let script = "objcopy --only-keep-debug work work.debug && strip -o bare work && \
                  objcopy --add-gnu-debuglink=work.debug bare";
    let mut command = place.command("sh");
    assert!(command.args(["-c", script]).status().unwrap().success());
    for (words, program) in
        [(&["--off-cpu"][..], "./work"), (&["--user-stacks", "dwarf"], "./work"), (&[], "./bare")]
    {
        let words: Vec<&str> = words.iter().copied().chain(["--", program, "2"]).collect();
        let recording = recorded(&place, &words);
        let (lines, own) = lines_of(&recording, "toil");
        let known: u64 = lines.values().sum();
        assert!(known <= own && known as f64 > 0.9 * own as f64, "{known} of {own}");
        for (line, expected) in [(OWN, 0.75), (INLINED, 0.25)] {
            let share = lines[&line] as f64 / known as f64;
            let samples = known as f64 / 1e6;
            let error = (expected * (1.0 - expected) / samples).sqrt();
            assert!((share - expected).abs() < 5.0 * error + 0.03, "line {line}: {share}");
        }
        let blocks: std::collections::BTreeSet<u32> =
            recording.line_costs.iter().map(|c| c.block).collect();
        assert_eq!(blocks.len(), recording.blocks.len());
        let work = recording.functions.iter().position(|f| f.name == "toil");
        let (_, line) = recording.source_of(work.unwrap() as u32).unwrap();
        assert_eq!(line, 10);
        // Only of the CPU time.
        assert!(
            recording.part(OFF_CPU.name).line_costs.is_empty() || !words.contains(&"--off-cpu")
        );
    }
    let report = |function: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
        command.arg("report").arg(place.path("profile.plumb")).args(["--lines", function]);
        let done = command.output().unwrap();
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let shown = report("toil");
    for words in ["source.c:10\n", "\n   12 ", "\n   8 "] {
        assert!(shown.contains(words), "{words:?}: {shown}");
    }
    compile(&place, "bare", LINES, &["-O2"]);
    recorded(&place, &["--", "./bare", "0.5"]);
    let shown = report("toil");
    assert!(shown.contains("debug information (-g)"), "{shown}");
}
