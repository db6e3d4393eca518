//! What `stages` costs on this machine's own kernel, beside other tools.

use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use netplumb_instruments::registry::attach;
use netplumb_lab::netns::{Topology, TopologyPlan};
use netplumb_model::class::{Family, Link, Proto};
use netplumb_model::timing::{Filter, Selection, TimingSpec};
use netplumb_model::topology::ArmTopology;
use netplumb_workload::ends::{Ends, Sockets};

use super::guest::interrupt;
use super::{Result, line, median};

const PLUMB: &str = env!("CARGO_BIN_EXE_plumb");
const ROUNDS: usize = 7;
const BLOCK: Duration = Duration::from_millis(800);
const PACED_PPS: u32 = 10_000;
/// For tools that don't report when they have attached.
const SETTLE: Duration = Duration::from_millis(1500);
const PATIENCE: Duration = Duration::from_secs(30);
/// What the product promises of itself.
const ATTACH_BOUND_S: f64 = 1.0;
const FIGURE_BOUND_S: f64 = 1.5;
const LOST_BOUND: f64 = 0.05;
const CPU_BOUND: f64 = 0.01;

/// What plumb looks at, of this kernel's.
const TRACEPOINTS: [&str; 16] = [
    "raw_syscalls:sys_enter",
    "raw_syscalls:sys_exit",
    "net:net_dev_queue",
    "qdisc:qdisc_enqueue",
    "qdisc:qdisc_dequeue",
    "net:net_dev_start_xmit",
    "net:net_dev_xmit",
    "net:netif_rx",
    "net:napi_gro_receive_entry",
    "net:netif_receive_skb",
    "sock:sk_data_ready",
    "skb:skb_copy_datagram_iovec",
    "skb:consume_skb",
    "skb:kfree_skb",
    "irq:softirq_entry",
    "sched:sched_switch",
];

/// A histogram of each stage that these tracepoints show.
const SCRIPT: &str = r#"
BEGIN { printf("ready\n"); }
tracepoint:raw_syscalls:sys_enter { @call[tid] = nsecs; }
tracepoint:net:net_dev_queue /@call[tid]/ {
  @call_ns = hist(nsecs - @call[tid]); @queue[args->skbaddr] = nsecs; }
tracepoint:net:net_dev_start_xmit /@queue[args->skbaddr]/ {
  @device_ns = hist(nsecs - @queue[args->skbaddr]);
  @xmit[args->skbaddr] = nsecs; delete(@queue[args->skbaddr]); }
tracepoint:net:net_dev_xmit /@xmit[args->skbaddr]/ {
  @driver_ns = hist(nsecs - @xmit[args->skbaddr]); delete(@xmit[args->skbaddr]); }
tracepoint:net:netif_rx { @rx[args->skbaddr] = nsecs; }
tracepoint:net:netif_receive_skb /@rx[args->skbaddr]/ {
  @backlog_ns = hist(nsecs - @rx[args->skbaddr]);
  @protocol[args->skbaddr] = nsecs; delete(@rx[args->skbaddr]); }
tracepoint:skb:skb_copy_datagram_iovec /@protocol[args->skbaddr]/ {
  @read_ns = hist(nsecs - @protocol[args->skbaddr]);
  delete(@protocol[args->skbaddr]); @read[tid] = nsecs; }
tracepoint:raw_syscalls:sys_exit /@read[tid]/ {
  @return_ns = hist(nsecs - @read[tid]); delete(@read[tid]); }
"#;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Nothing,
    /// Held to a share, as on a host's own traffic.
    Plumb,
    /// Every packet followed.
    PlumbAll,
    Bpftrace,
    Perf,
    TraceCmd,
}

const KINDS: [(Kind, &str); 6] = [
    (Kind::Nothing, "nothing attached"),
    (Kind::Plumb, "plumb, stages, --max-overhead 5%"),
    (Kind::PlumbAll, "plumb, stages, every packet"),
    (Kind::Bpftrace, "bpftrace, a histogram per stage"),
    (Kind::Perf, "perf record, the same tracepoints"),
    (Kind::TraceCmd, "trace-cmd record, the same tracepoints"),
];

/// Results of a block.
struct Block {
    /// Packets each second, one at a time.
    pps: f64,
    /// CPU time of the thread that sends and reads, and of the softirqs on top of it.
    ns: f64,
    /// Of the traffic at a fixed rate: CPUs that the thread took, the tool itself, and
    /// the rate that came about.
    paced: [f64; 3],
    /// Until it was attached.
    attach_s: f64,
}

/// Measure, and print.
pub(crate) fn run() -> Result<()> {
    // SAFETY: takes nothing, and always succeeds.
    if unsafe { libc::geteuid() } != 0 {
        println!("\nskipped: stages on the running kernel need root");
        return Ok(());
    }
    println!(
        "\nUDP over veth on this machine ({} CPUs, Linux {}, load {}), medians of {ROUNDS} blocks of each",
        thread::available_parallelism()?,
        std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim(),
        std::fs::read_to_string("/proc/loadavg")?.trim(),
    );
    let topology = Topology::build(&plan(), &[])?;
    let ends = Ends {
        tx_namespace: topology.tx.try_clone()?,
        rx_namespace: topology.rx.try_clone()?,
        between: Vec::new(),
        tx_address: topology.tx_address,
        rx_address: topology.rx_address,
        to_address: topology.to_address,
    };
    let sockets = ends.open(Proto::Udp)?;
    let folder = tempfile::TempDir::new()?;
    let mut blocks: Vec<Vec<Block>> = KINDS.iter().map(|_| Vec::new()).collect();
    for round in 0..ROUNDS {
        for n in 0..KINDS.len() {
            // Each goes first once.
            let n = (n + round) % KINDS.len();
            // A tool that failed once is skipped from then on.
            if round > 0 && blocks[n].is_empty() {
                continue;
            }
            match block(KINDS[n].0, &topology, &sockets, folder.path()) {
                Ok(block) => blocks[n].push(block),
                Err(error) if KINDS[n].0 as u8 > Kind::PlumbAll as u8 => {
                    println!("  {}: not measured, {error}", KINDS[n].1);
                }
                Err(error) => return Err(error),
            }
        }
    }
    print(&blocks);
    first_figure(folder.path())
}

fn print(blocks: &[Vec<Block>]) {
    let of = |n: usize, f: fn(&Block) -> f64| median(blocks[n].iter().map(f));
    let base = (of(0, |b| b.pps), of(0, |b| b.ns), of(0, |b| b.paced[0]));
    for (n, (kind, name)) in KINDS.iter().enumerate() {
        if blocks[n].is_empty() {
            continue;
        }
        let (pps, ns) = (of(n, |b| b.pps), of(n, |b| b.ns));
        let mut note = format!("{ns:.0} ns of CPU a packet");
        if *kind != Kind::Nothing {
            note += &format!(
                ", +{:.0}; {:.1} % of the packets lost",
                ns - base.1,
                (1.0 - pps / base.0) * 100.0
            );
        }
        line(name, &format!("{pps:.0} packets/s"), &note);
    }
    let lost = 1.0 - of(1, |b| b.pps) / base.0;
    println!("  one at a time, as fast as it goes: {}", verdict(lost, LOST_BOUND, "5 % lost"));

    println!("\nthe same at {PACED_PPS} packets/s: share of a CPU that measuring takes");
    let mut ours = f64::NAN;
    for (n, (kind, name)) in KINDS.iter().enumerate() {
        if blocks[n].is_empty() {
            continue;
        }
        let (thread, tool) = (of(n, |b| b.paced[0]), of(n, |b| b.paced[1]));
        let more = thread - base.2 + tool;
        let rate = format!("at {:.0} packets/s", of(n, |b| b.paced[2]));
        if *kind == Kind::Nothing {
            line(name, &format!("{:.2} % to send", thread * 100.0), &rate);
            continue;
        }
        if *kind == Kind::Plumb {
            ours = more;
        }
        let note = format!("of it {:.2} % the tool's own; {rate}", tool * 100.0);
        line(name, &format!("{:.2} %", more * 100.0), &note);
    }
    println!("  {}", verdict(ours, CPU_BOUND, "1 %"));

    println!("\nuntil there is something to see");
    let attach = of(1, |b| b.attach_s);
    line("attach stages", &format!("{attach:.2} s"), &verdict(attach, ATTACH_BOUND_S, "1 s"));
}

fn verdict(value: f64, bound: f64, said: &str) -> String {
    format!("{} {said}", if value <= bound { "within" } else { "over" })
}

fn plan() -> TopologyPlan {
    TopologyPlan {
        host: None,
        link: Link::Veth,
        family: Family::V4,
        topology: ArmTopology::direct(),
        queues: None,
        mtu_bytes: None,
        sysctl: Default::default(),
        offload: Default::default(),
        nics: Default::default(),
        nft: None,
        qdisc: None,
        programs: Vec::new(),
    }
}

fn block(kind: Kind, topology: &Topology, sockets: &Sockets, folder: &Path) -> Result<Block> {
    let begun = Instant::now();
    if kind == Kind::Nothing {
        return traffic(sockets, None, 0.0);
    }
    if matches!(kind, Kind::Plumb | Kind::PlumbAll) {
        let mut live = attach(
            &TimingSpec {
                instrument: "stages".into(),
                roles: Default::default(),
                filter: Filter {
                    protos: vec![Proto::Udp],
                    namespaces: vec![topology.tx.inode()?, topology.rx.inode()?],
                    ..Filter::default()
                },
                selection: Selection {
                    max_overhead: (kind == Kind::Plumb).then_some(LOST_BOUND),
                    ..Selection::default()
                },
                mechanism: None,
                one_packet: 0,
                profile: None,
                events: None,
                spans: None,
                calls: None,
            },
            &|_, _| None,
        )?;
        let attach_s = begun.elapsed().as_secs_f64();
        live.open()?;
        let block = traffic(sockets, None, attach_s)?;
        let window = live.close()?;
        if window.ledger.get("udp tx sent").is_none_or(|n| *n == 0) {
            return Err("plumb saw no packet".into());
        }
        return Ok(block);
    }
    let output = folder.join("events");
    let mut tool = Tool::start(kind, &output)?;
    let block = traffic(sockets, Some(&tool), begun.elapsed().as_secs_f64());
    tool.stop()?;
    // A tool that has attached to nothing costs nothing.
    if kind != Kind::Bpftrace && std::fs::metadata(&output)?.len() < 1 << 20 {
        return Err("it recorded next to nothing".into());
    }
    let _ = std::fs::remove_file(&output);
    block
}

/// A tool at work.
struct Tool {
    child: Child,
    lines: Option<BufReader<std::process::ChildStdout>>,
}

impl Tool {
    fn start(kind: Kind, output: &Path) -> Result<Tool> {
        let program = match kind {
            Kind::Bpftrace => "bpftrace",
            Kind::Perf => "perf",
            _ => "trace-cmd",
        };
        if !["/usr/bin", "/usr/sbin"].iter().any(|d| Path::new(d).join(program).exists()) {
            return Err(format!("{program} is not installed").into());
        }
        // Where tools look for tracepoints, for this tool alone.
        let tracing = "mount -t tracefs nodev /sys/kernel/tracing 2>/dev/null; \
                       mount -t tmpfs nodev /sys/kernel/debug && mkdir /sys/kernel/debug/tracing && \
                       mount -t tracefs nodev /sys/kernel/debug/tracing; exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", tracing, "sh", program]);
        match kind {
            Kind::Bpftrace => {
                command.args(["-B", "line", "-e", SCRIPT]);
            }
            Kind::Perf => {
                // This thread alone: with all of them it would see its own calls.
                // SAFETY: takes nothing, and always succeeds.
                let thread = unsafe { libc::gettid() }.to_string();
                command.args(["record", "-q", "-t", &thread, "-o"]).arg(output);
                for event in TRACEPOINTS {
                    command.args(["-e", event]);
                }
            }
            _ => {
                command.args(["record", "-o"]).arg(output);
                for event in TRACEPOINTS {
                    command.args(["-e", event]);
                }
            }
        }
        let mut child = command
            .current_dir(output.parent().unwrap_or(Path::new("/")))
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?);
        if kind == Kind::Bpftrace {
            let (sender, ready) = channel();
            thread::spawn(move || {
                let mut said = String::new();
                while !said.contains("ready") {
                    said.clear();
                    if lines.read_line(&mut said).unwrap_or(0) == 0 {
                        return;
                    }
                }
                let _ = sender.send(lines);
            });
            lines = match ready.recv_timeout(PATIENCE) {
                Ok(lines) => lines,
                Err(why) => {
                    interrupt(&child);
                    child.kill()?;
                    child.wait()?;
                    return Err(match why {
                        RecvTimeoutError::Timeout => "it was not ready in time".into(),
                        RecvTimeoutError::Disconnected => "it ended at once".into(),
                    });
                }
            };
        } else {
            thread::sleep(SETTLE);
        }
        let mut tool = Tool { child, lines: Some(lines) };
        if let Some(status) = tool.child.try_wait()? {
            return Err(format!("it ended at once, {status}").into());
        }
        Ok(tool)
    }

    /// CPU time of it and of its children.
    fn cpu_ns(&self) -> f64 {
        let group = self.child.id().to_string();
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let mine = processes.filter(|p| {
            let stat = std::fs::read_to_string(p.path().join("stat")).unwrap_or_default();
            // State, parent and group come after the name.
            let rest = stat.rsplit_once(')').map_or("", |s| s.1);
            rest.split_whitespace().nth(2) == Some(&group)
        });
        let threads =
            mine.flat_map(|p| std::fs::read_dir(p.path().join("task")).into_iter().flatten());
        threads
            .flatten()
            .filter_map(|t| {
                let text = std::fs::read_to_string(t.path().join("schedstat")).ok()?;
                text.split(' ').next()?.parse::<f64>().ok()
            })
            .sum()
    }

    fn stop(&mut self) -> Result<()> {
        interrupt(&self.child);
        let lines = self.lines.take();
        let reader = thread::spawn(move || {
            let mut out = Vec::new();
            lines.map(|mut l| std::io::Read::read_to_end(&mut l, &mut out))
        });
        let begun = Instant::now();
        while self.child.try_wait()?.is_none() {
            if begun.elapsed() > PATIENCE {
                self.child.kill()?;
            }
            thread::sleep(Duration::from_millis(10));
        }
        reader.join().map_err(|_| "the reader panicked")?;
        Ok(())
    }
}

fn traffic(sockets: &Sockets, tool: Option<&Tool>, attach_s: f64) -> Result<Block> {
    let (begun, cpu, mut packets) = (Instant::now(), thread_ns(), 0_u32);
    while begun.elapsed() < BLOCK {
        for _ in 0..64 {
            one(sockets)?;
        }
        packets += 64;
    }
    let pps = f64::from(packets) / begun.elapsed().as_secs_f64();
    let ns = (thread_ns() - cpu) / f64::from(packets);

    let own = || tool.map_or_else(others_ns, Tool::cpu_ns);
    let (begun, cpu, tool_cpu, mut packets) = (Instant::now(), thread_ns(), own(), 0_u32);
    let gap = Duration::from_secs(1) / PACED_PPS;
    while begun.elapsed() < BLOCK {
        one(sockets)?;
        packets += 1;
        if let Some(left) = (gap * packets).checked_sub(begun.elapsed()) {
            thread::sleep(left);
        }
    }
    let wall = begun.elapsed();
    let share = |ns: f64| ns / wall.as_nanos() as f64;
    Ok(Block {
        pps,
        ns,
        paced: [
            share(thread_ns() - cpu),
            share(own() - tool_cpu),
            f64::from(packets) / wall.as_secs_f64(),
        ],
        attach_s,
    })
}

fn one(sockets: &Sockets) -> Result<()> {
    let mut buffer = [7_u8; 64];
    let (tx, rx) = (sockets.tx.as_raw_fd(), sockets.rx.as_raw_fd());
    // SAFETY: the buffer outlives both calls, and has the length that they get.
    let (sent, got) = unsafe {
        (
            libc::send(tx, buffer.as_ptr().cast(), 18, 0),
            libc::recv(rx, buffer.as_mut_ptr().cast(), buffer.len(), 0),
        )
    };
    if sent != 18 || got != 18 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(())
}

/// CPU time of this process's other threads.
fn others_ns() -> f64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID) - thread_ns()
}

/// CPU time of this thread.
fn thread_ns() -> f64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which outlives the call.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// From the start of the program to the first line of the live view.
fn first_figure(folder: &Path) -> Result<()> {
    let mut all = Vec::new();
    for _ in 0..3 {
        let output: PathBuf = folder.join("watched.plumb");
        let begun = Instant::now();
        let mut plumb = Command::new(PLUMB)
            .args("path --lab netns --clock stages --watch --duration 4s -o".split(' '))
            .arg(&output)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(plumb.stderr.take().ok_or("no output")?);
        let mut seen = false;
        for said in lines.lines().map_while(std::io::Result::ok) {
            if !seen && said.contains(" s: ") && said.contains("udp tx") {
                all.push(begun.elapsed().as_secs_f64());
                seen = true;
                interrupt(&plumb);
            }
        }
        plumb.wait()?;
        let _ = std::fs::remove_file(&output);
    }
    if all.is_empty() {
        return Err("the live view showed no figure".into());
    }
    let figure = median(all.into_iter());
    line(
        "first figure of --watch",
        &format!("{figure:.2} s"),
        &verdict(figure, FIGURE_BOUND_S, "1.5 s"),
    );
    Ok(())
}
