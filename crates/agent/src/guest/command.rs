//! A command in the guest: in its namespace, with its peer at the other end, between the markers of
//! its window.
//!
//! Its output is kept until it has exited: sending it to the host earlier would be measured.
//! Processes that it leaves running are killed before the next run.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use netplumb_instruments::live::Live;
use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_kernel::path_rules::PathRules;
use netplumb_lab::vm::bulk;
use netplumb_lab::vm::disk::Standing;
use netplumb_model::message::{CommandEnd, CommandPlan, Exit, Output, Refused, Reply, TimedBlock};
use netplumb_model::quantity::Figure;
use netplumb_model::recording::Ledger;
use netplumb_model::symbol::is_part;
use netplumb_model::timing::BUSY;
use netplumb_sys::netns;
use netplumb_sys::proc::sockets;
use netplumb_workload::ends::Ends;
use netplumb_workload::mark::{self, Counting, mark};

use super::disk::{self, Faults};
use super::furnish;
use super::live::refused;
use super::reads::{Opened, Shared};
use crate::outside::Cpus;

/// Maximum time for the peer to open a socket, in guest time.
const PEER_PATIENCE: Duration = Duration::from_secs(1);
const PEER_POLL: Duration = Duration::from_millis(5);
/// The maximum size of a pipe, so that its reader rarely wakes up.
const PIPE_BYTES: libc::c_int = 1 << 20;
/// Polling interval without a pidfd.
const POLL_MS: libc::c_int = 10;
/// Maximum number of processes left running to list.
const MAX_LEFT: usize = 20;
/// Maximum output of a peer, which only shows why it failed.
const PEER_OUTPUT_BYTES: u64 = 64 << 10;

/// Unpack the files that came with the guest.
pub(super) fn unpack(modules: &[String]) -> Result<(), String> {
    bulk::unpack(Path::new("/"), modules)
        .map_err(|e| format!("the command's files could not be unpacked: {e}"))
}

/// Send the vDSO.
pub(super) fn vdso(reply: &mut dyn FnMut(Reply) -> io::Result<()>) -> Result<(), Refused> {
    let code = own_vdso().unwrap_or_default();
    Ok(reply(Reply::Chunk(code))?)
}

fn own_vdso() -> io::Result<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let maps = fs::read_to_string("/proc/self/maps")?;
    let line = maps.lines().find(|l| l.ends_with("[vdso]"));
    let range =
        line.and_then(|l| l.split_whitespace().next()?.split_once('-')).and_then(|(from, to)| {
            let number = |text| u64::from_str_radix(text, 16).ok();
            Some((number(from)?, number(to)?))
        });
    let Some((from, to)) = range else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let mut code = vec![0; (to - from) as usize];
    File::open("/proc/self/mem")?.read_exact_at(&mut code, from)?;
    Ok(code)
}

/// Run it the requested number of times, in windows of the plugin or of an instrument that measures
/// time.
pub(super) fn run(
    plan: &CommandPlan,
    ends: &Ends,
    mut instrument: Option<&mut (dyn Live + 'static)>,
    port: Option<&OwnedFd>,
    reply: &mut dyn FnMut(Reply) -> io::Result<()>,
) -> Result<(), Refused> {
    furnish::furnish(plan, ends).map_err(|e| format!("prepare the guest for a command: {e}"))?;
    let disk = disk::set_up(plan, ends)?;
    ends.warm(plan.warmup).map_err(|e| {
        format!("connect over the guest's loopback device before the command (--warmup 0 does without): {e}")
    })?;
    let _counting = instrument.is_none().then(|| {
        mark::<{ mark::USER }>();
        if let Some((from, to)) = plan.watch.or_else(own_watch) {
            mark::watch(from, to);
        }
        Counting::begin()
    });
    // Sent afterwards, as with packets, so as not to disturb the next block.
    let mut replies = Vec::new();
    let mut failed = None;
    for index in 0..plan.blocks {
        match one(index, (plan, ends, disk.as_ref()), instrument.as_deref_mut(), port, &mut replies)
        {
            Ok(true) => {}
            Ok(false) => break,
            Err(why) => {
                failed = Some(why);
                break;
            }
        }
    }
    for answer in replies {
        reply(answer).map_err(|e| e.to_string())?;
    }
    failed.map_or(Ok(()), Err)
}

/// Address range in which this kernel prepares the stacks of new tasks, for a host that does not
/// have its symbols yet.
fn own_watch() -> Option<(u64, u64)> {
    let symbols = SymbolTable::parse(&fs::read("/proc/kallsyms").ok()?).ok()?;
    watched(&symbols)
}

/// Where the kernel prepares the stacks of new tasks.
pub fn watched(symbols: &SymbolTable) -> Option<(u64, u64)> {
    let rules = PathRules::built_in();
    let mut all = symbols.symbols().iter();
    let symbol = all.find(|s| rules.role(&s.name).new_task && !is_part(&s.name))?;
    Some((symbol.addr, symbol.addr + symbol.size))
}

/// Run a block; returns whether another one may follow.
fn one(
    index: u32,
    (plan, ends, disk): (&CommandPlan, &Ends, Option<&Standing>),
    mut instrument: Option<&mut (dyn Live + 'static)>,
    port: Option<&OwnedFd>,
    replies: &mut Vec<Reply>,
) -> Result<bool, Refused> {
    let doing = |what: &'static str| move |e: io::Error| format!("{what}: {e}");
    let mut peer = match &plan.peer {
        Some((program, words)) => {
            let peer = Started::new(plan, ends, program, words, false, PEER_OUTPUT_BYTES);
            Some(peer.map_err(|e| format!("start the peer `{}`: {e}", words.join(" ")))?)
        }
        None => None,
    };
    let peer_ready = match &mut peer {
        Some(peer) => await_socket(peer, ends).map_err(doing("wait for the peer"))?,
        None => true,
    };
    if plan.setup.drop_caches {
        disk::drop_caches().map_err(doing("drop the caches of files"))?;
    }
    // Settings that the run before has changed.
    if let Some(disk) = disk.filter(|_| index > 0) {
        disk.before_open()?;
    }
    // Finding and opening the file reads its disk, too, and is not the reader's work.
    let reader = match &plan.reads {
        Some(file) => Some(Opened::open(file, disk)?),
        None => None,
    };
    let done_before = disk.and_then(Standing::done);
    let cpus = instrument.as_ref().and_then(|_| Cpus::read());
    if let Some(instrument) = &mut instrument {
        instrument.open().map_err(refused)?;
    }
    let began = Instant::now();
    let mut command = match reader {
        Some(reader) => Started::reader(reader.start(ends)?),
        None => Started::new(plan, ends, &plan.program, &plan.words, true, plan.output_bytes)
            .map_err(|e| format!("start `{}`: {e}", plan.words.join(" ")))?,
    };
    let stopped = loop {
        let every = instrument.as_ref().and_then(|i| i.polled_every());
        match await_end(command.pid, port, every).map_err(doing("wait for the command"))? {
            Woken::Ended => break false,
            Woken::StopRequested => break true,
            Woken::Time => {}
        }
        if let Some(instrument) = &mut instrument {
            instrument.poll().map_err(|e| e.to_string())?;
        }
    };
    // A reader closes its window itself, unless it was stopped.
    if plan.reads.is_none() || stopped {
        mark::<{ mark::WINDOW_END }>();
    }
    let took = began.elapsed();
    // Before anything is killed: that is not the command's work.
    if let Some(instrument) = &mut instrument {
        let window = instrument.close().map_err(|e| e.to_string())?;
        let busy = cpus.and_then(|cpus| cpus.busy_since());
        replies.push(Reply::TimedBlock(Box::new(TimedBlock {
            index,
            ledger: Ledger::default(),
            duration_ns: match window.duration_ns {
                0 => took.as_nanos() as u64,
                own => own,
            },
            figures: busy.map(|busy| Figure::new(&BUSY, busy)).into_iter().collect(),
            window: Some(window),
        })));
    }

    let (exit, faults) = match stopped {
        true => (Exit::Signal(libc::SIGKILL), Faults::default()),
        false => reap(command.pid)
            .ok_or_else(|| "the exit of the command was not observed".to_string())?,
    };
    let (faults, took_ns) = match command.shared.take() {
        Some(shared) => {
            let left = shared.left();
            if index == 0 || left.errno != 0 {
                replies.push(Reply::Output(left.output(), left.said().into_bytes()));
            }
            (left.faults(), left.took_ns)
        }
        None => (faults, took.as_nanos() as u64),
    };
    let figures = match disk {
        Some(disk) => {
            let done = done_before.and_then(|before| Some(disk.done()?.since(before)));
            disk::figures(done, faults, took_ns)
        }
        None => Vec::new(),
    };
    let peer_exit = peer.as_ref().and_then(|p| reap_if_ended(p.pid));
    let left = left_behind(command.pid, peer.as_ref().map(|p| p.pid));
    // All processes but init. SAFETY: kill takes numbers.
    unsafe { libc::kill(-1, libc::SIGKILL) };
    reap_all();
    let mut unkept_bytes = 0;
    let parts = [(Output::Stdout, command.stdout), (Output::Stderr, command.stderr)];
    let of_peer = peer.map(|p| [(Output::Peer, p.stdout), (Output::Peer, p.stderr)]);
    for (output, reader) in parts.into_iter().chain(of_peer.into_iter().flatten()) {
        let Some(Ok(kept)) = reader.map(JoinHandle::join) else {
            continue;
        };
        if output != Output::Peer {
            unkept_bytes += kept.unkept_bytes;
        }
        // The output of later blocks is the same.
        if index == 0 {
            for chunk in kept.bytes.chunks(netplumb_lab::channel::CHUNK_BYTES) {
                replies.push(Reply::Output(output, chunk.to_vec()));
            }
        }
    }
    replies.push(Reply::Ended(CommandEnd {
        index,
        exit,
        stopped,
        peer: peer_exit,
        peer_ready,
        figures,
        left,
        unkept_bytes,
    }));
    Ok(!stopped)
}

/// A process and its output.
struct Started {
    pid: libc::pid_t,
    stdout: Option<JoinHandle<KeptOutput>>,
    stderr: Option<JoinHandle<KeptOutput>>,
    /// Results that a reader leaves in shared memory.
    shared: Option<Shared>,
}

struct KeptOutput {
    bytes: Vec<u8>,
    unkept_bytes: u64,
}

impl Started {
    /// A reader, which writes nothing.
    fn reader((pid, shared): (libc::pid_t, Shared)) -> Started {
        Started { pid, stdout: None, stderr: None, shared: Some(shared) }
    }

    fn new(
        plan: &CommandPlan,
        ends: &Ends,
        program: &str,
        words: &[String],
        measured: bool,
        keep_bytes: u64,
    ) -> io::Result<Started> {
        let (namespace, own, other) = match measured {
            true => (&ends.tx_namespace, ends.tx_address, ends.rx_address),
            false => (&ends.rx_namespace, ends.rx_address, ends.tx_address),
        };
        let namespace = namespace.as_raw_fd();
        let (stdout, stdout_end) = pipe()?;
        let (stderr, stderr_end) = pipe()?;
        let stdout = keep(stdout, keep_bytes);
        let stderr = keep(stderr, keep_bytes);
        let mut command = Command::new(program);
        if let Some((name, rest)) = words.split_first() {
            command.arg0(name).args(rest);
        }
        command
            .current_dir(&plan.folder)
            .env_clear()
            .env("PATH", disk::PATH)
            .env("HOME", "/root")
            .env("LANG", "C")
            // Makes the order of hashes the same in every run.
            .env("PYTHONHASHSEED", "0")
            .env("PLUMB_SELF", own.to_string())
            .env("PLUMB_PEER", other.to_string())
            .stdin(match plan.stdin.as_ref().filter(|_| measured) {
                Some(path) => Stdio::from(File::open(path)?),
                None => Stdio::null(),
            })
            .stdout(Stdio::from(stdout_end))
            .stderr(Stdio::from(stderr_end));
        // SAFETY: the closure makes system calls only, and allocates nothing; the namespace
        // is held open until the command is started.
        unsafe {
            command.pre_exec(move || {
                netns::enter(BorrowedFd::borrow_raw(namespace))?;
                libc::setsid();
                if measured {
                    mark::<{ mark::RUN_BEGIN }>();
                }
                Ok(())
            });
        }
        let child = command.spawn()?;
        Ok(Started {
            pid: child.id() as libc::pid_t,
            stdout: Some(stdout),
            stderr: Some(stderr),
            shared: None,
        })
    }
}

fn pipe() -> io::Result<(File, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both are new and nobody else's.
    let (read, write) = unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) };
    // SAFETY: a descriptor of ours and a number; a smaller pipe works, too.
    unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES) };
    Ok((File::from(read), write))
}

/// Read a pipe until its other end is closed.
fn keep(mut pipe: File, limit_bytes: u64) -> JoinHandle<KeptOutput> {
    thread::spawn(move || {
        let mut kept = KeptOutput { bytes: Vec::new(), unkept_bytes: 0 };
        let mut chunk = vec![0; 64 << 10];
        loop {
            match pipe.read(&mut chunk) {
                Ok(0) => return kept,
                Ok(n) => {
                    let room = limit_bytes.saturating_sub(kept.bytes.len() as u64);
                    let fits = n.min(room as usize);
                    kept.bytes.extend_from_slice(&chunk[..fits]);
                    kept.unkept_bytes += (n - fits) as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return kept,
            }
        }
    })
}

/// Wait until the peer has opened a socket to receive from; returns whether it has.
fn await_socket(peer: &mut Started, ends: &Ends) -> io::Result<bool> {
    use std::os::fd::AsFd;
    let began = Instant::now();
    while began.elapsed() < PEER_PATIENCE {
        let open = netns::inside(ends.rx_namespace.as_fd(), || Ok(sockets::any_open()))?;
        if open {
            return Ok(true);
        }
        if has_ended(peer.pid) {
            return Ok(false);
        }
        thread::sleep(PEER_POLL);
    }
    Ok(false)
}

/// Why waiting for a process ended.
enum Woken {
    /// It has exited.
    Ended,
    /// The host asked to stop.
    StopRequested,
    /// The time is over.
    Time,
}

/// Wait for a process to exit, or for a stop request, for some time at most.
fn await_end(
    pid: libc::pid_t,
    port: Option<&OwnedFd>,
    most: Option<Duration>,
) -> io::Result<Woken> {
    // SAFETY: the call takes numbers, and returns a new descriptor, or none.
    let process = unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0) as i32;
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))
    };
    let of =
        |fd: Option<i32>| libc::pollfd { fd: fd.unwrap_or(-1), events: libc::POLLIN, revents: 0 };
    let most_ms = most.map(|most| most.as_millis() as libc::c_int);
    // Before 5.3 there is no pidfd: poll.
    let wait_ms = match process.is_some() {
        true => most_ms.unwrap_or(-1),
        false => POLL_MS,
    };
    loop {
        let mut fds =
            [of(process.as_ref().map(AsRawFd::as_raw_fd)), of(port.map(AsRawFd::as_raw_fd))];
        // SAFETY: the array is ours, and has this length.
        let n = unsafe { libc::poll(fds.as_mut_ptr(), 2, wait_ms) };
        if n < 0 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        if fds[0].revents != 0 || (process.is_none() && has_ended(pid)) {
            return Ok(Woken::Ended);
        }
        if fds[1].revents != 0 {
            return Ok(Woken::StopRequested);
        }
        if n == 0 && most.is_some() {
            return Ok(Woken::Time);
        }
    }
}

/// Whether a process has exited; it can still be waited for.
fn has_ended(pid: libc::pid_t) -> bool {
    // SAFETY: an all-zero siginfo is a valid value to be filled in, and it is ours.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        libc::waitid(libc::P_PID, pid as libc::id_t, &mut info, flags) == 0 && info.si_pid() == pid
    }
}

fn reap(pid: libc::pid_t) -> Option<(Exit, Faults)> {
    let mut status = 0;
    // SAFETY: an all-zero rusage is a valid value to be filled in; it and the status are ours.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        if libc::wait4(pid, &mut status, 0, &mut usage) != pid {
            return None;
        }
        usage
    };
    let status = ExitStatus::from_raw(status);
    let exit = status.code().map(Exit::Code).or_else(|| status.signal().map(Exit::Signal));
    Some((exit?, Faults::from_rusage(&usage)))
}

fn reap_if_ended(pid: libc::pid_t) -> Option<Exit> {
    let ended = has_ended(pid).then(|| reap(pid)).flatten();
    ended.map(|(exit, _)| exit)
}

/// Reap all children, including orphans.
fn reap_all() {
    // SAFETY: no status is asked for.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::__WALL) } > 0 {}
}

/// Names of processes other than init, kernel threads, the peer and the command itself.
fn left_behind(command: libc::pid_t, peer: Option<libc::pid_t>) -> Vec<String> {
    let mut left = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<libc::pid_t>() else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // pid (name) state parent group session ...; the name may hold anything.
        let Some((head, tail)) = stat.rsplit_once(')') else {
            continue;
        };
        let fields: Vec<&str> = tail.split_whitespace().collect();
        let number = |n: usize| fields.get(n).and_then(|f| f.parse::<libc::pid_t>().ok());
        let (state, parent, session) = (fields.first(), number(1), number(3));
        const KTHREADD: libc::pid_t = 2;
        let ours = pid == 1 || pid == command || pid == KTHREADD || parent == Some(KTHREADD);
        if ours || state == Some(&"Z") || (peer.is_some() && session == peer) {
            continue;
        }
        let name = head.split_once('(').map_or("?", |(_, name)| name);
        if left.len() < MAX_LEFT {
            left.push(name.to_string());
        }
    }
    left
}
