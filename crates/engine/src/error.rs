//! Why an experiment ended early.

use std::io;

use netplumb_instruments::exact::{self, StreamError};
use netplumb_kernel::kallsyms::KallsymsError;
use netplumb_kernel::modules::ModuleError;
use netplumb_lab::bundle::BundleError;
use netplumb_lab::vm::kernels::KernelStoreError;
use netplumb_lab::vm::process::VmError;

/// Why an experiment ended early.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The kernel's catalogue.
    #[error(transparent)]
    Kernel(#[from] KernelStoreError),
    /// A module.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The guest.
    #[error(transparent)]
    Vm(#[from] VmError),
    /// A file that a knob needs.
    #[error(transparent)]
    Files(#[from] netplumb_lab::vm::files::FilesError),
    /// A queueing discipline that a kernel lacks.
    #[error(
        "the kernel {kernel} has no module {module}, and it is not built in: choose another \
         queueing discipline, or a kernel that has it (plumb kernel add)"
    )]
    NoQdisc {
        /// Release of the kernel.
        kernel: String,
        /// What it would take.
        module: String,
    },
    /// The command's files.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// QEMU will not have the plugin.
    #[error("{0}")]
    Plugin(String),
    /// The guest's symbols.
    #[error("the guest's symbols: {0}")]
    Symbols(#[from] KallsymsError),
    /// A kernel without a function that paths are told by.
    #[error(
        "can't tell {what} in the kernel {kernel}: none of its functions is called {names}, nor is \
         a copy of them that the compiler made. Without that, receive work would be counted as \
         the sender's: measure another kernel (plumb kernel list), or add the function's name to \
         crates/kernel/rules/path.toml"
    )]
    NoPathFunction {
        /// Release of the kernel.
        kernel: String,
        /// What they tell.
        what: &'static str,
        /// What was looked for.
        names: String,
    },
    /// Packets were received, and not where they are looked for.
    #[error(
        "packets were received, but not in a softirq of the kernel {kernel} that was seen (looked \
         for {names}): receive work would be counted as the sender's. Measure another kernel \
         (plumb kernel list), or see docs/guide/kernels.md, \"Names that the rules do not know\""
    )]
    NoReceiveWork {
        /// Release of the kernel.
        kernel: String,
        /// What was looked for.
        names: String,
    },
    /// The plugin's stream.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The stream ended before the windows did.
    #[error("the plugin reported {got} of {wanted} blocks: it missed the guest's markers")]
    WindowsMissing {
        /// Windows that came.
        got: usize,
        /// Blocks that ran.
        wanted: usize,
    },
    /// What was measured can't be kept.
    #[error("{0}")]
    Save(String),
    /// A recording to go on with is of something else.
    #[error(
        "the recording to go on with has {0}: run without --resume, or into another file with \
         --output"
    )]
    OtherPlan(&'static str),
    /// An instrument that reads a clock.
    #[error(transparent)]
    Live(#[from] netplumb_instruments::live::LiveError),
    /// The namespaces and what joins them.
    #[error(transparent)]
    Topology(#[from] netplumb_lab::netns::TopologyError),
    /// The frames of a bench.
    #[error(transparent)]
    Generator(#[from] netplumb_workload::frames::GeneratorError),
    /// A data path.
    #[error(transparent)]
    Path(#[from] netplumb_paths::PathError),
    /// The interfaces that a bench is to run on.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// A guest of a bench did not do what it was asked.
    #[error("{0}")]
    Guest(String),
    /// A search that can't begin.
    #[error("{0}")]
    Search(String),
    /// More CPUs were asked for than there are.
    #[error("{asked} CPUs are asked for, and {there} are online: ask for fewer (--cores, --apart)")]
    TooFewCpus {
        /// How many it would take.
        asked: u32,
        /// How many there are.
        there: usize,
    },
    /// The workload's packets.
    #[error("can't {doing}: {source}")]
    Workload {
        /// What it was to do.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A command could not be started.
    #[error("can't start {name}: {source}")]
    Command {
        /// Its name.
        name: String,
        /// The system's reason.
        source: io::Error,
    },
    /// What was watched is no more.
    #[error("{0} went away while it was measured: measure again when it is back")]
    Gone(String),
    /// No packet was seen.
    #[error("no packet was seen that was asked for")]
    NothingSeen {
        /// How the command ended that was to make them, if there was one.
        command: Option<netplumb_model::message::Exit>,
    },
    /// A system call of ours failed.
    #[error("can't {what}: {source}")]
    Host {
        /// What we were to do.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

/// Why a bench does not run on the interfaces that are named.
#[derive(Debug, thiserror::Error)]
pub enum NicError {
    /// It is asked for in a way that is not done: nothing was changed.
    #[error("{0}")]
    Asked(String),
    /// It can't be done on this interface: nothing was changed.
    #[error("{reason}: {remedy}")]
    CannotRun {
        /// Why.
        reason: String,
        /// What a person can do about it.
        remedy: String,
    },
    /// Something is not as it was.
    #[error(
        "not all settings were restored: {}. `plumb doctor --clean` tries again, and lists what is left",
        .0.join("; ")
    )]
    NotPutBack(Vec<String>),
}

impl EngineError {
    /// Whether the guest lives, and could not do what it was asked.
    pub(crate) fn is_the_guests(&self) -> bool {
        matches!(self, EngineError::Vm(VmError::CommandFailed { .. }))
    }

    /// What we were to do, for an error of the system.
    pub(crate) fn host(what: &'static str) -> impl FnOnce(io::Error) -> EngineError {
        move |source| EngineError::Host { what, source }
    }

    /// QEMU's refusal of the plugin, in words of our own; other errors as they are.
    pub(crate) fn of_start(error: VmError) -> EngineError {
        if let VmError::QemuFailed { stderr, .. } = &error
            && let Some(why) = exact::describe_refusal(stderr)
        {
            return EngineError::Plugin(format!("{why}\n  QEMU said: {}", stderr.join(" ")));
        }
        error.into()
    }
}
