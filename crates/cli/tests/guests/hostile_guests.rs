//! Guests that want to harm: their agent is this program, which says what no agent would.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use netplumb_agent::guest::Agent;
use netplumb_lab::channel;
use netplumb_lab::vm::agent::{MARK, variable};
use netplumb_lab::vm::guest::{Handler, run};
use netplumb_model::arch::Arch;
use netplumb_model::message::{PROTOCOL_VERSION, Refused, Reply, Request};
use netplumb_sys::guest::{VARIABLE, is_init};

use crate::common::{Place, Ran, Running, has_guests};

/// The variable in the guest's environment, from its kernel's command line.
const HARM: &str = "harm";
/// The test that harms where it is PID 1.
const INIT: &str = "hostile_guests::init";
/// What plumb and its QEMU may use at most: a guest has 256 MiB, and QEMU its translations of it.
const MOST_KIB: i64 = 1 << 20;

/// The agent of a hostile guest.
#[derive(Debug)]
struct Hostile {
    harm: String,
    agent: Agent,
}

impl Handler for Hostile {
    fn port(&mut self, port: BorrowedFd<'_>) {
        let mut stream = File::from(port.try_clone_to_owned().unwrap());
        let mut send = |reply: Reply| channel::send(&mut stream, &reply).unwrap();
        let hello = || Reply::Hello { protocol: PROTOCOL_VERSION, rests: false };
        match self.harm.as_str() {
            "console" => loop {
                let mut console = File::options().write(true).open("/dev/console").unwrap();
                console.write_all(&[b'A'; 1 << 16]).unwrap();
            },
            "noise" => loop {
                stream.write_all(b"NPLBNPLBNPLB\0\0\0\0\xff\xff\xff\x00").unwrap();
            },
            "chunks" => {
                send(hello());
                loop {
                    send(Reply::Chunk(vec![b'\n'; 1 << 20]));
                }
            }
            "facts" => {
                send(hello());
                for number in 0_u64.. {
                    let fact = |n: u64| (format!("x.{number}.{n}"), "\x1b[2J".repeat(9));
                    send(Reply::Facts((0..20_000).map(fact).collect()));
                }
            }
            "silence" => {
                send(hello());
                loop {
                    std::thread::sleep(Duration::from_secs(9));
                }
            }
            _ => self.agent.port(port),
        }
    }

    fn handle(
        &mut self,
        request: Request,
        reply: &mut dyn FnMut(Reply) -> io::Result<()>,
    ) -> Result<(), Refused> {
        if self.harm == "exit" && matches!(request, Request::Run(_)) {
            std::process::exit(0);
        }
        let harm = self.harm.clone();
        self.agent.handle(request, &mut |said| match (said, harm.as_str()) {
            (Reply::BlockDone { index, mut ledger }, "ledger") => {
                ledger.delivered = u64::MAX;
                ledger.dropped = BTreeMap::from([("\x1b[2J".into(), u64::MAX)]);
                reply(Reply::BlockDone { index, ledger })
            }
            (Reply::BlockDone { index, ledger }, "blocks") => (0..100_000)
                .try_for_each(|_| reply(Reply::BlockDone { index, ledger: ledger.clone() })),
            (Reply::BlockDone { .. }, "none") => Ok(()),
            (said, _) => reply(said),
        })
    }
}

/// Not a test but where this program is PID 1 of a guest.
#[test]
fn init() {
    if !is_init() {
        return;
    }
    std::hint::black_box(MARK);
    let harm = std::env::var(HARM).unwrap_or_default();
    run(&mut Hostile { harm, agent: Agent::default() });
}

/// Run in a guest that harms.
fn harmed(harm: &str, limit_s: u32) -> Ran {
    let place = Place::new();
    let run = "path --link lo --packets 20 --blocks 2 --cold -o x.plumb --timeout";
    let mut command = place.plumb(&format!("{run} {limit_s}"));
    // Behind `--` are the arguments of init, the harness of this program; what plumb adds is one of them, too.
    let words = format!("{HARM}={harm} {VARIABLE}=1 -- {INIT} --exact --nocapture");
    command.args(["--cmdline", &words]);
    command.env(variable(Arch::OWN), std::env::current_exe().unwrap());
    let ran = Running::start(&mut command).finish();
    place.nothing_runs();
    assert_eq!(place.temporary_files(), [""; 0], "{harm}");
    // A recording that was begun opens.
    if place.files() != [""; 0] {
        assert_eq!(place.files(), ["x.plumb"], "{harm}");
        place.run("report x.plumb").code(0);
    }
    assert!(!ran.stderr.contains('\x1b') && !ran.stdout.contains('\x1b'), "{harm}: {ran:?}");
    ran
}

/// Check that each ends with an error that names what was wrong, in bounded time and memory, and leaves nothing.
#[test]
fn harmless() {
    if !has_guests() {
        return;
    }
    // The agent itself, to show that it works but for the harm.
    harmed("nothing", 60).code(0);
    for (harm, says) in [
        ("console", "did not start its agent within"),
        ("noise", "did not start its agent within"),
        ("silence", "did not answer within"),
        ("chunks", "did not answer within"),
        ("facts", "20000 facts"),
        ("exit", "the guest's kernel panicked"),
        ("ledger", "a block of 18446744073709551615 packets"),
        ("blocks", "saw 2 blocks, and the guest reported 200000"),
        ("none", "saw 2 blocks, and the guest reported 0"),
    ] {
        let ran = harmed(harm, if says.ends_with("within") { 6 } else { 60 });
        assert!(ran.took < Duration::from_secs(60), "{harm}: {:?}", ran.took);
        ran.code(1).says(&[says]);
    }
    // SAFETY: a structure of numbers, for which zero is a value, and a pointer to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage), 0);
        usage
    };
    assert!(usage.ru_maxrss < MOST_KIB, "{} KiB", usage.ru_maxrss);
}
