//! The server: nginx as Debian builds it, with a configuration of ours and files of ours.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use netplumb_model::web::{PageCache, WebPlan};
use netplumb_sys::netns::inside;

use super::mix;
use crate::ends::{Ends, spawn_in};

/// The port of HTTP.
pub const PORT: u16 = 80;
/// Maximum time for it to answer, and to end.
const PATIENCE: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(1);
/// Processes that serve: as many as there are CPUs, as Debian has it, or more if one may have to wait
/// for its disk.
const WORKERS_ON_DISK: u32 = 4;
/// The error log, in the server's directory.
const LOG: &str = "error.log";

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    folder: PathBuf,
}

impl Server {
    /// Write the files of this many directories below `root`, and start the server in the sender's
    /// namespace, on one CPU if that is given; `folder` is for its own files.
    ///
    /// # Errors
    /// The files can't be written, or it does not start: its output.
    pub fn start(
        program: &Path,
        folder: &Path,
        root: &Path,
        (plan, directories): (&WebPlan, u32),
        buffer_bytes: Option<u32>,
        ends: &Ends,
        cpu: Option<u32>,
    ) -> io::Result<Server> {
        write_files(root, directories)?;
        fs::create_dir_all(folder)?;
        let config = folder.join("nginx.conf");
        fs::write(&config, configuration(plan, folder, root, ends.tx_address, buffer_bytes))?;
        let log = File::create(folder.join("stderr"))?;
        let mut command = Command::new(program);
        command
            .arg("-c")
            .arg(&config)
            .arg("-e")
            .arg(folder.join(LOG))
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(log);
        let child = spawn_in(ends.tx_namespace.as_fd(), cpu, &mut command)?;
        let mut server = Server { child, folder: folder.to_owned() };
        server.wait_ready(ends)?;
        Ok(server)
    }

    /// Wait until it accepts connections.
    fn wait_ready(&mut self, ends: &Ends) -> io::Result<()> {
        let to = SocketAddr::new(ends.tx_address, PORT);
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!(
                    "the web server ended ({status}): {}",
                    self.said()
                )));
            }
            let connected =
                inside(ends.tx_namespace.as_fd(), || TcpStream::connect_timeout(&to, PATIENCE));
            match connected {
                Ok(_) => return Ok(()),
                Err(_) if begun.elapsed() < PATIENCE => thread::sleep(STEP),
                Err(e) => {
                    return Err(io::Error::new(
                        e.kind(),
                        format!("the web server does not answer: {e}; {}", self.said()),
                    ));
                }
            }
        }
    }

    /// The last that it wrote, in a line.
    fn said(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        let all = read("stderr") + &read(LOG);
        let last = all.lines().rfind(|line| !line.trim().is_empty());
        let last = last.unwrap_or("it wrote nothing");
        last.chars().filter(|c| !c.is_control()).take(300).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The first process ends the one that serves.
        // SAFETY: the process is a child that was not waited for.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGTERM) };
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(STEP),
                _ => return,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Write the files; on a disk, they are on it afterwards.
fn write_files(root: &Path, directories: u32) -> io::Result<()> {
    for file in mix::files(directories) {
        fs::create_dir_all(root.join(file.folder()))?;
        let mut to = File::create(root.join(file.path()))?;
        let mut at = 0;
        while at < file.size_bytes() {
            let piece = file.contents(at, (file.size_bytes() - at) as usize);
            to.write_all(piece)?;
            at += piece.len() as u64;
        }
        to.sync_all()?;
    }
    Ok(())
}

/// Its configuration: no log of requests, and connections that stay open. The rest is Debian's.
fn configuration(
    plan: &WebPlan,
    folder: &Path,
    root: &Path,
    address: IpAddr,
    buffer_bytes: Option<u32>,
) -> String {
    let to = SocketAddr::new(address, PORT);
    let buffer = buffer_bytes.map_or_else(String::new, |bytes| format!(" sndbuf={bytes}"));
    let sendfile = if plan.sendfile { "on" } else { "off" };
    let direct = match plan.page_cache {
        PageCache::Direct => "directio 1;",
        PageCache::Warm | PageCache::Cold => "",
    };
    let workers = match plan.disk {
        Some(_) => WORKERS_ON_DISK,
        None => 1,
    };
    let folder = folder.display();
    let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|of| format!("\t{of}_temp_path \"{folder}/{of}\";\n"))
        .concat();
    format!(
        "daemon off;\nuser root root;\nworker_processes {workers};\npid \"{folder}/pid\";\n\
         events {{ worker_connections 512; }}\n\
         http {{\n{paths}\taccess_log off;\n\tsendfile {sendfile};\n\ttcp_nopush on;\n\t{direct}\n\
         \tkeepalive_requests 100000000;\n\tkeepalive_timeout 3600;\n\
         \tserver {{\n\t\tlisten {to}{buffer};\n\t\troot \"{}\";\n\t}}\n}}\n",
        root.display()
    )
}
