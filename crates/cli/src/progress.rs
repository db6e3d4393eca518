//! Progress on standard error: on a terminal the step and, once the total is known, a bar; else plain lines.

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

const STEP: &str = "{spinner} {msg} ({elapsed})";
const BAR: &str = "{spinner} {msg} [{bar:30}] {pos}/{len}, {eta} left";

/// The current step, printed after a signal if the process does not end.
static NOW: Mutex<Option<Now>> = Mutex::new(None);

struct Now {
    step: String,
    bar: Option<ProgressBar>,
}

/// Print what is waited for after a signal, unless nothing is to be printed.
pub(crate) fn print_interrupted() {
    let Ok(now) = NOW.lock() else { return };
    if let Some(Now { step, bar }) = &*now {
        let line = interrupted_line(step);
        match bar {
            Some(bar) => bar.println(line),
            None => eprintln!("{line}"),
        }
    }
}

fn interrupted_line(step: &str) -> String {
    let step = printable(step, 200);
    format!(
        "plumb: interrupted while {step}; waiting for that to end (a second signal ends plumb at once)"
    )
}

/// A time as people write it: hours without seconds.
fn duration_text(time: Duration) -> String {
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
    /// When the progress of a long run was printed last.
    passed: Mutex<Option<Instant>>,
    /// Notes and steps that were printed already.
    notes: Mutex<BTreeSet<String>>,
}

fn set_style(bar: &ProgressBar, template: &str) {
    // The templates are constants, and right.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

impl Teller {
    /// On standard error.
    pub(crate) fn new(quiet: bool) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new_spinner();
            set_style(&bar, STEP);
            bar.set_message("starting");
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        if let (Ok(mut now), false) = (NOW.lock(), quiet) {
            *now = Some(Now { step: "starting".into(), bar: bar.clone() });
        }
        Teller {
            bar,
            quiet,
            started: Instant::now(),
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
                // A problem of each of several guests is printed once.
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
            Progress::Arm(name) => format!("measuring {name}"),
            Progress::Step(step) => {
                let is_new =
                    |mut steps: MutexGuard<'_, BTreeSet<String>>| steps.insert(step.clone());
                // Steps that every block repeats are printed once.
                if self.bar.is_none() && !self.notes.lock().is_ok_and(is_new) {
                    return self.now(step);
                }
                step.clone()
            }
            Progress::Blocks(done, all) => {
                self.set_position(u64::from(*done), u64::from(*all));
                return;
            }
            Progress::Passed(pace, latest) => match self.passed(*pace, latest.as_deref()) {
                Some(line) => line,
                None => return,
            },
        };
        match &self.bar {
            Some(bar) => {
                bar.set_message(printable(&line, 200));
                // The time before the first block does not predict how long others take.
                if bar.length().is_none() {
                    bar.reset_eta();
                }
            }
            None => eprintln!("[{:5.1} s] {line}", self.started.elapsed().as_secs_f64()),
        }
        self.now(&line);
    }

    fn now(&self, step: &str) {
        if let Ok(mut now) = NOW.lock()
            && let Some(now) = &mut *now
        {
            step.clone_into(&mut now.step);
        }
    }

    /// Show how much is done, once there is something to do.
    fn set_position(&self, done: u64, all: u64) {
        let Some(bar) = self.bar.as_ref().filter(|_| all > 0) else {
            return;
        };
        let is_first = bar.length().is_none();
        bar.set_length(all);
        bar.set_position(done.min(all));
        if is_first {
            set_style(bar, BAR);
        }
    }

    /// How far a long run is, as a line; none if one was printed less than a minute ago.
    fn passed(&self, pace: Pace, latest: Option<&str>) -> Option<String> {
        match &self.bar {
            Some(_) => {
                let whole = pace.whole.map_or(0, |whole| whole.as_secs());
                self.set_position(pace.passed.as_secs(), whole);
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
            Some(left) => format!("{} left", duration_text(left)),
            None => duration_text(pace.passed),
        };
        Some(match latest {
            Some(latest) => format!("measuring, {time}; latest: {latest}"),
            None => format!("measuring, {time}"),
        })
    }

    /// Print nothing more: the terminal is used otherwise.
    pub(crate) fn hide(&self) {
        forget();
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
    }

    /// Clear the bar.
    pub(crate) fn done(&self) {
        forget();
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Nothing is under way any more.
fn forget() {
    if let Ok(mut now) = NOW.lock() {
        *now = None;
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use indicatif::TermLike;

    use super::*;

    /// A terminal that keeps its last line.
    #[derive(Debug, Clone, Default)]
    struct Screen(Arc<Mutex<String>>);

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            100
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            self.0.lock().unwrap().clear();
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Check that from the first frame on there is a step, and no bar until the total is known.
    #[test]
    fn steps_before_the_bar() {
        let screen = Screen::default();
        let bar = ProgressBar::with_draw_target(
            None,
            ProgressDrawTarget::term_like_with_hz(Box::new(screen.clone()), 255),
        );
        set_style(&bar, STEP);
        let teller = Teller {
            bar: Some(bar.clone()),
            quiet: false,
            started: Instant::now(),
            passed: Mutex::default(),
            notes: Mutex::default(),
        };
        let shows = |event: Progress| {
            screen.0.lock().unwrap().clear();
            teller.tell(event);
            std::thread::sleep(Duration::from_millis(20));
            bar.tick();
            screen.0.lock().unwrap().clone()
        };
        let attaching = shows(Progress::Step("attaching instrument stages".into()));
        assert!(attaching.contains("attaching instrument stages"), "{attaching}");
        for wrong in ["0/0", "left", "["] {
            assert!(!attaching.contains(wrong), "{attaching}");
        }
        let nothing = shows(Progress::Blocks(0, 0));
        assert!(!nothing.contains("0/0"), "{nothing}");
        teller.tell(Progress::Arm("udp".into()));
        let some = shows(Progress::Blocks(3, 10));
        assert!(some.contains("measuring udp [") && some.contains("3/10"), "{some}");
    }

    /// Check that a signal's line has what is waited for, without what could move the cursor.
    #[test]
    fn interrupted() {
        let line = interrupted_line("measuring \u{1b}[2Jtso=off");
        assert!(line.starts_with("plumb: interrupted while measuring"), "{line}");
        assert!(!line.contains('\u{1b}'), "{line}");
    }
}
