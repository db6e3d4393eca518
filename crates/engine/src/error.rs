//! Errors of experiments.

use std::io;
use std::path::PathBuf;

use netplumb_agent::{BlockError, NicError};
use netplumb_instruments::exact::{self, StreamError};
use netplumb_instruments::wire;
use netplumb_kernel::kallsyms::KallsymsError;
use netplumb_kernel::modules::ModuleError;
use netplumb_knobs::KnobError;
use netplumb_lab::bundle::BundleError;
use netplumb_lab::vm::agent::AgentError;
use netplumb_lab::vm::kernels::KernelStoreError;
use netplumb_lab::vm::pair::PairError;
use netplumb_lab::vm::process::VmError;
use netplumb_lab::vm::trial::release;
use netplumb_model::class::Link;
use netplumb_model::hosts::Side;
use netplumb_model::message::NotLoaded;
use netplumb_model::recording::Arm;
use netplumb_workload::peers::PeerError;

/// An error that ended an experiment.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Finding or reading a kernel.
    #[error(transparent)]
    Kernel(#[from] KernelStoreError),
    /// Finding or loading a kernel module.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// Starting or running the guest.
    #[error(transparent)]
    Vm(#[from] VmError),
    /// The guest of one of two hosts.
    #[error("{}", of_host(*side, error))]
    OfHost {
        /// Which.
        side: Side,
        /// Its error. The text includes it, so it is not the source.
        error: Box<VmError>,
    },
    /// One of several arms that were measured.
    #[error("arm {arm}: {source}")]
    OfArm {
        /// The arm's name.
        arm: String,
        /// What stopped the measurement of the arm.
        source: Box<EngineError>,
    },
    /// Both hosts wait, as one of them hangs.
    #[error("neither host goes on: the guest of one hangs, and the other waits for it: {0}")]
    BothHang(Box<VmError>),
    /// The program for guests of the kernel's architecture.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// A file that a knob needs.
    #[error(transparent)]
    Files(#[from] netplumb_lab::vm::files::FilesError),
    /// The kernel does not have a qdisc.
    #[error(
        "module {module} is not available in kernel {kernel}; use another qdisc, or a kernel that \
         has it (plumb kernel add)"
    )]
    NoQdisc {
        /// Release of the kernel.
        kernel: String,
        /// The module that is needed.
        module: String,
    },
    /// A search for settings lacks an interface, a command or a peer.
    #[error("{0}")]
    Tuning(String),
    /// Some arms could not be measured: a line for each. All others were.
    #[error("{0}")]
    ArmsFailed(String),
    /// Options for a module that has not these, or is not loaded.
    #[error("module_options can't be used: {0}")]
    ModuleOptions(String),
    /// The command's files.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A module of the user's does not load.
    #[error(
        "{} does not load in the guest: {}{}; {}",
        path.display(),
        refused.why,
        match &refused.kernel[..] {
            [] => String::new(),
            lines => format!("; its kernel says: {}", lines.join("; ")),
        },
        refused.remedy
    )]
    NotLoaded {
        /// The file that the user supplied as the module.
        path: PathBuf,
        /// Why, and what to try.
        refused: Box<NotLoaded>,
    },
    /// QEMU refused to load the plugin.
    #[error("{0}")]
    Plugin(String),
    /// The guest's symbols.
    #[error("the guest's symbols: {0}")]
    Symbols(#[from] KallsymsError),
    /// The kernel does not have a function that classification needs.
    #[error(
        "can't identify {what} in kernel {kernel}: none of the functions {names} (or compiler \
         clones) exists, and receive processing would be attributed to the sender. Use another \
         kernel (plumb kernel list), or add the name of the function to \
         crates/kernel/rules/path.toml"
    )]
    NoPathFunction {
        /// Release of the kernel.
        kernel: String,
        /// The part of the path that the functions identify, in words.
        what: &'static str,
        /// The functions that were looked for.
        names: String,
    },
    /// Packets were received outside the known receive functions.
    #[error(
        "packets were received, but not by the known softirq functions of kernel {kernel} \
         ({names}), and receive processing would be attributed to the sender. Use another kernel \
         (plumb kernel list), or see docs/guide/kernels.md, \"Functions that no rule covers\""
    )]
    NoReceiveWork {
        /// Release of the kernel.
        kernel: String,
        /// The functions that were looked for.
        names: String,
    },
    /// The function to trace is not there.
    #[error("{0}")]
    NoFunction(String),
    /// Arguments of calls can't be read here.
    #[error("unavailable: {0}")]
    NoArguments(String),
    /// A kernel has no driver of a link.
    #[error(
        "unavailable: kernel {kernel} has no driver of link {link} (module {module}): {remedy}"
    )]
    NoDriver {
        /// The release of the kernel.
        kernel: String,
        /// The requested link.
        link: Link,
        /// The module that is missing.
        module: String,
        /// What to try.
        remedy: String,
    },
    /// The plugin's stream.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The stream ended early.
    #[error(
        "the plugin saw {got} blocks, and the guest reported {wanted}: markers of the guest, or its reports, are missing"
    )]
    WindowsMissing {
        /// Windows in the stream.
        got: usize,
        /// Blocks that the guest reported.
        wanted: usize,
    },
    /// The results can't be saved.
    #[error("{0}")]
    Save(String),
    /// The recording to resume is of another experiment.
    #[error(
        "can't resume: the recording has {0}. Run without --resume, or use another file with -o"
    )]
    OtherPlan(&'static str),
    /// An instrument of this machine.
    #[error(transparent)]
    Live(#[from] netplumb_instruments::live::LiveError),
    /// The network namespaces and links.
    #[error(transparent)]
    Topology(#[from] netplumb_lab::netns::TopologyError),
    /// A block of a bench.
    #[error(transparent)]
    Block(BlockError),
    /// A request to the guest of a bench failed.
    #[error("{0}")]
    Guest(String),
    /// A search that can't start.
    #[error("{0}")]
    Search(String),
    /// The workload's packets.
    #[error("can't {doing}: {source}")]
    Workload {
        /// The operation that failed.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// Another program between two hosts.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// A command could not be started.
    #[error("can't start {name}: {source}")]
    Command {
        /// The first word of the command.
        name: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The observed object was removed.
    #[error("{0} was removed during the measurement")]
    Gone(String),
    /// No packet was observed.
    #[error("no matching packets")]
    NothingSeen {
        /// The exit of the command that should have generated them, if there was one.
        command: Option<netplumb_model::message::Exit>,
    },
    /// A system call failed.
    #[error("can't {what}: {source}")]
    Host {
        /// The operation that failed.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

impl From<BlockError> for EngineError {
    fn from(error: BlockError) -> EngineError {
        match error {
            BlockError::Live(error) => error.into(),
            BlockError::Topology(error) => error.into(),
            BlockError::Interrupted => VmError::Interrupted.into(),
            BlockError::Host { what, source } => EngineError::Host { what, source },
            error => EngineError::Block(error),
        }
    }
}

impl From<NicError> for EngineError {
    fn from(error: NicError) -> EngineError {
        EngineError::Block(error.into())
    }
}

impl From<KnobError> for EngineError {
    fn from(error: KnobError) -> EngineError {
        EngineError::Block(error.into())
    }
}

/// How the guest of one of two hosts ended, in words.
fn of_host(side: Side, error: &VmError) -> String {
    let guest = format!("the guest of the {}", side.called());
    let (text, how) = (error.to_string(), "the guest ");
    match error {
        // The text already has how it ended.
        VmError::QemuStopped { .. } => text.replacen(how, &format!("{guest} "), 1),
        VmError::Timeout { .. } => format!("{guest} hangs: {text}"),
        _ => format!("{guest} ended: {text}"),
    }
}

impl EngineError {
    /// Whether the guest is alive and its request failed.
    pub(crate) fn is_the_guests(&self) -> bool {
        matches!(self, EngineError::Vm(VmError::CommandFailed { .. }))
    }

    /// Whether a device or a kernel refused the settings of an arm: others can still be measured.
    pub fn is_of_settings(&self) -> bool {
        match self {
            EngineError::Topology(error) => {
                error.is_not_taken() || (!error.lacks_rights() && !error.lacks_means())
            }
            EngineError::OfArm { source, .. } => source.is_of_settings(),
            EngineError::ArmsFailed(_) => true,
            error => error.is_the_guests(),
        }
    }

    /// Whether an arm's settings, or its packets, failed: others can still be measured.
    pub(crate) fn is_of_one_arm(&self) -> bool {
        match self {
            EngineError::Workload { source, .. } => source.kind() != io::ErrorKind::Interrupted,
            EngineError::Peer(error) => !matches!(error, PeerError::Missing(_)),
            error => error.is_of_settings(),
        }
    }

    /// The error without its arm.
    pub fn cause(&self) -> &EngineError {
        match self {
            EngineError::OfArm { source, .. } => source.cause(),
            error => error,
        }
    }

    /// Name the arm, if there are several.
    pub(crate) fn of_arm(self, arm: usize, arms: &[Arm]) -> EngineError {
        match self {
            // No arm's own.
            EngineError::Vm(VmError::Interrupted) => self,
            source if arms.len() > 1 => {
                EngineError::OfArm { arm: arms[arm].name.clone(), source: Box::new(source) }
            }
            source => source,
        }
    }

    /// An error of the system in this operation.
    pub(crate) fn host(what: &'static str) -> impl FnOnce(io::Error) -> EngineError {
        move |source| EngineError::Host { what, source }
    }

    /// Name the host that ended a run of two. Its guest's own messages name its device.
    pub(crate) fn of_pair(PairError { guest, error }: PairError) -> EngineError {
        let side = guest.and_then(|number| Side::ALL.get(number).copied());
        match (EngineError::of_start(error), side) {
            (
                EngineError::Vm(
                    error @ (VmError::QemuFailed { .. }
                    | VmError::Stopped { .. }
                    | VmError::KernelPanic { .. }
                    | VmError::AgentFailed { .. }
                    | VmError::Timeout { .. }
                    | VmError::QemuStopped { .. }),
                ),
                side,
            ) => {
                let error = Box::new(error);
                match side {
                    Some(side) => EngineError::OfHost { side, error },
                    None => EngineError::BothHang(error),
                }
            }
            (error, _) => error,
        }
    }

    /// Explain that QEMU refused the plugin; other errors are passed on.
    pub(crate) fn of_start(error: VmError) -> EngineError {
        // Its output before a signal is not why it ended.
        if let VmError::QemuFailed { status, stderr, .. } = &error
            && !status.starts_with("signal")
            && let Some(why) = wire::describe_refusal(stderr)
                .or_else(|| exact::describe_refusal(stderr))
                .or_else(|| no_property(stderr))
                .or_else(|| no_sandbox(stderr))
        {
            return EngineError::Plugin(format!("{why}\n  QEMU said: {}", stderr.join(" ")));
        }
        error.into()
    }
}

/// If QEMU ended because it has no name for a feature of the guests' CPU (qdev_prop_set_globals in
/// hw/core/qdev-properties.c), or for a property of e1000 that QEMU 10 dropped: which one, and what to do.
fn no_property(stderr: &[String]) -> Option<String> {
    let named = |line: &String| {
        let (_, rest) = line.split_once("Property '")?;
        let (property, _) = rest.split_once("' not found")?;
        property.split_once('.').map(|(device, name)| (device.to_owned(), name.to_owned()))
    };
    let (device, feature) = stderr.iter().find_map(named)?;
    if feature == "mitigation" {
        return Some(
            "this QEMU's e1000 can't turn its interrupt throttling off, as --throttle off asks (QEMU 10 and later \
             can't): leave that out, or name an older QEMU with $PLUMB_QEMU, such as Debian 12's"
                .into(),
        );
    }
    if !device.ends_with("-cpu") {
        return None;
    }
    Some(format!(
        "this QEMU has no CPU feature `{feature}`, which the guests' CPU has: use QEMU {}, or name another with \
         $PLUMB_QEMU; --lab netns needs none",
        release::tested("or")
    ))
}

/// If QEMU ended because it was built without seccomp (`qemu_init` in softmmu/vl.c): what to do.
fn no_sandbox(stderr: &[String]) -> Option<String> {
    let refused = stderr.iter().any(|line| line.contains("-sandbox"));
    refused.then(|| {
        "this QEMU can't filter its system calls (-sandbox): use one with seccomp, such as any distribution's, or \
         set PLUMB_CONFINE_QEMU=0 if you trust the guest's kernel"
            .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a refusal by QEMU is explained, but not output before a signal.
    #[test]
    fn refusals_and_signals() {
        let message = |status: &str, said: &str| {
            let error = VmError::QemuFailed {
                status: status.into(),
                stderr: vec![said.into()],
                console: Vec::new(),
            };
            EngineError::of_start(error).to_string()
        };
        let feature =
            "can't apply global base-x86_64-cpu.mpx=on: Property 'base-x86_64-cpu.mpx' not found";
        assert!(message("exit status: 1", feature).contains("no CPU feature `mpx`"));
        let throttle =
            "-device e1000-82545em,mitigation=off: Property 'e1000-82545em.mitigation' not found";
        assert!(message("exit status: 1", throttle).contains("--throttle off"));
        let seccomp = "-sandbox support is not enabled in this QEMU binary";
        assert!(message("exit status: 1", seccomp).contains("PLUMB_CONFINE_QEMU=0"));
        let killed = message("signal: 11 (SIGSEGV)", "undefined symbol: x");
        assert!(killed.starts_with("QEMU failed (signal: 11 (SIGSEGV))"), "{killed}");
    }

    /// Check that an error of two hosts names the host, or says that it may be either.
    #[test]
    fn names_of_hosts() {
        let message = |guest, error| EngineError::of_pair(PairError { guest, error }).to_string();
        let killed = || VmError::QemuFailed {
            status: "signal: 9 (SIGKILL)".into(),
            stderr: Vec::new(),
            console: Vec::new(),
        };
        let silent = || VmError::Timeout { what: "answer", seconds: 30, console: Vec::new() };
        let stopped = || VmError::QemuStopped { what: "answer".into(), seconds: 30 };
        let text = message(Some(1), killed());
        assert!(text.starts_with("the guest of the receiver ended: QEMU failed"), "{text}");
        assert!(text.contains("dmesg"), "{text}");
        let text = message(Some(0), stopped());
        assert!(
            text.starts_with(
                "the guest of the sender did not answer within 30 s, as its QEMU is stopped"
            ),
            "{text}"
        );
        let text = message(None, silent());
        assert!(text.starts_with("neither host goes on"), "{text}");
        assert_eq!(message(Some(0), VmError::Interrupted), "interrupted");
    }
}
