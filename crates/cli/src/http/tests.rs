//! Tests of the server with well-behaved clients, and others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use super::*;

/// A server in a thread of its own, which ends with it.
struct Running {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Tally>>,
}

/// Serves a text of `bytes` bytes.
fn running(bytes: usize) -> Running {
    let mut server = Server::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = server.address().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let thread = {
        let over = Arc::clone(&over);
        thread::spawn(move || {
            let mut respond = |path: &str, _: &Tally| {
                (path == "/metrics")
                    .then(|| Response { media_type: "text/plain", body: "x".repeat(bytes) })
            };
            let go_on = || !over.load(Ordering::Relaxed);
            server.run(&mut respond, &go_on).unwrap();
            server.tally
        })
    };
    Running { address, over, thread: Some(thread) }
}

impl Running {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// The answer to these bytes.
    fn ask(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        answered(&mut stream)
    }

    fn end(mut self) -> Tally {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

fn answered(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    stream.read_to_end(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// Check that GET and HEAD are answered, with length and type, and each other request with its
/// status.
#[test]
fn answers() {
    let server = running(5);
    let get = server.ask(b"GET /metrics HTTP/1.1\r\nHost: localhost:9709\r\n\r\n");
    assert!(get.starts_with("HTTP/1.1 200 OK\r\n"), "{get}");
    assert!(get.contains("\r\nContent-Length: 5\r\n"), "{get}");
    assert!(get.ends_with("\r\n\r\nxxxxx"), "{get}");
    let head = server.ask(b"HEAD /metrics HTTP/1.1\r\nHost: [::1]:9709\r\n\r\n");
    assert!(head.contains("\r\nContent-Length: 5\r\n"), "{head}");
    assert!(head.ends_with("\r\n\r\n"), "{head}");
    let old = server.ask(b"GET /metrics?x=1 HTTP/1.0\r\n\r\n");
    assert!(old.starts_with("HTTP/1.1 200"), "{old}");
    let mut long = b"GET /metrics HTTP/1.1\r\nX: ".to_vec();
    long.extend([b'a'; REQUEST_BYTES]);
    let mut many = b"GET /metrics HTTP/1.1\r\n".to_vec();
    for _ in 0..=HEADERS {
        many.extend(b"A: b\r\n");
    }
    many.extend(b"\r\n");
    for (request, status) in [
        (&b"GET /etc/passwd HTTP/1.1\r\n\r\n"[..], "404"),
        (b"GET /../metrics HTTP/1.1\r\n\r\n", "404"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405"),
        (b"DELETE / HTTP/1.1\r\n\r\n", "405"),
        (b"GET /metrics HTTP/1.1\r\nHost: example.org\r\n\r\n", "421"),
        (b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1.example.org:1\r\n\r\n", "421"),
        (b"GET /metrics\r\n\r\n", "400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "400"),
        (b"GET /metrics HTTP/1.1\r\nBad Header: x\r\n\r\n", "400"),
        (&long, "431"),
        (&many, "431"),
    ] {
        let said = server.ask(request);
        let shown = String::from_utf8_lossy(&request[..request.len().min(60)]);
        assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{shown}: {said}");
    }
    let tally = server.end();
    assert_eq!(tally.answered[&200], 3);
    assert_eq!(tally.answered[&431], 2);
}

/// Check that requests may come byte by byte, that one that never ends is ended, and that others are
/// served meanwhile.
#[test]
fn slow_clients() {
    let server = running(5);
    let mut slow = server.connect();
    for byte in b"GET /metrics HTTP/1.1\r\n\r\n" {
        slow.write_all(&[*byte]).unwrap();
        thread::sleep(Duration::from_millis(2));
    }
    assert!(answered(&mut slow).ends_with("xxxxx"));
    let begun = Instant::now();
    let mut never = server.connect();
    never.write_all(b"GET /metrics HTTP/1.1\r\nA: ").unwrap();
    let served = server.ask(b"GET /metrics HTTP/1.1\r\n\r\n");
    assert!(served.ends_with("xxxxx"));
    // One byte now and then does not make it any longer.
    let mut last = Vec::new();
    never.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    while begun.elapsed() < Duration::from_secs(15) {
        let _ = never.write_all(b"b");
        let mut bytes = [0; 512];
        match never.read(&mut bytes) {
            Ok(read) if read > 0 => {
                last.extend_from_slice(&bytes[..read]);
                break;
            }
            Ok(_) => break,
            Err(_) => {}
        }
    }
    assert!(last.starts_with(b"HTTP/1.1 408"), "{last:?}");
    assert!(begun.elapsed() >= TO_ASK);
    server.end();
}

/// Check that more silent clients than there are places for keep nobody from being served at once,
/// and that a client that does not read its response holds up nobody.
#[test]
fn many_clients() {
    let server = running(4 << 20);
    let mut deaf = server.connect();
    deaf.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let silent: Vec<TcpStream> = (0..3 * CONNECTIONS).map(|_| server.connect()).collect();
    for _ in 0..3 {
        let begun = Instant::now();
        let served = server.ask(b"GET /metrics HTTP/1.1\r\n\r\n");
        assert!(served.len() > 4 << 20);
        // Not by the time that any of them has.
        assert!(begun.elapsed() < TO_ASK, "{:?}", begun.elapsed());
    }
    drop(silent);
    drop(deaf);
    let tally = server.end();
    assert!(tally.dropped["too many connections"] >= 2 * CONNECTIONS as u64 - 1);
}

/// Check that a response that is too large is an error.
#[test]
fn too_large() {
    let server = running(RESPONSE_BYTES + 1);
    let said = server.ask(b"GET /metrics HTTP/1.1\r\n\r\n");
    assert!(said.starts_with("HTTP/1.1 500 "), "{}", &said[..80]);
    server.end();
}
