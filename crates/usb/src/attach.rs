//! Attaching a device to `vhci_hcd`, by the files of the controller: a port is given the
//! descriptor of a socket, and the kernel talks USB/IP on it.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The first controller, which exists once the module is loaded.
pub const CONTROLLER: &str = "/sys/devices/platform/vhci_hcd.0";

/// `USB_SPEED_HIGH` in `include/uapi/linux/usb/ch9.h`: 480 Mbit/s.
const HIGH_SPEED: u32 = 3;
/// `VDEV_ST_NULL` in `include/uapi/linux/usbip.h`: nothing is attached.
const FREE: &str = "004";

/// Why a device is not attached, or not detached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// No such controller.
    #[error("no such controller `{0}`: load the module vhci-hcd (`modprobe vhci-hcd`)")]
    NoController(PathBuf),
    /// Root may.
    #[error("cannot write `{0}`: permission denied; run as root")]
    Permission(PathBuf),
    /// All ports are in use.
    #[error(
        "no free USB port: all {0} of vhci_hcd are in use; detach a device (`usbip detach -p PORT`)"
    )]
    NoPort(usize),
    /// A line of the controller's status that we can't read.
    #[error("invalid line `{0}` in the status of vhci_hcd; expected like `hs  0000 004 ...`")]
    Status(String),
    /// Any other error of the kernel.
    #[error("cannot {what} of vhci_hcd: {source}")]
    Refused {
        /// What was tried.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Ports of a controller, to attach devices to.
#[derive(Debug, Clone)]
pub struct Controller {
    folder: PathBuf,
}

impl Default for Controller {
    fn default() -> Controller {
        Controller::at(CONTROLLER)
    }
}

impl Controller {
    /// The controller of a folder below /sys.
    pub fn at(folder: impl Into<PathBuf>) -> Controller {
        Controller { folder: folder.into() }
    }

    /// The first free port of high speed.
    ///
    /// # Errors
    ///
    /// If there is no controller, or no free port.
    pub fn free_port(&self) -> Result<u32, AttachError> {
        let path = self.folder.join("status");
        let status = fs::read_to_string(&path)
            .map_err(|source| self.error(&path, "read the status".into(), source))?;
        first_free(&status)
    }

    /// Attach a device of high speed to a free port. The other end of the socket that
    /// [`Attached`] has is to be served at once: the kernel asks for descriptors.
    ///
    /// # Errors
    ///
    /// If there is no free port, or if the kernel refuses.
    pub fn attach(&self) -> Result<Attached, AttachError> {
        let (ours, kernels) = UnixStream::pair().map_err(|source| AttachError::Refused {
            what: "make a socket for a port".into(),
            source,
        })?;
        loop {
            let port = self.free_port()?;
            // A bus and a device number, not 0, as a real host has them.
            let devid = 1 << 16 | (port + 2);
            let line = format!("{port} {} {devid} {HIGH_SPEED}", kernels.as_raw_fd());
            match self.write("attach", &line, format!("attach to port {port}")) {
                // The kernel holds its end now, so our descriptor of it is closed.
                Ok(()) => return Ok(Attached { port, socket: ours }),
                // Another process was faster.
                Err(AttachError::Refused { source, .. })
                    if source.raw_os_error() == Some(libc::EBUSY) => {}
                Err(other) => return Err(other),
            }
        }
    }

    /// Detach a port's device.
    ///
    /// # Errors
    ///
    /// If nothing is.
    pub fn detach(&self, port: u32) -> Result<(), AttachError> {
        self.write("detach", &port.to_string(), format!("detach port {port}"))
    }

    fn write(&self, file: &str, line: &str, what: String) -> Result<(), AttachError> {
        let path = self.folder.join(file);
        // Opened for writing alone: in a folder of a test as below /sys, nothing is created.
        let written = fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|mut opened| io::Write::write_all(&mut opened, line.as_bytes()));
        written.map_err(|source| self.error(&path, what, source))
    }

    fn error(&self, path: &Path, what: String, source: io::Error) -> AttachError {
        match source.kind() {
            io::ErrorKind::NotFound => AttachError::NoController(self.folder.clone()),
            io::ErrorKind::PermissionDenied => AttachError::Permission(path.to_owned()),
            _ => AttachError::Refused { what, source },
        }
    }
}

/// A port that a device is attached to, which ends when the socket is closed.
#[derive(Debug)]
pub struct Attached {
    /// The port, to detach it.
    pub port: u32,
    /// The device's end.
    pub socket: UnixStream,
}

/// The first free port in a controller's status, a line each behind a heading:
/// `hub port sta spd dev      sockfd local_busid`.
fn first_free(status: &str) -> Result<u32, AttachError> {
    let mut ports = 0;
    for line in status.lines().skip(1) {
        let mut words = line.split_whitespace();
        let (Some(hub), Some(port), Some(state)) = (words.next(), words.next(), words.next())
        else {
            return Err(AttachError::Status(line.to_owned()));
        };
        if hub != "hs" {
            continue;
        }
        ports += 1;
        if state == FREE {
            return port.parse().map_err(|_| AttachError::Status(line.to_owned()));
        }
    }
    Err(AttachError::NoPort(ports))
}

#[cfg(test)]
mod tests;
