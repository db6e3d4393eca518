//! Profiles of a program whose shares are known: reports that have them, and comparisons.

use serde_json::Value;

use super::*;
use crate::common::Place;

/// A program in four functions with 40, 30, 20 and 10 percent of its time, and more of the third if
/// asked to. Each time around waits for the product of the one before, so all take as long on any CPU.
const SHARES: &str = r#"
#include <stdlib.h>
#include <time.h>
static volatile unsigned long sink;
#define SPIN(name) __attribute__((noinline)) void name(unsigned long n) \
{ unsigned long x = sink; while (n--) x = x * 6364136223846793005ul + 1; sink = x; }
SPIN(forty)
SPIN(thirty)
SPIN(twenty)
SPIN(ten)
static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}
int main(int argc, char **argv)
{
	double end = now() + atof(argv[1]);
	unsigned long more = atol(argv[2]);
	do {
		forty(40000);
		thirty(30000);
		twenty(20000 + more);
		ten(10000);
	} while (now() < end);
	return 0;
}
"#;

/// How long each profile is, in seconds.
const SECONDS: &str = "7";

/// A command's output as JSON.
fn json(place: &Place, words: &[&str]) -> Value {
    let mut command = place.command(env!("CARGO_BIN_EXE_plumb"));
    let done = command.args(words).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// Functions with a verdict, and that.
fn verdicts(diff: &Value) -> Vec<(&str, &str)> {
    let functions = diff["times"][0]["functions"].as_array().unwrap().iter();
    let verdict = |of: &'_ Value| of["verdict"] != "no_difference_seen";
    let judged = functions.filter(|of| verdict(of));
    judged.map(|of| (of["name"].as_str().unwrap(), of["verdict"].as_str().unwrap())).collect()
}

/// Check that functions have their known shares, within intervals twice as wide as the 95% ones; that two profiles of
/// the same program don't differ; and that a function that takes four times as long is found, and no other of the
/// program is reported as slower. One pair in twenty may show a difference: then another pair must not.
#[test]
fn known_and_compared() {
    let Some(_turn) = turn() else {
        return;
    };
    let place = Place::new();
    with_frame_pointers(&place, "shares", SHARES);
    let sample = |output: &str, more: &str| {
        let words = ["-q", "-o", output, "--", "./shares", SECONDS, more];
        let done = profile(&place, &words);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{said}");
    };
    sample("a.plumb", "0");
    sample("b.plumb", "0");
    sample("more.plumb", "60000");
    let same = json(&place, &["diff", "a.plumb", "b.plumb", "--json"]);
    let functions = same["times"][0]["functions"].as_array().unwrap();
    let shares = [("forty", 40.0), ("thirty", 30.0), ("twenty", 20.0), ("ten", 10.0)];
    for (name, expected) in shares {
        let of = functions.iter().find(|of| of["name"] == name).unwrap();
        for side in ["before", "after"] {
            let figure = |key: &str| of[format!("{side}{key}")].as_f64().unwrap();
            let half = (figure("_high_percent") - figure("_low_percent")) / 2.0;
            let share = figure("_percent");
            assert!(
                (share - expected).abs() < 2.0 * half,
                "{name}: {share} ± {half} percent, not {expected}"
            );
            // So wide that anything would be right. On a busy machine blocks differ more.
            assert!(half < expected, "{name}: ± {half} percent");
        }
    }
    if !verdicts(&same).is_empty() {
        sample("c.plumb", "0");
        let again = json(&place, &["diff", "b.plumb", "c.plumb", "--json"]);
        assert!(verdicts(&again).is_empty(), "{same} and {again}");
    }
    let more = json(&place, &["diff", "a.plumb", "more.plumb", "--json"]);
    let found = verdicts(&more);
    assert!(found.contains(&("twenty", "slower")), "{found:?}: {more}");
    // What interrupts the program is not its own.
    let of_program = ["forty", "thirty", "ten"];
    let wrong =
        found.iter().find(|(name, verdict)| of_program.contains(name) && *verdict == "slower");
    assert_eq!(wrong, None, "{found:?}");
}
