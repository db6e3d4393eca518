//! Progress on standard error: a bar on a terminal, else plain lines.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use netplumb_engine::Progress;
use netplumb_engine::long::Pace;
use netplumb_report::{printable, printable_lines};

/// How often the progress of a long run is printed without a terminal.
const PASSED_EVERY: Duration = Duration::from_secs(60);

/// A time as people say it: of hours no seconds.
fn told(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

/// Prints the progress of an experiment.
#[derive(Debug)]
pub(crate) struct Teller {
    bar: Option<ProgressBar>,
    quiet: bool,
    started: Instant,
    arm: Mutex<String>,
    /// When the progress of a long run was printed last.
    passed: Mutex<Option<Instant>>,
    /// Those that are printed.
    notes: Mutex<BTreeSet<String>>,
}

impl Teller {
    /// On standard error.
    pub(crate) fn new(quiet: bool) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new(0);
            // The template is a constant, and right.
            if let Ok(style) =
                ProgressStyle::with_template("{spinner} {msg} [{bar:30}] {pos}/{len}, {eta} left")
            {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        Teller {
            bar,
            quiet,
            started: Instant::now(),
            arm: Mutex::default(),
            passed: Mutex::default(),
            notes: Mutex::default(),
        }
    }

    /// Print an event.
    pub(crate) fn tell(&self, event: Progress) {
        if self.quiet {
            return;
        }
        let line = match &event {
            Progress::Booting { kernel, link } => {
                format!("booting {kernel} for link {link}, to save its state")
            }
            Progress::Ready { after } => {
                format!("booted and saved in {:.1} s", after.as_secs_f64())
            }
            Progress::Note(note) => {
                // What goes wrong for each of several guests is said once.
                let is_new =
                    |mut notes: MutexGuard<'_, BTreeSet<String>>| notes.insert(note.clone());
                if !self.notes.lock().is_ok_and(is_new) {
                    return;
                }
                match &self.bar {
                    Some(bar) => bar.println(printable_lines(&format!("plumb: {note}"))),
                    None => eprintln!("plumb: {note}"),
                }
                return;
            }
            Progress::Arm(name) => {
                if let Ok(mut arm) = self.arm.lock() {
                    *arm = name.clone();
                }
                format!("measuring {name}")
            }
            Progress::Blocks(done, all) => {
                if let Some(bar) = &self.bar {
                    bar.set_length(u64::from(*all));
                    bar.set_position(u64::from(*done));
                }
                return;
            }
            Progress::Passed(pace, latest) => match self.passed(*pace, latest.as_deref()) {
                Some(line) => line,
                None => return,
            },
        };
        match &self.bar {
            Some(bar) => bar.set_message(printable(&line, 200)),
            None => eprintln!("[{:5.1} s] {line}", self.started.elapsed().as_secs_f64()),
        }
    }

    /// How far a long run is, as a line; none if one was printed less than a minute ago.
    fn passed(&self, pace: Pace, latest: Option<&str>) -> Option<String> {
        match &self.bar {
            Some(bar) => {
                let whole = pace.whole.unwrap_or(pace.passed);
                bar.set_length(whole.as_secs());
                bar.set_position(pace.passed.as_secs().min(whole.as_secs()));
            }
            None => {
                let mut last = self.passed.lock().ok()?;
                if last.is_some_and(|last| last.elapsed() < PASSED_EVERY) {
                    return None;
                }
                *last = Some(Instant::now());
            }
        }
        let time = match pace.left() {
            Some(left) => format!("{} left", told(left)),
            None => told(pace.passed),
        };
        Some(match latest {
            Some(latest) => format!("measuring, {time}; latest: {latest}"),
            None => format!("measuring, {time}"),
        })
    }

    /// Print nothing more: the terminal is used otherwise.
    pub(crate) fn hide(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
    }

    /// Clear the bar.
    pub(crate) fn done(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
