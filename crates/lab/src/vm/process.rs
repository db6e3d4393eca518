//! A running guest: start, communication, and cleanup in every case.
//!
//! It leaves nothing on disk. The initramfs is a memfd and the ports are socket pairs, all
//! inherited; QEMU gets SIGKILL when the thread that started it ends, for any reason. So there is
//! nothing to clean up.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use netplumb_model::message::{MAX_ALL_FACTS, PROTOCOL_VERSION, Refused, Reply, Request};
use netplumb_sys::cpus;
use netplumb_sys::memory::memfd;

use super::confine::Confinement;
use super::console::{Tail, lines};
use super::deadline::Deadline;
use super::error::Doing;
use super::machine::{Inherited, Machine, Memory};
use super::qmp::Qmp;
use super::rest::RESTS;
use super::saved::Saved;
use super::trial::{self, QemuMissing};
use crate::cancel::Cancel;
use crate::channel::{self, Decoder};

pub(super) const POLL: Duration = Duration::from_millis(50);
/// Messages of a guest that are buffered: with more, it waits until they are read.
const EVENTS: usize = 16;
/// A guest's symbols, the largest file that is asked for, are 15 MiB.
const MAX_FILE_BYTES: usize = 256 << 20;

pub use super::error::VmError;

/// A running guest.
#[derive(Debug)]
pub struct Guest {
    pub(super) child: Child,
    events: Receiver<Event>,
    pub(super) ports: Vec<UnixStream>,
    pub(super) agent: Option<usize>,
    pub(super) control: Option<Qmp>,
    /// Devices to hot-plug before it resumes.
    late_devices: Vec<serde_json::Value>,
    /// The requests that it was started with, if it can't read them itself.
    requests: VecDeque<Vec<u8>>,
    pub(super) resting: bool,
    /// Whether it has ever paused.
    pub(super) rested: bool,
    console: Arc<Mutex<Tail>>,
    stderr: Arc<Mutex<Tail>>,
    /// Timeout of QEMU for everything except running the guest.
    pub(super) limit: Duration,
    pub(super) cancel: Cancel,
}

#[derive(Debug)]
enum Event {
    Reply(usize, Reply),
    /// A message that can't be read, and why.
    Unread(io::Error),
    Closed,
}

/// Additions to the machine: a plugin and what it needs.
#[derive(Debug, Default)]
pub struct Extra {
    /// Arguments of QEMU.
    pub args: Vec<String>,
    /// Descriptors that these refer to; closed here once QEMU has them.
    pub fds: Vec<OwnedFd>,
    /// The one CPU for QEMU to run on; any, if none is given.
    pub cpu: Option<u32>,
}

impl Extra {
    /// With the arguments and descriptors of another; the CPU stays.
    #[must_use]
    pub fn and(mut self, more: Extra) -> Extra {
        self.args.extend(more.args);
        self.fds.extend(more.fds);
        self
    }
}

/// How a guest starts.
#[derive(Debug, Clone, Copy)]
pub enum Start<'a> {
    /// By booting its kernel.
    Boot {
        /// The initramfs to boot with.
        initramfs: &'a [u8],
        /// The file for its memory, if it will be saved.
        memory: Option<&'a File>,
    },
    /// From the saved state of another guest.
    Saved {
        /// That state.
        state: &'a Saved,
        /// A copy of its memory to use, if this guest will be saved, too.
        memory: Option<&'a File>,
    },
}

/// Requests, framed as by [`channel::send`]: for after the first pause, and after the second.
pub type Requests<'a> = [&'a [u8]; RESTS];

impl Guest {
    /// Start a guest. To be called from a thread that outlives it. After each pause it carries out
    /// its `requests`, and replies as if they had come by its port. `limit` is the timeout of
    /// QEMU's start and of each command to it.
    ///
    /// # Errors
    /// QEMU is missing, could not be run or does not respond.
    pub fn start(
        machine: &Machine,
        from: Start<'_>,
        requests: Requests<'_>,
        extra: Extra,
        limit: Duration,
        cancel: Cancel,
    ) -> Result<Guest, VmError> {
        let (initramfs, memory, state): (&[u8], _, _) = match from {
            Start::Boot { initramfs, memory } => (initramfs, memory, None),
            Start::Saved { state, memory } => (&[], memory, Some(state)),
        };
        let initramfs = memfd("netplumb-initramfs", initramfs).doing("hold the initramfs")?;
        let [first, second] =
            requests.map(|frames| memfd("netplumb-requests", frames).doing("hold the requests"));
        let frames = [first?, second?];
        let pair = || UnixStream::pair().doing("make a socket pair");
        let (console, console_peer) = pair()?;
        let (fallback, fallback_peer) = pair()?;
        let (agent, agent_peer) = pair()?;
        let (control, control_peer) = pair()?;
        let devices = match state {
            Some(state) => Some(
                memfd("netplumb-devices", &state.devices)
                    .and_then(rewound)
                    .doing("hold the devices")?,
            ),
            None => None,
        };
        let fds = Inherited {
            initramfs: initramfs.as_raw_fd(),
            console: console_peer.as_raw_fd(),
            fallback: fallback_peer.as_raw_fd(),
            agent: agent_peer.as_raw_fd(),
            control: control_peer.as_raw_fd(),
            requests: [frames[0].as_raw_fd(), frames[1].as_raw_fd()],
            memory: match (memory, state) {
                (Some(file), _) => Memory::Shared(file.as_raw_fd()),
                (None, Some(state)) => Memory::Private(state.memory.as_raw_fd()),
                (None, None) => Memory::Own,
            },
            incoming: state.is_some(),
        };
        let mut inherited = vec![fds.initramfs, fds.console, fds.fallback, fds.agent, fds.control];
        inherited.extend(fds.requests);
        inherited.extend(match fds.memory {
            Memory::Own => None,
            Memory::Shared(fd) | Memory::Private(fd) => Some(fd),
        });
        inherited.extend(devices.as_ref().map(AsRawFd::as_raw_fd));
        inherited.extend(extra.fds.iter().map(AsRawFd::as_raw_fd));

        let mut command = Command::new(&machine.qemu);
        command
            .args(machine.qemu_args(fds, &extra.args))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // A process group of its own: Ctrl-C is handled by plumb.
            .process_group(0);
        let (parent, cpu) = (std::process::id(), extra.cpu);
        let confinement = Confinement::wanted();
        if confinement.is_some() {
            command.args(Confinement::args());
        }
        // SAFETY: the closure makes system calls only, and allocates nothing.
        unsafe {
            command.pre_exec(move || {
                // First: it may reset what follows.
                if let Some(confinement) = &confinement {
                    confinement.enter()?;
                }
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(io::Error::last_os_error());
                }
                // The parent may have died before the line above.
                if libc::getppid() as u32 != parent {
                    libc::raise(libc::SIGKILL);
                }
                for fd in &inherited {
                    if libc::fcntl(*fd, libc::F_SETFD, 0) != 0 {
                        return Err(io::Error::last_os_error());
                    }
                }
                // A CPU that went offline meanwhile is not a reason to fail.
                if let Some(cpu) = cpu {
                    let _ = cpus::pin(0, cpu);
                }
                Ok(())
            });
        }
        let mut child = command.spawn().map_err(|source| {
            let qemu = machine.qemu.clone();
            match source.raw_os_error() {
                Some(libc::ENOENT) => VmError::QemuMissing(QemuMissing::Named(qemu)),
                Some(libc::EACCES | libc::ENOEXEC | libc::ENOTDIR) => {
                    VmError::QemuMissing(QemuMissing::NotQemu(qemu, source.to_string()))
                }
                // Too little memory, or too many processes.
                _ => VmError::Host { what: "start QEMU", source },
            }
        })?;
        let deadline = &Deadline::new(child.id(), limit);
        // QEMU has the peers and the extra descriptors now.
        drop((console_peer, fallback_peer, agent_peer, control_peer));
        drop((extra.fds, initramfs, frames));

        let console_tail = Tail::follow(console);
        let stderr_tail = match child.stderr.take() {
            Some(stderr) => Tail::follow(stderr),
            None => Arc::default(),
        };
        let (sender, events) = sync_channel(EVENTS);
        let ports = vec![agent, fallback];
        let mut guest = Guest {
            child,
            events,
            ports: Vec::new(),
            agent: None,
            control: None,
            late_devices: machine.late_devices(),
            requests: requests.iter().map(|frames| frames.to_vec()).collect(),
            resting: false,
            rested: false,
            console: console_tail,
            stderr: stderr_tail,
            limit,
            cancel,
        };
        for (n, port) in ports.into_iter().enumerate() {
            let reader = port.try_clone().doing("hold a port")?;
            follow(n, reader, sender.clone());
            guest.ports.push(port);
        }
        match Qmp::open(control, deadline, &guest.cancel) {
            Ok(control) => guest.control = Some(control),
            Err(error) => {
                let error = guest.control_failed(error);
                return Err(not_qemu(&machine.qemu, limit, &guest.cancel, error));
            }
        }
        if let (Some(state), Some(devices)) = (state, &devices) {
            guest.load(state, devices.as_raw_fd(), deadline)?;
        }
        Ok(guest)
    }

    /// Wait until the agent is ready and the guest has paused, if it can: see [`Guest::rests`]. A
    /// guest from a saved state is paused from the start.
    ///
    /// # Errors
    /// The guest ended, in any way.
    pub fn wait_ready(&mut self, limit: Duration) -> Result<(), VmError> {
        if self.resting {
            return Ok(());
        }
        let deadline = &self.deadline(limit);
        let rests = loop {
            match self.event(deadline, "start its agent", limit)? {
                (port, Reply::Hello { protocol, rests }) if protocol == PROTOCOL_VERSION => {
                    self.agent = Some(port);
                    break rests;
                }
                (_, Reply::Hello { protocol, .. }) => return Err(VmError::Protocol(protocol)),
                (_, Reply::NotLoaded(refused)) => return Err(VmError::NotLoaded(refused)),
                (_, Reply::Failed(why)) => return Err(self.failed(why)),
                _ => {}
            }
        };
        if rests { self.wait_rest(deadline, limit) } else { Ok(()) }
    }

    /// Wait until a guest has paused on request; returns at once if it can't.
    ///
    /// # Errors
    /// The guest ended, in any way.
    pub fn wait_again(&mut self, limit: Duration) -> Result<(), VmError> {
        if self.rested { self.wait_rest(&self.deadline(limit), limit) } else { Ok(()) }
    }

    fn wait_rest(&mut self, deadline: &Deadline, limit: Duration) -> Result<(), VmError> {
        while !self.resting {
            let stopped = match &mut self.control {
                Some(control) => control.event("STOP"),
                None => Ok(true),
            };
            match stopped {
                Ok(stopped) => (self.resting, self.rested) = (stopped, stopped),
                Err(error) => return Err(self.control_failed(error)),
            }
            if self.cancel.load(Ordering::Relaxed) {
                return Err(VmError::Interrupted);
            }
            if deadline.is_over() {
                return Err(self.late("come to rest", limit));
            }
        }
        Ok(())
    }

    /// Whether the guest is paused. If its kernel gives its agent no access to ports, it never is,
    /// and can't be saved.
    pub fn rests(&self) -> bool {
        self.resting
    }

    /// Resume it: its late devices are plugged in, and it carries out its requests.
    ///
    /// # Errors
    /// QEMU would not.
    pub fn go_on(&mut self) -> Result<(), VmError> {
        let deadline = &self.deadline(self.limit);
        for device in std::mem::take(&mut self.late_devices) {
            self.control("device_add", device, deadline)?;
        }
        if self.resting {
            // Discard earlier events about stops.
            self.control("query-status", serde_json::json!({}), deadline)?;
            if let Some(control) = &mut self.control {
                control.forget_events();
            }
            self.control("cont", serde_json::json!({}), deadline)?;
            self.resting = false;
            return Ok(());
        }
        let port = self.agent.unwrap_or(0);
        let requests = self.requests.pop_front().unwrap_or_default();
        self.ports[port].write_all(&requests).doing("speak to the guest")
    }

    /// The port that the agent uses.
    pub fn port(&self) -> usize {
        self.agent.unwrap_or(0)
    }

    /// Send a request to the agent, and process its replies up to the last.
    ///
    /// # Errors
    /// The request failed, or the guest ended.
    pub fn ask(
        &mut self,
        request: &Request,
        limit: Duration,
        each: impl FnMut(Reply) -> io::Result<()>,
    ) -> Result<(), VmError> {
        if let Err(closed) = self.tell(request) {
            // The guest's exit is more informative than a closed port.
            return match self.event(&self.deadline(20 * POLL), "answer", limit) {
                Err(ended) if !ended.is_silence() => Err(ended),
                _ => Err(closed),
            };
        }
        self.answers(limit, each)
    }

    /// Process the replies to an earlier request, up to the last.
    ///
    /// # Errors
    /// The request failed, or the guest ended.
    pub fn answers(
        &mut self,
        limit: Duration,
        mut each: impl FnMut(Reply) -> io::Result<()>,
    ) -> Result<(), VmError> {
        let deadline = &self.deadline(limit);
        loop {
            match self.event(deadline, "answer", limit)?.1 {
                Reply::Done => return Ok(()),
                Reply::Failed(why) => return Err(self.failed(why)),
                reply => each(reply).doing("take an answer")?,
            }
        }
    }

    /// The bytes of the reply to an earlier request, which come in chunks.
    ///
    /// # Errors
    /// As [`Guest::answers`].
    pub fn bytes(&mut self, limit: Duration) -> Result<Vec<u8>, VmError> {
        let mut bytes = Vec::new();
        self.answers(limit, |reply| {
            let Reply::Chunk(chunk) = reply else { return Ok(()) };
            bytes.extend_from_slice(&chunk);
            match bytes.len() <= MAX_FILE_BYTES {
                true => Ok(()),
                false => Err(io::Error::other(format!(
                    "a file of more than {} MiB",
                    MAX_FILE_BYTES >> 20
                ))),
            }
        })?;
        Ok(bytes)
    }

    /// The same as [`Guest::answers`] for as long as `progress`, a number, changes within every `limit`.
    ///
    /// # Errors
    /// As [`Guest::answers`].
    pub fn answers_while(
        &mut self,
        limit: Duration,
        progress: &dyn Fn() -> u64,
        mut each: impl FnMut(Reply) -> io::Result<()>,
    ) -> Result<(), VmError> {
        let mut seen = progress();
        loop {
            let reply = match self.event(&self.deadline(limit), "answer", limit) {
                Err(error) if error.is_silence() && progress() != seen => {
                    seen = progress();
                    continue;
                }
                reply => reply?.1,
            };
            match reply {
                Reply::Done => return Ok(()),
                Reply::Failed(why) => return Err(self.failed(why)),
                reply => each(reply).doing("take an answer")?,
            }
        }
    }

    /// The next reply to an earlier request; none if that was carried out.
    ///
    /// # Errors
    /// The request failed, or the guest ended.
    pub fn answer(&mut self, limit: Duration) -> Result<Option<Reply>, VmError> {
        match self.event(&self.deadline(limit), "answer", limit)?.1 {
            Reply::Done => Ok(None),
            Reply::Failed(why) => Err(self.failed(why)),
            reply => Ok(Some(reply)),
        }
    }

    /// Send a request without waiting for its reply.
    ///
    /// # Errors
    /// The port is closed.
    pub fn tell(&mut self, request: &Request) -> Result<(), VmError> {
        let port = self.agent.unwrap_or(0);
        channel::send(&mut self.ports[port], request).doing("speak to the guest")
    }

    /// Read a file of the guest.
    ///
    /// # Errors
    /// As [`Guest::ask`].
    pub fn read_file(&mut self, path: &str, limit: Duration) -> Result<Vec<u8>, VmError> {
        self.tell(&Request::ReadFile(path.into()))?;
        self.bytes(limit)
    }

    /// Write a file in the guest.
    ///
    /// # Errors
    /// As [`Guest::ask`].
    pub fn write_file(
        &mut self,
        path: &str,
        mode: u32,
        bytes: &[u8],
        limit: Duration,
    ) -> Result<(), VmError> {
        self.tell(&Request::WriteFile { path: path.into(), mode })?;
        for chunk in bytes.chunks(channel::CHUNK_BYTES) {
            self.tell(&Request::Chunk(chunk.to_vec()))?;
        }
        self.ask(&Request::Chunk(Vec::new()), limit, |_| Ok(()))
    }

    /// The last lines of the console.
    pub fn console(&self) -> Vec<String> {
        lines(&self.console)
    }

    /// Peak memory of QEMU so far, bytes.
    pub fn peak_memory_bytes(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
        let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    }

    /// Whether QEMU was stopped from outside, by SIGSTOP or a debugger: `T` or `t` in proc_pid_stat(5).
    pub(super) fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let state = |stat: String| stat.rsplit(") ").next()?.chars().next();
        stat.ok().and_then(state).is_some_and(|c| c == 'T' || c == 't')
    }

    /// Until when QEMU has time to do something.
    pub(super) fn deadline(&self, limit: Duration) -> Deadline {
        Deadline::new(self.child.id(), limit)
    }

    /// The error of a guest that did not do something in time.
    fn late(&self, what: &'static str, limit: Duration) -> VmError {
        let seconds = limit.as_secs();
        if self.is_stopped() {
            let what = what.into();
            return VmError::QemuStopped { what, seconds };
        }
        VmError::Timeout { what, seconds, console: self.console() }
    }

    fn failed(&self, why: Refused) -> VmError {
        VmError::CommandFailed { message: why.message, kind: why.kind, console: self.console() }
    }

    fn event(
        &mut self,
        deadline: &Deadline,
        what: &'static str,
        limit: Duration,
    ) -> Result<(usize, Reply), VmError> {
        loop {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(VmError::Interrupted);
            }
            // Also for a guest that never stops sending.
            if deadline.is_over() {
                return Err(self.late(what, limit));
            }
            // The kernel would go on without the files that are missing.
            if let Some(reason) = unpacking_failed(&self.console) {
                return Err(VmError::Initramfs { reason });
            }
            match self.events.recv_timeout(POLL) {
                Ok(Event::Reply(port, reply)) => return Ok((port, reply)),
                Ok(Event::Unread(why)) => return Err(why).doing("read an answer of the guest"),
                Ok(Event::Closed) | Err(RecvTimeoutError::Disconnected) => {
                    thread::sleep(POLL / 10);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(status) = self.child.try_wait().doing("wait for QEMU")? {
                return Err(self.ended(status));
            }
            // The kernel may be configured not to reboot after a panic.
            if panicked(&self.console).is_some() {
                thread::sleep(POLL);
                if let Some(error) = self.panic() {
                    return Err(error);
                }
            }
        }
    }

    /// The error of a panic, if there was one: where the agent ended, that is why.
    fn panic(&self) -> Option<VmError> {
        let message = panicked(&self.console)?;
        let console = self.console();
        Some(match agent_failed(&self.console) {
            Some(why) => VmError::AgentFailed { why, console },
            None => VmError::KernelPanic { message, console },
        })
    }

    /// The error of an exit of QEMU.
    pub(super) fn ended(&self, status: ExitStatus) -> VmError {
        // Its last output may still be in the pipes.
        thread::sleep(POLL);
        let console = self.console();
        if let Some(error) = self.panic() {
            return error;
        }
        // It then exits cleanly, with a message (system/runstate.c, qemu_kill_report).
        let killed = lines(&self.stderr)
            .into_iter()
            .find_map(|line| Some(line.split_once("terminating on signal ")?.1.to_string()));
        if let Some(by) = killed {
            return VmError::QemuFailed {
                status: format!("ended from outside, by signal {by}"),
                stderr: Vec::new(),
                console,
            };
        }
        // QEMU exits without a message if the guest asked it to.
        if status.success() {
            return VmError::Stopped { console };
        }
        VmError::QemuFailed {
            status: status.to_string(),
            stderr: (lines(&self.stderr).into_iter()).filter(|line| !is_of_hub(line)).collect(),
            console,
        }
    }
}

/// Whether QEMU warns of a hub of NICs without a way out, which none of our hubs has (net_hub_check_clients in
/// net/hub.c).
fn is_of_hub(line: &str) -> bool {
    line.contains("warning: hub ") && line.ends_with("is not connected to host network")
}

impl Guest {
    /// Kill it, with its children, which would keep our pipes open: it is a process group of its own.
    pub(super) fn kill(&self) {
        // SAFETY: takes numbers; the group belongs to a child that is not waited for until it is dropped, so the number
        // is still its own. An error doesn't matter: it has exited then.
        unsafe { libc::kill(-(self.child.id() as libc::pid_t), libc::SIGKILL) };
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.kill();
        // Errors don't matter: it has exited either way.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that ended silently before any exchange may be another program than QEMU.
fn not_qemu(qemu: &Path, limit: Duration, cancel: &Cancel, error: VmError) -> VmError {
    let said = match &error {
        VmError::QemuFailed { stderr, .. } => stderr,
        VmError::Stopped { console } => console,
        _ => return error,
    };
    match said.is_empty().then(|| trial::version(qemu, limit, cancel)) {
        Some(Err(why)) => VmError::QemuMissing(QemuMissing::NotQemu(qemu.to_path_buf(), why)),
        _ => error,
    }
}

fn unpacking_failed(console: &Mutex<Tail>) -> Option<String> {
    console.lock().ok()?.unpacking.clone()
}

fn panicked(console: &Mutex<Tail>) -> Option<String> {
    console.lock().ok()?.panic.clone()
}

fn agent_failed(console: &Mutex<Tail>) -> Option<String> {
    console.lock().ok()?.agent.clone()
}

fn follow(port: usize, mut stream: UnixStream, sender: SyncSender<Event>) {
    thread::spawn(move || {
        let mut decoder = Decoder::default();
        let mut facts = 0;
        let mut buffer = vec![0; 256 << 10];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => {
                    let _ = sender.send(Event::Closed);
                    return;
                }
                Ok(n) => decoder.push(&buffer[..n]),
            }
            loop {
                let event = match decoder.take() {
                    Ok(Some(reply)) => {
                        if let Reply::Facts(more) = &reply {
                            facts += more.len();
                        }
                        let too_many =
                            (facts > MAX_ALL_FACTS).then(|| format!("{facts} facts in all"));
                        match reply.excess().or(too_many) {
                            None => Event::Reply(port, reply),
                            Some(what) => Event::Unread(io::Error::other(what)),
                        }
                    }
                    Ok(None) => break,
                    Err(why) => Event::Unread(why),
                };
                if sender.send(event).is_err() {
                    return;
                }
            }
        }
    });
}

/// A file, positioned at its beginning.
pub(super) fn rewound(fd: OwnedFd) -> io::Result<OwnedFd> {
    let mut file = File::from(fd);
    file.rewind()?;
    Ok(file.into())
}
