//! A small HTTP server that only answers: one thread, no more connections than a bound, and for each
//! a limit on the size of its request and on the time it takes. A slow client holds nothing but its
//! own place, and loses that to a new one.
//!
//! `httparse` reads requests. Every response closes its connection.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Connections at a time.
const CONNECTIONS: usize = 32;
/// Bytes of a request with its headers.
const REQUEST_BYTES: usize = 8 << 10;
/// Headers of a request.
const HEADERS: usize = 64;
/// Maximum size of a response.
const RESPONSE_BYTES: usize = 16 << 20;
/// Time for the whole of a request, for the client to read the response, and to close its end.
const TO_ASK: Duration = Duration::from_secs(3);
const TO_READ: Duration = Duration::from_secs(10);
const TO_CLOSE: Duration = Duration::from_millis(500);
/// How long at most nothing is looked at but sockets.
const NAP: Duration = Duration::from_millis(100);
/// Bytes to read from a client that sends more than a request.
const DRAINED: usize = 64 << 10;

/// What a page is answered with, without the status.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    /// The value of `Content-Type`.
    pub(crate) media_type: &'static str,
    /// The text after the headers.
    pub(crate) body: String,
}

/// Counts of responses and of dropped connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Responses by status.
    pub(crate) answered: BTreeMap<u16, u64>,
    /// Connections that were closed without one, by reason.
    pub(crate) dropped: BTreeMap<&'static str, u64>,
}

/// Serves the responses of `respond`, by path.
#[derive(Debug)]
pub(crate) struct Server {
    listener: TcpListener,
    /// Whether only names of this machine may be asked for: a page of another site, whose name was
    /// made to mean a loopback address, is not to read what is served.
    local: bool,
    connections: Vec<Connection>,
    tally: Tally,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    state: State,
    until: Instant,
}

#[derive(Debug)]
enum State {
    Asking(Vec<u8>),
    Answering { text: Vec<u8>, sent: usize },
    Closing { drained: usize },
    Done,
}

impl Server {
    /// Listen at an address.
    ///
    /// # Errors
    /// The address is in use, or not this machine's.
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Server {
            listener,
            local: address.ip().is_loopback(),
            connections: Vec::new(),
            tally: Tally::default(),
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The socket is gone.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answer clients as long as `go_on` returns true.
    ///
    /// # Errors
    /// The sockets can't be waited for.
    pub(crate) fn run(
        &mut self,
        respond: &mut dyn FnMut(&str, &Tally) -> Option<Response>,
        go_on: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        while go_on() {
            let ready = self.wait()?;
            for (connection, ready) in self.connections.iter_mut().zip(&ready[1..]) {
                if *ready {
                    connection.step(self.local, &mut self.tally, respond);
                }
            }
            self.sweep(Instant::now());
            if ready[0] {
                self.accept();
            }
        }
        Ok(())
    }

    /// Which sockets are ready: the listening one first, then the connections.
    fn wait(&self) -> io::Result<Vec<bool>> {
        let of = |fd: i32, events: i16| libc::pollfd { fd, events, revents: 0 };
        let mut polled = vec![of(self.listener.as_raw_fd(), libc::POLLIN)];
        polled.extend(self.connections.iter().map(|connection| {
            let events = match connection.state {
                State::Answering { .. } => libc::POLLOUT,
                _ => libc::POLLIN,
            };
            of(connection.stream.as_raw_fd(), events)
        }));
        // SAFETY: the array is alive, and has the given length.
        let got = unsafe {
            libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, NAP.as_millis() as i32)
        };
        match got {
            0.. => Ok(polled.iter().map(|one| one.revents != 0).collect()),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {
                    Ok(vec![false; polled.len()])
                }
                error => Err(error),
            },
        }
    }

    /// Close connections that have ended, or take too long.
    fn sweep(&mut self, now: Instant) {
        let tally = &mut self.tally;
        self.connections.retain_mut(|connection| {
            let late = now >= connection.until;
            match &connection.state {
                State::Done => false,
                State::Asking(_) if late => {
                    connection.answer(Answer::error(408, "the request took too long"), tally);
                    true
                }
                State::Answering { .. } if late => {
                    *tally.dropped.entry("response not read in time").or_default() += 1;
                    false
                }
                State::Closing { .. } => !late,
                _ => true,
            }
        });
    }

    /// Take new connections; of too many, the oldest ends.
    fn accept(&mut self) {
        // Others are served in between.
        for _ in 0..CONNECTIONS {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Out of descriptors: try again later.
                Err(_) => return std::thread::sleep(NAP / 2),
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.connections.len() >= CONNECTIONS {
                let oldest = self.connections.iter().enumerate().min_by_key(|(_, c)| c.until);
                if let Some((at, _)) = oldest {
                    let gone = self.connections.remove(at);
                    if !matches!(gone.state, State::Closing { .. } | State::Done) {
                        *self.tally.dropped.entry("too many connections").or_default() += 1;
                    }
                }
            }
            self.connections.push(Connection {
                stream,
                state: State::Asking(Vec::new()),
                until: Instant::now() + TO_ASK,
            });
        }
    }
}

/// A status, headers in addition to the usual ones, and a body; for a HEAD request only its length.
struct Answer {
    status: u16,
    extra: &'static str,
    response: Response,
    head: bool,
}

impl Answer {
    fn error(status: u16, what: &str) -> Answer {
        Answer {
            status,
            extra: if status == 405 { "Allow: GET, HEAD\r\n" } else { "" },
            response: Response {
                media_type: "text/plain; charset=utf-8",
                body: format!("{status} {}: {what}\n", reason(status)),
            },
            head: false,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let Response { media_type, body } = &self.response;
        let mut text = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\nConnection: \
             close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n{}\r\n",
            self.status,
            reason(self.status),
            body.len(),
            self.extra
        );
        if !self.head {
            text.push_str(body);
        }
        text.into_bytes()
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        _ => "Internal Server Error",
    }
}

impl Connection {
    /// Read or write as much as is possible now.
    fn step(
        &mut self,
        local: bool,
        tally: &mut Tally,
        respond: &mut dyn FnMut(&str, &Tally) -> Option<Response>,
    ) {
        match &mut self.state {
            State::Asking(asked) => {
                let mut bytes = [0; REQUEST_BYTES];
                let room = REQUEST_BYTES - asked.len();
                match self.stream.read(&mut bytes[..room]) {
                    Ok(0) => {
                        if !asked.is_empty() {
                            *tally.dropped.entry("request cut short").or_default() += 1;
                        }
                        self.state = State::Done;
                    }
                    Ok(read) => {
                        asked.extend_from_slice(&bytes[..read]);
                        let asked = std::mem::take(asked);
                        match answer(&asked, local, tally, respond) {
                            Some(answer) => self.answer(answer, tally),
                            None => self.state = State::Asking(asked),
                        }
                    }
                    Err(error) => self.failed(&error),
                }
            }
            State::Answering { text, sent } => match self.stream.write(&text[*sent..]) {
                Ok(written) => {
                    *sent += written;
                    if *sent == text.len() {
                        // Unread data when a socket is closed resets the connection, and the
                        // response may be lost.
                        let _ = self.stream.shutdown(Shutdown::Write);
                        self.state = State::Closing { drained: 0 };
                        self.until = Instant::now() + TO_CLOSE;
                    }
                }
                Err(error) => self.failed(&error),
            },
            State::Closing { drained } => {
                let mut bytes = [0; REQUEST_BYTES];
                match self.stream.read(&mut bytes) {
                    Ok(read) if read > 0 && *drained < DRAINED => *drained += read,
                    Ok(_) => self.state = State::Done,
                    Err(error) => self.failed(&error),
                }
            }
            State::Done => {}
        }
    }

    fn failed(&mut self, error: &io::Error) {
        let again = [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted];
        if !again.contains(&error.kind()) {
            self.state = State::Done;
        }
    }

    fn answer(&mut self, answer: Answer, tally: &mut Tally) {
        let answer = match answer.response.body.len() > RESPONSE_BYTES {
            true => Answer::error(500, "the response is too large"),
            false => answer,
        };
        *tally.answered.entry(answer.status).or_default() += 1;
        self.until = Instant::now() + TO_READ;
        self.state = State::Answering { text: answer.bytes(), sent: 0 };
    }
}

/// The answer to a request; none as long as it is not complete.
fn answer(
    asked: &[u8],
    local: bool,
    tally: &Tally,
    respond: &mut dyn FnMut(&str, &Tally) -> Option<Response>,
) -> Option<Answer> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(asked) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if asked.len() < REQUEST_BYTES => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            let most = format!("expected at most {REQUEST_BYTES} bytes and {HEADERS} headers");
            return Some(Answer::error(431, &most));
        }
        Err(error) => return Some(Answer::error(400, &error.to_string())),
    }
    let (method, path) = (request.method.unwrap_or(""), request.path.unwrap_or(""));
    let head = method == "HEAD";
    if method != "GET" && !head {
        return Some(Answer::error(405, "expected GET or HEAD"));
    }
    if local && !request.headers.iter().all(is_of_this_machine) {
        let what = "expected an address, or localhost, as host";
        return Some(Answer { head, ..Answer::error(421, what) });
    }
    let path = path.split(['?', '#']).next().unwrap_or("");
    let answer = match respond(path, tally) {
        Some(response) => Answer { status: 200, extra: "", response, head },
        None => Answer { head, ..Answer::error(404, "expected /metrics or /") },
    };
    Some(answer)
}

/// Whether a header is not `Host`, or names a host that nobody else can give.
fn is_of_this_machine(header: &httparse::Header<'_>) -> bool {
    if !header.name.eq_ignore_ascii_case("host") {
        return true;
    }
    let Ok(host) = std::str::from_utf8(header.value) else {
        return false;
    };
    let host = host.trim();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let plain = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || plain.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests;
