//! What the `exact` instrument costs those who use it: `make bench`.
//!
//! 1. The six-class experiment from a cold start: time and memory.
//! 2. A guest's boot, to the moment its agent is ready.
//! 3. The same traffic in the same guest without the plugin, with the plugin, and
//!    with the accounting behind it, as ratios.
//! 4. The counts against the one other counter there is: the guest's own clock,
//!    which under icount moves by a nanosecond with each instruction.
//!
//! Everything is done several times, in turn, and medians are printed. An exceeded bound is
//! reported but not a failure: a timing on a machine with other load proves nothing.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use netplumb_instruments::exact::{self, Accountant, StreamReader, Window};
use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_kernel::path_rules::PathRules;
use netplumb_lab::vm::initramfs::{self, Module};
use netplumb_lab::vm::kernels::{KernelEntry, KernelStore};
use netplumb_lab::vm::machine::{MEMORY_MIB, Machine};
use netplumb_lab::vm::process::{Extra, Guest, Start};
use netplumb_lab::vm::trial;
use netplumb_model::arch::Arch;
use netplumb_model::class::{Family, Link, Proto};
use netplumb_model::message::{Request, RunPlan};
use netplumb_model::recording::env;
use netplumb_model::topology::ArmTopology;
use netplumb_sys::memory::memfd;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PLUMB: &str = env!("CARGO_BIN_EXE_plumb");
/// cargo runs a benchmark in its package's directory.
const EXPERIMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/ip-layer.toml");
const ROUNDS: usize = 3;
/// Arms of the sweep that is timed.
const SWEEP_ARMS: u32 = 20;
/// What the product promises of its developers' machine, two virtual CPUs.
const RUN_BOUND_S: f64 = 30.0;
const MEMORY_BOUND_BYTES: u64 = 1_000_000_000;
const BOOT_BOUND_S: f64 = 7.0;
/// The packets that are timed; and the smaller number that the agent sends first, so that the fixed
/// cost of a request can be subtracted.
const PACKETS: u32 = 10_000;
const FEW_PACKETS: u32 = 1_000;
/// How often each guest sends them.
const SENDS: usize = 3;
const LIMIT: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    use etcetera::BaseStrategy;
    let cache = match std::env::var_os("PLUMB_CACHE") {
        Some(cache) => PathBuf::from(cache),
        None => etcetera::choose_base_strategy()?.cache_dir().join("netplumb"),
    };
    let qemu = trial::find_qemu(Arch::OWN)?;
    let kernel = KernelStore::new(&cache).find("debian")?;
    println!(
        "machine: {} CPUs, {}; load {} before",
        thread::available_parallelism()?,
        first_line("/proc/sys/kernel/osrelease"),
        first_line("/proc/loadavg"),
    );
    println!("guest:   {} ({})", kernel.release, kernel.short());
    whole_experiment(&cache)?;
    slowdown(&qemu, &kernel)?;
    println!("\nload {} after", first_line("/proc/loadavg"));
    Ok(())
}

// ---- The experiment, as a user runs it -------------------------------------

/// One run of `plumb run`.
struct Outcome {
    took: Duration,
    /// If it had to boot.
    boot_s: Option<f64>,
    plumb_bytes: u64,
    qemu_bytes: u64,
}

fn whole_experiment(cache: &Path) -> Result<()> {
    let folder = Folder::new()?;
    let output = folder.0.join("bench.plumb");
    let experiment = ["run", EXPERIMENT];
    println!("\nplumb run experiments/ip-layer.toml, with nothing saved ({ROUNDS} times)");
    let mut all = Vec::new();
    for round in 0..ROUNDS {
        // The same kernels, and no states.
        let own = folder.0.join(format!("cache{round}"));
        std::fs::create_dir(&own)?;
        std::os::unix::fs::symlink(cache.join("kernels"), own.join("kernels"))?;
        all.push(timed(&experiment, Some(&own), &output)?);
        std::fs::remove_dir_all(own.join("states"))?;
    }
    let took = median(all.iter().map(|o| o.took.as_secs_f64()));
    let boots = || all.iter().filter_map(|o| o.boot_s);
    let memory = |of: fn(&Outcome) -> u64| all.iter().map(of).max().unwrap_or(0);
    let (plumb, qemu) = (memory(|o| o.plumb_bytes), memory(|o| o.qemu_bytes));
    line(
        "wall time",
        &seconds(all.iter().map(|o| o.took.as_secs_f64())),
        verdict(took, RUN_BOUND_S, "30 s"),
    );
    line(
        "of it, to boot and save",
        &seconds(boots()),
        verdict(median(boots()), BOOT_BOUND_S, "7 s"),
    );
    line(
        "peak memory, one guest",
        &format!(
            "{} MB (plumb {} + QEMU {})",
            (plumb + qemu) / 1_000_000,
            plumb / 1_000_000,
            qemu / 1_000_000
        ),
        verdict((plumb + qemu) as f64, MEMORY_BOUND_BYTES as f64, "1,000 MB"),
    );

    println!("\nfrom saved states ({ROUNDS} times)");
    let sizes: Vec<String> = (0..SWEEP_ARMS).map(|n| (n * 10).to_string()).collect();
    let sizes = sizes.join(",");
    let sweep = ["path", "--size", &sizes];
    for (name, args, arms, bound_s) in [
        ("plumb path --proto udp", &["path", "--proto", "udp"][..], 1, 1.0),
        ("plumb run ip-layer.toml", &experiment, 1, 4.0),
        ("an arm of a sweep of sizes", &sweep, SWEEP_ARMS, 0.6),
    ] {
        timed(args, Some(cache), &output)?;
        let mut all = Vec::new();
        for _ in 0..ROUNDS {
            let took = timed(args, Some(cache), &output)?.took;
            all.push(took.as_secs_f64() / f64::from(arms));
        }
        let middle = median(all.iter().copied());
        let bound = format!("{bound_s} s");
        line(name, &seconds(all.into_iter()), verdict(middle, bound_s, &bound));
    }
    Ok(())
}

fn timed(args: &[&str], cache: Option<&Path>, output: &Path) -> Result<Outcome> {
    let started = Instant::now();
    let mut command = Command::new(PLUMB);
    if let Some(cache) = cache {
        command.arg("--cache").arg(cache);
    }
    let mut plumb = command
        .args(args)
        .arg("--output")
        .arg(output)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let stderr = plumb.stderr.take().ok_or("no standard error")?;
    let reader = thread::spawn(move || {
        BufReader::new(stderr).lines().map_while(std::io::Result::ok).collect::<Vec<_>>()
    });
    let plumb_bytes = watch(&mut plumb)?;
    let took = started.elapsed();
    let said = reader.join().map_err(|_| "the reader panicked")?;
    if !plumb.wait()?.success() {
        return Err(said.join("\n").into());
    }
    let boot_s = said
        .iter()
        .find_map(|l| l.split_once("booted and saved in ")?.1.strip_suffix(" s")?.parse().ok());
    let recording = netplumb_store::read(output)?;
    let qemu_bytes = recording
        .scalars_of(&netplumb_model::timing::QEMU_PEAK)
        .map(|s| s.value as u64)
        .next()
        .ok_or("the recording does not have QEMU's peak of memory")?;
    if recording.environment.get(env::QUICK).map(String::as_str) != Some("no") {
        return Err("the run had no instruction clock".into());
    }
    Ok(Outcome { took, boot_s, plumb_bytes, qemu_bytes })
}

/// Wait for a process to end, and return its peak memory use. wait4 would report the child's peak,
/// QEMU's, if that is higher.
fn watch(child: &mut Child) -> Result<u64> {
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait()?.is_none() {
        let kib = std::fs::read_to_string(&status).ok().and_then(|text| {
            let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
            line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
        });
        peak = peak.max(kib.unwrap_or(0) * 1024);
        thread::sleep(Duration::from_millis(20));
    }
    Ok(peak)
}

// ---- The same guest, with and without the plugin ---------------------------

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    /// QEMU and its instruction clock alone.
    Without,
    /// The plugin; its stream is read and discarded.
    Plugin,
    /// The plugin and the accounting, as `plumb` runs it.
    Counted,
}

const VARIANTS: [Variant; 3] = [Variant::Without, Variant::Plugin, Variant::Counted];

/// One guest's life.
struct Life {
    boot: Duration,
    packets: Vec<Duration>,
    clock_ns: f64,
    /// By the plugin, between the same two runs as the clock.
    insns: Option<u64>,
}

fn slowdown(qemu: &Path, kernel: &KernelEntry) -> Result<()> {
    println!(
        "\n{PACKETS} UDP datagrams of 10 bytes over veth, {SENDS} times in each of {ROUNDS} guests \
         of a kind, the kinds in turn"
    );
    let mut lives: [Vec<Life>; 3] = Default::default();
    for round in 0..ROUNDS {
        for n in 0..VARIANTS.len() {
            // Each goes first once.
            let n = (n + round) % VARIANTS.len();
            lives[n].push(live(qemu, kernel, VARIANTS[n])?);
        }
    }
    let [without, plugin, counted] = &lives;
    let packets = |l: &[Life]| median(sends(l));
    let boot = |l: &[Life]| median(l.iter().map(|l| l.boot.as_secs_f64()));
    for (name, lives) in [
        ("without the plugin", without),
        ("with the plugin", plugin),
        ("with plugin and accounting", counted),
    ] {
        line(
            name,
            &format!("{:.2} s ({})", packets(lives), range(sends(lives))),
            format!(
                "{:.1} x; boot {:.1} x",
                packets(lives) / packets(without),
                boot(lives) / boot(without)
            ),
        );
    }

    println!("\nthe count against the guest's clock (1 ns = 1 instruction), the same packets");
    let more = f64::from(PACKETS - FEW_PACKETS);
    let clock = median(counted.iter().map(|l| l.clock_ns)) / more;
    let insns = median(counted.iter().filter_map(|l| Some(l.insns? as f64))) / more;
    let bare = median(without.iter().map(|l| l.clock_ns)) / more;
    line("plugin: kernel and user", &format!("{insns:.1} per packet"), String::new());
    line(
        "clock less idle, same guest",
        &format!("{clock:.1} per packet"),
        format!("{:.5} x", clock / insns),
    );
    line(
        "clock less idle, no plugin",
        &format!("{bare:.1} per packet"),
        format!("{:.5} x", bare / insns),
    );
    println!(
        "  The guest calls part of its way into and out of idle idle: the clock has a little less.\n  \
         No other tool counts by function and packet. Hardware counters (perf stat) would see\n  \
         what QEMU makes of the guest's code; under TCG the guest has none of its own."
    );
    Ok(())
}

fn live(qemu: &Path, kernel: &KernelEntry, variant: Variant) -> Result<Life> {
    let machine = Machine {
        arch: Arch::X86_64,
        qemu: qemu.to_path_buf(),
        kernel: kernel.boot_image(),
        pvh: kernel.pvh,
        host: None,
        link: Link::Veth,
        forward: false,
        icount: true,
        mitigations: false,
        cmdline: String::new(),
        seed: 1,
        memory_mib: MEMORY_MIB,
    };
    let initramfs = initramfs_of(kernel, &machine)?;
    let (extra, stream) = if variant == Variant::Without {
        (Extra::default(), None)
    } else {
        let plugin = memfd("netplumb-plugin", exact::PLUGIN)?;
        let (reader, writer) = std::io::pipe()?;
        let writer = OwnedFd::from(writer);
        let extra = Extra {
            args: exact::qemu_args(plugin.as_raw_fd(), writer.as_raw_fd(), &[]),
            fds: vec![plugin, writer],
            cpu: None,
        };
        (extra, Some(reader))
    };
    let started = Instant::now();
    let from = Start::Boot { initramfs: &initramfs, memory: None };
    let mut guest = Guest::start(&machine, from, [&[], &[]], extra, LIMIT, Default::default())?;
    guest.wait_ready(LIMIT)?;
    guest.go_on()?;
    let boot = started.elapsed();
    let windows = match stream {
        Some(stream) if variant == Variant::Counted => {
            let symbols = SymbolTable::parse(&guest.read_file("/proc/kallsyms", LIMIT)?)?;
            Some(account(stream, symbols))
        }
        Some(stream) => {
            drain(stream);
            None
        }
        None => None,
    };

    // The first request builds the links and arms the plugin.
    send(&mut guest, 1)?;
    let clock_0 = busy_ns(&mut guest)?;
    send(&mut guest, FEW_PACKETS)?;
    let clock_1 = busy_ns(&mut guest)?;
    let mut packets = vec![timed_send(&mut guest)?];
    let clock_2 = busy_ns(&mut guest)?;
    while packets.len() < SENDS {
        packets.push(timed_send(&mut guest)?);
    }
    let insns = match windows {
        Some(windows) => {
            let of_next = || -> Result<u64> {
                let window = windows.recv_timeout(LIMIT)?;
                Ok(window.kernel_insns + window.user_insns)
            };
            of_next()?;
            let few = of_next()?;
            Some(of_next()? - few)
        }
        None => None,
    };
    Ok(Life { boot, packets, clock_ns: (clock_2 - clock_1) - (clock_1 - clock_0), insns })
}

fn initramfs_of(kernel: &KernelEntry, machine: &Machine) -> Result<Vec<u8>> {
    let mut modules = Vec::new();
    for module in kernel.module_tree()?.resolve(&machine.modules())? {
        modules.push(Module {
            bytes: module.read()?,
            required: module.required,
            name: module.name,
            options: String::new(),
        });
    }
    Ok(initramfs::build(machine.arch, &std::fs::read(PLUMB)?, &modules)?)
}

fn send(guest: &mut Guest, packets: u32) -> Result<()> {
    let plan = RunPlan {
        proto: Proto::Udp,
        host: None,
        family: Family::V4,
        link: Link::Veth,
        topology: ArmTopology::direct(),
        queues: None,
        size_bytes: 10,
        mtu_bytes: None,
        packets,
        block_ns: None,
        rate_pps: None,
        stream: false,
        new_flows: false,
        replies: false,
        warmup_packets: 200,
        blocks: 1,
        aligned: true,
        sysctl: Default::default(),
        offload: Default::default(),
        nics: Default::default(),
        nft: None,
        qdisc: None,
        programs: Vec::new(),
        from_device: None,
    };
    Ok(guest.ask(&Request::Run(plan), LIMIT, |_| Ok(()))?)
}

fn timed_send(guest: &mut Guest) -> Result<Duration> {
    let started = Instant::now();
    send(guest, PACKETS)?;
    Ok(started.elapsed())
}

/// Nanoseconds that the guest's CPU was not idle, since boot. Under icount idling
/// makes the clock jump and executes nothing.
fn busy_ns(guest: &mut Guest) -> Result<f64> {
    let text = String::from_utf8(guest.read_file("/proc/timer_list", LIMIT)?)?;
    let number = |key: &str| -> Result<f64> {
        text.lines()
            .find_map(|l| {
                let rest = l.trim().strip_prefix(key)?.trim_start_matches([' ', ':']);
                rest.split(' ').next()?.parse().ok()
            })
            .ok_or_else(|| format!("/proc/timer_list has no `{key}`").into())
    };
    Ok(number("now at")? - number(".idle_sleeptime")?)
}

/// Make windows of a stream, as the engine does.
fn account(stream: impl Read + Send + 'static, symbols: SymbolTable) -> Receiver<Window> {
    let (sender, windows) = channel();
    thread::spawn(move || {
        let rules = PathRules::built_in();
        let mut accountant = Accountant::new(&symbols, &rules);
        let mut reader = StreamReader::new(stream);
        while let Ok(Some(record)) = reader.next() {
            if let Some(window) = accountant.take(record)
                && sender.send(window).is_err()
            {
                return;
            }
        }
    });
    windows
}

fn drain(mut stream: impl Read + Send + 'static) {
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 18];
        while let Ok(1..) = stream.read(&mut buffer) {}
    });
}

// ---- Small things ------------------------------------------------------------

/// A directory that is removed when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder> {
        let name = format!("netplumb-bench-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What can't be removed is in the temporary directory anyway.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn line(what: &str, figure: &str, note: String) {
    println!("{}", format!("  {what:<28}{figure:<40}{note}").trim_end());
}

fn sends(lives: &[Life]) -> impl Iterator<Item = f64> + Clone {
    lives.iter().flat_map(|l| &l.packets).map(Duration::as_secs_f64)
}

fn range(values: impl Iterator<Item = f64> + Clone) -> String {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    format!("{low:.2} to {:.2}", values.fold(0.0, f64::max))
}

fn seconds(values: impl Iterator<Item = f64> + Clone) -> String {
    let all: Vec<String> = values.clone().map(|v| format!("{v:.2}")).collect();
    format!("{:.2} s (of {})", median(values), all.join(", "))
}

fn verdict(value: f64, bound: f64, said: &str) -> String {
    let word = if value <= bound { "within" } else { "over" };
    format!("{word} {said}")
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn first_line(path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or("?").to_string()
}
