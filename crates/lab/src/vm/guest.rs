//! The guest's side: init and agent in one.
//!
//! Mounts file systems, loads the modules of its initramfs, sends a hello on the first port that
//! works, and then carries out requests of the host. It sends nothing unrequested: a byte sent in a
//! measured window would be measured.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use netplumb_model::arch::Arch;
use netplumb_model::message::{NotLoaded, PROTOCOL_VERSION, Refused, Reply, Request};

use super::board;
use super::console::AGENT_FAILED;
use super::device::AGENT_PORT;
use super::initramfs::{self, MODULES};
use super::neighbours;
use super::random;
use super::refusals;
use super::rest::{Devices, Moment};
use crate::channel::{self, CHUNK_BYTES, Decoder};

/// Set on the kernel's command line, to force the serial port.
const SERIAL_VARIABLE: &str = "PLUMB_SERIAL";
/// Where virtio_console lists its ports; the directory exists when it is loaded.
const PORTS: &str = "/sys/class/virtio-ports";
/// Maximum time for the named port to appear after its driver, in guest time.
const PORT_PATIENCE: Duration = Duration::from_secs(2);

/// Handles the requests that are not the lab's own.
pub trait Handler {
    /// Carry out a request; replies before the last one are passed to `reply`.
    ///
    /// # Errors
    /// A sentence for the user.
    fn handle(
        &mut self,
        request: Request,
        reply: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<(), Refused>;

    /// Clean up after the last reply to a request: a host that has no other request ends the guest, and does
    /// not wait for this.
    fn clean_up(&mut self) {}

    /// The port of requests, to check for further ones.
    fn port(&mut self, _port: BorrowedFd<'_>) {}
}

/// Run as init. Returns only on failure; the kernel then panics, and the host reads the reason on
/// the console.
pub fn run(handler: &mut dyn Handler) -> io::Error {
    match try_run(handler) {
        Ok(()) => power_off(),
        Err(error) => {
            say(&format!("{AGENT_FAILED}{error}"));
            error
        }
    }
}

fn try_run(handler: &mut dyn Handler) -> io::Result<()> {
    mount("proc", "/proc")?;
    mount("sysfs", "/sys")?;
    mount("devtmpfs", "/dev")?;
    mount("tracefs", "/sys/kernel/tracing").ok();
    mount("bpf", "/sys/fs/bpf").ok();
    fill_root();
    let loaded = load_modules();
    let mut port = open_port()?;
    if let Err(refused) = loaded {
        channel::send(&mut port, &Reply::NotLoaded(Box::new(refused)))?;
        return Ok(());
    }
    handler.port(port.as_fd());
    // Without this, or with the host's clock, no two runs are the same.
    let alike = random::wanted().unwrap_or(false);
    if alike && let Err(error) = random::begin() {
        log(&format!("can't set the random numbers' key: {error}"));
    }
    // Not on a kernel without IPv6, for example: neighbours may share a bucket there.
    if alike && let Err(error) = neighbours::spread() {
        log(&format!("can't make the tables of neighbours grow: {error}"));
    }
    let devices = Devices::open();
    if let Err(error) = &devices {
        log(&format!("no resting point: {error}"));
    }
    channel::send(&mut port, &Reply::Hello { protocol: PROTOCOL_VERSION, rests: devices.is_ok() })?;
    let mut decoder = Decoder::default();
    let mut rests = 0;
    let can_rest = devices.is_ok();
    if let Ok(devices) = devices {
        decoder.push(&rest(devices, rests, alike)?);
        rests += 1;
    }
    loop {
        let request: Request = channel::receive(&mut port, &mut decoder)?;
        let outcome = match request {
            Request::PowerOff => return Ok(()),
            // The command had already exited.
            Request::Stop => continue,
            Request::Rest if can_rest => {
                channel::send(&mut port, &Reply::Done)?;
                decoder.push(&rest(Devices::open()?, rests, alike)?);
                rests += 1;
                continue;
            }
            // Further requests come by the port.
            Request::Rest => Ok(()),
            Request::ReadFile(path) => read_file(&path, &mut port).map_err(Refused::from),
            Request::WriteFile { path, mode } => {
                write_file(&path, mode, &mut port, &mut decoder).map_err(Refused::from)
            }
            request => handler.handle(request, &mut |reply| channel::send(&mut port, &reply)),
        };
        let last = match outcome {
            Ok(()) => Reply::Done,
            Err(why) => Reply::Failed(why),
        };
        channel::send(&mut port, &last)?;
        handler.clean_up();
    }
}

/// Pause, and resume like every guest of the plan, if the host wants that; returns what to do then.
fn rest(devices: Devices, rests: usize, alike: bool) -> io::Result<Vec<u8>> {
    if !alike {
        return devices.rest(rests);
    }
    let moment = Moment::to_rest(rests)?;
    moment.wait()?;
    let requests = devices.rest(rests)?;
    moment.to_go_on()?.wait()?;
    random::renew()?;
    Ok(requests)
}

pub(super) fn log(text: &str) {
    say(&format!("netplumb: {text}"));
}

fn say(line: &str) {
    // If the console can't be written, nothing else can report it.
    if let Ok(mut console) = OpenOptions::new().write(true).open("/dev/console") {
        let _ = writeln!(console, "{line}");
    }
}

pub(super) fn mount(kind: &str, target: &str) -> io::Result<()> {
    let c = |s: &str| CString::new(s).map_err(io::Error::other);
    let (kind_c, target_c) = (c(kind)?, c(target)?);
    // SAFETY: both are C strings that outlive the call; no data is passed.
    let result = unsafe {
        libc::mount(kind_c.as_ptr(), target_c.as_ptr(), kind_c.as_ptr(), 0, std::ptr::null())
    };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    // devtmpfs may have been mounted by the kernel itself.
    if error.raw_os_error() == Some(libc::EBUSY) {
        return Ok(());
    }
    Err(io::Error::new(error.kind(), format!("mount {kind} on {target}: {error}")))
}

/// Allow files to use all of the memory except what the kernel needs: a root on tmpfs is limited to
/// half of it by default. One on ramfs has no limit, and no such option.
fn fill_root() {
    // SAFETY: the target and the data are C strings; a remount takes neither source nor kind.
    unsafe {
        libc::mount(
            std::ptr::null(),
            c"/".as_ptr(),
            std::ptr::null(),
            libc::MS_REMOUNT,
            c"size=90%".as_ptr().cast(),
        );
    }
}

fn load_modules() -> Result<(), NotLoaded> {
    let mut files: Vec<PathBuf> = match fs::read_dir(MODULES) {
        Ok(entries) => entries.filter_map(|e| Some(e.ok()?.path())).collect(),
        Err(_) => return Ok(()),
    };
    files.retain(|path| path.extension().is_some_and(|end| end == "ko"));
    files.sort();
    for path in files {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let options = fs::read_to_string(path.with_extension(initramfs::OPTIONS));
        if let Err(error) = load_module(&path, &options.unwrap_or_default())
            && !name.ends_with(initramfs::SOFT)
        {
            let module = initramfs::name_in(&name).to_owned();
            return Err(NotLoaded {
                kernel: refusals::said_of(&module),
                why: refusals::why(&error),
                remedy: refusals::remedy(&error).to_owned(),
                module,
            });
        }
        // Free its pages: a guest has little memory.
        let _ = fs::remove_file(&path);
    }
    Ok(())
}

pub(super) fn load_module(path: &Path, parameters: &str) -> io::Result<()> {
    let file = File::open(path)?;
    let parameters = CString::new(parameters).map_err(io::Error::other)?;
    // SAFETY: a descriptor, a C string that outlives the call and a flag; the kernel copies what it
    // needs.
    let result =
        unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), parameters.as_ptr(), 0) };
    let error = io::Error::last_os_error();
    match result {
        0 => Ok(()),
        _ if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        _ => Err(error),
    }
}

fn open_port() -> io::Result<File> {
    let started = Instant::now();
    // Without its driver there is nothing to wait for.
    let serial = std::env::var_os(SERIAL_VARIABLE).is_some();
    while !serial && Path::new(PORTS).exists() && started.elapsed() < PORT_PATIENCE {
        if let Some(port) = named_port() {
            return OpenOptions::new().read(true).write(true).open(port);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    log("no virtio port: using the serial one");
    let fallback = board::board_for(Arch::OWN).fallback;
    let path = fallback.path();
    let open = || {
        let port = OpenOptions::new().read(true).write(true).open(path)?;
        set_raw(&port)?;
        Ok(port)
    };
    open().map_err(|error: io::Error| {
        let needs = fallback.needs();
        io::Error::other(format!(
            "no virtio port, and {path}: {error}; the kernel needs VIRTIO_PCI with VIRTIO_CONSOLE, or {needs}"
        ))
    })
}

fn named_port() -> Option<PathBuf> {
    for entry in fs::read_dir(PORTS).ok()?.flatten() {
        let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if name.trim() == AGENT_PORT {
            return Some(Path::new("/dev").join(entry.file_name()));
        }
    }
    None
}

fn set_raw(port: &File) -> io::Result<()> {
    // SAFETY: an all-zero termios is a valid value to be filled in.
    let mut termios: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, and the pointer is to our own termios.
    unsafe {
        if libc::tcgetattr(port.as_raw_fd(), &mut termios) != 0 {
            return Err(io::Error::last_os_error());
        }
        libc::cfmakeraw(&mut termios);
        termios.c_cflag = (termios.c_cflag & !libc::CBAUD) | libc::B115200;
        if libc::tcsetattr(port.as_raw_fd(), libc::TCSANOW, &termios) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn read_file(path: &str, port: &mut File) -> Result<(), String> {
    let with_path = |e: io::Error| format!("{path}: {e}");
    let mut file = File::open(path).map_err(with_path)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let mut filled = 0;
        // Files of /proc return a page at a time.
        while filled < chunk.len() {
            match file.read(&mut chunk[filled..]).map_err(with_path)? {
                0 => break,
                n => filled += n,
            }
        }
        channel::send(port, &Reply::Chunk(chunk[..filled].to_vec())).map_err(with_path)?;
        if filled < chunk.len() {
            return Ok(());
        }
    }
}

fn write_file(path: &str, mode: u32, port: &mut File, decoder: &mut Decoder) -> Result<(), String> {
    use std::os::unix::fs::OpenOptionsExt;
    let with_path = |e: io::Error| format!("{path}: {e}");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path);
    loop {
        match channel::receive(port, decoder).map_err(with_path)? {
            Request::Chunk(chunk) if chunk.is_empty() => break,
            Request::Chunk(chunk) => {
                // After an error the rest still has to be read from the port.
                if let Ok(open) = &mut file
                    && let Err(error) = open.write_all(&chunk)
                {
                    file = Err(error);
                }
            }
            _ => return Err(format!("{path}: the file was cut short")),
        }
    }
    file.map(drop).map_err(with_path)
}

fn power_off() -> ! {
    // SAFETY: sync and reboot take no memory of ours.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
    }
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}
