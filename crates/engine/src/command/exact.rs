//! A command under the `exact` instrument.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::thread;

use netplumb_instruments::exact::{
    Accountant, Images, Losses, RanInsn, StreamError, StreamReader, TreeNode, UserCode, UserSymbol,
    Window,
};
use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_kernel::path_rules::PathRules;
use netplumb_lab::vm::process::Guest;
use netplumb_model::loss::Loss;
use netplumb_model::message::{FilePages, Reply, Request};
use netplumb_model::recording::Ledger;
use netplumb_model::timing::QEMU_PEAK;

use super::tables::Tables;
use super::{Base, CommandReplies, OneArm, add_command_losses, add_figures, facts, runs};
use crate::collect::{Executed, Translation};
use crate::debug_info::{self, ExecutedCode};
use crate::error::EngineError;
use crate::index::Index;
use crate::measure::tap;
use crate::prototypes;
use crate::receive;
use crate::run::{Options, Progress, add_losses, note_clock};
use crate::site::Keeper;
use crate::traces::{self, StreamExtras, Traced};
use netplumb_agent::guest::watched;

/// The name of this program's code, as of a file.
const READER: &str = "plumb";
/// The name of the vDSO's code.
const VDSO: &str = "[vdso]";

/// Count the instructions of a command, its own and the kernel's.
pub(super) fn measure(
    one: OneArm<'_>,
    options: &Options,
    keeper: &mut Keeper<'_>,
    progress: &(dyn Fn(Progress) + Sync),
    said: &mut CommandReplies<'_>,
    tables: &mut Tables,
) -> Result<(), EngineError> {
    let (run, arm) = (one.run, &one.command().arm);
    let ends_before = said.ends.len();
    let recording = &mut *keeper.recording;
    let counted = run.counted();
    note_clock(recording, arm.link, options);
    let Base { origin, links, modules, shipped, archive } = one.base(options, keeper, progress)?;
    let recording = &mut *keeper.recording;
    let saved = match &origin.symbols {
        Some(symbols) => Some(symbols.wait()?),
        None => None,
    };
    // Modules loaded later are not in the saved symbol table.
    let loaded = match saved {
        Some(_) if !modules.is_empty() => {
            Some(tables.for_arm(arm, &origin, (&modules, &archive), options)?)
        }
        _ => None,
    };
    let symbols = loaded.as_deref().or(saved);
    let (mut images, mut paths) = debug_info::images(&run.bundle);
    let equal = equal_pages(&images, &paths);
    let mut requests = vec![Request::Unpack { modules }];
    if !equal.is_empty() {
        let files = equal.iter().map(|(_, pages)| pages.clone()).collect();
        requests.push(Request::FindFrames(files));
    }
    requests.push(Request::ReadVdso);
    if symbols.is_none() {
        requests.push(Request::ReadFile("/proc/kallsyms".into()));
    }
    if origin.symbols.is_none() {
        requests.push(Request::Describe);
    }
    // The kernel's addresses are the same in every boot.
    let watch = saved.and_then(watched);
    requests.push(one.request(links, watch, shipped));

    if one.command().reads.is_some() {
        // The reader is a task of the agent's, and executes this program's code.
        let init = crate::origin::program(options, origin.arch())?;
        let init = std::fs::read(init).map_err(EngineError::host("read the guest's program"))?;
        if images.add(READER, &init, None).is_ok() {
            paths.push(READER.into());
        }
    }
    let known = match &run.trace {
        Some(_) => Some(one.known(options)?.with_files(&run.bundle, &paths)),
        None => None,
    };
    let traced = Traced {
        beside: StreamExtras {
            sampling: run.sampling.as_ref(),
            trace: run.trace.as_ref(),
            known: known.as_ref(),
        },
        release: origin.release(),
        command: true,
    };
    // A wrong name is an error at once, where symbols are known.
    let (stream, mut extra) = tap(&traced.options(symbols, &images)?)?;
    let more = one.extra(archive)?;
    extra.args.extend(more.args);
    extra.fds.extend(more.fds);
    let guest = origin.start(&requests, extra, options)?;
    progress(Progress::Arm(arm.name.clone()));

    let (outcome, output, late) = thread::scope(|scope| {
        let mut guest = guest;
        let (ready, begin) = channel::<(SymbolTable, Images)>();
        let early = symbols;
        let blocks = run.blocks;
        let reader = scope.spawn(move || {
            // The guest ended before the symbols were ready.
            let Ok((late, images)) = begin.recv() else {
                return (CommandPluginOutput::default(), None);
            };
            let symbols = early.unwrap_or(&late);
            let output = follow(stream, symbols, images, traced, &|n| {
                progress(Progress::Blocks(n.min(blocks), blocks));
            });
            (output, early.is_none().then_some(late))
        });
        let outcome = (|| -> Result<(), EngineError> {
            guest.go_on()?;
            guest.answers(options.timeout, |_| Ok(()))?;
            if !equal.is_empty() {
                frames(&mut guest, options, &equal, &mut images)?;
            }
            let vdso = guest.bytes(options.timeout)?;
            // Without it, the little code that it has belongs to no file.
            let _ = images.add(VDSO, &vdso, None);
            let late = match early {
                Some(_) => SymbolTable::default(),
                None => {
                    let text = guest.bytes(options.timeout)?;
                    receive::symbols(&text, origin.release())?
                }
            };
            if origin.symbols.is_none() {
                facts(&mut guest, options, recording)?;
            }
            let _ = ready.send((late, std::mem::take(&mut images)));
            runs(&mut guest, options, &mut |reply| said.take(reply))
        })();
        let peak = guest.peak_memory_bytes().unwrap_or(0);
        recording.set_most(&QEMU_PEAK, peak as f64);
        drop((guest, ready));
        let (output, late) = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (outcome, output, late)
    });

    if let Some(refused) = output.refused {
        return Err(refused);
    }
    traced.check(&output.losses)?;
    if let Some(symbols) = symbols.or(late.as_ref()) {
        let mut index = Index::from_recording(recording);
        let executed = Executed { symbols, user: &output.user_symbols, nodes: &output.nodes };
        let (windows, layers) = (&output.windows, &options.layers);
        let translation = Translation::add(recording, &mut index, &executed, layers, windows);
        if let Some(sampling) = &run.sampling {
            for (number, window) in (0..).zip(windows) {
                let (at, ledger) = ((one.at as u32, number), one_run());
                translation.add_samples(recording, &mut index, at, window, &ledger, sampling);
            }
        }
        if run.exact {
            let with_args = run.trace.as_ref().is_some_and(|spec| spec.has_args());
            let of_calls = known.as_ref().filter(|_| with_args).map(|known| {
                prototypes::of_calls(known, symbols, &output.user_symbols, windows.iter())
            });
            for (number, window) in (0..).zip(windows) {
                translation.add_block(recording, one.at as u32, number, window, one_run());
                if let Some(traced) = &window.traced {
                    traces::add(recording, &executed, layers, traced, of_calls.as_ref());
                }
            }
            let ran = ExecutedCode { symbols: &output.user_symbols, code: &output.code, windows };
            let sources = debug_info::add_lines(
                recording,
                &translation,
                &ran,
                &run.bundle,
                &paths,
                &options.cancel,
            );
            let (arm, insns) = (one.at as u32, &output.instructions);
            translation.add_code(recording, arm, &executed, insns, &sources);
            tables.lines.add(recording, arm, &origin.booted(options));
        }
    }
    for instrument in &counted {
        add_losses(recording, instrument, &output.losses);
    }
    for (cause, count, meaning) in [
        (
            "call paths merged",
            output.losses.ways_cut,
            "call depth or thread limit exceeded: these calls are attributed to the root of their thread",
        ),
        (
            "instructions in code without a file",
            output.losses.insns_without_file,
            "generated at run time, or in a file that was not copied into the guest: they are in [unknown]",
        ),
        (
            "instructions in code of several files",
            output.losses.insns_of_equal_files,
            "these files have equal pages, and the guest's kernel does not show which of them runs: attributed to one of them",
        ),
        (
            "switches to stacks of coroutines",
            output.losses.stack_switches,
            "functions that a coroutine was left in are called again where it goes on: too many calls, and inclusive costs too high; self costs are right",
        ),
    ] {
        for instrument in &counted {
            recording.add_loss(instrument, Loss::new(cause, count, meaning));
        }
    }
    let ends = &said.ends[ends_before..];
    if let Some(first) = counted.first() {
        add_figures(recording, one.at, first, ends);
    }
    for instrument in &counted {
        add_command_losses(recording, instrument, output.losses.windows_cut, ends);
    }
    let (got, wanted) = (output.windows.len(), ends.len());
    match (outcome, output.error) {
        (Ok(()), _) if got >= wanted => Ok(()),
        (Ok(()), Some(stream)) => Err(stream.into()),
        (Ok(()), None) => Err(EngineError::WindowsMissing { got, wanted }),
        (outcome, _) => outcome,
    }
}

/// Pages of code that are equal in several files, by image: their content does not tell which file runs.
fn equal_pages(images: &Images, paths: &[PathBuf]) -> Vec<(u32, FilePages)> {
    let mut files: Vec<(u32, FilePages)> = Vec::new();
    for (image, offset) in images.equal_pages() {
        match files.last_mut() {
            Some((last, pages)) if *last == image => pages.offsets.push(offset),
            _ => {
                let Some(path) = paths.get(image as usize).and_then(|path| path.to_str()) else {
                    continue;
                };
                let pages = FilePages { path: path.into(), offsets: vec![offset] };
                files.push((image, pages));
            }
        }
    }
    files
}

/// Learn where these pages are in the guest's memory.
fn frames(
    guest: &mut Guest,
    options: &Options,
    equal: &[(u32, FilePages)],
    images: &mut Images,
) -> Result<(), EngineError> {
    let mut found = Vec::new();
    guest.answers(options.timeout, |reply| {
        if let Reply::Frames(frames) = reply {
            found = frames;
        }
        Ok(())
    })?;
    let pages =
        equal.iter().flat_map(|(image, pages)| pages.offsets.iter().map(|at| (*image, *at)));
    for ((image, offset), frame) in pages.zip(found) {
        if frame != 0 {
            images.add_frame(image, offset, frame);
        }
    }
    Ok(())
}

/// The ledger of a command: one run.
fn one_run() -> Ledger {
    Ledger { offered: 1, delivered: 1, ..Ledger::default() }
}

/// The plugin's results.
#[derive(Default)]
struct CommandPluginOutput {
    windows: Vec<Window>,
    nodes: Vec<TreeNode>,
    user_symbols: Vec<UserSymbol>,
    /// The blocks of code that windows refer to.
    code: BTreeMap<u32, UserCode>,
    losses: Losses,
    instructions: Vec<RanInsn>,
    error: Option<StreamError>,
    /// The calls can't be traced.
    refused: Option<EngineError>,
}

fn follow(
    stream: File,
    symbols: &SymbolTable,
    images: Images,
    traced: Traced<'_>,
    done: &dyn Fn(u32),
) -> CommandPluginOutput {
    let rules = PathRules::built_in();
    let mut reader = StreamReader::new(stream);
    let mut output = CommandPluginOutput::default();
    let tracing = match traced.tracing(symbols, &images) {
        Ok(tracing) => tracing,
        Err(refused) => {
            output.refused = Some(refused);
            return output;
        }
    };
    let mut accountant = Accountant::of_command(symbols, &rules, images)
        .sampling(traced.beside.sampling)
        .tracing(tracing);
    loop {
        match reader.next() {
            Ok(Some(record)) => {
                if let Some(window) = accountant.take(record) {
                    output.windows.push(window);
                    done(output.windows.len() as u32);
                }
            }
            Ok(None) => break,
            Err(error) => {
                output.error = Some(error);
                break;
            }
        }
    }
    output.windows.extend(accountant.finish());
    for ran in output.windows.iter().flat_map(|w| &w.user_code) {
        if let Entry::Vacant(entry) = output.code.entry(ran.block) {
            entry.insert(accountant.user_code(ran.block).unwrap_or_default());
        }
    }
    output.nodes = accountant.tree().nodes().to_vec();
    output.user_symbols = accountant.user_symbols().to_vec();
    output.losses = accountant.losses();
    output.instructions = accountant.instructions();
    output
}
