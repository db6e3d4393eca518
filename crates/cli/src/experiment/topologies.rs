//! Files of topologies and BPF programs that an experiment or a command line names.

use std::path::Path;

use anyhow::Context;
use netplumb_model::experiment::{Experiment, MAX_OBJECT_BYTES, file_and_program};
use netplumb_model::topology::{MAX_TOPOLOGY_BYTES, TopologySpec, is_file, name_and_way};
use netplumb_report::printable;

use super::modules::Names;
use crate::exit::WrongKey;
use crate::files;

/// Read the topologies that are named by files; arms name them by the files' names without the ending then.
///
/// # Errors
/// There is no such file, or it has no topology.
pub(crate) fn read(experiment: &mut Experiment, names: Names<'_>) -> anyhow::Result<()> {
    let mut found: Vec<TopologySpec> = Vec::new();
    let levels = experiment.topology_levels_mut().filter(|level| is_file(level));
    for level in levels {
        let (file, way) = name_and_way(level);
        let path = match names {
            Names::Typed => Path::new(file).to_path_buf(),
            Names::InFile(folder) => files::below(folder, file)
                .with_context(|| format!("{}: can't read the topology", folder.join(file).display()))?
                .ok_or_else(|| {
                    let file = printable(file, 200);
                    let why = format!(
                        "invalid topology `{file}`; expected a file below the experiment's directory"
                    );
                    WrongKey::usage("topology", why)
                })?,
        };
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = files::read_text(&path, MAX_TOPOLOGY_BYTES, "a file of a topology")?;
        let spec = TopologySpec::parse(&stem, &text).map_err(|why| {
            let why = if files::is_private(&path) { files::PRIVATE.into() } else { why };
            WrongKey::usage("topology", format!("{}: {why}", path.display()))
        })?;
        *level = match way {
            "" => stem,
            way => format!("{stem}:{way}"),
        };
        match found.iter().find(|known| known.name == spec.name) {
            Some(known) if *known == spec => {}
            Some(_) => {
                let why = format!("two different files are called {}.toml", spec.name);
                return Err(WrongKey::usage("topology", why).into());
            }
            None => found.push(spec),
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    experiment.topologies.extend(found);
    experiment.check().map_err(|(key, why)| WrongKey::usage(key, why).into())
}

/// Let the experiment name its BPF programs by the absolute paths of their objects.
///
/// # Errors
/// There is no such file, or it is no object.
pub(crate) fn find_objects(experiment: &mut Experiment, names: Names<'_>) -> anyhow::Result<()> {
    for (key, level) in experiment.objects_mut().filter(|(_, level)| !level.is_empty()) {
        let (file, program) = file_and_program(level);
        let cant = || format!("{file}: can't read the BPF object");
        let path = match names {
            Names::Typed => Path::new(file).canonicalize().with_context(cant)?,
            Names::InFile(folder) => {
                files::below(folder, file).with_context(cant)?.ok_or_else(|| {
                    let file = printable(file, 200);
                    let why = format!(
                        "invalid object `{file}`; expected a file below the experiment's directory"
                    );
                    WrongKey::usage(key, why)
                })?
            }
        };
        let object = files::read(&path, MAX_OBJECT_BYTES, "a BPF object")?;
        if !object.starts_with(b"\x7fELF") {
            let why = format!("{}: not an ELF object, as clang -target bpf makes", path.display());
            return Err(WrongKey::usage(key, why).into());
        }
        let program = program.map_or_else(String::new, |program| format!(":{program}"));
        *level = format!("{}{program}", path.display());
    }
    Ok(())
}
