//! Standard output.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Context;

/// Print a text.
///
/// # Errors
/// It can't be written.
pub(crate) fn print(text: &str) -> anyhow::Result<ExitCode> {
    // A closed pipe (`| head`) is not an error.
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(e).context("can't write to standard output")
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Print a line to standard error, without control characters, if anybody reads it.
pub(crate) fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "{}", netplumb_report::printable_lines(text));
}

/// The width of the terminal, or a default.
pub(crate) fn columns() -> usize {
    const WITHOUT_TERMINAL: usize = 110;
    if !io::stdout().is_terminal() {
        return WITHOUT_TERMINAL;
    }
    // SAFETY: TIOCGWINSZ fills in the winsize that it is given.
    let (result, size) = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        (libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size), size)
    };
    if result == 0 && size.ws_col > 0 { usize::from(size.ws_col) } else { WITHOUT_TERMINAL }
}
