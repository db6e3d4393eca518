//! Runs from a saved state: as exact as from a cold boot, whatever else the machine does; states
//! are made again when necessary, and interrupted runs resumed.

// Also in what is no test itself.
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::{Place, Running, is_by_place, tell};
use netplumb_lab::vm::agent;
use netplumb_model::arch::Arch;
use netplumb_model::class::{Context, Direction};
use netplumb_model::recording::{Recording, env};

/// A function of a block, by the class of its work.
type Key = (String, u32, Direction, Context, String, Option<String>);

/// Calls and instructions of everything in a recording, whatever the order in which
/// it was measured.
fn costs(recording: &Recording) -> BTreeMap<Key, (u64, u64)> {
    let mut costs: BTreeMap<Key, (u64, u64)> = BTreeMap::new();
    for cost in &recording.costs {
        let block = &recording.blocks[cost.block as usize];
        let node = &recording.nodes[cost.node as usize];
        let function = &recording.functions[node.function as usize];
        let sum = costs
            .entry((
                recording.arms[block.arm as usize].name.clone(),
                block.index,
                cost.direction,
                cost.context,
                function.name.clone(),
                function.module.clone(),
            ))
            .or_default();
        sum.0 += cost.calls;
        sum.1 += cost.own;
    }
    costs
}

/// Check that two recordings have the same counts in everything, also work of no packet.
#[track_caller]
fn same(what: &str, one: &Recording, other: &Recording) {
    same_in(what, costs(one), costs(other));
}

/// Check that they have the same counts in every packet's work, but in what depends on where pages are.
#[track_caller]
fn same_packets(what: &str, one: &Recording, other: &Recording) {
    let packets = |recording| {
        let mut costs = costs(recording);
        costs.retain(|key, _| key.2 != Direction::Other && !is_by_place(recording, &key.4));
        costs
    };
    same_in(what, packets(one), packets(other));
}

/// Check that they have the same counts in every packet's work, but for a thousandth of
/// a class.
#[track_caller]
fn nearly_same_packets(what: &str, one: &Recording, other: &Recording) {
    let (one, other) = (costs(one), costs(other));
    let mut classes: BTreeMap<(&str, Direction), (u64, u64)> = BTreeMap::new();
    for key in one.keys().chain(other.keys().filter(|k| !one.contains_key(k))) {
        if key.2 == Direction::Other {
            continue;
        }
        let insns = |costs: &BTreeMap<Key, (u64, u64)>| costs.get(key).map_or(0, |c| c.1);
        let (all, apart) = classes.entry((&key.0, key.2)).or_default();
        *all += insns(&one);
        *apart += insns(&one).abs_diff(insns(&other));
    }
    assert!(!classes.is_empty(), "{what}: nothing was measured");
    for ((arm, direction), (all, apart)) in classes {
        tell(&format!("  {what}: {arm} {direction}: {apart} of {all} instructions apart"));
        assert!(apart * 1_000 <= all, "{what}: {arm} {direction}");
    }
}

#[track_caller]
fn same_in(what: &str, one: BTreeMap<Key, (u64, u64)>, other: BTreeMap<Key, (u64, u64)>) {
    assert!(one.len() > 100, "{what}: too little was measured");
    let differing: Vec<String> = one
        .keys()
        .chain(other.keys().filter(|k| !one.contains_key(k)))
        .filter(|key| one.get(key) != other.get(key))
        .map(|key| format!("{key:?}: {:?} and {:?}", one.get(key), other.get(key)))
        .collect();
    assert!(
        differing.is_empty(),
        "{what}: {} of {} differ: {:#?}",
        differing.len(),
        one.len(),
        &differing[..differing.len().min(10)]
    );
    tell(&format!("  {what}: {} costs, all the same", one.len()));
}

/// Check that a run from a saved state counts what another does, in every function, block and
/// context; and what a run that boots does. Of the links, `make soak` tries every one.
#[test]
fn a_saved_state_counts_as_a_cold_boot_does() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    // One without a device, one with a device of QEMU's; all of them take minutes.
    let quick = [("veth", "udp"), ("e1000", "udp")];
    let all = [
        ("lo", "udp"),
        ("veth", "udp"),
        ("veth", "tcp"),
        ("virtio-net", "tcp"),
        ("e1000", "udp"),
        ("usb-net", "udp"),
        ("smsc95xx", "udp"),
        ("cdc-ncm", "udp"),
    ];
    let links = match netplumb_testkit::is_soak() {
        true => &all[..],
        false => &quick[..],
    };
    for &(link, proto) in links {
        let words = format!("path -q --link {link} --proto {proto} --blocks 2");
        for how in ["-o warm.plumb", "-o again.plumb", "--cold -o cold.plumb"] {
            place.run(&format!("{words} {how}")).code(0);
        }
        let warm = place.recording("warm.plumb");
        let again = place.recording("again.plumb");
        match link {
            // Plugged in while the guest runs, and built anew each time: on a busy host
            // some hundred instructions fall otherwise (docs/limits.md).
            "usb-net" => nearly_same_packets(&format!("{link}, again"), &warm, &again),
            _ => same(&format!("{link}, again"), &warm, &again),
        }
        let cold = place.recording("cold.plumb");
        if matches!(link, "lo" | "veth") && proto == "udp" {
            same_packets(&format!("{link}, cold"), &warm, &cold);
        } else {
            // A device that is loaded may interrupt once more than one that was there
            // (an e1000 does: e1000_post_load of QEMU), and what hangs on the number
            // of interrupts since the boot is drawn anew. TCP reckons with jiffies
            // (tcp_event_data_recv, tcp_send_delayed_ack), which are others a boot
            // later: now and then it converts a time once more.
            nearly_same_packets(&format!("{link}, cold"), &warm, &cold);
        }
    }
}

/// Check that boots count the same in everything, also work of no packet, over links with interrupts: from the first to
/// the last block, and whatever else the machine does while one of them boots.
#[test]
fn cold_boots_count_the_same() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    // TCP depends on the clock to the microsecond, and on what datagrams do.
    let (links, protos) = match netplumb_testkit::is_soak() {
        true => (&["virtio-net", "e1000", "veth", "lo"][..], "udp,tcp"),
        false => (&["virtio-net", "e1000"][..], "tcp"),
    };
    for link in links {
        let words = format!("path -q --cold --link {link} --proto {protos} --blocks 2");
        place.run(&format!("{words} -o one.plumb")).code(0);
        run_busy(&place, &format!("{words} -o other.plumb"));
        let [one, other] = ["one.plumb", "other.plumb"].map(|name| place.recording(name));
        same(&format!("{link}, cold"), &one, &other);
    }
}

/// Run with every core busy.
fn run_busy(place: &Place, words: &str) {
    let stop = AtomicBool::new(false);
    let busy = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..busy {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let ran = place.run(words);
        stop.store(true, Ordering::Relaxed);
        ran.code(0);
    });
}

/// Wakes QEMU's main loop all the time: it then looks at the CPU in moments in which it seldom does,
/// as when the CPU has halted and its last instructions are not on the clock yet
/// (plugins/qemu/clock.c).
const WAKER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

static void *wake(void *notify)
{
	/* There is no main loop yet. */
	struct timespec pause = { .tv_nsec = 100000000 };

	nanosleep(&pause, NULL);
	pause.tv_nsec = 1000;
	for (;;) {
		((void (*)(void))notify)();
		nanosleep(&pause, NULL);
	}
}

__attribute__((constructor)) static void start(void)
{
	void *notify = dlsym(RTLD_DEFAULT, "qemu_notify_event");
	pthread_t thread;

	if (notify)
		pthread_create(&thread, NULL, wake, notify);
}
"#;

/// Run while QEMU's main loop is woken all the time.
fn run_woken(place: &Place, words: &str) {
    place.write("waker.c", WAKER);
    let mut compiler = place.command("cc");
    compiler.args(["-shared", "-fPIC", "-o", "waker.so", "waker.c", "-lpthread", "-ldl"]);
    assert!(compiler.status().unwrap().success());
    // plumb is static, and hands it on.
    let mut command = place.plumb(words);
    command.env("LD_PRELOAD", place.path("waker.so"));
    Running::start(&mut command).finish().code(0);
}

/// Compare runs over USB NICs that the guest emulates, one of them with every core busy and one with
/// QEMU's main loop; and check that their drivers' functions are in the packets' paths, and what
/// emulates them in none.
fn emulated_nics(link: &str, driver: &str) {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    // From one saved state: two that a busy machine makes may differ for TCP (docs/limits.md).
    let cache = crate::common::own_cache();
    let words = format!(
        "--cache {} path -q --link {link} --proto udp,tcp --packets 50 --blocks 2",
        cache.path().display()
    );
    place.run(&format!("{words} -o one.plumb")).code(0);
    place.run(&format!("{words} -o two.plumb")).code(0);
    run_busy(&place, &format!("{words} -o busy.plumb"));
    let one = place.recording("one.plumb");
    same(link, &one, &place.recording("two.plumb"));
    let busy = format!("{link}, busy");
    same(&busy, &one, &place.recording("busy.plumb"));
    run_woken(&place, &format!("{words} -o woken.plumb"));
    let woken = format!("{link}, main loop woken");
    same(&woken, &one, &place.recording("woken.plumb"));
    for block in &one.blocks {
        assert!(block.ledger.closes(), "{:?}", block.ledger);
        assert_eq!(block.ledger.offered, block.ledger.delivered);
    }
    let costs = costs(&one);
    let directions = |function: &str| -> BTreeSet<Direction> {
        let of = costs.keys().filter(|key| key.4 == function);
        of.map(|key| key.2).collect()
    };
    for (function, direction) in [
        ("usbnet_start_xmit".into(), Direction::Tx),
        (format!("{driver}_tx_fixup"), Direction::Tx),
        ("usbnet_bh".into(), Direction::Rx),
        (format!("{driver}_rx_fixup"), Direction::Rx),
    ] {
        let found = directions(&function);
        assert!(found.contains(&direction), "{function}: {found:?}");
    }
    for wire in ["vhci_urb_enqueue", "vhci_tx_loop", "vhci_rx_loop"] {
        let found: Vec<Direction> = directions(wire).into_iter().collect();
        assert_eq!(found, [Direction::Other], "{wire}");
    }
}

/// Check that runs over a LAN9512 are the same, and the functions in its path.
#[test]
fn smsc95xx() {
    emulated_nics("smsc95xx", "smsc95xx");
}

/// Check that runs over CDC NCM are the same, and the functions in its path.
#[test]
fn cdc_ncm() {
    emulated_nics("cdc-ncm", "cdc_ncm");
}

/// Check that counts are the same with every core busy, and with several guests at
/// once, whatever the order in which they end.
#[test]
fn a_busy_machine_counts_the_same() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let words = "path -q --link veth --proto udp,tcp,raw --family ipv4,ipv6 --blocks 2";
    place.run(&format!("{words} -o quiet.plumb")).code(0);
    run_busy(&place, &format!("{words} --jobs 3 -o busy.plumb"));
    let quiet = place.recording("quiet.plumb");
    let busy = place.recording("busy.plumb");
    assert_eq!(quiet.arms, busy.arms);
    same("busy", &quiet, &busy);
}

/// Check that an agent of another size counts the same: where the kernel puts the program
/// decides which addresses come after, and hash tables are keyed by some.
#[test]
fn another_build_counts_the_same() {
    if !crate::common::has_guests() {
        return;
    }
    const WORDS: &str = "path -q --cold --proto raw,udp --family ipv4,ipv6 --packets 20 --blocks 1";
    let place = Place::new();
    place.run(&format!("{WORDS} -o as-it-is.plumb")).code(0);
    // Zeros behind an ELF file are in no segment of it.
    let other = place.path("plumb-agent");
    std::fs::copy(crate::common::agent(Arch::OWN), &other).unwrap();
    let file = File::options().append(true).open(&other).unwrap();
    // Both within the size to which programs are padded.
    let longer = file.metadata().unwrap().len() + 345_678;
    file.set_len(longer).unwrap();
    drop(file);
    let mut command = place.plumb(&format!("{WORDS} -o longer.plumb"));
    command.env(agent::variable(Arch::OWN), &other);
    Running::start(&mut command).finish().code(0);
    same("another build", &place.recording("as-it-is.plumb"), &place.recording("longer.plumb"));
}

/// An arm whose counts depend on the kernel's hash keys, and one without its own keys.
const RULES: &str = r#"
    name = "rules"
    title = "A set of rules"
    question = "Which bucket does a look-up walk?"
    [workload]
    packets = 50
    [blocks]
    count = 2
    [knobs]
    link = "veth"
    proto = "udp"
    [[arm]]
    name = "none"
    [[arm]]
    name = "set"
    knobs.nft = { set = 1000 }
"#;

fn has_nft() -> bool {
    let there = std::process::Command::new("nft").arg("-v").output().is_ok();
    if !there {
        crate::common::skip("nft is not installed");
    }
    there
}

/// Check that boots of the same count the same, kept or not: QEMU's clock gains in one rest
/// and not in another, as two of its threads race for a lock, and interrupts that come at
/// another time are other random numbers. Four boots were seen to have two hash keys.
#[test]
fn boots_of_the_same_count_the_same() {
    if !crate::common::has_guests() || !has_nft() {
        return;
    }
    let place = Place::new();
    place.write("rules.toml", RULES);
    let boots = netplumb_testkit::tries(4);
    let mut first = None;
    for boot in 0..boots {
        let cache = crate::common::own_cache();
        let cold = if boot % 2 == 1 { "--cold" } else { "" };
        let words = format!("run rules.toml -q --cache {}", cache.path().display());
        let name = format!("{boot}.plumb");
        place.run(&format!("{words} {cold} -o {name}")).code(0);
        let recording = place.recording(&name);
        let random = recording.environment.get(env::RANDOM);
        assert_eq!(random.map(String::as_str), Some("seed"));
        let first = first.get_or_insert_with(|| recording.clone());
        same_packets(&format!("boot {boot} {cold}"), first, &recording);
    }
}

/// Check that a program included in guests may change its size, as after an update of its package,
/// without changing counts; and that a comparison mentions it.
#[test]
fn another_nft_counts_the_same() {
    if !crate::common::has_guests() || !has_nft() {
        return;
    }
    let place = Place::new();
    place.write("rules.toml", RULES);
    place.run("run rules.toml -q -o as-it-is.plumb").code(0);
    let path = std::env::var_os("PATH").unwrap();
    let nft = std::env::split_paths(&path)
        .map(|folder| folder.join("nft"))
        .find(|nft| nft.is_file())
        .unwrap();
    std::fs::create_dir(place.path("programs")).unwrap();
    let folder = place.path("programs");
    std::fs::copy(nft, folder.join("nft")).unwrap();
    let file = File::options().append(true).open(folder.join("nft")).unwrap();
    file.set_len(file.metadata().unwrap().len() + 300_000).unwrap();
    drop(file);
    let mut command = place.plumb("run rules.toml -q -o longer.plumb");
    let folders = [folder].into_iter().chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(folders).unwrap());
    Running::start(&mut command).finish().code(0);
    same_packets(
        "another nft",
        &place.recording("as-it-is.plumb"),
        &place.recording("longer.plumb"),
    );
    let compared = place.run("diff as-it-is.plumb longer.plumb");
    crate::common::prints(compared.code(0), &["differs   nft and its libraries: "]);
}

/// Check that sending costs the same under every seed: the sender's neighbour is found at
/// once, whatever bucket the others are in.
#[test]
fn a_send_does_not_depend_on_the_seed() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    place.run("path -q --packets 20 --blocks 1 --seeds 6 --direction tx").code(0);
    let recording = place.recording("path.plumb");
    let mut by_arm: BTreeMap<String, u64> = BTreeMap::new();
    for (key, (_, insns)) in costs(&recording) {
        if key.2 == Direction::Tx && !is_by_place(&recording, &key.4) {
            *by_arm.entry(key.0).or_default() += insns;
        }
    }
    assert_eq!(by_arm.len(), 6, "{by_arm:?}");
    let first = by_arm.values().next();
    assert!(by_arm.values().all(|insns| Some(insns) == first), "{by_arm:?}");
}

fn states(cache: &Path) -> Vec<std::path::PathBuf> {
    let mut states: Vec<_> = std::fs::read_dir(cache.join("states"))
        .map(|entries| entries.map(|e| e.unwrap().path()).collect())
        .unwrap_or_default();
    states.sort();
    states
}

/// Check that the first run boots and the second does not; that a damaged state is made again, that
/// another command line means another state, and that a run continues where no state can be saved.
#[test]
fn states_are_made_when_they_must_be() {
    if !crate::common::has_guests() {
        return;
    }
    const BOOTING: &str = "booting";
    let place = Place::new();
    let cache = crate::common::own_cache();
    let words =
        format!("--cache {} path --link lo --packets 20 --blocks 1", cache.path().display());
    let run = |more: &str| {
        let ran = place.run(&format!("{words} {more}"));
        ran.code(0);
        ran
    };
    run("-o first.plumb").says(&[BOOTING]);
    let first = states(cache.path());
    assert_eq!(first.len(), 2, "{first:?}");
    let again = run("-o again.plumb");
    assert!(!again.stderr.contains(BOOTING), "{again:?}");

    // As a power cut leaves them, each in another way: the state that runs start from, then both.
    let emptied = |file: &Path| std::fs::write(file, "").unwrap();
    let hole = |file: &Path| {
        let bytes = file.metadata().unwrap().len();
        let file = File::options().write(true).open(file).unwrap();
        file.set_len(bytes / 2).unwrap();
        file.set_len(bytes).unwrap();
    };
    type Damage<'a> = (&'a str, &'a dyn Fn(&Path));
    let damages: [Damage<'_>; 4] =
        [("devices", &emptied), ("symbols", &emptied), ("memory", &hole), ("state.toml", &emptied)];
    for (name, damage) in damages {
        for state in &first {
            damage(&state.join(name));
        }
        let ran = run("-o torn.plumb");
        ran.says(&["removed the saved guest state", "damaged", name, BOOTING]);
        assert_eq!(ran.stderr.matches("removed the saved").count(), 2, "{ran:?}");
        assert_eq!(states(cache.path()), first, "{name}");
    }
    for state in &first {
        emptied(&state.join("devices"));
    }
    let cleaned = place.run(&format!("--cache {} doctor --clean", cache.path().display()));
    cleaned.code(0);
    assert!(cleaned.stdout.contains("devices: it has 0 bytes"), "{cleaned:?}");
    assert_eq!(states(cache.path()).len(), 0);
    run("-o cleaned.plumb");
    assert_eq!(states(cache.path()), first);
    same("made again", &place.recording("first.plumb"), &place.recording("cleaned.plumb"));

    // The bound holds, whatever the states are of.
    run("--cmdline nosmt --cache-size 1M -o small.plumb");
    assert_eq!(states(cache.path()).len(), 1);
    run("-o again.plumb").says(&[BOOTING]);
    let first = states(cache.path());
    assert_eq!(first.len(), 3, "{first:?}");
    std::fs::remove_dir_all(cache.path().join("states")).unwrap();
    run("-o again.plumb").says(&[BOOTING]);
    assert_eq!(states(cache.path()).len(), 2);

    run("--cmdline slab_nomerge -o other.plumb").says(&[BOOTING]);
    assert_eq!(states(cache.path()).len(), 4);

    // A file where the directory should be.
    std::fs::remove_dir_all(cache.path().join("states")).unwrap();
    std::fs::write(cache.path().join("states"), "").unwrap();
    let unkept = run("-o unkept.plumb");
    unkept.says(&[BOOTING]);
    // Neither of its two states can be saved, for the same reason.
    let notes = unkept.stderr.matches("can't save the state").count();
    assert_eq!(notes, 1, "{unkept:?}");
    same("not kept", &place.recording("first.plumb"), &place.recording("unkept.plumb"));
}

/// Check that a guest runs as long as its run, that a run that was killed is continued by another
/// guest, and that the first blocks of both are alike, to the instruction.
#[test]
fn hours_in_a_guest() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let words = "path --link lo --packets 50 --duration 12h -o run.plumb";
    let go_on = |words: &str, signal| {
        let mut running = Running::start(&mut place.plumb(words));
        running.wait_for("left; latest: ");
        std::thread::sleep(std::time::Duration::from_secs(4));
        running.signal(signal);
        (running.finish(), place.recording("run.plumb"))
    };
    let (_, killed) = go_on(words, libc::SIGKILL);
    let blocks = killed.measured_blocks();
    assert!(!killed.complete && blocks >= 5, "{blocks}");
    let (ended, resumed) = go_on(&format!("{words} --resume"), libc::SIGINT);
    ended.code(130).says(&["--resume"]);
    assert!(ended.stdout.contains("in 2 separate sessions"), "{ended:?}");
    assert!(resumed.measured_blocks() >= blocks + 5);
    assert!(resumed.run_ns() > killed.run_ns());
    assert!(resumed.blocks.iter().all(|b| b.ledger.closes()));
    if resumed.halvings() == 0 {
        let begin = &resumed.blocks[blocks as usize];
        assert_eq!(begin.index, blocks as u32);
        assert_eq!(begin.kernel(), resumed.blocks[0].kernel());
    }
    // A short one ends by itself, in about that time.
    place.run("path --link lo --packets 50 --duration 5s -o short.plumb").code(0);
    let short = place.recording("short.plumb");
    assert!(short.complete);
    assert!((5.0..20.0).contains(&(short.run_ns() as f64 / 1e9)));
}

/// Check that a run that Ctrl-C interrupted is resumed, and yields the same as one that was not
/// interrupted; and that another plan is refused.
#[test]
fn a_run_is_resumed() {
    if !crate::common::has_guests() {
        return;
    }
    for (clock, of_arm) in [("", 2), ("--clock exact,samples --sample-period 100", 4)] {
        resumed(clock, of_arm);
    }
}

/// Interrupt and resume a run of 12 arms, each of `of_arm` blocks.
fn resumed(clock: &str, of_arm: usize) {
    let place = Place::new();
    let sizes: Vec<String> = (0..12).map(|n| (n * 50).to_string()).collect();
    let words = format!(
        "path --jobs 1 --link lo --packets 50 --blocks 2 {clock} --size {}",
        sizes.join(",")
    );
    let mut running = Running::start(&mut place.plumb(&format!("{words} -o run.plumb")));
    running.wait_for("measuring size=150");
    running.signal(libc::SIGINT);
    let cut = running.finish();
    cut.code(130).says(&["--resume"]);
    let before = place.recording("run.plumb");
    assert!(!before.complete);
    assert!((of_arm..12 * of_arm).contains(&before.blocks.len()));

    let resumed = place.run(&format!("{words} --resume -o run.plumb"));
    resumed.code(0);
    assert!(!resumed.stderr.contains("measuring size=0\n"), "{resumed:?}");
    let after = place.recording("run.plumb");
    assert!(after.complete);
    assert_eq!(after.blocks.len(), 12 * of_arm);
    place.run(&format!("{words} -q -o whole.plumb")).code(0);
    same("resumed", &after, &place.recording("whole.plumb"));

    place
        .run("path --link lo --proto tcp --resume -o run.plumb")
        .code(2)
        .says(&["run.plumb: ", " when it was recorded, and is "]);
    place.nothing_runs();
}
