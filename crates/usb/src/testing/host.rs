//! What `vhci_hcd` does: requests over a socket, and their answers in any order.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::Pipe;
use crate::device::{BULK_IN, BULK_OUT, INTERRUPT_IN, Setup, Stall};
use crate::usbip::{Direction, Reply, Request, Submit};

/// The answer to a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) status: i32,
    pub(crate) actual: usize,
    pub(crate) data: Vec<u8>,
}

/// A host with one device.
pub(crate) struct Host {
    pub(crate) socket: UnixStream,
    next: u32,
    directions: HashMap<u32, Direction>,
    bytes: Vec<u8>,
    done: HashMap<u32, Done>,
    /// All answers as they came.
    pub(crate) log: Vec<u8>,
}

impl Host {
    pub(crate) fn new(socket: UnixStream) -> Host {
        // An answer that never comes fails the test instead of keeping it.
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Host {
            socket,
            next: 1,
            directions: HashMap::new(),
            bytes: Vec::new(),
            done: HashMap::new(),
            log: Vec::new(),
        }
    }

    /// Submit a transfer. Returns its number.
    pub(crate) fn submit(
        &mut self,
        endpoint: u8,
        direction: Direction,
        length: usize,
        setup: [u8; 8],
        data: &[u8],
    ) -> u32 {
        let seqnum = self.next;
        self.next += 1;
        self.directions.insert(seqnum, direction);
        let request = Request::Submit(Submit {
            seqnum,
            devid: 65538,
            direction,
            endpoint,
            length,
            setup,
            data,
        });
        self.write(&request);
        seqnum
    }

    pub(crate) fn ask(&mut self, room: usize) -> u32 {
        self.submit(BULK_IN, Direction::In, room, [0; 8], &[])
    }

    pub(crate) fn ask_interrupt(&mut self) -> u32 {
        self.submit(INTERRUPT_IN, Direction::In, 16, [0; 8], &[])
    }

    pub(crate) fn send(&mut self, data: &[u8]) -> u32 {
        self.submit(BULK_OUT, Direction::Out, data.len(), [0; 8], data)
    }

    /// Take a transfer back, and wait for the answer to that.
    pub(crate) fn unlink(&mut self, unlinked: u32) -> i32 {
        let seqnum = self.next;
        self.next += 1;
        self.write(&Request::Unlink { seqnum, unlinked });
        self.wait(seqnum).status
    }

    /// Wait until the device has read all that was submitted: requests to one device are
    /// read in order, and those to several are not.
    pub(crate) fn sync(&mut self) {
        let setup = [0x80, 8, 0, 0, 0, 0, 1, 0];
        let seqnum = self.submit(0, Direction::In, 1, setup, &[]);
        assert_eq!(self.wait(seqnum).actual, 1);
    }

    fn write(&mut self, request: &Request<'_>) {
        let mut bytes = Vec::new();
        request.write(&mut bytes);
        self.socket.write_all(&bytes).unwrap();
    }

    /// Whether an answer came so far, without waiting for it.
    pub(crate) fn has(&self, seqnum: u32) -> bool {
        self.done.contains_key(&seqnum)
    }

    /// Wait for an answer.
    pub(crate) fn wait(&mut self, seqnum: u32) -> Done {
        loop {
            if let Some(done) = self.done.remove(&seqnum) {
                return done;
            }
            self.read();
        }
    }

    fn read(&mut self) {
        let mut chunk = [0; 4096];
        let read = self.socket.read(&mut chunk).unwrap();
        assert_ne!(read, 0, "the device has closed the connection");
        self.bytes.extend_from_slice(&chunk[..read]);
        self.log.extend_from_slice(&chunk[..read]);
        let directions = &self.directions;
        let is_in = |seqnum| directions[&seqnum] == Direction::In;
        while let Some((reply, bytes)) = Reply::parse(&self.bytes, is_in).unwrap() {
            let (seqnum, done) = match reply {
                Reply::Submit { seqnum, status, actual, data } => {
                    let data = data.to_vec();
                    (seqnum, Done { status, actual, data })
                }
                Reply::Unlink { seqnum, status } => {
                    let data = Vec::new();
                    (seqnum, Done { status, actual: 0, data })
                }
            };
            assert!(self.done.insert(seqnum, done).is_none(), "answered twice");
            self.bytes.drain(..bytes);
        }
    }
}

impl Pipe for Host {
    fn request(&mut self, setup: Setup, data: &[u8]) -> Result<Vec<u8>, Stall> {
        let direction = match setup.is_in() {
            true => Direction::In,
            false => Direction::Out,
        };
        let length = usize::from(setup.length);
        let seqnum = self.submit(0, direction, length, setup.bytes(), data);
        let done = self.wait(seqnum);
        match done.status {
            0 => Ok(done.data),
            _ => Err(Stall),
        }
    }
}
