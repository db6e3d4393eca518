//! QEMU's control channel (QMP, docs/interop/qmp-spec.rst of QEMU): lines of JSON.

use std::io::{self, BufRead, BufReader, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};

use super::deadline::Deadline;
use crate::cancel::Cancel;

/// A control channel after QEMU's greeting.
#[derive(Debug)]
pub(super) struct Qmp {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    /// Names of events that arrived while waiting for something else.
    events: Vec<String>,
    line: String,
    /// QEMU's own, the first two numbers.
    version: (u64, u64),
}

/// Polling interval while waiting.
const POLL: Duration = Duration::from_millis(50);
/// A command is some hundred bytes: if the channel blocks, QEMU does not read.
const WRITE_LIMIT: Duration = Duration::from_secs(10);
/// Maximum length of a line; the longest replies are some kilobytes.
const LINE_MAX_BYTES: u64 = 1 << 20;

/// An error of a command.
#[derive(Debug, thiserror::Error)]
pub(super) enum QmpError {
    /// The channel was closed, or failed.
    #[error("QEMU's control channel: {0}")]
    Io(#[from] io::Error),
    /// QEMU refused.
    #[error("QEMU refused `{command}`: {why}")]
    Refused {
        command: String,
        /// QEMU's message.
        why: String,
    },
    /// The expected reply did not come.
    #[error("QEMU did not {0} in time")]
    Timeout(String),
    /// Cancelled.
    #[error("interrupted")]
    Interrupted,
}

impl Qmp {
    /// Wait for the greeting, and complete negotiation.
    pub(super) fn open(
        stream: UnixStream,
        deadline: &Deadline,
        cancel: &Cancel,
    ) -> Result<Qmp, QmpError> {
        stream.set_read_timeout(Some(POLL))?;
        stream.set_write_timeout(Some(WRITE_LIMIT))?;
        let mut qmp = Qmp {
            reader: BufReader::new(stream.try_clone()?),
            writer: stream,
            events: Vec::new(),
            line: String::new(),
            version: (0, 0),
        };
        loop {
            let message = qmp.message()?;
            if let Some(greeting) = message.as_ref().and_then(|m| m.get("QMP")) {
                let number = |name| greeting.pointer(name).and_then(Value::as_u64).unwrap_or(0);
                let [major, minor] = ["major", "minor"].map(|of| format!("/version/qemu/{of}"));
                qmp.version = (number(&major), number(&minor));
                break;
            }
            wait_on("open its control channel", deadline, cancel)?;
        }
        qmp.execute("qmp_capabilities", json!({}), deadline, cancel)?;
        Ok(qmp)
    }

    /// Carry out a command.
    pub(super) fn execute(
        &mut self,
        command: &str,
        arguments: Value,
        deadline: &Deadline,
        cancel: &Cancel,
    ) -> Result<Value, QmpError> {
        let mut text = json!({ "execute": command, "arguments": arguments }).to_string();
        text.push('\n');
        self.writer.write_all(text.as_bytes())?;
        self.answer(command, deadline, cancel)
    }

    /// Whether this QEMU is at least of a version.
    pub(super) fn is_since(&self, version: (u64, u64)) -> bool {
        self.version >= version
    }

    /// Carry out a command that takes a descriptor.
    pub(super) fn execute_with_fd(
        &mut self,
        command: &str,
        arguments: Value,
        fd: BorrowedFd<'_>,
        deadline: &Deadline,
        cancel: &Cancel,
    ) -> Result<Value, QmpError> {
        let mut text = json!({ "execute": command, "arguments": arguments }).to_string();
        text.push('\n');
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [fd];
        // There is space for one descriptor.
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let sent = sendmsg(
            &self.writer,
            &[IoSlice::new(text.as_bytes())],
            &mut control,
            SendFlags::NOSIGNAL,
        )
        .map_err(io::Error::from)?;
        self.writer.write_all(&text.as_bytes()[sent..])?;
        self.answer(command, deadline, cancel)
    }

    fn answer(
        &mut self,
        command: &str,
        deadline: &Deadline,
        cancel: &Cancel,
    ) -> Result<Value, QmpError> {
        loop {
            if let Some(mut message) = self.message()? {
                if let Some(error) = message.get("error") {
                    let why = error.get("desc").and_then(Value::as_str);
                    return Err(QmpError::Refused {
                        command: command.into(),
                        why: why.unwrap_or("no reason given").into(),
                    });
                }
                if let Some(value) = message.get_mut("return") {
                    return Ok(value.take());
                }
            }
            wait_on(&format!("answer `{command}`"), deadline, cancel)?;
        }
    }

    /// Whether an event of this name has arrived; waits for a moment if not.
    pub(super) fn event(&mut self, name: &str) -> Result<bool, QmpError> {
        if !self.events.iter().any(|e| e == name) {
            self.message()?;
        }
        let before = self.events.len();
        self.events.retain(|e| e != name);
        Ok(self.events.len() < before)
    }

    /// Discard the events that arrived.
    pub(super) fn forget_events(&mut self) {
        self.events.clear();
    }

    /// The next message that is not an event, if one arrives shortly.
    fn message(&mut self) -> Result<Option<Value>, QmpError> {
        let room = LINE_MAX_BYTES.saturating_sub(self.line.len() as u64);
        if room == 0 {
            let why = format!("a line of more than {LINE_MAX_BYTES} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why).into());
        }
        match self.reader.by_ref().take(room).read_line(&mut self.line) {
            Ok(_) if self.line.len() as u64 == LINE_MAX_BYTES => Ok(None),
            Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(_) => {
                let message: Value = serde_json::from_str(&self.line).map_err(io::Error::other)?;
                self.line.clear();
                match message.get("event").and_then(Value::as_str) {
                    Some(event) => {
                        // Recorded once, not how often: the number is not limited.
                        if !self.events.iter().any(|e| e == event) {
                            self.events.push(event.to_string());
                        }
                        Ok(None)
                    }
                    None => Ok(Some(message)),
                }
            }
            // An incomplete line stays in `line`.
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock
                        | io::ErrorKind::TimedOut
                        | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(None)
            }
            Err(e) => Err(e.into()),
        }
    }
}

/// Check whether to continue waiting.
fn wait_on(what: &str, deadline: &Deadline, cancel: &Cancel) -> Result<(), QmpError> {
    if cancel.load(Ordering::Relaxed) {
        return Err(QmpError::Interrupted);
    }
    match deadline.is_over() {
        true => Err(QmpError::Timeout(what.into())),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn limit() -> Deadline {
        Deadline::new(std::process::id(), Duration::from_secs(5))
    }

    /// A mock QEMU that sends these lines, one after each line that it reads.
    fn qemu(lines: &[&str]) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let lines: Vec<String> = lines.iter().map(|l| format!("{l}\n")).collect();
        thread::spawn(move || {
            let mut reader = BufReader::new(theirs.try_clone().unwrap());
            let mut theirs = theirs;
            theirs.write_all(b"{\"QMP\": {}}\n").unwrap();
            for line in lines {
                let mut said = String::new();
                reader.read_line(&mut said).unwrap();
                // In two parts: a line is complete when it ends.
                let (one, other) = line.split_at(line.len() / 2);
                theirs.write_all(one.as_bytes()).unwrap();
                thread::sleep(2 * POLL);
                theirs.write_all(other.as_bytes()).unwrap();
            }
        });
        ours
    }

    /// Check replies, refusals, events and the end of the channel.
    #[test]
    fn answers_and_events() {
        let stream = qemu(&[
            r#"{"return": {}}"#,
            "{\"event\": \"STOP\"}\n{\"return\": {\"status\": \"paused\"}}",
            r#"{"error": {"class": "GenericError", "desc": "no such thing"}}"#,
        ]);
        let go_on = Cancel::default();
        let mut qmp = Qmp::open(stream, &limit(), &go_on).unwrap();
        let status = qmp.execute("query-status", json!({}), &limit(), &go_on).unwrap();
        assert_eq!(status["status"], "paused");
        assert!(qmp.event("STOP").unwrap());
        assert_eq!(
            qmp.execute("cont", json!({}), &limit(), &go_on).unwrap_err().to_string(),
            "QEMU refused `cont`: no such thing"
        );
        assert!(matches!(qmp.event("STOP"), Err(QmpError::Io(_))));
    }
}
