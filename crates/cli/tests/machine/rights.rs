//! Commands of an ordinary user with exactly the capabilities that docs/reference/rights.md names.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use crate::common::{Place, Ran, Running, skip};
use netplumb_testkit::has_root;

const PAGE: &str = include_str!("../../../../docs/reference/rights.md");
const NOBODY: u32 = 65534;
/// What the kernel takes for others: leaving out one of these is not noticed.
const IMPLIES: (&str, [&str; 2]) = ("CAP_SYS_ADMIN", ["CAP_BPF", "CAP_PERFMON"]);
/// Sends packets to nobody, is woken up, and works long enough for a timer to sample it.
const SENDS: &str = "#!/bin/bash
for packet in {1..9}; do sleep 0.05; echo x >/dev/udp/127.0.0.1/9; done
for round in {1..200000}; do :; done
";

/// Commands of the page's table, with the capabilities of each.
fn rows() -> Vec<(&'static str, Vec<&'static str>)> {
    let of = |line: &'static str| {
        let (command, needs) =
            line.strip_prefix("| `plumb ")?.strip_suffix(" |")?.split_once("` | ")?;
        needs.starts_with("CAP_").then(|| (command, needs.split(", ").collect()))
    };
    PAGE.lines().filter_map(of).collect()
}

/// Run a command as nobody with these capabilities alone.
fn run(place: &Place, command: &str, capabilities: &[&str]) -> Ran {
    let of =
        |capability: &&str| format!(",+{}", capability.trim_start_matches("CAP_").to_lowercase());
    let set = format!("-all{}", capabilities.iter().map(of).collect::<String>());
    let mut plumb = place.command("setpriv");
    plumb.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]);
    for kind in ["bounding-set", "inh-caps", "ambient-caps"] {
        plumb.arg(format!("--{kind}={set}"));
    }
    plumb
        .env("TMPDIR", place.path(""))
        .env("HOME", place.path(""))
        .env("XDG_RUNTIME_DIR", place.path(""));
    plumb.arg(place.path("plumb")).args(command.replace("COMMAND", "./sends").split_whitespace());
    Running::start(&mut plumb).finish()
}

/// Check that each command measures with its capabilities, and that it names each one that is left out.
#[test]
fn as_root_exactly_these() {
    if !has_root() {
        return;
    }
    if Command::new("setpriv").arg("--version").output().is_err() {
        return skip("no setpriv");
    }
    let place = Place::new();
    // Another user's tests have a directory that nobody may not enter.
    let agent = "plumb-agent";
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_plumb"));
    for name in ["plumb", agent] {
        fs::copy(program.with_file_name(name), place.path(name)).unwrap();
    }
    place.write("sends", SENDS);
    fs::set_permissions(place.path("sends"), fs::Permissions::from_mode(0o755)).unwrap();
    chown(place.path(""), Some(NOBODY), Some(NOBODY)).unwrap();
    let rows = rows();
    assert!(rows.len() > 5, "{rows:?}");
    for (command, needs) in rows {
        let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
        let quick = match verb {
            "bench" if rest.starts_with("drop") => "--path xdp --blocks 1 -o x.plumb",
            "bench" => "--blocks 1 --bytes 1M -o x.plumb",
            "path" if !rest.contains("COMMAND") => "--blocks 2 -o x.plumb",
            "stat" => "",
            _ => "-o x.plumb",
        };
        let whole = match rest.split_once("-- ") {
            Some((options, after)) => format!("{verb} {options}{quick} -- {after}"),
            None => format!("{verb} {rest} {quick}"),
        };
        let ran = run(&place, &whole, &needs);
        ran.code(0);
        assert_eq!(
            place.files().contains(&"x.plumb".to_string()),
            !quick.is_empty(),
            "{whole}: {ran:?}"
        );
        fs::remove_file(place.path("x.plumb")).ok();
        let is_implied = |one: &&str| needs.contains(&IMPLIES.0) && IMPLIES.1.contains(one);
        for left_out in needs.iter().filter(|one| !is_implied(one)) {
            // The kernel decides by its settings.
            if verb == "stat" {
                continue;
            }
            let others: Vec<&str> = needs.iter().filter(|one| *one != left_out).copied().collect();
            run(&place, &whole, &others).code(3).says(&[left_out]);
        }
    }
}

/// Check the error for root in a user namespace, whose capabilities are not enough.
#[test]
fn as_root_in_a_user_namespace() {
    let place = Place::new();
    let mut command = place.command("unshare");
    command.args([
        "--user",
        "--map-root-user",
        env!("CARGO_BIN_EXE_plumb"),
        "path",
        "--lab",
        "netns",
    ]);
    command.args(["--clock", "stages", "-o", "x.plumb"]);
    if !Command::new("unshare")
        .args(["--user", "true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        return skip("user namespaces are not allowed");
    }
    let ran = Running::start(&mut command).finish();
    ran.code(3).says(&["outside of user namespaces", "lab vm"]);
}
