//! `plumb kernel`: the kernels that guests boot.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::Subcommand;
use indicatif::DecimalBytes;
use netplumb_kernel::config::KernelConfig;
use netplumb_kernel::image::BootForm;
use netplumb_kernel::options;
use netplumb_lab::modules::ModuleBuilder;
use netplumb_lab::packages;
use netplumb_lab::vm::kernels::{
    Added, KernelEntry, KernelSource, KernelStore, check_label, describe,
};
use netplumb_lab::vm::saved::SavedStates;
use netplumb_report::{printable, printable_lines};

use crate::output::columns::write_columns;
use crate::output::print::print;
use crate::signals;
use crate::steps::Steps;

/// What to do with the kernels.
#[derive(Debug, Subcommand)]
pub(crate) enum KernelCommand {
    /// List the kernels
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Add a kernel
    Add {
        /// debian, running, or the path of a .deb, a vmlinuz or a kernel build directory
        ///
        /// debian:VERSION selects a version; debian:arm64 and debian:VERSION:arm64 select another
        /// architecture.
        source: String,
        /// Module directory for a vmlinuz, like /lib/modules/RELEASE
        #[arg(long, value_name = "DIR")]
        modules: Option<PathBuf>,
        /// Also add debug information and source, for kernel source lines in reports
        ///
        /// For a Debian package, they are downloaded: 900 MB, and 2 GB on disk. For a build directory,
        /// its own are used.
        #[arg(long)]
        debug: bool,
        /// Name of the kernel, for --kernel [default for a build directory: `git describe`]
        #[arg(long, value_name = "NAME")]
        label: Option<String>,
    },
    /// Show details of a kernel and its saved guest states
    Show {
        /// Kernel: release, start of the hash, or source
        kernel: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a kernel, with its saved guest states, its source, and files unused by other kernels
    Rm {
        /// Kernel: release, start of the hash, or source
        kernel: String,
    },
}

/// Run the command on the kernels in `cache`.
pub(crate) fn run(cmd: KernelCommand, cache: &Path) -> anyhow::Result<ExitCode> {
    let store = KernelStore::new(cache);
    let states = SavedStates::new(cache);
    let mut out = Vec::new();
    match cmd {
        KernelCommand::List { json } => list(&store, cache, json, &mut out)?,
        KernelCommand::Add { source, modules, debug, label } => {
            let kernel = add(&store, &source, modules.as_deref(), label, &mut out)?;
            if debug {
                add_debug(&store, cache, &kernel, &mut out)?;
            }
        }
        KernelCommand::Show { kernel, json } => show(&store, &states, &kernel, json, &mut out)?,
        KernelCommand::Rm { kernel } => remove(&store, &states, cache, &kernel, &mut out)?,
    }
    print(&String::from_utf8_lossy(&out))
}

fn list(store: &KernelStore, cache: &Path, json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let kernels = store.list()?;
    for damaged in store.damaged() {
        eprintln!("plumb: {damaged}");
    }
    if json {
        serde_json::to_writer_pretty(&mut *out, &kernels)?;
        writeln!(out)?;
        return Ok(());
    }
    if kernels.is_empty() {
        writeln!(out, "No kernels yet. Add one with `plumb kernel add debian`.")?;
        return Ok(());
    }
    let mut rows = vec![
        ["RELEASE", "ARCH", "HASH", "MODULES", "SIZE", "ADDED", "FROM", "LABEL"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(kernels.iter().map(|kernel| {
        vec![
            kernel.release.clone(),
            kernel.arch.to_string(),
            kernel.short().to_owned(),
            kernel.modules.to_string(),
            size_text(kernel),
            day(kernel.added()).to_owned(),
            sources(kernel),
            kernel.labels().collect::<Vec<_>>().join(", "),
        ]
    }));
    if kernels.iter().all(|kernel| kernel.labels().next().is_none()) {
        rows.iter_mut().for_each(|row| row.truncate(7));
    }
    write_columns(&rows, &[3, 4], out)?;
    let beside: Vec<String> = BESIDE
        .iter()
        .map(|(folder, what)| (what, packages::size_bytes(&cache.join(folder))))
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(what, bytes)| format!("{what} {}", DecimalBytes(bytes)))
        .collect();
    if !beside.is_empty() {
        let place = cache.display().to_string();
        writeln!(out)?;
        writeln!(out, "Beside them, {} has {}.", printable(&place, 200), beside.join(", "))?;
    }
    Ok(())
}

/// What the cache has beside kernels.
const BESIDE: [(&str, &str); 3] = [
    ("states", "saved guest states"),
    ("sources", "sources, compilers and programs"),
    ("apt", "package lists"),
];

fn add(
    store: &KernelStore,
    source: &str,
    modules: Option<&Path>,
    label: Option<String>,
    out: &mut dyn Write,
) -> anyhow::Result<KernelEntry> {
    if let Some(label) = &label {
        check_label(label)?;
    }
    let source = KernelSource::parse(source, modules)?;
    let mut steps = Steps::new();
    let cancel = signals::watch().context("can't watch for signals")?;
    let store = store.clone().until(Arc::clone(&cancel));
    let result = store.add(&source, &mut |progress| steps.show(&progress));
    steps.clear();
    let Added { entry, was_there } = result?;
    let (release, short) = (&entry.release, entry.short());
    if was_there {
        let release = printable(release, 80);
        writeln!(out, "{release} is already there as {short}")?;
    } else {
        let (release, modules, size) = (printable(release, 80), entry.modules, size_text(&entry));
        writeln!(out, "Added {release} as {short}: {modules} modules, {size}")?;
    }
    let label = label.or_else(|| match &source {
        KernelSource::BuildTree(folder) => describe(folder, &cancel),
        _ => None,
    });
    let entry = match label {
        Some(label) => {
            let label = label.as_str();
            writeln!(out, "Its label is {label}: `--kernel {label}`")?;
            store.label(&entry, label)?
        }
        None => entry,
    };
    if matches!(source, KernelSource::BuildTree(_) | KernelSource::Image { .. }) {
        lacks(&entry, out)?;
    }
    if entry.modules == 0 {
        writeln!(out, "It has no modules: a guest has only drivers that are built in.")?;
        if matches!(source, KernelSource::Image { .. }) {
            writeln!(out, "Add it again with --modules DIR to include them.")?;
        }
    }
    Ok(entry)
}

/// Say which options a kernel lacks that guests need, and how to set them.
fn lacks(kernel: &KernelEntry, out: &mut dyn Write) -> anyhow::Result<()> {
    let text = kernel.config().map(std::fs::read_to_string).transpose()?;
    let Some(config) = text.and_then(|text| KernelConfig::parse(&text).ok()) else {
        return Ok(());
    };
    let missing = options::missing(&config, kernel.arch);
    if missing.is_empty() {
        return Ok(());
    }
    let lists: (Vec<_>, Vec<_>) = missing.into_iter().partition(|option| option.is_required);
    let lists = [lists.0, lists.1];
    let says = [
        "Guests don't work without these options, which it lacks:",
        "It also lacks options that guests can use:",
    ];
    for ((options, command), says) in lists.iter().zip(options::commands(&config, &lists)).zip(says)
    {
        if options.is_empty() {
            continue;
        }
        writeln!(out, "{says}")?;
        let rows =
            options.iter().map(|option| vec![format!("  {}", option.name), option.what.to_owned()]);
        write_columns(&rows.collect::<Vec<_>>(), &[], out)?;
        writeln!(out, "  {command}")?;
    }
    writeln!(out, "After `make olddefconfig`, build it and add it again.")?;
    Ok(())
}

/// Add the debug information of a kernel, and its source, whose text belongs to it.
fn add_debug(
    store: &KernelStore,
    cache: &Path,
    kernel: &KernelEntry,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut steps = Steps::new();
    let cancel = signals::watch().context("can't watch for signals")?;
    let store = store.clone().until(cancel.clone());
    let added = store.add_debug(kernel, &mut |progress| steps.show(&progress));
    let source = added.map(|was_there| {
        let builder = ModuleBuilder::new(cache, cancel);
        (was_there, builder.fetch(kernel, &mut |at| steps.show(&at)))
    });
    steps.clear();
    let (was_there, source) = source?;
    source.context("its debug information was added, but not its source")?;
    let bytes = DecimalBytes(kernel.debug_bytes().unwrap_or(0));
    match was_there {
        true => writeln!(out, "Its debug information is already there, {bytes}")?,
        false => writeln!(out, "Added its debug information, {bytes}")?,
    }
    Ok(())
}

fn show(
    store: &KernelStore,
    states: &SavedStates,
    name: &str,
    json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let kernel = store.find(name)?;
    if json {
        serde_json::to_writer_pretty(&mut *out, &kernel)?;
        writeln!(out)?;
        return Ok(());
    }
    let boots = match kernel.boot() {
        BootForm::Elf => "as the unpacked ELF file (PVH)",
        BootForm::BzImage => "as the bzImage (no CONFIG_PVH), which takes some seconds longer",
        BootForm::Raw => "as the unpacked raw image",
    };
    let config = kernel.config().map_or("not known".to_owned(), |path| path.display().to_string());
    let image = DecimalBytes(kernel.vmlinux_bytes);
    let modules = format!("{}, {}", kernel.modules, DecimalBytes(kernel.modules_bytes));
    let debug = kernel.debug_bytes().map_or_else(
        || "none; `plumb kernel add SOURCE --debug` adds it".to_owned(),
        |bytes| DecimalBytes(bytes).to_string(),
    );
    let lines = [
        ("release", kernel.release.clone()),
        ("arch", kernel.arch.to_string()),
        ("hash", kernel.hash.clone()),
        ("image", format!("{}, {image}", kernel.boot_image().display())),
        ("boots", boots.to_owned()),
        ("config", config),
        ("modules", modules),
        ("debug", debug),
        ("folder", kernel.folder.display().to_string()),
    ];
    for (key, value) in lines {
        writeln!(out, "{key:<9}{}", printable_lines(&value))?;
    }
    for from in &kernel.sources {
        let package = match (&from.package, &from.package_version) {
            (Some(package), Some(version)) => format!(", package {package} {version}"),
            _ => String::new(),
        };
        let package = match &from.label {
            Some(label) => format!("{package}, label {label}"),
            None => package,
        };
        writeln!(
            out,
            "{:<9}{}, {}{package}",
            "from",
            printable_lines(&from.source),
            day(&from.added)
        )?;
    }
    for state in states.list() {
        if state.about.kernel == kernel.hash {
            writeln!(
                out,
                "{:<9}{}, {}, link {}",
                "saved",
                &state.key[..12.min(state.key.len())],
                DecimalBytes(state.bytes),
                state.about.link
            )?;
        }
    }
    Ok(())
}

fn remove(
    store: &KernelStore,
    states: &SavedStates,
    cache: &Path,
    name: &str,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let kernel = store.remove(name)?;
    let builder = ModuleBuilder::new(cache, Arc::default());
    let source = match builder.forget(&kernel.hash)? {
        0 => String::new(),
        bytes => format!(", and its source, {}", DecimalBytes(bytes)),
    };
    let rest = store.list()?;
    let unused = builder.forget_compilers(&rest)? + packages::forget_without(cache, &rest)?;
    let unused = match unused {
        0 => String::new(),
        bytes => format!(
            ", and what no other kernel needs (compiler, programs and package lists), {}",
            DecimalBytes(bytes)
        ),
    };
    let saved = match states.remove_kernel(&kernel.hash) {
        0 => String::new(),
        1 => ", and a saved guest state".into(),
        n => format!(", and {n} saved guest states"),
    };
    writeln!(
        out,
        "Removed {} ({}), {}{saved}{source}{unused}",
        kernel.release,
        kernel.short(),
        size_text(&kernel)
    )?;
    Ok(())
}

fn size_text(kernel: &KernelEntry) -> String {
    DecimalBytes(kernel.vmlinux_bytes + kernel.modules_bytes).to_string()
}

/// The first source, and how many others.
fn sources(kernel: &KernelEntry) -> String {
    match kernel.sources.len() {
        0 | 1 => kernel.source().to_owned(),
        count => format!("{} and {} more", kernel.source(), count - 1),
    }
}

/// The date of a time by RFC 3339.
fn day(time: &str) -> &str {
    time.split('T').next().unwrap_or(time)
}
