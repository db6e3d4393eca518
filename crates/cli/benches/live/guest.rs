//! Instructions that timing a function adds to each of its calls, by several tools.
//!
//! This program is the guest's init, too. Under icount a nanosecond of the guest is an instruction,
//! so its clock readings are the same in every run.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use cpio::newc::Builder;
use netplumb_instruments::registry::attach;
use netplumb_lab::bundle::{Bundle, Host, Kind};
use netplumb_lab::vm::kernels::KernelEntry;
use netplumb_lab::vm::machine;
use netplumb_model::arch::Arch;
use netplumb_model::timing::{Filter, Selection, TimingSpec};
use netplumb_model::trace::CallsSpec;

use super::{Result, line};

/// Of UDP over loopback, both ways.
const FUNCTIONS: [&str; 17] = [
    "__x64_sys_sendto",
    "udp_sendmsg",
    "__alloc_skb",
    "ip_output",
    "ip_finish_output2",
    "__dev_queue_xmit",
    "dev_hard_start_xmit",
    "loopback_xmit",
    "eth_type_trans",
    "net_rx_action",
    "process_backlog",
    "ip_rcv",
    "udp_rcv",
    "__udp4_lib_rcv",
    "sock_def_readable",
    "udp_recvmsg",
    "__skb_recv_udp",
];
/// Attached for the time that attaching takes.
const MANY: u32 = 100;
const PACKETS: u32 = 200;
/// Every call below it is traced, down to a depth of:
const BELOW: &str = "__x64_sys_sendto";
const DEPTH: u32 = 100;
/// Sent before, so that first-use work is done.
const WARM_UP: u32 = 100;
/// A guest without output for this long is stuck.
const LIMIT: Duration = Duration::from_secs(240);
/// Begins the lines that are meant for the host.
const SAYS: &str = "bench-says ";
const END: &str = "end";
/// Prefix of the names of figures that are compared with `plumb trace`.
const EACH_CALL: &str = "each call, ";
/// At most half of the best of the others, as the product claims.
const BOUND: f64 = 0.5;
const TRACING: &str = "/sys/kernel/tracing";

// ---- On the host -------------------------------------------------------------

/// Boot the guest, and print its figures.
pub(crate) fn run(qemu: &Path, kernel: &KernelEntry) -> Result<()> {
    println!(
        "\ninstructions added to a traced call: {PACKETS} UDP datagrams of 10 bytes over loopback, \
         {} functions,\nin a guest of {} whose nanoseconds are instructions",
        FUNCTIONS.len(),
        kernel.release
    );
    let folder = tempfile::TempDir::new()?;
    let initramfs = folder.path().join("initramfs");
    std::fs::write(&initramfs, archive()?)?;
    let mut guest = Command::new(qemu)
        .args("-machine pc -accel tcg,thread=single -smp 1 -m 1536".split(' '))
        .args(["-cpu", &machine::cpu_option(Arch::OWN)])
        .args("-icount shift=0,sleep=off -rtc clock=vm,base=2026-01-01 -seed 1".split(' '))
        .args("-nodefaults -display none -no-reboot -serial stdio".split(' '))
        .arg("-kernel")
        .arg(kernel.boot_image())
        .arg("-initrd")
        .arg(&initramfs)
        .arg("-append")
        .arg("console=ttyS0 quiet nokaslr mitigations=off panic=-1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let figures = listen(&mut guest);
    // Over when it is powered off; else it is stuck, and its time is up.
    let _ = guest.kill();
    guest.wait()?;
    let figures = figures?;
    let figure = |name: &str| figures.iter().find(|t| t.0 == name).map(|t| t.1);
    let ours = figure("plumb, functions").ok_or("the guest reported nothing of plumb")?;
    let traced = figure("plumb, trace").unwrap_or(f64::NAN);
    let mut best = f64::INFINITY;
    for (name, figure) in &figures {
        if name.starts_with('(') {
            continue;
        }
        let of_each_call = name.starts_with(EACH_CALL);
        let ratio = figure / if of_each_call { traced } else { ours };
        let note = if name.starts_with("plumb") {
            String::new()
        } else if of_each_call {
            format!("{ratio:.2} times plumb's trace")
        } else {
            best = best.min(*figure);
            format!("{ratio:.2} times plumb")
        };
        line(name, &format!("{figure:.0}"), &note);
    }
    let within = if ours <= BOUND * best { "within" } else { "over" };
    println!("  plumb is at {:.2} of the best of the others: {within} {BOUND}", ours / best);
    for (name, figure) in figures.iter().filter(|t| t.0.starts_with('(')) {
        line(name.trim_matches(['(', ')']), &format!("{figure:.2}"), "");
    }
    Ok(())
}

/// The guest's figures, until its last line; and how long attaching took outside.
fn listen(guest: &mut Child) -> Result<Vec<(String, f64)>> {
    let out = guest.stdout.take().ok_or("no console")?;
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(out).split(b'\n').map_while(std::io::Result::ok) {
            let line = String::from_utf8_lossy(&line).trim().to_string();
            if sender.send((Instant::now(), line)).is_err() {
                return;
            }
        }
    });
    let mut figures = Vec::new();
    let mut all = String::new();
    let mut begun = None;
    loop {
        let Ok((when, line)) = lines.recv_timeout(LIMIT) else {
            return Err(format!("the guest stopped short. Its console:\n{all}").into());
        };
        let Some((_, said)) = line.split_once(SAYS) else {
            all += &line;
            all.push('\n');
            continue;
        };
        match said.split_once(" = ") {
            Some((name, figure)) => figures.push((name.to_string(), figure.parse()?)),
            None if said == "attach" => begun = Some(when),
            None if said == "attached" => {
                let took = begun.map_or(f64::NAN, |b| when.duration_since(b).as_secs_f64());
                figures.push((format!("(attach {MANY} functions, s under TCG)"), took));
            }
            None if said == END => return Ok(figures),
            None => println!("  {said}"),
        }
    }
}

/// This program as init, and the other tools that are installed, with their libraries.
fn archive() -> Result<Vec<u8>> {
    let mut bundle = Bundle::new(Host::here()?);
    for tool in ["bpftrace", "trace-cmd"] {
        if bundle.add_program(tool).is_err() {
            println!("  {tool} is not installed: left out");
        }
    }
    let mut archive = Vec::new();
    let mut inode = 0;
    let mut add = |name: &str, mode: u32, bytes: &[u8]| -> std::io::Result<()> {
        inode += 1;
        let builder = Builder::new(name).ino(inode).mode(mode).nlink(1);
        let mut writer = builder.write(&mut archive, bytes.len() as u32);
        writer.write_all(bytes)?;
        writer.finish().map(drop)
    };
    let mut has_tmp = false;
    for (path, entry) in bundle.entries() {
        let name = path.to_string_lossy();
        let name = name.trim_start_matches('/');
        if name.is_empty() || name == "init" {
            continue;
        }
        has_tmp |= name == "tmp";
        match &entry.kind {
            Kind::Folder => add(name, 0o040_000 | entry.mode, &[])?,
            Kind::Link(to) => add(name, 0o120_777, to.to_string_lossy().as_bytes())?,
            Kind::File { .. } => add(name, 0o100_000 | entry.mode, &entry.read()?)?,
        }
    }
    for folder in ["dev", "proc", "sys"] {
        add(folder, 0o040_755, &[])?;
    }
    if !has_tmp {
        add("tmp", 0o041_777, &[])?;
    }
    let own = std::env::current_exe()?;
    let mode = 0o100_000 | (std::fs::metadata(&own)?.permissions().mode() & 0o777);
    add("init", mode, &std::fs::read(own)?)?;
    cpio::newc::trailer(&mut archive)?;
    Ok(archive)
}

// ---- In the guest ------------------------------------------------------------

/// All of the guest's life.
pub(crate) fn init() -> ! {
    if let Err(error) = measure() {
        println!("the guest's init: {error}");
    }
    // SAFETY: neither takes memory of ours; the second ends the guest.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
    }
    std::process::exit(1)
}

fn say(what: &str) {
    println!("{SAYS}{what}");
}

fn measure() -> Result<()> {
    for (kind, at) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("debugfs", "/sys/kernel/debug"),
        ("tracefs", TRACING),
        ("bpf", "/sys/fs/bpf"),
    ] {
        mount(kind, at)?;
    }
    loopback_up()?;
    let traffic = Traffic::new()?;
    traffic.send(10 * WARM_UP)?;
    let base = traffic.per_packet()?;

    let mut live = attach(&spec(Some(&FUNCTIONS)), &|_, _| Some("network".into()))?;
    let timed: Vec<String> = (live.attached().functions.iter()).map(|f| f.name.clone()).collect();
    if timed.len() != FUNCTIONS.len() {
        say(&format!("timed are only {}: {:?}", timed.join(" "), live.attached().refused));
    }
    traffic.send(WARM_UP)?;
    live.open()?;
    let ours = traffic.timed()?;
    let window = live.close()?;
    drop(live);
    let calls: u64 = window.functions.iter().map(|f| f.times.count).sum();
    let calls = calls as f64 / f64::from(PACKETS);
    let tell = |name: &str, per_packet: f64| {
        say(&format!("{name} = {}", (per_packet - base) / calls));
    };
    say(&format!("{base:.0} instructions a datagram without, {calls:.1} traced calls in it"));
    tell("plumb, functions", ours);

    // Each in turn; then the cost that remains afterwards.
    function_graph(&traffic, &timed, &tell)?;
    kprobe_events(&traffic, &timed, &tell)?;
    for (name, entry, exit) in [
        ("bpftrace, kfunc and kretfunc", "kfunc:", "kretfunc:"),
        ("bpftrace, kprobe and kretprobe", "kprobe:", "kretprobe:"),
    ] {
        match bpftrace(&traffic, &timed, entry, exit) {
            Ok(ns) => tell(name, ns),
            Err(error) => say(&format!("{name}: not measured, {error}")),
        }
    }
    let filter: Vec<&str> = timed.iter().flat_map(|f| ["-l", f.as_str()]).collect();
    match trace_cmd(&traffic, &filter) {
        Ok(ns) => tell("trace-cmd record, function_graph", ns),
        Err(error) => say(&format!("trace-cmd: not measured, {error}")),
    }
    let after = traffic.per_packet()?;
    say(&format!("{after:.0} instructions a datagram afterwards, with nothing left attached"));

    each_call(&traffic)?;

    say("attach");
    let live = attach(&spec(None), &|_, _| Some("network".into()))?;
    say("attached");
    let attached = live.attached();
    say(&format!(
        "(attach {} functions, s of its clock) = {}",
        attached.functions.len(),
        attached.attach_ns as f64 / 1e9
    ));
    say(END);
    Ok(())
}

/// What following every call below a function takes, of each of them, by what writes them down one by one.
fn each_call(traffic: &Traffic) -> Result<()> {
    // The others set it; ours needs the kernel's default.
    std::fs::write(format!("{TRACING}/trace_clock"), "local")?;
    let base = traffic.per_packet()?;
    let spec = TimingSpec {
        instrument: "calls".into(),
        calls: Some(CallsSpec {
            function: BELOW.into(),
            depth: DEPTH,
            slowest: PACKETS,
            steps: 10_000,
            own: true,
            ..CallsSpec::default()
        }),
        ..spec(Some(&[]))
    };
    let mut live = attach(&spec, &|_, _| None)?;
    traffic.send(WARM_UP)?;
    live.open()?;
    let ours = traffic.timed()?;
    let found = live.close()?.calls.ok_or("no calls were traced")?;
    drop(live);
    // Of the first one and the slowest: all of them, if no packet is resent.
    let calls: usize = found.kept.iter().map(|call| call.steps.len()).sum();
    let calls = calls as f64 / found.kept.len().max(1) as f64;
    say(&format!(
        "every call below {BELOW}, {calls:.1} a datagram, of {} datagrams",
        found.counts.calls
    ));
    let tell = |name: &str, per_packet: f64| {
        say(&format!("{name} = {}", (per_packet - base) / calls));
    };
    tell("plumb, trace", ours);

    std::fs::write(format!("{TRACING}/trace_clock"), "mono")?;
    std::fs::write(format!("{TRACING}/set_graph_function"), BELOW)?;
    std::fs::write(format!("{TRACING}/current_tracer"), "function_graph")?;
    let theirs = traffic.per_packet()?;
    std::fs::write(format!("{TRACING}/current_tracer"), "nop")?;
    std::fs::write(format!("{TRACING}/set_graph_function"), "")?;
    tell(&format!("{EACH_CALL}ftrace, function_graph"), theirs);
    match trace_cmd(traffic, &["-g", BELOW]) {
        Ok(ns) => tell(&format!("{EACH_CALL}trace-cmd record, function_graph"), ns),
        Err(error) => say(&format!("trace-cmd: not measured, {error}")),
    }
    Ok(())
}

fn spec(functions: Option<&[&str]>) -> TimingSpec {
    TimingSpec {
        instrument: "functions".into(),
        roles: Default::default(),
        filter: Filter::default(),
        selection: Selection {
            recorded: functions.unwrap_or_default().iter().map(|f| (*f).into()).collect(),
            discover: functions.is_none(),
            max_functions: functions.map_or(MANY, |f| f.len() as u32),
            ..Selection::default()
        },
        mechanism: None,
        one_packet: 0,
        profile: None,
        events: None,
        spans: None,
        calls: None,
    }
}

fn mount(kind: &str, at: &str) -> Result<()> {
    let _ = std::fs::create_dir_all(at);
    let (kind, place) = (std::ffi::CString::new(kind)?, std::ffi::CString::new(at)?);
    // SAFETY: three strings that outlive the call, and no data.
    let done =
        unsafe { libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
    let error = std::io::Error::last_os_error();
    // The kernel may have mounted it already.
    if done == 0 || error.raw_os_error() == Some(libc::EBUSY) {
        return Ok(());
    }
    Err(format!("can't mount {at}: {error}").into())
}

fn loopback_up() -> Result<()> {
    // SAFETY: a request for the loopback device, whose size the kernel knows, and
    // which outlives the call; zeroes are a valid one.
    let done = unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw const request)
    };
    if done != 0 {
        return Err(format!("can't set lo up: {}", std::io::Error::last_os_error()).into());
    }
    Ok(())
}

/// Two sockets and what goes between them.
struct Traffic {
    tx: UdpSocket,
    rx: UdpSocket,
}

impl Traffic {
    fn new() -> Result<Traffic> {
        let (tx, rx) = (UdpSocket::bind("127.0.0.1:40001")?, UdpSocket::bind("127.0.0.1:40002")?);
        tx.connect(rx.local_addr()?)?;
        Ok(Traffic { tx, rx })
    }

    fn send(&self, packets: u32) -> Result<()> {
        for _ in 0..packets {
            self.tx.send(&[0; 10])?;
            self.rx.recv(&mut [0; 64])?;
        }
        Ok(())
    }

    /// Nanoseconds, which are instructions, for each packet.
    fn timed(&self) -> Result<f64> {
        let begun = Instant::now();
        self.send(PACKETS)?;
        Ok(begun.elapsed().as_nanos() as f64 / f64::from(PACKETS))
    }

    fn per_packet(&self) -> Result<f64> {
        self.send(WARM_UP)?;
        self.timed()
    }
}

fn trace(file: &str, text: &str) -> Result<()> {
    let mut to = OpenOptions::new().append(true).open(format!("{TRACING}/{file}"))?;
    to.write_all(text.as_bytes()).map_err(|e| format!("{file}, {text}: {e}").into())
}

fn function_graph(
    traffic: &Traffic,
    functions: &[String],
    tell: &impl Fn(&str, f64),
) -> Result<()> {
    std::fs::write(format!("{TRACING}/trace_clock"), "mono")?;
    for function in functions {
        trace("set_ftrace_filter", function)?;
    }
    std::fs::write(format!("{TRACING}/current_tracer"), "function_graph")?;
    tell("ftrace, function_graph", traffic.per_packet()?);
    std::fs::write(format!("{TRACING}/current_tracer"), "nop")?;
    std::fs::write(format!("{TRACING}/set_ftrace_filter"), "")?;
    Ok(())
}

fn kprobe_events(traffic: &Traffic, functions: &[String], tell: &impl Fn(&str, f64)) -> Result<()> {
    for f in functions {
        trace("kprobe_events", &format!("p:k/p_{f} {f}\n"))?;
        trace("kprobe_events", &format!("r:k/r_{f} {f}\n"))?;
    }
    std::fs::write(format!("{TRACING}/events/k/enable"), "1")?;
    tell("ftrace, kprobe and kretprobe events", traffic.per_packet()?);
    std::fs::write(format!("{TRACING}/events/k/enable"), "0")?;
    std::fs::write(format!("{TRACING}/kprobe_events"), "")?;
    Ok(())
}

/// A histogram of each function's times, as `funclatency` makes it.
fn bpftrace(traffic: &Traffic, functions: &[String], entry: &str, exit: &str) -> Result<f64> {
    let mut program = String::from("BEGIN { printf(\"ready\\n\"); }\n");
    for (n, f) in functions.iter().enumerate() {
        program += &format!(
            "{entry}{f} {{ @s[tid, {n}] = nsecs; }}\n{exit}{f} /@s[tid, {n}]/ {{ \
             @ns[{n}] = hist(nsecs - @s[tid, {n}]); delete(@s[tid, {n}]); }}\n"
        );
    }
    let mut tool = Command::new("/usr/bin/bpftrace")
        .args(["-B", "line", "-e", &program])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()?;
    let mut out = BufReader::new(tool.stdout.take().ok_or("no output")?);
    let mut said = String::new();
    while !said.contains("ready") {
        said.clear();
        if out.read_line(&mut said)? == 0 {
            tool.wait()?;
            return Err("it ended at once".into());
        }
    }
    let per_packet = traffic.per_packet()?;
    interrupt(&tool);
    said.clear();
    out.read_to_string(&mut said)?;
    tool.wait()?;
    // Its counts for the last of them show that it was attached to all.
    let seen = said.matches("@ns[").count();
    if seen != functions.len() {
        return Err(format!("it saw {seen} functions").into());
    }
    Ok(per_packet)
}

fn trace_cmd(traffic: &Traffic, functions: &[&str]) -> Result<f64> {
    let mut command = Command::new("/usr/bin/trace-cmd");
    command.args(["record", "-o", "/tmp/trace.dat", "-C", "mono", "-p", "function_graph"]);
    command.args(functions);
    let mut tool = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    let tracer = format!("{TRACING}/current_tracer");
    let begun = Instant::now();
    while !std::fs::read_to_string(&tracer)?.starts_with("function_graph") {
        if tool.try_wait()?.is_some() || begun.elapsed() > Duration::from_secs(20) {
            return Err("it did not begin".into());
        }
        thread::sleep(Duration::from_millis(50));
    }
    thread::sleep(Duration::from_millis(500));
    let per_packet = traffic.per_packet()?;
    interrupt(&tool);
    tool.wait()?;
    let _ = std::fs::write(tracer, "nop");
    Ok(per_packet)
}

pub(crate) fn interrupt(child: &Child) {
    // SAFETY: a signal to a process that we started and have not waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
}
