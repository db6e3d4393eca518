//! `--html` and `--open`: a recording, or a comparison, as a page.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use netplumb_model::class::Direction;
use netplumb_model::experiment::Experiment;
use netplumb_model::recording::Recording;
use netplumb_report::page::Page;
use netplumb_report::shape::{Shape, shape};
use netplumb_report::together::CrossQuantity;
use netplumb_report::{claims, events, hosts, html, printable, rates, times};
use tempfile::Builder;

use super::browser::{browsers, open};
use super::claims as of_claims;
use super::costs::shown_classes;
use super::part;
use crate::args::page::PageArgs;
use crate::exit::Usage;
use crate::files::Out;

/// Check what can be checked before anything is measured.
///
/// # Errors
/// A file that can't be written, or no browser.
pub(crate) fn check(args: &PageArgs) -> anyhow::Result<()> {
    if let Some(out) = &args.html {
        target(args, out)?.try_out()?;
    }
    if args.open && browsers().is_empty() {
        return Err(Usage(
            "--open: no browser found: set $BROWSER, or write the page with --html OUT and open \
             it elsewhere"
                .into(),
        )
        .into());
    }
    Ok(())
}

/// The target of the page, which has to be a file for --open.
fn target(args: &PageArgs, out: &Path) -> anyhow::Result<Out> {
    let target = Out::from_path(out)?;
    if args.open && !target.is_file() {
        return Err(Usage(format!(
            "--open: {} is not a file that a browser can open",
            out.display()
        ))
        .into());
    }
    Ok(target)
}

/// Write the page of a recording, or of a part of it, and print its name.
///
/// # Errors
/// It can't be written or opened, or the recording lacks a requested arm or instrument.
pub(crate) fn write(
    args: &PageArgs,
    recording: &Recording,
    clock: Option<&str>,
    directions: &[Direction],
    arms: &[String],
) -> anyhow::Result<()> {
    if !args.wanted() {
        return Ok(());
    }
    let experiment = Experiment::of_recording(recording)?;
    let experiment = experiment.map(|e| claims::asked(&e, directions, arms));
    let asked = experiment.as_ref();
    let together = CrossQuantity::from_recording(recording, asked, directions, arms);
    let chosen = part::of_clock(recording, clock)?;
    let recording = &*chosen;
    if shape(recording) == Shape::Rates {
        let page = rates::document(recording, asked, false).page();
        return put(args, &html::render(&page));
    }
    // A view for each instrument or quantity, and for claims by the first one.
    let mut views = Vec::new();
    let parts: Vec<_> =
        (recording.parts().into_iter()).map(|name| (name, recording.part(name))).collect();
    let by_part = asked.map(|experiment| claims::by_part(experiment, &parts));
    for (number, (name, part)) in parts.iter().enumerate() {
        let asked = by_part.as_ref().map(|all| &all[number]);
        let page = of_part(part, asked, &together, directions, arms)?;
        views.push((printable(name, 80), page));
    }
    if let (Some(experiment), Some(by_part), Some((_, first))) =
        (asked, &by_part, views.first_mut())
        && let Some(text) = of_claims::concluded(experiment, by_part, &parts)?
    {
        first.headline.insert(0, text);
    }
    if let (Some(experiment), Some((_, first))) = (asked, parts.first()) {
        views.extend(html::comparisons(first, experiment, directions));
    }
    match &views[..] {
        [] => {
            let page = of_part(recording, asked, &together, directions, arms)?;
            put(args, &html::render(&page))
        }
        [(_, page)] => put(args, &html::render(page)),
        _ => put(args, &html::render_all(views)),
    }
}

/// The page of one instrument or quantity, with what all show together.
fn of_part(
    part: &Recording,
    experiment: Option<&Experiment>,
    together: &CrossQuantity<'_>,
    directions: &[Direction],
    arms: &[String],
) -> anyhow::Result<Page> {
    Ok(match shape(part) {
        Shape::Counts => events::document(part, experiment, &together.exact).page(),
        Shape::Hosts => hosts::document(part, experiment).page(),
        Shape::Times => {
            let views = super::times::asked(part, directions, arms)?;
            times::page::page(part, &views, experiment)
        }
        Shape::Costs | Shape::Rates => {
            let views = shown_classes(part, directions, arms)?;
            html::report_page(part, &views, experiment, together)
        }
    })
}

/// Write a page, print its name, and open it if wanted.
///
/// # Errors
/// It can't be written or opened.
pub(crate) fn put(args: &PageArgs, page: &str) -> anyhow::Result<()> {
    let path = match &args.html {
        Some(out) => {
            let target = target(args, out)?;
            target.write(page.as_bytes())?;
            if target.is_stdout() {
                eprintln!("wrote the page to standard output");
                return Ok(());
            }
            out.clone()
        }
        None => temporary(page)?,
    };
    eprintln!("wrote {}", path.display());
    if args.open { open(&path) } else { Ok(()) }
}

/// Write the page to a file that only its owner can read, and keep it.
fn temporary(page: &str) -> anyhow::Result<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|folder| folder.is_absolute() && folder.is_dir());
    let folder = runtime.unwrap_or_else(std::env::temp_dir);
    let mut file = Builder::new()
        .prefix("plumb-")
        .suffix(".html")
        .permissions(Permissions::from_mode(0o600))
        .tempfile_in(&folder)
        .with_context(|| format!("can't write the page to {}", folder.display()))?;
    file.write_all(page.as_bytes())
        .with_context(|| format!("can't write the page to {}", folder.display()))?;
    let (_, path) = file.keep().context("can't keep the page")?;
    Ok(path)
}
