//! `plumb report`: a recording, printed again; and the printing that `path` and
//! `run` share with it.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use netplumb_kernel::layers::LAYERS;
use netplumb_model::class::Direction;
use netplumb_model::experiment::Experiment;
use netplumb_model::recording::Recording;
use netplumb_model::symbol::base_name;
use netplumb_report::analysis::{ClassView, classes};
use netplumb_report::shape::{Shape, shape, varying};
use netplumb_report::terminal::View;
use netplumb_report::{
    claims, conclusions, diff, figures, functions, json, lines, printable, scan, seeds, terminal,
    times, tree, trust,
};

use super::bench::Format;
use super::outputs::OutputArgs;
use super::page::PageArgs;
use crate::exit::Usage;

/// How to show a recording.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// One layer only: syscall, socket, transport, network ...
    #[arg(long, value_name = "LAYER")]
    pub(super) layer: Option<String>,
    /// Functions in a table, 0 for all
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub(super) top: usize,
    /// The call graph with its costs
    #[arg(long)]
    pub(super) tree: bool,
    /// One function's callers and callees
    #[arg(long, value_name = "FUNCTION")]
    pub(super) focus: Option<String>,
    /// What each source line of a function of the command cost
    #[arg(long, value_name = "FUNCTION", conflicts_with = "focus")]
    pub(super) lines: Option<String>,
    /// One line for each function, as CSV
    #[arg(long, conflicts_with_all = ["json", "tree", "focus", "lines"])]
    pub(super) csv: bool,
    /// Everything, as JSON
    #[arg(long, conflicts_with_all = ["tree", "focus", "lines"])]
    pub(super) json: bool,
    /// Of a bench: details of every arm, not only of those that lost packets or are invalid
    #[arg(long, conflicts_with_all = ["csv", "json"])]
    pub(super) all: bool,
    /// Only the arms of this name; several with several `--arm`
    #[arg(long, value_name = "ARM")]
    pub(crate) arm: Vec<String>,
    #[command(flatten)]
    pub(super) outputs: OutputArgs,
}

impl ShowArgs {
    /// The layer that is to be shown, if only one is.
    pub(crate) fn layer(&self) -> Option<&str> {
        self.layer.as_deref()
    }

    /// As what a bench is to be shown.
    pub(super) fn bench_format(&self) -> Format {
        Format::of(self.csv, self.json, self.all)
    }

    /// What is asked for that benches alone have.
    ///
    /// # Errors
    /// A usage error that names it.
    fn check_for_others(&self) -> anyhow::Result<()> {
        match self.all {
            false => Ok(()),
            true => Err(Usage(
                "--all is for benches, which have arms to tell of; --top 0 shows all functions"
                    .into(),
            )
            .into()),
        }
    }

    /// Whether what is shown is for programs to read.
    pub(crate) fn for_programs(&self) -> bool {
        self.json || self.csv
    }

    /// What is asked for that is of functions, by its flag: a bench has none.
    ///
    /// # Errors
    /// A usage error that names it.
    pub(super) fn check_for_bench(&self) -> anyhow::Result<()> {
        let flags = [
            ("--layer", self.layer.is_some()),
            ("--tree", self.tree),
            ("--focus", self.focus.is_some()),
            ("--lines", self.lines.is_some()),
            ("--arm", !self.arm.is_empty()),
            ("a file for another program", self.outputs.wanted()),
        ];
        match flags.iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((flag, _)) => Err(Usage(format!(
                "{flag}: a bench has rates, and no functions to show; --csv and --json have all \
                 its blocks"
            ))
            .into()),
        }
    }

    /// What can be said to be wrong before anything is measured.
    ///
    /// # Errors
    /// A layer that there is not, or an output that can't be written.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.outputs.check()?;
        match &self.layer {
            Some(layer) if !LAYERS.contains(&layer.as_str()) => Err(Usage(format!(
                "`{layer}` is no layer: they are {}",
                LAYERS.join(", ")
            ))
            .into()),
            _ => Ok(()),
        }
    }
}

/// Arguments of `plumb report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The recording
    file: PathBuf,
    /// Only these directions: tx, rx, forward, echo, ack; several with commas
    #[arg(long, value_name = "DIRECTION", value_delimiter = ',')]
    direction: Vec<Direction>,
    /// Of several instruments in a recording, only this one
    #[arg(long, value_name = "CLOCK")]
    clock: Option<String>,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    page: PageArgs,
}

/// What one instrument measured of a recording.
///
/// # Errors
/// None of that name measured any of it.
pub(crate) fn chosen<'r>(
    recording: &'r Recording,
    clock: &str,
) -> anyhow::Result<Cow<'r, Recording>> {
    let instruments = recording.instruments();
    match instruments.contains(&clock) {
        true => Ok(recording.part(clock)),
        false => Err(Usage(format!(
            "nothing in the recording was measured by `{}`: it has {}",
            printable(clock, 80),
            list(&instruments)
        ))
        .into()),
    }
}

/// Read and show; or, if there is to be a page, only that.
///
/// # Errors
/// The file is no whole recording, or something in it was asked for that is not.
pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    args.show.check()?;
    let recording = netplumb_store::read(&args.file)?;
    let recording = match &args.clock {
        Some(clock) => chosen(&recording, clock)?,
        None => Cow::Borrowed(&recording),
    };
    if recording.blocks.is_empty() {
        eprintln!(
            "plumb: {}: the recording has no block: nothing was measured",
            args.file.display()
        );
        return Ok(ExitCode::FAILURE);
    }
    if args.page.wanted() {
        args.page
            .write(&recording, &args.direction, &args.show.arm)?;
        return Ok(ExitCode::SUCCESS);
    }
    show(&recording, &args.show, &args.direction)
}

/// Show a recording.
///
/// # Errors
/// Something was asked for that is not in it.
pub(crate) fn show(
    recording: &Recording,
    args: &ShowArgs,
    directions: &[Direction],
) -> anyhow::Result<ExitCode> {
    if shape(recording) == Shape::Rates {
        args.check_for_bench()?;
        return super::bench::show(recording, args.bench_format());
    }
    args.check_for_others()?;
    let instruments = recording.instruments();
    let [_, _, ..] = instruments[..] else {
        return show_part(recording, args, directions);
    };
    if args.for_programs() || args.outputs.wanted() {
        return Err(several(&instruments));
    }
    for (number, instrument) in instruments.iter().enumerate() {
        let rule = if number == 0 { "" } else { "\n" };
        print(&format!(
            "{rule}Instrument {}\n\n",
            printable(instrument, 80)
        ))?;
        show_part(&recording.part(instrument), args, directions)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// That one of several instruments has to be chosen.
pub(crate) fn several(instruments: &[&str]) -> anyhow::Error {
    Usage(format!(
        "the recording has figures of {}: choose one with `plumb report FILE --clock CLOCK`",
        list(instruments)
    ))
    .into()
}

/// Names of instruments, as far as they can be printed.
pub(crate) fn list(instruments: &[&str]) -> String {
    let names = instruments.iter().map(|name| printable(name, 80));
    names.collect::<Vec<_>>().join(", ")
}

/// Show what one instrument measured.
fn show_part(
    recording: &Recording,
    args: &ShowArgs,
    directions: &[Direction],
) -> anyhow::Result<ExitCode> {
    let experiment = match recording.experiment_toml.as_str() {
        "" => None,
        text => Some(Experiment::parse(text)?),
    };
    if shape(recording) == Shape::Times {
        return super::times::show(recording, args, directions);
    }
    let mut views = shown_classes(recording, directions, &args.arm)?;
    let columns = columns();
    let view = View {
        layer: args.layer.clone(),
        top: args.top,
        tree: args.tree,
        columns,
    };
    if args
        .outputs
        .write(recording, &views, experiment.as_ref(), &view, &[])?
    {
        return Ok(ExitCode::SUCCESS);
    }
    let spread = seeds::render(recording, &views, columns);
    if !args.json && !args.csv {
        // The other seeds are in the spread.
        views = seeds::typical(&views);
    }
    let text = if args.json {
        json::render(recording, &views, experiment.as_ref())
    } else if args.csv {
        functions::csv(&views, args.layer.as_deref())
    } else if let Some(name) = &args.focus {
        around(recording, &views, name, |class, function| {
            tree::render_focus(class, function, columns)
        })?
    } else if let Some(name) = &args.lines {
        around(recording, &views, name, |class, function| {
            lines::render(class, function, columns)
        })?
    } else {
        tables(recording, &views, &view, experiment.as_ref(), &spread)
    };
    print(&text)
}

/// Print a result.
///
/// # Errors
/// It can't be written.
pub(crate) fn print(text: &str) -> anyhow::Result<ExitCode> {
    // A reader that has seen enough (`| head`) is no error.
    match io::stdout()
        .write_all(text.as_bytes())
        .and_then(|()| io::stdout().flush())
    {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// The classes that are to be shown: those of some directions and arms, or all.
///
/// # Errors
/// There are none.
pub(crate) fn shown_classes<'a>(
    recording: &'a Recording,
    directions: &[Direction],
    arms: &[String],
) -> anyhow::Result<Vec<ClassView<'a>>> {
    let mut views = classes(recording);
    if !directions.is_empty() {
        views.retain(|v| directions.contains(&v.class.direction));
        if views.is_empty() {
            let words: Vec<&str> = directions.iter().map(|d| d.as_str()).collect();
            return Err(Usage(format!(
                "nothing in the recording is {}: it has {}",
                words.join(" or "),
                classes(recording)
                    .iter()
                    .map(|v| v.class.to_string())
                    .collect::<Vec<_>>()
                    .join(", ")
            ))
            .into());
        }
    }
    only_arms(&mut views, arms)?;
    Ok(views)
}

/// Keep the arms that were named, if any were.
fn only_arms(views: &mut Vec<ClassView<'_>>, arms: &[String]) -> anyhow::Result<()> {
    for arm in arms {
        if !views.iter().any(|v| v.arm().name == *arm) {
            let mut known: Vec<String> = Vec::new();
            for view in views.iter() {
                let name = printable(&view.arm().name, 80);
                if known.last() != Some(&name) {
                    known.push(name);
                }
            }
            return Err(Usage(format!(
                "no arm is called `{}`: there are {}",
                printable(arm, 80),
                known.join(", ")
            ))
            .into());
        }
    }
    if !arms.is_empty() {
        views.retain(|v| arms.contains(&v.arm().name));
    }
    Ok(())
}

fn tables(
    recording: &Recording,
    views: &[ClassView<'_>],
    view: &View,
    experiment: Option<&Experiment>,
    spread: &str,
) -> String {
    let columns = view.columns;
    let scan = scan::scan(recording, views);
    let mut directions: Vec<Direction> = views.iter().map(|v| v.class.direction).collect();
    directions.sort_unstable();
    directions.dedup();
    // Two arms of one recording are there to be compared; hundreds of a scan, and
    // repeats under other seeds, have a table of their own.
    let compared = if scan.is_some() || !spread.is_empty() {
        String::new()
    } else {
        match varying(recording) {
            Some(_) => times::diff::of_arms(recording, &directions, columns),
            None => diff::of_arms(recording, &directions, columns).map(|text| text + "\n"),
        }
        .unwrap_or_default()
    };
    let asks = |e: &&Experiment| {
        let shows = !e.published.is_empty() || !e.figures.is_empty();
        shows || !e.claims.is_empty() || e.scan.is_some()
    };
    let Some(experiment) = experiment.filter(asks) else {
        let mut out = compared + &terminal::render(recording, views, view);
        if !spread.is_empty() {
            out.push('\n');
            out.push_str(spread.trim_end());
            out.push('\n');
        }
        return out;
    };
    let mut out = String::new();
    for text in [&experiment.title, &experiment.question] {
        if !text.is_empty() {
            for line in text.trim().lines() {
                out.push_str(&printable(line, 1_000));
                out.push('\n');
            }
            out.push('\n');
        }
    }
    match &scan {
        Some(scan) => out.push_str(&scan::render(scan, columns)),
        None => {
            out.push_str(&terminal::summary(views, columns));
            out.push('\n');
        }
    }
    out.push_str(&compared);
    out.push_str(spread);
    if !experiment.published.is_empty() {
        out.push_str(&figures::render(experiment, views));
        if let Some(layer) = &experiment.layer {
            for class in views
                .iter()
                .filter(|v| experiment.published.iter().any(|p| p.class == v.class))
            {
                out.push_str(&format!(
                    "Call graph of the {layer} layer, {}\n",
                    class.class
                ));
                out.push_str(&tree::render(class, Some(layer), 0.0));
                out.push('\n');
            }
        }
    }
    out.push_str(&figures::sweeps::render(experiment, recording, columns));
    if view.tree || view.layer.is_some() {
        out.push_str(&terminal::render(recording, views, view));
        out.push('\n');
    }
    let judged = claims::judge(experiment, views);
    out.push_str(&claims::render(&judged, columns));
    out.push_str(&conclusions::knobs(recording, columns));
    if !(view.tree || view.layer.is_some()) {
        for line in trust::footer(recording, views) {
            out.push_str(&terminal::wrapped(&line, columns));
            out.push('\n');
        }
    }
    out.push_str(&conclusions::render(
        experiment,
        &judged,
        scan.as_ref(),
        columns,
    ));
    out
}

/// What `render` tells of the functions of a name, in each class.
///
/// # Errors
/// There is no such function.
pub(super) fn around(
    recording: &Recording,
    views: &[ClassView<'_>],
    name: &str,
    render: impl Fn(&ClassView<'_>, u32) -> String,
) -> anyhow::Result<String> {
    let called = |is: &dyn Fn(&str) -> bool| -> Vec<u32> {
        (0..recording.functions.len() as u32)
            .filter(|f| is(&recording.functions[*f as usize].name))
            .collect()
    };
    let mut matching = called(&|symbol| symbol == name);
    if matching.is_empty() {
        matching = called(&|symbol| base_name(symbol) == name);
    }
    if matching.is_empty() {
        let mut near: Vec<(usize, &str)> = recording
            .functions
            .iter()
            .map(|f| (strsim::damerau_levenshtein(name, &f.name), f.name.as_str()))
            .collect();
        near.sort_unstable();
        near.dedup();
        let near: Vec<String> = near.iter().take(3).map(|(_, n)| printable(n, 80)).collect();
        return Err(Usage(format!(
            "no packet got to a function `{}`; near it there are {}",
            printable(name, 80),
            near.join(", ")
        ))
        .into());
    }
    let mut out = String::new();
    for function in matching {
        for class in views {
            out.push_str(&render(class, function));
            out.push('\n');
        }
    }
    Ok(out)
}

/// The terminal's width, or enough for a file.
pub(crate) fn columns() -> usize {
    const WITHOUT_TERMINAL: usize = 110;
    if !io::stdout().is_terminal() {
        return WITHOUT_TERMINAL;
    }
    // SAFETY: TIOCGWINSZ fills in the winsize that it is given.
    let (result, size) = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        (
            libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size),
            size,
        )
    };
    if result == 0 && size.ws_col > 0 {
        usize::from(size.ws_col)
    } else {
        WITHOUT_TERMINAL
    }
}
