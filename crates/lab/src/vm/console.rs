//! The last console lines of a guest or of QEMU, kept for errors.

use std::io::Read;
use std::sync::{Arc, Mutex};
use std::thread;

/// The prefix of the agent's reason to end.
pub(super) const AGENT_FAILED: &str = "netplumb: agent failed: ";
/// Number of console lines kept for errors.
const TAIL_LINES: usize = 20;
/// Maximum length of a console line.
const TAIL_LINE_BYTES: usize = 400;

/// The message of a kernel panic in a console line.
fn panic_message(line: &str) -> Option<String> {
    const MARK: &str = "Kernel panic - not syncing: ";
    Some(line.split_once(MARK)?.1.trim().to_string())
}

/// Why the agent ended, in a line that it wrote: the kernel panics without its init, and prints many more.
fn agent_message(line: &str) -> Option<String> {
    Some(line.split_once(AGENT_FAILED)?.1.trim().to_string())
}

/// Why the kernel could not write a file of its initramfs, in a console line (init/initramfs.c: do_populate_rootfs). It
/// goes on with the files that it has. Other reasons are harmless: what follows the last archive is not an archive.
fn unpacking_message(line: &str) -> Option<String> {
    const MARK: &str = "Initramfs unpacking failed: ";
    let reason = line.split_once(MARK)?.1.trim();
    (reason == "write error").then(|| reason.to_string())
}

/// The last lines of a stream, printable.
#[derive(Debug, Default)]
pub(super) struct Tail {
    lines: std::collections::VecDeque<String>,
    partial: Vec<u8>,
    /// The message of a panic, whose line may be above the last ones because of the trace.
    pub(super) panic: Option<String>,
    /// Why the agent ended, likewise.
    pub(super) agent: Option<String>,
    /// Why the initramfs could not be unpacked as a whole.
    pub(super) unpacking: Option<String>,
}

impl Tail {
    pub(super) fn follow(mut stream: impl Read + Send + 'static) -> Arc<Mutex<Tail>> {
        let tail = Arc::new(Mutex::new(Tail::default()));
        let writer = Arc::clone(&tail);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = stream.read(&mut buffer) {
                if let Ok(mut tail) = writer.lock() {
                    tail.push(&buffer[..n]);
                }
            }
        });
        tail
    }

    fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match byte {
                b'\n' => {
                    let line = std::mem::take(&mut self.partial);
                    self.add(&line);
                }
                _ if self.partial.len() < TAIL_LINE_BYTES => self.partial.push(byte),
                _ => {}
            }
        }
    }

    fn add(&mut self, line: &[u8]) {
        let text = printable(line);
        if text.trim().is_empty() {
            return;
        }
        if self.panic.is_none() {
            self.panic = panic_message(&text);
        }
        if self.agent.is_none() {
            self.agent = agent_message(&text);
        }
        if self.unpacking.is_none() {
            self.unpacking = unpacking_message(&text);
        }
        if self.lines.len() == TAIL_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(text);
    }
}

/// Remove escape sequences of firmware, and whatever else a guest may write.
fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().filter(|c| !c.is_control()).collect()
}

/// The lines, with an incomplete last one.
pub(super) fn lines(tail: &Mutex<Tail>) -> Vec<String> {
    match tail.lock() {
        Ok(tail) => {
            let mut lines: Vec<String> = tail.lines.iter().cloned().collect();
            if !tail.partial.is_empty() {
                lines.push(printable(&tail.partial));
            }
            lines
        }
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the tail keeps the last lines, printable and of limited length.
    #[test]
    fn tail_is_bounded_and_printable() {
        let mut tail = Tail::default();
        for n in 0..100 {
            tail.push(format!("\x1b[2Jline {n}\r\n").as_bytes());
        }
        tail.push(b"\x1b[1m");
        tail.push(&[b'x'; 10_000]);
        let kept = lines(&Mutex::new(tail));
        assert_eq!(kept.len(), TAIL_LINES + 1);
        assert_eq!(kept[TAIL_LINES - 1], "[2Jline 99");
        assert!(kept[TAIL_LINES].starts_with("[1mxxx"));
        assert!(kept[TAIL_LINES].len() <= TAIL_LINE_BYTES);
    }

    /// Check that the agent's own reason is kept, however many lines follow it.
    #[test]
    fn the_agent_has_the_first_word() {
        let mut tail = Tail::default();
        tail.push(format!("{AGENT_FAILED}open /dev/ttyS0: No such device\r\n").as_bytes());
        for n in 0..100 {
            tail.push(format!("[ 0.{n}] Call trace\r\n").as_bytes());
        }
        let why = tail.agent.as_deref();
        assert_eq!(why, Some("open /dev/ttyS0: No such device"));
    }

    /// Check that a panic is recognised, also if a long trace follows it.
    #[test]
    fn panic_is_found() {
        let mut tail = Tail::default();
        tail.push(b"all is well\n");
        assert_eq!(tail.panic, None);
        tail.push(b"[ 0.1] Kernel panic - not syncing: VFS: no root\r\n");
        for _ in 0..2 * TAIL_LINES {
            tail.push(b"[ 0.1]  ? some_function+0x1/0x2\r\n");
        }
        assert_eq!(tail.panic.as_deref(), Some("VFS: no root"));
    }

    /// Check that an initramfs that does not fit is recognised.
    #[test]
    fn unpacking_is_found() {
        let mut tail = Tail::default();
        tail.push(b"[ 0.5] Unpacking initramfs...\n");
        assert_eq!(tail.unpacking, None);
        tail.push(b"[ 0.569398] Initramfs unpacking failed: write error\r\n");
        assert_eq!(tail.unpacking.as_deref(), Some("write error"));
    }
}
