//! The client: connections that stay open during a block, each with one request at a time.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, FromRawFd, IntoRawFd};
use std::time::Instant;

use netplumb_model::web::WebLoad;
use netplumb_sys::netns::inside;

use super::mix::{FileOf, Requests};
use super::server::PORT;
use crate::ends::{Ends, stream};
use crate::hosts::transfer::{PATIENCE, by_turns, explained};
use crate::hosts::{Connections, Done, Edges, OVER, READY, segments_of, size};

/// The server's signal that its block has begun.
const GO: u8 = b'g';
/// Longest head of an answer; nginx's has some 250 bytes.
const MOST_HEAD_BYTES: usize = 8 << 10;
const READ_BYTES: usize = 64 << 10;

/// Be the host with the server during a block: it serves meanwhile, in processes of its own.
///
/// # Errors
/// The client ended early.
pub(crate) fn serve(
    control: &mut Connections,
    load: WebLoad,
    edges: &mut dyn Edges,
) -> io::Result<Done> {
    edges.begin();
    control.say(GO)?;
    control.hear(OVER)?;
    edges.end();
    Ok(Done {
        bytes: Requests::from_load(load).map(|file| file.size_bytes()).sum(),
        ..Done::default()
    })
}

/// Connections to a server.
#[derive(Debug)]
pub struct Clients(Vec<TcpStream>);

impl Clients {
    /// Open the connections of a load, with a receive buffer of this size.
    ///
    /// # Errors
    /// The server does not accept them.
    pub fn open(ends: &Ends, load: WebLoad, buffer_bytes: Option<u32>) -> io::Result<Clients> {
        let to = SocketAddr::new(ends.tx_address, PORT);
        let from = SocketAddr::new(ends.rx_address, 0);
        let connect = |_| {
            let socket = stream(from)?;
            if let Some(bytes) = buffer_bytes {
                size(&socket, libc::SO_RCVBUFFORCE, bytes)?;
            }
            socket.connect_timeout(&to.into(), PATIENCE).map_err(explained)?;
            // SAFETY: the descriptor was just given up by its owner.
            let stream = unsafe { TcpStream::from_raw_fd(socket.into_raw_fd()) };
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        inside(ends.rx_namespace.as_fd(), || {
            let all = (0..load.connections).map(connect);
            all.collect::<io::Result<Vec<_>>>().map(Clients)
        })
    }

    /// Be the host with the client for a block: request all files of a load, and check the answers.
    ///
    /// # Errors
    /// A connection failed, or nothing moves. A wrong answer is not an error: it is in [`Done::failed`].
    pub fn fetch(
        &mut self,
        control: &mut Connections,
        load: WebLoad,
        edges: &mut dyn Edges,
    ) -> io::Result<Done> {
        edges.prepare()?;
        control.say(READY)?;
        control.hear(GO)?;
        edges.begin();
        let done = self.fetch_all(load)?;
        edges.end();
        control.say(OVER)?;
        edges.finish()?;
        control.ended()?;
        Ok(done)
    }

    /// Segments with data that came so far.
    ///
    /// # Errors
    /// The query failed.
    pub fn segments(&self) -> io::Result<u64> {
        self.0.iter().map(|stream| segments_of(stream, false)).sum()
    }

    fn fetch_all(&mut self, load: WebLoad) -> io::Result<Done> {
        let mut requests = Requests::from_load(load);
        let mut done =
            Done { turns_ns: Vec::with_capacity(load.requests as usize), ..Done::default() };
        let mut failed = BTreeMap::new();
        // With few requests, some connections have none.
        let mut asked: Vec<Option<PendingRequest>> = Vec::new();
        for (stream, file) in self.0.iter_mut().zip(requests.by_ref()) {
            asked.push(Some(PendingRequest::send(stream, file)?));
        }
        let mut buffer = vec![0; READ_BYTES];
        let busy = &mut self.0[..asked.len()];
        by_turns(busy, libc::POLLIN, &mut |number, stream| {
            let Some(current) = &mut asked[number] else {
                return Ok(false);
            };
            let read = stream.read(&mut buffer)?;
            let mut missing = |file: FileOf, why: String| {
                *failed.entry(why).or_insert(0) += file.size_bytes();
            };
            if read == 0 {
                missing(current.file, "connection closed early".into());
                return Ok(false);
            }
            match current.take(&buffer[..read]) {
                None => return Ok(true),
                Some(Ok(())) => done.bytes += current.file.size_bytes(),
                Some(Err(Wrong::Answer(why))) => missing(current.file, why),
                Some(Err(Wrong::Protocol(why))) => {
                    missing(current.file, why);
                    return Ok(false);
                }
            }
            done.turns_ns.push(current.began.elapsed().as_nanos() as u64);
            asked[number] =
                requests.next().map(|file| PendingRequest::send(stream, file)).transpose()?;
            Ok(asked[number].is_some())
        })?;
        // Those for which no connection was left.
        let unsent: u64 = requests.map(|file| file.size_bytes()).sum();
        if unsent > 0 {
            failed.insert("not asked for: no connection is left".into(), unsent);
        }
        done.failed = failed.into_iter().collect();
        Ok(done)
    }
}

/// A request, and the answer so far.
struct PendingRequest {
    file: FileOf,
    began: Instant,
    /// The part of the head that has arrived; empty once it is complete.
    head: Vec<u8>,
    /// The length of the body, once the head is complete.
    body_bytes: Option<u64>,
    /// Bytes of the body that have arrived.
    at: u64,
    wrong: Option<String>,
}

/// Why an answer is wrong.
enum Wrong {
    /// It is another one, but the next may follow.
    Answer(String),
    /// It can't be read, nor can the bytes after it.
    Protocol(String),
}

impl PendingRequest {
    fn send(stream: &mut TcpStream, file: FileOf) -> io::Result<PendingRequest> {
        let request = format!("GET /{} HTTP/1.1\r\nHost: plumb\r\n\r\n", file.path());
        let began = Instant::now();
        // There is room for it: nothing else was sent since the answer before.
        stream.write_all(request.as_bytes())?;
        Ok(PendingRequest { file, began, head: Vec::new(), body_bytes: None, at: 0, wrong: None })
    }

    /// Take some more bytes; returns the outcome once the answer is complete.
    fn take(&mut self, mut bytes: &[u8]) -> Option<Result<(), Wrong>> {
        let begun = self.head.len();
        let body_bytes = match self.body_bytes {
            Some(length) => length,
            None => {
                self.head.extend_from_slice(bytes);
                let mut fields = [httparse::EMPTY_HEADER; 32];
                let mut answer = httparse::Response::new(&mut fields);
                let head_bytes = match answer.parse(&self.head) {
                    Ok(httparse::Status::Complete(length)) => length,
                    Ok(httparse::Status::Partial) if self.head.len() < MOST_HEAD_BYTES => {
                        return None;
                    }
                    _ => return Some(Err(Wrong::Protocol("not an answer of HTTP/1.1".into()))),
                };
                let Some(length) = content_length(&answer) else {
                    return Some(Err(Wrong::Protocol("answer without a length".into())));
                };
                let code = answer.code.unwrap_or(0);
                if code != 200 {
                    self.wrong = Some(format!("status {code}"));
                } else if length != self.file.size_bytes() {
                    self.wrong = Some("wrong length".into());
                }
                bytes = &bytes[head_bytes - begun..];
                self.body_bytes = Some(length);
                length
            }
        };
        if bytes.len() as u64 > body_bytes - self.at {
            let why = "more than was asked for".to_string();
            return Some(Err(Wrong::Protocol(why)));
        }
        if self.wrong.is_none() && !self.file.has(self.at, bytes) {
            self.wrong = Some("wrong contents".into());
        }
        self.at += bytes.len() as u64;
        (self.at == body_bytes).then(|| match self.wrong.take() {
            None => Ok(()),
            Some(why) => Err(Wrong::Answer(why)),
        })
    }
}

fn content_length(answer: &httparse::Response<'_, '_>) -> Option<u64> {
    let mut fields = answer.headers.iter();
    let field = fields.find(|field| field.name.eq_ignore_ascii_case("content-length"))?;
    std::str::from_utf8(field.value).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use super::*;

    const LOAD: WebLoad = WebLoad { requests: 60, connections: 3, directories: 2, seed: 1 };

    /// A server of a test: `wrong` changes its answers.
    fn serve_with(
        listener: TcpListener,
        wrong: fn(usize, Vec<u8>) -> Vec<u8>,
    ) -> Vec<thread::JoinHandle<()>> {
        let all: Vec<FileOf> = super::super::files(LOAD.directories).collect();
        (0..LOAD.connections)
            .map(|_| {
                let (mut stream, _) = listener.accept().unwrap();
                let all = all.clone();
                thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    let mut number = 0;
                    loop {
                        let read = stream.read(&mut buffer).unwrap_or(0);
                        if read == 0 {
                            return;
                        }
                        let text = String::from_utf8_lossy(&buffer[..read]).into_owned();
                        let path = text.split_whitespace().nth(1).unwrap();
                        let file = all.iter().find(|f| path[1..] == f.path()).unwrap();
                        let length = file.size_bytes();
                        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
                        let mut answer = head.into_bytes();
                        let begun = answer.len();
                        while ((answer.len() - begun) as u64) < length {
                            let at = (answer.len() - begun) as u64;
                            answer.extend_from_slice(file.contents(at, (length - at) as usize));
                        }
                        let answer = wrong(number, answer);
                        // In pieces; the first ends within the head.
                        for piece in answer.chunks(30_011).flat_map(|p| [&p[..10], &p[10..]]) {
                            if stream.write_all(piece).is_err() {
                                return;
                            }
                        }
                        number += 1;
                    }
                })
            })
            .collect()
    }

    fn fetched(wrong: fn(usize, Vec<u8>) -> Vec<u8>) -> Done {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = listener.local_addr().unwrap();
        let connect = |_| TcpStream::connect(to).unwrap();
        let mut clients = Clients((0..LOAD.connections).map(connect).collect());
        let servers = serve_with(listener, wrong);
        let done = clients.fetch_all(LOAD).unwrap();
        drop(clients);
        for server in servers {
            server.join().unwrap();
        }
        done
    }

    /// Check that all files come, each once, with the time that each took.
    #[test]
    fn all_files_come() {
        let done = fetched(|_, answer| answer);
        let asked: u64 = Requests::from_load(LOAD).map(|file| file.size_bytes()).sum();
        assert_eq!((done.bytes, done.failed), (asked, vec![]));
        assert_eq!(done.turns_ns.len(), LOAD.requests as usize);
    }

    /// Check that wrong answers are counted by cause, to the byte.
    #[test]
    fn what_is_wrong_is_counted() {
        let asked: u64 = Requests::from_load(LOAD).map(|file| file.size_bytes()).sum();
        let cause = |done: Done| {
            let failed: u64 = done.failed.iter().map(|(_, bytes)| bytes).sum();
            assert_eq!(done.bytes + failed, asked);
            let causes = done.failed.into_iter().map(|(why, _)| why);
            causes.collect::<Vec<_>>()
        };
        let flip = |number, mut answer: Vec<u8>| {
            if number == 2 {
                *answer.last_mut().unwrap() ^= 1;
            }
            answer
        };
        assert_eq!(cause(fetched(flip)), ["wrong contents"]);
        let refuse = |number, answer| match number {
            1 => b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone".to_vec(),
            _ => answer,
        };
        assert_eq!(cause(fetched(refuse)), ["status 404"]);
        let garbage = |_, _| b"SSH-2.0-OpenSSH_9.2 and some more\r\n".to_vec();
        assert_eq!(
            cause(fetched(garbage)),
            ["not an answer of HTTP/1.1", "not asked for: no connection is left"]
        );
    }
}
