//! What a guest's knobs need at boot: modules, files, a module of one's own; and what
//! its arms have to say of their knobs.

use std::collections::BTreeMap;
use std::path::Path;

use netplumb_kernel::config::{ConfigValue, KernelConfig};
use netplumb_kernel::modules::ModuleTree;
use netplumb_lab::vm::files::{self, FilesError};
use netplumb_lab::vm::kernels::KernelEntry;
use netplumb_model::recording::{Recording, env};

use crate::error::EngineError;
use crate::plan::GuestPlan;

/// The kernel's modules, with the one that replaces its own.
pub(crate) fn module_tree(
    kernel: &KernelEntry,
    guest: &GuestPlan,
) -> Result<ModuleTree, EngineError> {
    let mut tree = kernel.module_tree()?;
    if !guest.module.is_empty() {
        tree.replace(Path::new(&guest.module), &kernel.release)?;
    }
    Ok(tree)
}

/// Modules that are to be loaded beside those of the machine.
pub(crate) fn modules<'g>(
    guest: &'g GuestPlan,
    kernel: &KernelEntry,
    tree: &ModuleTree,
) -> Result<Vec<&'g str>, EngineError> {
    let mut modules = Vec::new();
    for module in &guest.nft_modules {
        // What a text's words only hint at may be built in, or not be there.
        if *module == "nf_tables" || tree.find(module).is_some() {
            modules.push(*module);
        }
    }
    for module in &guest.more_modules {
        if tree.find(module).is_some() {
            modules.push(*module);
        }
    }
    if guest.bridge {
        modules.push("bridge");
    }
    modules.extend(qdiscs(guest, kernel, tree)?);
    if !guest.module.is_empty() {
        let name = Path::new(&guest.module).file_name().unwrap_or_default();
        let name = name.to_str().unwrap_or_default();
        modules.push(name.split_once(".ko").map_or(name, |(stem, _)| stem));
    }
    Ok(modules)
}

/// Check that a guest can have what its arms ask for, before any boots.
///
/// # Errors
/// This machine or that kernel lacks something.
pub(crate) fn check(kernel: &KernelEntry, guest: &GuestPlan) -> Result<(), EngineError> {
    if guest.qdisc {
        archive(guest)?;
        qdiscs(guest, kernel, &module_tree(kernel, guest)?)?;
    }
    Ok(())
}

/// The modules of queueing disciplines that are to be loaded.
fn qdiscs<'g>(
    guest: &'g GuestPlan,
    kernel: &KernelEntry,
    tree: &ModuleTree,
) -> Result<Vec<&'g str>, EngineError> {
    let mut modules = Vec::new();
    for module in &guest.qdisc_modules {
        if tree.find(module).is_some() {
            modules.push(module.as_str());
        } else if !tree.is_builtin(module) && !in_config(kernel, module) {
            return Err(EngineError::NoQdisc {
                kernel: kernel.release.clone(),
                module: module.clone(),
            });
        }
    }
    Ok(modules)
}

/// Whether a kernel's configuration has a queueing discipline built in: an image may come
/// without a list of what is.
fn in_config(kernel: &KernelEntry, module: &str) -> bool {
    let option = format!("NET_{}", module.to_ascii_uppercase());
    let config = kernel
        .config()
        .and_then(|path| std::fs::read_to_string(path).ok());
    config
        .and_then(|text| KernelConfig::parse(&text).ok())
        .is_some_and(|config| matches!(config.get(&option), Some(ConfigValue::Yes)))
}

/// An archive of files, to follow that of init and modules.
pub(crate) fn archive(guest: &GuestPlan) -> Result<Vec<u8>, FilesError> {
    let mut archive = Vec::new();
    if !guest.nft_modules.is_empty() {
        archive.extend(files::nft()?);
    }
    if guest.qdisc {
        archive.extend(files::tc()?);
    }
    Ok(archive)
}

/// Of the facts of a guest, those by which an arm differs from the recording's, which
/// are those of the first.
pub(crate) fn note(recording: &mut Recording, arm: usize, facts: &BTreeMap<String, String>) {
    const TOLD: &[&str] = &["vulnerability.", "nft.", "qdisc.", "no_effect.", "kernel."];
    let name = &recording.arms[arm].name;
    for (key, value) in facts {
        let of_interest = TOLD.iter().any(|prefix| key.starts_with(prefix));
        if of_interest && recording.environment.get(key) != Some(value) {
            recording
                .environment
                .insert(format!("{}.{name}.{key}", env::ARM), value.clone());
        }
    }
}

/// Note why an arm of a scan has no blocks, or too few.
pub(crate) fn failed(recording: &mut Recording, arm: usize, error: &EngineError) {
    let why: Vec<String> = error.to_string().lines().map(String::from).collect();
    let name = &recording.arms[arm].name;
    recording.environment.insert(
        format!("{}.{name}", env::FAILED),
        why.join(" ").chars().take(400).collect(),
    );
}
