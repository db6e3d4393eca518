//! `plumb serve`: figures that are known, scraped while they are measured; addresses, rights, ends.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{Place, Running, skip};
use netplumb_testkit::has_root;

/// How many writes `dd` makes; each is counted.
const WRITES: u64 = 20_000;

fn write() {
    let done = Command::new("dd")
        .args(["if=/dev/zero", "of=/dev/null", "bs=1"])
        .arg(format!("count={WRITES}"))
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(done.success());
}

/// A server, at any free port; and its address.
fn serving(place: &Place, words: &str) -> (Running, String) {
    let line = format!("serve --listen 127.0.0.1:0 --interval 200ms {words}");
    let mut server = Running::start(&mut place.plumb(&line));
    server.wait_for("serving http://");
    let (_, rest) = server.said().split_once("serving http://").unwrap();
    let address = rest.split('/').next().unwrap().to_string();
    (server, address)
}

/// The response for a path, with its headers.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let timeout = Some(Duration::from_secs(20));
    stream.set_read_timeout(timeout).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn metrics(address: &str) -> String {
    let text = get(address, "/metrics");
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(head.contains("application/openmetrics-text"), "{head}");
    body.to_string()
}

/// The sum of a family's samples with this label.
fn sum(text: &str, name: &str, label: &str) -> Option<f64> {
    let of = |line: &&str| line.starts_with(&format!("{name}{{")) && line.contains(label);
    let values: Vec<f64> = (text.lines().filter(of))
        .map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
        .collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

/// Scrape until it is as wanted.
fn until(address: &str, wanted: impl Fn(&str) -> bool) -> String {
    let begun = Instant::now();
    loop {
        let text = metrics(address);
        if wanted(&text) {
            return text;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{text}");
        sleep(Duration::from_millis(50));
    }
}

/// Check that counts and samples are served together while they are measured, that what a program is
/// known to do is among them, that nothing falls, that another program reads the text, and that Ctrl-C
/// ends it well.
#[test]
fn scraped() {
    if !has_root() {
        return;
    }
    let place = Place::new();
    let (server, address) = serving(
        &place,
        "stat syscalls:sys_enter_write,task-clock,page-fualts profile --frequency 997",
    );
    let writes = |text: &str| sum(text, "plumb_events_total", "event=\"syscalls:sys_enter_write\"");
    let before = until(&address, |text| {
        writes(text).is_some() && sum(text, "plumb_cpu_time_seconds_total", "").is_some()
    });
    write();
    // More is written by others, but it is here within a window.
    let after = until(&address, |text| writes(text) >= writes(&before).map(|n| n + WRITES as f64));
    for name in [
        "plumb_windows_total",
        "plumb_window_seconds_total",
        "plumb_own_cpu_seconds_total",
        "plumb_event_time_seconds_total",
        "plumb_function_cpu_time_seconds_total",
        "plumb_cpu_time_seconds_total",
        "plumb_http_requests_total",
    ] {
        let (was, is) = (sum(&before, name, ""), sum(&after, name, ""));
        assert!(is.is_some() && was <= is, "{name}: {was:?}, {is:?}");
    }
    let both = sum(&after, "plumb_recording_info", "");
    assert_eq!(both, Some(2.0));
    assert!(after.contains("plumb_event_unavailable_info{event=\"page-fualts\""), "{after}");
    assert!(after.contains("process_resident_memory_bytes "), "{after}");
    netplumb_testkit::parse_openmetrics(&after);
    assert!(get(&address, "/").contains("<a href=\"/metrics\">"));
    assert!(get(&address, "/favicon.ico").starts_with("HTTP/1.1 404"));
    server.signal(libc::SIGINT);
    server.finish().code(0);
    assert_eq!(place.files(), [""; 0]);
    assert_eq!(place.temporary_files(), [""; 0]);
    place.nothing_runs();
}

/// Check that times between two events are served as histograms whose sums and buckets only rise, and that they contain
/// the known number of calls of a program.
#[test]
fn times() {
    if !has_root() {
        return;
    }
    let place = Place::new();
    let (server, address) =
        serving(&place, "between syscalls:sys_enter_write syscalls:sys_exit_write");
    let count = |text: &str| sum(text, "plumb_span_duration_seconds_count", "").unwrap_or(0.0);
    // It serves before it measures.
    let before =
        until(&address, |text| sum(text, "plumb_windows_total", "").is_some_and(|n| n >= 1.0));
    write();
    let after = until(&address, |text| count(text) >= count(&before) + WRITES as f64);
    let le = |text: &str, le: &str| {
        sum(text, "plumb_span_duration_seconds_bucket", &format!("le=\"{le}\"")).unwrap()
    };
    // The bounds are the same for all: octaves, and none.
    assert_eq!(le(&after, "+Inf"), count(&after));
    assert!(le(&after, "0.000000015") <= le(&after, "0.000001023"), "{after}");
    assert!(le(&after, "0.000001023") <= le(&after, "+Inf"), "{after}");
    let seconds = sum(&after, "plumb_span_duration_seconds_sum", "").unwrap();
    assert!(seconds > 0.0, "{after}");
    netplumb_testkit::parse_openmetrics(&after);
    server.signal(libc::SIGINT);
    server.finish().code(0);
    place.nothing_runs();
}

/// Check that memory does not grow with the number of windows.
#[test]
fn bounded_memory() {
    if !has_root() {
        return;
    }
    let place = Place::new();
    let line = "serve --listen 127.0.0.1:0 --interval 100ms stat --by cpu profile --frequency 4000";
    let mut server = Running::start(&mut place.plumb(line));
    server.wait_for("serving http://");
    let (_, rest) = server.said().split_once("serving http://").unwrap();
    let address = rest.split('/').next().unwrap().to_string();
    let windows = |text: &str| sum(text, "plumb_windows_total", "instrument=\"samples\"");
    let memory = |text: &str| -> f64 {
        let mut lines = text.lines();
        let line = lines.find(|line| line.starts_with("process_resident_memory_bytes "));
        line.unwrap().split_once(' ').unwrap().1.parse().unwrap()
    };
    let begun = memory(&until(&address, |text| windows(text) >= Some(30.0)));
    let later = memory(&until(&address, |text| windows(text) >= Some(90.0)));
    // Names of programs that start meanwhile are read.
    assert!(later < begun + 48e6, "{begun} {later}");
    server.signal(libc::SIGTERM);
    server.finish().code(0);
}

/// Check that it ends with the measured process, and that a kill leaves nothing behind.
#[test]
fn ends() {
    if !has_root() {
        return;
    }
    let place = Place::new();
    let mut sleeping = Command::new("sleep").arg("60").spawn().unwrap();
    let words = format!("stat page-faults --pid {}", sleeping.id());
    let (server, address) = serving(&place, &words);
    assert!(metrics(&address).ends_with("# EOF\n"));
    sleeping.kill().unwrap();
    sleeping.wait().unwrap();
    server.finish().code(0).says(&["has ended"]);
    let (server, _) = serving(&place, "profile");
    server.signal(libc::SIGKILL);
    assert!(!server.finish().status.success());
    place.nothing_runs();
    assert_eq!(place.temporary_files(), [""; 0]);
}

/// Check what can't be served: a port that is in use, an address that others can reach, an invalid
/// one, an event that does not exist, and no rights to sample.
#[test]
fn refused() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let ran = place.run(&format!("serve --listen {address} stat page-faults"));
    ran.code(1).says(&["the port is in use", "--listen"]);
    assert_eq!(ran.stderr.lines().count(), 1, "{ran:#?}");
    let ran = place.run("serve --listen 0.0.0.0:0 stat page-faults");
    ran.code(2).says(&["--allow-remote-clients"]);
    place.run("serve --listen 9709 stat page-faults").code(2).says(&["127.0.0.1:9709"]);
    place.run("serve").code(2);
    if !has_root() {
        return;
    }
    place
        .run("serve --listen 127.0.0.1:0 stat page-fualts")
        .code(2)
        .says(&["did you mean `page-faults`?"]);
    if !Path::new("/usr/bin/setpriv").exists() {
        return skip("setpriv is not installed");
    }
    let mut command = place.command("/usr/bin/setpriv");
    command
        .args(["--bounding-set=-all", "--inh-caps=-all"])
        .arg(env!("CARGO_BIN_EXE_plumb"))
        .args(["serve", "--listen", "127.0.0.1:0", "profile"]);
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(3), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}
