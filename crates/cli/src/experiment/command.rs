//! `plumb path -- COMMAND` in a guest: the instructions of a command and of the kernel on its
//! behalf, or the times of its packets.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use netplumb_engine::{CommandArm, CommandRun, MAX_FILES_BYTES, run_command};
use netplumb_instruments::exact::Sampling;
use netplumb_lab::bundle::{Bundle, Host, companions};
use netplumb_lab::vm::kernels::KernelStore;
use netplumb_model::arch::Arch;
use netplumb_model::events::EventRequest;
use netplumb_model::experiment::{ArmKernel, Experiment, Trace};
use netplumb_model::message::{CommandEnd, Exit, Output, SetupPlan};
use netplumb_model::recording::Arm;
use netplumb_model::timing::TimingSpec;
use netplumb_report::printable;

use super::consent;
use super::disks;
use super::how::{How, finish};
use super::unseen::{is_nothing_seen, nothing_seen};
use crate::commands::read_file;
use crate::exit::{Usage, WORSE, WrongKey};
use crate::recorder::record_by;

/// Maximum output of a command, per stream; the rest is discarded.
const OUTPUT_BYTES: u64 = 16 << 20;
/// Maximum standard input of a command.
const STDIN_BYTES: u64 = 16 << 20;

/// An arm, and the words of its command.
pub(super) struct Words {
    pub(super) arm: Arm,
    pub(super) words: Vec<String>,
}

/// The guests that it runs in.
pub(super) struct Machine {
    /// One for each arm.
    pub(super) arms: Vec<Words>,
    /// Connections that the guest opens before it, as a warm-up.
    pub(super) warmup: u32,
    pub(super) blocks: u32,
    /// Whether instructions are counted.
    pub(super) exact: bool,
    /// Whether and how samples are drawn of them.
    pub(super) sampling: Option<Sampling>,
    /// Which calls are traced.
    pub(super) trace: Option<Trace>,
    /// The instruments of the running kernel, each in guests of its own.
    pub(super) timed: Vec<TimingSpec>,
}

/// Measure a command, and print its cost.
///
/// # Errors
/// The measurement failed.
pub(super) fn run(
    experiment: &Experiment,
    machine: Machine,
    how: &How<'_>,
    cache: &Path,
) -> anyhow::Result<ExitCode> {
    let arch = arch_of(&machine, cache)?;
    let run = prepare(experiment, how, machine, arch, cache)?;
    let mut said = HeldOutput::default();
    let mut ends = Vec::new();
    let outcome = record_by(
        |engine, recording, save, teller| {
            run_command(
                &run,
                engine,
                recording,
                save,
                &|event| teller.tell(event),
                &mut |from, bytes| said.take(from, bytes),
                &mut ends,
            )
        },
        (experiment, how.text),
        &how.options,
        cache,
    )?;
    said.show(how.for_programs())?;
    let nothing = outcome.error.as_ref().is_some_and(is_nothing_seen);
    let failed = print_ends(&run, experiment.workload.with.len(), &ends, &said, nothing);
    match outcome.error {
        Some(_) if nothing => {
            return Err(anyhow::Error::msg(nothing_seen(experiment, &outcome.recording)));
        }
        _ => {}
    }
    let code = finish(outcome, how)?;
    // Claims about a command that failed mean nothing.
    let is_result = [ExitCode::SUCCESS, ExitCode::from(WORSE)].contains(&code);
    Ok(if is_result && failed { ExitCode::FAILURE } else { code })
}

/// The architecture of the guests, which have the same files.
fn arch_of(machine: &Machine, cache: &Path) -> anyhow::Result<Arch> {
    let store = KernelStore::new(cache);
    let mut all = BTreeSet::new();
    for Words { arm, .. } in &machine.arms {
        let kernel = ArmKernel::from_arm(arm);
        // A kernel that isn't there is an error later on, with what to do.
        let kernel = store.find_for(&kernel.name, kernel.arch);
        all.insert(kernel.map_or(Arch::OWN, |kernel| kernel.arch));
    }
    let first = all.pop_first().unwrap_or(Arch::OWN);
    match all.is_empty() {
        true => Ok(first),
        false => {
            let why = "a command is a program for one architecture: measure each by itself, and \
                       compare the recordings with `plumb diff`";
            Err(WrongKey::usage("arch", why).into())
        }
    }
}

/// The files to copy into the guest.
fn prepare(
    experiment: &Experiment,
    how: &How<'_>,
    machine: Machine,
    arch: Arch,
    cache: &Path,
) -> anyhow::Result<CommandRun> {
    let (workload, setup) = (&experiment.workload, &experiment.setup);
    let mut bundle = Bundle::new(Host::here()?).for_arch(arch);
    for with in &workload.with {
        let from = consent::from_of(with);
        let to = with[from.as_os_str().len()..].strip_prefix(':');
        bundle.add_with(&from, to.map(Path::new))?;
    }
    let mut modules = Vec::new();
    let mut add = |words: &[String]| -> anyhow::Result<PathBuf> {
        let name = words.first().map_or("", String::as_str);
        let path = bundle.add_program(&how.program(name))?;
        modules.extend(companions::add(&mut bundle, &path)?);
        Ok(path)
    };
    let mut arms = Vec::new();
    for Words { arm, words } in machine.arms {
        let reads = read_file::in_guest(&words)?;
        let program = match &reads {
            // It is there as init.
            Some(_) => PathBuf::from("/init"),
            None => add(&words)?,
        };
        arms.push(CommandArm { arm, program, words, reads });
    }
    let peer = match &workload.peer {
        Some(line) => {
            let words = shell_words::split(line)
                .ok()
                .filter(|words| !words.is_empty())
                .ok_or_else(|| {
                    Usage(format!("invalid --peer `{}`; expected a command", printable(line, 200)))
                })?;
            Some((add(&words)?, words))
        }
        None => None,
    };
    let mut commands = Vec::new();
    for words in &setup.commands {
        let program = add(words)?;
        commands.push((program.to_string_lossy().into_owned(), words.clone()));
    }
    check_probed(&machine.timed, &bundle)?;
    disks::add(&mut bundle, &arms, (arch, cache))?;
    bundle.check_size(MAX_FILES_BYTES)?;
    disks::check_size(&arms, &bundle, setup)?;
    modules.sort();
    modules.dedup();
    Ok(CommandRun {
        arms,
        topologies: experiment.topologies.clone(),
        peer,
        folder: std::env::current_dir()?,
        stdin: match how.stdin {
            true => Some(own_stdin()?),
            false => None,
        },
        bundle,
        modules,
        setup: SetupPlan {
            modules: setup.modules.clone(),
            files: (setup.files.iter()).map(|(path, size)| (path.clone(), size.0)).collect(),
            commands,
            drop_caches: setup.drop_caches,
        },
        warmup: machine.warmup,
        blocks: machine.blocks,
        output_bytes: OUTPUT_BYTES,
        exact: machine.exact,
        sampling: machine.sampling,
        trace: machine.trace,
        timed: machine.timed,
    })
}

/// Check that programs whose functions are events are there.
fn check_probed(specs: &[TimingSpec], bundle: &Bundle) -> anyhow::Result<()> {
    let of_spans = specs.iter().filter_map(|spec| spec.spans.as_ref());
    let of_events = specs.iter().filter_map(|spec| spec.events.as_ref());
    let names = of_spans.flat_map(|spans| &spans.events);
    for name in names.chain(of_events.flat_map(|events| &events.names)) {
        let Ok(EventRequest::User { file, .. }) = EventRequest::parse(name) else {
            continue;
        };
        let path = Path::new(&file);
        let has = |path: &Path| bundle.entries().contains_key(path);
        // Symbolic links on the way are in the guest, too.
        let is_there = has(path) || path.canonicalize().is_ok_and(|path| has(&path));
        if !is_there {
            let (name, file) = (printable(name, 200), printable(&file, 200));
            let why = match path.exists() {
                true => format!("`{name}`: {file} is not in the guest; copy it with --with {file}"),
                false => format!("`{name}`: there is no file {file}"),
            };
            return Err(Usage(why).into());
        }
    }
    Ok(())
}

fn own_stdin() -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::stdin().take(STDIN_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > STDIN_BYTES {
        return Err(Usage(format!(
            "standard input is larger than {} MiB: copy it as a file, with --with",
            STDIN_BYTES >> 20
        ))
        .into());
    }
    Ok(bytes)
}

/// The output, which is passed on once the progress bar is gone.
#[derive(Default)]
struct HeldOutput {
    parts: Vec<(Output, Vec<u8>)>,
}

impl HeldOutput {
    fn take(&mut self, from: Output, bytes: &[u8]) {
        self.parts.push((from, bytes.to_vec()));
    }

    /// The command's output is printed as it is; the peer's only if either failed.
    fn show(&self, for_programs: bool) -> io::Result<()> {
        let mut unended = false;
        for (from, bytes) in &self.parts {
            let written = match from {
                // Standard output is for the report then.
                Output::Stdout if for_programs => io::stderr().write_all(bytes),
                Output::Stdout => io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()),
                Output::Stderr => io::stderr().write_all(bytes),
                Output::Peer => Ok(()),
            };
            match written {
                // A closed pipe (`| head`) is not an error.
                Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                other => other?,
            }
            if *from == Output::Stdout {
                unended = bytes.last().is_some_and(|b| *b != b'\n');
            }
        }
        if unended && !for_programs {
            io::stdout().write_all(b"\n")?;
        }
        Ok(())
    }

    /// The peer's last lines.
    fn peer(&self) -> Vec<String> {
        const LINES: usize = 5;
        let bytes: Vec<u8> = self
            .parts
            .iter()
            .filter(|(from, _)| *from == Output::Peer)
            .flat_map(|(_, bytes)| bytes.iter().copied())
            .collect();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(LINES)..].iter().map(|line| printable(line, 200)).collect()
    }
}

/// Report commands that failed; returns whether any did. `nothing` is whether no packet of theirs was seen.
fn print_ends(
    run: &CommandRun,
    files: usize,
    ends: &[CommandEnd],
    said: &HeldOutput,
    nothing: bool,
) -> bool {
    let mut failed = false;
    let mut lines = Vec::new();
    let mut tell = |line: String| {
        // Most blocks end in the same way.
        if !lines.contains(&line) {
            eprintln!("plumb: {line}");
            lines.push(line);
        }
    };
    // In the order of arms, each with its blocks.
    let arm_of = |at: usize| &run.arms[(at / run.blocks.max(1) as usize).min(run.arms.len() - 1)];
    for (at, end) in ends.iter().enumerate() {
        let name = printable(arm_of(at).words.first().map_or("", String::as_str), 80);
        let how = match end.exit {
            _ if end.stopped => Some(
                "was killed after --timeout: its cost until then is shown; --timeout SECONDS gives it \
                 more time"
                    .to_string(),
            ),
            Exit::Code(0) => None,
            Exit::Code(127) => Some("exited with code 127: if a program or library is missing in the guest, copy it with --with".into()),
            Exit::Code(code) => Some(format!("exited with code {code}")),
            Exit::Signal(libc::SIGILL) => Some(format!(
                "was killed by signal {} ({}): if the guest's CPU lacks instructions that it was built for, build it with an \
                 older -march",
                libc::SIGILL,
                signal_name(libc::SIGILL)
            )),
            Exit::Signal(signal) => Some(format!("was killed by signal {signal} ({})", signal_name(signal))),
        };
        let is_bad = how.is_some();
        if let Some(how) = how {
            failed = true;
            tell(format!("{name} {how}"));
        }
        if let Some(peer) = &run.peer {
            let peer = printable(peer.1.first().map_or("", String::as_str), 80);
            let mut why = None;
            match end.peer {
                Some(Exit::Code(0)) => {}
                Some(Exit::Code(code)) => why = Some(format!("exited with code {code}")),
                Some(Exit::Signal(signal)) => {
                    why = Some(format!("was killed by signal {signal} ({})", signal_name(signal)));
                }
                None if !end.peer_ready => {
                    why = Some("had no open socket after a second of guest time".into());
                }
                None => {}
            }
            // If a command could not reach its peer, the peer's output may explain it.
            if why.is_some() || is_bad || nothing {
                if let Some(why) = why {
                    tell(format!("--peer {peer} {why}"));
                }
                for line in said.peer() {
                    tell(format!("output of --peer: {line}"));
                }
            }
        }
        if end.unkept_bytes > 0 {
            tell(format!(
                "{name} wrote {} bytes more than the {} MiB that are passed on; they were discarded",
                end.unkept_bytes,
                OUTPUT_BYTES >> 20
            ));
        }
        if !end.left.is_empty() {
            tell(format!(
                "{name} left processes running, which were killed: {}",
                printable(&end.left.join(", "), 200)
            ));
        }
    }
    if failed {
        let mut words = run.arms.iter().flat_map(|arm| arm.words.iter().skip(1));
        let missing = words.find(|word| could_go_along(run, word));
        if let Some(file) = missing.filter(|_| files < 1000) {
            let file = printable(file, 200);
            tell(format!("`{file}` is not in the guest: copy it with --with {file}"));
        }
    }
    failed
}

/// Whether an argument names an existing file or directory that the guest lacks, and that can be
/// copied there. Guests have devices and files of the kernel themselves.
fn could_go_along(run: &CommandRun, word: &str) -> bool {
    const OWN: &[&str] = &["/dev", "/proc", "/sys"];
    let path = run.folder.join(word);
    // Paths in the guest have no `..` and links.
    let Ok(path) = path.canonicalize() else {
        return false;
    };
    let goes = path.is_file() || path.is_dir();
    let entries = run.bundle.entries();
    let is_there = entries.contains_key(&path)
        || entries.contains_key(&run.folder.join(word))
        || run.folder.starts_with(&path)
        || OWN.iter().any(|own| path.starts_with(own));
    goes && !is_there
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGABRT => "aborted",
        libc::SIGBUS => "bus error",
        libc::SIGFPE => "arithmetic error",
        libc::SIGILL => "illegal instruction",
        libc::SIGKILL => "killed",
        libc::SIGPIPE => "broken pipe",
        libc::SIGSEGV => "segmentation fault",
        libc::SIGTERM => "terminated",
        libc::SIGTRAP => "trap",
        _ => "see kill -l",
    }
}
