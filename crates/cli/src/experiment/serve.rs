//! Measures in the background, and serves the sums: each window is added to them, and forgotten.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::Context;
use netplumb_engine::EngineError;
use netplumb_engine::live::{self, LiveEvent, LiveOptions, LivePlan, Source};
use netplumb_instruments::live::{Live, LiveError};
use netplumb_instruments::registry;
use netplumb_kernel::layers::LayerRules;
use netplumb_model::events;
use netplumb_model::experiment::Experiment;
use netplumb_model::recording::{Recording, env};
use netplumb_model::timing::TimingSpec;
use netplumb_report::openmetrics::{Keep, Labels, MEDIA_TYPE, Number, Sums, Text, metric};
use netplumb_report::printable;

use super::how::{How, PrintWhat};
use super::{instruments, lower};
use crate::args::formats::FormatArgs;
use crate::args::live::SPANS;
use crate::args::page::PageArgs;
use crate::args::run::RunOptions;
use crate::args::show::ShowArgs;
use crate::http::{Response, Server, Tally};
use crate::{rights, signals};

/// The part of a CPU from which on a function has a series of its own.
const EXPENSIVE: f64 = 0.01;

/// A request to measure and serve.
#[derive(Debug)]
pub(crate) struct Serve<'a> {
    pub(crate) listen: SocketAddr,
    /// The experiments, each with an instrument of its own.
    pub(crate) experiments: &'a [Experiment],
    /// Functions that have a series of their own at most.
    pub(crate) functions: usize,
    pub(crate) quiet: bool,
}

/// Sums of the measurements, and their text.
#[derive(Debug)]
struct Served {
    sums: Sums,
    /// The sums as text, as of the latest window.
    families: String,
}

/// Events of a thread that measures.
enum ThreadEvent {
    Attached,
    Ended,
}

/// Measure and serve until a signal, or until the measured object is gone.
///
/// # Errors
/// It can't be measured here, or the address can't be listened at.
pub(crate) fn serve(asked: &Serve<'_>) -> anyhow::Result<ExitCode> {
    let plans: anyhow::Result<Vec<LivePlan>> = asked.experiments.iter().map(plan).collect();
    let plans = plans?;
    let mut server = Server::bind(asked.listen).map_err(|e| cannot_listen(asked.listen, &e))?;
    let address = server.address().context("can't tell the address")?;
    let cancel = signals::watch().context("can't watch for signals")?;
    let served = Mutex::new(Served {
        sums: Sums::new(Keep::expensive(asked.functions, EXPENSIVE)),
        families: String::new(),
    });
    thread::scope(|scope| {
        let (sender, events) = channel();
        let measuring: Vec<_> = (plans.iter().zip(asked.experiments))
            .map(|(plan, experiment)| {
                let (sender, cancel, served) = (sender.clone(), &cancel, &served);
                scope.spawn(move || {
                    let ended = measure(plan, experiment, (cancel, asked.quiet), served, &sender);
                    // Who reads it may be gone.
                    let _ = sender.send(ThreadEvent::Ended);
                    ended
                })
            })
            .collect();
        let mut result = Ok(());
        if all_attached(&events, plans.len()) {
            if !asked.quiet {
                eprintln!("plumb: serving http://{address}/metrics until Ctrl-C");
            }
            let ended = AtomicBool::new(false);
            let go_on = || {
                if events.try_recv().is_ok() {
                    ended.store(true, Ordering::Relaxed);
                }
                !cancel.load(Ordering::Relaxed) && !ended.load(Ordering::Relaxed)
            };
            let mut respond = |path: &str, tally: &Tally| respond(path, tally, &served);
            result = server.run(&mut respond, &go_on);
        }
        // The others end with the first one.
        cancel.store(true, Ordering::Relaxed);
        for thread in measuring {
            match thread.join() {
                Ok(ended) => ended?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        result.context("can't serve")?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Wait until all that measure do; false if one of them has ended instead.
fn all_attached(events: &Receiver<ThreadEvent>, all: usize) -> bool {
    (0..all).all(|_| matches!(events.recv(), Ok(ThreadEvent::Attached)))
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> anyhow::Error {
    let why = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "the port is in use; choose another one with --listen, or 0 for any \
                                     that is free"
                .to_string()
        }
        io::ErrorKind::AddrNotAvailable => "this machine has no such address".into(),
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need root, or CAP_NET_BIND_SERVICE".into()
        }
        _ => error.to_string(),
    };
    anyhow::Error::msg(format!("can't listen at {address}: {why}"))
}

/// The plan of an experiment: windows; only the latest is kept.
fn plan(experiment: &Experiment) -> anyhow::Result<LivePlan> {
    experiment.check().map_err(|(_, why)| crate::exit::Usage(why))?;
    let asked = instruments::chosen(experiment)?;
    if !asked.iter().any(|i| i.name() == events::INSTRUMENT) {
        let what = match asked.iter().any(|i| i.name() == SPANS) {
            true => "measuring the time between events",
            false => "sampling all work",
        };
        rights::check_of_work(what, "serve")?;
    }
    let show = ShowArgs::of_no_functions(false, false, FormatArgs::default());
    let page = PageArgs { html: None, open: false };
    let how = How::new(PrintWhat::Report(&show, &[]), &page, RunOptions::plain());
    let mut source = lower::source(experiment, &how)?;
    if let Source::Work(work) = &mut source {
        work.rolling = true;
    }
    Ok(LivePlan { specs: instruments::specs(experiment, &asked)?, source })
}

/// Measure, and add each window to the metrics.
fn measure(
    plan: &LivePlan,
    experiment: &Experiment,
    (cancel, quiet): (&Arc<AtomicBool>, bool),
    served: &Mutex<Served>,
    events: &Sender<ThreadEvent>,
) -> Result<(), EngineError> {
    let rules = LayerRules::built_in();
    let layer = |name: &str, module: Option<&str>| rules.layer(name, module).map(String::from);
    let attach = |spec: &TimingSpec| -> Result<(&'static str, Box<dyn Live>), LiveError> {
        let instrument = registry::find(&spec.instrument)
            .ok_or_else(|| LiveError::Asked(format!("no instrument `{}`", spec.instrument)))?;
        Ok((instrument.name(), instrument.attach(spec, &layer, cancel)?))
    };
    let options =
        LiveOptions { layers: &rules, attach: &attach, cancel, seed: live::random_seed() };
    let mut recording = Recording::default();
    for (key, value) in
        [(env::PLUMB, env!("CARGO_PKG_VERSION").to_string()), (env::NAME, experiment.name.clone())]
    {
        recording.environment.insert(key.into(), value);
    }
    let mut save = |_: &Recording| Ok(());
    let mut tell = |event: LiveEvent<'_>| match event {
        LiveEvent::Note(note) if !quiet => eprintln!("plumb: {note}"),
        LiveEvent::Attached(attached) => {
            if !attached.refused.is_empty() && !quiet {
                eprintln!(
                    "plumb: {} can't be counted: plumb_event_unavailable_info has the reason of each",
                    netplumb_model::text::counted(attached.refused.len(), "event")
                );
            }
            // Who reads it may be gone.
            let _ = events.send(ThreadEvent::Attached);
        }
        LiveEvent::Block(recording, ..) => {
            let mut served = served.lock().unwrap_or_else(PoisonError::into_inner);
            served.sums.add(recording, 0, &|_, _| true);
            let mut text = Text::default();
            served.sums.render(&mut text);
            served.families = text.as_str().to_string();
        }
        _ => {}
    };
    live::run_live(plan, &options, &mut recording, &mut save, &mut tell).map(drop)
}

/// The response for a path.
fn respond(path: &str, tally: &Tally, served: &Mutex<Served>) -> Option<Response> {
    match path {
        "/metrics" => {
            let mut text = Text::default();
            let served = served.lock().unwrap_or_else(PoisonError::into_inner);
            text.append(&served.families);
            drop(served);
            own(tally, &mut text);
            Some(Response { media_type: MEDIA_TYPE, body: text.end() })
        }
        "/" => Some(Response { media_type: "text/html; charset=utf-8", body: PAGE.into() }),
        _ => None,
    }
}

/// The page that links to the metrics.
const PAGE: &str = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>plumb</title></head>\n\
    <body><h1>plumb</h1><p><a href=\"/metrics\">Metrics</a>, in the OpenMetrics format.</p></body></html>\n";

/// Metrics of the server itself.
fn own(tally: &Tally, text: &mut Text) {
    let answered = tally.answered.iter();
    text.family(
        &metric::HTTP_REQUESTS,
        answered.map(|(status, count)| {
            let labels = Labels::none().with("code", &status.to_string());
            (labels, Number::Whole(*count))
        }),
    );
    let dropped = tally.dropped.iter();
    text.family(
        &metric::HTTP_DROPPED,
        dropped.map(|(reason, count)| {
            let labels = Labels::none().with("reason", &printable(reason, 80));
            (labels, Number::Whole(*count))
        }),
    );
    let one = |value: f64| [(Labels::none(), Number::Real(value))];
    if let Some(seconds) = cpu_seconds() {
        text.family(&metric::PROCESS_CPU, one(seconds));
    }
    if let Some(bytes) = resident_bytes() {
        text.family(&metric::PROCESS_MEMORY, one(bytes));
    }
}

/// CPU time of this process.
fn cpu_seconds() -> Option<f64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it is written to a structure that is alive.
    let got = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    (got == 0).then(|| time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

/// Memory of this process, of /proc/self/status, which has it in KiB.
fn resident_bytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let text = netplumb_sys::proc::field(&status, "VmRSS")?;
    let kib: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024.0)
}
