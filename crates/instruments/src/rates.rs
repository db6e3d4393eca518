//! The `rates` instrument: how busy CPUs were, and where frames went.
//!
//! [`cpu`] tells how busy each CPU was, by two methods that know nothing of each
//! other. [`samples`] tells what they did, by where they were every so often. The counters that the kernel keeps
//! anyway are those of `netplumb_sys::proc::counters`. [`drops`] is for
//! when these do not explain what is missing: programs on tracepoints, which cost
//! something for each packet that is lost, so that they are attached on demand only.

mod accounting;
mod busy;
#[cfg(test)]
mod counted;
pub mod cpu;
pub mod drops;
pub mod samples;
#[cfg(test)]
mod sandbox;

use libbpf_rs::btf::{Btf, types};
use libbpf_rs::{MapCore, MapHandle, Object, OpenObject};

use crate::live::LiveError;

fn system<E>(doing: &str) -> impl FnOnce(E) -> LiveError + '_
where
    E: std::error::Error + Send + Sync + 'static,
{
    move |source| LiveError::System {
        doing: doing.to_string(),
        source: Box::new(source),
    }
}

/// The types of the running kernel.
fn btf() -> Result<Btf<'static>, LiveError> {
    Btf::from_vmlinux().map_err(|error| LiveError::CannotRun {
        reason: format!("the kernel has no type information ({error})"),
        remedy: "use a kernel with CONFIG_DEBUG_INFO_BTF=y, as distributions have it".into(),
    })
}

fn has_tracepoint(btf: &Btf<'_>, tracepoint: &str) -> bool {
    let name = format!("btf_trace_{tracepoint}");
    btf.type_by_name::<types::Typedef<'_>>(&name).is_some()
}

/// What the kernel's refusal to load programs means.
fn refused(source: libbpf_rs::Error) -> LiveError {
    match source.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => LiveError::CannotRun {
            reason: "the kernel doesn't let this user load BPF programs".into(),
            remedy: "be root, or have CAP_BPF and CAP_PERFMON (`plumb doctor` says more)".into(),
        },
        _ => system("load the programs of `rates`")(source),
    }
}

/// Give programs their settings: all that they have of `.rodata`.
fn set(open: &mut OpenObject, settings: &[u8]) -> Result<(), LiveError> {
    let mut rodata = open
        .maps_mut()
        .find(|m| m.name().to_string_lossy().ends_with(".rodata"));
    match rodata.as_mut().and_then(|m| m.initial_value_mut()) {
        Some(values) if values.len() == settings.len() => {
            values.copy_from_slice(settings);
            Ok(())
        }
        _ => Err(LiveError::System {
            doing: "set the programs of `rates`".into(),
            source: "their settings are not where they should be".into(),
        }),
    }
}

/// A map by the end of its name.
fn map(object: &Object, name: &str) -> Result<MapHandle, LiveError> {
    let found = object
        .maps()
        .find(|m| m.name().to_string_lossy().ends_with(name));
    let found = found.ok_or_else(|| LiveError::System {
        doing: "find the maps of `rates`".into(),
        source: format!("the compiled programs have no `{name}`").into(),
    })?;
    MapHandle::try_from(&found).map_err(system("hold the maps of `rates`"))
}
