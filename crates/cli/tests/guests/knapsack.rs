//! The program that is compared before and after a loop was removed from it, and callgrind's
//! counts.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{Place, skip};
use serde_json::Value;

/// The functions of the program, but for main: callgrind has the linker's work at its lines.
const FUNCTIONS: [&str; 3] = ["make_items", "pack_knapsack", "get_cond_maxprice"];

/// The pages of the program's data, or a few more. The first access to each is counted twice, since it
/// faults; callgrind knows no faults.
const PAGES: u64 = 24;

/// A function: its calls, and what each of its lines costs.
type Costs = BTreeMap<String, (u64, BTreeMap<u64, u64>)>;

/// The costs in a file of callgrind, by its manual's "Callgrind Format Specification".
fn by_callgrind(text: &str) -> Costs {
    let mut costs = Costs::new();
    let (mut function, mut called) = (String::new(), String::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("fn=") {
            function = name.to_owned();
        } else if let Some(name) = line.strip_prefix("cfn=") {
            called = name.to_owned();
        } else if let Some(calls) = line.strip_prefix("calls=") {
            let calls: u64 = calls.split(' ').next().unwrap().parse().unwrap();
            costs.entry(called.clone()).or_default().0 += calls;
            // The cost of the callee.
            lines.next();
        } else if let Some((at, cost)) = line.split_once(' ')
            && let (Ok(at), Ok(cost)) = (at.parse(), cost.parse::<u64>())
        {
            let of = costs.entry(function.clone()).or_default();
            *of.1.entry(at).or_default() += cost;
        }
    }
    costs.retain(|name, _| FUNCTIONS.contains(&&**name));
    costs
}

/// The costs of an arm in the JSON of a recording.
fn by_plumb(document: &Value, arm: &str) -> Costs {
    let classes = document["classes"].as_array().unwrap();
    let of_arm = |class: &&Value| class["arm"] == arm && class["class"] == "command run";
    let class = classes.iter().find(of_arm).unwrap();
    let functions = class["functions"].as_array().unwrap().iter();
    let own = functions.filter(|f| FUNCTIONS.contains(&f["name"].as_str().unwrap()));
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value}"));
    let costs = own.map(|f| {
        let lines = f["lines"].as_array().unwrap().iter();
        let lines = lines.map(|l| (number(&l["line"]), number(&l["self"])));
        let name = f["name"].as_str().unwrap().to_owned();
        (name, (number(&f["calls"]), lines.collect()))
    });
    costs.collect()
}

/// How much more the one has in lines than the other, where they have the same functions, calls and lines.
fn but_for_faults(ours: &Costs, counted: &Costs) -> u64 {
    let calls = |costs: &Costs| -> Vec<(String, u64, Vec<u64>)> {
        let of = costs.iter();
        let each = of.map(|(name, (n, lines))| (name.clone(), *n, lines.keys().copied().collect()));
        each.collect()
    };
    assert_eq!(calls(ours), calls(counted));
    let mut more = 0;
    for (name, (_, lines)) in ours {
        for (line, cost) in lines {
            let known = counted[name].1[line];
            assert!(*cost >= known, "{name}:{line}: {cost}, not {known}");
            more += cost - known;
        }
    }
    more
}

/// Check that calls and the cost of each line of the program match callgrind's, to the instruction, and that the change
/// saves what it should where it should.
#[test]
fn as_callgrind_counts() {
    if !crate::common::has_guests() {
        return;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        skip("valgrind is not installed");
        return;
    }
    let place = Place::new();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    fs::create_dir(place.path("knapsack")).unwrap();
    for file in ["Makefile", "knapsack.h", "pack.c", "before.c", "after.c"] {
        let file = Path::new("knapsack").join(file);
        fs::copy(shipped.join(&file), place.path(file.to_str().unwrap())).unwrap();
    }
    fs::copy(shipped.join("knapsack.toml"), place.path("knapsack.toml")).unwrap();
    place.run("run -q knapsack.toml --yes-change").code(0);
    let shown = place.run("report knapsack.plumb --json");
    shown.code(0);
    let document: Value = serde_json::from_str(&shown.stdout).unwrap();
    let [before, after] = ["before", "after"].map(|arm| {
        let done = Command::new("valgrind")
            .args(["--tool=callgrind", "--compress-strings=no"])
            .args(["--compress-pos=no", "--callgrind-out-file=counted"])
            .arg(format!("knapsack/{arm}"))
            .current_dir(place.path("."))
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
        let counted = by_callgrind(&fs::read_to_string(place.path("counted")).unwrap());
        let ours = by_plumb(&document, arm);
        assert_eq!(counted.len(), FUNCTIONS.len());
        let faults = but_for_faults(&ours, &counted);
        assert!(faults <= PAGES, "{arm}: {ours:#?}, not {counted:#?}");
        counted
    });
    let own = |costs: &Costs, name: &str| costs[name].1.values().sum::<u64>();
    for name in ["make_items", "pack_knapsack"] {
        assert_eq!(own(&before, name), own(&after, name));
    }
    let name = "get_cond_maxprice";
    assert!(5 * own(&after, name) < own(&before, name));
}
