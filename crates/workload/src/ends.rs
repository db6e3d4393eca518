//! The two ends that packets run between, and their sockets.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use netplumb_model::class::Proto;
use netplumb_sys::cpus::pin;
use netplumb_sys::netns::{enter, inside};
use socket2::{Domain, Protocol, Socket, Type};

/// Ports are fixed, so that hashes don't depend on random ports.
pub(crate) const TX_PORT: u16 = 40_001;
pub(crate) const RX_PORT: u16 = 40_002;
/// Socket buffer, with room for any block.
const BUFFER_BYTES: usize = 4 << 20;
/// Connections that wait to be taken.
const BACKLOG: i32 = 16;

/// Start a program in a namespace, on one CPU if that is given. It has no input and a clean environment,
/// and does not outlive the thread that started it.
///
/// # Errors
/// It can't be started; of kind `NotFound` if there is no such program.
pub(crate) fn spawn_in(
    namespace: BorrowedFd<'_>,
    cpu: Option<u32>,
    command: &mut Command,
) -> io::Result<Child> {
    let namespace = namespace.as_raw_fd();
    // SAFETY: the closure makes system calls only; the namespace is held open until it has run.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            cpu.map_or(Ok(()), |cpu| pin(0, cpu))?;
            enter(BorrowedFd::borrow_raw(namespace))
        });
    }
    let spawned = command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .spawn();
    let name = || command.get_program().to_string_lossy().into_owned();
    spawned.map_err(|e| io::Error::new(e.kind(), format!("run {}: {e}", name())))
}

/// The sender and the receiver.
#[derive(Debug)]
pub struct Ends {
    /// Network namespace of the sender.
    pub tx_namespace: OwnedFd,
    /// Network namespace of the receiver; may be the same.
    pub rx_namespace: OwnedFd,
    /// Namespaces between the two, by name.
    pub between: Vec<(String, OwnedFd)>,
    /// Address of the sender.
    pub tx_address: IpAddr,
    /// Address of the receiver.
    pub rx_address: IpAddr,
    /// The address that packets for the receiver are sent to: its own, unless they are translated on the way.
    pub to_address: IpAddr,
}

/// Open sockets, connected to each other.
#[derive(Debug)]
pub struct Sockets {
    /// Sends; for raw ICMP also receives the replies.
    pub tx: OwnedFd,
    /// Receives; for raw ICMP the same as `tx`.
    pub rx: OwnedFd,
}

impl Sockets {
    /// Packets dropped by the receiving socket since it was opened.
    ///
    /// # Errors
    /// The query failed.
    pub fn dropped(&self) -> io::Result<u64> {
        // include/uapi/linux/sock_diag.h: SK_MEMINFO_DROPS is the last of nine.
        const DROPS: usize = 8;
        let mut info = [0_u32; DROPS + 1];
        let mut length = size_of_val(&info) as libc::socklen_t;
        // SAFETY: the pointer and the length describe `info`.
        let result = unsafe {
            libc::getsockopt(
                self.rx.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                info.as_mut_ptr().cast(),
                &mut length,
            )
        };
        match result {
            0 => Ok(u64::from(info[DROPS])),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Take datagrams from any source.
pub(crate) fn disconnect(socket: &impl AsRawFd) -> io::Result<()> {
    let nowhere =
        libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };
    let length = size_of_val(&nowhere) as libc::socklen_t;
    // SAFETY: the address and the length describe `nowhere`.
    match unsafe { libc::connect(socket.as_raw_fd(), &nowhere, length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Ends {
    /// The same ends, with duplicated descriptors.
    ///
    /// # Errors
    /// No file descriptors are left.
    pub fn try_clone(&self) -> io::Result<Ends> {
        Ok(Ends {
            tx_namespace: self.tx_namespace.try_clone()?,
            rx_namespace: self.rx_namespace.try_clone()?,
            between: self
                .between
                .iter()
                .map(|(name, fd)| Ok((name.clone(), fd.try_clone()?)))
                .collect::<io::Result<_>>()?,
            tx_address: self.tx_address,
            rx_address: self.rx_address,
            to_address: self.to_address,
        })
    }

    /// All namespaces, by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &OwnedFd)> {
        let ends = [("sender", &self.tx_namespace), ("receiver", &self.rx_namespace)];
        let between = self.between.iter().map(|(name, fd)| (name.as_str(), fd));
        ends.into_iter().chain(between)
    }

    /// Open and connect the sockets for `proto`.
    ///
    /// # Errors
    /// The socket call that failed.
    pub fn open(&self, proto: Proto) -> io::Result<Sockets> {
        use std::os::fd::AsFd;
        let (tx_ns, rx_ns) = (self.tx_namespace.as_fd(), self.rx_namespace.as_fd());
        match proto {
            Proto::Raw => {
                let tx = inside(tx_ns, || self.raw())?;
                let rx = tx.try_clone()?;
                Ok(Sockets { tx, rx })
            }
            Proto::Udp => {
                let from = SocketAddr::new(self.tx_address, TX_PORT);
                let rx = inside(rx_ns, || udp(SocketAddr::new(self.rx_address, RX_PORT)))?;
                let tx = inside(tx_ns, || udp(from))?;
                tx.connect(&SocketAddr::new(self.to_address, RX_PORT).into())?;
                match rx.connect(&from.into()) {
                    // The sender's address may be translated on the way.
                    Err(error) if is_unreachable(&error) => {}
                    other => other?,
                }
                Ok(Sockets { tx: tx.into(), rx: rx.into() })
            }
            Proto::Tcp => self.tcp(),
            Proto::Command | Proto::Work => {
                Err(io::Error::other("a command sends its own packets"))
            }
        }
    }

    /// Open the receiver of flows that are each opened for a packet: for TCP, a listener.
    pub(crate) fn open_receiver(&self, proto: Proto) -> io::Result<Sockets> {
        use std::os::fd::AsFd;
        let at = SocketAddr::new(self.rx_address, RX_PORT);
        let namespace = self.rx_namespace.as_fd();
        let rx: OwnedFd = match proto {
            Proto::Udp => inside(namespace, || udp(at))?.into(),
            Proto::Tcp => inside(namespace, || {
                let socket = stream(at)?;
                socket.listen(BACKLOG)?;
                Ok(socket)
            })?
            .into(),
            Proto::Raw | Proto::Command | Proto::Work => return self.open(proto),
        };
        Ok(Sockets { tx: rx.try_clone()?, rx })
    }

    /// A socket for ICMP echoes, in the namespace of this thread.
    pub(crate) fn raw(&self) -> io::Result<OwnedFd> {
        let socket = raw_to(self.to_address)?;
        roomy(&socket)?;
        socket.bind(&SocketAddr::new(self.tx_address, 0).into())?;
        socket.connect(&SocketAddr::new(self.to_address, 0).into())?;
        Ok(socket.into())
    }

    fn tcp(&self) -> io::Result<Sockets> {
        use std::os::fd::AsFd;
        let to = SocketAddr::new(self.to_address, RX_PORT);
        let from = SocketAddr::new(self.tx_address, TX_PORT);
        let listener = inside(self.rx_namespace.as_fd(), || {
            let socket = stream(SocketAddr::new(self.rx_address, RX_PORT))?;
            socket.listen(1)?;
            // SAFETY: the descriptor was just given up by its owner.
            Ok(unsafe { TcpListener::from_raw_fd(socket.into_raw_fd()) })
        })?;
        let tx = inside(self.tx_namespace.as_fd(), || {
            let socket = stream(from)?;
            socket.connect(&to.into())?;
            // SAFETY: the descriptor was just given up by its owner.
            Ok(unsafe { TcpStream::from_raw_fd(socket.into_raw_fd()) })
        })?;
        let (rx, _) = listener.accept()?;
        for end in [tx.as_fd(), rx.as_fd()] {
            // Close by a reset: a connection in TIME_WAIT would block these ports for the next run
            // if both ends are in one namespace.
            let at_once = [1_i32.to_ne_bytes(), 0_i32.to_ne_bytes()].concat();
            set_option(&end, libc::SOL_SOCKET, libc::SO_LINGER, &at_once)?;
        }
        tx.set_nodelay(true)?;
        rx.set_nodelay(true)?;
        Ok(Sockets { tx: tx.into(), rx: rx.into() })
    }
}

/// Whether there is no way to an address.
fn is_unreachable(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENETUNREACH | libc::EHOSTUNREACH))
}

/// A socket for ICMP echoes that receives replies only, in the namespace of this thread.
pub(crate) fn raw_to(peer: IpAddr) -> io::Result<Socket> {
    Ok(match peer {
        IpAddr::V4(_) => {
            let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4))?;
            // Receive only echo replies (type 0), like ping.
            let all_but_reply: u32 = !1;
            const SOL_RAW: i32 = 255;
            const ICMP_FILTER: i32 = 1;
            set_option(&socket, SOL_RAW, ICMP_FILTER, &all_but_reply.to_ne_bytes())?;
            socket
        }
        IpAddr::V6(_) => {
            let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
            // Bits set are blocked (RFC 3542, 3.2): all but echo reply, 129.
            let mut blocked = [0xff_u8; 32];
            blocked[129 / 8] &= !(1 << (129 % 8));
            const SOL_ICMPV6: i32 = 58;
            const ICMPV6_FILTER: i32 = 1;
            set_option(&socket, SOL_ICMPV6, ICMPV6_FILTER, &blocked)?;
            socket
        }
    })
}

pub(crate) fn set_option(
    socket: &impl AsRawFd,
    level: i32,
    name: i32,
    value: &[u8],
) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn roomy(socket: &Socket) -> io::Result<()> {
    // SO_RCVBUFFORCE needs root, which the guest's agent has; SO_RCVBUF is limited by
    // net.core.rmem_max, and sufficient for small packets.
    let bytes = (BUFFER_BYTES as i32).to_ne_bytes();
    for (forced, plain) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        set_option(socket, libc::SOL_SOCKET, forced, &bytes)
            .or_else(|_| set_option(socket, libc::SOL_SOCKET, plain, &bytes))?;
    }
    Ok(())
}

pub(crate) fn udp(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    roomy(&socket)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// A TCP socket that is bound.
pub(crate) fn stream(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // The next run may use the same ports immediately.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}
