//! The steps of a command that fetches and builds: a bar on a terminal, else a line per step.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use netplumb_lab::modules::BuildProgress;
use netplumb_lab::vm::kernels::Progress;
use netplumb_report::printable_lines;

/// Show a step of building a module.
pub(crate) fn building(steps: &mut Steps, name: &str, progress: BuildProgress) {
    match progress {
        BuildProgress::Source(progress) => steps.show(&progress),
        BuildProgress::Building { changed: false } => {
            steps.step(&format!("Building {name}"), None);
        }
        BuildProgress::Building { changed: true } => {
            steps.step(&format!("Building {name} with the changes"), None);
        }
    }
}

/// Shows steps on standard error.
pub(crate) struct Steps {
    bar: Option<ProgressBar>,
    step: String,
}

impl Steps {
    /// With nothing shown yet.
    pub(crate) fn new() -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        Self { bar, step: String::new() }
    }

    /// A step of the store of kernels.
    pub(crate) fn show(&mut self, progress: &Progress) {
        match progress {
            Progress::Fetching { package, done_bytes, total_bytes } => {
                self.step(&format!("Fetching {package}"), total_bytes.map(|n| (*done_bytes, n)))
            }
            Progress::Unpacking => self.step("Unpacking", None),
            Progress::Hashing => self.step("Checking the content", None),
            Progress::Removed(line) => match &self.bar {
                Some(bar) => bar.println(printable_lines(&format!("plumb: {line}"))),
                None => eprintln!("plumb: {line}"),
            },
        }
    }

    /// A step, and how much of it is done, in bytes.
    pub(crate) fn step(&mut self, step: &str, bytes: Option<(u64, u64)>) {
        let is_new = step != self.step;
        match &self.bar {
            Some(bar) => {
                if is_new {
                    bar.set_style(style(bytes.is_some()));
                    bar.set_message(step.to_owned());
                }
                if let Some((done, total)) = bytes {
                    bar.set_length(total);
                    bar.set_position(done);
                }
            }
            // Failing to write a progress line is not a reason to stop.
            None if is_new => {
                let _ = writeln!(io::stderr(), "{step}");
            }
            None => {}
        }
        step.clone_into(&mut self.step);
    }

    /// Remove the bar.
    pub(crate) fn clear(&self) {
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
