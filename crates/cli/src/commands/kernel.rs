//! `plumb kernel`: the kernels that guests boot.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Subcommand;
use indicatif::{DecimalBytes, ProgressBar, ProgressStyle};
use netplumb_lab::vm::kernels::{
    Added, ErrorKind, KernelEntry, KernelSource, KernelStore, KernelStoreError, Progress,
};
use netplumb_lab::vm::saved::SavedStates;
use netplumb_report::{printable, printable_lines};

use crate::output::print::print;
use crate::signals;

/// The exit code of a failure.
const EXIT_FAILED: u8 = 1;
/// The exit code of a usage error.
const EXIT_USAGE: u8 = 2;
/// The exit code for something that is not supported on this machine.
const EXIT_CANNOT_HERE: u8 = 3;

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
        /// debian, debian:VERSION, running, or the path of a .deb, a vmlinuz or a kernel build
        /// directory
        source: String,
        /// Module directory of a vmlinuz, like /lib/modules/RELEASE
        #[arg(long, value_name = "DIR")]
        modules: Option<PathBuf>,
    },
    /// Show details of a kernel, and its saved guest states
    Show {
        /// Release, start of the hash, or source of the kernel
        kernel: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a kernel, and its saved guest states
    Rm {
        /// Release, start of the hash, or source of the kernel
        kernel: String,
    },
}

/// Run the command on the kernels in `cache`.
pub(crate) fn run(cmd: KernelCommand, cache: &Path) -> anyhow::Result<ExitCode> {
    let store = KernelStore::new(cache);
    let states = SavedStates::new(cache);
    let mut out = Vec::new();
    let done = match cmd {
        KernelCommand::List { json } => list(&store, json, &mut out),
        KernelCommand::Add { source, modules } => {
            add(&store, &source, modules.as_deref(), &mut out)
        }
        KernelCommand::Show { kernel, json } => show(&store, &states, &kernel, json, &mut out),
        KernelCommand::Rm { kernel } => remove(&store, &states, &kernel, &mut out),
    };
    match done {
        Ok(()) => print(&String::from_utf8_lossy(&out)),
        Err(error) => {
            let code = match error
                .downcast_ref::<KernelStoreError>()
                .map(KernelStoreError::kind)
            {
                Some(ErrorKind::Usage) => EXIT_USAGE,
                Some(ErrorKind::CannotHere) => EXIT_CANNOT_HERE,
                Some(ErrorKind::Failed) => EXIT_FAILED,
                Some(ErrorKind::Interrupted) => signals::exit_code(),
                None => return Err(error),
            };
            // These errors include their causes.
            eprintln!("plumb: {error}");
            Ok(ExitCode::from(code))
        }
    }
}

fn list(store: &KernelStore, json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let kernels = store.list()?;
    if json {
        serde_json::to_writer_pretty(&mut *out, &kernels)?;
        writeln!(out)?;
        return Ok(());
    }
    if kernels.is_empty() {
        writeln!(
            out,
            "No kernels yet. Add one with `plumb kernel add debian`."
        )?;
        return Ok(());
    }
    let mut rows = vec![
        ["RELEASE", "HASH", "MODULES", "SIZE", "ADDED", "FROM"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(kernels.iter().map(|kernel| {
        vec![
            kernel.release.clone(),
            kernel.short().to_owned(),
            kernel.modules.to_string(),
            size_text(kernel),
            day(kernel.added()).to_owned(),
            sources(kernel),
        ]
    }));
    write_columns(&rows, out)?;
    Ok(())
}

/// Columns as wide as their contents; numbers are right-aligned.
fn write_columns(rows: &[Vec<String>], out: &mut dyn Write) -> io::Result<()> {
    const RIGHT: [usize; 2] = [2, 3];
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (column, (text, &width)) in row.iter().zip(&widths).enumerate() {
            if column > 0 {
                line.push_str("  ");
            }
            if RIGHT.contains(&column) {
                line.push_str(&format!("{text:>width$}"));
            } else {
                line.push_str(&format!("{text:<width$}"));
            }
        }
        writeln!(out, "{}", printable_lines(line.trim_end()))?;
    }
    Ok(())
}

fn add(
    store: &KernelStore,
    source: &str,
    modules: Option<&Path>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let source = KernelSource::parse(source, modules)?;
    let mut display = Display::new();
    let cancel = signals::watch().context("can't watch for signals")?;
    let store = store.clone().until(cancel);
    let result = store.add(&source, &mut |progress| display.show(&progress));
    display.clear();
    let Added { entry, was_there } = result?;
    let (release, short) = (&entry.release, entry.short());
    if was_there {
        let release = printable(release, 80);
        writeln!(out, "{release} is already there as {short}")?;
    } else {
        let (release, modules, size) = (printable(release, 80), entry.modules, size_text(&entry));
        writeln!(out, "Added {release} as {short}: {modules} modules, {size}")?;
    }
    if entry.modules == 0 {
        writeln!(
            out,
            "It has no modules: a guest has only drivers that are built in."
        )?;
        if matches!(source, KernelSource::Image { .. }) {
            writeln!(out, "Add it again with --modules DIR to include them.")?;
        }
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
    let boots = if kernel.pvh {
        "as the unpacked ELF file (PVH)"
    } else {
        "as the bzImage (no CONFIG_PVH), which takes some seconds longer"
    };
    let config = kernel
        .config()
        .map_or("not known".to_owned(), |path| path.display().to_string());
    let image = DecimalBytes(kernel.vmlinux_bytes);
    let modules = format!("{}, {}", kernel.modules, DecimalBytes(kernel.modules_bytes));
    let lines = [
        ("release", kernel.release.clone()),
        ("hash", kernel.hash.clone()),
        (
            "image",
            format!("{}, {image}", kernel.boot_image().display()),
        ),
        ("boots", boots.to_owned()),
        ("config", config),
        ("modules", modules),
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
    name: &str,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let kernel = store.remove(name)?;
    let saved = match states.remove_kernel(&kernel.hash) {
        0 => String::new(),
        1 => ", and a saved guest state".into(),
        n => format!(", and {n} saved guest states"),
    };
    writeln!(
        out,
        "Removed {} ({}), {}{saved}",
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

/// Shows the progress of an add: a bar on a terminal, else a line per step.
struct Display {
    bar: Option<ProgressBar>,
    step: String,
}

impl Display {
    fn new() -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        Self {
            bar,
            step: String::new(),
        }
    }

    fn show(&mut self, progress: &Progress) {
        let step = match progress {
            Progress::Fetching { package, .. } => format!("Fetching {package}"),
            Progress::Unpacking => "Unpacking".to_owned(),
            Progress::Hashing => "Checking the content".to_owned(),
        };
        let total = match progress {
            Progress::Fetching { total_bytes, .. } => *total_bytes,
            _ => None,
        };
        let is_new = step != self.step;
        match &self.bar {
            Some(bar) => {
                if is_new {
                    bar.set_style(style(total.is_some()));
                    bar.set_message(step.clone());
                }
                if let (Some(total), Progress::Fetching { done_bytes, .. }) = (total, progress) {
                    bar.set_length(total);
                    bar.set_position(*done_bytes);
                }
            }
            // Errors of writing progress are ignored.
            None if is_new => {
                let _ = writeln!(io::stderr(), "{step}");
            }
            None => {}
        }
        self.step = step;
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn style(has_total: bool) -> ProgressStyle {
    let template = if has_total {
        "{spinner} {msg} [{bar:30}] {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec}"
    } else {
        "{spinner} {msg}"
    };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}
