//! The watched or measured object goes away during the run.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{Place, Running, skip};
use crate::live::{namespaces, run_name};
use netplumb_testkit::has_root;

/// A namespace of ours with a device in it, deleted when dropped.
pub(crate) struct Throwaway(String);

impl Throwaway {
    pub(crate) fn new(place: &Place, name: &str) -> Throwaway {
        let this = Throwaway(format!("plumbtest-{}-{name}", std::process::id()));
        let name = &this.0;
        for words in [
            format!("ip netns add {name}"),
            format!("ip -n {name} link set lo up"),
            format!("ip -n {name} link add v0 type veth peer name v1"),
            format!("ip -n {name} link set v0 up"),
            format!("ip -n {name} link set v1 up"),
            format!("ip -n {name} address add 198.18.77.1/24 dev v0"),
            format!("ip -n {name} neighbour add 198.18.77.2 lladdr 02:00:00:00:00:02 dev v0"),
        ] {
            ip(place, &words);
        }
        this
    }

    /// Name of the namespace, as in `ip netns`.
    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    /// A command in the namespace, of words separated by blanks.
    pub(crate) fn command(&self, place: &Place, words: &str) -> Command {
        let mut command = place.command("ip");
        command.args(["netns", "exec", &self.0]);
        command.args(words.split_whitespace());
        command
    }
}

impl Drop for Throwaway {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

fn ip(place: &Place, words: &str) {
    let (program, rest) = words.split_once(' ').unwrap();
    let mut command = place.command(program);
    let ran = Running::start(command.args(rest.split(' '))).finish();
    ran.code(0);
}

/// Check that a namespace, a device of the host or one of our own topology that disappears during
/// the run is reported by its name, and that what was measured is kept.
#[test]
fn what_is_watched_goes_away() {
    if !has_root() {
        return;
    }
    let place = Place::new();
    place.write(
        "traffic.py",
        "import socket,time\n\
         a=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n\
         while True:\n a.sendto(b'x',('198.18.77.2',9)); time.sleep(.002)\n",
    );
    let plumb = env!("CARGO_BIN_EXE_plumb");
    let watch = "path --lab host --clock stages --duration 60s";
    for what in ["namespace", "interface", "within"] {
        let own = Throwaway::new(&place, what);
        let name = own.0.clone();
        let traffic = Running::start(&mut own.command(&place, "python3 traffic.py"));
        let (mut command, away) = match what {
            "namespace" => (
                place.plumb(&format!("{watch} --netns {name} -o {what}.plumb")),
                format!("ip netns del {name}"),
            ),
            // Of a namespace that is not the one plumb runs in.
            "within" => (
                place.plumb(&format!("{watch} --netns {name} --interface v0 -o within.plumb")),
                format!("ip -n {name} link del v0"),
            ),
            _ => (
                own.command(&place, &format!("{plumb} {watch} --interface v0 -o {what}.plumb")),
                format!("ip -n {name} link del v0"),
            ),
        };
        let mut running = Running::start(&mut command);
        running.wait_for("plumb: ");
        let kind = match what {
            "namespace" => what,
            _ => "interface",
        };
        let recording = place.path(&format!("{what}.plumb"));
        let began = Instant::now();
        while !recording.exists() && began.elapsed() < Duration::from_secs(30) {
            sleep(Duration::from_millis(50));
        }
        ip(&place, &away);
        let ran = running.finish();
        traffic.signal(libc::SIGKILL);
        traffic.finish();
        if ran.status.code() == Some(3) {
            skip(&format!("no stages here: {}", ran.stderr.trim()));
            return;
        }
        ran.code(1).says(&[
            "was removed during the measurement",
            kind,
            "measured before the error",
        ]);
        assert!(ran.stdout.contains("udp tx"), "{ran:?}");
        let recording = place.recording(&format!("{what}.plumb"));
        assert!(!recording.complete && !recording.blocks.is_empty());
    }
    let words = "path --lab netns --clock stages --duration 60s --blocks 200 -o ours.plumb";
    let mut running = Running::start(&mut place.plumb(words));
    running.wait_for("attached in");
    sleep(Duration::from_millis(1_500));
    let held = namespaces("plumb-");
    let tx = held.iter().find(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.ends_with("-tx") && running.has_said(name.trim_end_matches("-tx"))
    });
    let tx = tx.unwrap().file_name().unwrap().to_string_lossy().into_owned();
    ip(&place, &format!("ip -n {tx} link del tx0"));
    let ran = running.finish();
    ran.code(1).says(&["tx0", "measured before the error"]);
    assert!(namespaces(&run_name(&ran.stderr)).is_empty());
    assert!(!place.recording("ours.plumb").blocks.is_empty());
}

const SECOND_CPU: &str = "/sys/devices/system/cpu/cpu1/online";

/// The second CPU, taken away until this is dropped.
struct Offline;

impl Offline {
    fn new() -> std::io::Result<Offline> {
        fs::write(SECOND_CPU, "0").map(|()| Offline)
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        let _ = fs::write(SECOND_CPU, "1");
    }
}

/// Check that a CPU that goes offline in a run and comes back costs no block. Not among
/// the others, whom it would take half the machine.
#[test]
#[ignore = "takes a CPU from everything else for a second"]
fn a_cpu_goes_offline() {
    if !has_root() {
        return;
    }
    let place = Place::new();
    let words = "path --lab netns --clock stages --duration 4s --blocks 12 -o run.plumb";
    let mut running = Running::start(&mut place.plumb(words));
    running.wait_for("attached in");
    sleep(Duration::from_secs(1));
    match Offline::new() {
        Ok(_offline) => sleep(Duration::from_secs(1)),
        Err(error) => return skip(&format!("{SECOND_CPU}: {error}")),
    }
    running.finish().code(0);
    let recording = place.recording("run.plumb");
    assert_eq!(recording.blocks.len(), 12);
    for block in &recording.blocks {
        assert!(block.ledger.offered > 0 && block.ledger.closes(), "{block:?}");
    }
    let busy: Vec<_> = recording.scalars_of(&netplumb_model::timing::BUSY).collect();
    assert!(!busy.is_empty());
    assert!(busy.iter().all(|c| (0.0..=2.0).contains(&c.value)));
}
