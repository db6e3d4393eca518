//! The live view: updated after each block, ended by a key. Without a terminal, a line every
//! second.

use std::borrow::Cow;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyModifiers};
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use netplumb_model::recording::Recording;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

use super::view::View;
use crate::progress::Teller;

/// How often keys are polled.
const POLL: Duration = Duration::from_millis(50);
/// How often a line is written without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(1);
/// Functions on the screen.
const TOP: usize = 12;

/// Shows a run while it measures, if wanted.
#[derive(Debug)]
pub(super) struct Watcher {
    mode: Mode,
    /// Notes that are printed when the screen is closed.
    notes: Vec<String>,
}

#[derive(Debug)]
enum Mode {
    Off,
    Lines { last: Option<Instant> },
    Screen(Screen),
}

/// The terminal in raw mode. Restored on drop, and by a panic.
#[derive(Debug)]
struct Screen {
    terminal: Terminal<CrosstermBackend<io::Stderr>>,
    over: Arc<AtomicBool>,
    /// The key that ends it was pressed.
    ended: Arc<AtomicBool>,
    keys: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Take over the terminal from `teller`, if wanted and there is one; a key sets `cancel`.
    pub(super) fn start(wanted: bool, cancel: &Arc<AtomicBool>, teller: &Teller) -> Watcher {
        let mode = match wanted {
            false => Mode::Off,
            true if io::stderr().is_terminal() && io::stdin().is_terminal() => {
                teller.hide();
                match Screen::take(cancel) {
                    Ok(screen) => Mode::Screen(screen),
                    Err(_) => Mode::Lines { last: None },
                }
            }
            true => Mode::Lines { last: None },
        };
        Watcher { mode, notes: Vec::new() }
    }

    /// Print a note.
    pub(super) fn note(&mut self, teller: &Teller, note: &str) {
        match self.mode {
            Mode::Screen(_) => self.notes.push(note.to_string()),
            _ => teller.tell(netplumb_engine::Progress::Note(note.to_string())),
        }
    }

    /// A block is complete.
    pub(super) fn block(
        &mut self,
        recording: &Recording,
        progress: Option<netplumb_engine::Progress>,
        teller: &Teller,
    ) {
        match &mut self.mode {
            Mode::Off => {
                if let Some(progress) = progress {
                    teller.tell(progress);
                }
            }
            Mode::Lines { last } => {
                if last.is_none_or(|last| last.elapsed() >= LINE_EVERY) {
                    *last = Some(Instant::now());
                    eprintln!("{}", View::from_recording(&of_last(recording), TOP).line());
                }
            }
            Mode::Screen(screen) => {
                let view = View::from_recording(&of_last(recording), TOP);
                // If the terminal is gone, the run continues.
                let _ = screen.terminal.draw(|frame| view.render(frame));
            }
        }
    }

    /// Restore the terminal, and print the notes; returns whether a key ended the run.
    pub(super) fn stop(self) -> bool {
        let ended = match &self.mode {
            Mode::Screen(screen) => screen.ended.load(Ordering::Relaxed),
            _ => false,
        };
        drop(self.mode);
        for note in self.notes {
            eprintln!("plumb: {note}");
        }
        ended
    }
}

impl Screen {
    fn take(cancel: &Arc<AtomicBool>) -> io::Result<Screen> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
        enable_raw_mode()?;
        let over = Arc::new(AtomicBool::new(false));
        let entered = crossterm::execute!(io::stderr(), EnterAlternateScreen)
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stderr())));
        let terminal = match entered {
            Ok(terminal) => terminal,
            Err(error) => {
                give_back();
                return Err(error);
            }
        };
        let ended = Arc::new(AtomicBool::new(false));
        let keys = {
            let (over, cancel) = (Arc::clone(&over), Arc::clone(cancel));
            let ended = Arc::clone(&ended);
            std::thread::spawn(move || wait_for_key(&over, &ended, &cancel))
        };
        Ok(Screen { terminal, over, ended, keys: Some(keys) })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(keys) = self.keys.take() {
            let _ = keys.join();
        }
        give_back();
    }
}

/// Restore the terminal, ignoring errors.
fn give_back() {
    let _ = disable_raw_mode();
    let _ = crossterm::execute!(io::stderr(), LeaveAlternateScreen, crossterm::cursor::Show);
}

/// In raw mode Ctrl-C is an ordinary key.
fn wait_for_key(over: &AtomicBool, ended: &AtomicBool, cancel: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        match event::poll(POLL) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(_) => return,
        }
        let Ok(Event::Key(key)) = event::read() else {
            continue;
        };
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let ends = key.code == KeyCode::Char('q');
        if ends || control && key.code == KeyCode::Char('c') {
            ended.store(ends, Ordering::Relaxed);
            cancel.store(true, Ordering::Relaxed);
            return;
        }
    }
}

/// With several instruments, the part of the latest one.
fn of_last(recording: &Recording) -> Cow<'_, Recording> {
    let mut names = recording.blocks.iter().rev().map(|b| b.instrument.as_str());
    match names.find(|name| !name.is_empty()) {
        Some(name) => recording.part(name),
        None => Cow::Borrowed(recording),
    }
}
