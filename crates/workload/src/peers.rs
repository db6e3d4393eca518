//! Other programs that send between two hosts of this machine, to compare ours with: iperf3 and wrk.

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use netplumb_model::web::WebLoad;
use netplumb_sys::memory::memfd;
use serde::Deserialize;

use crate::ends::{Ends, spawn_in};
use crate::web::{PORT, Requests};

/// Maximum time for a program to be ready, and for it to end.
const READY: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(300);
const STEP: Duration = Duration::from_millis(2);
/// How long wrk asks for files: whole seconds.
const WRK_SECONDS: u32 = 2;
/// Maximum size of a program's output; iperf3's report has some kilobytes for each connection.
const MOST_BYTES: usize = 4 << 20;

/// Results of another program.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PeerRan {
    /// Bytes of payload that were sent.
    pub sent_bytes: u64,
    /// Bytes that were received by the end.
    pub received_bytes: u64,
    /// The duration that it reports itself.
    pub duration_ns: u64,
    /// Segments that were sent again; none if it does not count them.
    pub retransmitted: Option<u64>,
    /// Requests that were answered.
    pub turns: Option<u64>,
    /// The times from request to answer, in nanoseconds: mean, least, median, 99%, most.
    pub turn_ns: Vec<(&'static str, f64)>,
}

/// Another program can't be used.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// It is not installed.
    #[error("`{0}` is not installed: apt-get install {0}")]
    Missing(&'static str),
    /// It failed, or its output can't be read.
    #[error("{0} failed: {1}")]
    Failed(&'static str, String),
    /// A system call failed.
    #[error("run {0}: {1}")]
    Io(&'static str, #[source] io::Error),
}

/// A stream for iperf3.
#[derive(Debug, Clone, Copy)]
pub struct StreamOf {
    /// Bytes of payload.
    pub bytes: u64,
    /// Bytes given to each write.
    pub write_bytes: u32,
    /// Connections that share them.
    pub connections: u32,
    /// The size of both hosts' socket buffers; none for the kernel's own.
    pub buffer_bytes: Option<u32>,
}

/// One of the programs, by name.
#[derive(Clone, Copy)]
struct Peer(&'static str);

/// A running one, which is killed if it is dropped before it has ended, and its output.
struct Running(Child, File);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Peer {
    fn io(self) -> impl Fn(io::Error) -> PeerError {
        let name = self.0;
        move |error| match error.kind() {
            io::ErrorKind::NotFound => PeerError::Missing(name),
            _ => PeerError::Io(name, error),
        }
    }

    fn failed(self, why: impl Into<String>) -> PeerError {
        PeerError::Failed(self.0, why.into())
    }

    /// Start it in a namespace, on a CPU.
    fn start(
        self,
        namespace: &impl AsFd,
        cpu: u32,
        arguments: &[String],
    ) -> Result<Running, PeerError> {
        let out = File::from(memfd("netplumb-peer", b"").map_err(self.io())?);
        let [one, other] = [out.try_clone(), out.try_clone()];
        let mut command = Command::new(self.0);
        command.args(arguments).stdout(one.map_err(self.io())?).stderr(other.map_err(self.io())?);
        let child = spawn_in(namespace.as_fd(), Some(cpu), &mut command);
        Ok(Running(child.map_err(self.io())?, out))
    }

    /// The output so far.
    fn output(self, running: &Running) -> Result<String, PeerError> {
        let mut bytes = vec![0; MOST_BYTES];
        let read = running.1.read_at(&mut bytes, 0).map_err(self.io())?;
        Ok(String::from_utf8_lossy(&bytes[..read]).into_owned())
    }

    /// Wait until one has ended well; then its output.
    fn ended(self, running: &mut Running) -> Result<String, PeerError> {
        let begun = Instant::now();
        loop {
            match running.0.try_wait().map_err(self.io())? {
                Some(status) if status.success() => return self.output(running),
                Some(status) => {
                    let last = last_line(&self.output(running)?);
                    return Err(self.failed(format!("{status}: {last}")));
                }
                None if begun.elapsed() > PATIENCE => {
                    let limit = PATIENCE.as_secs();
                    return Err(self.failed(format!("it has not ended after {limit} s")));
                }
                None => thread::sleep(STEP),
            }
        }
    }
}

/// The last line with content, as far as it can be shown.
fn last_line(text: &str) -> String {
    let says = |line: &&str| line.chars().any(char::is_alphanumeric);
    let last = text.lines().rfind(says).unwrap_or("it wrote nothing");
    last.trim().chars().filter(|c| !c.is_control()).take(300).collect()
}

#[derive(Deserialize)]
struct Iperf {
    end: IperfEnd,
}

#[derive(Deserialize)]
struct IperfEnd {
    sum_sent: IperfSum,
    sum_received: IperfSum,
}

#[derive(Deserialize)]
struct IperfSum {
    bytes: u64,
    seconds: f64,
    retransmits: Option<u64>,
}

/// Send a stream by iperf3, each end on a CPU of its own.
///
/// # Errors
/// It is not installed, or it failed.
pub fn iperf3(stream: StreamOf, ends: &Ends, cpus: [u32; 2]) -> Result<PeerRan, PeerError> {
    let peer = Peer("iperf3");
    let words = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
    let to = ends.rx_address.to_string();
    let listen = words(&["-s", "-1", "--forceflush", "-B", &to]);
    let mut server = peer.start(&ends.rx_namespace, cpus[1], &listen)?;
    let begun = Instant::now();
    while !peer.output(&server)?.contains("listening") {
        if let Some(status) = server.0.try_wait().map_err(peer.io())? {
            let last = last_line(&peer.output(&server)?);
            return Err(peer.failed(format!("the server ended ({status}): {last}")));
        }
        if begun.elapsed() > READY {
            return Err(peer.failed("its server does not listen"));
        }
        thread::sleep(STEP);
    }
    let mut send = words(&["-c", &to, "-J", "-n", &stream.bytes.to_string()]);
    send.extend(words(&["-l", &stream.write_bytes.to_string()]));
    send.extend(words(&["-P", &stream.connections.to_string()]));
    if let Some(bytes) = stream.buffer_bytes {
        send.extend(words(&["-w", &bytes.to_string()]));
    }
    let mut client = peer.start(&ends.tx_namespace, cpus[0], &send)?;
    let written = peer.ended(&mut client)?;
    peer.ended(&mut server)?;
    of_iperf3(&written).map_err(|e| peer.failed(format!("its output can't be read: {e}")))
}

fn of_iperf3(written: &str) -> Result<PeerRan, serde_json::Error> {
    let Iperf { end } = serde_json::from_str(written)?;
    Ok(PeerRan {
        sent_bytes: end.sum_sent.bytes,
        received_bytes: end.sum_received.bytes,
        duration_ns: (end.sum_received.seconds * 1e9) as u64,
        retransmitted: end.sum_sent.retransmits,
        ..PeerRan::default()
    })
}

/// What wrk is to request, in turns, and to print at the end.
const SCRIPT: &str = r#"local paths = {}
local at = 0
function init(args)
	-- Only here the requests' head has the name of the host.
	for path in io.lines(PATHS) do paths[#paths + 1] = wrk.format("GET", path) end
end
function request()
	at = at % #paths + 1
	return paths[at]
end
function done(summary, latency)
	local errors = summary.errors
	io.write(string.format(
		'{"requests":%d,"duration_us":%d,"socket_errors":%d,"status_errors":%d,"mean_us":%.3f,"least_us":%d,"median_us":%d,"p99_us":%d,"most_us":%d}\n',
		summary.requests, summary.duration,
		errors.connect + errors.read + errors.write + errors.timeout, errors.status,
		latency.mean, latency.min, latency:percentile(50), latency:percentile(99), latency.max))
end
"#;

#[derive(Deserialize)]
struct Wrk {
    requests: u64,
    duration_us: u64,
    socket_errors: u64,
    status_errors: u64,
    mean_us: f64,
    least_us: f64,
    median_us: f64,
    p99_us: f64,
    most_us: f64,
}

/// Ask a web server for the files of a load by wrk, for two seconds.
///
/// # Errors
/// It is not installed, it failed, or it counted errors.
pub fn wrk(load: WebLoad, ends: &Ends, cpu: u32) -> Result<PeerRan, PeerError> {
    let peer = Peer("wrk");
    let mut paths = String::new();
    let mut sizes = Vec::new();
    for file in Requests::from_load(load) {
        // Writing to a string can't fail.
        let _ = writeln!(paths, "/{}", file.path().trim_start_matches('/'));
        sizes.push(file.size_bytes());
    }
    let list = memfd("netplumb-paths", paths.as_bytes()).map_err(peer.io())?;
    let text = SCRIPT.replace("PATHS", &format!("{:?}", path_of(&list)));
    let script = memfd("netplumb-script", text.as_bytes()).map_err(peer.io())?;
    let to = std::net::SocketAddr::new(ends.tx_address, PORT);
    let arguments = [
        "-t1".to_string(),
        format!("-c{}", load.connections),
        format!("-d{WRK_SECONDS}s"),
        "-s".to_string(),
        path_of(&script),
        format!("http://{to}/"),
    ];
    let mut running = peer.start(&ends.rx_namespace, cpu, &arguments)?;
    let written = peer.ended(&mut running)?;
    of_wrk(&written, &sizes).map_err(|why| peer.failed(why))
}

/// The path of one of our files for another process.
fn path_of(file: &OwnedFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

/// Parse wrk's output, with the sizes of the files that it requested in turns.
fn of_wrk(written: &str, sizes: &[u64]) -> Result<PeerRan, String> {
    let line = written.lines().rfind(|line| line.starts_with('{'));
    let line = line.ok_or_else(|| last_line(written))?;
    let report: Wrk =
        serde_json::from_str(line).map_err(|e| format!("its output can't be read: {e}"))?;
    let (socket, status) = (report.socket_errors, report.status_errors);
    if socket + status > 0 {
        return Err(format!(
            "{socket} errors of sockets, {status} answers with another status than 2xx or 3xx"
        ));
    }
    let rounds = report.requests / sizes.len().max(1) as u64;
    let rest = report.requests as usize % sizes.len().max(1);
    let bytes = rounds * sizes.iter().sum::<u64>() + sizes[..rest].iter().sum::<u64>();
    Ok(PeerRan {
        sent_bytes: bytes,
        received_bytes: bytes,
        duration_ns: report.duration_us * 1000,
        retransmitted: None,
        turns: Some(report.requests),
        turn_ns: vec![
            ("mean", report.mean_us * 1e3),
            ("least", report.least_us * 1e3),
            ("median", report.median_us * 1e3),
            ("99%", report.p99_us * 1e3),
            ("most", report.most_us * 1e3),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that iperf3's own sums are read.
    #[test]
    fn sums_of_iperf3() {
        let written = r#"{"start": {}, "end": {
            "sum_sent": {"bytes": 1000, "seconds": 0.5, "retransmits": 3, "sender": true},
            "sum_received": {"bytes": 900, "seconds": 0.25}}}"#;
        let ran = of_iperf3(written).unwrap();
        assert_eq!((ran.sent_bytes, ran.received_bytes), (1000, 900));
        assert_eq!((ran.duration_ns, ran.retransmitted), (250_000_000, Some(3)));
        assert!(of_iperf3(r#"{"error": "unable to connect"}"#).is_err());
    }

    /// Check that the bytes are the sizes of the files requested in turn, and that wrk's errors are
    /// errors.
    #[test]
    fn summary_of_wrk() {
        let line = |requests: u64, status: u64| {
            format!(
                "Running 2s test\n{{\"requests\":{requests},\"duration_us\":2000000,\"socket_errors\":0,\
                 \"status_errors\":{status},\"mean_us\":1.5,\"least_us\":1,\"median_us\":2,\"p99_us\":3,\
                 \"most_us\":4}}\n"
            )
        };
        let ran = of_wrk(&line(5, 0), &[10, 200]).unwrap();
        assert_eq!((ran.received_bytes, ran.turns), (430, Some(5)));
        assert_eq!(ran.turn_ns[0], ("mean", 1500.0));
        assert!(of_wrk(&line(5, 1), &[10]).unwrap_err().contains("1 answers with another status"));
        assert_eq!(of_wrk("unable to connect\n", &[1]), Err("unable to connect".into()));
    }
}
