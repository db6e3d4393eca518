//! The page that `--html` and `--open` make: where it is written, who may read it, and what is
//! reported when it can't be written.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::{Place, Running};
use netplumb_model::class::{Context, Direction, Family, Link, Proto};
use netplumb_model::recording::{Arm, Block, Cost, Function, Ledger, Node, Recording, env};
use netplumb_store::Writer;

/// A name that would run in a browser.
const EVIL: &str = "<img src=x onerror=alert(1)>";
/// Opening gives up after two seconds, and machines are slow.
const SOON: Duration = Duration::from_secs(30);

/// A recording that no guest made: one arm, one function.
fn recording() -> Recording {
    Recording {
        environment: BTreeMap::from([
            (env::UNIT.into(), "instructions".into()),
            (env::NAME.into(), EVIL.into()),
        ]),
        quantities: vec![(&netplumb_model::timing::INSTRUCTIONS).into()],
        arms: vec![Arm {
            name: "udp".into(),
            proto: Proto::Udp,
            family: Family::V4,
            link: Link::Veth,
            forward: false,
            size_bytes: 10,
            knobs: BTreeMap::new(),
            made: None,
        }],
        blocks: vec![Block {
            arm: 0,
            instrument: "exact".into(),
            index: 0,
            ledger: Ledger { offered: 100, delivered: 100, dropped: BTreeMap::new() },
            totals: vec![netplumb_model::recording::Total { quantity: 0, kernel: 23_900, user: 0 }],
            entered: 100,
            returned: 100,
            duration_ns: 0,
        }],
        functions: vec![Function {
            name: "udp_sendmsg".into(),
            module: None,
            layer: Some("transport".into()),
            address: 0xffff_ffff_8100_0000,
            size_bytes: 0x100,
            source: None,
        }],
        nodes: vec![Node { parent: None, function: 0, tail: false }],
        costs: vec![Cost {
            quantity: 0,
            block: 0,
            direction: Direction::Tx,
            context: Context::Task,
            node: 0,
            calls: 100,
            own: 23_900,
        }],
        complete: true,
        ..Recording::default()
    }
}

/// A directory with that recording in it, as `x.plumb`.
fn place() -> Place {
    let place = Place::new();
    let mut writer = Writer::create(&place.path("x.plumb")).unwrap();
    writer.save(&recording()).unwrap();
    place
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// The page that the output names.
fn page_path(stderr: &str) -> PathBuf {
    let line = stderr.lines().find_map(|l| l.strip_prefix("wrote "));
    PathBuf::from(line.unwrap())
}

/// Check that one file is made, whose path is printed, and nothing else.
#[test]
fn one_file() {
    let place = place();
    let ran = place.run("report x.plumb --html out.html");
    ran.code(0).says(&["wrote out.html"]);
    assert_eq!(ran.stdout, "");
    assert_eq!(place.files(), ["out.html", "x.plumb"]);
    let page = fs::read_to_string(place.path("out.html")).unwrap();
    assert!(page.starts_with("<!doctype html>"));
    assert!(page.contains("<title>&lt;img src=x onerror=alert(1)&gt;</title>"));
    assert!(!page.contains(EVIL));
    // Again: it takes the place of the first, also through a link.
    std::os::unix::fs::symlink("out.html", place.path("link.html")).unwrap();
    place.run("report x.plumb --html link.html").code(0);
    assert!(place.path("link.html").is_symlink());
    assert_eq!(fs::read_to_string(place.path("out.html")).unwrap(), page);
    assert_eq!(place.files(), ["link.html", "out.html", "x.plumb"]);
    // Into a pipe.
    let ran = place.run("report x.plumb --html /dev/stdout");
    ran.code(0);
    assert_eq!(ran.stdout, page);
}

/// Check that write errors are reported with their reason, and damage nothing.
#[test]
fn nowhere_to_go() {
    let place = place();
    let before = fs::read(place.path("x.plumb")).unwrap();
    place
        .run("report x.plumb --html missing/out.html")
        .code(1)
        .says(&["missing/out.html", "No such file or directory"]);
    place.run("report x.plumb --html .").code(2).says(&["is a directory"]);
    place.run("report x.plumb --html x.plumb").code(2).says(&["x.plumb is a recording"]);
    place
        .run("report x.plumb --direction rx --html out.html")
        .code(2)
        .says(&["no class of direction rx"]);
    assert_eq!(fs::read(place.path("x.plumb")).unwrap(), before);
    assert_eq!(place.files(), ["x.plumb"]);
}

/// Check that a page that could not be written is reported before anything is measured: there is no
/// kernel to measure with here.
#[test]
fn refused_before_measuring() {
    let place = Place::new();
    place.write("x.toml", "name = \"x\"\n[vary]\nproto = [\"udp\"]\n");
    for command in ["path", "run x.toml"] {
        let mut command = place.plumb(&format!("{command} --html missing/out.html"));
        command.env("PLUMB_CACHE", place.path("no-kernels"));
        Running::start(&mut command).finish().code(1).says(&["missing/out.html"]);
        let mut command = place.plumb("path --open");
        command.env("PATH", "").env_remove("BROWSER");
        Running::start(&mut command).finish().code(2).says(&["no browser", "$BROWSER", "--html"]);
    }
    assert_eq!(place.files(), ["x.toml"]);
}

/// Check that the browser gets a file that nobody else can read, as one argument
/// and by no shell.
#[test]
fn opened_in_a_browser() {
    let place = place();
    let browser = place.path("browser");
    fs::write(&browser, "#!/bin/sh\nprintf '%s\\n' \"$@\" >\"$0.got\"\n").unwrap();
    fs::set_permissions(&browser, fs::Permissions::from_mode(0o755)).unwrap();
    let runtime = place.path("run time");
    fs::create_dir(&runtime).unwrap();
    let named = format!("/no/such/one:{} --new-tab %s ;touch", browser.display());
    let mut command = place.plumb("report x.plumb --open");
    command.env("BROWSER", named).env("XDG_RUNTIME_DIR", &runtime);
    let ran = Running::start(&mut command).finish();
    ran.code(0);
    let page = page_path(&ran.stderr);
    assert_eq!(page.parent(), Some(runtime.as_path()));
    assert_eq!(mode(&page), 0o600);
    let got = fs::read_to_string(place.path("browser.got")).unwrap();
    let got: Vec<&str> = got.lines().collect();
    assert_eq!(got, ["--new-tab", page.to_str().unwrap(), ";touch"]);
}

/// Check that without a browser, or with one that fails, the page is written and the output has
/// what to do with it.
#[test]
fn no_browser() {
    let place = place();
    for browser in ["", "/bin/false"] {
        let started = Instant::now();
        let mut command = place.plumb("report x.plumb --open --html out.html");
        command.env("BROWSER", browser).env("PATH", "");
        Running::start(&mut command).finish().code(1).says(&["wrote out.html", "$BROWSER", "copy"]);
        assert!(started.elapsed() < SOON);
        assert!(place.path("out.html").exists());
    }
}
