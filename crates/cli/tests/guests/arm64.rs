//! Guests of arm64: whatever the machine, their kernel is counted to the instruction, and the same
//! again in every boot.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Place, Running, check_whole, has_kernels, own_cache, prints, skip};
use netplumb_lab::vm::kernels::KernelStore;
use netplumb_lab::vm::{agent, trial};
use netplumb_model::arch::Arch;
use netplumb_model::class::{Direction, Link, Proto};
use netplumb_model::recording::{Recording, env};
use netplumb_report::analysis::classes;

/// Builds programs for guests of arm64.
const COMPILER: &str = "aarch64-linux-gnu-gcc";
const NO_COMPILER: &str = "no aarch64-linux-gnu-gcc: scripts/setup.sh arm64";

/// Whether guests of arm64 can be booted; prints a note if not.
fn has_guests(place: &Place) -> bool {
    let missing = trial::find_qemu(Arch::Arm64).err().map(|e| e.to_string());
    let program = || beside().then_some(()).ok_or("no plumb-agent-aarch64: make arm64");
    if let Some(why) = missing.or_else(|| program().err().map(String::from)) {
        skip(&why);
        return false;
    }
    has_kernels(place, &["debian:arm64"])
}

/// Whether the guests' program is where the program under test looks for it.
fn beside() -> bool {
    let variable = agent::variable(Arch::Arm64);
    std::env::var_os(variable).is_some() || crate::common::agent(Arch::Arm64).is_file()
}

/// `plumb` itself for a machine of arm64; prints a note if it was not built.
fn whole_program() -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_BIN_EXE_plumb")).with_file_name("plumb-aarch64");
    if !program.is_file() {
        skip("no plumb-aarch64: scripts/guest.sh arm64 --whole");
        return None;
    }
    Some(program)
}

/// Check that no call, return or instruction is lost on any link with any protocol of either family,
/// and that each has its classes.
#[test]
fn vm_every_link() {
    let place = Place::new();
    if !has_guests(&place) {
        return;
    }
    for link in Link::ALL.iter().filter(|link| **link != Link::Any) {
        place
            .run(&format!(
                "path --arch arm64 --link {link} --proto udp,tcp,raw --family ipv4,ipv6 --packets 50 \
                 --blocks 2 --output {link}.plumb"
            ))
            .code(0);
        let recording = place.recording(&format!("{link}.plumb"));
        check_whole(&recording);
        assert_eq!(recording.arch(0), Arch::Arm64);
        let views = classes(&recording);
        let has = |proto, direction| {
            let of = |v: &&_| {
                let v: &netplumb_report::analysis::ClassView<'_> = v;
                v.class.proto == proto && v.class.direction == direction
            };
            views.iter().filter(of).count()
        };
        for (proto, direction) in [
            (Proto::Udp, Direction::Tx),
            (Proto::Udp, Direction::Rx),
            (Proto::Tcp, Direction::Tx),
            (Proto::Tcp, Direction::Rx),
            (Proto::Tcp, Direction::Ack),
            (Proto::Raw, Direction::Tx),
            (Proto::Raw, Direction::Rx),
            (Proto::Raw, Direction::Echo),
        ] {
            assert_eq!(has(proto, direction), 2, "{link} {proto} {direction}");
        }
    }
    place
        .run("path --arch arm64 --forward --family ipv4,ipv6 --packets 50 --blocks 2 --output f.plumb")
        .code(0);
    let recording = place.recording("f.plumb");
    check_whole(&recording);
    let views = classes(&recording);
    let forwarded = views.iter().filter(|v| v.class.direction == Direction::Forward);
    assert_eq!(forwarded.count(), 2);
    place.nothing_runs();
}

/// The idle loop, which gcc 12 makes three instructions for two turns: which of them a window
/// begins with depends on how often the guest was idle before.
const IDLE_LOOP: &str = "cpu_startup_entry";

/// What each function cost in each block, but for the idle loop.
fn costs(recording: &Recording) -> BTreeMap<(u32, String), u64> {
    let mut sums = BTreeMap::new();
    for cost in &recording.costs {
        let function = recording.nodes[cost.node as usize].function;
        let name = recording.functions[function as usize].name.clone();
        if name != IDLE_LOOP {
            *sums.entry((cost.block, name)).or_default() += cost.own;
        }
    }
    sums
}

/// Check that guests that boot, and guests that start from their saved states, count the same in every block, function
/// by function: random numbers come from the seed.
#[test]
fn vm_every_boot_is_the_same() {
    let place = Place::new();
    if !has_guests(&place) {
        return;
    }
    let mut first = None;
    let boots = netplumb_testkit::tries(4).max(2);
    for number in 0..boots + 2 {
        let how = if number < boots { "--cold" } else { "" };
        place
            .run(&format!(
                "path --arch arm64 --link e1000 --packets 100 --blocks 3 {how} --output {number}.plumb"
            ))
            .code(0);
        let recording = place.recording(&format!("{number}.plumb"));
        check_whole(&recording);
        let random = recording.environment.get(env::RANDOM).map(String::as_str);
        assert_eq!(random, Some("seed"));
        let costs = costs(&recording);
        match &first {
            None => first = Some(costs),
            Some(first) => {
                let differ: Vec<_> = costs
                    .iter()
                    .filter(|(of, own)| first.get(of) != Some(own))
                    .map(|(of, own)| (of, own, first.get(of)))
                    .collect();
                assert!(
                    differ.is_empty() && costs.len() == first.len(),
                    "run {number} differs: {differ:?}"
                );
            }
        }
    }
}

/// Check that one experiment measures both architectures, and that `plumb diff` compares them function by
/// function, and lists what else is different.
#[test]
fn vm_both_architectures() {
    let place = Place::new();
    if !has_guests(&place) || !crate::common::has_guests() {
        return;
    }
    let ran = place.run("path --arch x86-64,arm64 --output both.plumb");
    prints(ran.code(0), &["arch=x86-64", "arch=arm64", "udp_sendmsg"]);
    let recording = place.recording("both.plumb");
    check_whole(&recording);
    assert_eq!([recording.arch(0), recording.arch(1)], [Arch::X86_64, Arch::Arm64]);
    let ran = place.run("report both.plumb --lines ip_output --asm");
    // A call of each.
    prints(ran.code(0), &["call ", "bl "]);
    for (arch, kernel) in [("x86-64", "debian"), ("arm64", "debian:arm64")] {
        let words = format!("path --kernel {kernel} --output {arch}.plumb");
        place.run(&words).code(0);
    }
    let ran = place.run("diff x86-64.plumb arm64.plumb");
    let differences = [
        "architecture: x86-64 → arm64 (the same source is other code: ",
        "CPU: netplumb-x86-1",
        "kernel: ",
        "CONFIG_ARM64_PAN: absent → y",
        "CONFIG_PARAVIRT_XXL: y → absent",
        "entry_SYSCALL_64",
        "el0t_64_sync",
        "gone",
        "new",
        " → cortex-a72, one vCPU",
    ];
    prints(ran.code(0), &differences);
    // Two arms give the same as two recordings.
    let within = place.run("diff both.plumb");
    prints(within.code(0), &differences);
    let lines = |text: &str| -> Vec<String> {
        let lines = text.lines();
        let said = lines.filter(|l| l.starts_with("differs ") || l.starts_with("UDP "));
        said.map(String::from).collect()
    };
    assert_eq!(lines(&within.stdout), lines(&ran.stdout));
    let ran = place.run("report both.plumb");
    let facts = ["arch      x86-64 and arm64, by arm", "CONFIG_ARM64_PAN absent and y"];
    prints(ran.code(0), &facts);
}

/// Check that two hosts of arm64 have one wire: the time of every frame is the same in two runs, and in one that also
/// counts instructions, which loses nothing.
#[test]
fn vm_two_hosts() {
    let place = Place::new();
    if !has_guests(&place) {
        return;
    }
    let mut hashes = Vec::new();
    for (name, exact) in [("a", ""), ("b", ""), ("c", "--exact")] {
        place
            .run(&format!("bench stream --arch arm64 --bytes 1M --output {name}.plumb {exact}"))
            .code(0);
        let recording = place.recording(&format!("{name}.plumb"));
        assert!(recording.losses.is_empty(), "{:?}", recording.losses);
        let facts = recording.notes.values().map(|notes| &notes.facts);
        let hash = |facts: &BTreeMap<String, String>| facts.get("wire.frames").cloned();
        hashes.extend(facts.filter_map(hash));
        assert_eq!(recording.costs.is_empty(), exact.is_empty());
    }
    assert_eq!(hashes.len(), 3);
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}

/// Check that a program of arm64 is counted function by function, in two runs alike: calls of a function
/// that has no frame, of one that calls itself, and of the C library.
#[test]
fn vm_a_program() {
    let place = Place::new();
    if !has_guests(&place) {
        return;
    }
    place.write(
        "work.c",
        "#include <string.h>\n#include <unistd.h>\n\
         __attribute__((noinline)) int leaf(int n) { return n * 3 + 1; }\n\
         __attribute__((noinline)) int deep(int n) { return n ? deep(n - 1) + leaf(n) : 0; }\n\
         int main(void) { char text[64]; int sum = 0;\n\
         for (int i = 0; i < 50; i++) { memset(text, i, sizeof(text)); sum += deep(9) + text[3]; }\n\
         return write(1, text, sum & 1) < 0; }\n",
    );
    let built = place
        .command(COMPILER)
        .args(["-O1", "-g", "-static", "-fno-optimize-sibling-calls", "work.c", "-o", "work"])
        .status();
    if !built.is_ok_and(|status| status.success()) {
        return skip(NO_COMPILER);
    }
    let mut first = None;
    for number in 0..2 {
        let words = format!("path --arch arm64 --output {number}.plumb -- ./work");
        place.run(&words).code(0);
        let recording = place.recording(&format!("{number}.plumb"));
        assert!(recording.losses.is_empty(), "{:?}", recording.losses);
        let calls = |name: &str| -> u64 {
            let of = recording.costs.iter().filter(|cost| {
                let function = recording.nodes[cost.node as usize].function;
                recording.functions[function as usize].name == name
            });
            of.map(|cost| cost.calls).sum()
        };
        assert_eq!(calls("main"), 1);
        assert_eq!(calls("deep"), 50 * 10);
        assert_eq!(calls("leaf"), 50 * 9);
        let costs = costs(&recording);
        let of = |name: &str| costs.get(&(0, name.into())).copied();
        let ours = ["main", "deep", "leaf"].map(of);
        match &first {
            None => first = Some(ours),
            Some(first) => assert_eq!(*first, ours),
        }
    }
    let ran = place.run("report 0.plumb --lines deep --asm --source");
    prints(ran.code(0), &["bl      leaf", "deep(n - 1) + leaf(n)"]);
}

/// Check that arguments are read from the registers that the compiler has them in: a number of 16 bytes, and a
/// structure that a member aligns to 16, begin at one with an even number; one that its own attribute aligns does not.
#[test]
fn vm_wide_arguments() {
    let place = Place::new();
    if !has_guests(&place) {
        return;
    }
    place.write(
        "wide.c",
        "#define FUNCTION __attribute__((noinline, noipa))\n\
         struct __attribute__((aligned(16))) own { long a, b; };\n\
         struct of_member { struct own own; };\n\
         FUNCTION int wide_number(int a, __int128 wide, int b) { return a + (int)wide + b; }\n\
         FUNCTION int wide_own(int a, struct own wide, int b) { return a + (int)wide.a + b; }\n\
         FUNCTION int wide_member(int a, struct of_member wide, int b) { return a + (int)wide.own.a + b; }\n\
         int main(void) { struct own own = {5, 6}; struct of_member of_member = {own};\n\
         return wide_number(1, -((__int128)1 << 64), 77) + wide_own(2, own, 78) + wide_member(3, of_member, 79) != 250; }\n",
    );
    let line = "-O1 -g -static wide.c -o wide";
    let built = place.command(COMPILER).args(line.split(' ')).status();
    if !built.is_ok_and(|status| status.success()) {
        return skip(NO_COMPILER);
    }
    for call in [
        "wide_number(a=1, wide=-18446744073709551616, b=77) = 78",
        "wide_own(a=2, wide=?, b=78) = 85",
        "wide_member(a=3, wide=?, b=79) = 87",
    ] {
        let (function, _) = call.split_once('(').unwrap();
        let ran = place.run(&format!("trace {function} --args --arch arm64 -q -- ./wide"));
        prints(ran.code(0), &[call]);
    }
}

/// Check that a program with shared libraries, its own and the cross compiler's, runs in a guest of arm64 and is
/// counted, with pointer authentication and branch targets in it; and that libraries brought by hand, to where the
/// loader looks, take precedence.
#[test]
fn vm_shared_libraries() {
    let place = Place::new();
    if !has_guests(&place) {
        return;
    }
    place.write("leaf.c", "__attribute__((noinline)) int leaf(int n) { return n * 3 + 1; }\n");
    place.write(
        "work.c",
        "#include <stdlib.h>\nint leaf(int);\n\
         int main(void) { int sum = abs(-1); for (int i = 0; i < 70; i++) sum += leaf(i); return sum != 7316; }\n",
    );
    for line in [
        "-O1 -g -shared -fPIC leaf.c -o libleaf.so",
        "-O1 -g -mbranch-protection=standard work.c -L. -lleaf -Wl,-rpath,$ORIGIN -o work",
    ] {
        let built = place.command(COMPILER).args(line.split(' ')).status();
        if !built.is_ok_and(|status| status.success()) {
            return skip(NO_COMPILER);
        }
    }
    let libraries = "/usr/aarch64-linux-gnu/lib";
    let loader = "ld-linux-aarch64.so.1";
    let brought = format!(
        "--with {libraries}/{loader}:/lib/{loader} --with {libraries}/libc.so.6:/lib/libc.so.6"
    );
    for with in ["", &brought] {
        place.run(&format!("path --arch arm64 {with} --output lib.plumb -- ./work")).code(0);
        let recording = place.recording("lib.plumb");
        assert!(recording.losses.is_empty(), "{:?}", recording.losses);
        let of = recording.costs.iter().filter(|cost| {
            let function = recording.nodes[cost.node as usize].function;
            recording.functions[function as usize].name == "leaf"
        });
        assert_eq!(of.map(|cost| cost.calls).sum::<u64>(), 70);
    }
}

/// Check that the knapsack without its loop makes the calls on arm64 that it makes on x86-64, takes an
/// eighth of the instructions in the function that had the loop, and the same in the two others.
#[test]
fn vm_knapsack() {
    let place = Place::new();
    if !has_guests(&place) {
        return;
    }
    if place.command(COMPILER).arg("--version").output().is_err() {
        return skip(NO_COMPILER);
    }
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    fs::create_dir(place.path("knapsack")).unwrap();
    for file in ["Makefile", "knapsack.h", "pack.c", "before.c", "after.c"] {
        let file = Path::new("knapsack").join(file);
        fs::copy(shipped.join(&file), place.path(file.to_str().unwrap())).unwrap();
    }
    let file = "knapsack-arm64.toml";
    fs::copy(shipped.join(file), place.path(file)).unwrap();
    place.run(&format!("run -q {file} --yes-change")).code(0);
    let recording = place.recording("knapsack-arm64.plumb");
    assert!(recording.losses.is_empty(), "{:?}", recording.losses);
    let of = |name: &str| {
        let mut found = [(0, 0); 2];
        for cost in &recording.costs {
            let function = recording.nodes[cost.node as usize].function;
            if recording.functions[function as usize].name == name {
                let arm = recording.blocks[cost.block as usize].arm as usize;
                found[arm] = (found[arm].0 + cost.calls, found[arm].1 + cost.own);
            }
        }
        found
    };
    for name in ["make_items", "pack_knapsack"] {
        let [before, after] = of(name);
        assert!(before.1 > 0 && before == after, "{name}: {before:?}, {after:?}");
    }
    let [before, after] = of("get_cond_maxprice");
    assert_eq!([before.0, after.0], [4_264_780; 2]);
    let rest = after.1 as f64 / before.1 as f64;
    assert!((0.1..0.15).contains(&rest), "{before:?}, {after:?}");
}

/// Rules that no packet matches.
const RULES: &str = "name = \"rules\"\n[blocks]\ncount = 2\n[knobs]\narch = \"arm64\"\nproto = \"udp\"\n\
                     nft = { rules = 10 }\n";

/// Check that guests run programs of Debian's packages for arm64, fetched if need be, that what they set
/// acts, and that the recording names their files: rules, a qdisc, a web server, and a file system on a disk.
#[test]
fn vm_programs_of_packages() {
    let place = Place::new();
    if !has_guests(&place) {
        return;
    }
    let calls = |recording: &Recording, function: &str| -> u64 {
        let of = |node: u32| recording.nodes[node as usize].function as usize;
        let its = |node| recording.functions[of(node)].name == function;
        let costs = recording.costs.iter().filter(|cost| its(cost.node));
        costs.map(|cost| cost.calls).sum()
    };
    place.write("rules.toml", RULES);
    for (words, fact, function) in [
        ("run rules.toml", env::NFT_FILES, "nft_do_chain"),
        ("path --arch arm64 --packets 50 --blocks 2 --qdisc prio", env::TC_FILES, "prio_enqueue"),
    ] {
        place.run(&format!("{words} -o x.plumb")).code(0);
        let recording = place.recording("x.plumb");
        check_whole(&recording);
        assert_eq!(recording.arch(0), Arch::Arm64);
        assert!(recording.environment.contains_key(fact), "{fact}");
        assert!(calls(&recording, function) > 0, "{words}");
    }
    place
        .run(
            "bench http --arch arm64 --requests 100 --connections 8 --directories 1 --blocks 1 \
             --disk null_blk:16M:ext4 -o x.plumb",
        )
        .code(0);
    let recording = place.recording("x.plumb");
    assert!(recording.losses.is_empty(), "{:?}", recording.losses);
    let known = |fact| {
        let mut all = recording.notes.values().map(|notes| &notes.facts);
        recording.environment.contains_key(fact) || all.any(|facts| facts.contains_key(fact))
    };
    assert!(known(env::NGINX_FILES) && known(env::MKFS_FILES));
    place.write("data", vec![7; 1 << 20]);
    for file_system in ["ext4", "xfs"] {
        let ran = place.run(&format!(
            "path --arch arm64 --disk null_blk:32M:{file_system} --with data:/disk/data --drop-caches \
             -o x.plumb -- plumb read-file /disk/data"
        ));
        ran.code(0);
        assert!(ran.stdout.contains("read 1048576 bytes"), "{}", ran.stdout);
        assert!(calls(&place.recording("x.plumb"), "submit_bio") > 0);
    }
    place.nothing_runs();
}

/// Check that a package that is neither in the cache nor available is reported in a line, before a guest boots, with
/// what to do.
#[test]
fn vm_no_network() {
    let place = Place::new();
    if !has_guests(&place) {
        return;
    }
    let cache = own_cache();
    place.write("rules.toml", RULES);
    place.write("apt.conf", "Acquire::http::Proxy \"http://127.0.0.1:9\";\nAcquire::https::Proxy \"http://127.0.0.1:9\";\nAcquire::Retries \"0\";\n");
    for (words, program, package) in [
        ("path --arch arm64 --qdisc fq_codel", "tc", "iproute2"),
        ("run rules.toml", "nft", "nftables"),
        ("bench http --arch arm64", "nginx", "nginx"),
        (
            "path --arch arm64 --disk null_blk:32M:ext4 -- plumb read-file /init",
            "mkfs.ext4",
            "e2fsprogs",
        ),
    ] {
        let mut command = place.plumb(&format!("--cache {} {words}", cache.path().display()));
        command.env("APT_CONFIG", place.path("apt.conf"));
        let ran = Running::start(&mut command).finish();
        ran.code(3).says(&[
            &format!("guests of arm64 run {program} of Debian's package {package}"),
            "not in the cache yet",
            "network",
            "--arch x86-64",
        ]);
        assert!(!ran.stderr.contains("boot"), "{}", ran.stderr);
    }
    // Nothing that is half there is taken for the package.
    let left = fs::read_dir(cache.path().join("sources/programs"));
    let names = left.into_iter().flatten().flatten().map(|e| e.file_name());
    let names: Vec<_> = names.filter(|name| !name.to_string_lossy().starts_with('.')).collect();
    assert!(names.is_empty(), "{names:?}");
    place.nothing_runs();
}

/// Check that a kernel that is removed takes with it what no other kernel needs: compilers, programs and package lists
/// of its architecture; and that the list of kernels has what else is in the cache.
#[test]
fn vm_what_no_kernel_needs() {
    const COMPILER: &str = "sources/compilers/gcc-1_1.0-1_arm64";
    const PROGRAM: &str = "sources/programs/nftables_arm64";
    const LISTS: &str = "apt/arm64";
    let place = Place::new();
    if !has_guests(&place) {
        return;
    }
    let cache = tempfile::TempDir::new().unwrap();
    let kernels = cache.path().join("kernels");
    fs::create_dir_all(&kernels).unwrap();
    let store = KernelStore::new(&crate::common::cache());
    let [own, arm64] = ["debian", "debian:arm64"].map(|name| store.find(name).unwrap());
    for kernel in [&own, &arm64] {
        std::os::unix::fs::symlink(&kernel.folder, kernels.join(&kernel.hash)).unwrap();
    }
    // Sizes are what files take on the disk: blocks of 4 KiB.
    for folder in [COMPILER, PROGRAM, LISTS] {
        fs::create_dir_all(cache.path().join(folder)).unwrap();
        fs::write(cache.path().join(folder).join("file"), [0; 4096]).unwrap();
    }
    let there = || [COMPILER, PROGRAM, LISTS].map(|folder| cache.path().join(folder).is_dir());
    let run = |words: &str| {
        let ran = place.run(&format!("--cache {} kernel {words}", cache.path().display()));
        ran.code(0);
        ran.stdout
    };
    let listed = run("list");
    assert!(
        listed.contains("sources, compilers and programs 8.19 kB, package lists 4.10 kB"),
        "{listed}"
    );
    // No kernel was built with this compiler.
    let removed = run(&format!("rm {}", &own.hash[..12]));
    assert!(removed.contains("no other kernel needs"), "{removed}");
    assert_eq!(there(), [false, true, true]);
    let removed = run(&format!("rm {}", &arm64.hash[..12]));
    assert!(removed.contains("8.19 kB"), "{removed}");
    assert_eq!(there(), [false; 3]);
    assert!(arm64.folder.join("kernel.toml").is_file());
}

/// Check that what an arm64 guest can't do is reported in a line, with the remedy.
#[test]
fn vm_refusals() {
    let place = Place::new();
    if !has_guests(&place) {
        return;
    }
    let mut command = place.plumb("path --arch arm64");
    command.env(agent::variable(Arch::Arm64), "/nonexistent/plumb");
    let ran = crate::common::Running::start(&mut command).finish();
    ran.code(3).says(&["/nonexistent/plumb", "make arm64"]);
    let mut command = place.plumb("path --arch arm64");
    command.env(agent::variable(Arch::Arm64), "/bin/true");
    let ran = crate::common::Running::start(&mut command).finish();
    ran.code(3).says(&["/bin/true", "make arm64"]);
    place
        .run("path --arch arm64 -- /bin/true")
        .code(3)
        .says(&["/bin/true is for x86-64", "this guest is arm64"]);
    place.run("path --arch armhf").code(2).says(&["unknown architecture `armhf`", "x86-64, arm64"]);
    place.nothing_runs();
}

/// Check that the program for arm64 makes the same reports and comparisons of recordings as this one: it runs on an
/// arm64 machine, with QEMU's user mode as the CPU.
#[test]
fn vm_the_program_itself() {
    const QEMU: &str = "qemu-aarch64";
    let place = Place::new();
    if !has_guests(&place) {
        return;
    }
    if Command::new(QEMU).arg("--version").output().is_err() {
        return skip("no qemu-aarch64: apt-get install qemu-user");
    }
    for (size, file) in [("10", "x.plumb"), ("500", "y.plumb")] {
        place
            .run(&format!("path --arch arm64 --size {size} --packets 20 --blocks 1 -o {file} -q"))
            .code(0);
    }
    let Some(of_arm64) = whole_program() else {
        return;
    };
    for words in [
        "report x.plumb --top 40",
        "report x.plumb --json",
        "report x.plumb --csv",
        "report x.plumb --folded",
        "diff x.plumb y.plumb",
    ] {
        let ran = place.run(words);
        ran.code(0);
        let here = &ran.stdout;
        let mut command = place.command(QEMU);
        command.arg(&of_arm64).args(words.split(' '));
        let there = Running::start(&mut command).finish();
        there.code(0);
        assert!(here.len() > 100, "{words}: {here}");
        assert_eq!(there.stdout, *here, "{words}");
    }
}

/// Check that the program measures on a machine of arm64, which is a guest here: it makes namespaces there,
/// attaches its BPF programs, and counts every packet in all stages.
#[test]
fn vm_on_a_machine_of_arm64() {
    let place = Place::new();
    if !has_guests(&place) {
        return;
    }
    let Some(of_arm64) = whole_program() else {
        return;
    };
    fs::copy(of_arm64, place.path("plumb")).unwrap();
    let ran = place.run(
        "path -q --arch arm64 --timeout 300 -o outer.plumb -- \
         ./plumb path --lab netns --clock stages --packets 200 --blocks 2",
    );
    ran.code(0);
    for words in [
        "udp tx  a packet's way takes",
        "udp rx  a packet's way takes",
        "packets   400 offered, 400 delivered",
        "-arm64; lab netns",
    ] {
        assert!(ran.stdout.contains(words), "no `{words}`: {}", ran.stdout);
    }
}
