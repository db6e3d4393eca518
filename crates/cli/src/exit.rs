//! Exit codes: 0 success, 1 failure, 2 usage error, 3 not supported on this machine, 4 worse
//! (`diff --fail-if-worse`, `run --fail-if-claim-fails`, `tune --hold`).

use netplumb_agent::{BlockError, NicError};
use netplumb_engine::EngineError;
use netplumb_instruments::live::LiveError;
use netplumb_kernel::layers::LayerError;
use netplumb_knobs::KnobError;
use netplumb_lab::bundle::BundleError;
use netplumb_lab::modules::ModuleBuildError;
use netplumb_lab::vm::files::FilesError;
use netplumb_lab::vm::kernels::{ErrorKind, KernelStoreError};
use netplumb_lab::vm::process::VmError;
use netplumb_model::experiment::{ExperimentError, Key};
use netplumb_model::message::RefusedKind;
use netplumb_paths::PathError;
use netplumb_store::StoreError;
use netplumb_workload::frames::GeneratorError;

/// Worse than `--fail-if-worse`, a claim or `--hold` allows.
pub(crate) const WORSE: u8 = 4;

/// How a command failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It failed.
    Failed,
    /// A usage error.
    Usage,
    /// Not supported on this machine.
    CannotHere,
    /// Ended by Ctrl-C, or another signal.
    Interrupted,
}

impl Failure {
    /// The exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Failure::Failed => 1,
            Failure::Usage => 2,
            Failure::CannotHere => 3,
            Failure::Interrupted => crate::signals::exit_code(),
        }
    }

    /// The kind of an error.
    pub(crate) fn from_error(error: &anyhow::Error) -> Failure {
        if let Some(wrong) = error.downcast_ref::<WrongKey>() {
            return wrong.failure;
        }
        if error.downcast_ref::<Usage>().is_some()
            || error.downcast_ref::<ExperimentError>().is_some()
            || error.downcast_ref::<LayerError>().is_some()
        {
            return Failure::Usage;
        }
        if (error.downcast_ref::<StoreError>()).is_some_and(StoreError::is_usage) {
            return Failure::Usage;
        }
        if let Some(error) = error.downcast_ref::<BundleError>() {
            return match error {
                BundleError::WrongArchitecture { .. }
                | BundleError::TooLarge { .. }
                | BundleError::MissingLoader { .. } => Failure::CannotHere,
                BundleError::MissingLibrary { .. }
                | BundleError::MissingInterpreter { .. }
                | BundleError::Damaged { .. } => Failure::Failed,
                _ => Failure::Usage,
            };
        }
        if let Some(error) = error.downcast_ref::<KernelStoreError>() {
            return error.kind().into();
        }
        if let Some(error) = error.downcast_ref::<ModuleBuildError>() {
            return error.kind().into();
        }
        match error.downcast_ref::<EngineError>().map(EngineError::cause) {
            Some(
                EngineError::Vm(VmError::QemuMissing(_) | VmError::AgentFailed { .. })
                | EngineError::Agent(_)
                | EngineError::Plugin(_)
                | EngineError::NoDriver { .. }
                | EngineError::NoArguments(_),
            ) => Failure::CannotHere,
            Some(EngineError::OfHost { error, .. })
                if matches!(**error, VmError::AgentFailed { .. }) =>
            {
                Failure::CannotHere
            }
            Some(EngineError::OtherPlan(_) | EngineError::Live(LiveError::Asked(_))) => {
                Failure::Usage
            }
            Some(EngineError::Live(LiveError::CannotRun { .. })) => Failure::CannotHere,
            Some(EngineError::Topology(error)) if error.lacks_rights() || error.lacks_means() => {
                Failure::CannotHere
            }
            Some(EngineError::Topology(error)) if error.is_asked() => Failure::Usage,
            Some(
                EngineError::NoQdisc { .. }
                | EngineError::NoPathFunction { .. }
                | EngineError::NoReceiveWork { .. },
            ) => Failure::CannotHere,
            Some(EngineError::Block(error)) => match error {
                BlockError::Generator(GeneratorError::Input(_))
                | BlockError::TooFewCpus { .. }
                | BlockError::Nic(NicError::Asked(_)) => Failure::Usage,
                BlockError::Generator(GeneratorError::CannotRun { .. })
                | BlockError::Path(
                    PathError::CannotRun { .. }
                    | PathError::Knob(
                        KnobError::NotAccepted { .. }
                        | KnobError::Missing { .. }
                        | KnobError::ReadsBack { .. },
                    ),
                )
                | BlockError::Nic(NicError::CannotRun { .. }) => Failure::CannotHere,
                _ => Failure::Failed,
            },
            Some(EngineError::Vm(VmError::CommandFailed { kind, .. })) => match kind {
                RefusedKind::Asked => Failure::Usage,
                RefusedKind::CannotRun => Failure::CannotHere,
                RefusedKind::Failed => Failure::Failed,
            },
            Some(EngineError::Files(FilesError::Fetch { source, .. }))
                if source.kind() == ErrorKind::Interrupted =>
            {
                Failure::Interrupted
            }
            Some(EngineError::Files(FilesError::Missing(_) | FilesError::Fetch { .. })) => {
                Failure::CannotHere
            }
            Some(
                EngineError::Command { .. }
                | EngineError::NoFunction(_)
                | EngineError::ModuleOptions(_),
            ) => Failure::Usage,
            Some(EngineError::Vm(VmError::Interrupted)) => Failure::Interrupted,
            Some(EngineError::Kernel(error)) => error.kind().into(),
            _ if error.downcast_ref::<CannotHere>().is_some() => Failure::CannotHere,
            _ => Failure::Failed,
        }
    }
}

impl From<ErrorKind> for Failure {
    fn from(kind: ErrorKind) -> Failure {
        match kind {
            ErrorKind::Usage => Failure::Usage,
            ErrorKind::CannotHere => Failure::CannotHere,
            ErrorKind::Failed => Failure::Failed,
            ErrorKind::Interrupted => Failure::Interrupted,
        }
    }
}

/// The message of an error, with the causes that it does not include.
pub(crate) fn message(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// A usage error: what is wrong, and what is expected.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

/// An error of a key of an experiment; for a file, [`crate::commands::run`] adds the line.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct WrongKey {
    pub(crate) key: Key,
    pub(crate) what: String,
    failure: Failure,
}

impl WrongKey {
    /// A usage error.
    pub(crate) fn usage(key: impl Into<Key>, what: impl Into<String>) -> WrongKey {
        WrongKey { key: key.into(), what: what.into(), failure: Failure::Usage }
    }

    /// An error for what this machine, or this lab, does not support.
    pub(crate) fn cannot_here(key: impl Into<Key>, what: impl Into<String>) -> WrongKey {
        WrongKey { failure: Failure::CannotHere, ..WrongKey::usage(key, what) }
    }
}

/// Not supported on this machine, or in this lab: why, and the alternative.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CannotHere(pub(crate) String);
