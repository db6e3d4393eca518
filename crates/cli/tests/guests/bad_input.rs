//! Bad input: errors with a remedy, the right exit code, and nothing lost that was already
//! measured.

// Also in what is no test itself.
use std::fs;
use std::process::Command;
use std::sync::OnceLock;

use crate::common::{Place, Ran, Running, experiment};
use netplumb_testkit::has_root;

/// A short run of one arm.
const SHORT: &str = "path --link lo --packets 20 --blocks 2";
/// Where SQLite keeps the schema's version, big-endian.
const SQLITE_USER_VERSION_AT: usize = 60;

/// A recording, and what the run that made it printed; made once.
fn good() -> &'static (Place, Ran) {
    static GOOD: OnceLock<(Place, Ran)> = OnceLock::new();
    GOOD.get_or_init(|| {
        let place = Place::new();
        let ran = place.run(&format!("{SHORT} -o good.plumb"));
        ran.code(0);
        (place, ran)
    })
}

// Recordings.

/// Check that a disk that fills up in the midst of a run costs no figure: they are printed all the
/// same, and the earlier blocks can be read.
#[test]
fn a_full_disk() {
    if !crate::common::has_guests() {
        return;
    }
    // A small file system that goes with the process.
    let mut namespace = Command::new("unshare");
    namespace.arg("-m");
    if !netplumb_testkit::is_root() {
        namespace.arg("-Ur");
    }
    let alone = namespace.arg("true").status();
    if !alone.is_ok_and(|s| s.success()) {
        crate::common::skip("a small file system takes root, or user namespaces");
        return;
    }
    let place = Place::new();
    fs::create_dir(place.path("small")).unwrap();
    place.write(
        "full.sh",
        "set -e\n\
         mount -t tmpfs -o size=400k none small\n\
         set +e\n\
         \"$0\" path --proto udp,raw --family ipv4,ipv6 --link lo --packets 20 --blocks 4 \
           -o small/run.plumb >figures\n\
         echo \"exit $?\"\n\
         ls small\n\
         \"$0\" report small/run.plumb >report\n\
         echo \"report $?\"\n",
    );
    let mut command = place.command("unshare");
    command.arg("-m");
    if !netplumb_testkit::is_root() {
        command.arg("-Ur");
    }
    command.args(["sh", "-c"]);
    command.arg(fs::read_to_string(place.path("full.sh")).unwrap());
    command.arg(env!("CARGO_BIN_EXE_plumb"));
    let ran = Running::start(&mut command).finish();
    ran.code(0).says(&["disk full", "-o"]);
    assert_eq!(
        ran.stdout.lines().collect::<Vec<_>>(),
        ["exit 1", "run.plumb", "report 0"],
        "{ran:?}"
    );
    let read = |name: &str| fs::read_to_string(place.path(name)).unwrap();
    let (figures, report) = (read("figures"), read("report"));
    for arm in ["udp ipv4", "udp ipv6", "raw ipv4", "raw ipv6"] {
        assert!(figures.contains(&format!("{arm}: ")), "{figures}");
    }
    // Two arms at a time: either may have been the first to be saved.
    let kept = ["udp ipv4: ", "raw ipv4: "];
    assert!(kept.iter().any(|arm| report.contains(arm)), "{report}");
    assert!(report.contains("the run did not finish"), "{report}");
    assert_eq!(place.temporary_files(), [""; 0]);
}

/// Check that nothing is reported as saved where nothing could be, and that saving is tried again until there is room.
#[test]
fn as_root_a_disk_without_room() {
    if !has_root() {
        return;
    }
    let place = Place::new();
    fs::create_dir(place.path("small")).unwrap();
    let run = |then: &str| {
        let mut command = place.command("unshare");
        command.args(["-m", "sh", "-c"]);
        command.arg(format!(
            "mount -t tmpfs -o size=8k none small && \
             \"$0\" stat page-faults --blocks 3 -o small/x.plumb -- {then}; echo \"exit $?\"; ls small"
        ));
        command.arg(env!("CARGO_BIN_EXE_plumb"));
        Running::start(&mut command).finish()
    };
    let ran = run("true");
    ran.says(&["disk full; nothing of this run is saved"]);
    assert!(ran.stdout.ends_with("exit 1\n"), "{ran:?}");
    // There is room from the second run on.
    let ran = run("sh -c 'test -e once && mount -o remount,size=8m none small; touch once'");
    ran.says(&["disk full; nothing of this run is saved", "recorded in"]);
    assert!(ran.stdout.ends_with("exit 0\nx.plumb\n"), "{ran:?}");
}

/// Check that a limit on the size of files is an error, not the end by a signal.
#[test]
fn a_limit_on_files() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let mut command = place.command("sh");
    command.args(["-c", "ulimit -f 8; exec \"$0\" path --link lo"]);
    command.arg(env!("CARGO_BIN_EXE_plumb"));
    Running::start(&mut command).finish().code(1).says(&["File too large"]);
    assert_eq!(place.files(), [""; 0]);
}

/// Check that a directory that isn't writable is reported before anything runs.
#[test]
fn nowhere_to_record() {
    if !crate::common::has_guests() {
        return;
    }
    let place = Place::new();
    let ran = place.run(&format!("{SHORT} -o nowhere/run.plumb"));
    ran.code(1).says(&["nowhere/run.plumb", "can't write"]);
    assert!(!ran.stderr.contains("booting"), "{ran:?}");
}

/// Check that a recording alone gives the same report as the run did.
#[test]
fn a_report_is_what_the_run_printed() {
    if !crate::common::has_guests() {
        return;
    }
    let (place, ran) = good();
    let report = place.run("report good.plumb");
    report.code(0);
    assert_eq!(report.stdout, ran.stdout);
    assert!(ran.stdout.contains("udp tx") && ran.stdout.contains("udp rx"));
}

/// Check that both forms for machines are whole, and agree with each other.
#[test]
fn csv_and_json() {
    if !crate::common::has_guests() {
        return;
    }
    let (place, _) = good();
    let json = place.run("report good.plumb --json");
    json.code(0);
    let document: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(document["schema"], 4);
    assert_eq!(document["complete"], true);
    assert_eq!(document["blocks"].as_array().unwrap().len(), 2);

    let csv = place.run("report good.plumb --csv");
    csv.code(0);
    let mut reader = csv::Reader::from_reader(csv.stdout.as_bytes());
    let headers = reader.headers().unwrap().clone();
    let column = |name| headers.iter().position(|h| h == name).unwrap();
    let (class, insns) = (column("class"), column("self_insns"));
    let records: Vec<_> = reader.records().map(Result::unwrap).collect();
    for of_json in document["classes"].as_array().unwrap() {
        let sum: u64 = records
            .iter()
            .filter(|r| r[class] == *of_json["class"].as_str().unwrap())
            .map(|r| r[insns].parse::<u64>().unwrap())
            .sum();
        assert_eq!(sum, of_json["total"]);
    }
    place.run("report good.plumb --csv --json").code(2).says(&["--csv", "--json"]);
}

/// Check that what an instrument does not support is named by the flag that was given, not by the table of a file.
#[test]
fn flags_of_other_instruments() {
    let place = Place::new();
    for (words, flag) in [
        ("--clock exact,functions --functions udp_sendmsg", "--functions"),
        ("--clock exact,functions --discover", "--discover"),
        ("--clock exact,stages --port 53", "--port"),
        ("--clock exact,stages --max-overhead 5%", "--max-overhead"),
        ("--clock exact,stages --stream", "--stream"),
        ("--clock exact,stages --rate 100", "--rate"),
    ] {
        let ran = place.run(&format!("path {words}"));
        let says = format!("{flag} is not supported by instrument `exact`");
        ran.code(2).says(&[&says]);
        assert!(!ran.stderr.contains('['), "{}", ran.stderr);
    }
}

/// Check that one function is shown with its callers and callees, that another's
/// name is answered with names near it, and so for layers and directions.
#[test]
fn words_that_a_recording_does_not_have() {
    if !crate::common::has_guests() {
        return;
    }
    let (place, _) = good();
    let focus = place.run("report good.plumb --focus ip_output");
    focus.code(0);
    assert!(focus.stdout.contains("ip_output"), "{focus:?}");
    place.run("report good.plumb --focus ip_outptu").code(2).says(&[
        "ip_outptu",
        "similar names",
        "ip_output",
    ]);
    place
        .run("report good.plumb --layer netwrok")
        .code(2)
        .says(&["invalid layer `netwrok`", "network"]);
    place.run("report good.plumb --direction ack").code(2).says(&["ack", "udp tx"]);
}

/// Check that a file that isn't a complete recording of this version is described correctly.
#[test]
fn recordings_that_are_none() {
    let place = Place::new();
    place.run("report missing.plumb").code(1).says(&["missing.plumb", "no such file"]);
    place.write("text.plumb", "a text that is nothing of the kind".repeat(9));
    for name in ["text.plumb", "."] {
        place.run(&format!("report {name}")).code(1).says(&[name, "not a Netplumb recording"]);
    }
    if !crate::common::has_guests() {
        return;
    }
    let whole = fs::read(good().0.path("good.plumb")).unwrap();
    for part in [3, 2] {
        place.write("part.plumb", &whole[..whole.len() / part]);
        place.run("report part.plumb").code(1).says(&["part.plumb", "truncated or damaged"]);
    }
    let mut newer = whole;
    newer[SQLITE_USER_VERSION_AT + 3] = 99;
    place.write("newer.plumb", &newer);
    place.run("report newer.plumb").code(1).says(&["version 99", "use a newer plumb"]);
}

// Experiment files.

/// Check that every possible mistake in a file is reported with its line, and with a suggestion
/// where one can be guessed.
#[test]
fn experiment_files() {
    for (text, words) in [
        (
            "name = \"x\"\n[workload]\npackts = 3\n",
            &["x.toml", "line 3", "packts", "did you mean `packets`?"][..],
        ),
        ("name = \"x\"\n[workload]\npackets = \"many\"\n", &["line 3", "\"many\"", "packets"]),
        ("name = \"x\"\n[knobs]\nsize_bytes = \"10ms\"\n", &["line 3", "invalid size `10ms`", "K"]),
        (
            "name = \"x\"\n[vary]\nlink = [\"veth\", \"vet\"]\n",
            &["line 3", "`vet`", "did you mean `veth`?"],
        ),
        (
            "name = \"x\"\n[knobs]\nlink = \"lo\"\nforward = \"on\"\n",
            &["line 4", "forward", "veth"],
        ),
        (
            "name = \"x\"\n\n[knobs]\nfamily = \"ipv6\"\nmtu_bytes = 576\n",
            &["line 5", "576", "1280", "ipv6"],
        ),
        ("name = \"x\"\nlayer = \"netwrok\"\n", &["line 2", "netwrok", "did you mean `network`?"]),
        (
            "name = \"x\"\n[[claim]]\nkind = \"bottleneck\"\nsays = \"?\"\nlayer = \"lnk\"\n\
             classes = [\"udp tx\"]\n",
            &["line 5", "lnk", "did you mean `link`?"],
        ),
        (
            "name = \"x\"\n[[claim]]\nkind = \"bottleneck\"\nsays = \"?\"\n\
             classes = [\"tcp tx\"]\n",
            &["line 5", "no arm sends tcp"],
        ),
        ("name = \"x\"\n[knobs\n", &["line 2"]),
        ("", &["line 1", "name"]),
        // Errors that are only found when it is lowered.
        (
            "name = \"x\"\n\n[filter]\nport = 53\n",
            &["x.toml", "line 3", "[filter]", "not supported by instrument `exact`"],
        ),
        (
            "name = \"x\"\n[workload]\nkind = \"packets\"\nrate = 100\n",
            &["line 4", "rate", "not supported by instrument `exact`"],
        ),
        ("name = \"x\"\ninstruments = [\"exact\", \"exact\"]\n", &["line 2", "given twice"]),
        (
            "name = \"x\"\nlab = \"host\"\ninstruments = [\"stages\"]\n[workload]\n\
             kind = \"traffic\"\n[filter]\npid = 4194305\n",
            &["line 7", "no such process"],
        ),
        (
            "name = \"x\"\n[knobs]\nlink = \"lo\"\nmodule = \"/dev\"\n",
            &["line 4", "not a regular file"],
        ),
    ] {
        experiment(text).code(2).says(words);
    }
    experiment("name = \"x\"\nlab = \"netns\"\ninstruments = [\"exact\"]\n").code(3).says(&[
        "x.toml",
        "line 3",
        "unavailable in the netns lab",
    ]);
    let place = Place::new();
    place.run("run missing.toml").code(1).says(&["missing.toml", "No such file"]);
    place.write("binary.toml", [0xff, 0xfe, 0, 1]);
    place.run("run binary.toml").code(1).says(&["binary.toml", "UTF-8"]);
}

/// Check that what never ends, or never begins, is read with a bound wherever a file is read
/// whole; a pipe that someone writes to is as good as a file.
#[test]
fn files_without_an_end() {
    let place = Place::new();
    let mut fifo = Command::new("mkfifo");
    assert!(fifo.arg(place.path("pipe")).status().unwrap().success());
    // Sparse: it takes no room.
    let huge = fs::File::create(place.path("huge")).unwrap();
    huge.set_len(1 << 40).unwrap();
    place.write("module.toml", "name = \"x\"\n[knobs]\nmodule = \"./pipe\"\n");
    for (words, code, said) in [
        ("run /dev/zero", 2, &["/dev/zero", "a device"][..]),
        ("run huge", 2, &["huge", "1 MiB"]),
        ("run pipe", 1, &["pipe", "no data"]),
        ("path --layers /dev/zero", 2, &["/dev/zero", "a device"]),
        ("path --layers huge", 2, &["huge", "1 MiB"]),
        ("path --layers pipe", 1, &["pipe", "no data"]),
        ("run module.toml", 2, &["pipe", "a regular file"]),
        ("kernel add pipe", 2, &["pipe"]),
        ("kernel add /dev/zero", 2, &["/dev/zero"]),
        ("bench verify /dev/zero", 2, &["/dev/zero", "a device"]),
        ("bench verify pipe", 1, &["pipe", "no data"]),
        ("bench verify huge", 2, &["huge", "64 MiB"]),
        ("report /dev/zero", 1, &["/dev/zero", "not a Netplumb recording"]),
        ("report pipe", 1, &["pipe", "not a Netplumb recording"]),
        ("report huge", 1, &["huge", "not a Netplumb recording"]),
        ("diff pipe pipe", 1, &["pipe", "not a Netplumb recording"]),
    ] {
        let mut command = place.command("sh");
        // Far more than any needs, far less than what would fill the machine.
        command.args(["-c", "ulimit -v 4000000; exec \"$0\" \"$@\""]);
        command.arg(env!("CARGO_BIN_EXE_plumb"));
        command.args(words.split(' '));
        command.env("PLUMB_CACHE", place.path("cache"));
        Running::start(&mut command).finish().code(code).says(said);
    }
    let mut command = place.command("bash");
    command.args(["-c", "\"$0\" run <(printf 'nonsense')"]);
    command.arg(env!("CARGO_BIN_EXE_plumb"));
    Running::start(&mut command).finish().code(2).says(&["line 1"]);
    let mut command = place.command("bash");
    command.args(["-c", "\"$0\" run <(yes)"]);
    command.arg(env!("CARGO_BIN_EXE_plumb"));
    Running::start(&mut command).finish().code(2).says(&["1 MiB"]);
}

/// Check that a low limit on memory ends in an error, whatever the limit and the command.
#[test]
fn a_limit_on_memory() {
    let place = Place::new();
    drop(netplumb_store::Writer::create(&place.path("x.plumb")).unwrap());
    let mut size = fs::metadata(env!("CARGO_BIN_EXE_plumb")).unwrap().len() / 1024;
    // Below what the program itself takes the kernel can't start it.
    size += size / 2 + 4_000;
    for kib in [size, size + 5_000, 60_000, 100_000, 200_000, 400_000, 600_000] {
        for words in ["report x.plumb", "doctor", "path --link lo", "kernel list"] {
            let mut command = place.command("sh");
            command.args(["-c", "ulimit -c 0; ulimit -v $1; shift; exec \"$0\" \"$@\""]);
            command.arg(env!("CARGO_BIN_EXE_plumb"));
            command.arg(kib.to_string()).args(words.split(' '));
            let ran = Running::start(&mut command).finish();
            let code = ran.status.code();
            assert!(code.is_some_and(|code| code < 5), "{kib} KiB, {words}: {ran:?}");
            // Who asks what there is gets a table.
            let has_message = ran.stderr.contains("plumb: ") || words == "doctor";
            assert!(code == Some(0) || has_message, "{kib} KiB, {words}: {ran:?}");
        }
    }
}

/// Check that rules are read from below the experiment's directory alone, wherever links lead,
/// and that no message has a line of another file.
#[test]
fn rules_from_elsewhere() {
    use std::os::unix::fs::symlink;
    let place = Place::new();
    let other = Place::new();
    other.write("secret", "root:secret:1:\n");
    let secret = other.path("secret").display().to_string();
    fs::create_dir_all(place.path("experiment/within")).unwrap();
    place.write("outside.nft", "root:secret:1:\n");
    symlink(&secret, place.path("experiment/link.nft")).unwrap();
    symlink("../..", place.path("experiment/within/up")).unwrap();
    for name in [
        secret.as_str(),
        "/etc/shadow",
        "../outside.nft",
        "within/../../outside.nft",
        "link.nft",
        "within/up/outside.nft",
    ] {
        place.write(
            "experiment/x.toml",
            format!("name = \"x\"\n[knobs]\nnft = {{ file = \"{name}\" }}\n"),
        );
        let ran = place.run("run experiment/x.toml");
        ran.code(2).says(&[name, "below the experiment's directory"]);
        assert!(!ran.stderr.contains("secret:1"), "{ran:?}");
    }
}

/// Check that root's messages show nothing of a file that others may not read, and everything
/// useful of one that they may.
#[test]
fn nothing_of_private_files_is_shown() {
    use std::os::unix::fs::PermissionsExt;
    if !has_root() {
        return;
    }
    let place = Place::new();
    place.write("secret", "root:secret:1:\n");
    for (mode, shown) in [(0o640, false), (0o644, true)] {
        fs::set_permissions(place.path("secret"), fs::Permissions::from_mode(mode)).unwrap();
        for words in ["run secret", "path -q --layers secret"] {
            let ran = place.run(words);
            ran.code(2).says(&["secret"]);
            assert_eq!(ran.stderr.contains("secret:1"), shown, "{mode:o} {ran:?}");
        }
    }
}

/// Check that a file that runs or sets anything on this machine is reported and does nothing, unless that was agreed
/// to; and that sysctls that start programs are refused by name, agreed to or not.
#[test]
fn experiments_ask_for_this_machine() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    fs::create_dir(place.path("folder")).unwrap();
    place.write("secret", "");
    fs::set_permissions(place.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    let secret = place.path("secret").display().to_string();
    let touch = format!("[\"touch\", \"{}\"]", place.path("ran").display());
    let host =
        "name = \"x\"\nlab = \"host\"\ninstruments = [\"events\"]\n[workload]\nkind = \"work\"\n";
    let guest = "name = \"x\"\n[knobs]\nkernel = \"none\"\n[workload]\nkind = \"command\"\ncommand = [\"true\"]\n";
    let run = |text: &str, words: &str| {
        place.write("folder/x.toml", text);
        place.run(&format!("run -q {words}"))
    };
    let build = format!("{guest}[build]\ncommands = [{touch}]\n");
    let arms = "[[arm]]\nname = \"a\"\nknobs.command = \"true\"\n[[arm]]\nname = \"b\"\n";
    for (text, says) in [
        (build.clone(), &["run `touch "][..]),
        (format!("{host}command = {touch}\n"), &["run `touch "]),
        (
            format!("{host}command = {touch}\n[knobs.sysctl]\n\"vm.swappiness\" = \"10\"\n{arms}"),
            &["run `touch ", "run `true`", "set sysctl vm.swappiness to 10"],
        ),
        (
            format!(
                "name = \"x\"\nlab = \"netns\"\n[workload]\nkind = \"command\"\ncommand = {touch}\n"
            ),
            &["run `touch "],
        ),
        (
            format!("{guest}with = [\"{secret}\"]\n"),
            &["copy ", "/secret, which other users may not read"],
        ),
        (
            format!("{guest}with = [\"{secret}:/x\"]\n"),
            &["/secret, which other users may not read"],
        ),
    ] {
        let asked = run(&text, "folder/x.toml");
        asked.code(2).says(says);
        asked.says(&["Nothing was run", "add --yes-change"]);
        assert!(!place.path("ran").exists(), "{text}");
    }
    for words in ["--yes-change folder/x.toml", "folder/x.toml --yes-change"] {
        run(&build, words);
        assert!(place.path("ran").exists(), "{words}");
        fs::remove_file(place.path("ran")).unwrap();
    }
    place.run("run --yes-change").code(2).says(&["experiment file"]);
    fs::set_permissions(place.path("secret"), fs::Permissions::from_mode(0o644)).unwrap();
    let ran = run(&format!("{guest}with = [\"{secret}\"]\n"), "folder/x.toml");
    ran.says(&["no such kernel"]);
    for text in [
        format!("{host}command = {touch}\n[knobs.sysctl]\n\"kernel.core_pattern\" = \"|/x\"\n"),
        "name = \"x\"\nlab = \"netns\"\n[knobs.sysctl]\n\"kernel.core_pattern\" = \"|/x\"\n".into(),
    ] {
        let refused = run(&text, "folder/x.toml --yes-change");
        refused.code(2).says(&["`kernel.core_pattern`", "line "]);
        assert!(!place.path("ran").exists(), "{text}");
    }
    let typed = place.run("path --lab netns --sysctl kernel.core_pattern=x --packets 1");
    typed.code(2).says(&["`kernel.core_pattern`"]);
    place.write("folder/x.toml", "name = \"x\"\n[knobs]\nnft = \"include '/etc/shadow'\"\n");
    place.run("run folder/x.toml").code(2).says(&["can't include other files"]);
}

// Words on the command line.

/// Check that what makes no sense is refused before anything runs.
#[test]
fn words_that_make_no_sense() {
    let place = Place::new();
    for (line, words) in [
        ("path stray", &["stray"][..]),
        ("path --link lo --forward", &["lo", "veth"]),
        ("path --link vet", &["vet", "veth"]),
        ("path --proto sctp", &["sctp", "raw, udp, tcp"]),
        ("path --layer netwrok", &["netwrok", "network"]),
        ("path --mtu 20", &["20", "68"]),
        ("path --size 70K", &["71680", "65507"]),
        ("path --size 64K", &["65536", "65507", "63K"]),
        ("path --offload gro=on --offload gro=on", &["duplicate arm `gro=on`"]),
        ("path --lab vm --offload gro=on --offload gro=off -- true", &["--offload"]),
        (
            "path --lab netns --sysctl net.core.x=1 --sysctl net.core.x=2 -- true",
            &["--sysctl", "only one value"],
        ),
        ("path --size 10ms", &["invalid size `10ms`"]),
        ("path --packets 0", &["--packets"]),
        ("path --json --csv", &["--json", "--csv"]),
        ("path --sysctl net", &["KEY=VALUE"]),
        ("report", &["FILE"]),
        ("kernel add nonsense", &["nonsense", "debian"]),
    ] {
        place.run(line).code(2).says(words);
    }
    place.run("path --layers missing.toml").code(1).says(&["missing.toml", "No such file"]);
    assert_eq!(place.files(), [""; 0]);
    assert_eq!(place.processes(), [""; 0]);
}
