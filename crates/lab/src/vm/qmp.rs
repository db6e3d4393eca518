//! QEMU's control channel (docs/interop/qmp-spec.rst of QEMU): JSON, a line each.

use std::io::{self, BufRead, BufReader, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};

/// A control channel that QEMU has greeted on.
#[derive(Debug)]
pub(super) struct Qmp {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    /// Names of events that came while something else was waited for.
    events: Vec<String>,
    line: String,
}

/// How often a wait looks whether it is to go on.
const POLL: Duration = Duration::from_millis(50);

/// Why an exchange failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum QmpError {
    /// The channel is closed, or broke.
    #[error("QEMU's control channel: {0}")]
    Io(#[from] io::Error),
    /// QEMU said no.
    #[error("QEMU refused `{command}`: {why}")]
    Refused {
        /// What it was told.
        command: String,
        /// Its words.
        why: String,
    },
    /// It said nothing.
    #[error("QEMU did not {0} in time")]
    Timeout(&'static str),
}

impl Qmp {
    /// Wait for the greeting, and leave negotiation.
    pub(super) fn open(stream: UnixStream, limit: Duration) -> Result<Qmp, QmpError> {
        stream.set_read_timeout(Some(POLL))?;
        let mut qmp = Qmp {
            reader: BufReader::new(stream.try_clone()?),
            writer: stream,
            events: Vec::new(),
            line: String::new(),
        };
        let deadline = Instant::now() + limit;
        while qmp.message()?.is_none_or(|m| m.get("QMP").is_none()) {
            if Instant::now() > deadline {
                return Err(QmpError::Timeout("greet"));
            }
        }
        qmp.execute("qmp_capabilities", json!({}), limit)?;
        Ok(qmp)
    }

    /// Carry out a command.
    pub(super) fn execute(
        &mut self,
        command: &str,
        arguments: Value,
        limit: Duration,
    ) -> Result<Value, QmpError> {
        let mut text = json!({ "execute": command, "arguments": arguments }).to_string();
        text.push('\n');
        self.writer.write_all(text.as_bytes())?;
        self.answer(command, limit)
    }

    /// Hand over a descriptor under a name.
    pub(super) fn pass_fd(
        &mut self,
        name: &str,
        fd: BorrowedFd<'_>,
        limit: Duration,
    ) -> Result<(), QmpError> {
        let mut text = json!({ "execute": "getfd", "arguments": { "fdname": name } }).to_string();
        text.push('\n');
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [fd];
        // One descriptor is what the space is for.
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let sent = sendmsg(
            &self.writer,
            &[IoSlice::new(text.as_bytes())],
            &mut control,
            SendFlags::NOSIGNAL,
        )
        .map_err(io::Error::from)?;
        self.writer.write_all(&text.as_bytes()[sent..])?;
        self.answer("getfd", limit).map(drop)
    }

    fn answer(&mut self, command: &str, limit: Duration) -> Result<Value, QmpError> {
        let deadline = Instant::now() + limit;
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
            if Instant::now() > deadline {
                return Err(QmpError::Timeout("answer"));
            }
        }
    }

    /// Whether an event of this name has come, waiting for a moment if not.
    pub(super) fn event(&mut self, name: &str) -> Result<bool, QmpError> {
        if !self.events.iter().any(|e| e == name) {
            self.message()?;
        }
        let before = self.events.len();
        self.events.retain(|e| e != name);
        Ok(self.events.len() < before)
    }

    /// Forget the events that came.
    pub(super) fn forget_events(&mut self) {
        self.events.clear();
    }

    /// The next message that is no event, if one comes in a moment.
    fn message(&mut self) -> Result<Option<Value>, QmpError> {
        match self.reader.read_line(&mut self.line) {
            Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(_) => {
                let message: Value = serde_json::from_str(&self.line).map_err(io::Error::other)?;
                self.line.clear();
                match message.get("event").and_then(Value::as_str) {
                    Some(event) => {
                        self.events.push(event.to_string());
                        Ok(None)
                    }
                    None => Ok(Some(message)),
                }
            }
            // What was read of a line stays in `line`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const LIMIT: Duration = Duration::from_secs(5);

    /// A QEMU that says these lines, one after each line that it reads.
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
                // In two pieces: a line is whole when it ends.
                let (one, other) = line.split_at(line.len() / 2);
                theirs.write_all(one.as_bytes()).unwrap();
                thread::sleep(2 * POLL);
                theirs.write_all(other.as_bytes()).unwrap();
            }
        });
        ours
    }

    /// Check that answers, refusals and events are told apart, and the end seen.
    #[test]
    fn answers_and_events() {
        let stream = qemu(&[
            r#"{"return": {}}"#,
            "{\"event\": \"STOP\"}\n{\"return\": {\"status\": \"paused\"}}",
            r#"{"error": {"class": "GenericError", "desc": "no such thing"}}"#,
        ]);
        let mut qmp = Qmp::open(stream, LIMIT).unwrap();
        let status = qmp.execute("query-status", json!({}), LIMIT).unwrap();
        assert_eq!(status["status"], "paused");
        assert!(qmp.event("STOP").unwrap());
        assert_eq!(
            qmp.execute("cont", json!({}), LIMIT)
                .unwrap_err()
                .to_string(),
            "QEMU refused `cont`: no such thing"
        );
        assert!(matches!(qmp.event("STOP"), Err(QmpError::Io(_))));
    }
}
