//! The `functions` instrument while softirqs that interrupt a sender receive others' packets: its
//! figures for the sender's own functions must not change.
//!
//! The test's program is also the init of a guest whose nanoseconds are instructions. There one
//! thread sends datagrams, block by block: alone, and while TCP connections that the kernel paces
//! by timers send data that was written into them beforehand. So the same CPU sends and receives
//! their packets in softirqs, on top of whatever it is at.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use netplumb_instruments::functions::correct::correct;
use netplumb_instruments::registry::attach;
use netplumb_lab::vm::{initramfs, machine, trial};
use netplumb_model::arch::Arch;
use netplumb_model::class::{Context, Direction, Proto};
use netplumb_model::timing::{Attached, Filter, Selection, TimingSpec, Window};
use netplumb_stats::judge::{Pair, judge};

use common::{kernel, skip};

/// The sender's own, and one that the flood has in common with it.
const FUNCTIONS: [&str; 20] = [
    "__x64_sys_sendto",
    "__sys_sendto",
    "sock_sendmsg",
    "inet_sendmsg",
    "security_socket_sendmsg",
    "udp_sendmsg",
    "udp_send_skb",
    "__ip_append_data",
    "__ip_make_skb",
    "sock_alloc_send_pskb",
    "alloc_skb_with_frags",
    "__alloc_skb",
    "ip_send_skb",
    "ip_output",
    "ip_finish_output2",
    "__dev_queue_xmit",
    "dev_hard_start_xmit",
    "loopback_xmit",
    "eth_type_trans",
    "net_rx_action",
];
/// Fewer on the sender's way prove too little.
const MIN_FUNCTIONS: usize = 15;
/// Blocks of each kind, in turn.
const BLOCKS: u32 = 10;
const PACKETS: u32 = 300;
/// Connections of the flood, the rate of each, and its segments: each has its own timer, which
/// fires about once a millisecond.
const FLOODS: usize = 16;
const PACE_BYTES_S: u32 = 2_000_000;
const SEGMENT: libc::c_int = 1_000;
/// Bytes written into each before a block: more than it sends meanwhile.
const WRITTEN: usize = 256 << 10;
/// Entry to and exit from an interrupt's handler are charged to the interrupted code
/// (docs/guide/functions.md): no interval includes it, since it does not scatter.
const INTO_HANDLER_INSNS: f64 = 100.0;
/// How much longer the longest call may be in the flood: an allocator's slow path takes 1,100, and 5,000 with a new slab,
/// the ways into the handlers of a few interrupts less. A softirq that sends segments of the flood takes 10,000 and more.
const LONGEST_INSNS: u64 = 6_000;
/// The way through `__alloc_skb`, whose own cost grows: the flood allocates from the same slabs, so that more calls of the
/// sender take the allocator's slow path.
const WITH_ALLOCATIONS: [&str; 8] = [
    "__x64_sys_sendto",
    "__sys_sendto",
    "inet_sendmsg",
    "udp_sendmsg",
    "__ip_append_data",
    "sock_alloc_send_pskb",
    "alloc_skb_with_frags",
    ALLOCATOR,
];
const ALLOCATOR: &str = "__alloc_skb";
/// That many more at most: 3% of calls by 1,100 instructions.
const SLOWER_INSNS: f64 = 33.0;
/// As far as corrected times may be off anyway: see truth.rs.
const BOUND_INSNS: f64 = 10.0;
const BOUND_SHARE: f64 = 0.03;
/// A guest without output for this long is stuck.
const LIMIT: Duration = Duration::from_secs(300);
/// What follows `--` are the arguments of the guest's init, the harness of this program.
const CMDLINE: &str = "console=ttyS0 quiet mitigations=off panic=-1";
const TEST: &str = "softirqs_are_not_the_senders";
/// Begins the lines that are meant for the host, and is the last one.
const SAYS: &str = "flood-says ";
const END: &str = "end";

/// Check that a flood in softirqs changes no time of the sender's own functions by more
/// than the interval, though it makes its packets take longer.
#[test]
fn softirqs_are_not_the_senders() {
    // This program is the guest's init too.
    if std::process::id() == 1 {
        guest::run();
    }
    let kernel = match kernel() {
        Ok(kernel) => kernel,
        Err(why) => return skip(&why),
    };
    let folder = tempfile::TempDir::new().unwrap();
    let archive = folder.path().join("initramfs");
    std::fs::write(&archive, initramfs::build(Arch::X86_64, &init(), &[]).unwrap()).unwrap();
    let lines = boot(&kernel.boot_image(), &archive);
    let seen = Seen::read(&lines);

    let [alone, flooded] = seen.wall_ns.each_ref().map(|w| mean(w));
    println!("a packet took {alone:.0} ns alone, {flooded:.0} ns in the flood");
    println!(
        "{} softirqs on top of others alone, {} in the flood",
        seen.softirqs[0], seen.softirqs[1]
    );
    // Otherwise there was no flood, and nothing is shown.
    assert!(flooded > 1.2 * alone, "the flood did not delay the sender");
    assert!(
        seen.softirqs[1] > seen.softirqs[0] + u64::from(BLOCKS * PACKETS / 10),
        "softirqs seldom interrupted anything"
    );

    let pairs: Vec<Pair> = seen.functions.values().cloned().collect();
    let judged = judge(&pairs);
    println!(
        "{:<26} {:>10} {:>10} {:>7} {:>18} {:>12}",
        "function", "alone", "flooded", "off by", "95 % of the ratio", "interrupted"
    );
    for (name, of) in seen.functions.keys().zip(&judged) {
        let ratio = of.ratio.unwrap();
        println!(
            "{name:<26} {:>10.2} {:>10.2} {:>7.2} {:>18} {:>5} {:>6}",
            of.before,
            of.after,
            of.after - of.before,
            format!("{:.4}..{:.4}", ratio.low, ratio.high),
            seen.interruptions[name][0],
            seen.interruptions[name][1],
        );
    }
    assert!(judged.len() >= MIN_FUNCTIONS, "only {}", judged.len());
    let of_allocator = seen.functions.keys().zip(&judged).find(|(name, _)| *name == ALLOCATOR);
    let (_, allocator) = of_allocator.unwrap();
    let slower = (allocator.after - allocator.before).clamp(0.0, SLOWER_INSNS);
    for (name, of) in seen.functions.keys().zip(&judged) {
        let slower = if WITH_ALLOCATIONS.contains(&name.as_str()) { slower } else { 0.0 };
        let [before, after] = seen.interruptions[name];
        let calls = f64::from(BLOCKS * PACKETS);
        let ways_in = INTO_HANDLER_INSNS * after.saturating_sub(before) as f64 / calls;
        // The certain part of a difference is no more than the ways into handlers and the allocator explain.
        let ratio = of.ratio.unwrap();
        let certain = (ratio.low - 1.0).max(1.0 - ratio.high).max(0.0) * of.before;
        let is_explained = !of.verdict.differs() || certain <= ways_in + slower;
        assert!(is_explained, "{name}: {of:?}");
        let off_by = (of.after - of.before - slower).abs();
        let bound = BOUND_INSNS.max(BOUND_SHARE * of.before);
        assert!(off_by <= bound, "{name} is off by {off_by}: {of:?}");
        // A softirq that was not cut out of a single call is in the longest.
        let [alone, flooded] = seen.longest_ns[name];
        assert!(
            flooded <= alone + LONGEST_INSNS,
            "the longest call of {name} took {alone} ns alone, {flooded} ns in the flood"
        );
    }
    assert_eq!(seen.negative, 0, "times that an interrupt made negative");
    // They were really interrupted, over and above the softirq that receives their packet.
    let [alone, flooded] = seen.interruptions["__x64_sys_sendto"];
    assert!(flooded > alone + 100, "{alone} and {flooded} interruptions");
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The guest's results: pairs of figures, alone and in the flood.
#[derive(Debug, Default)]
struct Seen {
    /// Time of a packet, by block.
    wall_ns: [Vec<f64>; 2],
    softirqs: [u64; 2],
    /// By name, the corrected time of a call, by block.
    functions: BTreeMap<String, Pair>,
    interruptions: BTreeMap<String, [u64; 2]>,
    /// The longest call of each function, uncorrected.
    longest_ns: BTreeMap<String, [u64; 2]>,
    /// Times that were read as less than nothing.
    negative: u64,
}

impl Seen {
    fn read(lines: &[String]) -> Seen {
        let mut seen = Seen::default();
        for line in lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["block", arm, wall_ns, softirqs] => {
                    let arm: usize = arm.parse().unwrap();
                    seen.wall_ns[arm].push(wall_ns.parse().unwrap());
                    seen.softirqs[arm] += softirqs.parse::<u64>().unwrap();
                }
                ["function", arm, name, per_call, interruptions, longest_ns] => {
                    let arm: usize = arm.parse().unwrap();
                    let pair = seen.functions.entry((*name).into()).or_default();
                    let side = match arm {
                        0 => &mut pair.before,
                        _ => &mut pair.after,
                    };
                    side.push(per_call.parse().unwrap());
                    let sum = seen.interruptions.entry((*name).into()).or_default();
                    sum[arm] += interruptions.parse::<u64>().unwrap();
                    let longest = seen.longest_ns.entry((*name).into()).or_default();
                    longest[arm] = longest[arm].max(longest_ns.parse().unwrap());
                }
                ["negative", count] => seen.negative += count.parse::<u64>().unwrap(),
                _ => println!("{line}"),
            }
        }
        seen
    }
}

/// This program without what a debugger would like to know.
fn init() -> Vec<u8> {
    let built = std::env::current_exe().unwrap();
    let stripped = Path::new(env!("CARGO_TARGET_TMPDIR")).join("flood-init");
    let mut strip = Command::new("strip");
    let status = strip.arg("-o").arg(&stripped).arg(&built).status();
    let from = match status.is_ok_and(|s| s.success()) {
        true => &stripped,
        false => &built,
    };
    std::fs::read(from).unwrap()
}

/// Boot, and return the lines that the guest prints.
fn boot(image: &Path, archive: &Path) -> Vec<String> {
    let qemu = trial::find_qemu(Arch::OWN).unwrap();
    let mut guest = Command::new(qemu)
        .args("-machine pc -accel tcg,thread=single -smp 1 -m 768".split(' '))
        .args(["-cpu", &machine::cpu_option(Arch::OWN)])
        .args("-icount shift=0,sleep=off -rtc clock=vm,base=2026-01-01 -seed 1".split(' '))
        .args("-nodefaults -display none -no-reboot -serial stdio".split(' '))
        .arg("-kernel")
        .arg(image)
        .arg("-initrd")
        .arg(archive)
        .arg("-append")
        .arg(format!("{CMDLINE} -- {TEST} --nocapture"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = guest.stdout.take().unwrap();
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim().to_string();
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut messages = Vec::new();
    let mut console = String::new();
    let complete = loop {
        let Ok(line) = lines.recv_timeout(LIMIT) else {
            break false;
        };
        match line.split_once(SAYS) {
            Some((_, END)) => break true,
            Some((_, said)) => messages.push(said.to_string()),
            None => console = console + &line + "\n",
        }
    };
    // It powers itself off; else it is stuck, and its time is up.
    let _ = guest.kill();
    guest.wait().unwrap();
    assert!(complete, "the guest stopped short. Its console:\n{console}");
    messages
}

/// The part that runs in the guest.
mod guest {
    use super::*;

    /// All of the guest's life.
    pub(super) fn run() -> ! {
        mount("proc", "/proc");
        mount("sysfs", "/sys");
        mount("tracefs", "/sys/kernel/tracing");
        measure();
        println!("{SAYS}{END}");
        let _ = std::io::stdout().flush();
        // SAFETY: neither takes memory of ours; the second ends the guest.
        unsafe {
            libc::sync();
            libc::reboot(libc::RB_POWER_OFF);
        }
        std::process::exit(1)
    }

    fn measure() {
        loopback_up();
        // Otherwise, over a short round trip, TCP sends in bursts, however slow: Linux 5.18, commit
        // 65466904b015. Before that there is no such setting.
        let _ = std::fs::write("/proc/sys/net/ipv4/tcp_tso_rtt_log", "0");
        let sender = Sender::new();
        let floods: Vec<Flood> = (0..FLOODS).map(|_| Flood::new()).collect();
        let spec = TimingSpec {
            instrument: "functions".into(),
            roles: Default::default(),
            filter: Filter::default(),
            selection: Selection {
                recorded: FUNCTIONS.iter().map(|f| (*f).into()).collect(),
                max_functions: FUNCTIONS.len() as u32,
                ..Selection::default()
            },
            mechanism: None,
            one_packet: 0,
            profile: None,
            events: None,
            spans: None,
            calls: None,
        };
        let mut live = attach(&spec, &|_, _| Some("network".into())).unwrap();
        for (name, why) in &live.attached().refused {
            println!("{SAYS}{name} is not timed: {why}");
        }
        sender.send(PACKETS);
        let mut floods = floods;
        for block in 0..2 * BLOCKS {
            let arm = (block % 2) as usize;
            if arm == 1 {
                floods.iter_mut().for_each(Flood::write);
            }
            live.open().unwrap();
            let begun = Instant::now();
            sender.send(PACKETS);
            let wall_ns = begun.elapsed().as_nanos() as f64 / f64::from(PACKETS);
            let window = live.close().unwrap();
            if arm == 1 {
                floods.iter_mut().for_each(Flood::drain);
            }
            tell(arm, wall_ns, live.attached(), &window);
        }
    }

    fn tell(arm: usize, wall_ns: f64, attached: &Attached, window: &Window) {
        for loss in &window.losses {
            println!("{SAYS}lost: {loss:?}");
            if loss.cause.contains("negative") {
                println!("{SAYS}negative {}", loss.count);
            }
        }
        let mut softirqs = 0;
        let mut sums: BTreeMap<&str, ([f64; 3], u64)> = BTreeMap::new();
        let corrected = correct(attached, window);
        for (times, corrected) in window.functions.iter().zip(corrected) {
            let node = &window.nodes[times.node as usize];
            let name = attached.functions[node.function as usize].name.as_str();
            if name == "net_rx_action" {
                softirqs += times.times.count;
            }
            // Above the function that first sees the packet no class is known yet.
            let tx = node.proto == Some(Proto::Udp) && node.direction == Direction::Tx;
            let above = node.proto.is_none() && name.contains("send");
            if node.context == Context::Task && (tx || above) {
                let (sum, longest_ns) = sums.entry(name).or_default();
                sum[0] += times.times.count as f64;
                sum[1] += corrected.corrected_ns;
                sum[2] += times.interruptions as f64;
                *longest_ns = (*longest_ns).max(times.times.max_ns);
            }
        }
        println!("{SAYS}block {arm} {wall_ns} {softirqs}");
        for (name, ([calls, ns, interruptions], longest_ns)) in sums {
            // A call or two may have been lost.
            if calls > 0.9 * f64::from(PACKETS) {
                let per_call = ns / calls;
                println!("{SAYS}function {arm} {name} {per_call} {interruptions} {longest_ns}");
            }
        }
    }

    /// Two sockets and what goes between them.
    struct Sender {
        tx: UdpSocket,
        rx: UdpSocket,
    }

    impl Sender {
        fn new() -> Sender {
            let tx = UdpSocket::bind("127.0.0.1:40001").unwrap();
            let rx = UdpSocket::bind("127.0.0.1:40002").unwrap();
            tx.connect(rx.local_addr().unwrap()).unwrap();
            Sender { tx, rx }
        }

        fn send(&self, packets: u32) {
            for _ in 0..packets {
                self.tx.send(&[0; 10]).unwrap();
                self.rx.recv(&mut [0; 64]).unwrap();
            }
        }
    }

    /// A connection that is paced.
    struct Flood {
        tx: TcpStream,
        rx: TcpStream,
        /// Written and not read yet.
        under_way: usize,
    }

    impl Flood {
        fn new() -> Flood {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let room = 4 * WRITTEN as libc::c_int;
            set(&listener, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, room);
            // Both ends must know it when they connect.
            set(&listener, libc::IPPROTO_TCP, libc::TCP_MAXSEG, SEGMENT);
            let tx = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (rx, _) = listener.accept().unwrap();
            set(&tx, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, room);
            let pace = PACE_BYTES_S as libc::c_int;
            set(&tx, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, pace);
            tx.set_nodelay(true).unwrap();
            Flood { tx, rx, under_way: 0 }
        }

        fn write(&mut self) {
            self.tx.write_all(&vec![0; WRITTEN]).unwrap();
            self.under_way += WRITTEN;
        }

        fn drain(&mut self) {
            let mut all = vec![0; self.under_way];
            self.rx.read_exact(&mut all).unwrap();
            self.under_way = 0;
        }
    }

    fn set(socket: &impl AsRawFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) {
        // SAFETY: a number that outlives the call, with its size.
        let done = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                level,
                name,
                (&raw const value).cast(),
                size_of_val(&value) as libc::socklen_t,
            )
        };
        let error = std::io::Error::last_os_error();
        assert_eq!(done, 0, "socket option {level}/{name}: {error}");
    }

    fn mount(kind: &str, at: &str) {
        let _ = std::fs::create_dir_all(at);
        let text = |s: &str| std::ffi::CString::new(s).unwrap();
        let (kind, place) = (text(kind), text(at));
        // SAFETY: three strings that outlive the call, and no data. The kernel may have
        // mounted it already.
        unsafe { libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
    }

    fn loopback_up() {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        // SAFETY: zeroes are a valid request, which outlives the call, and the kernel
        // knows its size.
        let done = unsafe {
            let mut request: libc::ifreq = std::mem::zeroed();
            request.ifr_name[0] = b'l' as libc::c_char;
            request.ifr_name[1] = b'o' as libc::c_char;
            request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
            libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request)
        };
        assert_eq!(done, 0, "lo can't be set up");
    }
}
