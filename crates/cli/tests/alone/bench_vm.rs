//! `plumb bench` in guests: rates of paths that this machine's kernel may lack; and, on this
//! machine, where a packet's time is spent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::common::explained::{document, function};
use crate::common::{Place, has_guests, prints};
use netplumb_testkit::{has_root, mostly};
use serde_json::Value;

/// One after the other: a guest's work would be noise in these measurements.
fn turn() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Work of somebody else, as long as it lives.
struct OtherLoad(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl OtherLoad {
    const NAME: &str = "not-the-bench";

    fn begin() -> OtherLoad {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name(OtherLoad::NAME.into());
        let thread = thread.spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        OtherLoad(stop, Some(thread.unwrap()))
    }
}

impl Drop for OtherLoad {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        if let Some(thread) = self.1.take() {
            thread.join().unwrap();
        }
    }
}

/// Check that samples add up to the CPU time of a packet, with idle time to all CPUs' wall time,
/// and that other programs are among them by name.
fn adds_up(path: &Value) {
    let of = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{path:#}"));
    let near = |a: f64, b: f64| assert!((a - b).abs() <= 1e-6 * b.abs(), "{a} {b}: {path:#}");
    let parts = ["own", "user", "generator", "other"].map(|part| of(&path[part]));
    let total = of(&path["total"]);
    near(parts.iter().sum(), total);
    let others = path["others"].as_array().unwrap();
    near(others.iter().map(|o| of(&o["own"])).sum(), of(&path["other"]));
    let named = others.iter().find(|o| o["name"] == format!("task {}", OtherLoad::NAME));
    assert!(named.is_some_and(|o| of(&o["own"]) > 0.0), "{path:#}");
    let wall = &path["wall"];
    near(total + of(&wall["idle"]), of(&wall["cpus"]) * of(&wall["ns"]));
}

/// Check that samples show where the time went on this machine: a program's useless map lookups are
/// what the slower arm has more, by as much as the rates differ; and that nothing of it is lost.
#[test]
fn as_root_samples_are_the_packets_time() {
    if !has_guests() {
        return;
    }
    if !has_root() {
        return;
    }
    let _turn = turn();
    let place = Place::new();
    let _other = OtherLoad::begin();
    mostly(2, 3, || {
        let words = "drop --path xdp --lookups 0,64 --blocks 3 --time 300ms --warmup 50ms";
        let ran = place.run(&format!("bench {words} --explain --json --quiet -o why.plumb"));
        let document = document(ran.code(0));
        let number = |value: &Value| value.as_f64().unwrap();
        let arms = document["arms"].as_array().unwrap().iter();
        let ns: Vec<f64> = arms.map(|arm| number(&arm["wall_ns_per_packet"])).collect();
        let all = document["explained"].as_array().unwrap().iter();
        let sampled: Vec<&Value> = all.filter(|p| p["unit"] == "nanoseconds").collect();
        assert_eq!((sampled.len(), ns.len()), (2, 2), "{document:#}");
        let own: Vec<f64> = sampled.iter().map(|p| number(&p["own"])).collect();
        for path in &sampled {
            let unnamed = function(path, "[unknown]");
            assert!(unnamed < number(&path["own"]) / 20.0, "{path:#}");
            adds_up(path);
        }
        let differences = document["differences"].as_array().unwrap().iter();
        let mut sampled = differences.filter(|d| d["unit"] == "nanoseconds");
        let first = &sampled.next().unwrap()["functions"][0];
        let name = first["name"].as_str().unwrap();
        assert!(name == "xdp_drop" || name.contains("map"), "{first:#}");
        assert!(number(&first["more"]) > number(&first["uncertainty"]), "{first:#}");
        // Other blocks than the rate's, on a machine that others use.
        let share = (own[1] - own[0]) / (ns[1] - ns[0]);
        let message = format!("{share:.2} of what the rates say: {own:?} of {ns:?}");
        match (0.5..2.0).contains(&share) {
            true => Ok(message),
            false => Err(message),
        }
    });
    let again = place.run("report why.plumb");
    prints(
        again.code(0),
        &[
            "where the nanoseconds of each packet went",
            "ns a packet",
            "others' load",
            "idle, or not sampled",
            "all CPUs' time",
        ],
    );
    let csv = place.run("report why.plumb --csv").stdout;
    assert!(csv.lines().next().unwrap().ends_with(",path_ns_per_packet"), "{csv}");
    place.nothing_runs();
}

/// Check that paths run in a guest, including a flowtable, and that a path that can't run is
/// reported as such.
#[test]
fn rates_in_a_guest() {
    if !has_guests() {
        return;
    }
    let _turn = turn();
    let place = Place::new();
    let ran = place.run(
        "bench forward --path xdp-redirect,nft-flowtable,dpdk --lab vm --blocks 1 --time 500ms \
         --warmup 100ms --json --quiet",
    );
    let document = document(ran.code(0));
    assert_eq!(document["environment"]["lab"], "vm");
    let setting = document["environment"]["bench.setting"].as_str().unwrap();
    assert!(setting.contains("in a guest without KVM"), "{setting}");
    for arm in document["arms"].as_array().unwrap() {
        if arm["name"] == "dpdk" {
            let why = arm["failed"].as_str().unwrap();
            assert!(why.contains("guest"), "{why}");
        } else {
            assert_eq!(arm["valid_blocks"], 1, "{arm:#}");
        }
    }
    place.nothing_runs();
}

/// Check that paths work over NICs that QEMU emulates, dropping and forwarding, and that a driver
/// without XDP is reported.
#[test]
fn emulated_nics() {
    if !has_guests() {
        return;
    }
    let _turn = turn();
    let place = Place::new();
    // No more than an interpreter on a busy machine can carry.
    let short = "--rate 4k --blocks 1 --time 500ms --warmup 100ms --json --quiet";
    for (words, counts, cannot) in [
        ("drop --path nft-raw,xdp-skb,xdp --link e1000", 2, 1),
        ("forward --path route,bridge,xdp-redirect --link virtio-net", 3, 0),
    ] {
        let ran = place.run(&format!("bench {words} --lab vm {short}"));
        let document = document(ran.code(0));
        let setting = document["environment"]["bench.setting"].as_str().unwrap();
        assert!(setting.contains("emulated NICs"), "{setting}");
        let arms = document["arms"].as_array().unwrap();
        let failed = arms.iter().filter(|arm| arm["failed"].is_string()).count();
        assert_eq!((arms.len() - failed, failed), (counts, cannot), "{arms:#?}");
        for arm in arms {
            assert_eq!(arm["link"], words.rsplit(' ').next().unwrap());
            match arm["failed"].as_str() {
                Some(why) => assert!(why.contains("XDP is not supported"), "{why}"),
                None => assert!(crate::common::closes(arm) > 100, "{arm:#}"),
            }
        }
    }
    place.nothing_runs();
}

/// Check that a kernel that doesn't exist is reported before anything is measured.
#[test]
fn no_such_kernel() {
    let place = Place::new();
    let ran = place.run("bench drop --path xdp --lab vm --kernel no-such-kernel --quiet");
    assert_ne!(ran.status.code(), Some(0));
    assert!(place.files().is_empty(), "{:?}", place.files());
}
