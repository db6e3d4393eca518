//! `plumb path -- COMMAND`: the counts, and commands that end badly.

use std::process::Command;

use crate::common::Place;
use netplumb_model::class::{Context, Direction, Proto};
use netplumb_model::recording::{Recording, THREAD_MODULE};
use netplumb_report::analysis::{ClassView, class};
use serde_json::Value::Null;
use serde_json::json;

/// A program whose functions execute known numbers of instructions: `spin` four per iteration and a
/// return, `spin_thread` three, in two threads. They begin soon, before the scheduler has a reason to let
/// one of them run first: then the first thread waits for each, in every boot.
const LOOPS: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) void spin(long n)
{ __asm__ volatile("1: dec %0; nop; nop; jnz 1b" : "+r"(n)); }
__attribute__((noinline)) void spin_thread(long n)
{ __asm__ volatile("1: dec %0; nop; jnz 1b" : "+r"(n)); }
static void *body(void *arg) { spin_thread((long)arg); return 0; }
int main(void) {
	pthread_t t[2];
	usleep(20000);
	for (long i = 0; i < 2; i++) pthread_create(&t[i], 0, body, (void *)(10000 * (i + 1)));
	for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
	spin(100000);
	puts("done");
	return 0;
}
"#;

fn compile(place: &Place, name: &str, source: &str, words: &[&str]) {
    place.write(&format!("{name}.c"), source);
    let done = Command::new("cc")
        .args(["-O1", "-pthread", "-o"])
        .arg(place.path(name))
        .arg(place.path(&format!("{name}.c")))
        .args(words)
        .current_dir(place.path("."))
        .status()
        .unwrap();
    assert!(done.success());
}

/// Check that every instruction of a recording's runs is in a cost.
fn check_sums(recording: &Recording) {
    assert!(!recording.blocks.is_empty());
    for (n, block) in (0..).zip(&recording.blocks) {
        let costs = recording.costs.iter().filter(|c| c.block == n);
        let sum: u64 = costs.map(|c| c.own).sum();
        assert_eq!(sum, block.kernel() + block.user(), "block {n}");
    }
}

/// Self cost, calls and inclusive cost of a function.
fn cost(view: &ClassView<'_>, name: &str, module: Option<&str>) -> (u64, u64, u64) {
    let functions = &view.recording.functions;
    let of = |f: u32| {
        let function = &functions[f as usize];
        function.name == name && function.module.as_deref() == module
    };
    let found = view.functions.iter().find(|f| of(f.function));
    found.map_or((0, 0, 0), |f| (f.self_insns, f.calls, f.inclusive_insns))
}

/// Check that loops of known length are counted to the instruction, in a dynamic and a static
/// program, that threads are distinguished, and that every function of the program and its
/// libraries costs the same in another boot.
#[test]
fn to_the_instruction() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let mut first = None;
    compile(&place, "loop", LOOPS, &[]);
    compile(&place, "fixed", LOOPS, &["-static"]);
    for (name, how) in [("loop", ""), ("loop", "--cold"), ("fixed", "")] {
        let ran = place.run(&format!("path -q {how} -o x.plumb -- ./{name}"));
        ran.code(0);
        assert!(ran.stdout.starts_with("done\n"), "{}", ran.stdout);
        assert!(ran.stdout.contains("instructions per run"), "{}", ran.stdout);
        let recording = place.recording("x.plumb");
        check_sums(&recording);
        assert!(recording.losses.is_empty(), "{:?}", recording.losses);
        assert_eq!(recording.arms[0].proto, Proto::Command);
        let view = class(&recording, 0, Direction::Run);
        assert_eq!(cost(&view, "spin", Some(name)).0, 400_001);
        assert_eq!(cost(&view, "spin_thread", Some(name)).0, 3 * 30_000 + 2);
        assert_eq!(cost(&view, "spin_thread", Some(name)).1, 2);
        let thread = |n: usize| {
            let root = match n {
                1 => name.to_string(),
                n => format!("{name} #{n}"),
            };
            cost(&view, &root, Some(THREAD_MODULE)).2
        };
        // What they call is theirs, and together they are the command.
        assert!(thread(2) > 30_001 && thread(3) > 60_001);
        let task = view.contexts[&Context::Task];
        assert_eq!(thread(1) + thread(2) + thread(3), task);
        let costs: Vec<(String, (u64, u64))> = view
            .functions
            .iter()
            .filter(|f| view.layer(f.function) == "application" && f.self_insns > 0)
            .filter(|f| view.name(f.function) != "agent")
            .map(|f| {
                let function = &recording.functions[f.function as usize];
                let name = format!("{} {:?}", function.name, function.module);
                (name, (f.self_insns, f.calls))
            })
            .collect();
        if name == "loop" {
            match &first {
                None => first = Some(costs),
                Some(first) => {
                    let other: Vec<_> = costs.iter().filter(|c| !first.contains(c)).collect();
                    assert_eq!(other.len(), 0, "other than before: {other:?}");
                }
            }
        }
    }
    place.nothing_runs();
}

/// The number of the line that has these words.
fn line_of(source: &str, words: &str) -> u64 {
    let at = source.lines().position(|l| l.contains(words));
    at.unwrap() as u64 + 1
}

/// Check that functions have their source locations and lines their costs, for a program with debug
/// information and for one with a separate debug file, and that a program without any has neither,
/// and no warning.
#[test]
fn lines() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    compile(&place, "whole", LOOPS, &["-g"]);
    compile(&place, "apart", LOOPS, &["-g"]);
    compile(&place, "bare", LOOPS, &[]);
    for words in [
        &["--only-keep-debug", "apart", "apart.debug"][..],
        &["--strip-all", "--add-gnu-debuglink=apart.debug", "apart"],
    ] {
        let mut objcopy = Command::new("objcopy");
        let done = objcopy.args(words).current_dir(place.path("."));
        assert!(done.status().unwrap().success());
    }
    for name in ["whole", "apart", "bare"] {
        let ran = place.run(&format!("path -q --json -o x.plumb -- ./{name}"));
        ran.code(0);
        let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        let functions = document["classes"][0]["functions"].as_array().unwrap();
        let spin = functions.iter().find(|f| f["name"] == "spin" && f["module"] == name).unwrap();
        assert_eq!(spin["self"], 400_001, "{name}");
        let recording = place.recording("x.plumb");
        check_sums(&recording);
        assert!(recording.losses.is_empty(), "{:?}", recording.losses);
        let report = |words: &str| {
            let ran = place.run(&format!("report {words} spin x.plumb"));
            ran.code(0);
            ran.stdout
        };
        if name == "bare" {
            assert_eq!((&spin["source"], &spin["lines"]), (&Null, &Null));
            assert!(
                recording
                    .functions
                    .iter()
                    .all(|f| f.module.as_deref() != Some("bare") || f.source.is_none())
            );
            assert!(report("--lines").contains("no lines are known"));
            continue;
        }
        let file = place.path(&format!("{name}.c"));
        let file = file.to_str().unwrap();
        let defined = line_of(LOOPS, "void spin(long n)");
        assert_eq!(spin["source"], json!({"file": file, "line": defined}));
        // All of it is on one line, its return too.
        let body = json!({"file": file, "line": defined + 1, "self": 400_001});
        assert_eq!(spin["lines"], json!([body]));
        let said = report("--lines");
        assert!(said.contains("400,001") && said.contains("100.0%"), "{said}");
        let said = report("--focus");
        let place_of_it = format!("defined at {file}:{defined}");
        assert!(said.contains(&place_of_it), "{said}");
        // The lines of every function of the program are all that it executed.
        let main = functions.iter().find(|f| f["name"] == "main").unwrap();
        let of_lines = main["lines"].as_array().unwrap().iter();
        let sum: u64 = of_lines.map(|l| l["self"].as_u64().unwrap()).sum();
        assert_eq!(main["self"], sum, "{name}");
    }
    place.nothing_runs();
}

/// Check a command that talks to a peer: names of both ends, a file taken along, and
/// functions of the program, its libraries and the kernel in one chain.
#[test]
fn with_a_peer() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    compile(
        &place,
        "answer",
        r#"
#include <arpa/inet.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(7777) };
	int s = socket(AF_INET, SOCK_STREAM, 0), c;
	char text[64] = "";
	FILE *file = fopen("greeting", "r");
	if (!file || !fgets(text, sizeof text, file)) return 3;
	if (bind(s, (void *)&at, sizeof at) || listen(s, 1)) return 4;
	dprintf(2, "greeting with %s", text);
	while ((c = accept(s, 0, 0)) >= 0) { dprintf(c, "%s", text); close(c); }
	return 0;
}
"#,
        &[],
    );
    compile(
        &place,
        "ask",
        r#"
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>
int main(void) {
	struct addrinfo want = { .ai_socktype = SOCK_STREAM }, *at;
	char text[64];
	ssize_t n;
	if (getaddrinfo("peer", "7777", &want, &at)) return 5;
	int s = socket(at->ai_family, at->ai_socktype, 0);
	if (connect(s, at->ai_addr, at->ai_addrlen)) return 6;
	while ((n = read(s, text, sizeof text)) > 0) write(1, text, n);
	return 7;
}
"#,
        &[],
    );
    place.write("greeting", "how do you do\n");
    let mut command = place.plumb("path -q --with greeting --top 0");
    command.args(["--peer", "./answer", "--", "./ask"]);
    let ran = crate::common::Running::start(&mut command).finish();
    // It did its work, and exited with its own status. The peer may know why.
    ran.code(1)
        .says(&["./ask exited with code 7", "output of --peer: greeting with how do you do"]);
    assert!(ran.stdout.starts_with("how do you do\n"), "{}", ran.stdout);
    let recording = place.recording("path.plumb");
    check_sums(&recording);
    let view = class(&recording, 0, Direction::Run);
    let main = cost(&view, "main", Some("ask"));
    let connect = cost(&view, "tcp_v4_connect", None);
    assert!(main.1 == 1 && connect.1 == 1, "{main:?} {connect:?}");
    assert!(main.2 > connect.2);
    assert!(view.contexts.contains_key(&Context::OtherTask));
}

/// Check that a file missing in the guest is named when a command fails, with advice that works
/// when followed; and that there is no advice to include files that can't be included or that every
/// guest has.
#[test]
fn files_left_behind() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    place.write("data", "how do you do\n");
    place
        .run("path -q -- cat /dev/null data")
        .code(1)
        .says(&["`data` is not in the guest", "--with data"]);
    let ran = place.run("path -q --with data -- cat /dev/null data");
    ran.code(0);
    assert!(ran.stdout.starts_with("how do you do\n"), "{}", ran.stdout);
    let ran = place.run("path -q -- cat missing /dev/null /proc/version . /");
    ran.code(1);
    assert!(!ran.stderr.contains("--with"), "{}", ran.stderr);
}

/// Check that as much goes along as is promised: 384 MiB, the program and its libraries among
/// them, and that a guest has only then more memory.
#[test]
fn large_files_go_along() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    for (bytes, memory) in [(24 << 20, "256"), (380 << 20, "1024")] {
        std::fs::File::create(place.path("large")).unwrap().set_len(bytes).unwrap();
        let ran = place.run("path -q -o x.plumb --with large -- wc -c large");
        ran.code(0);
        assert!(ran.stdout.starts_with(&format!("{bytes} large\n")), "{}", ran.stdout);
        let recording = place.recording("x.plumb");
        assert_eq!(recording.environment["vm.memory_mib"], memory);
    }
}

/// Check that a command also runs without an instruction clock, from a state that was saved before its
/// files were there.
#[test]
fn without_an_instruction_clock() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    for output in ["saved.plumb", "again.plumb"] {
        let words = format!("path -q --quick --blocks 1 --timeout 30 -o {output} -- /bin/true");
        place.run(&words).code(0);
        check_sums(&place.recording(output));
    }
}

/// Check that what the kernel does once in a boot, at the first connection, is not the command's,
/// unless that is asked for: the table of random numbers by which TCP chooses ports.
#[test]
fn first_use_is_not_the_commands() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    compile(
        &place,
        "connect",
        r#"
#include <arpa/inet.h>
#include <sys/socket.h>
int main(void) {
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(9) };
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	/* Nobody listens there. */
	return connect(socket(AF_INET, SOCK_STREAM, 0), (void *)&at, sizeof at) == 0;
}
"#,
        &[],
    );
    // In the first run, and in the one after it.
    let kernel = |words: &str, name: &str| -> [u64; 2] {
        let words = format!("path -q --blocks 2 {words} -o {name} -- ./connect");
        place.run(&words).code(0);
        let recording = place.recording(name);
        check_sums(&recording);
        [0, 1].map(|n: usize| recording.blocks[n].kernel())
    };
    let cold = kernel("--warmup 0", "cold.plumb");
    let warm = kernel("", "warm.plumb");
    crate::common::tell(&format!("first and second run: {cold:?}, after a warm-up {warm:?}"));
    // 64 Ki numbers of four bytes, at ten instructions a byte or so.
    assert!(cold[0] > cold[1] + 1_000_000, "{cold:?}");
    // The rest is memory: pages that the kernel moves between its lists in batches.
    let left = warm[0].saturating_sub(warm[1]);
    assert!(left < (cold[0] - cold[1]) / 10, "{cold:?}, {warm:?}");
}

/// Check the reports on commands that crash, fork away, never end or write without end: bounded,
/// with what they cost, and nothing left running.
#[test]
fn commands_that_end_badly() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    for (name, source, words, said) in [
        (
            "crash",
            "int main(void) { volatile int *p = 0; return *p; }",
            "path -q -- ./crash",
            &["signal 11", "segmentation fault"][..],
        ),
        (
            "away",
            "#include <unistd.h>\nint main(void) { if (fork()) return 0; setsid(); \
             if (fork()) return 0; for (;;) pause(); }",
            "path -q -- ./away",
            &["left processes running", "away"],
        ),
        (
            "forever",
            "#include <stdio.h>\nint main(void) { puts(\"begun\"); fflush(stdout); for (;;); }",
            "path -q --timeout 8 -- ./forever",
            &["was killed after", "--timeout"],
        ),
        (
            "flood",
            "#include <unistd.h>\nstatic char b[1 << 20];\nint main(void) { \
             for (int i = 0; i < 40; i++) write(1, b, sizeof b); return 0; }",
            "path -q -- ./flood",
            &["bytes more than the 16 MiB"],
        ),
    ] {
        compile(&place, name, source, &[]);
        let ran = place.run(words);
        let code = if matches!(name, "away" | "flood") { 0 } else { 1 };
        ran.code(code).says(said);
        assert!(ran.stdout.contains("instructions per run"), "{name}");
        assert!(ran.stdout.len() < 17 << 20, "{name}");
        check_sums(&place.recording("path.plumb"));
        place.nothing_runs();
    }
}

/// Check that the report names a file that the command may have lacked, but no device, since the
/// guest has its own.
#[test]
fn what_a_guest_may_lack() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    compile(&place, "fail", "int main(void) { return 3; }", &[]);
    place.write("input", "1\n");
    let ran = place.run("path -q -- ./fail /dev/null");
    assert!(!ran.code(1).stderr.contains("--with"), "{ran:#?}");
    let ran = place.run("path -q -- ./fail /dev/null input");
    ran.code(1).says(&["copy it with --with input"]);
}

/// Check that what can't be run is refused before anything boots: missing commands, files and
/// libraries, other labs and invalid words.
#[test]
fn refused_at_once() {
    let place = Place::new();
    place.write("text", "not a program\n");
    compile(&place, "libgone.so", "int f(void) { return 1; }", &["-shared", "-fPIC"]);
    compile(&place, "needs", "int f(void); int main(void) { return f(); }", &["-L.", "-lgone"]);
    std::fs::remove_file(place.path("libgone.so")).unwrap();
    for (words, code, said) in [
        ("path -- nothing-of-this-name", 2, &["nothing-of-this-name", "$PATH"][..]),
        ("path -- ./missing", 2, &["missing", "No such file"]),
        ("path -- ./text", 2, &["text", "chmod +x"]),
        ("path -- ./needs", 1, &["libgone.so", "--with"]),
        ("path --with missing -- true", 2, &["missing", "No such file"]),
        ("path --peer nothing-at-all -- true", 2, &["nothing-at-all"]),
        ("path --lab netns --peer x -- true", 2, &["--lab vm"]),
        ("path --lab moon -- true", 2, &["moon", "vm"]),
        ("path --lab netns --link veth,lo -- true", 2, &["only one value"]),
        ("path --proto udp -- true", 2, &["--proto"]),
        ("path --proto command", 2, &["unknown protocol `command`"]),
        ("path --peer true", 2, &["COMMAND"]),
    ] {
        place.run(words).code(code).says(said);
    }
    assert!(!place.path("path.plumb").exists());
}
